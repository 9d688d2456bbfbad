//! Stopping code that runs: what becomes of the caller at once, and what the worker is told.
//!
//! The steps: the word on the board says that nobody waits; the alarm has the code interrupted (and, past a deadline, the
//! stacks sent first); when it has not stopped after the grace, the supervisor is told, who ends the worker.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_wire::frame::{self, Kind, flag};

use super::Pool;
use super::core::Core;
use super::effects::{Effects, OnLink};
use super::entry::Entry;
use super::expiring::{Cut, Expiring};
use super::notice::Notice;
use super::peer::alarm::Parts;
use super::state::{Action, Event, Hold, StopCause, WorkerKey};
use crate::link::board::word;
use crate::link::items::Items;
use crate::pool::facts::{WorkCancelled, WorkCutOff, WorkDrained, WorkExpired};
use crate::work::{Expired, Outcome, Refusal, Where, WorkId};

/// Maximum time that a caller whose deadline has passed waits for the stacks of its worker.
const STACKS_WAIT: Duration = Duration::from_millis(25);

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
        let OnLink { id, now, .. } = work;
        if self.take_back(work, actions) {
            self.machine.expire(id, actions);
            return;
        }
        let since = self.machine.since(id).unwrap_or(now);
        self.expire_running(pool, work, now.saturating_duration_since(since), effects);
    }

    /// Looks at work whose time is limited.
    pub(super) fn look_at_runs(&mut self, pool: &Pool, now: Instant, effects: &mut Effects) {
        while let Some((id, mut clock)) = self.run_clocks.take_due(now) {
            let Some((worker, begun)) = self.begun_there(id) else { continue };
            if clock.look(begun, now) {
                self.expire_running(pool, OnLink { worker, id, now }, clock.running_for(now), effects);
            } else {
                self.run_clocks.keep(id, clock, now);
            }
        }
    }

    /// Finds the worker of work that is waited for, and how many items have begun, or 1 for what is no batch; None: nothing
    /// runs whose time is measured.
    fn begun_there(&self, id: WorkId) -> Option<(WorkerKey, Option<u32>)> {
        let (worker, entry) = (self.machine.worker_of(id)?, self.machine.body(id)?);
        let (peer, at) = (self.peers.get(&worker)?, entry.word?);
        let board = &peer.link.board;
        let runs = board.get(at) == word::BEGUN && !peer.debugged && !self.machine.is_untimed(id);
        let counted = board.items_begun(at).load(Ordering::Acquire);
        let begun = if entry.work.items > 0 { counted } else { 1 };
        Some((worker, (runs && counted != word::AWAITS_TURN).then_some(begun)))
    }

    /// Running work has had its time. Of a batch, what has a result keeps it.
    fn expire_running(&mut self, pool: &Pool, work: OnLink, after: Duration, effects: &mut Effects) {
        let OnLink { worker, id, now } = work;
        let ran = self.ran(work).min(after);
        let Some(mut entry) = self.machine.answer_running(id, StopCause::Deadline, now + self.config.interrupt_grace())
        else {
            return;
        };
        self.run_clocks.stop(id);
        let expired = Box::new(Expired {
            at: Where::Running,
            what: self.functions.describe(&entry),
            after,
            worker: pool.status.name_of(worker),
            stacks: String::new(),
        });
        let tool = self.functions.tool(&entry.work);
        self.telemetry.emit(|| WorkExpired { id, at: "running".to_owned(), tool });
        // Of a batch each item has its own, and its neighbours may have been answered.
        if entry.work.items == 0 && self.machine.note_expired(worker, ran, now) {
            effects.notices.push(Notice::Expiring(worker));
        }
        let hears = self.stop_code(worker, id, &entry, true, effects);
        let stacks = Parts::awaited(self.config.shape.profile.has_tasks());
        let batch = self.cut(worker, &mut entry);
        let item = batch.as_ref().map(|batch| batch.begun_by_now() - 1);
        self.noted.note_ended(&entry, || self.functions.describe(&entry), item, ran);
        let (reply, queued, until) = (entry.work.reply, entry.queued, now + STACKS_WAIT);
        let expiring = Expiring { worker, reply, queued, until, stacks, expired, batch };
        match hears {
            true => drop(self.expiring.insert(id, expiring)),
            false => self.answer(expiring, effects),
        }
    }

    fn cut(&self, worker: WorkerKey, entry: &mut Entry) -> Option<Cut> {
        let link = self.peers.get(&worker)?.link.clone();
        let items = std::mem::take(&mut entry.items);
        let (items_max, word) = (entry.work.items, entry.word);
        let begun_min = items_max.min(items.count() + 1);
        (items_max > 0).then_some(Cut { items, items_max, begun: None, link, word, begun_min })
    }

    /// Nobody waits any more for work on a link.
    pub(super) fn abandon(&mut self, work: OnLink, actions: &mut Vec<Action<Box<Entry>>>, effects: &mut Effects) {
        let OnLink { id, now, .. } = work;
        if self.take_back(work, actions) {
            self.machine.on(Event::Abandon { id }, now, actions);
            return;
        }
        if self.give_up(work, StopCause::Cancelled, effects) {
            self.telemetry.emit(|| WorkCancelled { id });
        }
    }

    /// A worker is to end: endless work was told so before, and has not ended by itself, and all other work had its time.
    pub(super) fn cut_off(&mut self, work: OnLink, actions: &mut Vec<Action<Box<Entry>>>, effects: &mut Effects) {
        if self.take_back(work, actions) {
            return;
        }
        let (id, counts) = (work.id, u64::from(self.is_counted(work.id)));
        let ends = self.machine.request(id).is_some_and(|request| !request.endless);
        let behind = self.machine.body(id).filter(|entry| ends && entry.work.reply.is_over());
        let (what, run_s) = (behind.map(|entry| self.functions.describe(entry)), self.ran(work).as_secs_f64());
        if self.give_up(work, StopCause::Drained, effects) {
            self.noted.tally.drained += counts;
            self.telemetry.emit(|| WorkDrained { id });
            what.into_iter().for_each(|what| self.telemetry.emit(|| WorkCutOff { id, what, run_s }));
        }
    }

    /// What the worker has taken by itself is told to stop, as far as it is not known here.
    pub(super) fn cut_rest(&mut self, worker: WorkerKey, effects: &mut Effects) {
        if let Some(link) = self.link(worker) {
            link.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Cancel, 0, 0));
            effects.flush.push(link);
        }
    }

    /// Answers running work and tells its code to stop. False: it was answered before.
    fn give_up(&mut self, work: OnLink, cause: StopCause, effects: &mut Effects) -> bool {
        let refusal = match cause {
            StopCause::Drained => Refusal::Draining { pool: self.config.name.clone() },
            _ => Refusal::Cancelled,
        };
        self.end_with(work, cause, Outcome::Refused(refusal), effects)
    }

    /// The same, with this for an answer.
    pub(super) fn end_with(&mut self, work: OnLink, cause: StopCause, outcome: Outcome, effects: &mut Effects) -> bool {
        let OnLink { worker, id, now } = work;
        let by = now + self.config.interrupt_grace();
        let ran = self.ran(work);
        let Some(entry) = self.machine.answer_running(id, cause, by) else { return false };
        self.run_clocks.stop(id);
        self.noted.tally.note(entry.items.count(), entry.items.failed());
        if entry.work.items == 0 {
            self.noted.note_ended(&entry, || self.functions.describe(&entry), None, ran);
        }
        self.stop_code(worker, id, &entry, false, effects);
        effects.look_by(by);
        effects.finish(*entry, outcome);
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
        let (what, job) = (self.functions.describe(entry), entry.job());
        let Some(peer) = self.peers.get_mut(&worker) else { return false };
        peer.abandon(id, entry.word, what, job);
        if peer.debugged {
            return false;
        }
        // For event loops, which read it at their next turn.
        let flags = if stacks { flag::WANT_STACKS } else { 0 };
        peer.link.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Cancel, id, flags));
        effects.flush.push(peer.link.clone());
        let hears = !self.machine.is_held(worker, Hold::Stopped);
        effects.interrupts.push((peer.link.clone(), id, stacks && hears));
        hears
    }

    /// Stacks have come: of the threads by the alarm, of the task itself by the link. Both make the answer whole.
    pub(super) fn take_stacks(&mut self, id: WorkId, text: String, of_threads: bool, effects: &mut Effects) {
        let Some(expiring) = self.expiring.get_mut(&id) else { return };
        expiring.stacks.put(text, of_threads);
        self.answer_if_whole(id, effects);
    }

    /// Results of a batch that was told to stop have come.
    pub(super) fn add_late_items(&mut self, id: WorkId, items: Items, effects: &mut Effects) {
        let Some(expiring) = self.expiring.get_mut(&id) else { return };
        expiring.add_items(items);
        self.answer_if_whole(id, effects);
    }

    fn answer_if_whole(&mut self, id: WorkId, effects: &mut Effects) {
        if self.expiring.get(&id).is_some_and(Expiring::is_whole) {
            self.expiring.remove(&id).into_iter().for_each(|expiring| self.answer(expiring, effects));
        }
    }

    fn answer(&mut self, mut expiring: Expiring, effects: &mut Effects) {
        // What was past its deadline is counted when its code has ended.
        let (done, failed) = expiring.batch.as_mut().map_or((1, 1), Cut::counted);
        self.noted.tally.note(done.saturating_sub(1), failed.saturating_sub(1));
        expiring.answer(effects);
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
            self.expiring.remove(&id).into_iter().for_each(|expiring| self.answer(expiring, effects));
        }
    }

    pub(super) fn next_expiring(&self) -> Option<Instant> {
        self.expiring.values().map(|expiring| expiring.until).min()
    }
}
