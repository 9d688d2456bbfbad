//! The dispatcher's end of one worker's link: its words on the board, what the worker has been told already.

pub(super) mod alarm;
pub(super) mod incoming;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clutch_wire::forked::Tracked;
use clutch_wire::frame::{self, CallFields, Head, Kind, flag};
use clutch_wire::region::RegionPool;
use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, Poller};
use clutch_wire::{Codec, Failure};

use self::alarm::Alarm;
use super::entry::Entry;
use super::functions::Functions;
use super::state::WorkerKey;
use super::status::company::Crowd;
use super::status::spent::Life;
use crate::link::board::{Board, word};
use crate::link::{Announced, Attached, Inbox, Outbox, Pending, PutError};
use crate::work::WorkId;

/// A worker's link as it is shared between the threads that write to it and read from it.
#[derive(Debug)]
pub struct Link {
    pub key: WorkerKey,
    pub socket: Tracked,
    pub board: Board,
    pub outbox: Outbox,
    pub inbox: Mutex<Inbox>,
    pub alarm: Alarm,
}

impl Link {
    pub fn new(key: WorkerKey, socket: OwnedFd, board: Board, alarm: OwnedFd) -> Arc<Link> {
        let socket = Tracked::new(socket);
        // Without it a caller that reads is told by the worker alone.
        let _ = sys::limit_reads(socket.as_fd(), LEASE_MAX);
        let (outbox, inbox) = (Outbox::default(), Mutex::default());
        Arc::new(Link { key, socket, board, outbox, inbox, alarm: Alarm::new(alarm) })
    }
}

/// Longest time that a blocking caller reads a link by itself. Then the driver does, and the caller hears of its answer
/// whichever way it comes: by another link, by its deadline, by a signal.
const LEASE_MAX: Duration = Duration::from_millis(20);

/// The core's end of one worker's link, under its lock.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: Arc<Link>,
    /// Registered with the poller: the driver reads it.
    pub(super) armed: bool,
    /// A blocking caller reads it.
    pub(super) leased: bool,
    /// A front reads it.
    pub(super) is_read: bool,
    /// The zygote is gone: nothing but the end of the link tells of the worker's end.
    pub(super) orphaned: bool,
    /// The poller also tells when its socket has room.
    pub(super) writable_wanted: bool,
    /// A debugger asks at the terminal: nothing of it is told to stop.
    pub(super) debugged: bool,
    defined: Vec<bool>,
    announced: Announced,
    free: Vec<u32>,
    /// Of what the worker takes by itself: begun at any time.
    own: Vec<u32>,
    /// Taken back: free once the worker has come by.
    pending: Vec<u32>,
    /// Work that nobody waits for: its word, which is free when its end has come, what it is, and of which job.
    abandoned: HashMap<WorkId, (u32, String, Option<String>)>,
    /// Time of the worker, by how it is spent.
    pub(super) life: Life,
    pub(super) crowd: Crowd,
}

impl Peer {
    pub(super) fn new(link: Arc<Link>, regions: &RegionPool, life: Life) -> Peer {
        let free = (0..link.board.len() as u32).rev().collect();
        Peer {
            link,
            armed: false,
            leased: false,
            is_read: false,
            orphaned: false,
            writable_wanted: false,
            debugged: false,
            defined: Vec::new(),
            announced: Announced::to_one_of_many(regions),
            free,
            own: Vec::new(),
            pending: Vec::new(),
            abandoned: HashMap::new(),
            crowd: Crowd::new(life.wanted),
            life,
        }
    }

    /// Lets the driver read it, unless somebody else does. An error: it cannot.
    pub(super) fn arm(&mut self, poller: &Poller) -> io::Result<()> {
        if self.is_read { Ok(()) } else { self.register(poller) }
    }

    fn register(&mut self, poller: &Poller) -> io::Result<()> {
        if !self.armed {
            poller.add(self.link.socket.as_fd(), u64::from(self.link.key), false)?;
            self.armed = true;
        }
        Ok(())
    }

    /// Returns whether a blocking caller may read the link.
    pub(super) fn may_be_leased(&self) -> bool {
        !self.leased && !self.is_read
    }

    pub(super) fn lease(&mut self, poller: &Poller) {
        self.leased = true;
        self.disarm(poller);
    }

    pub(super) fn disarm(&mut self, poller: &Poller) {
        if self.armed {
            poller.remove(self.link.socket.as_fd());
            (self.armed, self.writable_wanted) = (false, false);
        }
    }

    pub(super) fn watch_writable(&mut self, poller: &Poller, wanted: bool) -> io::Result<()> {
        if self.writable_wanted == wanted {
            return Ok(());
        }
        if !wanted && self.is_read {
            self.disarm(poller);
            return Ok(());
        }
        // That the driver then reads, too, does no harm.
        self.register(poller)?;
        self.writable_wanted = wanted;
        // A link that is gone from the poller ends by end-of-file.
        let _ = poller.modify(self.link.socket.as_fd(), u64::from(self.link.key), wanted);
        Ok(())
    }

    /// Puts a call on the link; false when the board has no word left. On an error the call is not there, and the link as
    /// it was.
    pub(super) fn put_call(
        &mut self,
        entry: &mut Entry,
        id: WorkId,
        functions: &Functions,
        deadline_ns: u64,
        regions: &Arc<RegionPool>,
    ) -> Result<bool, PutError> {
        let Some(word) = self.free_word() else { return Ok(false) };
        self.link.board.items_begun(word).store(entry.items.count(), Ordering::Relaxed);
        self.link.board.set(word, word::SENT);
        entry.word = Some(word);
        let put = entry.work.payload.leases.iter_mut().try_for_each(|lease| regions.place(lease));
        let put = put.map_err(PutError::from).and_then(|()| self.put_frames(entry, id, functions, deadline_ns));
        if put.is_err() {
            entry.word = None;
            self.release(word);
        }
        put.map(|()| true)
    }

    fn put_frames(
        &mut self,
        entry: &Entry,
        id: WorkId,
        functions: &Functions,
        deadline_ns: u64,
    ) -> Result<(), PutError> {
        let work = &entry.work;
        let (word, skip) = (entry.word.unwrap_or_default(), entry.items.count());
        let fields = CallFields { word, function: work.function, deadline_ns, skip };
        let descriptor = work.descriptor.as_ref().map(|descriptor| descriptor.copy()).transpose()?;
        let head = Head { flags: flags_of(entry), ..Head::of(Kind::Call, id) };
        let (defined, announced) = (&mut self.defined, &mut self.announced);
        let reader = u64::from(self.link.key);
        self.link.outbox.push(|out| {
            define(defined, out, work.function, functions)?;
            if let Some(descriptor) = descriptor {
                announced.announce_all(out, &work.payload)?;
                out.attach(Attached::Given(vec![descriptor]));
            }
            announced.put(out, head, &fields.bytes(), &work.payload, reader)
        })
    }

    fn free_word(&mut self) -> Option<u32> {
        self.collect_words();
        self.free.pop()
    }

    /// Gives the worker so many words for what it takes by itself, for good; fewer where it would have more than half of
    /// the board: the other half is for what it is sent.
    pub(super) fn reserve(&mut self, count: usize) -> Vec<u32> {
        let room = (self.link.board.len() / 2).saturating_sub(self.own.len());
        let words: Vec<u32> = std::iter::from_fn(|| self.begun_word()).take(count.min(room)).collect();
        self.own.extend(&words);
        words
    }

    /// Takes a word of the worker for work that it has begun. Returns the one that the worker has in its place; none: it
    /// was not the worker's, or no other is free.
    pub(super) fn replace_own(&mut self, word: u32) -> Option<u32> {
        let at = self.own.iter().position(|own| *own == word)?;
        self.own[at] = self.begun_word()?;
        Some(self.own[at])
    }

    fn begun_word(&mut self) -> Option<u32> {
        let word = self.free_word()?;
        self.link.board.items_begun(word).store(0, Ordering::Relaxed);
        self.link.board.set(word, word::BEGUN);
        Some(word)
    }

    /// Takes in the words that the worker has freed, when no other is left.
    fn collect_words(&mut self) {
        if self.free.is_empty() {
            let board = &self.link.board;
            let (free, pending) = self.pending.iter().partition(|word| board.get(**word) == word::FREE);
            (self.free, self.pending) = (free, pending);
        }
    }

    /// The answer is here: the word may be used again.
    pub(super) fn release(&mut self, word: u32) {
        self.link.board.set(word, word::FREE);
        self.free.push(word);
    }

    /// Claims a word back; the worker frees it when it comes by. One that has come by too late to begin has left it to us.
    pub(super) fn take(&mut self, word: u32) -> bool {
        let taken = self.link.board.claim(word, word::SENT, word::TAKEN);
        if taken {
            self.pending.push(word);
        } else if self.link.board.get(word) == word::LATE {
            self.release(word);
            return true;
        }
        taken
    }

    /// Tells the worker of regions that are no more, and of this map that is over, if there is one.
    pub(super) fn tell_over(&mut self, map: Option<u64>) -> Arc<Link> {
        let announced = &mut self.announced;
        self.link.outbox.push(|out| {
            announced.forget_dead(out);
            if let Some(number) = map {
                // Too short to be refused.
                let _ = frame::put_simple(&mut out.bytes, Kind::Define, 0, Codec::Empty, &number.to_le_bytes());
            }
        });
        self.link.clone()
    }

    /// The worker could not take the descriptor of this region.
    pub(super) fn was_unreceived(&mut self, region: u32) {
        self.announced.was_unreceived(region);
    }

    /// Tells the worker, by the word, that nobody waits for this any more.
    pub(super) fn abandon(&mut self, id: WorkId, word: Option<u32>, what: String, job: Option<String>) {
        let Some(word) = word else { return };
        self.link.board.claim(word, word::BEGUN, word::ABANDONED);
        self.abandoned.insert(id, (word, what, job));
    }

    /// Describes abandoned work that has not ended, and names its job.
    pub(super) fn abandoned_work(&self, id: WorkId) -> Option<(String, Option<String>)> {
        self.abandoned.get(&id).map(|(_, what, job)| (what.clone(), job.clone()))
    }

    /// The end of abandoned work has come.
    pub(super) fn release_abandoned(&mut self, id: WorkId) {
        if let Some((word, ..)) = self.abandoned.remove(&id) {
            self.release(word);
        }
    }

    /// Returns whether a call finds a word on the board.
    pub(super) fn has_words(&mut self) -> bool {
        self.collect_words();
        !self.free.is_empty()
    }
}

fn flags_of(entry: &Entry) -> u8 {
    let work = &entry.work;
    let input = if work.has_input { flag::HAS_INPUT } else { 0 };
    let single = if work.one_value { flag::ONE_VALUE } else { 0 };
    let handed = if work.descriptor.is_some() { flag::HAS_DESCRIPTOR | flag::WANT_BEGUN } else { 0 };
    let begin = if entry.tells_begin { flag::WANT_BEGUN } else { 0 };
    input | single | handed | begin | (work.kind.number() << flag::KIND_SHIFT)
}

fn define(defined: &mut Vec<bool>, out: &mut Pending, function: u32, functions: &Functions) -> Result<(), PutError> {
    let at = function as usize;
    if defined.get(at).copied().unwrap_or(false) {
        return Ok(());
    }
    if defined.len() <= at {
        defined.resize(at + 1, false);
    }
    if let Some(known) = functions.get(function).filter(|known| known.codec != Codec::Empty) {
        frame::put_simple(&mut out.bytes, Kind::Define, u64::from(function), known.codec, &known.body)?;
        defined[at] = true;
    }
    Ok(())
}

/// Code by value for a pool on another Python.
pub(super) fn foreign_failure(pool: &str, version: &str) -> Failure {
    let message = format!(
        "pool '{pool}' runs Python {version}, another version than the caller's: code cannot travel there by value \
         (lambdas, closures, notebook cells); pass an importable function or the name of a tool"
    );
    Failure::BadArguments { message, detail: String::new() }
}
