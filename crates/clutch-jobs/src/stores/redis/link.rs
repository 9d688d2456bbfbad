//! The connection that commands go through, and what becomes of its errors.
//!
//! One for the store, which one caller has at a time. Where that one gets no answer, all who wait for it give up too.
//! After a failure it is dropped, and the next use connects anew. Whether what failed was carried out is not known
//! then, so nothing is repeated here; but it is not carried out later: the server ends the old connection before the
//! new one is used.

mod discovery;

use std::collections::BTreeSet;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};
use redis::{Cmd, Connection, ConnectionLike, RedisError, RedisResult, Script, ServerErrorKind, Value};

use self::discovery::Discovery;
use super::location::Location;
use super::reasons::{Asked, DAMAGED};
use super::tls;
use crate::job::{self, Millis, millis};
use crate::store::{Result, StoreError};

/// Timeout of an answer, including the connect: a server that has stopped is noticed.
pub(in crate::stores) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Least timeout of an answer, however long the connect took.
const RESPONSE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// After how long a failure is one of all who wait.
const SLOW: Duration = Duration::from_secs(1);

/// A connection that was idle for longer is tried before its use, since the server may have closed it.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// After how long the server's clock is asked for again: somebody may set it.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(1);

/// By how much this machine's two clocks may differ as to how long ago that was: the one of instants stands still while
/// the machine is suspended.
const CLOCK_DRIFT_MAX: Millis = 500;

/// The oldest server whose commands suffice.
const VERSION_MIN: (u32, u32) = (6, 2);

static PROBE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("probe.lua")));
static FROM_1: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("from_1.lua")));

/// Commands that are not in scripts.
const OWN_COMMANDS: [&str; 1] = ["LPUSH"];

/// Returns the commands in the texts of scripts.
fn commands(sources: &[&'static str]) -> impl Iterator<Item = &'static str> {
    let calls = sources.iter().flat_map(|text| ["call('", "try('", "many('"].map(|call| text.split(call).skip(1)));
    let named = calls.flatten().filter_map(|rest| Some(rest.split_once('\'')?.0));
    named.chain(OWN_COMMANDS).collect::<BTreeSet<_>>().into_iter()
}

pub(in crate::stores) struct Link {
    pub name: String,
    discovery: Discovery,
    asked: Asked,
    /// The server was had once.
    has_answered: AtomicBool,
    /// Prefix of all keys: the one key that scripts are given.
    pub root: String,
    /// The version of the format that this program reads and writes.
    schema: Option<u32>,
    /// Texts of the scripts that it runs.
    sources: &'static [&'static str],
    /// The server's clock as it was heard of last.
    clock: Mutex<Option<Heard>>,
    line: Mutex<LinkState>,
    freed: Condvar,
    warnings: Mutex<Vec<String>>,
}

#[derive(Default)]
struct LinkState {
    /// Somebody uses the connection.
    is_taken: bool,
    /// While nobody does.
    open: Option<Open>,
    /// The one that was dropped last.
    dropped: Option<Identity>,
    /// Number of times that all waiting callers gave up.
    given_up: u64,
}

struct Open {
    connection: Connection,
    identity: Option<Identity>,
    used_at: Instant,
    /// Timeout of an answer as it was set last: to set it costs two system calls.
    limit: Option<Duration>,
}

/// What the server's clock showed, and when.
#[derive(Clone, Copy)]
struct Heard {
    time: Millis,
    at: Instant,
    /// By this machine's own clock.
    own: Millis,
    /// By a connection that is there no more.
    is_past: bool,
}

impl Heard {
    fn time_after(&self, elapsed: Duration) -> Millis {
        self.time + millis(elapsed)
    }

    /// Whether it need not be asked for, so long after.
    fn does(&self, elapsed: Duration, own_now: Millis) -> bool {
        let drift = own_now - self.own - millis(elapsed);
        !self.is_past && elapsed < CLOCK_AGE_MAX && drift.abs() < CLOCK_DRIFT_MAX
    }
}

impl Open {
    fn set_limit(&mut self, limit: Duration) -> RedisResult<()> {
        if self.limit != Some(limit) {
            self.connection.set_read_timeout(Some(limit))?;
            self.connection.set_write_timeout(Some(limit))?;
            self.limit = Some(limit);
        }
        Ok(())
    }
}

/// A connection, as its server knows it.
#[derive(Clone)]
struct Identity {
    /// Run id of this life of the server: the next counts its clients anew.
    run_id: String,
    client_id: i64,
}

/// The right to use the connection.
struct Turn<'a> {
    link: &'a Link,
    open: Option<Open>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.link.line.lock();
        line.is_taken = false;
        line.open = self.open.take();
        self.link.freed.notify_one();
    }
}

impl Link {
    /// To a server that keeps jobs in a format under these keys. None: it is another program's, and has no version.
    pub fn new(
        location: &Location,
        name: String,
        root: String,
        schema: Option<u32>,
        sources: &'static [&'static str],
    ) -> Link {
        // Another part of the program may have chosen one: the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let discovery = Discovery::new(location, &root);
        Link {
            name,
            discovery,
            asked: Asked::of(location),
            has_answered: AtomicBool::new(false),
            root,
            schema,
            sources,
            clock: Mutex::default(),
            line: Mutex::default(),
            freed: Condvar::new(),
            warnings: Mutex::default(),
        }
    }

    /// One that can be used: fails when the server can never be used as it is. One that cannot be reached for now is tried
    /// again with each use.
    pub fn checked(self) -> Result<Link> {
        match self.check() {
            Ok(()) | Err(StoreError::Unavailable { .. }) => Ok(self),
            Err(error) => Err(error),
        }
    }

    /// Makes the connection if there is none.
    fn check(&self) -> Result<()> {
        self.with(|_| Ok(Value::Nil)).map(drop)
    }

    /// The server's time. Before the first connect, this machine's.
    pub fn now(&self) -> Millis {
        match *self.clock.lock() {
            Some(heard) if !job::stands_still() => heard.time_after(heard.at.elapsed()),
            _ => job::now(),
        }
    }

    /// The server's time, which is asked for unless it is known well.
    pub fn read_clock(&self) -> Result<Millis> {
        if !job::stands_still() && !self.knows_clock() {
            self.check()?;
        }
        Ok(self.now())
    }

    fn knows_clock(&self) -> bool {
        self.clock.lock().is_some_and(|heard| heard.does(heard.at.elapsed(), job::now()))
    }

    /// By how much this machine's clock is ahead of the server's.
    pub fn clock_ahead(&self) -> Millis {
        if job::stands_still() { 0 } else { job::now() - self.now() }
    }

    /// Asks for the server's time, unless it is known well. Where that fails, so does what comes next.
    fn hear_clock(&self, connection: &mut Connection) {
        if self.knows_clock() {
            return;
        }
        let sent = Instant::now();
        if let Ok((seconds, micros)) = redis::cmd("TIME").query::<(Millis, Millis)>(connection) {
            let time = seconds * 1000 + micros / 1000 + millis(sent.elapsed() / 2);
            *self.clock.lock() = Some(Heard { time, at: Instant::now(), own: job::now(), is_past: false });
        }
    }

    /// The next server may be another one.
    fn doubt_clock(&self) {
        if let Some(heard) = &mut *self.clock.lock() {
            heard.is_past = true;
        }
    }

    /// Returns problems of the server's configuration at the time of the connect.
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

    /// Runs one command, whose first argument is a key.
    pub fn query(&self, cmd: &Cmd) -> Result<Value> {
        self.with(|connection| cmd.query(connection).map_err(|error| named(cmd, error)))
    }

    fn with(&self, ask: impl Fn(&mut Connection) -> RedisResult<Value>) -> Result<Value> {
        let mut turn = self.turn()?;
        let since = Instant::now();
        let answer = self.ask(&mut turn, ask, since + RESPONSE_TIMEOUT);
        if matches!(answer, Err(StoreError::Unavailable { .. })) && since.elapsed() >= SLOW {
            self.line.lock().given_up += 1;
            self.freed.notify_all();
        }
        answer
    }

    /// Asks, once more where the node of a cluster says that it has the keys no more: that was surely not carried out.
    fn ask(
        &self,
        turn: &mut Turn<'_>,
        ask: impl Fn(&mut Connection) -> RedisResult<Value>,
        until: Instant,
    ) -> Result<Value> {
        let mut has_moved = false;
        loop {
            let mut open = self.ready(turn.open.take(), until)?;
            self.hear_clock(&mut open.connection);
            let answer = ask(&mut open.connection);
            open.used_at = Instant::now();
            match answer {
                Err(error) if error.kind() == ServerErrorKind::Moved.into() && !has_moved => has_moved = true,
                Err(error) if breaks(&error) => {
                    self.line.lock().dropped = open.identity;
                    self.doubt_clock();
                    return Err(self.told(&error));
                }
                answer => {
                    turn.open = Some(open);
                    return answer.map_err(|error| self.told(&error));
                }
            }
        }
    }

    /// Waits until nobody else uses the connection, or one of those has waited for its answer in vain.
    fn turn(&self) -> Result<Turn<'_>> {
        let line = self.line.lock();
        let given_up = line.given_up;
        let mut line = self.freed.wait(line, |line| !line.is_taken || line.given_up != given_up);
        if line.given_up != given_up {
            return Err(self.told(&timed_out()));
        }
        line.is_taken = true;
        Ok(Turn { link: self, open: line.open.take() })
    }

    /// A connection of its own.
    pub fn connect(&self) -> Result<Connection> {
        self.connected(Instant::now() + RESPONSE_TIMEOUT)
    }

    fn connected(&self, until: Instant) -> Result<Connection> {
        self.discovery.connect(until).map_err(|error| self.told(&error))
    }

    /// A connection that works, as far as can be known: the one that there is, or a new one.
    fn ready(&self, open: Option<Open>, until: Instant) -> Result<Open> {
        if let Some(mut open) = open
            && open.set_limit(RESPONSE_TIMEOUT).is_ok()
            && (open.used_at.elapsed() <= IDLE_MAX || open.connection.check_connection())
        {
            return Ok(open);
        }
        let mut open = self.prepared(until)?;
        let left = until.saturating_duration_since(Instant::now()).max(RESPONSE_TIMEOUT_MIN);
        open.set_limit(left).map_err(|error| self.told(&error))?;
        Ok(open)
    }

    /// A new connection to a server that is known to do.
    fn prepared(&self, until: Instant) -> Result<Open> {
        let mut connection = self.connected(until)?;
        // It may be forbidden, and then it is not known.
        let about: String = redis::cmd("INFO").query(&mut connection).unwrap_or_default();
        if let Some(version) = field(&about, "redis_version").filter(|version| is_old(version)) {
            let (major, minor) = VERSION_MIN;
            return Err(self.unusable(format!("its version is {version}, and at least {major}.{minor} is needed")));
        }
        self.doubt_clock();
        let identity = self.replace(&mut connection, &about).map_err(|error| self.told(&error))?;
        *self.warnings.lock() = warnings(&self.name, &about);
        if self.discovery.is_unverified() {
            self.warnings.lock().push(format!(
                "{}: its certificate is not verified (verify=none): whoever is between can read and change jobs",
                self.name
            ));
        }
        if let Some(known) = self.schema {
            self.check_schema(&mut connection, known)?;
        }
        self.check_rights(&mut connection)?;
        let from_1 = FROM_1.key(&self.root).invoke::<Value>(&mut connection);
        from_1.map_err(|error| self.told(&error))?;
        self.has_answered.store(true, Ordering::Relaxed);
        Ok(Open { connection, identity, used_at: Instant::now(), limit: None })
    }

    /// Ends the connection that was dropped: the server may not have read yet what was sent there, and would carry it
    /// out after what is sent here. Where that is forbidden, it may.
    fn replace(&self, connection: &mut Connection, about: &str) -> RedisResult<Option<Identity>> {
        let Some(run_id) = field(about, "run_id") else { return Ok(None) };
        let client_id = match redis::cmd("CLIENT").arg("ID").query(connection) {
            Ok(client_id) => client_id,
            Err(error) if breaks(&error) => return Err(error),
            Err(_) => return Ok(None),
        };
        let dropped = self.line.lock().dropped.clone();
        if let Some(dropped) = dropped.filter(|dropped| dropped.run_id == run_id) {
            match redis::cmd("CLIENT").arg("KILL").arg("ID").arg(dropped.client_id).query::<Value>(connection) {
                Err(error) if breaks(&error) => return Err(error),
                _ => self.line.lock().dropped = None,
            }
        }
        Ok(Some(Identity { run_id: run_id.to_owned(), client_id }))
    }

    fn check_schema(&self, connection: &mut Connection, known: u32) -> Result<()> {
        let key = format!("{}:schema", self.root);
        let mut read = || redis::cmd("GET").arg(&key).query::<Option<String>>(connection);
        let mut found = read().map_err(|error| self.told(&error))?;
        if found.is_none() {
            redis::cmd("SETNX").arg(&key).arg(known).query::<Value>(connection).map_err(|error| self.told(&error))?;
            found = Some(known.to_string());
        }
        match found.and_then(|version| version.parse::<u32>().ok()) {
            Some(version) if version == known => Ok(()),
            // Scripts read what is of a version before; programs of that one are refused from now on.
            Some(version) if version < known => {
                let set = redis::cmd("SET").arg(&key).arg(known).query::<Value>(connection);
                set.map(drop).map_err(|error| self.told(&error))
            }
            version => Err(self.unusable(format!(
                "its keys are of version {}, and this Clutch knows them up to {known}: install a newer one",
                version.map_or("unknown".to_owned(), |version| version.to_string())
            ))),
        }
    }

    /// Refuses a user that may not run all commands of the scripts: one that fails midway is half done.
    fn check_rights(&self, connection: &mut Connection) -> Result<()> {
        let mut probe = PROBE.key(&self.root);
        for command in commands(self.sources) {
            probe.arg(command);
        }
        let missing: Vec<String> = match probe.invoke(connection) {
            Ok(missing) => missing,
            // Not now: each script says so before it writes.
            Err(error) if may_pass(&error) && !breaks(&error) => return Ok(()),
            Err(error) => return Err(self.told(&error)),
        };
        if missing.is_empty() {
            return Ok(());
        }
        let rules: Vec<_> = missing.iter().map(|command| format!("+{}", command.to_lowercase())).collect();
        Err(self.unusable(format!(
            "its user may not run {}: allow it, as by ACL SETUSER NAME {}",
            missing.join(", "),
            rules.join(" ")
        )))
    }

    pub fn told(&self, error: &RedisError) -> StoreError {
        let store = self.name.clone();
        if error.code() == Some(DAMAGED) {
            return StoreError::Damaged { store, reason: error.detail().unwrap_or_default().to_owned() };
        }
        let is_first = !self.has_answered.load(Ordering::Relaxed);
        let reason = self.asked.reason(error, is_first, &self.root);
        match may_pass(error) {
            true => StoreError::Unavailable { store, reason },
            false => StoreError::Unusable { store, reason },
        }
    }

    fn unusable(&self, reason: String) -> StoreError {
        StoreError::Unusable { store: self.name.clone(), reason }
    }
}

fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

/// Returns a field of the answer to INFO.
pub(super) fn field<'a>(about: &'a str, name: &str) -> Option<&'a str> {
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
            "{name}: its maxmemory-policy is {policy}, so it may drop jobs when its memory is full: \
             set it to noeviction"
        ));
    }
    if field(about, "aof_enabled") == Some("0") {
        warnings.push(format!(
            "{name}: it keeps no append-only file, so a crash loses the jobs since its last snapshot: \
             set appendonly yes"
        ));
    }
    warnings
}

/// Codes of errors that may pass.
const MAY_PASS: [&str; 13] = [
    "LOADING",
    "OOM",
    "READONLY",
    "MASTERDOWN",
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "UNBLOCKED",
    "EXECABORT",
];

/// Errors of the general kind that may pass, by what they say. Redis 6 says why a script failed only there.
const MAY_PASS_TEXTS: [&str; 5] = ["OOM command", "READONLY", "MISCONF", "max number of clients", "NOREPLICAS"];

/// Names the key of a command that found another type there, as scripts do.
fn named(cmd: &Cmd, error: RedisError) -> RedisError {
    if error.code() != Some("WRONGTYPE") {
        return error;
    }
    let key = cmd.args_iter().nth(1).map(|argument| match argument {
        redis::Arg::Simple(key) => String::from_utf8_lossy(key).into_owned(),
        _ => String::new(),
    });
    let detail =
        format!("its key {} has another type than Clutch keeps there: delete or rename it", key.unwrap_or_default());
    redis::make_extension_error(DAMAGED.to_owned(), Some(detail))
}

fn may_pass(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    (error.is_io_error() && tls::trouble(error).is_none())
        || error.is_connection_dropped()
        || error.code().is_some_and(|code| MAY_PASS.contains(&code))
        || MAY_PASS_TEXTS.iter().any(|text| detail.contains(text))
}

/// Whether the connection is of no more use, or leads to a server that is none.
fn breaks(error: &RedisError) -> bool {
    let is_of_script =
        matches!(error.code(), Some("OOM" | "BUSY" | "ERR" | "NOPERM" | "MISCONF" | "WRONGTYPE" | DAMAGED));
    !is_of_script
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each with arguments that change nothing.
    #[test]
    fn every_command_of_the_scripts_is_tried_at_the_connect() {
        let probe = include_str!("probe.lua");
        for sources in [super::super::SOURCES, crate::stores::sidekiq::SOURCES] {
            let commands: Vec<_> = commands(sources).collect();
            assert!(commands.contains(&"HSET") && commands.contains(&"ZADD"), "{commands:?}");
            for command in commands {
                assert!(command == "TIME" || probe.contains(&format!(" {command} = {{")), "{command}");
            }
        }
    }

    #[test]
    fn the_servers_clock_is_the_one_that_counts() {
        let location = Location::parse("redis://127.0.0.1:1").unwrap();
        let link = Link::new(&location, location.name(), "{t}".to_owned(), None, &[]);
        assert!((link.now() - job::now()).abs() < 1000 && link.clock_ahead().abs() < 1000, "before it was heard of");
        let hour = 3_600_000;
        let (at, own) = (Instant::now() - Duration::from_millis(5), job::now() - 5);
        *link.clock.lock() = Some(Heard { time: own - hour, at, own, is_past: false });
        assert!((link.now() + hour - job::now()).abs() < 1000);
        assert!((link.clock_ahead() - hour).abs() < 1000);
    }

    #[test]
    fn the_servers_clock_is_asked_for_unless_it_is_known_well() {
        let heard = Heard { time: 0, at: Instant::now(), own: 50_000, is_past: false };
        let half = CLOCK_AGE_MAX / 2;
        assert!(heard.does(half, 50_000 + millis(half)));
        assert!(!heard.does(CLOCK_AGE_MAX, 50_000 + millis(CLOCK_AGE_MAX)), "somebody may have set it");
        assert!(!heard.does(half, 50_000 + 3_600_000), "this machine was suspended");
        assert!(!Heard { is_past: true, ..heard }.does(half, 50_000 + millis(half)), "it was another server's");
    }

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
