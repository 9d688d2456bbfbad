//! The front that runs the jobs of a store in a pool: its options, its life, and what operators see of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clutch_host::{Context, Figure, FigureValue, Front, FrontKind, Member, Start, StopOrder};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cron::{Entry, EntryOptions};
use crate::fetcher::Lanes;
use crate::job;
use crate::runner::{Config, Runs, Stats};
use crate::store::{Keep, QueueStats};
use crate::stores;

/// The kinds of fronts of this crate.
pub const KINDS: &[FrontKind] = &[FrontKind { name: "jobs", read }];

/// The options of a front of jobs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsConfig {
    /// The URL of the store.
    store: String,
    /// The pool that runs the jobs.
    pool: String,
    /// Queues with their weights.
    queues: Vec<(String, u32)>,
    strict: bool,
    slots_max: Option<usize>,
    lease_ms: u64,
    keep_completed_ms: u64,
    keep_cancelled_ms: u64,
    keep_dead_ms: u64,
    cron: Vec<EntryOptions>,
}

/// Whoever reads the options keeps other threads from forking, as [`stores::prepare`] wants it.
fn read(text: &str) -> serde_json::Result<Box<dyn Start>> {
    let config: JobsConfig = serde_json::from_str(text)?;
    stores::prepare(&config.store);
    Ok(Box::new(config))
}

impl Start for JobsConfig {
    fn start(self: Box<Self>, context: &Context) -> clutch_host::Result<Arc<dyn Front>> {
        let (place, now) = (context.place(), job::now());
        let store = stores::shared(&self.store, 0).map_err(|error| error.at(&place))?;
        for warning in store.warnings() {
            context.warnings.note(format!("{}: {warning}", context.name));
        }
        let pool = context.pool(&self.pool)?;
        let wrong = |wrong: crate::cron::WrongEntry| io::Error::other(format!("{place}.cron: {}", wrong.why));
        let cron = self.cron.into_iter().map(|entry| Entry::new(entry, now).map_err(wrong));
        let config = Config {
            cron: cron.collect::<io::Result<_>>()?,
            name: context.name.clone(),
            lanes: Lanes { queues: self.queues, strict: self.strict },
            slots_max: self.slots_max,
            lease: Duration::from_millis(self.lease_ms),
            keep: Keep {
                completed: Duration::from_millis(self.keep_completed_ms),
                cancelled: Duration::from_millis(self.keep_cancelled_ms),
                dead: Duration::from_millis(self.keep_dead_ms),
            },
        };
        let runs = Runs::start(store, &pool, config)?;
        let front = Arc::new(JobsFront { runs, pool: self.pool.into() });
        let member: Arc<dyn Member> = front.clone();
        context.plane.add(&member);
        Ok(front)
    }
}

/// A running front of jobs.
struct JobsFront {
    runs: Runs,
    pool: Arc<str>,
}

impl Front for JobsFront {
    fn stop_order(&self) -> StopOrder {
        StopOrder::AfterPools
    }

    fn quiet(&self) {
        self.runs.set_quiet(true);
    }

    fn stop(&self, grace: Duration) {
        self.runs.stop(grace);
    }

    fn leave(&self) {
        self.runs.stop(Duration::ZERO);
    }
}

impl Member for JobsFront {
    fn unready(&self) -> Option<Value> {
        let reason = self.runs.stats().reason?;
        Some(json!({ "front": self.runs.name(), "store": self.runs.store(), "reason": reason }))
    }

    fn shown(&self) -> Option<(&'static str, Value)> {
        let (front, store) = (self.runs.name(), self.runs.store());
        let served: Vec<&str> = self.runs.served().collect();
        let mut shown = json!({
            "front": front, "pool": *self.pool, "store": store, "served": served, "queues": self.runs.queues(),
        });
        if let (Some(shown), Value::Object(stats)) = (shown.as_object_mut(), json!(self.runs.stats())) {
            shown.extend(stats);
        }
        Some(("jobs", shown))
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.of_runner(&self.runs.stats());
        figures.extend(self.runs.queues().iter().flat_map(|queue| self.of_queue(queue)));
        figures
    }
}

impl JobsFront {
    fn figure(
        &self,
        name: &'static str,
        help: &'static str,
        more: Option<(&'static str, &str)>,
        value: FigureValue,
    ) -> Figure {
        let own = [("front", self.runs.name()), ("pool", &*self.pool)];
        let labels = own.into_iter().chain(more).map(|(name, value)| (name, value.to_owned())).collect();
        Figure { name, help, labels, value }
    }

    /// Returns the figures of what runs here.
    fn of_runner(&self, stats: &Stats) -> Vec<Figure> {
        let ends = [
            ("completed", stats.completed),
            ("retried", stats.retried),
            ("postponed", stats.postponed),
            ("cancelled", stats.cancelled),
            ("dead", stats.dead),
            ("lost", stats.lost),
        ];
        let help = "Attempts of jobs that ended here, by outcome; lost: settled too late";
        let mut figures = Vec::from(ends.map(|(outcome, count)| {
            self.figure("jobs_attempts", help, Some(("outcome", outcome)), FigureValue::Counter(count))
        }));
        let help = "Attempts of jobs that failed here, by the kind of their error";
        figures.extend(stats.failures.iter().map(|(kind, count)| {
            self.figure("jobs_failures", help, Some(("kind", kind)), FigureValue::Counter(*count))
        }));
        let help = "From when a job was due until it began here";
        figures.extend(stats.waits.iter().map(|(queue, waits)| {
            let value = FigureValue::Histogram(waits.into());
            self.figure("jobs_wait_seconds", help, Some(("queue", queue)), value)
        }));
        let running = FigureValue::Gauge(stats.running as u64);
        figures.push(self.figure("jobs_running", "Jobs that run here", None, running));
        let is_up = FigureValue::Gauge(u64::from(stats.reason.is_none()));
        figures.push(self.figure("jobs_store_up", "1 if the last request to the store succeeded", None, is_up));
        figures
    }

    /// Returns the figures of a queue of the whole store.
    fn of_queue(&self, queue: &QueueStats) -> [Figure; 4] {
        let waited_s = queue.oldest_at.map_or(0, |at| (job::now() - at).max(0) as u64 / 1000);
        [
            ("jobs_available", "Jobs that wait for a slot, in the whole store", queue.available),
            ("jobs_scheduled", "Jobs that wait for their time, in the whole store", queue.scheduled),
            ("jobs_dead", "Dead jobs that are still kept, in the whole store", queue.dead),
            ("jobs_oldest_seconds", "How long the first available job has waited, seconds", waited_s),
        ]
        .map(|(name, help, value)| self.figure(name, help, Some(("queue", &queue.name)), FigureValue::Gauge(value)))
    }
}
