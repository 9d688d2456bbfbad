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

use std::path::PathBuf;
use std::sync::Arc;

use crate::store::{Offers, Result, Store, StoreError};

const ALLOWED: &str = "sqlite:///jobs.db, redis://host:port/db, sidekiq://host:port/db";

/// A kind of store, told by the schemes of its URLs.
struct Kind {
    has_scheme: fn(&str) -> bool,
    open: fn(&str) -> Result<Arc<dyn Store>>,
    /// Refuses what is not the URL of such a store, which need not exist.
    check: fn(&str) -> Result<()>,
    /// The file that the store is, if it is one.
    file: fn(&str) -> Option<PathBuf>,
    offers: Offers,
}

/// A new kind is a file and a row.
static KINDS: [Kind; 3] = [
    Kind {
        has_scheme: |scheme| scheme == "sqlite",
        open: |url| Ok(Arc::new(sqlite::Sqlite::open(url)?)),
        check: |url| sqlite::DatabaseFile::parse(url).map(drop),
        file: |url| Some(sqlite::DatabaseFile::parse(url).ok()?.path),
        offers: Offers { keywords: true, ticks: true, results: true, transactions: true },
    },
    Kind {
        has_scheme: redis::is_scheme,
        open: |url| Ok(Arc::new(redis::Redis::open(url)?)),
        check: |url| redis::Location::parse(url).map(drop),
        file: |_| None,
        offers: Offers { keywords: true, ticks: true, results: true, transactions: false },
    },
    Kind {
        has_scheme: sidekiq::is_scheme,
        open: |url| Ok(Arc::new(sidekiq::Sidekiq::open(url)?)),
        check: sidekiq::check,
        file: |_| None,
        offers: Offers { keywords: false, ticks: false, results: false, transactions: false },
    },
];

fn kind_of(url: &str) -> Result<&'static Kind> {
    let scheme = url.split_once("://").unwrap_or_default().0;
    KINDS.iter().find(|kind| (kind.has_scheme)(scheme)).ok_or_else(|| unknown(scheme, url))
}

/// Opens `sqlite:///relative.db`, `sqlite:////absolute.db`, `redis://host:port/db` and what else [`redis::Location`] knows,
/// and `sidekiq://host:port/db`.
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    (kind_of(url)?.open)(url)
}

/// Returns the abilities of a store, which need not exist. Refuses what is not the URL of one.
pub fn offers(url: &str) -> Result<Offers> {
    let kind = kind_of(url)?;
    (kind.check)(url)?;
    Ok(kind.offers)
}

/// Returns the file that a store is, of one that is a file.
pub fn file(url: &str) -> Option<PathBuf> {
    (kind_of(url).ok()?.file)(url)
}

fn unknown(scheme: &str, url: &str) -> StoreError {
    let shown = match scheme {
        "" if !url.contains('@') => url,
        // The rest of a URL may hold a password.
        _ => &format!("{scheme}://…"),
    };
    StoreError::Refused(format!("'{shown}' is not the URL of a store; allowed: {ALLOWED}"))
}
