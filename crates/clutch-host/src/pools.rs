//! Pools of one process that fronts and operators reach, by name.

use std::sync::Arc;

use clutch_pool::pool::{Health, Pool};
use clutch_wire::sync::Mutex;

/// A pool under the name by which it is reached.
pub type NamedPool = (Arc<str>, Arc<Pool>);

/// Pools in the order in which they were added.
#[derive(Clone, Default)]
pub struct Pools(Arc<Mutex<Vec<NamedPool>>>);

impl Pools {
    /// Adds a pool under its own name, or as `name-2` where another pool has that.
    pub fn add(&self, pool: Arc<Pool>) {
        let mut pools = self.0.lock();
        let own = &pool.config.name;
        let is_free = |name: &String| pools.iter().all(|(taken, _)| **taken != **name);
        let numbered = (2..).map(|nr| format!("{own}-{nr}"));
        if let Some(name) = std::iter::once(own.clone()).chain(numbered).find(is_free) {
            pools.push((name.into(), pool));
        }
    }

    pub fn all(&self) -> Vec<NamedPool> {
        self.0.lock().clone()
    }

    pub fn named(&self, name: &str) -> Option<Arc<Pool>> {
        let pools = self.0.lock();
        pools.iter().find(|(known, _)| &**known == name).map(|(_, pool)| pool.clone())
    }

    /// Forgets those that are over. Returns whether any is left.
    pub fn keep_open(&self) -> bool {
        let mut pools = self.0.lock();
        pools.retain(|(_, pool)| pool.status().health != Health::Closed);
        !pools.is_empty()
    }
}
