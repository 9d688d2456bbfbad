//! The stores that there are, by the scheme of their URL.

/// Scripts of Redis: each is appended to what all of a store share. Files are found from where this is used.
macro_rules! scripts {
    ($common:literal: $($name:ident: $($file:literal),*;)*) => {
        $(static $name: std::sync::LazyLock<::redis::Script> = std::sync::LazyLock::new(|| {
            ::redis::Script::new(concat!(
                include_str!($common), include_str!("redis/clock.lua"), $(include_str!($file)),*
            ))
        });)*
    };
}

pub mod redis;
pub mod sidekiq;
pub mod sqlite;

use std::sync::Arc;

use crate::store::{Result, Store, StoreError};

const ALLOWED: &str = "sqlite:///jobs.db, redis://host:port/db, sidekiq://host:port/db";

/// Opens `sqlite:///relative.db`, `sqlite:////absolute.db`, `redis://host:port/db` and what else [`redis::Location`] knows,
/// and `sidekiq://host:port/db`.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    match scheme(url) {
        "sqlite" => Ok(Arc::new(sqlite::Sqlite::open(url)?)),
        scheme if redis::is_scheme(scheme) => Ok(Arc::new(redis::Redis::open(url)?)),
        scheme if sidekiq::is_scheme(scheme) => Ok(Arc::new(sidekiq::Sidekiq::open(url)?)),
        scheme => Err(unknown(scheme, url)),
    }
}

/// Whether it is the URL of a store, which need not be there.
pub fn check(url: &str) -> Result<()> {
    match scheme(url) {
        "sqlite" => sqlite::DatabaseFile::parse(url).map(drop),
        scheme if redis::is_scheme(scheme) => redis::Location::parse(url).map(drop),
        scheme if sidekiq::is_scheme(scheme) => sidekiq::check(url),
        scheme => Err(unknown(scheme, url)),
    }
}

fn unknown(scheme: &str, url: &str) -> StoreError {
    let shown = match scheme {
        "" if !url.contains('@') => url,
        // The rest of a URL may hold a password.
        _ => &format!("{scheme}://…"),
    };
    StoreError::Refused(format!("'{shown}' is not the URL of a store; allowed: {ALLOWED}"))
}

fn scheme(url: &str) -> &str {
    url.split_once("://").unwrap_or_default().0
}
