//! Memory of a worker's process, and whether that is too much: judged here, whoever has measured it.

use serde::Deserialize;

use super::state::WorkerKey;

/// Memory of one worker's process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Memory {
    pub rss: u64,
    /// None: less than anybody asks for.
    pub private: Option<u64>,
}

/// Memory of one worker, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighed {
    pub worker: WorkerKey,
    pub memory: Memory,
    /// Private memory has reached `recycle.memory`: the worker gets no more work.
    pub at_limit: bool,
}

impl Memory {
    /// `limit` none: no memory is too much.
    pub(super) fn weigh(self, worker: WorkerKey, limit: Option<u64>) -> Weighed {
        let at_limit = limit.zip(self.private).is_some_and(|(limit, private)| private >= limit);
        Weighed { worker, memory: self, at_limit }
    }
}
