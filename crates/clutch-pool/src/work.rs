//! The waist: everything that arrives becomes [`Work`], everything that comes back is an [`Outcome`] or a [`Refusal`].
//!
//! Owns the values that cross the pool's only door. Assumes nothing of how work is run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::descriptor::Descriptor;
pub use clutch_wire::{Expired, Where, WorkKind};
use clutch_wire::{Failure, Payload};
use serde::Serialize;
use thiserror::Error;

/// Names one piece of work for as long as its pool knows it. Never reused within a pool.
pub type WorkId = u64;

/// Names one who fetches work from elsewhere, within its pool.
pub type FetcherKey = u32;

/// Index into the pool's table of functions.
pub type FunctionId = u32;

/// A unit of work on its way in.
pub struct Work {
    pub kind: WorkKind,
    pub function: FunctionId,
    pub payload: Payload,
    /// The instant after which nobody waits for the answer.
    pub deadline: Option<Instant>,
    /// −9..=9, larger first.
    pub priority: i8,
    /// The payload holds code by value, which only the same Python version can read.
    pub by_value: bool,
    /// Number of times that the work may run again when its worker dies: declared idempotent by its submitter.
    pub retry: u32,
    /// Number of items of a mapped batch, whose results come one by one; else 0.
    pub items: u32,
    /// Maximum time that the work, or each item of a batch, may run: from when its code has begun.
    pub run_limit: Option<Duration>,
    /// Fetched from elsewhere under a permit of this fetcher.
    pub fetcher: Option<FetcherKey>,
    /// Chunks follow (an inbound stream).
    pub has_input: bool,
    /// Handed to the worker with the work; the submitter is told when it has begun.
    pub descriptor: Option<Arc<Descriptor>>,
    /// The submitter takes one value; a stream is refused before it produces anything.
    pub one_value: bool,
    /// W3C `traceparent` of the caller, for those who hear of each step of the work.
    pub trace: Option<Arc<str>>,
    /// [`Reply::sent`] is to be told.
    pub notes_queue_time: bool,
    /// It is a call of its own. Else it goes on behind one that was counted.
    pub is_counted: bool,
    /// Called with the answer, exactly once.
    pub reply: Arc<dyn Reply>,
}

impl Work {
    /// Work of one value without a deadline, retries or input; whoever needs more sets the fields.
    pub fn new(kind: WorkKind, function: FunctionId, payload: Payload, reply: Arc<dyn Reply>) -> Work {
        Work {
            kind,
            function,
            payload,
            deadline: None,
            priority: 0,
            by_value: false,
            retry: 0,
            items: 0,
            run_limit: None,
            fetcher: None,
            has_input: false,
            descriptor: None,
            one_value: false,
            trace: None,
            notes_queue_time: false,
            is_counted: true,
            reply,
        }
    }

    /// Tells whether Python code called a function, or mapped one over items.
    pub fn is_call(&self) -> bool {
        self.kind == WorkKind::CALL || self.kind == WorkKind::BATCH
    }

    /// Tells whether only somebody else ends the work: it is told when its worker is to end, and cut at the grace.
    pub fn is_endless(&self) -> bool {
        self.kind == WorkKind::CONNECTION
    }
}

/// Takes the answer of a piece of work. Called from the thread that learned of it, so it must not block.
pub trait Reply: Send + Sync {
    /// Takes a value of a stream. The producer sends no more of them than it was given credit for.
    fn chunk(&self, payload: Payload);
    /// The end, exactly once. `queued`: as [`Reply::sent`] was told last, or is to be told by another thread still.
    fn finish(&self, outcome: Outcome, queued: Option<Duration>);
    /// The worker accepts this many more chunks of the inbound stream.
    fn credit(&self, _count: u32) {}
    /// Called with the time in the queue, before the frame is written; again if the work is taken back and sent elsewhere.
    /// Only of work that notes it.
    fn sent(&self, _queued: Duration) {}
    /// User code has started; only called when the work asked to know, or was adopted from its worker.
    fn begun(&self) {}
    /// Time that the work has run, before its end; only of a job, and where its worker has ended it.
    fn ran(&self, _time: Duration) {}
    /// CPU time that the work has used, before its end; only of a pool that asks for it, and where it can be told.
    fn used(&self, _cpu: Duration) {}
    /// The work has a place in the queue, in a pool with `overflow = "block"`.
    fn admitted(&self) {}
    /// Describes the work for people; none: its function's name does. Called when somebody looks, under the pool's lock.
    fn describe(&self, _payload: &Payload) -> Option<String> {
        None
    }
    /// Returns whether whoever asked has all of its answer, and the code goes on behind that.
    fn is_over(&self) -> bool {
        false
    }
    /// The id of the job that the work is an attempt of, in its store.
    fn job(&self) -> Option<&str> {
        None
    }
}

/// The end of a piece of work.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The value; of a stream: its end, `Codec::Empty`.
    Value(Payload),
    /// User code, or its worker, failed.
    Failure(Arc<Failure>),
    /// The work was taken and then could not be run: expired, draining, cancelled.
    Refused(Refusal),
}

impl Outcome {
    /// The kind of the error; none: it is a value.
    pub fn error_kind(&self) -> Option<&'static str> {
        match self {
            Outcome::Value(_) => None,
            Outcome::Failure(failure) => Some(failure.kind()),
            Outcome::Refused(Refusal::Expired(_)) => Some("deadline"),
            Outcome::Refused(Refusal::Cancelled) => Some("cancelled"),
            Outcome::Refused(_) => Some("refused"),
        }
    }
}

/// A piece of work that a worker has begun and not ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Running {
    pub id: WorkId,
    /// The name of its function, or its request.
    pub what: String,
    /// The id of the job that it is an attempt of.
    pub job: Option<String>,
    /// Since it was sent to the worker or, where that runs one at a time, since the one before it ended.
    pub seconds: f64,
    /// The caller was answered without it (deadline, cancelled): it was told to stop.
    pub abandoned: bool,
}

/// Why work was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error(
        "pool '{pool}' is full: {queued} wait, {limit} are allowed; retry later, or raise queue.limit, or set queue.overflow = \"block\""
    )]
    Overloaded { pool: String, queued: usize, limit: usize },
    #[error("pool '{pool}' is draining and takes no more work")]
    Draining { pool: String },
    #[error("{0}")]
    Expired(Box<Expired>),
    #[error("cancelled")]
    Cancelled,
    #[error("pool '{pool}' is closed: cannot schedule new futures after shutdown")]
    Closed { pool: String },
    /// No worker of the pool can start; the reason is the last start's.
    #[error("{reason}")]
    Failing { pool: String, reason: String },
}
