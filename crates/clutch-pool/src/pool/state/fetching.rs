//! Work that is fetched from elsewhere, such as jobs: how much more may be, so that all of it can begin.
//!
//! A fetcher takes a permit for each piece before it fetches it, and what it does not use it gives back. Permits are of
//! one pool: whatever others have submitted, and what other fetchers are about to, leaves so much less. Short work, by its
//! measured run time, may be fetched ahead of busy slots, since a trip for each piece would take longer than the work:
//! unless another fetcher waits for room, and then a slot is left to each that has waited longer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::work::FetcherKey;

/// Work is fetched ahead of a busy slot up to this much of run time, and so many pieces; of all slots together, so many.
pub const FETCHED_AHEAD: Duration = Duration::from_millis(5);
pub const FETCHED_AHEAD_MAX: usize = 128;
pub const FETCHED_AHEAD_ALL_MAX: usize = 1024;

/// Places of a pool for what a fetcher fetches, whoever has them now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub slots: usize,
    /// Ahead of each slot.
    pub ahead: usize,
}

impl Places {
    pub fn all(self) -> usize {
        self.slots * (1 + self.ahead)
    }
}

#[derive(Debug, Default)]
struct Fetcher {
    permits: usize,
    /// Expected run time of a piece; 0: not known.
    run_ns: u64,
    /// Since when there is more than its pool can begin.
    backlog_since: Option<Instant>,
}

impl Fetcher {
    /// One long run counts at once, since others wait behind such; shorter ones take off an eighth each.
    fn learn(&mut self, run_ns: u64) {
        let run_ns = run_ns.max(1);
        self.run_ns = if run_ns >= self.run_ns { run_ns } else { self.run_ns - (self.run_ns - run_ns) / 8 };
    }

    fn ahead(&self) -> usize {
        let pieces = (FETCHED_AHEAD.as_nanos() as u64).checked_div(self.run_ns).unwrap_or(0);
        (pieces as usize).min(FETCHED_AHEAD_MAX)
    }
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    fetchers: BTreeMap<FetcherKey, Fetcher>,
    last: FetcherKey,
    permits: usize,
    /// Those that got fewer permits than they asked for last, and wait to hear of room: who has waited longest is first.
    short: Vec<FetcherKey>,
    /// They were told of it.
    are_told: bool,
}

impl Fetching {
    pub(super) fn open(&mut self) -> FetcherKey {
        self.last += 1;
        self.fetchers.insert(self.last, Fetcher::default());
        self.last
    }

    pub(super) fn close(&mut self, key: FetcherKey) {
        let closed = self.fetchers.remove(&key);
        self.give_way(key);
        self.permits -= closed.map_or(0, |fetcher| fetcher.permits);
    }

    pub(super) fn places(&self, key: FetcherKey, slots: usize) -> Places {
        let others_wait = self.short.iter().any(|short| *short != key);
        let ahead = self.fetchers.get(&key).filter(|_| !others_wait).map_or(0, Fetcher::ahead);
        Places { slots, ahead: ahead.min(FETCHED_AHEAD_ALL_MAX / slots.max(1)) }
    }

    /// `room`: how much more could begin, or wait ahead, if no permit were out. Who asks for none waits on for what it
    /// asked for before.
    pub(super) fn take(&mut self, key: FetcherKey, most: usize, room: usize) -> usize {
        let place = self.short.iter().position(|short| *short == key);
        let left_to_others = place.unwrap_or(self.short.len());
        let Some(fetcher) = self.fetchers.get_mut(&key) else { return 0 };
        let taken = most.min(room.saturating_sub(self.permits + left_to_others));
        match place {
            _ if most == 0 => {}
            Some(place) if taken == most => drop(self.short.remove(place)),
            None if taken < most => {
                self.short.push(key);
                self.are_told = false;
            }
            _ => self.are_told &= taken == most,
        }
        fetcher.permits += taken;
        self.permits += taken;
        taken
    }

    /// It waits for no room any more, and others may have it.
    pub(super) fn give_way(&mut self, key: FetcherKey) {
        self.short.retain(|short| *short != key);
    }

    /// So many permits were used, or are not needed.
    pub(super) fn give_back(&mut self, key: FetcherKey, permits: usize) {
        let Some(fetcher) = self.fetchers.get_mut(&key) else { return };
        let given = permits.min(fetcher.permits);
        fetcher.permits -= given;
        self.permits -= given;
    }

    pub(super) fn learn(&mut self, key: FetcherKey, run_ns: u64) {
        self.fetchers.get_mut(&key).into_iter().for_each(|fetcher| fetcher.learn(run_ns));
    }

    pub(super) fn set_backlog(&mut self, key: FetcherKey, since: Option<Instant>) {
        self.fetchers.get_mut(&key).into_iter().for_each(|fetcher| fetcher.backlog_since = since);
    }

    pub(super) fn backlog_since(&self) -> Option<Instant> {
        self.fetchers.values().filter_map(|fetcher| fetcher.backlog_since).min()
    }

    /// Whether fetchers are to be told of room: once for each time that one was short. `free`: slots that nothing waits for.
    pub(super) fn tells_room(&mut self, free: usize) -> bool {
        let tells = !self.short.is_empty() && free > self.permits && !self.are_told;
        self.are_told |= tells;
        tells
    }
}
