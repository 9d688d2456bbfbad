//! The figures of the pools in the text format that Prometheus reads. docs/metrics.md lists the names.
//!
//! Nothing is counted here: each rendering reads what the pools themselves count.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::pool::{Health, Stats, WorkerView};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// What one value is read from.
type Reading = fn(&Stats) -> u64;

const GAUGES: [(&str, &str, Reading); 6] = [
    ("queued", "Work that waits in the queue", |stats| stats.queued as u64),
    ("lobby", "Submissions that wait for room in the queue", |stats| stats.lobby as u64),
    ("sent", "Work on the links of workers, begun or sent ahead", |stats| stats.sent as u64),
    ("slots", "Slots of workers that take work", |stats| stats.slots as u64),
    ("workers_target", "Workers that there should be", |stats| stats.target as u64),
    ("generation", "Number of the zygote image that new workers come from", |stats| u64::from(stats.generation)),
];

const COUNTERS: [(&str, &str, Reading); 4] = [
    ("done", "Work that a worker answered, failures included", |stats| stats.done),
    ("failed", "Work that failed: raised, not encoded, bad arguments, worker lost", |stats| stats.failed),
    ("drained", "Work without an end of its own that was cut off so that its worker could end", |stats| stats.drained),
    ("restarts", "Workers that were started in the place of another", |stats| stats.restarts),
];

/// What is read of each worker, where it is known.
type WorkerReading = fn(&WorkerView) -> Option<u64>;

const WORKER_GAUGES: [(&str, &str, WorkerReading); 2] = [
    ("worker_rss_bytes", "Resident memory of a worker", |worker| worker.rss),
    ("worker_private_bytes", "Memory of a worker that it shares with nobody", |worker| worker.private),
];

const WORKER_STATES: [&str; 3] = ["starting", "ready", "draining"];

const HEALTHS: [Health; 5] = [Health::Starting, Health::Ready, Health::Failing, Health::Draining, Health::Closed];

/// All figures of all pools.
pub fn render(pools: &[Stats]) -> String {
    let mut registry = Registry::with_prefix("clutch_pool");
    for (name, help, reading) in GAUGES {
        let family = gauges(&mut registry, name, help);
        for stats in pools {
            set(&family, of(stats), reading(stats));
        }
    }
    for (name, help, reading) in COUNTERS {
        let family = Family::<Labels, Counter>::default();
        registry.register(name, help, family.clone());
        for stats in pools {
            family.get_or_create(&of(stats)).inc_by(reading(stats));
        }
    }
    render_queued(&mut registry, pools);
    render_workers(&mut registry, pools);
    render_memory(&mut registry, pools);
    render_states(&mut registry, pools);
    let mut text = String::new();
    // Writing to a string fails only where a metric's own encoding does; what is there is worth sending.
    let _ = encode(&mut text, &registry);
    text
}

/// By the number of what is done it is the mean.
fn render_queued(registry: &mut Registry, pools: &[Stats]) {
    let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
    let help = "Time that work which is done had waited before it was sent to its worker";
    registry.register("queued_seconds", help, family.clone());
    for stats in pools {
        family.get_or_create(&of(stats)).inc_by(stats.queued_s);
    }
}

fn render_workers(registry: &mut Registry, pools: &[Stats]) {
    let family = gauges(registry, "workers", "Workers by state");
    for stats in pools {
        let mut counts: BTreeMap<&str, u64> = WORKER_STATES.iter().map(|state| (*state, 0)).collect();
        for worker in &stats.workers {
            *counts.entry(worker.state).or_default() += 1;
        }
        for (state, count) in counts {
            set(&family, with(stats, "state", state), count);
        }
    }
}

fn render_memory(registry: &mut Registry, pools: &[Stats]) {
    for (name, help, reading) in WORKER_GAUGES {
        let family = gauges(registry, name, help);
        for stats in pools {
            for worker in &stats.workers {
                if let (Some(bytes), Some(pid)) = (reading(worker), worker.pid) {
                    // A worker and its replacement have the same number for a while.
                    let mut labels = with(stats, "nr", &worker.nr.to_string());
                    labels.push(("pid", pid.to_string()));
                    set(&family, labels, bytes);
                }
            }
        }
    }
}

fn render_states(registry: &mut Registry, pools: &[Stats]) {
    let family = gauges(registry, "state", "1 for the state that the pool is in, 0 for the others");
    for stats in pools {
        for health in &HEALTHS {
            let labels = with(stats, "state", state_name(health));
            set(&family, labels, u64::from(*health == stats.state));
        }
    }
}

fn state_name(health: &Health) -> &'static str {
    match health {
        Health::Starting => "starting",
        Health::Ready => "ready",
        Health::Failing => "failing",
        Health::Draining => "draining",
        Health::Closed => "closed",
    }
}

fn gauges(registry: &mut Registry, name: &str, help: &str) -> Family<Labels, Gauge> {
    let family = Family::default();
    registry.register(name, help, family.clone());
    family
}

fn set(family: &Family<Labels, Gauge>, labels: Labels, value: u64) {
    family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
}

fn of(stats: &Stats) -> Labels {
    vec![("pool", stats.name.clone())]
}

fn with(stats: &Stats, name: &'static str, value: &str) -> Labels {
    vec![("pool", stats.name.clone()), (name, value.to_owned())]
}
