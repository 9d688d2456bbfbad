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

pub mod celery;
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

const ALLOWED: &str = "sqlite:///jobs.db, redis://host:port/db, sidekiq://host:port/db, celery://host:port/db";

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
static KINDS: [Kind; 4] = [
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
    Kind {
        has_scheme: celery::is_scheme,
        open: |url| Ok(Arc::new(celery::Celery::open(url)?)),
        check: celery::check,
        file: |_| None,
        offers: Offers { keywords: true, ticks: false, results: false, dependencies: false, transactions: false },
    },
];

fn kind_of(url: &str) -> Result<&'static Kind> {
    let scheme = url.split_once("://").unwrap_or_default().0;
    let kind = named(scheme).ok_or_else(|| unknown(scheme, url))?;
    // It would be a part of the name of a file.
    if url.trim() != url {
        let scheme = format!("{scheme}://…");
        return Err(StoreError::Refused(format!("'{scheme}' has a space at its beginning or end: remove it")));
    }
    Ok(kind)
}

fn named(scheme: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| (kind.has_scheme)(scheme))
}

/// Opens `sqlite:///relative.db`, `sqlite:////absolute.db`, `redis://host:port/db` and what else [`redis::Location`] knows,
/// `sidekiq://host:port/db`, and
/// `celery://host:port/db`.
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
    let meant = meant(scheme, url).map_or_else(String::new, |meant| format!("; {meant}"));
    StoreError::Refused(format!("'{shown}' is not the URL of a store; allowed: {ALLOWED}{meant}"))
}

/// Returns what to write for a URL that is nearly one.
fn meant(scheme: &str, url: &str) -> Option<String> {
    let did_you = |meant: String| Some(format!("did you mean {meant}?"));
    let small = scheme.to_lowercase();
    if url.trim().is_empty() {
        return Some("it is empty: is the variable set that it comes from?".to_owned());
    }
    if !scheme.is_empty() {
        let near = if small == "sqlite3" { "sqlite" } else { small.trim() };
        return named(near).and_then(|_| did_you(format!("{near}://…")));
    }
    if url.contains('@') {
        return None; // it may hold a password
    }
    match url.split_once(':') {
        Some((scheme, path)) if scheme.eq_ignore_ascii_case("sqlite") => did_you(format!("sqlite:///{path}")),
        Some((scheme, host)) if named(&scheme.to_lowercase()).is_some() => {
            did_you(format!("{}://{}", scheme.to_lowercase(), host.trim_start_matches('/')))
        }
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => did_you(format!("redis://{url}/0")),
        None if url.contains(['.', '/']) => did_you(format!("sqlite:///{url}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_a_url_is_told_with_what_was_meant() {
        for (given, words) in [
            ("sqlite:jobs.db", "did you mean sqlite:///jobs.db?"),
            ("sqlite:/var/jobs.db", "did you mean sqlite:////var/jobs.db?"),
            ("jobs.db", "did you mean sqlite:///jobs.db?"),
            ("SQLITE:///jobs.db", "did you mean sqlite://…?"),
            ("sqlite3:///jobs.db", "did you mean sqlite://…?"),
            ("redis:/localhost", "did you mean redis://localhost?"),
            ("Redis:localhost:6379", "did you mean redis://localhost:6379?"),
            ("localhost:6379", "did you mean redis://localhost:6379/0?"),
            ("", "it is empty: is the variable set that it comes from?"),
            (" ", "it is empty"),
            (" sqlite:///jobs.db", "did you mean sqlite://…?"),
            ("sqlite:///jobs.db ", "has a space at its beginning or end: remove it"),
            ("postgres://u:hunter2@host", "redis://host:port/db, sidekiq://host:port/db"),
            ("redis:u:hunter2@host", "sidekiq://host:port/db"),
        ] {
            let refused = offers(given).unwrap_err().to_string();
            assert!(refused.contains(words) && !refused.contains("hunter2"), "{given}: {refused}");
        }
    }
}
