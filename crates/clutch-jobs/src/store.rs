//! The seam between jobs and where they are kept.
//!
//! All methods block, and work in batches. Any number of programs use one store at a time: whatever is promised holds
//! between them.
//!
//! A claim is held under a **lease of its runner**, not one of its own: to renew it costs one write, however many jobs run.
//! The store keeps a counter of each lease, which its holder raises, and no time: whether one has lapsed is what an
//! observer concludes ([`leases`](crate::leases)), and the store takes it away only if its counter is still the one that
//! the observer saw. The runner that leads then puts the jobs back; a runner that comes too late is told, and what it
//! then settles is refused.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use crate::job::{self, Claimed, Job, JobError, JobId, Millis, NewJob, Rate, Settled, State};
use crate::leases::{Lapsed, Lease};
use crate::maintenance::LOOK_INTERVAL;

#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// The store may work again: the connection is lost, the disk is full, the file is locked.
    #[error("{store}: {reason}")]
    Unavailable { store: String, reason: String },
    /// The store never works as it is: no such file, another schema, a wrong password.
    #[error("{store}: {reason}")]
    Unusable { store: String, reason: String },
    /// What was asked for needs a part of the store that somebody has damaged. Nothing was done; the rest of it works.
    #[error("{store}: {reason}")]
    Damaged { store: String, reason: String },
    /// The request is wrong.
    #[error("{0}")]
    Refused(String),
}

pub type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// Names the place in a configuration of what was asked for.
    pub(crate) fn at(self, place: &str) -> StoreError {
        match self {
            StoreError::Refused(why) => StoreError::Refused(format!("{place}: {why}")),
            other => other,
        }
    }
}

/// Result of an enqueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Enqueued {
    /// Id of the job; of the existing one, if it is not new.
    pub id: JobId,
    pub is_new: bool,
}

/// Holder of claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Unlike any other's, also one of the same program in another life.
    pub name: String,
    pub lease: Duration,
    /// The number of its round that began last. The first takes the lease, and no later one does: what comes late revives
    /// nobody. What a later one has claimed, a renewal that comes late leaves alone.
    pub round: u64,
}

impl Runner {
    pub fn new(name: String, lease: Duration) -> Runner {
        Runner { name, lease, round: 0 }
    }
}

/// Capacity of a runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// At most so many jobs. 0: none.
    pub limit: usize,
    /// The queues to take them from, the first before the others.
    pub queues: Vec<String>,
}

/// Notes of a running job, for people and for its next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    pub id: JobId,
    pub attempt: u32,
    /// Checkpoint for the next attempt: JSON.
    pub checkpoint: Option<String>,
    /// For people: JSON.
    pub progress: Option<String>,
}

/// Report of a runner about its jobs. Notes of a job come before its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub noted: Vec<Noted>,
    pub settled: Vec<Settled>,
    /// How long the ended ones are kept. None: as whoever looks after the store keeps them.
    pub keep: Option<Keep>,
}

/// Result of a round of a runner.
#[derive(Debug, Default)]
pub struct Round {
    pub claimed: Vec<Claimed>,
    /// Jobs that could not be settled: the runner's lease had expired, or the job was cancelled or deleted meanwhile.
    pub lost: Vec<JobId>,
    /// True if it wanted jobs and has no lease: nothing was claimed.
    pub has_no_lease: bool,
    /// When to ask again: a limit of rate has held jobs back until then, or, at once, there may be more by now.
    pub again_in: Option<Duration>,
    /// What was left alone since somebody has damaged it, and why.
    pub damaged: Vec<String>,
}

/// Answer to a renewal of a lease, about the held jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Jobs that were cancelled meanwhile.
    pub cancelled: Vec<JobId>,
    /// Jobs that are no longer its own.
    pub lost: Vec<JobId>,
}

/// A change of one job that is not an attempt's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Cancels a waiting job; a running one is interrupted.
    Cancel,
    /// Runs a job that has ended, is scheduled for later, or waits for others, at once.
    Retry,
    /// The same with other arguments: JSON as of [`NewJob::arguments`].
    RetryWith(&'a str),
    /// Gone, unless it runs.
    Delete,
}

/// Filter of a list of jobs, newest first.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub state: Option<State>,
    pub queue: Option<String>,
    pub tool: Option<String>,
    pub tag: Option<String>,
    /// Jobs older than this one.
    pub before: Option<JobId>,
    pub limit: usize,
}

impl Filter {
    /// Returns whether a job passes; `limit` aside.
    pub fn takes(&self, job: &Job) -> bool {
        let is = |wanted: &Option<String>, given: &str| wanted.as_ref().is_none_or(|wanted| wanted == given);
        self.state.is_none_or(|state| state == job.state)
            && is(&self.queue, &job.queue)
            && is(&self.tool, &job.tool)
            && self.tag.as_ref().is_none_or(|tag| job.tags.contains(tag))
            && self.before.as_ref().is_none_or(|before| job.id < *before)
    }
}

/// State of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueStats {
    pub name: String,
    pub is_paused: bool,
    /// Most of its jobs that run at a time, over all runners.
    pub running_max: Option<u32>,
    /// Most of its jobs that begin in a time, over all runners.
    pub rate: Option<Rate>,
    pub waiting: u64,
    pub scheduled: u64,
    pub available: u64,
    pub running: u64,
    pub completed: u64,
    pub cancelled: u64,
    pub dead: u64,
    /// When its oldest available job became available.
    pub oldest_at: Option<Millis>,
}

impl QueueStats {
    /// Returns the entry of this name, made empty if missing.
    pub(crate) fn entry<'a>(found: &'a mut BTreeMap<String, QueueStats>, name: &str) -> &'a mut QueueStats {
        let named = QueueStats { name: name.to_owned(), ..QueueStats::default() };
        found.entry(name.to_owned()).or_insert(named)
    }

    /// Returns the number of jobs in this state.
    pub(crate) fn count_mut(&mut self, state: State) -> &mut u64 {
        match state {
            State::Waiting => &mut self.waiting,
            State::Scheduled => &mut self.scheduled,
            State::Available => &mut self.available,
            State::Running => &mut self.running,
            State::Completed => &mut self.completed,
            State::Cancelled => &mut self.cancelled,
            State::Dead => &mut self.dead,
        }
    }
}

/// Who holds a lease. Whether it still lives, nobody can tell who looks once: its counter moves if it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holder {
    pub name: String,
    pub renewals: u64,
    /// Its counter moves at least this often.
    pub renewal_ms: Millis,
    pub lease_ms: Millis,
    /// It looks after the store, and runs no jobs under this lease.
    pub leads: bool,
    /// Jobs that it has claimed.
    pub running: u64,
}

impl Holder {
    pub(crate) fn new(lease: Lease, leader: Option<&str>, renewal: Duration) -> Holder {
        let (renewal_ms, lease_ms) = (job::millis(renewal), job::millis(lease.length));
        let leads = leader == Some(&*lease.holder);
        Holder { name: lease.holder, renewals: lease.renewals, renewal_ms, lease_ms, leads, running: 0 }
    }
}

/// A setting of a queue that holds for all runners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChange {
    Pause(bool),
    RunningMax(Option<u32>),
    Rate(Option<Rate>),
}

/// A time at which an entry of periodic jobs is due: see cron.rs.
#[derive(Clone, Debug)]
pub struct Tick {
    /// The entry's.
    pub name: String,
    pub at: Millis,
    /// None: it only makes the entry known, where it is new, as if it had ticked at this time.
    pub job: Option<NewJob>,
    /// Of an entry that is kept in the store: as it was read there. The tick makes no job once it is gone, paused or
    /// another.
    pub kept: Option<String>,
}

/// An entry of periodic jobs that is kept in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub name: String,
    /// The JSON of its [`EntryOptions`](crate::cron::EntryOptions).
    pub entry: String,
    pub is_paused: bool,
    /// Time of its last tick, or since when it has been there, or goes on after a pause.
    pub ticked_at: Millis,
}

/// A change of an entry that is kept in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleChange<'a> {
    /// Adds it, or replaces the one of this name: it begins with its next tick, unless it is as it was.
    Put(&'a str),
    /// Ticks that fall into a pause are not made up for.
    Pause(bool),
    Remove,
}

/// Most entries of one store.
pub const SCHEDULES_MAX: usize = 1000;

/// Result of one maintenance of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Jobs whose time had come.
    pub staged: usize,
    /// Jobs of runners whose lease had lapsed.
    pub rescued: usize,
    /// Rescued jobs that had no attempt left.
    pub buried: usize,
    /// Ended jobs that were deleted.
    pub pruned: usize,
    /// Of these, completed ones that were to be kept for longer: the memory of the store is nearly full.
    pub pruned_early: usize,
    /// Links along which the end of a job was passed on: see flow.rs.
    pub passed: usize,
    /// When the next job is due.
    pub next_due: Option<Millis>,
    /// For each given tick, the time of the last tick of its entry: itself, or a later one.
    pub last_ticks: Vec<Millis>,
    /// Entries whose tick has made no job, since the one of an earlier tick has not ended.
    pub skipped: Vec<String>,
    /// All leases, as they are after it.
    pub leases: Vec<Lease>,
    /// As in [`Round`].
    pub damaged: Vec<String>,
}

/// Answer to who wants to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Led {
    pub leads: bool,
    /// All leases, as they are after it: whoever may lead next has watched them, and need not wait to rescue.
    pub leases: Vec<Lease>,
}

/// Retention of ended jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    pub completed: Duration,
    pub cancelled: Duration,
    pub dead: Duration,
}

impl Keep {
    /// Returns how long a job is kept that has ended in this state; None if that is no end.
    pub fn of(&self, state: State) -> Option<Duration> {
        match state {
            State::Completed => Some(self.completed),
            State::Cancelled => Some(self.cancelled),
            State::Dead => Some(self.dead),
            State::Waiting | State::Scheduled | State::Available | State::Running => None,
        }
    }
}

/// The longest time for which anything is kept: sums with it are still integers, and exact as doubles.
const KEPT_MS_MAX: Millis = 1 << 52;

pub(crate) fn kept_ms(time: Duration) -> Millis {
    job::millis(time).min(KEPT_MS_MAX)
}

/// Abilities that not every store has. Known from its kind, before one is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Offers {
    /// Arguments travel by name; without this, by position.
    pub keywords: bool,
    /// Ticks of periodic jobs are noted, so that each enqueues one job.
    pub ticks: bool,
    /// Jobs that have ended are kept, with their results.
    pub results: bool,
    /// Jobs may come after others.
    pub dependencies: bool,
    /// An enqueue may be part of the caller's own transaction.
    pub transactions: bool,
}

/// Why a store has no periodic jobs.
pub(crate) const NO_TICKS: &str = "the format of Sidekiq has no place for periodic jobs";

/// The refusal of one entry more than a store keeps.
pub(crate) fn too_many_schedules() -> String {
    format!(
        "the store has {SCHEDULES_MAX} schedules, which is the most: delete one, or let one job do the work of several"
    )
}

/// A store of jobs.
pub trait Store: Send + Sync {
    /// As people name it, without secrets.
    fn name(&self) -> &str;

    /// The time by the clock that all who share the store go by: what is due, kept and noted there is measured by it.
    fn now(&self) -> Millis {
        job::now()
    }

    /// The same, for who waits for the store anyway: where the clock is a server's, and was not heard of lately, it is
    /// asked for first.
    fn read_clock(&self) -> Result<Millis> {
        Ok(self.now())
    }

    /// By how much this machine's clock is ahead of that one.
    fn clock_ahead(&self) -> Millis {
        0
    }

    /// Refuses a job that the store has no place for, whatever it contains: before it goes along with others'.
    fn check(&self, _job: &NewJob) -> Result<()> {
        Ok(())
    }

    /// Whether an enqueue that fails with [`StoreError::Unusable`] has surely written nothing.
    fn undoes(&self) -> bool {
        false
    }

    /// All of them, or none. They are durable when this returns. One that comes after others that have ended begins, or is
    /// cancelled, at once; one that comes after a job that does not exist is refused.
    fn enqueue(&self, jobs: &[NewJob], now: Millis) -> Result<Vec<Enqueued>>;

    /// Notes, settles, then claims: in one trip to the store. Whose lease has lapsed claims nothing.
    fn round(&self, runner: &Runner, report: &Report, want: &Want, now: Millis) -> Result<Round>;

    /// Raises the counter of its lease; none when it had lapsed: all its jobs are another's. Jobs that it has beside
    /// `held` are available again: the answer to their claim was lost. The first, before any round, takes the lease.
    fn renew(&self, runner: &Runner, held: &[JobId], now: Millis) -> Result<Option<Renewed>>;

    /// The runner has no job any more, and claims no other.
    fn leave(&self, runner: &Runner) -> Result<()>;

    /// Leads, or goes on leading, and raises the counter of its lease: unless another does, whose lease is not among the
    /// `lapsed`.
    fn lead(&self, runner: &Runner, lapsed: &[Lapsed]) -> Result<Led>;

    /// Ends the `lapsed` leases whose counters are still as they were seen. Stages, rescues, prunes and
    /// passes ends on at most so many each. Enqueues the jobs of ticks that are later than the last one of their entry, each together with the note that
    /// it was: also of two callers at a time one does.
    fn look_after(&self, keep: &Keep, limit: usize, ticks: &[Tick], lapsed: &[Lapsed], now: Millis) -> Result<Upkeep>;

    /// Returns whether there was something to change.
    /// Changes an entry of periodic jobs that is kept here. Returns whether there was one to change.
    fn set_schedule(&self, _name: &str, _change: ScheduleChange<'_>, _now: Millis) -> Result<bool> {
        Err(StoreError::Refused(NO_TICKS.to_owned()))
    }

    /// Entries of periodic jobs that are kept here, by name.
    fn schedules(&self) -> Result<Vec<Schedule>> {
        Ok(Vec::new())
    }

    fn change(&self, id: &str, change: Change<'_>, now: Millis) -> Result<bool>;

    fn get(&self, id: &str) -> Result<Option<Job>>;

    fn list(&self, filter: &Filter) -> Result<Vec<Job>>;

    fn queues(&self) -> Result<Vec<QueueStats>>;

    /// All who hold a lease, by name.
    fn holders(&self) -> Result<Vec<Holder>>;

    /// Refuses a name that [`job::check_queue`] refuses.
    fn set_queue(&self, queue: &str, change: QueueChange) -> Result<()>;

    /// Something that notices new jobs, also those of other programs.
    fn watch(&self) -> Result<Box<dyn Watch>>;

    /// Longest time between two looks of its leader while its watch tells nothing. Longer than usual where that tells of
    /// all that may become due.
    fn quiet_interval(&self) -> Duration {
        LOOK_INTERVAL
    }

    /// Interval at which a runner with this lease renews it.
    fn renewal(&self, lease: Duration) -> Duration {
        lease / RENEWALS
    }

    /// Whether a round may settle for a runner of another process, which is gone.
    fn settles_for_others(&self) -> bool {
        true
    }

    /// Whether a job that has begun may not begin again by itself: then it is noted that it begins, and what had not begun
    /// is put back when its runner is gone.
    fn runs_once(&self) -> bool {
        false
    }

    /// Whether workers run a job of whatever name: one that they do not have is theirs to tell of.
    fn runs_any_tool(&self) -> bool {
        false
    }

    /// Returns problems of its setup, for the log: jobs may be lost.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The names of ticks that have made no job.
pub(crate) fn skipped(ticks: &[Tick], are_skipped: impl IntoIterator<Item = bool>) -> Vec<String> {
    ticks.iter().zip(are_skipped).filter(|(_, is_skipped)| *is_skipped).map(|(tick, _)| tick.name.clone()).collect()
}

/// Notices that there may be something to claim.
pub trait Watch: Send {
    /// Waits at most so long. Whether there may be something new.
    fn wait(&mut self, at_most: Duration) -> io::Result<bool>;
}

/// A call comes to its command within this time. What began later than that was noted before the clock was set back.
pub(crate) const LATE_MS_MAX: Millis = 10_000;

/// A lease is renewed this many times in its life.
pub(crate) const RENEWALS: u32 = 3;

/// A job whose runners' leases lapsed more often in a row, with no attempt that ended, is dead.
pub const RESCUES_MAX: u32 = 10;

/// The error of a job that was running when its runner's lease lapsed.
pub fn lapsed(attempt: u32, runner: &str, now: Millis) -> JobError {
    JobError {
        at: now,
        attempt,
        kind: "lease_lapsed".to_owned(),
        message: format!("runner {runner} has not renewed its lease: it died, or was cut off from the store"),
        traceback: String::new(),
    }
}
