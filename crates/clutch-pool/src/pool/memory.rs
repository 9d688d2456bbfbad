//! What a worker's process takes of memory.

use serde::Deserialize;

/// Memory of one worker's process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Memory {
    pub rss: u64,
    /// None: less than anybody asks for.
    pub private: Option<u64>,
}

impl Memory {
    /// Whether its private memory is known to be at the limit, where there is one.
    pub fn reaches(&self, limit: Option<u64>) -> bool {
        limit.zip(self.private).is_some_and(|(limit, private)| private >= limit)
    }
}
