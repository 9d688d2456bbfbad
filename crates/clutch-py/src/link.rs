//! The worker's end of its link: what comes by it, and what is put on it.
//!
//! Knows calls as frames and streams as credit, payloads and waits, but not what is called nor who waits.

pub mod beside;
pub mod call_frame;
pub mod flusher;
pub mod native_future;
pub mod reader;
pub mod sender;
pub mod streams;
pub mod writer;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use clutch_pool::link::board::{Board, word};
use clutch_wire::Codec;
use clutch_wire::frame::{Head, Kind, flag};
use pyo3::prelude::*;

use self::call_frame::{Claim, ignore_deadlines};
use self::flusher::Flusher;
use self::reader::{OnDefine, Reader};
use self::sender::Sender;
use self::streams::Streams;
use self::writer::Writer;

/// The worker's link. All slots of a worker share it.
#[pyclass(frozen, module = "clutch._core")]
pub struct WorkerLink {
    pub board: Arc<Board>,
    pub sender: Arc<Sender>,
    pub streams: Arc<Streams>,
    pub flusher: Arc<Flusher>,
    pub reader: Reader,
}

/// Limits of the pool for its workers.
#[derive(Clone, Copy, Debug)]
pub struct LinkLimits {
    pub payload_bytes_max: u64,
    /// Private memory, in bytes, from which on its growth is reported after calls.
    pub memory_floor: Option<u64>,
    /// The CPU time of each piece of work is told, where its thread runs nothing else.
    pub tells_cpu: bool,
}

impl WorkerLink {
    pub fn open(socket: OwnedFd, board: OwnedFd, limits: LinkLimits, on_define: OnDefine) -> PyResult<WorkerLink> {
        let board = Arc::new(Board::open(board)?);
        let writer = Arc::new(Writer::new(socket, board.journal())?);
        let sender = Arc::new(Sender::new(writer, limits.payload_bytes_max, limits.memory_floor, limits.tells_cpu));
        let streams = Arc::new(Streams::new());
        let flusher = Arc::new(Flusher::new(sender.clone(), streams.clone()));
        let reader = Reader::new(sender.clone(), streams.clone(), flusher.clone(), on_define);
        Ok(WorkerLink { board, sender, streams, flusher, reader })
    }

    /// See [`Sender::is_in_copy`].
    pub fn is_in_copy(&self) -> bool {
        self.sender.is_in_copy()
    }

    /// A copy of the worker ends where the call ends that made it: a caller waits for the worker's answer only. In the
    /// worker itself this does nothing.
    pub fn leave_copy(&self, py: Python<'_>, error: Option<&PyErr>) -> PyResult<()> {
        if !self.is_in_copy() {
            return Ok(());
        }
        let error = error.map(|error| error.value(py));
        py.import("clutch._worker.copies")?.call_method1("leave", (error,)).map(drop)
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.sender.writer.socket()
    }

    /// Claims a call; false when the dispatcher has taken it back, or when it comes too late.
    pub fn begin(&self, py: Python<'_>, call: &Claim) -> bool {
        if self.is_in_copy() {
            return false;
        }
        let at = call.word;
        if call.is_late() && self.board.claim(at, word::SENT, word::LATE) {
            return false;
        }
        let begun = self.board.claim(at, word::SENT, word::BEGUN);
        if !begun {
            self.board.set(at, word::FREE);
        } else if call.flags & flag::WANT_BEGUN != 0 {
            self.sender.put_head(Kind::Begun, call.id);
            // At once: the code may run for ever.
            py.detach(|| self.sender.flush_beside_reader());
        }
        begun
    }

    /// Whether the call with this word was stopped.
    pub fn is_abandoned(&self, at: u32) -> bool {
        self.board.get(at) == word::ABANDONED
    }

    /// Says that the call with this word waits for its turn, or no longer.
    pub fn await_turn(&self, at: u32, waits: bool) {
        self.board.await_turn(at, waits);
    }
}

#[pymethods]
impl WorkerLink {
    /// Reports that the worker is ready. `info` is JSON.
    fn ready(&self, py: Python<'_>, info: &str) -> PyResult<()> {
        self.sender.say(py, Kind::Ready, info)
    }

    /// A debugger asks at the terminal, or no longer does. From the first time on no work comes too late here.
    fn debugging(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        ignore_deadlines();
        self.sender.put_head(Kind::Debugging, u64::from(on));
        self.flush(py)
    }

    /// Reports that the start failed. `info` is JSON with a `reason`.
    fn failed(&self, py: Python<'_>, info: &str) -> PyResult<()> {
        self.sender.say(py, Kind::Failed, info)
    }

    /// Descriptor for an event loop to wait on.
    fn fileno(&self) -> i32 {
        self.sender.writer.socket().as_raw_fd()
    }

    /// Writes all waiting frames.
    pub fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.sender.flush(py)
    }

    /// Calls `listener(id, wants_stacks)` for work that is to stop, in the thread that reads the link.
    fn on_cancel(&self, listener: Py<PyAny>) {
        self.reader.on_cancel(listener);
    }

    /// Hands `listener(descriptor)` each socket by which a front passes connections; the listener owns it.
    fn on_channel(&self, listener: Py<PyAny>) {
        self.reader.on_channel(listener);
    }

    /// Asks `listener()` for the stacks of all tasks or greenlets when somebody wants to see them.
    fn on_stacks(&self, listener: Py<PyAny>) {
        self.reader.on_stacks(listener);
    }

    /// Has `waiter(id)` called where code waits for something to come for its call: it returns when something has.
    fn wait_with(&self, waiter: Py<PyAny>) {
        self.reader.wait_with(waiter);
    }

    /// Calls `listener()` whenever something has come for this call; None stops it.
    pub fn listen_to(&self, id: u64, listener: Option<Py<PyAny>>) {
        let before = self.streams.listen(id, listener);
        drop(before);
    }

    /// Tells work that has no end of its own that this worker is to end, and such as turns out to have none later.
    fn end_endless(&self, py: Python<'_>) -> PyResult<()> {
        self.streams.end_endless(py)
    }

    /// Sends the stacks of a task or greenlet whose caller waits for them; written with the next flush.
    fn tell_stacks(&self, id: u64, text: &str) {
        self.sender.put_text(Head::with(Kind::Stacks, id, Codec::Plain), text);
    }

    /// Whether the worker was told to end, so that no more calls come.
    fn is_draining(&self) -> bool {
        self.reader.is_draining()
    }
}
