//! Connections to a server: where it is, what is wrong with it, and what comes by itself.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;
use redis::{Client, ConnectionLike, ErrorKind, RedisError, RedisResult};

use super::{ANSWER_TIMEOUT, CONNECT_TIMEOUT};
use crate::store::{Result, StoreError, Watch};

/// How often the thread that listens looks whether anybody still does.
const LISTEN_INTERVAL: Duration = Duration::from_millis(500);

const ALLOWED: &str = "redis://host:6379/0, rediss://host/0 (TLS), valkey://host/0, redis+unix:///run/redis.sock, each with \
                       ?prefix=NAME";

#[derive(Clone, Debug)]
pub(super) struct Location {
    /// As people see it, without a password.
    pub(super) name: String,
    client: Client,
    prefix: String,
}

impl Location {
    pub(super) fn parse(url: &str) -> Result<Location> {
        let refused = |why: &str| StoreError::Refused(format!("{why}; allowed: {ALLOWED}"));
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut prefix = "clutch".to_owned();
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("prefix", name)) if !name.is_empty() && !name.contains(['{', '}']) => {
                    name.clone_into(&mut prefix)
                }
                Some(("prefix", _)) => return Err(refused("a prefix is a name without braces")),
                _ => others.push(pair),
            }
        }
        let (scheme, rest) = base.split_once("://").ok_or_else(|| refused("not the URL of a store"))?;
        let scheme = match scheme {
            "valkey" => "redis",
            "valkeys" => "rediss",
            known => known,
        };
        let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        let client = Client::open(format!("{scheme}://{rest}{query}")).map_err(|error| refused(&error.to_string()))?;
        let shown = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        Ok(Location { name: format!("{scheme}://{shown} ({prefix})"), client, prefix })
    }

    /// The name of a room. The hash tag keeps all of them on one node of a cluster.
    pub(super) fn key(&self, room: &str) -> String {
        format!("{{{}}}:{room}", self.prefix)
    }

    fn connect(&self) -> Result<redis::Connection> {
        let connected = self.client.get_connection_with_timeout(CONNECT_TIMEOUT).and_then(|connection| {
            connection.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            connection.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            Ok(connection)
        });
        connected.map_err(|error| told(&self.name, &error))
    }
}

/// One connection, made anew after it was lost.
pub(super) struct Connection {
    location: Location,
    open: Option<redis::Connection>,
}

impl Connection {
    pub(super) fn new(location: &Location) -> Result<Connection> {
        Ok(Connection { open: Some(location.connect()?), location: location.clone() })
    }

    /// Whether there is a server that can do what is needed.
    pub(super) fn check(&mut self) -> Result<()> {
        let pong: String = self.run(|connection| redis::cmd("PING").query(connection))?;
        if pong == "PONG" {
            return Ok(());
        }
        Err(StoreError::Unusable { store: self.location.name.clone(), reason: "it is no Redis".to_owned() })
    }

    /// Does something that is one trip. After an error of the connection nobody knows whether it was done.
    pub(super) fn run<T>(&mut self, act: impl FnOnce(&mut redis::Connection) -> RedisResult<T>) -> Result<T> {
        // One that broke while nobody used it is told by its first use, and nothing was done then.
        if !self.open.as_ref().is_some_and(ConnectionLike::is_open) {
            self.open = Some(self.location.connect()?);
        }
        let Some(open) = &mut self.open else { return Err(gone(&self.location.name)) };
        act(open).map_err(|error| {
            if is_of_connection(&error) {
                self.open = None;
            }
            told(&self.location.name, &error)
        })
    }
}

fn gone(store: &str) -> StoreError {
    StoreError::Unavailable { store: store.to_owned(), reason: "no connection".to_owned() }
}

fn is_of_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.is_connection_dropped() || error.is_unrecoverable_error()
}

/// What is wrong, and whether it may pass.
pub(super) fn told(store: &str, error: &RedisError) -> StoreError {
    /// Of errors that the server answers with: while it loads, is full, is a replica, or has lost its disk.
    const PASSING: [&str; 8] =
        ["LOADING", "OOM", "READONLY", "MASTERDOWN", "BUSY", "MISCONF", "TRYAGAIN", "CLUSTERDOWN"];
    let store = store.to_owned();
    let reason = error.to_string();
    let may_pass = is_of_connection(error)
        || error.kind() == ErrorKind::Io
        || error.code().is_some_and(|code| PASSING.contains(&code))
        || PASSING.iter().any(|code| reason.contains(code));
    match may_pass {
        true => StoreError::Unavailable { store, reason },
        false => StoreError::Unusable { store, reason },
    }
}

/// Hears of new jobs. A thread receives for it, since a subscription that has waited in vain cannot be left and taken up
/// again.
pub(super) struct News {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    is_new: bool,
    /// The connection is lost.
    failed: Option<String>,
    /// Nobody listens any more.
    is_over: bool,
}

impl News {
    pub(super) fn subscribe(location: &Location) -> Result<News> {
        let mut connection = location.connect()?;
        let failed = |error: RedisError| told(&location.name, &error);
        connection.set_read_timeout(Some(LISTEN_INTERVAL)).map_err(failed)?;
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let channel = location.key("news");
        let listen = move || {
            sys::block_signals();
            let failed = of_thread.listen(&mut connection, &channel);
            of_thread.heard.lock().failed = failed;
            of_thread.changed.notify_all();
        };
        let spawned = std::thread::Builder::new().name("clutch-news".to_owned()).spawn(listen);
        let refused =
            |error: io::Error| StoreError::Unavailable { store: location.name.clone(), reason: error.to_string() };
        spawned.map_err(refused)?;
        let is_known = |heard: &Heard| heard.is_new || heard.failed.is_some();
        drop(shared.changed.wait(shared.heard.lock(), is_known));
        Ok(News { shared })
    }
}

impl Shared {
    /// Until nobody listens; else what went wrong.
    fn listen(&self, connection: &mut redis::Connection, channel: &str) -> Option<String> {
        let mut subscription = connection.as_pubsub();
        if let Err(error) = subscription.subscribe(channel) {
            return Some(error.to_string());
        }
        // What came before it subscribed, it cannot know.
        self.hear();
        while !self.heard.lock().is_over {
            match subscription.get_message() {
                Ok(_) => self.hear(),
                Err(error) if error.is_timeout() => {}
                Err(error) => return Some(error.to_string()),
            }
        }
        None
    }

    fn hear(&self) {
        self.heard.lock().is_new = true;
        self.changed.notify_all();
    }
}

impl Watch for News {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let until = Instant::now() + at_most;
        let there = |heard: &Heard| heard.is_new || heard.failed.is_some();
        let (mut heard, _) = self.shared.changed.wait_until(self.shared.heard.lock(), until, there);
        match &heard.failed {
            Some(failed) => Err(io::Error::other(failed.clone())),
            None => Ok(std::mem::take(&mut heard.is_new)),
        }
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.shared.heard.lock().is_over = true;
    }
}
