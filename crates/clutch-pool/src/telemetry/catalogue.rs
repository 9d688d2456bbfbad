//! The event catalogue: everything that pools and supervisors report, once.

use std::sync::Arc;

use serde::Serialize;

use crate::work::Running;

/// Something that happened. `name()` is how tests, logs and metrics call it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    ZygoteStarted {
        pool: Arc<str>,
        generation: u32,
        pid: i32,
    },
    ZygoteReady {
        pool: Arc<str>,
        generation: u32,
        warnings: Vec<String>,
    },
    ZygoteLost {
        pool: Arc<str>,
        generation: u32,
        reason: String,
    },
    ReloadStarted {
        pool: Arc<str>,
        generation: u32,
    },
    ReloadFinished {
        pool: Arc<str>,
        generation: u32,
    },
    ReloadFailed {
        pool: Arc<str>,
        generation: u32,
        reason: String,
    },
    WorkerStarting {
        pool: Arc<str>,
        nr: u32,
        generation: u32,
        pid: i32,
    },
    WorkerReady {
        pool: Arc<str>,
        nr: u32,
        generation: u32,
        pid: i32,
    },
    WorkerDraining {
        pool: Arc<str>,
        nr: u32,
        pid: i32,
        reason: String,
    },
    WorkerStopped {
        pool: Arc<str>,
        nr: u32,
        pid: i32,
    },
    WorkerContinued {
        pool: Arc<str>,
        nr: u32,
        pid: i32,
    },
    /// A debugger asks there: it is not ended before that is over, although it is to end.
    WorkerDebugged {
        pool: Arc<str>,
        nr: u32,
        pid: i32,
    },
    /// It is made to end, by a signal.
    WorkerKilled {
        pool: Arc<str>,
        nr: u32,
        pid: i32,
        signal: String,
        reason: String,
        running: Vec<Running>,
    },
    /// `left`: why it was to end, of one that did so when it was told. `ended`: Clutch ended it itself. `running`: what it
    /// had begun and not ended.
    WorkerGone {
        pool: Arc<str>,
        nr: u32,
        pid: i32,
        cause: String,
        left: Option<String>,
        ended: bool,
        running: Vec<Running>,
    },
    /// User code has started on it. Told only while somebody hears of single pieces of work.
    WorkBegun {
        pool: Arc<str>,
        id: u64,
        kind: &'static str,
        what: String,
        queued_s: f64,
        /// W3C `traceparent` of its caller.
        trace: Option<Arc<str>>,
    },
    /// A worker has answered it. `queued_s`: until it was sent to that worker; `run_s`: in user code; seconds.
    WorkFinished {
        pool: Arc<str>,
        id: u64,
        kind: &'static str,
        queued_s: f64,
        run_s: f64,
        failed: bool,
        trace: Option<Arc<str>>,
    },
    WorkTakenBack {
        pool: Arc<str>,
        id: u64,
    },
    WorkExpired {
        pool: Arc<str>,
        id: u64,
        at: String,
    },
    WorkCancelled {
        pool: Arc<str>,
        id: u64,
    },
    /// Endless work was cut off so that its worker could end.
    WorkDrained {
        pool: Arc<str>,
        id: u64,
    },
    WorkLost {
        pool: Arc<str>,
        id: u64,
    },
    WorkPoisoned {
        pool: Arc<str>,
        id: u64,
        deaths: u32,
        what: String,
        job: Option<String>,
    },
    PoolFailing {
        pool: Arc<str>,
        reason: String,
    },
    PoolRecovered {
        pool: Arc<str>,
    },
    /// The pool refuses work. Sent at most once a second; `refused`: number of refusals since the last one.
    PoolFull {
        pool: Arc<str>,
        refused: u64,
        limit: usize,
    },
    /// It should have another number of workers from now on.
    PoolScaled {
        pool: Arc<str>,
        from: usize,
        to: usize,
        reason: String,
    },
    /// It has one worker fewer than it should for a while.
    PoolShort {
        pool: Arc<str>,
        nr: u32,
        reason: String,
    },
    /// Done by an operator: `action` says what, for the log.
    OperatorActed {
        pool: Arc<str>,
        action: String,
    },
    /// An attempt of a job has failed. `next_s`: until the next one, seconds; none: the job is dead.
    JobFailed {
        pool: Arc<str>,
        front: Arc<str>,
        job: String,
        tool: String,
        queue: String,
        attempt: u32,
        attempts_max: u32,
        kind: String,
        error: String,
        next_s: Option<f64>,
    },
    /// The lease of a runner of jobs has lapsed: what it ran is another's now, and is stopped here.
    JobsLapsed {
        pool: Arc<str>,
        front: Arc<str>,
        jobs: usize,
    },
    /// The store could not be told what became of these jobs before the stop: they run again when the lease lapses.
    JobsUnsettled {
        pool: Arc<str>,
        front: Arc<str>,
        jobs: usize,
    },
    /// Runners that are gone had these jobs when their leases lapsed. They run again, but for those that are dead of it.
    JobsRescued {
        pool: Arc<str>,
        front: Arc<str>,
        jobs: usize,
        dead: usize,
    },
    /// Jobs wait in a queue from which this front does not take, and none of them runs.
    QueueUnserved {
        pool: Arc<str>,
        front: Arc<str>,
        queue: String,
        available: u64,
        waited_s: u64,
    },
    /// Its jobs wait until the store can be had again.
    StoreLost {
        pool: Arc<str>,
        front: Arc<str>,
        store: String,
        reason: String,
    },
    StoreRecovered {
        pool: Arc<str>,
        front: Arc<str>,
        store: String,
    },
    PoolClosed {
        pool: Arc<str>,
    },
}
