//! Notices that a queue has got a message, without asking for it: the server tells of changes of keys that were looked at
//! (`CLIENT TRACKING`, of which one connection asks and another is told).

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use redis::{Connection, RedisResult, Value};

use crate::store::Watch;
use crate::stores::redis::link::RESPONSE_TIMEOUT;
use crate::stores::redis::record::{parsed, text};

/// Interval at which it is seen that nobody waits any more.
const LOOK: Duration = Duration::from_secs(1);

/// Interval at which the lists are looked at anyway: the server tells nothing any more once it has lost who asked.
const LOOK_ANYWAY: Duration = Duration::from_secs(5);

/// The channel of what the server tells.
const CHANNEL: &str = "__redis__:invalidate";

/// What wakes whoever waits.
enum Wake {
    /// Something that was looked at has changed, or there is more to look at.
    Look,
    /// The connection is lost.
    Lost,
}

/// Lists that somebody asks for. Whoever waits hears of new ones.
#[derive(Default)]
pub(super) struct Keys {
    asked_for: Mutex<BTreeSet<String>>,
    waiting: Mutex<Vec<SyncSender<Wake>>>,
}

impl Keys {
    pub fn all(&self) -> BTreeSet<String> {
        self.asked_for.lock().clone()
    }

    pub fn ask_for(&self, keys: impl IntoIterator<Item = String>) {
        let mut asked_for = self.asked_for.lock();
        let before = asked_for.len();
        asked_for.extend(keys);
        let is_more = asked_for.len() > before;
        drop(asked_for);
        if is_more {
            self.wake();
        }
    }

    /// Wakes those who wait, and forgets those who do not any more.
    fn wake(&self) {
        let is_there = |one: &SyncSender<Wake>| !matches!(one.try_send(Wake::Look), Err(TrySendError::Disconnected(_)));
        self.waiting.lock().retain(is_there);
    }
}

/// What is looked at.
pub(super) struct Wanted {
    /// Keys that are always looked at, and lists that somebody asks for.
    pub always: [String; 3],
    pub keys: Arc<Keys>,
    /// Text that is news when it changes.
    pub settings: String,
}

pub(super) struct Tracked {
    asking: Connection,
    changes: Receiver<Wake>,
    /// The one who listens goes with this.
    _is_wanted: Arc<()>,
    wanted: Wanted,
    settings: Option<String>,
    /// The keys that the server tells of, since they were looked at.
    known: BTreeSet<String>,
    looked_at: Instant,
}

impl Tracked {
    pub fn new(mut asking: Connection, mut told: Connection, wanted: Wanted) -> RedisResult<Tracked> {
        let id: i64 = redis::cmd("CLIENT").arg("ID").query(&mut told)?;
        let mut track = redis::cmd("CLIENT");
        track.arg("TRACKING").arg("ON").arg("REDIRECT").arg(id).query::<Value>(&mut asking)?;
        told.set_read_timeout(Some(LOOK))?;
        let (sender, changes) = sync_channel(1);
        wanted.keys.wake();
        wanted.keys.waiting.lock().push(sender.clone());
        let _is_wanted = Arc::new(());
        let is_wanted = Arc::downgrade(&_is_wanted);
        let listen = move || {
            sys::block_signals();
            let _ = listen(&mut told, &sender, &is_wanted);
            let _ = sender.send(Wake::Lost);
        };
        std::thread::Builder::new().name("clutch-tracked".to_owned()).spawn(listen)?;
        let looked_at = Instant::now();
        let known = BTreeSet::new();
        let mut tracked = Tracked { asking, changes, _is_wanted, wanted, settings: None, known, looked_at };
        // It listens.
        tracked.hear(RESPONSE_TIMEOUT)?;
        tracked.look()?;
        Ok(tracked)
    }

    /// Looks at all keys, and so hears of their next changes. Whether one is there.
    fn look(&mut self) -> RedisResult<bool> {
        self.known = self.wanted.keys.all();
        self.looked_at = Instant::now();
        let mut looks = redis::pipe();
        looks.cmd("GET").arg(&self.wanted.settings);
        looks.cmd("EXISTS").arg(&self.wanted.always).arg(&self.known);
        self.asking.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let mut found = looks.query::<Vec<Value>>(&mut self.asking)?.into_iter();
        let settings = found.next().and_then(text);
        let is_told = self.settings != settings;
        self.settings = settings;
        Ok(is_told || found.next().and_then(parsed::<u64>) > Some(0))
    }

    /// Whether the server has told something within this time.
    fn hear(&mut self, at_most: Duration) -> RedisResult<bool> {
        match self.changes.recv_timeout(at_most) {
            Ok(Wake::Look) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Ok(Wake::Lost) | Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())
            }
        }
    }

    fn wait_for(&mut self, at_most: Duration) -> RedisResult<bool> {
        let until = Instant::now() + at_most;
        loop {
            if self.looked_at.elapsed() >= LOOK_ANYWAY && self.look()? {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if self.hear(left.min(LOOK))? && self.look()? {
                return Ok(true);
            }
        }
    }
}

/// Tells when it listens, and then of each change, until nobody wants to know or the connection is lost.
fn listen(connection: &mut Connection, changes: &SyncSender<Wake>, is_wanted: &Weak<()>) -> RedisResult<()> {
    let mut channel = connection.as_pubsub();
    channel.subscribe(CHANNEL)?;
    let mut has_news = true;
    while is_wanted.strong_count() > 0 {
        // What was told and not heard yet is news enough.
        if has_news {
            let _ = changes.try_send(Wake::Look);
        }
        has_news = match channel.get_message() {
            Ok(_) => true,
            Err(error) if error.is_timeout() => false,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

impl Watch for Tracked {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        self.wait_for(at_most).map_err(io::Error::other)
    }
}
