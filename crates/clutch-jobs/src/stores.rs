//! The stores that there are, by the scheme of their URL.

/// Scripts of Redis: each is appended to what all of a store share. Files are found from where this is used. `SOURCES` is
/// the text of all.
macro_rules! scripts {
    ($common:literal: $($name:ident: $($file:literal),*;)*) => {
        $(static $name: std::sync::LazyLock<::redis::Script> = std::sync::LazyLock::new(|| {
            ::redis::Script::new(concat!(
                include_str!("redis/guard.lua"), include_str!($common), include_str!("redis/leases.lua"),
                $(include_str!($file)),*
            ))
        });)*

        pub(in crate::stores) const SOURCES: &[&str] = &[
            include_str!("redis/guard.lua"), include_str!($common), include_str!("redis/leases.lua"),
            $($(include_str!($file)),*),*
        ];
    };
}

pub mod redis;
pub mod sidekiq;
pub mod sqlite;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clutch_wire::forked::PerProcess;
use clutch_wire::sync::Mutex;

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
        offers: Offers { keywords: true, ticks: true, results: true, dependencies: true, transactions: true },
    },
    Kind {
        has_scheme: redis::is_scheme,
        open: |url| Ok(Arc::new(redis::Redis::open(url)?)),
        check: |url| redis::Location::parse(url).map(drop),
        file: |_| None,
        offers: Offers { keywords: true, ticks: true, results: true, dependencies: true, transactions: false },
    },
    Kind {
        has_scheme: sidekiq::is_scheme,
        open: |url| Ok(Arc::new(sidekiq::Sidekiq::open(url)?)),
        check: sidekiq::check,
        file: |_| None,
        offers: Offers { keywords: false, ticks: false, results: false, dependencies: false, transactions: false },
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

/// Stores by URL, of each as many connections as anybody wants at a time.
type SharedStores = HashMap<(String, usize), Arc<dyn Store>>;

static SHARED: PerProcess<Mutex<SharedStores>> = PerProcess::new();

/// Opens a store that all of the process share, and that stays open: a program that makes a client for each request has few
/// connections, and none is closed that would take the locks of a neighbour away (sqlite/locks.rs). `at`: which of the
/// connections.
pub fn shared(url: &str, at: usize) -> Result<Arc<dyn Store>> {
    let failed = |failure: io::Error| StoreError::Refused(failure.to_string());
    let (shared, _) = SHARED.get(|| Ok(Mutex::default())).map_err(failed)?;
    let mut shared = shared.lock();
    let key = (url.to_owned(), at);
    if let Some(store) = shared.get(&key) {
        return Ok(store.clone());
    }
    let store = open(url)?;
    shared.insert(key, store.clone());
    Ok(store)
}

/// Closes a shared store of a test when its last user is gone: its file is nobody else's.
pub fn forget(url: &str) {
    if let Some(shared) = SHARED.made() {
        shared.lock().retain(|(known, _), _| known != url);
    }
}

/// Prepares the process for a store, before it opens the first of its kind. Not beside a fork: see
/// [`sqlite::keep_from_neighbours`].
pub fn prepare(url: &str) {
    if file(url).is_some() {
        sqlite::keep_from_neighbours();
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
