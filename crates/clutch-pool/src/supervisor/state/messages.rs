//! Events that the supervisor's machine is told, and actions that it wants done.

use std::time::Duration;

use clutch_wire::sys::{EndSignal, Fate};

use super::Leave;

use crate::config::Shape;
use crate::pool::state::WorkerKey;
use crate::pool::{Denied, Ticket, Weighed};

#[derive(Debug)]
pub enum Event {
    /// `shape`: profile and numbers where the image's policy changed them.
    ZygoteUp {
        generation: u32,
        shape: Option<Shape>,
    },
    /// Loading failed; the reason is the user's to mend.
    ZygoteFailed {
        generation: u32,
        reason: String,
    },
    /// `signal`: what killed it; it could not say why.
    ZygoteGone {
        generation: u32,
        reason: String,
        signal: Option<i32>,
    },
    /// `watched`: [`Event::Died`] tells of its end.
    Forked {
        worker: WorkerKey,
        pid: i32,
        watched: bool,
    },
    ForkFailed {
        worker: WorkerKey,
        reason: String,
    },
    WorkerReady {
        worker: WorkerKey,
    },
    StartFailed {
        worker: WorkerKey,
        reason: String,
    },
    /// The last output of a worker that died before it was ready.
    LastOutput {
        worker: WorkerKey,
        text: String,
    },
    Fate {
        worker: WorkerKey,
        fate: Fate,
    },
    /// The process is dead; how it ended is the zygote's to tell.
    Died {
        worker: WorkerKey,
    },
    /// `reason`: what was wrong with it, unless it was just closed.
    LinkEnded {
        worker: WorkerKey,
        reason: Option<String>,
    },
    /// It is to be replaced in turn.
    Worn {
        worker: WorkerKey,
        why: Leave,
    },
    /// It was told to take no more, and nothing is left; `stuck`: but what will not stop.
    Drained {
        worker: WorkerKey,
        stuck: bool,
    },
    /// Work in it was told to stop and has not.
    Stuck {
        worker: WorkerKey,
        cause: String,
    },
    /// A debugger asks at the terminal, or no longer does.
    Debugging {
        worker: WorkerKey,
        on: bool,
    },
    /// Measured memory of workers.
    Memory(Vec<Weighed>),
    /// The pool is to have this many workers; those too many leave, the first of `idlest` first.
    Resize {
        target: usize,
        idlest: Vec<WorkerKey>,
    },
    /// Load the code anew; all workers are to run it.
    Reload {
        ticket: Ticket,
    },
    /// `nr` none: all workers, in turn.
    Recycle {
        ticket: Ticket,
        nr: Option<u32>,
    },
    /// Worker `nr` is to end at once.
    Kill {
        ticket: Ticket,
        nr: u32,
    },
    /// `idle`: who has nothing to do, as far as is known; they go first.
    Scale {
        ticket: Ticket,
        min: usize,
        max: usize,
        idle: Vec<WorkerKey>,
    },
    /// `term`: what lies between TERM and KILL once the grace is over. `idle`: who has nothing to do, as far as is known,
    /// and ends in order also where there is no grace.
    Stop {
        grace: Duration,
        term: Duration,
        idle: Vec<WorkerKey>,
    },
    /// The closed pool has no work left.
    Empty,
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    StartZygote {
        generation: u32,
    },
    /// Told to end; `at_once`: killed. [`Event::ZygoteGone`] follows.
    EndZygote {
        generation: u32,
        at_once: bool,
    },
    Fork {
        worker: WorkerKey,
        nr: u32,
        generation: u32,
    },
    /// The worker's slots take work from now on.
    Admit {
        worker: WorkerKey,
        calls: Option<u64>,
    },
    Hold {
        worker: WorkerKey,
        held: bool,
    },
    /// Workers whose memory is at the limit get work again: nobody can take their place.
    ServeOn,
    /// The worker leaves first, its replacement comes when it is gone: until then the pool is short of one.
    Short {
        worker: WorkerKey,
    },
    /// A debugger asks there, so that it is not ended although it is to end.
    Spare {
        worker: WorkerKey,
    },
    /// Gets no more work.
    Drain {
        worker: WorkerKey,
        reason: &'static str,
    },
    /// Has nothing left: told to end.
    End {
        worker: WorkerKey,
    },
    /// The worker's process group is sent the signal.
    Kill {
        worker: WorkerKey,
        signal: EndSignal,
    },
    /// The worker has ended, and its work is answered; `fate` none: nobody could tell how.
    Gone {
        worker: WorkerKey,
        fate: Option<Fate>,
        record: Box<WorkerRecord>,
    },
    /// No worker can start; `by_code`: because of what the pool is told to run, or by what.
    Failing {
        reason: String,
        by_code: bool,
    },
    RefuseWaiting,
    /// Other code is being loaded: what was wrong with the code before is no answer any more.
    Hope,
    ReloadStarted {
        generation: u32,
    },
    /// All workers run this image.
    ReloadFinished {
        generation: u32,
    },
    /// The image before stays.
    ReloadFailed {
        generation: u32,
        reason: String,
    },
    /// Have it told where a worker is, before it is killed for a start that took too long.
    ShowWorker {
        worker: WorkerKey,
    },
    /// The same of a zygote that loads.
    ShowZygote {
        generation: u32,
    },
    /// A command is carried out, or not.
    Done {
        ticket: Ticket,
        outcome: Result<(), Denied>,
    },
    Closed,
}

/// A worker at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRecord {
    pub nr: u32,
    pub generation: u32,
    pub pid: i32,
    /// The worker's reason for a start that failed, or what was wrong with its link.
    pub said: Option<String>,
    /// Why Clutch ended it itself.
    pub cause: Option<String>,
    /// The zygote was there and did not tell how the worker ended.
    pub untold: bool,
    /// It had been ready.
    pub served: bool,
    /// The reason that the worker was to end for, where it was not made to.
    pub left: Option<&'static str>,
}
