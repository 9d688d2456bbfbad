//! Turns of workers to leave: for age, calls, memory, a command or another image; and surplus workers.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::fleet::{Fleet, Recycle, Scene};
use super::worker::Worker;
use super::{Action, Leave, State};
use crate::pool::state::WorkerKey;
use crate::pool::{Denied, Ticket, Weighed};
use crate::supervisor::scale;

const KILLED: &str = "it was killed by command";
const TOO_MANY: &str = "the pool was made smaller";
const RELOAD_FAILED: &str = "the reload failed";

impl Fleet {
    // ---- one leaves

    /// Notes that the worker has used up what it may.
    pub(super) fn worn(&mut self, key: WorkerKey, why: Leave) {
        self.with(key, |worker| worker.retirement.wear_out(why));
    }

    /// A worker whose memory is at the limit is out at once, whoever else is. The limit is a promise, like calls.
    pub(super) fn weigh(&mut self, figures: &[Weighed], at: Scene<'_>, out: &mut Vec<Action>) {
        for Weighed { worker: key, memory, at_limit } in figures {
            let Some(worker) = self.workers.get_mut(key) else { continue };
            worker.retirement.note_memory(*memory);
            if *at_limit && worker.state() == State::Ready {
                worker.retirement.wear_out(Leave::Memory);
                self.leave(*key, Leave::Memory, at, out);
            }
        }
    }

    /// To be drained when its replacement is ready; at once, when memory has no room for both.
    pub(super) fn leave(&mut self, key: WorkerKey, why: Leave, at: Scene<'_>, out: &mut Vec<Action>) {
        let room = self.has_room();
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| !worker.leaves()) else { return };
        worker.retirement.leave(why);
        if !room && worker.state() == State::Ready {
            worker.retirement.leave_first(why);
            out.push(Action::Short { worker: key });
            self.drain(key, why, at, out);
        }
    }

    /// Returns whether there may be one more worker for a while.
    fn has_room(&self) -> bool {
        let memory_max = self.config.memory_max_bytes;
        memory_max.is_none_or(|most| scale::room(most, &self.private(), self.workers.len()) > 0)
    }

    // ---- in turn

    /// At most `recycle.together` are out at a time; the oldest go first.
    pub(super) fn keep_turns(&mut self, at: Scene<'_>, out: &mut Vec<Action>) {
        let mut room = self.config.recycle_together.saturating_sub(self.count(Worker::is_out));
        for key in self.keys() {
            let worker = self.workers.get(&key).filter(|worker| worker.stays());
            if let Some(why) = worker.and_then(|worker| self.why_due(worker, at)).filter(|_| room > 0) {
                self.leave(key, why, at, out);
                room -= 1;
            }
        }
    }

    fn why_due(&self, worker: &Worker, at: Scene<'_>) -> Option<Leave> {
        let recycled = || self.recycles.iter().any(|recycle| recycle.workers.contains(&worker.key));
        let by_command = || recycled().then_some(Leave::Recycle);
        let by_image = || at.zygotes.is_outdated(worker.generation).then_some(Leave::Reload);
        worker.retirement.due(at.now).or_else(by_command).or_else(by_image)
    }

    /// Returns workers that wait for a replacement that nobody is going to be.
    pub(super) fn unreplaced(&self) -> Vec<WorkerKey> {
        let replaced: BTreeSet<WorkerKey> = self.workers.values().filter_map(Worker::replaces).collect();
        let waits = self.workers.values().filter(|worker| worker.state() == State::Ready && worker.leaves());
        waits.map(|worker| worker.key).filter(|key| !replaced.contains(key)).collect()
    }

    /// Drains workers without a replacement where enough others are ready.
    pub(super) fn let_go_unreplaced(&mut self, target: usize, at: Scene<'_>, out: &mut Vec<Action>) {
        if self.count(|worker| worker.state() == State::Ready && worker.is_live()) < target {
            return;
        }
        for key in self.unreplaced() {
            let why = self.workers.get(&key).and_then(|worker| worker.retirement.why());
            self.drain(key, why.unwrap_or(Leave::Surplus), at, out);
        }
    }

    /// Whoever was to leave for this reason, and serves still, stays; those who were to replace them are too many.
    pub(super) fn stay(&mut self, why: Leave, at: Scene<'_>, out: &mut Vec<Action>) {
        let serving = self.workers.values_mut().filter(|worker| worker.state() == State::Ready);
        let staying: BTreeSet<WorkerKey> =
            serving.filter_map(|worker| worker.retirement.stay(why).then_some(worker.key)).collect();
        let needless = |worker: &&Worker| worker.replaces().is_some_and(|old| staying.contains(&old));
        let needless: Vec<WorkerKey> = self.workers.values().filter(needless).map(|worker| worker.key).collect();
        for key in needless {
            self.drop_surplus(key, at, out);
        }
    }

    /// Workers that start from an image that was taken back are of no use. Those that are ready leave in turn.
    pub(super) fn drop_rejected(&mut self, at: Scene<'_>, out: &mut Vec<Action>) {
        let starting = self.workers.values_mut().filter(|worker| worker.state() == State::Starting);
        for worker in starting.filter(|worker| at.zygotes.is_outdated(worker.generation)) {
            worker.retirement.leave_now_for(Leave::Reload);
            worker.terminate(RELOAD_FAILED, self.config.grace(), at.now, out);
        }
    }

    // ---- commands

    /// `nr` none: all workers.
    pub(super) fn recycle(&mut self, ticket: Ticket, nr: Option<u32>) {
        let workers = self.numbered(|worker| nr.is_none_or(|nr| nr == worker.nr) && worker.is_live());
        self.recycles.push(Recycle { ticket, workers });
    }

    /// The one that is to leave, where another one has its number already. Over when it is gone, as a recycling is.
    pub(super) fn kill_by_command(&mut self, ticket: Ticket, nr: u32, now: Instant, out: &mut Vec<Action>) {
        let leaving = self.numbered(|worker| worker.nr == nr && !worker.is_live());
        let workers = if leaving.is_empty() { self.numbered(|worker| worker.nr == nr) } else { leaving };
        for key in &workers {
            self.with(*key, |worker| {
                worker.retirement.leave(Leave::Recycle);
                worker.kill(KILLED, now, out);
            });
        }
        self.recycles.push(Recycle { ticket, workers });
    }

    fn numbered(&self, is: impl Fn(&Worker) -> bool) -> BTreeSet<WorkerKey> {
        self.workers.values().filter(|worker| is(worker)).map(|worker| worker.key).collect()
    }

    /// Commands whose workers are gone are done.
    pub(super) fn keep_recycles(&mut self, out: &mut Vec<Action>) {
        let workers = &self.workers;
        let is_over = |recycle: &mut Recycle| recycle.workers.iter().all(|key| !workers.contains_key(key));
        let over = self.recycles.extract_if(.., is_over);
        out.extend(over.map(|recycle| Action::Done { ticket: recycle.ticket, outcome: Ok(()) }));
    }

    /// A replacement cannot start: who was to go by command stays.
    pub(super) fn fail_recycles(&mut self, reason: &str, at: Scene<'_>, out: &mut Vec<Action>) {
        self.end_recycles(&Denied::Failed(reason.to_owned()), out);
        self.stay(Leave::Recycle, at, out);
    }

    /// Nobody has to wait for what does not come any more.
    pub(super) fn end_recycles(&mut self, why: &Denied, out: &mut Vec<Action>) {
        let failed = |recycle: Recycle| Action::Done { ticket: recycle.ticket, outcome: Err(why.clone()) };
        out.extend(self.recycles.drain(..).map(failed));
    }

    // ---- fewer

    /// Lets go who is too many, those first whom it costs least to lose.
    pub(super) fn trim(&mut self, target: usize, idlest: &[WorkerKey], at: Scene<'_>, out: &mut Vec<Action>) {
        let surplus = self.live().saturating_sub(target);
        if surplus > 0 {
            self.cheapest(surplus, idlest).into_iter().for_each(|key| self.drop_surplus(key, at, out));
        }
    }

    /// Returns the workers that cost least to end: those that are not ready yet, then the first of `idlest`, then the
    /// last.
    fn cheapest(&self, count: usize, idlest: &[WorkerKey]) -> Vec<WorkerKey> {
        let ranks: HashMap<WorkerKey, usize> = idlest.iter().enumerate().map(|(rank, key)| (*key, rank)).collect();
        let cost = |worker: &Worker| match worker.state() {
            State::Starting => 0,
            _ => 1 + ranks.get(&worker.key).copied().unwrap_or(idlest.len()),
        };
        let live = self.workers.values().filter(|worker| worker.is_live() && !worker.retirement.leaves_first());
        let mut live: Vec<_> = live.map(|worker| (cost(worker), std::cmp::Reverse(worker.nr), worker.key)).collect();
        live.sort_unstable();
        live.into_iter().take(count).map(|(_, _, key)| key).collect()
    }

    fn drop_surplus(&mut self, key: WorkerKey, at: Scene<'_>, out: &mut Vec<Action>) {
        let grace = self.config.grace();
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.retirement.leave_now_for(Leave::Surplus);
        match worker.state() {
            State::Starting => worker.terminate(TOO_MANY, grace, at.now, out),
            _ => self.drain(key, Leave::Surplus, at, out),
        }
    }
}
