//! Every option of a pool and of the fronts, typed once.
//!
//! The values arrive as JSON from `python/clutch/config/options.py`, which owns names, defaults, documentation and the
//! checks that a person sees; here a wrong value is a bug of the caller, so the parse is strict.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Most workers of a pool; `python/clutch/config/options.py` names the same.
pub const WORKERS_MAX: usize = 4096;

/// Limit of a start once a worker has been ready, unless one is set.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Kind of the slots inside a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    Process,
    Thread,
    Async,
    Greenlet,
}

impl Profile {
    /// Whether its slots are tasks or greenlets, which take turns in one thread.
    pub fn has_tasks(self) -> bool {
        matches!(self, Profile::Async | Profile::Greenlet)
    }
}

/// A profile in full: workers × threads × tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    pub profile: Profile,
    pub workers: u32,
    pub threads: u32,
    pub tasks: u32,
}

impl Shape {
    /// Slots of one worker: how many pieces of work may be begun in it at a time.
    pub fn slots(&self) -> u32 {
        self.threads.max(1) * self.tasks.max(1)
    }
}

/// Start method of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    Fork,
    Spawn,
}

/// Policy for a submission when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    Reject,
    Block,
}

/// Configuration of one pool, as far as the dispatcher needs it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    pub name: String,
    pub shape: Shape,
    /// Path of the interpreter that runs the zygote and the workers.
    pub python: String,
    /// Folder in which that interpreter finds this package, if it is nowhere else: the program may have found it in its own way.
    #[serde(default)]
    pub package_path: Option<String>,
    /// Added to the environment of the zygote before anything is imported.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub start: Start,
    /// A zygote whose import, or a worker whose start, takes longer is killed.
    /// None: there is no limit until a worker has been ready, and [`START_TIMEOUT`] from then on.
    pub start_timeout_ms: Option<u64>,
    /// Default deadline of work that brings none.
    pub deadline_ms: Option<u64>,
    /// Longest waiting line; none: no limit.
    pub queue_limit: Option<usize>,
    pub overflow: Overflow,
    /// Number of calls after which a worker is replaced.
    pub recycle_calls: Option<u64>,
    /// A worker is replaced at this age.
    pub recycle_age_ms: Option<u64>,
    /// A worker whose private memory reaches this gets no more work and is replaced.
    pub recycle_memory_bytes: Option<u64>,
    /// Maximum workers out at a time: waiting for their replacement by policy, or draining.
    pub recycle_together: usize,
    /// Maximum unexpected worker deaths per minute; above it, restarts are delayed.
    pub restarts_max: usize,
    /// Minimum number of workers; `shape.workers` is the maximum. If they are equal, the pool does not scale.
    pub workers_min: u32,
    /// Maximum time that work may wait before the pool grows.
    pub scale_delay_ms: u64,
    /// Time for which fewer workers must have been enough before the pool shrinks.
    pub scale_idle_ms: u64,
    /// Maximum private memory of all workers together; the pool does not grow beyond it.
    pub memory_max_bytes: Option<u64>,
    /// Fraction by which each worker's recycling thresholds are drawn lower, 0 to 1.
    pub recycle_jitter: f64,
    /// Number of workers that work may kill before it is not retried.
    pub deaths_max: u32,
    /// Maximum time that a stop or a drain waits for running work.
    pub grace_ms: u64,
    /// Between the exception that stops a call and what follows.
    pub interrupt_grace_ms: u64,
    /// Between TERM and KILL of a worker's group.
    pub term_grace_ms: u64,
    /// A worker that stays stopped (SIGSTOP) for longer is killed and replaced.
    pub stopped_limit_ms: u64,
    /// Largest payload of one frame, in bytes, large regions included.
    pub payload_bytes_max: u64,
    /// Last bytes of a worker's output kept for its crash report.
    pub output_kept_bytes: usize,
    /// Whether /readyz waits for this pool.
    pub required: bool,
    /// Development mode: a reload ends the old code at once, and errors of the new code are shown.
    #[serde(default)]
    pub development: bool,
    /// Workers that are equally busy get work in turn.
    #[serde(default)]
    pub takes_turns: bool,
    /// Launch options for the zygote, which the dispatcher does not read: passed on as they came.
    pub launch: serde_json::Value,
}

impl PoolConfig {
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline_ms.map(Duration::from_millis)
    }

    pub fn interrupt_grace(&self) -> Duration {
        Duration::from_millis(self.interrupt_grace_ms)
    }

    pub fn start_timeout(&self) -> Duration {
        self.start_timeout_ms.map_or(START_TIMEOUT, Duration::from_millis)
    }

    /// Says that a start has taken too long, and how to give it more time.
    pub fn start_overdue(&self, what: &str) -> String {
        let (name, limit) = (&self.name, self.start_timeout().as_secs_f64());
        format!(
            "{what} took longer than start_timeout ({limit} s); to allow more, set start_timeout = \"{}s\" of pool {name:?}",
            2.0 * limit
        )
    }

    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    pub fn term_grace(&self) -> Duration {
        Duration::from_millis(self.term_grace_ms)
    }
}

/// Policy for a request whose client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disconnect {
    /// The app is told (`http.disconnect`) and goes on.
    Tell,
    /// The request is stopped, as a cancelled call is.
    Cancel,
}
