//! New code while it is being written: it takes over at once, or what is wrong with it does.
//!
//! In operation old code serves until new code does. Whoever has just saved a file wants to see that file at work: no
//! worker of the old code gets work any more, and what comes waits until the new code is ready or has failed.

use std::time::Instant;

use super::workers::Trouble;
use super::zygotes::Reload;
use super::{Action, Leave, State, Supervisor};
use crate::pool::Ticket;
use crate::pool::state::WorkerKey;

const OVERTAKEN: &str = "the code has changed";

impl Supervisor {
    /// As a first start, while what runs may end in order.
    pub(super) fn start_over(&mut self, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        if self.stopping.is_some() {
            return self.deny_reload(ticket, out);
        }
        let mut tickets = vec![ticket];
        tickets.extend(self.roll.take().into_iter().flat_map(|overtaken| overtaken.tickets));
        self.end_loading(now, out);
        let generation = self.start_zygote(now, out);
        self.current = Some(generation);
        self.roll = Some(Reload { generation, tickets });
        (self.failures, self.zygotes_killed, self.retry_at, self.awaits_reload) = (0, 0, None, false);
        (self.failing, self.trouble) = (None, None);
        out.push(Action::Hope);
        out.push(Action::ReloadStarted { generation });
        for key in self.keys() {
            self.leave_at_once(key, now, out);
        }
    }

    fn leave_at_once(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let limit = now + self.config.grace();
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.retirement.leave_now_for(Leave::Reload);
        match worker.state {
            State::Ready => self.drain(key, Leave::Reload, now, out),
            State::Starting => self.kill(key, OVERTAKEN, now, out),
            State::Draining => worker.escalation.end_by(limit),
            State::Killed => {}
        }
    }

    /// While somebody thinks at a prompt, no limit of its worker passes; then each begins anew.
    pub(super) fn debug(&mut self, key: WorkerKey, on: bool, now: Instant, out: &mut Vec<Action>) {
        let grace = self.config.grace();
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.debugged = on;
        match worker.state {
            State::Starting if !on => worker.since = now,
            State::Draining if on => out.push(Action::Spare { worker: key }),
            State::Draining => worker.escalation.put_off(now + grace),
            _ => {}
        }
    }

    /// No worker of this generation can be had: the code before is not what anybody wants to see.
    pub(super) fn stay_broken(&mut self, generation: u32, trouble: Trouble, now: Instant, out: &mut Vec<Action>) {
        if let Some(roll) = self.roll.take_if(|roll| generation >= roll.generation) {
            self.fail_reload(roll, &trouble.reason, out);
        }
        self.awaits_reload = trouble.by_code;
        self.fail(trouble, now, out);
    }
}
