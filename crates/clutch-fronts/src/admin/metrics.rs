//! The figures of the pools in the text format that Prometheus reads. docs/metrics.md lists the names.
//!
//! Nothing is counted here: each rendering reads what the pools themselves count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clutch_pool::pool::{Health, Stats, WorkerView};
use clutch_pool::telemetry::{self, Durations};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::account::figures::{BOUNDS_S, Snapshot};
use crate::plane::{Figure, FigureValue};

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What one value of a front is read from.
type FrontReading = fn(&Snapshot) -> u64;

const FRONT_COUNTERS: [(&str, &str, FrontReading); 4] = [
    ("connections", "Connections that were taken", |front| front.connections),
    ("received_bytes", "Bytes received, all included: heads, frames, TLS", |front| front.received),
    ("sent_bytes", "Bytes sent, all included", |front| front.sent),
    ("access_log_dropped", "Lines of the access log for which there was no room", |front| front.dropped_lines),
];

type Labels = Vec<(&'static str, String)>;

/// What one value is read from.
type Reading = fn(&Stats) -> u64;

const GAUGES: [(&str, &str, Reading); 7] = [
    ("queued", "Work that waits in the queue", |stats| stats.queued as u64),
    ("blocked", "Submitters that wait for room in the queue", |stats| stats.blocked as u64),
    ("lobby", "Old name of clutch_pool_blocked, until version 0.2", |stats| stats.blocked as u64),
    ("sent", "Work on the links of workers, running or prefetched", |stats| stats.sent as u64),
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

const WORKER_STATES: [&str; 4] = ["starting", "ready", "stopped", "draining"];

const HEALTHS: [Health; 5] = [Health::Starting, Health::Ready, Health::Failing, Health::Draining, Health::Closed];

/// All figures of all pools, and of the fronts that speak HTTP.
/// `durations`: of work, where they are counted.
pub(crate) fn render(
    pools: &[Stats],
    durations: Option<WorkDurations>,
    fronts: &[Snapshot],
    of_jobs: &[Figure],
) -> String {
    let mut registry = Registry::with_prefix("clutch");
    let of_pools = registry.sub_registry_with_prefix("pool");
    render_pools(of_pools, pools);
    durations.into_iter().for_each(|durations| of_pools.register_collector(Box::new(durations)));
    render_fronts(registry.sub_registry_with_prefix("http"), fronts);
    render_jobs(registry.sub_registry_with_prefix("jobs"), of_jobs);
    let build = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    set(&gauges(&mut registry, "build_info", "The version that runs, with the value 1"), build, 1);
    let mut text = String::new();
    // Writing to a string fails only where a metric's own encoding does; what is there is worth sending.
    let _ = encode(&mut text, &registry);
    text
}

fn render_pools(registry: &mut Registry, pools: &[Stats]) {
    for (name, help, reading) in GAUGES {
        let family = gauges(registry, name, help);
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
    render_queued(registry, pools);
    render_workers(registry, pools);
    render_ends(registry, pools);
    render_memory(registry, pools);
    render_states(registry, pools);
}

/// Figures of one name stand together, and are of one kind.
fn render_jobs(registry: &mut Registry, figures: &[Figure]) {
    let mut by_name = BTreeMap::<(&'static str, &'static str), Vec<&Figure>>::new();
    for figure in figures {
        by_name.entry((figure.name, figure.help)).or_default().push(figure);
    }
    for ((name, help), figures) in by_name {
        let (counters, gauges) = (Family::<Labels, Counter>::default(), Family::<Labels, Gauge>::default());
        let mut durations = Vec::new();
        for figure in &figures {
            match &figure.value {
                FigureValue::Counter(value) => {
                    counters.get_or_create(&figure.labels).inc_by(*value);
                }
                FigureValue::Gauge(value) => set(&gauges, figure.labels.clone(), *value),
                FigureValue::Durations(value) => durations.push((figure.labels.clone(), value.clone())),
            }
        }
        match figures[0].value {
            FigureValue::Counter(_) => registry.register(name, help, counters),
            FigureValue::Gauge(_) => registry.register(name, help, gauges),
            FigureValue::Durations(_) => {
                registry.register_collector(Box::new(JobDurations { name, help, durations }));
            }
        }
    }
}

fn render_fronts(registry: &mut Registry, fronts: &[Snapshot]) {
    for (name, help, reading) in FRONT_COUNTERS {
        let family = Family::<Labels, Counter>::default();
        registry.register(name, help, family.clone());
        for front in fronts {
            family.get_or_create(&vec![("front", front.front.to_string())]).inc_by(reading(front));
        }
    }
    let open = gauges(registry, "connections_open", "Connections that are open, WebSockets among them");
    let requests = Family::<Labels, Counter>::default();
    let help = "Requests, by class of status and by how they ended";
    registry.register("requests", help, requests.clone());
    let reasons = Family::<Labels, Counter>::default();
    let help = "Requests and connections that were refused or cut short, by reason";
    registry.register("refused", help, reasons.clone());
    for front in fronts {
        let labels = |more: &[(&'static str, &str)]| -> Labels {
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            std::iter::once(("front", front.front.to_string())).chain(more).collect()
        };
        set(&open, labels(&[]), front.open);
        for (class, end, count) in &front.requests {
            requests.get_or_create(&labels(&[("status", class), ("end", end.as_str())])).inc_by(*count);
        }
        for (reason, count) in &front.reasons {
            reasons.get_or_create(&labels(&[("reason", reason)])).inc_by(*count);
        }
    }
    let help = "From the head of a request until its client had taken the response";
    registry.register_collector(Box::new(RequestDurations(fronts.to_vec(), help)));
}

/// Histograms that were counted elsewhere.
#[derive(Debug)]
struct RequestDurations(Vec<Snapshot>, &'static str);

impl Collector for RequestDurations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut family = encoder.encode_descriptor("request_seconds", self.1, None, MetricType::Histogram)?;
        for front in &self.0 {
            let labels = [("front", &*front.front)];
            let bounds = BOUNDS_S.iter().copied().chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = bounds.zip(front.durations.iter().copied()).collect();
            let count = front.durations.iter().sum();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(front.duration_s, count, &buckets, None)?;
        }
        Ok(())
    }
}

/// A histogram of jobs.
#[derive(Debug)]
struct JobDurations {
    name: &'static str,
    help: &'static str,
    durations: Vec<(Labels, Durations)>,
}

impl Collector for JobDurations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, MetricType::Histogram)?;
        for (labels, durations) in &self.durations {
            encode_durations(family.encode_family(labels)?, durations)?;
        }
        Ok(())
    }
}

fn encode_durations(mut metric: MetricEncoder<'_>, durations: &Durations) -> Result<(), std::fmt::Error> {
    let bounds = telemetry::BOUNDS_S.iter().copied().chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> = bounds.zip(durations.buckets).collect();
    metric.encode_histogram::<NoLabelSet>(durations.sum, durations.count(), &buckets, None)
}

/// How long work waited and ran, by pool and kind.
#[derive(Debug)]
pub(super) struct WorkDurations(pub(super) BTreeMap<(Arc<str>, &'static str), (Durations, Durations)>);

impl Collector for WorkDurations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        type Which = fn(&(Durations, Durations)) -> &Durations;
        let families: [(&str, &str, Which); 2] = [
            ("work_queue_seconds", "Time from submission until work was sent to the worker that answered it", |both| {
                &both.0
            }),
            ("work_run_seconds", "Time that work ran in the worker that answered it", |both| &both.1),
        ];
        for (name, help, which) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for ((pool, kind), both) in &self.0 {
                let labels = [("pool", &**pool), ("kind", kind)];
                encode_durations(family.encode_family(&labels)?, which(both))?;
            }
        }
        Ok(())
    }
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

fn render_ends(registry: &mut Registry, pools: &[Stats]) {
    let family = Family::<Labels, Counter>::default();
    registry.register("workers_ended", "Workers that have ended, by reason", family.clone());
    for stats in pools {
        for (reason, count) in &stats.ends {
            family.get_or_create(&with(stats, "reason", reason)).inc_by(*count);
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
