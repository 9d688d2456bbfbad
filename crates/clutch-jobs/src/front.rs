//! The front that runs the jobs of a store in a pool: its options, its life, and what operators see of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clutch_host::body::{Nothing, given};
use clutch_host::programs;
use clutch_host::routes::matched;
use clutch_host::{ActError, Context, Figure, FigureValue, Front, FrontKind, Member, Start, StopOrder};
use clutch_pool::pool::Pool;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cron::{CronEntry, EntryOptions, WrongEntry};
use crate::ends;
use crate::fetcher::Lanes;
use crate::job::State;
use crate::runner::{Config, Runs, Stats, ToolStats};
use crate::store::{Change, Keep, QueueChange, QueueStats, Store, StoreError};
use crate::stores;

/// Longest name or id that is shown to whoever asked for it.
const NAME_CHARS_MAX: usize = 80;

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
        let place = context.place();
        let store = stores::shared(&self.store, 0).map_err(|error| error.at(&place))?;
        let now = store.now();
        for warning in store.warnings() {
            context.warnings.note(format!("{}: {warning}", context.name));
        }
        let folder = programs::folder();
        if store.settles_for_others()
            && let Err(error) = ends::make_private(&folder)
        {
            context
                .warnings
                .note(format!("{}: {error}, so no job is claimed ahead, which makes short ones slower", context.name));
        }
        let pool = context.pool(&self.pool)?;
        let wrong = |wrong: WrongEntry| io::Error::other(format!("{place}.cron: {}", wrong.why));
        let cron = self.cron.into_iter().map(|entry| CronEntry::new(entry, now).map_err(wrong));
        let config = Config {
            cron: cron.collect::<io::Result<_>>()?,
            name: context.name.clone(),
            lanes: Lanes { queues: self.queues, strict: self.strict },
            folder: Some(folder),
            slots_max: self.slots_max,
            lease: Duration::from_millis(self.lease_ms),
            keep: Keep {
                completed: Duration::from_millis(self.keep_completed_ms),
                cancelled: Duration::from_millis(self.keep_cancelled_ms),
                dead: Duration::from_millis(self.keep_dead_ms),
            },
        };
        let runs = Runs::start(store.clone(), &pool, config)?;
        let front = Arc::new(JobsFront { runs, store, pool });
        let member: Arc<dyn Member> = front.clone();
        context.plane.add(&member);
        Ok(front)
    }
}

/// A running front of jobs.
struct JobsFront {
    runs: Runs,
    store: Arc<dyn Store>,
    pool: Arc<Pool>,
}

/// An action of operators: its pattern, and what does it to a queue or job. Returns what was done.
type ActionRow = (&'static str, fn(&JobsFront, &str) -> Result<String, ActError>);

const ACTIONS: [ActionRow; 4] = [
    ("queues/{name}/pause", |front, queue| front.pause(queue, true)),
    ("queues/{name}/resume", |front, queue| front.pause(queue, false)),
    ("jobs/{name}/cancel", |front, job| front.change(job, Change::Cancel)),
    ("jobs/{name}/retry", |front, job| front.change(job, Change::Retry)),
];

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
        let stats = self.runs.stats();
        let reason = stats.reason.or(stats.damaged).or(stats.clock)?;
        Some(json!({ "front": self.runs.name(), "store": self.runs.store(), "reason": reason }))
    }

    fn shown(&self) -> Option<(&'static str, Value)> {
        let (front, store) = (self.runs.name(), self.runs.store());
        let served: Vec<&str> = self.runs.served().collect();
        let mut shown = json!({
            "front": front, "pool": self.pool.config.name, "store": store, "served": served, "queues": self.runs.queues(),
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

    fn front(&self) -> Option<&str> {
        Some(self.runs.name())
    }

    fn actions(&self) -> Vec<&'static str> {
        ACTIONS.map(|(pattern, _)| pattern).to_vec()
    }

    fn act(&self, path: &[String], body: &[u8]) -> Result<Value, ActError> {
        let known = ACTIONS.iter().find_map(|(pattern, act)| Some((act, matched(pattern, path)?)));
        let (act, names) = known.ok_or(ActError::NoSuchAction)?;
        let Nothing {} = given(body).map_err(ActError::Invalid)?;
        let done = act(self, names.get("name").unwrap_or_default())?;
        self.pool.note_action(&*done);
        Ok(json!({ "front": self.runs.name(), "done": done }))
    }
}

impl JobsFront {
    fn pause(&self, queue: &str, is_paused: bool) -> Result<String, ActError> {
        self.store.set_queue(queue, QueueChange::Pause(is_paused)).map_err(not_done)?;
        Ok(format!("queue {} {}", shown(queue), if is_paused { "paused" } else { "resumed" }))
    }

    fn change(&self, job: &str, change: Change<'_>) -> Result<String, ActError> {
        let shown = shown(job);
        let is_changed =
            self.store.read_clock().and_then(|now| self.store.change(job, change, now)).map_err(not_done)?;
        match self.store.get(job).map_err(not_done)? {
            // A running job is not cancelled before it has ended.
            Some(found) if is_changed && found.state == State::Running => Ok(format!("job {shown} is told to stop")),
            _ if is_changed => {
                Ok(format!("job {shown} {}", if change == Change::Cancel { "cancelled" } else { "retried" }))
            }
            Some(found) => {
                Err(ActError::Refused(format!("job {shown} is {}: nothing to change", found.state.as_str())))
            }
            None => {
                let detail = format!("no job '{shown}' in {}", self.store.name());
                Err(ActError::NotFound { kind: "no-such-job", detail })
            }
        }
    }

    fn figure(
        &self,
        name: &'static str,
        help: &'static str,
        more: &[(&'static str, &str)],
        value: FigureValue,
    ) -> Figure {
        let own = [("front", self.runs.name()), ("pool", self.pool.config.name.as_str())];
        let labels = own.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect();
        Figure { name, help, labels, value }
    }

    /// Returns the figures of what runs here.
    fn of_runner(&self, stats: &Stats) -> Vec<Figure> {
        let mut figures: Vec<Figure> = stats.tools.iter().flat_map(|(tool, stats)| self.of_tool(tool, stats)).collect();
        figures.push(self.attempts("", "lost", stats.lost));
        let help = "From when a job was due until it began here";
        figures.extend(stats.waits.iter().map(|(queue, waits)| {
            let value = FigureValue::Histogram(waits.into());
            self.figure("jobs_wait_seconds", help, &[("queue", queue)], value)
        }));
        let help = "Ticks of periodic jobs that made no job, since the one of an earlier tick had not ended";
        figures.extend(stats.skipped.iter().map(|(entry, count)| {
            self.figure("cron_skipped", help, &[("entry", entry)], FigureValue::Counter(*count))
        }));
        let running = FigureValue::Gauge(stats.running as u64);
        figures.push(self.figure("jobs_running", "Jobs that run here", &[], running));
        let is_up = FigureValue::Gauge(u64::from(stats.reason.is_none()));
        figures.push(self.figure("jobs_store_up", "1 if the last request to the store succeeded", &[], is_up));
        figures
    }

    fn attempts(&self, tool: &str, outcome: &str, count: u64) -> Figure {
        let help = "Attempts of jobs that ended here, by outcome; lost: settled too late";
        self.figure("jobs_attempts", help, &[("tool", tool), ("outcome", outcome)], FigureValue::Counter(count))
    }

    fn of_tool(&self, tool: &str, stats: &ToolStats) -> Vec<Figure> {
        let outcomes = stats.outcomes.iter().map(|(outcome, count)| self.attempts(tool, outcome, *count));
        let help = "Attempts of jobs that failed here, by the kind of their error";
        let failures = stats.failures.iter().map(|(kind, count)| {
            self.figure("jobs_failures", help, &[("tool", tool), ("kind", kind)], FigureValue::Counter(*count))
        });
        let (help, runs) = ("How long attempts ran here", FigureValue::Histogram((&stats.runs).into()));
        let runs = self.figure("jobs_run_seconds", help, &[("tool", tool)], runs);
        outcomes.chain(failures).chain([runs]).collect()
    }

    /// Returns the figures of a queue of the whole store.
    fn of_queue(&self, queue: &QueueStats) -> [Figure; 5] {
        let waited_s = queue.oldest_at.map_or(0, |at| (self.store.now() - at).max(0) as u64 / 1000);
        [
            ("jobs_available", "Jobs that wait for a slot, in the whole store", queue.available),
            ("jobs_waiting", "Jobs that wait for others to complete, in the whole store", queue.waiting),
            ("jobs_scheduled", "Jobs that wait for their time, in the whole store", queue.scheduled),
            ("jobs_dead", "Dead jobs that are still kept, in the whole store", queue.dead),
            ("jobs_oldest_seconds", "How long the first available job has waited, seconds", waited_s),
        ]
        .map(|(name, help, value)| self.figure(name, help, &[("queue", &queue.name)], FigureValue::Gauge(value)))
    }
}

fn shown(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

fn not_done(error: StoreError) -> ActError {
    match error {
        StoreError::Refused(why) => ActError::Invalid(why),
        other => ActError::Refused(other.to_string()),
    }
}
