//! The stores that there are, by the scheme of their URL.

pub mod sqlite;

use std::sync::Arc;

use crate::store::{Result, Store, StoreError};

/// Opens `sqlite:///relative.db`, `sqlite:////absolute.db`.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    match scheme {
        "sqlite" => Ok(Arc::new(sqlite::Sqlite::open(url)?)),
        _ => Err(StoreError::Refused(format!("'{url}' is not the URL of a store; allowed: sqlite:///jobs.db"))),
    }
}
