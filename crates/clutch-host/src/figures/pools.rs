//! Figures of pools, their workers and their work.

use std::collections::BTreeMap;
use std::sync::Arc;

use clutch_pool::pool::{Health, Stats, ToolCalls, WorkerView};
use clutch_pool::telemetry::Durations;

use super::{Figure, FigureValue, Histogram, Labels};

/// Name, help, and what reads the value: nothing, where it is not known.
type Row<Source, Value = u64> = (&'static str, &'static str, fn(&Source) -> Value);

/// Time in the queue, and in user code.
type WorkDurations = (Durations, Durations);

const GAUGES: [Row<Stats>; 6] = [
    ("pool_queued", "Work that waits in the queue, or for the worker that holds its connection", |stats| {
        stats.queued as u64
    }),
    ("pool_blocked", "Submitters that wait for room in the queue", |stats| stats.blocked as u64),
    ("pool_sent", "Work on the links of workers, running or prefetched", |stats| stats.sent as u64),
    ("pool_slots", "Slots of workers that take work", |stats| stats.slots as u64),
    ("pool_workers_target", "Target number of workers", |stats| stats.target as u64),
    ("pool_generation", "Number of the zygote image that new workers come from", |stats| u64::from(stats.generation)),
];

const COUNTERS: [Row<Stats>; 5] = [
    ("pool_gave_up", "Work that was cancelled, or past its deadline, while it waited in the queue", |stats| {
        stats.gave_up
    }),
    ("pool_done", "Work that a worker answered, failures included", |stats| stats.done),
    ("pool_failed", "Work that failed: raised, not encoded, bad arguments, worker lost", |stats| stats.failed),
    ("pool_drained", "Work without an end of its own that was cut off so that its worker could end", |stats| {
        stats.drained
    }),
    ("pool_restarts", "Workers that were started in the place of another", |stats| stats.restarts),
];

/// Gauges of each worker, where they are known.
const WORKER_GAUGES: [Row<WorkerView, Option<u64>>; 2] = [
    ("pool_worker_rss_bytes", "Resident memory of a worker", |worker| worker.rss),
    ("pool_worker_private_bytes", "Private memory of a worker", |worker| worker.private),
];

const WORK_DURATIONS: [Row<WorkDurations, Histogram>; 2] = [
    (
        "pool_work_queue_seconds",
        "Time from submission until work was sent to the worker that answered it",
        |(queued, _)| queued.into(),
    ),
    ("pool_work_run_seconds", "Time that work ran in the worker that answered it", |(_, run)| run.into()),
];

const WORKER_STATES: [&str; 4] = ["starting", "ready", "stopped", "draining"];

const HEALTHS: [(Health, &str); 5] = [
    (Health::Starting, "starting"),
    (Health::Ready, "ready"),
    (Health::Failing, "failing"),
    (Health::Draining, "draining"),
    (Health::Closed, "closed"),
];

pub(crate) fn of_pools(pools: &[Stats]) -> Vec<Figure> {
    pools.iter().flat_map(of_pool).collect()
}

/// Returns how long work waited and ran, by pool and kind.
pub(crate) fn of_work(durations: &BTreeMap<(Arc<str>, &'static str), WorkDurations>) -> Vec<Figure> {
    let figures = durations.iter().flat_map(|((pool, kind), both)| {
        WORK_DURATIONS.map(|(name, help, reading)| {
            let labels = vec![("pool", pool.to_string()), ("kind", (*kind).to_owned())];
            Figure { name, help, labels, value: FigureValue::Histogram(reading(both)) }
        })
    });
    figures.collect()
}

/// Calls by name, by pool and tool.
pub(crate) fn of_tools(pools: &BTreeMap<Arc<str>, BTreeMap<Arc<str>, ToolCalls>>) -> Vec<Figure> {
    let calls = pools.iter().flat_map(|(pool, tools)| tools.iter().map(move |(tool, calls)| (pool, tool, calls)));
    let figures = calls.flat_map(|(pool, tool, calls)| {
        let labels = vec![("pool", pool.to_string()), ("tool", tool.to_string())];
        let run = Figure {
            name: "tool_run_seconds",
            help: "Time that calls of a tool ran, since the admin front started",
            labels: labels.clone(),
            value: FigureValue::Histogram((&calls.run).into()),
        };
        let failures = calls.failures.iter().map(move |(kind, count)| {
            let mut labels = labels.clone();
            labels.push(("kind", (*kind).to_owned()));
            counter("tool_failures", "Calls of a tool that failed, since the admin front started", labels, *count)
        });
        std::iter::once(run).chain(failures)
    });
    figures.collect()
}

fn of_pool(stats: &Stats) -> Vec<Figure> {
    let own = || vec![("pool", stats.name.clone())];
    let with = |name: &'static str, value: &str| vec![("pool", stats.name.clone()), (name, value.to_owned())];
    let mut figures = Vec::new();
    figures.extend(GAUGES.map(|(name, help, reading)| gauge(name, help, own(), reading(stats))));
    figures.extend(COUNTERS.map(|(name, help, reading)| counter(name, help, own(), reading(stats))));
    figures.push(Figure {
        name: "pool_queued_seconds",
        // By the number of what is done it is the mean.
        help: "Time that work which is done had waited before it was sent to its worker",
        labels: own(),
        value: FigureValue::Seconds(stats.queued_s),
    });
    figures.push(Figure {
        name: "pool_run_seconds",
        help: "Time that slots ran work, running work included",
        labels: own(),
        value: FigureValue::Seconds(stats.run_s),
    });
    figures.push(Figure {
        name: "pool_worker_cpu_seconds",
        help: "CPU time of workers, those that have ended included",
        labels: own(),
        value: FigureValue::Seconds(stats.cpu_s),
    });
    figures.extend(
        workers_by_state(stats)
            .map(|(state, count)| gauge("pool_workers", "Workers by state", with("state", state), count)),
    );
    figures.extend(stats.ends.iter().map(|(reason, count)| {
        counter("pool_workers_ended", "Workers that have ended, by reason", with("reason", reason), *count)
    }));
    figures.extend(stats.workers.iter().flat_map(|worker| of_worker(worker, own())));
    figures.extend(HEALTHS.map(|(health, state)| {
        let help = "1 for the state that the pool is in, 0 for the others";
        gauge("pool_state", help, with("state", state), u64::from(health == stats.state))
    }));
    figures
}

fn workers_by_state(stats: &Stats) -> impl Iterator<Item = (&'static str, u64)> {
    let mut counts: BTreeMap<&'static str, u64> = WORKER_STATES.iter().map(|state| (*state, 0)).collect();
    for worker in &stats.workers {
        *counts.entry(worker.state).or_default() += 1;
    }
    counts.into_iter()
}

fn of_worker(worker: &WorkerView, own: Labels) -> impl Iterator<Item = Figure> {
    WORKER_GAUGES.into_iter().filter_map(move |(name, help, reading)| {
        // A worker and its replacement have the same number for a while.
        let (bytes, pid) = (reading(worker)?, worker.pid?);
        let mut labels = own.clone();
        labels.extend([("nr", worker.nr.to_string()), ("pid", pid.to_string())]);
        Some(gauge(name, help, labels, bytes))
    })
}

fn gauge(name: &'static str, help: &'static str, labels: Labels, value: u64) -> Figure {
    Figure { name, help, labels, value: FigureValue::Gauge(value) }
}

fn counter(name: &'static str, help: &'static str, labels: Labels, value: u64) -> Figure {
    Figure { name, help, labels, value: FigureValue::Counter(value) }
}
