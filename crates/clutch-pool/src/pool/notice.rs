//! Notices of the pool to its supervisor.

use std::time::Duration;

use super::memory::Weighed;
use super::orders::{Command, Ticket};
use super::state::{StopCause, WorkerKey};

/// Notices of the pool to its supervisor.
#[derive(Debug)]
pub enum Notice {
    /// Most of its calls are used up.
    Worn(WorkerKey),
    /// Its work was past its deadline several times in a row.
    Expiring(WorkerKey),
    /// Somebody else has sent it TERM, which it does not heed.
    SentTerm(WorkerKey),
    /// Told to take no more, and nothing is left; `stuck`: but what will not stop.
    Drained { worker: WorkerKey, stuck: bool },
    /// Work in it was told to stop and has not; the cause is what its neighbours are told.
    Stuck { worker: WorkerKey, cause: String },
    /// The link ended or broke.
    LinkEnded(WorkerKey, String),
    /// The worker said that it is ready (its JSON).
    Ready(WorkerKey, String),
    /// The worker could not start (its JSON).
    StartFailed(WorkerKey, String),
    /// The worker's socket is full: tell when there is room.
    WantWrite(WorkerKey),
    /// Measured memory of workers.
    Memory(Vec<Weighed>),
    /// A debugger asks at the terminal, or no longer does.
    Debugging { worker: WorkerKey, on: bool },
    /// Closed, and nothing is left.
    Empty,
    /// An operator's wish, answered by [`Pool::order_done`].
    Order { ticket: Ticket, command: Command },
    /// Stop: wait for running work for so long; `term` lies between TERM and KILL. `spares_idle`: idle workers end in
    /// order also without a grace.
    Stop { grace: Duration, term: Duration, spares_idle: bool },
}

impl Notice {
    pub(super) fn stuck(worker: WorkerKey, cause: StopCause) -> Notice {
        let cause = match cause {
            StopCause::Deadline => "its work was past its deadline and did not stop",
            StopCause::Cancelled => "its work was cancelled and did not stop",
            StopCause::Drained => "it was ending and its work did not stop",
        };
        Notice::Stuck { worker, cause: cause.to_owned() }
    }
}
