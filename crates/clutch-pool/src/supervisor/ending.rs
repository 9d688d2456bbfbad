//! Ends workers by signals: who is told, where it was, and by what way the signal goes.

use std::time::{Duration, Instant};

use clutch_wire::sys::{self, EndSignal};

use super::Driver;
use super::facts::WorkerKilled;
use super::state::{Event, Worker};
use crate::pool::state::WorkerKey;

/// Time that a worker whose start takes too long has to say where it is.
const STACKS_WAIT: Duration = Duration::from_millis(100);

impl Driver {
    /// Once for each signal, of one that is made to end. What has broken its link is ending already.
    pub(super) fn tell_kill(&mut self, worker: WorkerKey, signal: EndSignal) {
        let Some(known) = self.machine.fleet().workers().get(&worker).filter(|known| !known.has_broken_link()) else {
            return;
        };
        let (nr, Some(pid), Some(reason)) = (known.nr, known.pid(), known.cause().map(str::to_owned)) else { return };
        if self.signalled.insert(worker, signal) == Some(signal) {
            return;
        }
        let (signal, served) = (signal.as_str().to_owned(), known.has_served());
        let running = || self.pool.pool().running_in(worker);
        self.emit(|| WorkerKilled { nr, pid, signal, reason, served, running: running() });
    }

    /// Asks a worker that starts where it is. What it says is the reason that its start has failed.
    pub(super) fn show_worker(&self, worker: WorkerKey) -> Option<Event> {
        let cause = self.machine.fleet().workers().get(&worker)?.cause()?;
        let stacks = self.pool.stacks_now(worker, Instant::now() + STACKS_WAIT)?;
        Some(Event::StartFailed { worker, reason: format!("{cause}; it was here:\n{}", stacks.trim_end()) })
    }

    /// Directly, where its process is held; else by its zygote, which is its parent; without one by its group, which the
    /// worker made itself leader of.
    pub(super) fn signal(&mut self, worker: WorkerKey, signal: EndSignal) {
        if let Some(process) = self.processes.get(&worker) {
            let serves = self.machine.fleet().workers().get(&worker).is_none_or(Worker::has_served);
            return match signal {
                EndSignal::Term if !serves => process.tell_term(),
                _ => process.end(signal),
            };
        }
        let Some(known) = self.machine.fleet().workers().get(&worker) else { return };
        match (self.zygotes.get_mut(&known.generation), known.pid()) {
            (Some(zygote), _) if !zygote.is_ending() => zygote.signal_worker(worker, signal, self.pool.poller()),
            (_, Some(pid)) => sys::end_group(pid, signal),
            _ => {}
        }
    }
}
