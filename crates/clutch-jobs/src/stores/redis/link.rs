//! The connection that commands go through, and what becomes of its errors.
//!
//! One for the store, behind a mutex. After a failure it is dropped, and the next use connects anew: whether what failed was
//! carried out is not known then, so nothing is repeated here.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::sync::{Mutex, MutexGuard};
use redis::{
    Client, Cmd, Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value,
};

use super::location::Location;
use crate::store::{Result, StoreError};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an answer may take: a server that has stopped is noticed.
pub(in crate::stores) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that was idle for longer is tried before its use, since the server may have closed it.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The oldest server whose commands suffice.
const VERSION_MIN: (u32, u32) = (6, 2);

pub(in crate::stores) struct Link {
    pub name: String,
    client: Client,
    /// How all keys begin: the one key that scripts are given.
    pub root: String,
    /// The version of the format that this program reads and writes.
    schema: Option<u32>,
    open: Mutex<Option<Open>>,
    warnings: Mutex<Vec<String>>,
}

struct Open {
    connection: Connection,
    used_at: Instant,
}

impl Link {
    /// To a server that keeps jobs in a format under these keys. None: it is another program's, and has no version.
    pub fn new(location: &Location, name: String, root: String, schema: Option<u32>) -> Result<Link> {
        // Another part of the program may have chosen one: the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(location.info.clone()).map_err(|error| told(&name, &error))?;
        Ok(Link { name, client, root, schema, open: Mutex::new(None), warnings: Mutex::default() })
    }

    /// Makes the connection if there is none.
    pub fn check(&self) -> Result<()> {
        self.ready().map(drop)
    }

    /// What is wrong with the server's configuration, as it was when the connection was made.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Runs a script with the arguments that are added to it: one round trip, unless the server does not know it yet.
    pub fn run(&self, script: &Script, arguments: impl FnOnce(&mut Cmd)) -> Result<Value> {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(script.get_hash()).arg(1).arg(&self.root);
        arguments(&mut cmd);
        self.with(|connection| match cmd.query(connection) {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                script.prepare_invoke().load(connection).and_then(|_| cmd.query(connection))
            }
            answer => answer,
        })
    }

    /// Runs one command.
    pub fn query(&self, cmd: &Cmd) -> Result<Value> {
        self.with(|connection| cmd.query(connection))
    }

    fn with(&self, ask: impl FnOnce(&mut Connection) -> RedisResult<Value>) -> Result<Value> {
        let mut guard = self.ready()?;
        let Some(open) = guard.as_mut() else { return Err(lost(&self.name)) };
        let answer = ask(&mut open.connection);
        open.used_at = Instant::now();
        answer.map_err(|error| {
            if breaks(&error) {
                *guard = None;
            }
            told(&self.name, &error)
        })
    }

    /// A connection of its own.
    pub fn connect(&self) -> Result<Connection> {
        self.connected().map_err(|error| told(&self.name, &error))
    }

    fn connected(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(CONNECT_TIMEOUT)?;
        connection.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        connection.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(connection)
    }

    /// With a connection that works, as far as can be known.
    fn ready(&self) -> Result<MutexGuard<'_, Option<Open>>> {
        let mut open = self.open.lock();
        let is_doubtful = |open: &Open| open.used_at.elapsed() > IDLE_MAX;
        if let Some(doubtful) = open.as_mut().filter(|open| is_doubtful(open))
            && !doubtful.connection.check_connection()
        {
            *open = None;
        }
        if open.is_none() {
            *open = Some(Open { connection: self.prepared()?, used_at: Instant::now() });
        }
        Ok(open)
    }

    /// A new connection to a server that is known to do.
    fn prepared(&self) -> Result<Connection> {
        let mut connection = self.connect()?;
        // It may be forbidden, and then it is not known.
        let about: String = redis::cmd("INFO").query(&mut connection).unwrap_or_default();
        if let Some(version) = field(&about, "redis_version").filter(|version| is_old(version)) {
            let (major, minor) = VERSION_MIN;
            return Err(self.unusable(format!("its version is {version}, and at least {major}.{minor} is needed")));
        }
        *self.warnings.lock() = warnings(&self.name, &about);
        if let Some(known) = self.schema {
            self.check_schema(&mut connection, known)?;
        }
        Ok(connection)
    }

    fn check_schema(&self, connection: &mut Connection, known: u32) -> Result<()> {
        let key = format!("{}:schema", self.root);
        let mut read = || redis::cmd("GET").arg(&key).query::<Option<String>>(connection);
        let mut found = read().map_err(|error| told(&self.name, &error))?;
        if found.is_none() {
            redis::cmd("SETNX")
                .arg(&key)
                .arg(known)
                .query::<Value>(connection)
                .map_err(|error| told(&self.name, &error))?;
            found = Some(known.to_string());
        }
        match found.and_then(|version| version.parse::<u32>().ok()) {
            Some(version) if version <= known => Ok(()),
            version => Err(self.unusable(format!(
                "its keys are of version {}, and this Clutch knows them up to {known}: install a newer one",
                version.map_or("unknown".to_owned(), |version| version.to_string())
            ))),
        }
    }

    fn unusable(&self, reason: String) -> StoreError {
        StoreError::Unusable { store: self.name.clone(), reason }
    }
}

fn lost(name: &str) -> StoreError {
    StoreError::Unavailable { store: name.to_owned(), reason: "the connection is lost".to_owned() }
}

/// Of the answer to INFO.
fn field<'a>(about: &'a str, name: &str) -> Option<&'a str> {
    about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn is_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(u32::MAX));
    let version = (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0));
    version < VERSION_MIN
}

fn warnings(name: &str, about: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(policy) = field(about, "maxmemory_policy").filter(|policy| *policy != "noeviction") {
        warnings.push(format!(
            "{name}: its maxmemory-policy is {policy}, so it may drop jobs when its memory is full: set it to noeviction"
        ));
    }
    if field(about, "aof_enabled") == Some("0") {
        warnings.push(format!(
            "{name}: it keeps no append-only file, so a crash loses the jobs since its last snapshot: set appendonly yes"
        ));
    }
    warnings
}

/// Codes of errors that may pass.
const MAY_PASS: [&str; 11] = [
    "LOADING",
    "OOM",
    "READONLY",
    "MASTERDOWN",
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "UNBLOCKED",
    "EXECABORT",
];

/// Errors of the general kind that may pass, by what they say. Redis 6 says why a script failed only there.
const MAY_PASS_TEXTS: [&str; 5] = ["OOM command", "READONLY", "MISCONF", "max number of clients", "NOREPLICAS"];

pub(in crate::stores) fn told(store: &str, error: &RedisError) -> StoreError {
    let store = store.to_owned();
    let detail = error.detail().unwrap_or_default();
    let may_pass = (error.is_io_error() && !is_nonsense(error))
        || error.is_connection_dropped()
        || error.code().is_some_and(|code| MAY_PASS.contains(&code))
        || MAY_PASS_TEXTS.iter().any(|text| detail.contains(text));
    let reason = match error.kind() {
        _ if error.is_timeout() => "it does not answer in time".to_owned(),
        ErrorKind::AuthenticationFailed => "it does not accept the password".to_owned(),
        _ if is_nonsense(error) => format!("what answers does not do as a server with TLS does: {error}"),
        ErrorKind::Parse => "what answers is not a Redis server".to_owned(),
        _ => error.to_string(),
    };
    if may_pass { StoreError::Unavailable { store, reason } } else { StoreError::Unusable { store, reason } }
}

/// Whether bytes came that mean nothing: a certificate that is not trusted, or no TLS at all.
fn is_nonsense(error: &RedisError) -> bool {
    // The library's errors share their cause.
    let cause = error.source().and_then(|cause| cause.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData)
}

/// Whether the connection is of no more use, or leads to a server that is none.
fn breaks(error: &RedisError) -> bool {
    let is_of_script = matches!(error.code(), Some("OOM" | "BUSY" | "ERR" | "NOPERM" | "MISCONF"));
    !is_of_script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions() {
        assert!(["2.8.1", "6.0.16", "6.1"].iter().all(|version| is_old(version)));
        assert!(["6.2", "6.2.14", "7.0.15", "8.0.0-rc1", "unstable"].iter().all(|version| !is_old(version)));
    }

    #[test]
    fn a_server_that_may_forget_is_warned_of() {
        let about = "# Memory\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n";
        assert_eq!(warnings("redis", about).len(), 2);
        assert!(warnings("redis", "maxmemory_policy:noeviction\r\naof_enabled:1\r\n").is_empty());
    }
}
