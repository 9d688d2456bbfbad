//! The waist: everything that arrives becomes [`Work`], everything that comes back is an [`Outcome`] or a [`Refusal`].
//!
//! Owns the values that cross the pool's only door. Assumes nothing of how work is run.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use crate::descriptor::Descriptor;
use crate::region::Lease;
use crate::wire::WireError;
use crate::wire::http::{Headers, read_headers};

/// Names one piece of work for as long as its pool knows it. Never reused within a pool.
pub type WorkId = u64;

/// Index into the pool's table of functions.
pub type FunctionId = u32;

/// How the bytes of a payload are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// No value at all: the end of a stream, an empty control frame.
    Empty = 0,
    /// Tagged scalars and tuples of them, see docs/wire.md.
    Plain = 1,
    /// Python pickle, protocol 5; its buffers may lie in regions.
    Pickle = 2,
    /// UTF-8 JSON, as a network front brought it. Never unpickled.
    Json = 3,
    /// A function by the name it has in the target.
    Name = 4,
    /// One `bytes` object, as it is; the only content of its payload.
    Bytes = 5,
    /// Pairs of index and item of a mapped batch (see docs/wire.md, "batch").
    Batch = 6,
    /// The head of a request or a response, and the body or its first part behind it (see wire/http.rs).
    Http = 7,
    /// The last bytes of a body.
    Last = 8,
    /// A WebSocket message of text.
    Text = 9,
    /// A WebSocket closes: its code, two bytes, and the reason, as text.
    Close = 10,
    /// Header lines (see wire/http.rs), then JSON up to the end, or as all of the first region: a call of a network front.
    HeadedJson = 11,
}

impl Codec {
    pub fn from_u8(value: u8) -> Option<Codec> {
        Some(match value {
            0 => Codec::Empty,
            1 => Codec::Plain,
            2 => Codec::Pickle,
            3 => Codec::Json,
            4 => Codec::Name,
            5 => Codec::Bytes,
            6 => Codec::Batch,
            7 => Codec::Http,
            8 => Codec::Last,
            9 => Codec::Text,
            10 => Codec::Close,
            11 => Codec::HeadedJson,
            _ => return None,
        })
    }
}

/// Encoded values: bytes within the frame, and parts that lie in shared memory.
#[derive(Clone, Debug)]
pub struct Payload {
    pub codec: Codec,
    pub inline: Vec<u8>,
    /// Large parts in order. With `inline` empty and one lease, the lease is the body.
    pub leases: Vec<Arc<Lease>>,
}

impl Payload {
    pub fn new(codec: Codec, inline: Vec<u8>) -> Payload {
        Payload { codec, inline, leases: Vec::new() }
    }

    pub fn empty() -> Payload {
        Payload::new(Codec::Empty, Vec::new())
    }

    /// The body as one slice: the inline bytes, or the first region when the body itself was too large for a frame.
    pub fn body(&self) -> &[u8] {
        match self.leases.first() {
            Some(lease) if self.inline.is_empty() => lease.bytes(),
            _ => &self.inline,
        }
    }

    /// Of `Codec::HeadedJson`: the header lines, and the JSON.
    pub fn headed(&self) -> Result<(Headers<'_>, &[u8]), WireError> {
        let (headers, rest) = read_headers(&self.inline)?;
        Ok((headers, self.leases.first().map_or(rest, |lease| lease.bytes())))
    }

    pub fn bytes_total(&self) -> u64 {
        self.inline.len() as u64 + self.leases.iter().map(|lease| lease.len() as u64).sum::<u64>()
    }
}

/// The adapter in the worker that the work is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkKind {
    Call = 0,
    Request = 1,
    Connection = 2,
    Job = 3,
}

impl WorkKind {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkKind::Call => "call",
            WorkKind::Request => "request",
            WorkKind::Connection => "connection",
            WorkKind::Job => "job",
        }
    }
}

/// One unit in.
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
    /// How often it may run again when its worker dies: declared idempotent by its submitter.
    pub retry: u32,
    /// Of a mapped batch how many items it has, whose results come one by one; else 0.
    pub items: u32,
    /// How long each of them may run.
    pub item_limit: Option<Duration>,
    /// Chunks follow (an inbound stream).
    pub has_input: bool,
    /// Handed to the worker with the work; the submitter is told when it has begun.
    pub descriptor: Option<Arc<Descriptor>>,
    /// The submitter takes one value; a stream is refused before it produces anything.
    pub one_value: bool,
    /// Called with the answer, exactly once.
    pub reply: Arc<dyn Reply>,
}

impl Work {
    /// Whether it ends only when somebody else ends it: it is told when its worker is to end, and cut at the grace.
    pub fn is_endless(&self) -> bool {
        self.kind == WorkKind::Connection
    }
}

/// Where the answer of one piece of work goes. Called from the thread that learned of it: it must not block.
pub trait Reply: Send + Sync {
    /// One value of a stream. The producer sends no more of them than it was given credit for.
    fn chunk(&self, payload: Payload);
    /// The end, exactly once.
    fn finish(&self, outcome: Outcome);
    /// The worker takes so many chunks more of the inbound stream.
    fn credit(&self, _count: u32) {}
    /// It is on its way to a worker, and has waited so long for that; again, where it was taken back and sent elsewhere.
    /// Called under the pool's lock: to note it is all that may be done.
    fn sent(&self, _queued: Duration) {}
    /// User code has started on it; only called when the work asked to know.
    fn begun(&self) {}
    /// The work has left the lobby of a pool with `overflow = "block"`.
    fn admitted(&self) {}
    /// What the work is, for people; none: its function's name says it. Asked when somebody looks, under the pool's lock.
    fn describe(&self, _payload: &Payload) -> Option<String> {
        None
    }
}

/// What came of a piece of work.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The value; of a stream: its end, `Codec::Empty`.
    Value(Payload),
    /// User code, or its worker, failed.
    Failure(Arc<Failure>),
    /// It was taken and then could not be run: expired, draining, cancelled.
    Refused(Refusal),
}

/// A piece of work that a worker has begun and not ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Running {
    pub id: WorkId,
    /// The name of its function, or its request.
    pub what: String,
    /// Since it was sent to the worker or, where that runs one at a time, since the one before it ended.
    pub seconds: f64,
    /// Its caller was answered without it (deadline, cancelled): it was told to stop.
    pub abandoned: bool,
}

/// Where a deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Queue,
    Running,
}

impl Where {
    pub fn as_str(self) -> &'static str {
        match self {
            Where::Queue => "queue",
            Where::Running => "running",
        }
    }
}

/// Work whose deadline has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    pub at: Where,
    /// The name of its function, or its request.
    pub what: String,
    /// Since it was submitted.
    pub after: Duration,
    /// `pool/0`, where it ran.
    pub worker: Option<String>,
    /// The Python stacks of its worker, or nothing.
    pub stacks: String,
}

impl fmt::Display for Expired {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expired { at, what, after, worker, .. } = self;
        write!(formatter, "the deadline passed after {:.3} s, while {what} ", after.as_secs_f64())?;
        match (at, worker) {
            (Where::Queue, _) => formatter.write_str("waited for a worker"),
            (Where::Running, Some(worker)) => write!(formatter, "ran in worker {worker}"),
            (Where::Running, None) => formatter.write_str("ran"),
        }
    }
}

/// Why something failed. The names are those of the wire and of `RemoteError.kind`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The user's code raised.
    #[error("{type_name}: {message}")]
    Raised { type_name: String, message: String, traceback: String, pickled: Vec<u8> },
    /// The result (or the exception) could not be encoded.
    #[error("the result cannot be encoded: {message}")]
    Encode { type_name: String, message: String, traceback: String },
    /// The arguments could not be decoded or do not fit. `detail` is a JSON array of problems, or empty.
    #[error("bad arguments: {message}")]
    BadArguments { message: String, detail: String },
    #[error("no such tool: {message}")]
    NoSuchTool { message: String },
    /// The worker died while it ran the work. `cause`: why Clutch ended it itself.
    #[error("{message}")]
    WorkerLost {
        message: String,
        /// 0: no worker had it, since none can start for now.
        worker_pid: i32,
        signal: Option<i32>,
        exit_code: Option<i32>,
        output: String,
        cause: Option<String>,
    },
    /// The work killed too many workers.
    #[error("{message}")]
    Poisoned { message: String, deaths: u32 },
    /// The pool cannot start its workers; the reason is the user's to mend.
    #[error("{message}")]
    Config { message: String },
    /// An item of a mapped batch has run for longer than it may.
    #[error("{0}")]
    Expired(Box<Expired>),
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
