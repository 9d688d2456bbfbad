//! Reports for others: how the pool is; of a worker, how it is, why it could not start, how it ended.

use std::io;
use std::time::{Duration, Instant};

use clutch_wire::Failure;
use clutch_wire::frame::WIRE_VERSION;
use clutch_wire::sys::Fate;
use rustix::io::Errno;

use super::descriptors_of;
use super::scale::Sample;
use super::state::{State, Supervisor, Worker, WorkerRecord, fate_text};
use super::zygote::Hello;
use crate::config::PoolConfig;
use crate::pool::state::Demand;
use crate::pool::{Health, Status, WorkerView};

pub(super) fn health(machine: &Supervisor) -> Health {
    match machine {
        machine if machine.is_closed() => Health::Closed,
        machine if machine.is_stopping() => Health::Draining,
        machine if machine.failing().is_some() => Health::Failing,
        machine if machine.fleet().ready() > 0 => Health::Ready,
        _ => Health::Starting,
    }
}

/// Brings the status up to date, as far as the machine knows it.
pub(super) fn fill(status: &mut Status, machine: &Supervisor) {
    let (fleet, bounds) = (machine.fleet(), machine.bounds());
    status.set_health(health(machine));
    status.reason = machine.reason();
    status.ready = fleet.ready();
    (status.target, status.min, status.max) = (bounds.target, bounds.min, bounds.max);
    status.workers = fleet.workers().iter().map(|(key, worker)| (*key, view(worker))).collect();
    status.generation = machine.generation();
    status.restarts = fleet.restarts();
    status.ends.clone_from(fleet.ends());
}

/// Samples what scaling is decided by.
pub(super) fn sample(machine: &Supervisor, demand: Demand, now: Instant) -> Sample {
    let since = |at: Instant| now.saturating_duration_since(at);
    let fleet = machine.fleet();
    Sample {
        bounds: machine.bounds(),
        serving: fleet.serving_since().map_or(Duration::ZERO, since),
        ready: fleet.ready(),
        starting: fleet.starting(),
        processes: fleet.workers().len(),
        slots: machine.slots(),
        busy: demand.busy,
        busy_least: demand.busy_least,
        waiting: demand.waiting,
        waited: demand.waits_since.map(since),
        finished: demand.finished,
        run_ns: demand.run_ns,
        private: fleet.private(),
    }
}

fn view(worker: &Worker) -> WorkerView {
    let state = match worker.state() {
        State::Killed => "draining",
        State::Ready if worker.is_stopped() => "stopped",
        state => state.as_str(),
    };
    let (rss, private) = worker.memory().map_or((None, None), |memory| (Some(memory.rss), memory.private));
    let (nr, pid, generation) = (worker.nr, worker.pid(), worker.generation);
    WorkerView { nr, pid, generation, state, calls: 0, sent: 0, rss, private }
}

/// Says what is wrong with a zygote of other versions: nothing that it says after its hello could be relied on.
pub(super) fn misfit(config: &PoolConfig, hello: &Hello) -> Option<String> {
    let (ours, PoolConfig { name, python, .. }) = (env!("CARGO_PKG_VERSION"), config);
    let Hello { clutch, wire, .. } = hello;
    (*wire != WIRE_VERSION || clutch != ours).then(|| {
        format!(
            "pool '{name}': {python} has clutch {clutch} (wire {wire}), the dispatcher {ours} (wire {WIRE_VERSION}); mend it \
             with: {python} -m pip install 'clutch=={ours}'"
        )
    })
}

/// Reads the reason of a worker that could not start.
pub(super) fn reason_of(json: &str) -> String {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(json);
    let reason =
        parsed.ok().and_then(|value| value.get("reason").and_then(|reason| reason.as_str().map(str::to_owned)));
    reason.unwrap_or_else(|| json.to_owned())
}

/// Says that the dispatcher lacks what a worker needs.
pub(super) fn cannot_start(pool: &str, workers: usize, error: &io::Error) -> String {
    let short = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
    let needed = descriptors_of(workers);
    let advice = format!("; a pool of {workers} workers needs about {needed} descriptors (ulimit -n)");
    format!("cannot start a worker of pool '{pool}': {error}{}", if short { &advice } else { "" })
}

/// Returns what callers are told while no worker can start.
pub(super) fn failing(message: String, by_code: bool) -> Failure {
    match by_code {
        true => Failure::Config { message },
        false => {
            let output = String::new();
            Failure::WorkerLost { message, worker_pid: 0, signal: None, exit_code: None, output, cause: None }
        }
    }
}

/// Returns what callers are told whose work a worker had begun.
pub(super) fn lost(pool: &str, fate: Option<Fate>, record: &WorkerRecord, output: String) -> Failure {
    let silent = record.untold.then(|| "its zygote does not answer".to_owned());
    let why = [silent.as_ref(), record.cause.as_ref().or(record.said.as_ref())];
    let why: String = why.into_iter().flatten().map(|reason| format!(" ({reason})")).collect();
    let (nr, pid) = (record.nr, record.pid);
    let message = format!("worker {pool}/{nr} (pid {pid}) {}{why}", fate_text(fate));
    let (signal, exit_code) = match fate {
        Some(Fate::Signaled(signal)) => (Some(signal), None),
        Some(Fate::Exited(code)) => (None, Some(code)),
        _ => (None, None),
    };
    Failure::WorkerLost { message, worker_pid: pid, signal, exit_code, output, cause: record.cause.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shortage_of_descriptors_is_said_to_be_one() {
        let told = |number: Errno| cannot_start("shop", 2, &number.into());
        assert!(told(Errno::MFILE).contains("needs about 36 descriptors"), "{}", told(Errno::MFILE));
        assert!(!told(Errno::FBIG).contains("descriptors"), "{}", told(Errno::FBIG));
    }
}
