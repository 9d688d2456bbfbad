//! Who leaves when: by age, calls, command or another image, in turn; and who is too many.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Instant;

use super::{Action, Leave, State, Supervisor};
use crate::pool::state::WorkerKey;
use crate::pool::{Denied, Ticket};

const KILLED: &str = "it was killed by command";

/// A command to replace some workers, until they are gone.
#[derive(Debug)]
pub(super) struct Recycle {
    ticket: Ticket,
    workers: BTreeSet<WorkerKey>,
}

impl Supervisor {
    /// It has used up what it may.
    pub(super) fn worn(&mut self, key: WorkerKey, why: Leave) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.retirement.wear_out(why);
        }
    }

    /// At most `recycle.together` are out at a time; the oldest go first.
    pub(super) fn keep_turns(&mut self, now: Instant, out: &mut Vec<Action>) {
        let mut room = self.config.recycle_together.saturating_sub(self.out());
        for key in self.keys() {
            let why = self.why_due(key, now);
            let Some(worker) = self.workers.get_mut(&key).filter(|worker| worker.state == State::Ready) else {
                continue;
            };
            if let Some(why) = why.filter(|_| room > 0 && !worker.leaves()) {
                self.leave(key, why, now, out);
                room -= 1;
            }
        }
    }

    fn why_due(&self, key: WorkerKey, now: Instant) -> Option<Leave> {
        let worker = self.workers.get(&key)?;
        let recycled = || self.recycles.iter().any(|recycle| recycle.workers.contains(&key));
        let by_command = || recycled().then_some(Leave::Recycle);
        let by_image = || self.is_outdated(worker.generation).then_some(Leave::Reload);
        let by_policy = worker.retirement.worn().or_else(|| worker.recycling.due(now, worker.private()));
        by_policy.or_else(by_command).or_else(by_image)
    }

    fn out(&self) -> usize {
        self.workers.values().filter(|worker| worker.is_out()).count()
    }

    /// Who waits for a replacement that nobody is going to be.
    pub(super) fn unreplaced(&self) -> Vec<WorkerKey> {
        let replaced: BTreeSet<WorkerKey> = self.workers.values().filter_map(|worker| worker.replaces).collect();
        let waits = self.workers.iter().filter(|(_, worker)| worker.state == State::Ready && worker.leaves());
        waits.map(|(key, _)| *key).filter(|key| !replaced.contains(key)).collect()
    }

    /// Where enough others are ready, nobody has to be replaced.
    pub(super) fn let_go_unreplaced(&mut self, now: Instant, out: &mut Vec<Action>) {
        let enough = |worker: &&super::Worker| worker.state == State::Ready && worker.is_live();
        if self.workers.values().filter(enough).count() < self.target {
            return;
        }
        for key in self.unreplaced() {
            let why = self.workers.get(&key).and_then(|worker| worker.retirement.why());
            self.drain(key, why.unwrap_or(Leave::Surplus), now, out);
        }
    }

    // ---- commands

    pub(super) fn recycle(&mut self, ticket: Ticket, nr: Option<u32>, out: &mut Vec<Action>) {
        if self.stopping.is_some() {
            return out.push(Action::Done { ticket, outcome: Err(Denied::Closed) });
        }
        let meant = |worker: &super::Worker| nr.is_none_or(|nr| nr == worker.nr) && worker.is_live();
        let workers = self.workers.iter().filter(|(_, worker)| meant(worker)).map(|(key, _)| *key).collect();
        self.recycles.push(Recycle { ticket, workers });
    }

    /// The one that is to leave, where another one has its number already. Over when it is gone, as a recycling is.
    pub(super) fn kill_by_command(&mut self, ticket: Ticket, nr: u32, now: Instant, out: &mut Vec<Action>) {
        if self.stopping.is_some() {
            return out.push(Action::Done { ticket, outcome: Err(Denied::Closed) });
        }
        let of_number = |live: bool| {
            let meant = self.workers.iter().filter(|(_, worker)| worker.nr == nr && worker.is_live() == live);
            meant.map(|(key, _)| *key).collect::<BTreeSet<_>>()
        };
        let leaving = of_number(false);
        let workers = if leaving.is_empty() { of_number(true) } else { leaving };
        for key in &workers {
            if let Some(worker) = self.workers.get_mut(key) {
                worker.retirement.leave(Leave::Recycle);
            }
            self.kill(*key, KILLED, now, out);
        }
        self.recycles.push(Recycle { ticket, workers });
    }

    pub(super) fn keep_recycles(&mut self, out: &mut Vec<Action>) {
        let workers = &self.workers;
        self.recycles.retain(|recycle| {
            let over = recycle.workers.iter().all(|key| !workers.contains_key(key));
            if over {
                out.push(Action::Done { ticket: recycle.ticket, outcome: Ok(()) });
            }
            !over
        });
    }

    /// A replacement cannot start: who was to go by command stays.
    pub(super) fn fail_recycles(&mut self, reason: &str, now: Instant, out: &mut Vec<Action>) {
        for recycle in std::mem::take(&mut self.recycles) {
            let outcome = Err(Denied::Failed(reason.to_owned()));
            out.push(Action::Done { ticket: recycle.ticket, outcome });
        }
        self.stay(Leave::Recycle, now, out);
    }

    /// The pool stops: nobody has to wait for what does not come any more.
    pub(super) fn deny_commands(&mut self, out: &mut Vec<Action>) {
        let reloads = self.reload.take().into_iter().chain(self.roll.take()).flat_map(|reload| reload.tickets);
        let recycles = std::mem::take(&mut self.recycles).into_iter().map(|recycle| recycle.ticket);
        out.extend(reloads.chain(recycles).map(|ticket| Action::Done { ticket, outcome: Err(Denied::Closed) }));
    }

    /// Whoever was to leave for this reason, and serves still, stays; those who were to replace them are too many.
    pub(super) fn stay(&mut self, why: Leave, now: Instant, out: &mut Vec<Action>) {
        let mut staying = Vec::new();
        for (key, worker) in self.workers.iter_mut().filter(|(_, worker)| worker.state == State::Ready) {
            if worker.retirement.stay(why) {
                staying.push(*key);
            }
        }
        for key in self.keys() {
            let replaces = self.workers.get(&key).and_then(|worker| worker.replaces);
            if replaces.is_some_and(|old| staying.contains(&old)) {
                self.drop_surplus(key, now, out);
            }
        }
    }

    /// Between these bounds from now on.
    pub(super) fn scale(
        &mut self,
        ticket: Ticket,
        bounds: RangeInclusive<usize>,
        idle: &[WorkerKey],
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        if self.stopping.is_some() {
            return out.push(Action::Done { ticket, outcome: Err(Denied::Closed) });
        }
        (self.min, self.max) = (*bounds.start(), *bounds.end());
        self.aim(self.target, idle, now, out);
        out.push(Action::Done { ticket, outcome: Ok(()) });
    }

    /// So many workers there should be, within the bounds; what is too many leaves without a replacement.
    pub(super) fn aim(&mut self, target: usize, idle: &[WorkerKey], now: Instant, out: &mut Vec<Action>) {
        self.target = target.min(self.max).max(self.min);
        self.trim(idle, now, out);
    }

    pub(super) fn trim(&mut self, idlest: &[WorkerKey], now: Instant, out: &mut Vec<Action>) {
        let surplus = self.live().saturating_sub(self.target);
        if surplus > 0 {
            self.cheapest(surplus, idlest).into_iter().for_each(|key| self.drop_surplus(key, now, out));
        }
    }

    /// Whom it costs least to lose: those that are not ready yet, then the first of `idlest`, then the last.
    fn cheapest(&self, count: usize, idlest: &[WorkerKey]) -> Vec<WorkerKey> {
        let ranks: HashMap<WorkerKey, usize> = idlest.iter().enumerate().map(|(rank, key)| (*key, rank)).collect();
        let cost = |key: &WorkerKey, state: State| match state {
            State::Starting => 0,
            _ => 1 + ranks.get(key).copied().unwrap_or(idlest.len()),
        };
        let live = self.workers.iter().filter(|(_, worker)| worker.is_live() && !worker.retirement.leaves_first());
        let mut live: Vec<_> =
            live.map(|(key, worker)| (cost(key, worker.state), std::cmp::Reverse(worker.nr), *key)).collect();
        live.sort_unstable();
        live.into_iter().take(count).map(|(_, _, key)| key).collect()
    }

    fn drop_surplus(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.retirement.leave_now_for(Leave::Surplus);
        match worker.state {
            State::Starting => self.kill(key, "the pool was made smaller", now, out),
            _ => self.drain(key, Leave::Surplus, now, out),
        }
    }
}
