//! How the ends of workers are known: by their zygote, which tells how; by their processes, which are watched; by their
//! links. A worker is judged once: when its zygote has told of it, or when it is dead and nobody is going to tell.

use std::time::{Duration, Instant};

use clutch_wire::sys::{EndSignal, Fate};

use super::zygotes::ZygoteRecord;
use super::{Action, State, Supervisor, Worker, WorkerRecord};
use crate::pool::state::WorkerKey;

/// How long the exit status of a worker that is dead, or whose link has ended, may take to arrive.
pub const STATUS_WAIT: Duration = Duration::from_millis(500);
/// How long a worker that was killed may take to die: it is stuck in the kernel and runs no code of the user's any more.
const DEATH_WAIT: Duration = Duration::from_secs(10);
/// Names of the signals from 1 up, as on Linux (not on alpha, mips, parisc and sparc, whose numbers differ).
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

impl Supervisor {
    pub(super) fn fate(&mut self, key: WorkerKey, fate: Fate, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        match fate {
            Fate::Stopped => {
                worker.stopped_since.get_or_insert(now);
                out.push(Action::Hold { worker: key, held: true });
            }
            Fate::Continued => {
                worker.stopped_since = None;
                out.push(Action::Hold { worker: key, held: false });
            }
            Fate::Exited(_) | Fate::Signaled(_) => self.gone(key, Some(fate), now, out),
        }
    }

    pub(super) fn died(&mut self, key: WorkerKey, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.dead_since.get_or_insert(now);
        }
    }

    /// A worker that broke its link and lives on is of no use.
    pub(super) fn link_ended(&mut self, key: WorkerKey, reason: Option<String>, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.link_ended.get_or_insert(now);
        worker.said = worker.said.take().or(reason);
        out.push(Action::Kill { worker: key, signal: EndSignal::Kill });
    }

    /// When a worker is gone for us without a word of its zygote's.
    pub(super) fn over_at(&self, worker: &Worker) -> Option<Instant> {
        let told = self.zygotes.get(&worker.generation).is_some_and(ZygoteRecord::has_loaded);
        let wait = if told { STATUS_WAIT } else { Duration::ZERO };
        match worker.watched {
            true => {
                let dead = worker.dead_since.map(|since| since + wait);
                dead.or(worker.link_ended.map(|since| since + DEATH_WAIT))
            }
            false => worker.link_ended.map(|since| since + wait),
        }
    }

    pub(super) fn gone(&mut self, key: WorkerKey, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.remove(key, fate, out) else { return };
        *self.ends.entry(why_it_ended(&worker, fate)).or_default() += 1;
        if worker.state == State::Ready || (worker.state == State::Killed && !worker.is_out()) {
            self.restarts += 1;
        }
        if worker.state == State::Ready {
            self.deaths.note(now);
        }
        // One that was not wanted any more has not failed.
        if worker.state == State::Starting && !worker.leaves() && self.stopping.is_none() {
            self.died_starting(worker, fate, now, out);
        }
    }

    pub(super) fn remove(&mut self, key: WorkerKey, fate: Option<Fate>, out: &mut Vec<Action>) -> Option<Worker> {
        let worker = self.workers.remove(&key)?;
        let zygote_is_there = self.zygotes.get(&worker.generation).is_some_and(ZygoteRecord::has_loaded);
        let record = WorkerRecord {
            nr: worker.nr,
            generation: worker.generation,
            pid: worker.pid.unwrap_or(0),
            said: worker.said.clone(),
            cause: worker.cause().map(str::to_owned),
            untold: fate.is_none() && worker.pid.is_some() && zygote_is_there,
            left: worker.left(),
        };
        out.push(Action::Gone { worker: key, fate, record: Box::new(record) });
        Some(worker)
    }
}

/// In one word, of few: why it was told to leave, or how it ended without that.
fn why_it_ended(worker: &Worker, fate: Option<Fate>) -> &'static str {
    match (worker.left(), worker.cause(), fate) {
        (Some(reason), ..) => reason,
        (None, Some(_), _) => "killed",
        (None, None, Some(Fate::Signaled(_))) => "signal",
        (None, None, Some(Fate::Exited(_))) => "exit",
        (None, None, _) => "unknown",
    }
}

/// How a worker ended, in words.
pub fn fate_text(fate: Option<Fate>) -> String {
    match fate {
        Some(Fate::Signaled(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        Some(Fate::Exited(code)) => format!("exited with code {code}"),
        _ => "ended, nobody could tell how".to_owned(),
    }
}

/// Its name in brackets, where it has one.
pub fn signal_name(signal: i32) -> String {
    let at = usize::try_from(signal - 1).unwrap_or(usize::MAX);
    SIGNALS.get(at).map(|name| format!(" (SIG{name})")).unwrap_or_default()
}
