//! Decides how many workers a pool should have between its `min` and `max`: a pure policy of what was seen and the
//! time.
//!
//! Up, when work waits for `scale.delay` and still does a blink later: at once by as many as the backlog needs. Down, one
//! at a time, when fewer would have been enough for all of `scale.idle`; never while work waits. The two are judged by the
//! same measure, the time that work waits, so that a step down is not followed by one up under the same load.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::PoolConfig;

/// A pool that grew too little should work off its backlog within this many times `scale.delay`.
const CATCH_UP_DELAYS: f64 = 10.0;

/// Share of its time that a slot may be busy with short work for fewer workers to be called enough.
const BUSY_SHARE: f64 = 0.8;

/// Steps down follow each other after this part of `scale.idle`.
const STEPS: u32 = 10;

/// Looks for a step down happen at least so often in `scale.idle`.
const LOOKS: u32 = 20;

/// Options of scaling.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub delay: Duration,
    pub idle: Duration,
    /// Private memory of all workers together, in bytes.
    pub memory_max: Option<u64>,
}

impl Rules {
    pub fn of(config: &PoolConfig) -> Rules {
        let (delay, idle) = (config.scale_delay_ms, config.scale_idle_ms);
        Rules {
            delay: Duration::from_millis(delay.max(1)),
            idle: Duration::from_millis(idle.max(1)),
            memory_max: config.memory_max_bytes,
        }
    }

    fn blink(&self) -> Duration {
        (self.delay / 4).max(Duration::from_millis(1))
    }

    /// Between looks for a step down.
    fn period(&self) -> Duration {
        self.delay.min(self.idle / LOOKS).max(Duration::from_millis(1))
    }
}

/// Within what the number of workers may move, and what it should be now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub min: usize,
    pub max: usize,
    pub target: usize,
}

/// The pool at one instant.
#[derive(Clone, Debug)]
pub struct Sample {
    pub bounds: Bounds,
    /// For how long there has been a worker that is ready.
    pub serving: Duration,
    pub ready: usize,
    pub starting: usize,
    /// All that live, those that drain too.
    pub processes: usize,
    /// Slots of one worker.
    pub slots: usize,
    /// Slots that run something; and the fewest that did since the last sample.
    pub busy: usize,
    pub busy_least: usize,
    pub waiting: usize,
    /// Time that the oldest work has waited.
    pub waited: Option<Duration>,
    /// Work that was finished since the pool began, and how long that ran.
    pub finished: u64,
    pub run_ns: u64,
    /// Private memory of each worker where it is known, in bytes.
    pub private: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub target: usize,
    pub reason: String,
}

/// State between samples.
#[derive(Debug)]
pub struct Scaling {
    rules: Rules,
    looked: Option<Instant>,
    /// Since when work waits for too long.
    late_since: Option<Instant>,
    raised: Option<Instant>,
    lowered: Option<Instant>,
    /// No step down before this and `scale.idle`.
    calm_since: Option<Instant>,
    finished: u64,
    run_ns: u64,
    /// Run time of a piece of work, in seconds.
    run: Option<f64>,
    /// Slots busy with short work, and wanted for it, on the average of late.
    load: f64,
    /// Workers that were needed within `scale.idle`: instants with nothing larger behind them.
    needed: VecDeque<(Instant, usize)>,
}

impl Scaling {
    pub fn new(rules: Rules) -> Scaling {
        Scaling {
            rules,
            looked: None,
            late_since: None,
            raised: None,
            lowered: None,
            calm_since: None,
            finished: 0,
            run_ns: 0,
            run: None,
            load: 0.0,
            needed: VecDeque::new(),
        }
    }

    /// When [`Scaling::decide`] is to be asked again; none: when something waits. `waits_since`: the oldest does.
    pub fn next_look(&self, bounds: Bounds, waits_since: Option<Instant>) -> Option<Instant> {
        let soonest = self.looked.map(|at| at + self.rules.blink());
        let late = waits_since.filter(|_| bounds.target < bounds.max).map(|since| since + self.rules.delay);
        let late = late.map(|at| soonest.map_or(at, |soonest| at.max(soonest)));
        let idle = (bounds.target > bounds.min).then(|| self.looked.map(|at| at + self.rules.period())).flatten();
        late.into_iter().chain(idle).min()
    }

    /// A number of workers other than the present one, if that would be better.
    pub fn decide(&mut self, sample: &Sample, now: Instant) -> Option<Decision> {
        self.learn(sample, now);
        let decision = self.up(sample, now).or_else(|| self.down(sample, now))?;
        let raised = decision.target > sample.bounds.target;
        if raised {
            (self.raised, self.calm_since) = (Some(now), Some(now));
        } else {
            self.lowered = Some(now);
        }
        Some(decision)
    }

    // ---- what was seen

    fn learn(&mut self, sample: &Sample, now: Instant) {
        let finished = sample.finished.saturating_sub(self.finished);
        if finished > 0 {
            let run_ns = sample.run_ns.saturating_sub(self.run_ns);
            self.run = Some(run_ns as f64 / finished as f64 / 1e9);
        }
        (self.finished, self.run_ns) = (sample.finished, sample.run_ns);
        self.average(sample, now);
        let needed = self.needed_now(sample, finished > 0);
        while self.needed.back().is_some_and(|(_, fewer)| *fewer <= needed) {
            self.needed.pop_back();
        }
        self.needed.push_back((now, needed));
        while self.needed.front().is_some_and(|(at, _)| *at + self.rules.idle < now) {
            self.needed.pop_front();
        }
        self.calm_since.get_or_insert(now);
        self.looked = Some(now);
    }

    /// A mean over about a tenth of `scale.idle`. Slots that were held all along are not part of it.
    fn average(&mut self, sample: &Sample, now: Instant) {
        let elapsed = self.looked.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let share = 1.0 - (-elapsed.as_secs_f64() / (self.rules.idle / STEPS).as_secs_f64()).exp();
        self.load += (slots_wanted(sample) - sample.busy_least as f64 - self.load) * share;
    }

    /// Workers that would have been enough for what the pool has to do now, so that nothing waits for `scale.delay`.
    fn needed_now(&self, sample: &Sample, moved: bool) -> usize {
        // Slots held all along are no room for anything else that comes.
        let held = sample.busy_least as f64;
        let beside = (self.load / BUSY_SHARE).max(f64::from(u8::from(moved)));
        // On n slots, the last of k pieces of work begins after about (k − n) · run / n.
        let delay = self.rules.delay.as_secs_f64();
        let at_once = self.run.map_or(1.0, |run| run / (run + delay)) * slots_wanted(sample);
        workers((held + beside).max(at_once), sample.slots)
    }

    // ---- up

    fn up(&mut self, sample: &Sample, now: Instant) -> Option<Decision> {
        // What waited for the first worker did not wait for more of them.
        let Some(waited) = sample.waited.filter(|waited| (*waited).min(sample.serving) >= self.rules.delay) else {
            self.late_since = None;
            return None;
        };
        let late_since = *self.late_since.get_or_insert(now);
        let settling = self.raised.is_some_and(|at| now < at + self.rules.delay);
        if now < late_since + self.rules.blink() || settling {
            return None;
        }
        let Bounds { max, target, .. } = sample.bounds;
        // With all that was asked for at work, the estimate is too low if it says that they are enough.
        let least = target + usize::from(sample.ready >= target);
        let wanted = self.needed_for(sample, waited).max(least).min(max).min(self.affordable(sample));
        let reason = || {
            let Sample { waiting, busy, .. } = sample;
            format!("work waits for {} ms: {waiting} in the queue, {busy} running", waited.as_millis())
        };
        (wanted > target).then(|| Decision { target: wanted, reason: reason() })
    }

    /// By Little's law (L = λ·W: J. D. C. Little, "A Proof for the Queuing Formula: L = λW", Operations Research 9, 1961)
    /// the slots that are busy on the average are the rate of arrivals times the run time. The queue is first in, first
    /// out: what waits is what came while the oldest of it waited, and so tells that rate. To that is added what the backlog
    /// itself needs to be worked off soon. No more slots than pieces of work are of use.
    fn needed_for(&self, sample: &Sample, waited: Duration) -> usize {
        let Some(run) = self.run else { return workers(slots_wanted(sample), sample.slots) };
        let waiting_for = sample.waiting as f64 * run;
        let keep_up = waiting_for / waited.as_secs_f64() / BUSY_SHARE;
        let catch_up = waiting_for / (self.rules.delay.as_secs_f64() * CATCH_UP_DELAYS);
        workers((keep_up + catch_up).min(slots_wanted(sample)), sample.slots)
    }

    /// As many as there is memory for, and no fewer than there should be anyway.
    fn affordable(&self, sample: &Sample) -> usize {
        let Some(memory_max) = self.rules.memory_max else { return usize::MAX };
        let room = room(memory_max, &sample.private, sample.processes);
        (sample.ready + sample.starting + room).max(sample.bounds.target)
    }

    // ---- down

    fn down(&mut self, sample: &Sample, now: Instant) -> Option<Decision> {
        let Bounds { min, target, .. } = sample.bounds;
        let idle = self.rules.idle;
        let calm = self.calm_since.is_some_and(|at| now >= at + idle);
        let stepping = self.lowered.is_some_and(|at| now < at + idle / STEPS);
        if target <= min || sample.waiting > 0 || sample.starting > 0 || !calm || stepping {
            return None;
        }
        let needed = self.needed.front().map_or(0, |(_, needed)| *needed);
        let reason = || format!("{needed} of {target} workers were enough for the last {} s", idle.as_secs_f64());
        (needed < target).then(|| Decision { target: target - 1, reason: reason() })
    }
}

/// Slots with which nothing would wait.
fn slots_wanted(sample: &Sample) -> f64 {
    (sample.busy + sample.waiting) as f64
}

fn workers(slots: f64, of_one: usize) -> usize {
    (slots / of_one.max(1) as f64 - 1e-9).ceil().max(0.0) as usize
}

/// Returns how many more workers fit into `memory_max` beside `processes` of them. A worker whose memory is not known
/// yet is taken to be as large as the largest; while none is known, there is no room.
pub fn room(memory_max: u64, private: &[u64], processes: usize) -> usize {
    let Some(largest) = private.iter().max().map(|bytes| (*bytes).max(1)) else { return 0 };
    let unknown = processes.saturating_sub(private.len()) as u64;
    let used = private.iter().sum::<u64>().saturating_add(unknown.saturating_mul(largest));
    (memory_max.saturating_sub(used) / largest) as usize
}
