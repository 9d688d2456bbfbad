//! What anybody may know of a pool and its workers.

use serde::{Deserialize, Serialize};

use super::state::WorkerKey;

/// What the rest of the world may know of a pool's workers.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerView {
    pub nr: u32,
    pub pid: i32,
    pub generation: u32,
    pub state: &'static str,
    pub calls: u64,
    pub sent: usize,
    /// Bytes when it was last looked at; none: nothing asks for it.
    pub rss: Option<u64>,
    pub private: Option<u64>,
}

/// Memory of one worker's process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Memory {
    pub rss: u64,
    /// None: less than anybody asks for.
    pub private: Option<u64>,
}

/// State of the whole pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Starting,
    Ready,
    Failing,
    Draining,
    Closed,
}

/// Kept by the supervisor, read by anybody.
#[derive(Clone, Debug)]
pub struct Status {
    pub health: Health,
    pub reason: Option<String>,
    pub ready: usize,
    pub target: usize,
    pub workers: Vec<(WorkerKey, WorkerView)>,
    pub zygote_pid: Option<i32>,
    pub generation: u32,
    pub restarts: u64,
    /// The zygote's own words: tools, warnings, Python version; JSON.
    pub image: serde_json::Value,
}

/// Counts and workers at one instant.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    pub name: String,
    pub state: Health,
    pub reason: Option<String>,
    pub queued: usize,
    pub lobby: usize,
    pub sent: usize,
    pub slots: usize,
    pub ready: usize,
    pub target: usize,
    pub done: u64,
    pub failed: u64,
    pub restarts: u64,
    pub generation: u32,
    pub zygote_pid: Option<i32>,
    pub workers: Vec<WorkerView>,
    pub image: serde_json::Value,
}
