//! The stores that there are, by the scheme of their URL.

pub mod redis;
pub mod sqlite;

use std::sync::Arc;

use crate::store::{Result, Store, StoreError};

/// Opens `sqlite:///relative.db`, `sqlite:////absolute.db`, `redis://host/0` and what else each store knows.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    match scheme {
        "sqlite" => Ok(Arc::new(sqlite::Sqlite::open(url)?)),
        "redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" => Ok(Arc::new(redis::Redis::open(url)?)),
        _ => Err(StoreError::Refused(format!(
            "'{url}' is not the URL of a store; allowed: sqlite:///jobs.db, redis://localhost:6379/0"
        ))),
    }
}
