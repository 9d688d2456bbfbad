//! Connections to a file: opened and set up alike, with its tables, and each kept until another takes it up.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clutch_wire::forked::PerProcess;
use clutch_wire::sync::{Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};

use super::flow::Refusal;
use super::locks::has_moved;
use super::turns::Turns;
use crate::store::{Result, StoreError};

/// Schema that this version reads and writes.
pub const SCHEMA_VERSION: i64 = 4;

/// Migrations from a version to the next. The last makes all tables anew: with another version after it, the schema in its
/// midst is one that has stayed as it was.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize - 1] = [
    include_str!("from_1.sql"),
    include_str!("from_2.sql"),
    concat!(include_str!("from_3_aside.sql"), include_str!("schema.sql"), include_str!("from_3.sql")),
];

/// How long a call waits for a file that others have locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before a file that could not be opened is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Maximum size of the write-ahead log that stays on the disk.
const LOG_BYTES_KEPT: i64 = 64 << 20;

/// Makes all tables, where there are none.
pub const SCHEMA: &str = include_str!("schema.sql");

/// When a commit is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    AtOnce,
    Soon,
}

/// A connection, and the numbers of what is beside the file that it has open.
pub struct Opened {
    path: PathBuf,
    synchronous: Synchronous,
    pub connection: Connection,
    turns: Turns,
    /// False: the file was locked, so it is not set up, or may have no tables.
    is_ready: bool,
    beside: [u64; 2],
}

/// Serializes connects: while a file is not in WAL mode yet, connections of one process share a lock that only the first of
/// them could release.
static CONNECTING: PerProcess<Mutex<()>> = PerProcess::new();

/// Connections that are used no more, or could not be set up, which the next one who needs one takes up: to close one would
/// take away the locks that a neighbour in this process has on the file.
static ASIDE: PerProcess<Mutex<Vec<Opened>>> = PerProcess::new();

impl Opened {
    /// To a file that has its tables then. `store`: its name.
    pub fn new(path: &Path, synchronous: Synchronous, store: &str) -> Result<Opened> {
        Opened::within(path, synchronous, store, BUSY_TIMEOUT)
    }

    /// The same, without a wait: one whose file is locked now is made ready when it is used.
    pub fn soon(path: &Path, synchronous: Synchronous, store: &str) -> Result<Opened> {
        Opened::within(path, synchronous, store, Duration::ZERO)
    }

    fn within(path: &Path, synchronous: Synchronous, store: &str, at_most: Duration) -> Result<Opened> {
        let made = {
            let _alone = connecting();
            taken_up(path).map_or_else(|| open(path), Ok)
        };
        let (connection, turns) = made.map_err(|error| unopened(store, path, error))?;
        let mut opened =
            Opened { path: path.to_owned(), synchronous, connection, turns, is_ready: false, beside: [0; 2] };
        match opened.prepare(store, at_most) {
            Ok(()) => Ok(opened),
            Err(error) => {
                opened.put_aside();
                Err(error)
            }
        }
    }

    /// Sets it up, and makes the tables where there are none, or older ones. Without time it is not ready where the file is
    /// locked.
    fn prepare(&mut self, store: &str, at_most: Duration) -> Result<()> {
        match self.set_up(at_most) {
            Ok(version) => check(version, store)?,
            Err(error) if is_busy(&error) && at_most.is_zero() => return Ok(()),
            Err(error) => return Err(unopened(store, &self.path, error)),
        }
        self.is_ready = true;
        // What is there is made with the first look into the file, and stays for as long as anybody has that open.
        if self.is_current() {
            self.beside = beside(&self.path).map(|path| number_of(&path));
        }
        Ok(())
    }

    /// Returns the version of the tables.
    fn set_up(&mut self, at_most: Duration) -> rusqlite::Result<i64> {
        self.connection.busy_timeout(at_most)?;
        let until = Instant::now() + at_most;
        let alone = connecting();
        while let Err(error) = set_up(&self.connection, self.synchronous) {
            // Two processes that make the same file wait for each other, and SQLite lets neither go first.
            if !is_busy(&error) || Instant::now() >= until {
                return Err(error);
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        drop(alone);
        let version = tables(&mut self.connection)?;
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(version)
    }

    /// Begins to write, in its turn.
    pub fn begin(&mut self, store: &str) -> Result<Transaction<'_>> {
        let (connection, mut begun) = (&self.connection, None);
        let waited = self.turns.wait(&self.path, BUSY_TIMEOUT, |at_most| {
            connection.busy_timeout(at_most)?;
            match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
                Err(error) if is_busy(&error) => return Ok(false),
                other => begun = Some(other?),
            }
            Ok(true)
        });
        let waited = waited.map_err(|error| told(store, error))?.unwrap_or(BUSY_TIMEOUT);
        begun.ok_or_else(|| StoreError::Unavailable { store: store.to_owned(), reason: locked(waited) })
    }

    /// Whether its file is the one at the path.
    pub fn is_current(&self) -> bool {
        !has_moved(&self.connection)
    }

    /// Opens the file that is there now if that is another: one that was removed would be written to, and read by nobody
    /// else. Whether it was.
    pub fn follow(&mut self, store: &str) -> Result<bool> {
        if self.is_current() {
            if !self.is_ready {
                self.prepare(store, BUSY_TIMEOUT)?;
            }
            return Ok(false);
        }
        self.check_left(store)?;
        let new = Opened::new(&self.path, self.synchronous, store)?;
        std::mem::replace(self, new).put_aside();
        Ok(true)
    }

    /// SQLite would take what was left of the one before for that of the file that is there now: its log would destroy a
    /// backup, and with its index nothing can be read.
    fn check_left(&self, store: &str) -> Result<()> {
        let beside = beside(&self.path);
        let left = beside.iter().zip(self.beside).find(|(path, number)| *number != 0 && number_of(path) == *number);
        let Some((left, _)) = left else { return Ok(()) };
        let reason = format!(
            "its file was removed or replaced, but {} is that of the one before: stop the programs that use it, remove \
             the -wal and the -shm, and start them again",
            left.display()
        );
        Err(StoreError::Unavailable { store: store.to_owned(), reason })
    }

    /// Closes a connection whose file is gone from its path: it would keep that on the disk, and nobody new has locks on it.
    pub fn put_aside(self) {
        match ASIDE.get(|| Ok(Mutex::default())) {
            Ok((aside, _)) => {
                let mut aside = aside.lock();
                aside.push(self);
                aside.retain(Opened::is_current);
            }
            Err(_) => std::mem::forget(self),
        }
    }
}

fn connecting() -> Option<MutexGuard<'static, ()>> {
    let connecting = CONNECTING.get(|| Ok(Mutex::default())).ok();
    connecting.map(|(connecting, _)| connecting.lock())
}

fn taken_up(path: &Path) -> Option<(Connection, Turns)> {
    let mut aside = ASIDE.made()?.lock();
    let at = aside.iter().position(|opened| opened.path == path && opened.is_current())?;
    let opened = aside.swap_remove(at);
    Some((opened.connection, opened.turns))
}

/// The write-ahead log and its index: beside the file itself, where the path is a link to it.
fn beside(path: &Path) -> [PathBuf; 2] {
    let file = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    ["-wal", "-shm"].map(|end| {
        let mut name = file.clone().into_os_string();
        name.push(end);
        PathBuf::from(name)
    })
}

/// Unlike that of a file that was at this path before. 0: there is none.
fn number_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.ino())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn open(path: &Path) -> rusqlite::Result<(Connection, Turns)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok((connection, Turns::default()))
}

fn set_up(connection: &Connection, synchronous: Synchronous) -> rusqlite::Result<()> {
    // A table of the user's that refers to jobs keeps none of them from being deleted. This is SQLite's own default.
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // After a time of many writes the log is made shorter again.
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_KEPT, |_| Ok(()))?;
    let synchronous = match synchronous {
        Synchronous::AtOnce => "FULL",
        Synchronous::Soon => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)
}

/// Makes the tables where there are none, or older ones. Where they are as they are to be, nothing is written: the caller may
/// be in the middle of a transaction of its own. Returns their version.
fn tables(connection: &mut Connection) -> rusqlite::Result<i64> {
    match version_of(connection)? {
        Some(version) if version >= SCHEMA_VERSION => Ok(version),
        _ => make_tables(connection),
    }
}

fn check(version: i64, name: &str) -> Result<()> {
    if version <= SCHEMA_VERSION {
        return Ok(());
    }
    let reason = format!(
        "its tables are of version {version}, and this Clutch knows them up to {SCHEMA_VERSION}: install a newer one"
    );
    Err(StoreError::Unusable { store: name.to_owned(), reason })
}

/// Within each transaction that writes.
pub fn check_version(connection: &Connection, name: &str) -> Result<()> {
    let version = connection
        .prepare_cached("SELECT version FROM clutch_schema")
        .and_then(|mut read| read.query_row([], |row| row.get(0)));
    check(version.map_err(|error| told(name, error))?, name)
}

fn version_of(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let has_tables = connection.query_row("SELECT 1 FROM sqlite_schema WHERE name = 'clutch_schema'", [], |_| Ok(()));
    if has_tables.optional()?.is_none() {
        return Ok(None);
    }
    connection.query_row("SELECT version FROM clutch_schema", [], |row| row.get(0)).optional()
}

/// Returns the version that there is now: another process may have been first.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<i64> {
    // Views of the user's that name a table mean the one that takes its place.
    connection.pragma_update(None, "legacy_alter_table", true)?;
    let made = make_or_migrate(connection);
    connection.pragma_update(None, "legacy_alter_table", false)?;
    made
}

fn make_or_migrate(connection: &mut Connection) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let known = version_of(&transaction)?;
    match known {
        None => transaction.execute_batch(SCHEMA)?,
        Some(version) => {
            let done = usize::try_from(version - 1).unwrap_or_default();
            let others = others_on_tables(&transaction)?;
            MIGRATIONS.iter().skip(done).try_for_each(|step| transaction.execute_batch(step))?;
            for text in others.into_iter().filter(|_| done < MIGRATIONS.len()) {
                transaction.execute_batch(&text)?;
            }
        }
    }
    transaction.commit()?;
    Ok(known.map_or(SCHEMA_VERSION, |version| version.max(SCHEMA_VERSION)))
}

/// Triggers and indexes of the user's on our tables, which go with a table that is made anew.
fn others_on_tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut others = connection.prepare(
        "SELECT sql FROM sqlite_schema WHERE type IN ('trigger', 'index') AND sql IS NOT NULL \
         AND tbl_name LIKE 'clutch\\_%' ESCAPE '\\' AND name NOT LIKE 'clutch\\_%' ESCAPE '\\'",
    )?;
    others.query_map([], |row| row.get(0))?.collect()
}

/// SQLite does not say why.
fn unopened(store: &str, path: &Path, error: rusqlite::Error) -> StoreError {
    match path.parent() {
        Some(folder) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && !folder.exists() => {
            let reason = format!("there is no folder {}", folder.display());
            StoreError::Unavailable { store: store.to_owned(), reason }
        }
        _ if path.is_dir() => {
            let reason = "it is a folder: name a file in it, such as jobs.db".to_owned();
            StoreError::Unusable { store: store.to_owned(), reason }
        }
        _ => told(store, error),
    }
}

/// Nobody knows who had the lock all the time, or whether it was one.
fn locked(waited: Duration) -> String {
    format!(
        "waited {:.1} s and found its file locked at each try: by another program, a transaction of this one, or several in \
         turn",
        waited.as_secs_f64()
    )
}

pub fn told(store: &str, error: rusqlite::Error) -> StoreError {
    if let rusqlite::Error::ToSqlConversionFailure(inner) = &error
        && let Some(Refusal(why)) = inner.downcast_ref()
    {
        return StoreError::Refused(why.clone());
    }
    let store = store.to_owned();
    let may_pass = matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
        )
    );
    let reason = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => locked(BUSY_TIMEOUT),
        _ => match error {
            // Without the statement, which may be all of the schema.
            rusqlite::Error::SqlInputError { msg, .. } => msg,
            other => other.to_string(),
        },
    };
    if may_pass { StoreError::Unavailable { store, reason } } else { StoreError::Unusable { store, reason } }
}
