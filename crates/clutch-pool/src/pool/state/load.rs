//! Load of one worker: its slots, what was sent to it, and how much more it may get.

use std::time::{Duration, Instant};

use super::sent::Sent;
use crate::work::WorkId;

/// Names a worker within its pool; never reused.
pub type WorkerKey = u32;

/// Work is sent ahead of a busy slot up to this much of measured run time.
pub const AHEAD: Duration = Duration::from_micros(200);

/// Most pieces of work sent ahead for one slot, and for so many slots: a worker that has to read thousands of them runs
/// none meanwhile.
pub const AHEAD_MAX: usize = 64;
const AHEAD_SLOTS_MAX: usize = 16;

/// A worker that has finished nothing for so long, and for longer than its slots would take one after the other (as
/// those of one thread do), has what was sent ahead taken back.
pub const STALLED: Duration = Duration::from_millis(1);

/// A worker whose work was past its deadline so often in a row, with nothing answered in between, is replaced: what holds
/// its work up may be its own, such as a lock that nobody releases or a broken connection.
pub const EXPIRED_MAX: u32 = 5;
/// Least time that such work has run: a shorter deadline says nothing of the worker.
pub const EXPIRED_RUN_MIN: Duration = Duration::from_millis(500);
/// Least time between two such replacements in a pool: what holds up all of its workers is not theirs.
pub const EXPIRED_EVERY: Duration = Duration::from_secs(10);

/// Why a worker gets nothing for the time being. Several reasons may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// The worker's process is stopped by a signal.
    Stopped,
    /// The worker's memory is at the limit.
    Memory,
    /// There was no room to send it more: it keeps what it has.
    Starved,
}

/// The reasons that hold one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds(u8);

impl Holds {
    pub(super) fn insert(&mut self, why: Hold) {
        self.0 |= 1 << why as u8;
    }

    pub(super) fn remove(&mut self, why: Hold) {
        self.0 &= !(1 << why as u8);
    }

    pub(super) fn contains(self, why: Hold) -> bool {
        self.0 & (1 << why as u8) != 0
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Whether a worker is kept for one piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    No,
    /// For the next suspect, once what runs has ended.
    Reserved,
    Running(WorkId),
}

fn ahead_max(slots: usize) -> usize {
    AHEAD_MAX * slots.min(AHEAD_SLOTS_MAX)
}

#[derive(Debug)]
pub(super) struct Load {
    slots: usize,
    words: usize,
    /// The first `slots` of them are taken for begun.
    pub(super) sent: Sent,
    load_ns: u64,
    progress: Instant,
    /// Most that is sent ahead to it: from none, where work was taken back because it stood still, one more for each
    /// answer. What was taken back it still has to read, so that more and more of it would keep it from running any.
    ahead_max: usize,
    pub(super) holds: Holds,
    pub(super) draining: bool,
    pub(super) alone: Alone,
    calls: u64,
    calls_max: Option<u64>,
    /// Work in a row that was past its deadline.
    expired: u32,
    /// Time by which the worker is to end: endless work goes on until then.
    pub(super) ends_by: Option<Instant>,
}

impl Load {
    pub(super) fn new(slots: usize, words: usize, calls_max: Option<u64>, now: Instant) -> Load {
        Load {
            slots,
            words,
            sent: Sent::default(),
            load_ns: 0,
            progress: now,
            ahead_max: ahead_max(slots),
            holds: Holds::default(),
            draining: false,
            alone: Alone::No,
            calls: 0,
            calls_max,
            expired: 0,
            ends_by: None,
        }
    }

    /// Adds what is sent to it. Returns its number among that, and whether the worker is worn by it.
    pub(super) fn add(&mut self, id: WorkId, load_ns: u64, calls: u64, now: Instant) -> (u64, bool) {
        if self.sent.is_empty() {
            self.progress = now;
        }
        self.load_ns += load_ns;
        (self.sent.push(id), self.count(calls))
    }

    /// Counts calls. Returns whether the worker is worn by them.
    pub(super) fn count(&mut self, calls: u64) -> bool {
        let before = self.calls;
        self.calls = before.saturating_add(calls);
        self.calls_max.is_some_and(|most| before < worn_at(most) && worn_at(most) <= self.calls)
    }

    pub(super) fn remove(&mut self, number: u64, id: WorkId, load_ns: u64) {
        if self.sent.remove(number, id) {
            self.load_ns -= load_ns;
        }
        if self.alone == Alone::Running(id) {
            self.alone = Alone::No;
        }
    }

    /// These were taken back.
    pub(super) fn give_back(&mut self, calls: u64) {
        self.calls -= calls;
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns whether the worker has had all the calls that it may have.
    pub(super) fn is_spent(&self) -> bool {
        self.calls_max.is_some_and(|most| self.calls >= most)
    }

    /// When what was sent then could begin at the earliest.
    pub(super) fn could_begin(&self, sent: Instant) -> Instant {
        if self.slots == 1 { sent.max(self.progress) } else { sent }
    }

    pub(super) fn free(&self) -> usize {
        if self.takes() { self.slots.saturating_sub(self.sent.len()) } else { 0 }
    }

    /// Returns the worker's slots if it takes work, else 0.
    pub(super) fn taking(&self) -> usize {
        if self.takes() { self.slots } else { 0 }
    }

    fn takes(&self) -> bool {
        self.alone == Alone::No && self.is_open()
    }

    /// Gets work at all.
    fn is_open(&self) -> bool {
        self.holds.is_empty() && !self.draining && !self.is_spent()
    }

    pub(super) fn may_run_suspect(&self) -> bool {
        !matches!(self.alone, Alone::Running(_)) && self.is_open()
    }

    pub(super) fn is_idle_for_suspect(&self) -> bool {
        self.may_run_suspect() && self.sent.is_empty()
    }

    /// Returns the used part of the slots, in 1024ths; less than any other where nothing runs.
    pub(super) fn filled(&self) -> usize {
        if self.sent.is_empty() { 0 } else { 1 + self.sent.len() * 1024 / self.slots }
    }

    /// Slots that run something, of a worker that counts.
    pub(super) fn busy(&self) -> usize {
        if self.draining { 0 } else { self.sent.len().min(self.slots) }
    }

    pub(super) fn ahead(&self) -> usize {
        self.sent.len().saturating_sub(self.slots)
    }

    pub(super) fn has_room_ahead(&self) -> bool {
        self.takes()
            && self.load_ns <= self.load_ns_max()
            && self.ahead() < self.ahead_max
            && self.sent.len() + self.slots < self.words
    }

    /// Less than half of what may be sent ahead is left, and it makes progress.
    pub(super) fn is_low(&self, now: Instant) -> bool {
        self.may_be_low() && !self.is_stalled(now)
    }

    /// The same, whether or not it makes progress.
    pub(super) fn may_be_low(&self) -> bool {
        self.has_room_ahead() && self.load_ns * 2 <= self.load_ns_max() && self.ahead() * 2 < self.ahead_max
    }

    fn load_ns_max(&self) -> u64 {
        AHEAD.as_nanos() as u64 * self.slots as u64
    }

    /// `in_time`: before its deadline, if it had one.
    pub(super) fn has_answered(&mut self, in_time: bool, now: Instant) {
        self.progress = now;
        self.expired = if in_time { 0 } else { self.expired };
        self.ahead_max = ahead_max(self.slots).min(self.ahead_max + 1);
    }

    /// Notes that the worker has answered what it had taken by itself, some time ago: no work on its link has moved.
    pub(super) fn has_served(&mut self) {
        self.expired = 0;
    }

    /// Notes that work is past its deadline. Returns whether that was once too often.
    pub(super) fn has_expired(&mut self) -> bool {
        self.expired += 1;
        self.expired >= EXPIRED_MAX && !self.draining
    }

    /// Notes that the worker stands still: work sent ahead is taken back from it.
    pub(super) fn stands_still(&mut self) {
        self.ahead_max = 0;
    }

    pub(super) fn load_ns_of_slot(&self) -> u64 {
        self.load_ns / self.slots as u64
    }

    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        now > self.stalls_at()
    }

    pub(super) fn stalls_at(&self) -> Instant {
        let in_turn = Duration::from_nanos(self.load_ns.min(self.load_ns_max()));
        self.progress + STALLED.max(in_turn)
    }
}

/// A worker with a limit of calls is replaced when so many have been sent to it.
fn worn_at(most: u64) -> u64 {
    (most - most / 5).max(1)
}
