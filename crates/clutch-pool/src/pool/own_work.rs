//! Work that workers take by themselves, such as requests on connections that a front has passed to them: what the pool
//! knows of it.

use std::time::{Duration, Instant};

use super::core::Core;
use super::effects::Effects;
use super::entry::Entry;
use super::state::{Action, Begun, Event, WorkerKey};
use super::{Pool, request_of};
use crate::work::{Work, WorkId};

/// Calls that a worker had taken by itself, and has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    pub calls: u64,
    /// Those of them without a value.
    pub failed: u64,
    /// Others, which have ended with the worker.
    pub lost: u64,
    /// In all calls together.
    pub run: Duration,
}

/// Work that the pool knows from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The worker ends it by a result or failure frame with this id. That it is to stop may reach the worker before the id
    /// does: then its word is `ABANDONED` when the worker learns of the id.
    pub id: WorkId,
    /// Word of the board that the worker uses from now on in place of the one that this work has.
    pub next_word: u32,
}

impl Pool {
    /// Gives a worker `count` words of its board for what it takes by itself: one for each piece that it runs at a time. They
    /// are always `BEGUN`; one that is `ABANDONED` is that of adopted work which is to stop. Returns fewer where the board
    /// has no room, and none of a worker that is gone.
    pub fn reserve_words(&self, worker: WorkerKey, count: usize) -> Vec<u32> {
        if self.is_forked() {
            return Vec::new();
        }
        self.core.lock().peers.get_mut(&worker).map(|peer| peer.reserve(count)).unwrap_or_default()
    }

    /// Takes in work that a worker began by itself, at `since` and with a `word` that [`Pool::reserve_words`] or an earlier
    /// adoption gave it: from here on it is as work that was sent there and has begun, in a pool that is closed, too. It is
    /// not to be counted by [`Pool::served`]. None: it stays unknown, its reply is told nothing, and the word is the
    /// worker's as before; the worker is gone, or its board has no free word.
    pub fn adopt(&self, worker: WorkerKey, word: u32, since: Instant, work: Work) -> Option<Adopted> {
        let begun = Begun { worker, since };
        self.transact_with(|core, now, actions, effects| {
            let adopted = core.adopt(begun, word, work, now, actions, effects)?;
            core.peers.get_mut(&worker).into_iter().for_each(|peer| self.links.watch(peer));
            Some(adopted)
        })
    }

    /// Counts calls that a worker has ended by itself, as if it had been sent them. Tell many at a time: each takes the
    /// pool's lock. Of a worker that is gone they count in the pool's totals.
    pub fn served(&self, worker: WorkerKey, served: Served) {
        if served.calls > 0 || served.lost > 0 {
            self.transact(|core, now, actions| core.served(worker, served, now, actions));
        }
    }
}

impl Core {
    fn adopt(
        &mut self,
        begun: Begun,
        word: u32,
        work: Work,
        now: Instant,
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) -> Option<Adopted> {
        let Begun { worker, since } = begun;
        self.machine.worker(worker)?;
        let next_word = self.peers.get_mut(&worker)?.replace_own(word)?;
        let (request, limit) = (request_of(&work, false), work.run_limit);
        let noted = work.notes_queue_time.then(|| work.reply.clone());
        let entry = Entry { word: Some(word), queued: Some(Duration::ZERO), ..*Entry::new(work) };
        let id = self.machine.adopt(request, Box::new(entry), begun, now, actions)?;
        effects.sent.extend(noted.map(|reply| (reply, Duration::ZERO)));
        self.begin(id, effects);
        let looked_at = limit.map(|limit| self.run_clocks.start(id, limit, 1, since));
        looked_at.into_iter().chain(self.machine.next_deadline()).for_each(|at| effects.look_by(at));
        Some(Adopted { id, next_word })
    }

    fn served(&mut self, worker: WorkerKey, served: Served, now: Instant, actions: &mut Vec<Action<Box<Entry>>>) {
        self.noted.tally.note_served(served);
        let Served { calls, run, .. } = served;
        match self.peers.get_mut(&worker) {
            Some(peer) => peer.life.has_run(run),
            None => self.noted.past.has_run(run),
        }
        self.machine.on(Event::Served { worker, calls, run }, now, actions);
    }
}
