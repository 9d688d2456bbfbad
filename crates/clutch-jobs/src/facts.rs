//! Events of jobs. `front` is the name of the runner's front in each.

use std::sync::Arc;

clutch_pool::facts! {
    /// An attempt of a job has failed. `next_s`: seconds until the next attempt; `null`: the job is dead, and `reason`
    /// says why it has no other attempt.
    "job_failed" LIVES JobFailed {
        front: Arc<str>,
        job: String,
        tool: String,
        queue: String,
        attempt: u32,
        attempts_max: u32,
        kind: String,
        error: String,
        next_s: Option<f64>,
        reason: Option<String>,
    }

    /// The workers have no tool of this name: its jobs are put off, here and by others, and fail only when a day is over.
    /// Once for each name.
    "tool_missing" LIVES ToolMissing { front: Arc<str>, tool: String, job: String, reason: String }

    /// The lease of a runner has lapsed: others may run its jobs, and they are stopped here.
    "jobs_lapsed" LIVES JobsLapsed { front: Arc<str>, jobs: usize }

    /// A runner stopped before the results of these jobs were saved; they run again when its lease has lapsed.
    "jobs_unsettled" LIVES JobsUnsettled { front: Arc<str>, jobs: usize }

    /// Jobs of runners whose leases have lapsed run again. `dead`: number of those that had no attempt left.
    "jobs_rescued" LIVES JobsRescued { front: Arc<str>, jobs: usize, dead: usize }

    /// Jobs had completed under a dispatcher of this machine that was killed before its store was told; they are settled.
    "jobs_inherited" LIVES JobsInherited { front: Arc<str>, jobs: usize }

    /// A periodic job hangs: ticks of its entry are skipped, since the job of an earlier one has not ended. From the second in
    /// a row on, once until one begins.
    "cron_skipped" LIVES CronSkipped { front: Arc<str>, entry: String }

    /// Ticks of periodic jobs were missed, since no dispatcher ran: `missed`, at most 1,000. `is_made_up`: the last of them makes
    /// a job now.
    "cron_missed" LIVES CronMissed { front: Arc<str>, entry: String, missed: usize, is_made_up: bool }

    /// The last tick of an entry of periodic jobs is in the future, since a clock was ahead: it has no jobs until then. `ahead_s`:
    /// how far.
    "cron_ahead" LIVES CronAhead { front: Arc<str>, entry: String, ahead_s: u64 }

    /// A tick of periodic jobs is refused: the clock of this machine is more than a minute ahead of the store's.
    "cron_refused" LIVES CronRefused { front: Arc<str>, entry: String }

    /// Jobs wait in a queue from which this front does not take, and none of them runs.
    "queue_unserved" LIVES QueueUnserved { front: Arc<str>, queue: String, available: u64, waited_s: u64 }

    /// The store is unavailable; its jobs wait.
    "store_lost" LIVES StoreLost { front: Arc<str>, store: String, reason: String }

    /// A part of the store is damaged and left alone until somebody has mended it; the rest goes on. Once, until it is mended.
    "store_damaged" LIVES StoreDamaged { front: Arc<str>, store: String, reason: String }

    /// The memory of a Redis server is nearly full: completed jobs are deleted early. At most once an hour.
    "store_filling" LIVES StoreFilling { front: Arc<str>, store: String }

    /// The clock of this machine is more than five seconds ahead of the store's, or behind it (negative), by which its jobs go.
    "clock_differs" LIVES ClockDiffers { front: Arc<str>, store: String, ahead_s: f64 }

    /// The store is available again.
    "store_recovered" LIVES StoreRecovered { front: Arc<str>, store: String }
}
