//! Sends a worker's messages on its link: the ends of calls, items, chunks and credit.
//!
//! What is put here waits in the outbox until the next flush. Results wait for those of further calls at hand, but not
//! for long.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clutch_pool::link::journal::Position;
use clutch_pool::link::{Announced, Pending, PutError};
use clutch_pool::supervisor::memory::OwnMemory;
use clutch_wire::forked::Moment;
use clutch_wire::frame::{self, Head, Kind, flag};
use clutch_wire::region::RegionPool;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::writer::{Writer, link_broke};

/// Results wait for company at most this long while further calls are at hand.
const COMPANY: Duration = Duration::from_micros(200);

/// Since when results wait that are to be written before the next call: as long ago as can be.
const OVERDUE_NS: u64 = 1;

/// CPU time of one thread so far.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCpu {
    thread: i32,
    time: Duration,
}

impl ThreadCpu {
    /// What was used since. None: another thread asks.
    pub fn used(self) -> Option<Duration> {
        (self.thread == sys::thread_id()).then(|| sys::thread_cpu_time().saturating_sub(self.time))
    }
}

/// The sending half of the worker's link. All slots of a worker share it.
pub struct Sender {
    pub writer: Arc<Writer>,
    pub regions: Arc<RegionPool>,
    announced: Mutex<Announced>,
    payload_bytes_max: u64,
    /// Looked at after calls, where the pool has a limit for it.
    memory: Option<OwnMemory>,
    tells_cpu: bool,
    /// Since when the oldest result waits for company.
    /// In nanoseconds since `born`; 0: none waits.
    waiting_ns: AtomicU64,
    born: Instant,
    /// By it a copy of the worker, which user code has forked, knows that the link is not its own.
    made: Moment,
}

impl Sender {
    pub fn new(writer: Arc<Writer>, payload_bytes_max: u64, memory_floor: Option<u64>, tells_cpu: bool) -> Sender {
        let regions = Arc::new(RegionPool::for_one_reader());
        Sender {
            writer,
            announced: Mutex::new(Announced::to_only_reader(&regions)),
            regions,
            payload_bytes_max,
            memory: memory_floor.map(OwnMemory::new),
            tells_cpu,
            waiting_ns: AtomicU64::new(0),
            born: Instant::now(),
            made: Moment::now(),
        }
    }

    /// User code has forked the worker, and this is its copy: nothing of the link is to be touched. Its locks may be held
    /// for ever, and board, regions and frames are the worker's.
    pub fn is_in_copy(&self) -> bool {
        self.made.is_in_copy()
    }

    // ---- writing

    /// Writes all waiting frames.
    pub fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        self.forget_waiting();
        // To let go of the GIL for a write that does not wait would hand it to another thread, which keeps it for long.
        if self.writer.flush_some()? {
            return Ok(());
        }
        py.detach(|| self.writer.flush()).map_err(PyErr::from)
    }

    /// A link whose other end is gone is seen by the reader. One whose descriptor was closed here is not: who waits in the
    /// kernel waits on what it was.
    pub fn flush_beside_reader(&self) {
        match self.writer.flush() {
            Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                link_broke(&error)
            }
            _ => {}
        }
    }

    /// Results may wait for those of the calls at hand, but not for long.
    pub fn keep_company(&self, py: Python<'_>) -> PyResult<()> {
        match self.waiting_ns.load(Ordering::Relaxed) {
            0 => Ok(()),
            since if self.born.elapsed() > COMPANY + Duration::from_nanos(since) => self.flush(py),
            _ => {
                self.writer.write_soon();
                Ok(())
            }
        }
    }

    /// Called before all waiting frames are written.
    pub fn forget_waiting(&self) {
        self.waiting_ns.store(0, Ordering::Relaxed);
    }

    // ---- words of the worker

    /// Puts a message of the worker about itself, and writes it at once.
    pub fn say(&self, py: Python<'_>, kind: Kind, text: &str) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        let put = |out: &mut Pending| frame::put_simple(&mut out.bytes, kind, 0, Codec::Json, text.as_bytes());
        self.writer.outbox.push(put).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.flush(py)
    }

    /// Puts a frame that is all head.
    pub fn put_head(&self, kind: Kind, id: u64) {
        if !self.is_in_copy() {
            self.writer.outbox.push(|out| frame::put_head(&mut out.bytes, kind, id, 0));
        }
    }

    /// Puts text, as much of it as fits a frame.
    pub fn put_text(&self, head: Head, text: &str) {
        if !self.is_in_copy() {
            self.writer.outbox.push(|out| frame::put_text(&mut out.bytes, head, text.as_bytes()));
        }
    }

    /// The dispatcher could not take this region in.
    pub fn was_unreceived(&self, region: u32) {
        self.announced.lock().was_unreceived(region);
    }

    // ---- CPU time

    /// CPU time of this thread, as work begins; none: nobody asks for it.
    pub fn cpu_now(&self) -> Option<ThreadCpu> {
        self.tells_cpu.then(|| ThreadCpu { thread: sys::thread_id(), time: sys::thread_cpu_time() })
    }

    /// Tells what work that ends now has used since. In another thread that is not known.
    pub fn put_cpu(&self, id: u64, since: Option<ThreadCpu>) {
        if let Some(cpu) = since.and_then(ThreadCpu::used) {
            self.put_text(Head::with(Kind::Stats, id, Codec::Json), &format!("{{\"cpu_ns\":{}}}", cpu.as_nanos()));
        }
    }

    /// Tells that work which begins now may run for so long, and writes it at once: nothing else may be written meanwhile.
    pub fn say_limit(&self, py: Python<'_>, id: u64, ms: u64) -> PyResult<()> {
        self.put_text(Head::with(Kind::Stats, id, Codec::Json), &format!("{{\"limit_ms\":{ms}}}"));
        self.flush(py)
    }

    // ---- values

    /// Puts the end of a call on the link; it is written with the next flush, and arrives whatever becomes of this process.
    pub fn put_end(&self, id: u64, started: Instant, end: Result<Payload, Failure>) -> io::Result<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        let ended = Instant::now();
        let fixed = ((ended - started).as_nanos() as u64).to_le_bytes();
        let grew = self.memory.as_ref().is_some_and(|memory| memory.is_due() && self.tell_memory(memory));
        let head = Head::of(Kind::Result, id);
        self.put_outcome(head, Head { kind: Kind::Failure, ..head }, &fixed, end)?;
        if grew {
            self.waiting_ns.store(OVERDUE_NS, Ordering::Relaxed);
        } else if self.waiting_ns.load(Ordering::Relaxed) == 0 {
            self.waiting_ns.store((ended - self.born).as_nanos().max(1) as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Puts the result of a batch's next item on the link.
    pub fn put_item(&self, id: u64, end: Result<Payload, Failure>) -> io::Result<()> {
        let head = Head::with(Kind::Item, id, Codec::Plain);
        self.put_outcome(head, Head { flags: flag::FAILED, ..head }, &[], end)
    }

    /// The same for the commonest small values, with nothing in between; false: it is another one.
    pub fn put_scalar_item(&self, id: u64, value: &Bound<'_, PyAny>) -> bool {
        let head = Head::with(Kind::Item, id, Codec::Plain);
        let write = |out: &mut Vec<u8>| crate::codec::write_scalar(out, value);
        let (put, exposed) = self.writer.outbox.push_noting(|out| frame::put_written(&mut out.bytes, head, write));
        // A link that broke is seen by the reader.
        put.is_ok() && self.write_exposed(exposed).is_ok()
    }

    /// Puts the next value of an outbound stream.
    pub fn put_chunk(&self, id: u64, payload: &Payload) -> io::Result<()> {
        self.put(Head::of(Kind::Chunk, id), &[], payload).map(drop).map_err(io::Error::other)
    }

    /// Grants the sender of an inbound stream this many more chunks.
    pub fn put_credit(&self, id: u64, count: u32) {
        if !self.is_in_copy() {
            self.writer.outbox.push(|out| frame::put_credit(&mut out.bytes, id, count));
        }
    }

    /// Puts a value, or why there is none, also when the value cannot be put.
    fn put_outcome(&self, head: Head, failed: Head, fixed: &[u8], end: Result<Payload, Failure>) -> io::Result<()> {
        let put = end.and_then(|payload| {
            let payload = self.check_size(payload)?;
            self.put(head, fixed, &payload).map_err(unsendable)
        });
        let put = put.or_else(|failure| {
            let body = Failure::encode(&failure);
            let payload = crate::codec::raw(&self.regions, Codec::Plain, &body);
            payload.map_err(PutError::from).and_then(|payload| self.put(failed, fixed, &payload))
        });
        // Without shared memory for all of it, this much can be said.
        let put = put.or_else(|error| {
            let body = Failure::encode(&unsendable(error));
            self.put(failed, fixed, &Payload::new(Codec::Plain, body))
        });
        self.write_exposed(put.map_err(io::Error::other)?)
    }

    /// Waits until messages that would be lost with this process are written, before other code runs in it.
    fn write_exposed(&self, exposed: Option<Position>) -> io::Result<()> {
        match exposed {
            None => Ok(()),
            Some(end) => Python::attach(|py| py.detach(|| self.writer.wait_sent(end))),
        }
    }

    /// Before the result of the call that raised it: the dispatcher decides before it fills the slot again.
    fn tell_memory(&self, memory: &OwnMemory) -> bool {
        let told = Python::attach(|py| py.detach(|| memory.look()));
        let text = told.and_then(|told| serde_json::to_string(&told).ok());
        let head = Head::with(Kind::Stats, 0, Codec::Json);
        text.is_some_and(|text| {
            self.put_text(head, &text);
            true
        })
    }

    /// A result above `payload_max` is a failure of its own.
    pub fn check_size(&self, payload: Payload) -> Result<Payload, Failure> {
        let (given, allowed) = (payload.bytes_total(), self.payload_bytes_max);
        if given <= allowed {
            return Ok(payload);
        }
        let message = format!("a result of {given} bytes; payload_max allows {allowed}");
        Err(Failure::Encode { type_name: "PayloadTooLarge".to_owned(), message, traceback: String::new() })
    }

    /// Returns up to where all has to be sent before other code runs: see [`Sender::write_exposed`].
    fn put(&self, head: Head, fixed: &[u8], payload: &Payload) -> Result<Option<Position>, PutError> {
        if self.is_in_copy() {
            return Ok(None);
        }
        if !payload.leases.is_empty() && !self.regions.ask_for_sweeps() {
            self.writer.write_soon();
        }
        let mut announced = self.announced.lock();
        let (put, exposed) = self.writer.outbox.push_noting(|out| announced.put(out, head, fixed, payload, 0));
        put.map(|()| exposed)
    }
}

/// A value that no frame, or no shared memory, can be had for.
fn unsendable(error: PutError) -> Failure {
    Failure::Encode { type_name: "OSError".to_owned(), message: error.to_string(), traceback: String::new() }
}
