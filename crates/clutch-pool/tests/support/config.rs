//! A pool's options, for tests: of the crate inside and outside, and of the crates above.

use std::collections::BTreeMap;

use clutch_pool::config::{Overflow, PoolConfig, Profile, Shape, Start};

/// A pool of the given name that nothing limits.
pub fn config(name: &str) -> PoolConfig {
    PoolConfig {
        name: name.to_owned(),
        shape: Shape { profile: Profile::Process, workers: 1, threads: 1, tasks: 1 },
        python: "python3".to_owned(),
        package_path: None,
        env: BTreeMap::new(),
        start: Start::Fork,
        start_timeout_ms: Some(10_000),
        deadline_ms: None,
        queue_limit: None,
        overflow: Overflow::Reject,
        recycle_calls: None,
        recycle_age_ms: None,
        recycle_memory_bytes: None,
        recycle_together: 1,
        restarts_max: 1000,
        workers_min: 1,
        scale_delay_ms: 100,
        scale_idle_ms: 30_000,
        memory_max_bytes: None,
        recycle_jitter: 0.0,
        grace_ms: 1000,
        deaths_max: 3,
        interrupt_grace_ms: 1000,
        term_grace_ms: 1000,
        stopped_limit_ms: 10_000,
        payload_bytes_max: 1 << 30,
        output_kept_bytes: 1024,
        required: true,
        development: false,
        takes_turns: false,
        launch: serde_json::Value::Null,
    }
}
