//! Stopping code that runs: what becomes of the caller at once, and what the worker is told.
//!
//! The steps: the word on the board says that nobody waits; the alarm has the code interrupted (and, past a deadline, the
//! stacks sent first); when it has not stopped after the grace, the supervisor is told, who ends the worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::alarm::Parts;
use super::core::{Core, Effects, Entry, Told};
use super::state::{Action, Event, StopCause, WorkerKey};
use super::{Notice, Pool};
use crate::telemetry;
use crate::wire::{self, Kind, flag};
use crate::work::{Expired, Outcome, Refusal, Reply, Where, WorkId};

/// How long a caller whose deadline has passed waits for the stacks of its worker.
const STACKS_WAIT: Duration = Duration::from_millis(25);

/// Work on a link, and when it is looked at.
#[derive(Clone, Copy)]
pub(super) struct OnLink {
    pub(super) worker: WorkerKey,
    pub(super) id: WorkId,
    pub(super) now: Instant,
}

/// Work past its deadline whose caller waits for the stacks.
pub(super) struct Expiring {
    worker: WorkerKey,
    reply: Arc<dyn Reply>,
    until: Instant,
    stacks: Parts,
    expired: Box<Expired>,
}

impl Expiring {
    fn answer(mut self, effects: &mut Effects) {
        self.expired.stacks = self.stacks.text();
        let refusal = Refusal::Expired(self.expired);
        effects.replies.push((self.reply, Told::Finish(Outcome::Refused(refusal))));
    }
}

pub(super) fn stuck(worker: WorkerKey, cause: StopCause) -> Notice {
    let cause = match cause {
        StopCause::Deadline => "its work was past its deadline and did not stop",
        StopCause::Cancelled => "its work was cancelled and did not stop",
        StopCause::Drained => "it was to end and its endless work did not stop",
    };
    Notice::Stuck { worker, cause: cause.to_owned() }
}

impl Core {
    /// Takes work that has not begun back from a worker; false: it has.
    fn take_back(&mut self, work: OnLink, actions: &mut Vec<Action<Box<Entry>>>) -> bool {
        let OnLink { worker, id, now } = work;
        let taken = self.take(worker, id);
        if taken {
            self.machine.on(Event::Taken { worker, id, taken }, now, actions);
        }
        taken
    }

    /// The deadline of work on a link has passed.
    pub(super) fn overdue(
        &mut self,
        pool: &Pool,
        work: OnLink,
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) {
        let OnLink { worker, id, now } = work;
        if self.take_back(work, actions) {
            self.machine.expire(id, actions);
            return;
        }
        let since = self.machine.since(id).unwrap_or(now);
        let Some(entry) = self.machine.answer_running(id, StopCause::Deadline, now + pool.config.interrupt_grace())
        else {
            return;
        };
        let expired = Box::new(Expired {
            at: Where::Running,
            what: self.describe(&entry),
            after: now.saturating_duration_since(since),
            worker: pool.name_of(worker),
            stacks: String::new(),
        });
        pool.emit_of_work(|pool| telemetry::Event::WorkExpired { pool, id, at: "running".to_owned() });
        let hears = self.stop_code(worker, id, &entry, true, effects);
        let stacks = Parts::awaited(pool.config.shape.profile.has_tasks());
        let expiring = Expiring { worker, reply: entry.work.reply, until: now + STACKS_WAIT, stacks, expired };
        match hears {
            true => drop(self.expiring.insert(id, expiring)),
            false => expiring.answer(effects),
        }
    }

    /// Nobody waits any more for work on a link.
    pub(super) fn abandon(
        &mut self,
        pool: &Pool,
        work: OnLink,
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) {
        let OnLink { id, now, .. } = work;
        if self.take_back(work, actions) {
            self.machine.on(Event::Abandon { id }, now, actions);
            return;
        }
        if self.give_up(pool, work, StopCause::Cancelled, effects) {
            pool.emit_of_work(|pool| telemetry::Event::WorkCancelled { pool, id });
        }
    }

    /// Endless work was told that its worker is to end, and has not ended by itself.
    pub(super) fn cut_off(
        &mut self,
        pool: &Pool,
        work: OnLink,
        actions: &mut Vec<Action<Box<Entry>>>,
        effects: &mut Effects,
    ) {
        if self.take_back(work, actions) {
            return;
        }
        if self.give_up(pool, work, StopCause::Drained, effects) {
            self.drained += 1;
            pool.emit_of_work(|pool| telemetry::Event::WorkDrained { pool, id: work.id });
        }
    }

    /// Answers running work and tells its code to stop. False: it was answered before.
    fn give_up(&mut self, pool: &Pool, work: OnLink, cause: StopCause, effects: &mut Effects) -> bool {
        let refusal = match cause {
            StopCause::Drained => Refusal::Draining { pool: pool.config.name.clone() },
            _ => Refusal::Cancelled,
        };
        self.end_with(work, cause, Outcome::Refused(refusal), effects)
    }

    /// The same, with this for an answer.
    pub(super) fn end_with(&mut self, work: OnLink, cause: StopCause, outcome: Outcome, effects: &mut Effects) -> bool {
        let OnLink { worker, id, now } = work;
        let by = now + self.interrupt_grace;
        let Some(entry) = self.machine.answer_running(id, cause, by) else { return false };
        self.stop_code(worker, id, &entry, false, effects);
        effects.look_at = Some(by);
        effects.replies.push((entry.work.reply, Told::Finish(outcome)));
        true
    }

    /// Removes work whose caller has gone, unless it has begun.
    pub(super) fn withdraw(&mut self, id: WorkId, now: Instant, actions: &mut Vec<Action<Box<Entry>>>) -> bool {
        let placed = self.machine.worker_of(id).map(|worker| OnLink { worker, id, now });
        if placed.is_some_and(|work| !self.take_back(work, actions)) {
            return false;
        }
        self.machine.on(Event::Abandon { id }, now, actions);
        true
    }

    /// Tells the worker to stop, in every way there is. Returns whether it can hear.
    fn stop_code(&mut self, worker: WorkerKey, id: WorkId, entry: &Entry, stacks: bool, effects: &mut Effects) -> bool {
        let what = self.describe(entry);
        let Some(peer) = self.peers.get_mut(&worker) else { return false };
        peer.abandon(id, entry.word, what);
        if peer.debugged {
            return false;
        }
        // For event loops, which read it at their next turn.
        let flags = if stacks { flag::WANT_STACKS } else { 0 };
        peer.link.outbox.push(|out| wire::put_head(&mut out.bytes, Kind::Cancel, id, flags));
        effects.flush.push(peer.link.clone());
        effects.interrupts.push((peer.link.clone(), id, stacks && !peer.stopped));
        !peer.stopped
    }

    /// Stacks have come: of the threads by the alarm, of the task itself by the link. Both make the answer whole.
    pub(super) fn take_stacks(&mut self, id: WorkId, text: String, of_threads: bool, effects: &mut Effects) {
        let Some(expiring) = self.expiring.get_mut(&id) else { return };
        expiring.stacks.put(text, of_threads);
        if expiring.stacks.is_whole() {
            self.expiring.remove(&id).into_iter().for_each(|expiring| expiring.answer(effects));
        }
    }

    /// Callers that have waited long enough are answered with what there is.
    pub(super) fn answer_expiring(&mut self, now: Instant, effects: &mut Effects) {
        self.answer_those(|expiring| expiring.until <= now, effects);
    }

    /// The worker is gone and sends no stacks any more.
    pub(super) fn answer_expiring_of(&mut self, worker: WorkerKey, effects: &mut Effects) {
        self.answer_those(|expiring| expiring.worker == worker, effects);
    }

    fn answer_those(&mut self, which: impl Fn(&Expiring) -> bool, effects: &mut Effects) {
        let due = self.expiring.iter().filter(|(_, expiring)| which(expiring)).map(|(id, _)| *id);
        for id in due.collect::<Vec<_>>() {
            self.expiring.remove(&id).into_iter().for_each(|expiring| expiring.answer(effects));
        }
    }

    pub(super) fn next_expiring(&self) -> Option<Instant> {
        self.expiring.values().map(|expiring| expiring.until).min()
    }
}
