//! The worker's end of its link: takes calls, runs them in the slots' threads or hands them to an event loop.
//!
//! Reading belongs to whichever slot has nothing to run; results are written together while further calls are at hand.
//! What is no plain value (coroutines, generators, serial tools) is finished by the profile, in Python, through [`Call`].

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use clutch_pool::link::board::{Board, word};
use clutch_pool::link::journal::Position;
use clutch_pool::link::{Announced, Inbox, Pending, PutError};
use clutch_pool::supervisor::memory::OwnMemory;
use clutch_pool::work::WorkKind;
use clutch_wire::forked::{Moment, Tracked};
use clutch_wire::frame::{self, Head, Kind, NO_DEADLINE, RegionRef, flag};
use clutch_wire::region::{RegionPool, RegionTable};
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;
use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::call::{Call, Waiting};
use crate::drain::Drain;
use crate::interrupt::Slots;
use crate::serve::{self, App, Starter};
use crate::stacks::Stacks;
use crate::watcher::{self, Writer};

mod native_future;
mod reading;
mod streams;

pub use self::native_future::{NativeFuture, running_loop};
pub use self::streams::{Stream, flush_late, flush_soon};
use self::streams::{Streams, end_waits};

/// Results wait for company at most this long while further calls are at hand.
const COMPANY: Duration = Duration::from_micros(200);

/// Since when results wait that are to be written before the next call: as long ago as can be.
const OVERDUE_NS: u64 = 1;

/// How often the producer of a stream that waits for credit looks whether somebody reads.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Among the real-time signals: the one that interrupts, those that show the stacks of all threads and of one.
const INTERRUPT_SIGNAL: i32 = 10;
const STACKS_SIGNAL: i32 = 11;

fn interrupt_signal() -> i32 {
    sys::real_time_signal(INTERRUPT_SIGNAL)
}

/// Somebody has looked at what runs here, at a prompt: what waited behind that is not late.
static UNTIMED: AtomicBool = AtomicBool::new(false);

/// A call as it came.
#[derive(Debug)]
pub struct CallFrame {
    pub id: u64,
    pub word: u32,
    pub function: u32,
    /// In nanoseconds of CLOCK_MONOTONIC, or `NO_DEADLINE`.
    pub deadline_ns: u64,
    /// Of a mapped batch: how many of its first items were run before.
    pub skip: u32,
    pub flags: u8,
    pub codec: Codec,
    /// Closed with the frame, when the call is never begun.
    pub descriptor: Option<OwnedFd>,
    inline: Vec<u8>,
    regions: Vec<RegionRef>,
}

/// What is run when a function's number is called.
pub struct Entry {
    /// `handlers/call.py:Tool`
    pub tool: Py<PyAny>,
    pub function: Py<PyAny>,
    /// Neither serial nor bound to the main thread.
    pub simple: bool,
    /// Called by the name of a tool: arguments that do not fit are `BadArguments`.
    pub by_name: bool,
    /// It is no tool, but the app that is served.
    pub app: Option<Arc<App>>,
}

/// What came for a function's number.
struct Defined {
    /// Missing before the first call of a function that came as its pickle.
    made: OnceLock<Arc<Entry>>,
    /// `handlers/call.py:Definition`, which gives the tool when it is read; of a name, the tool.
    source: Py<PyAny>,
}

impl Entry {
    fn of(tool: &Bound<'_, PyAny>, by_name: bool) -> PyResult<Entry> {
        Ok(Entry {
            function: tool.getattr("function")?.unbind(),
            simple: tool.getattr("simple")?.extract()?,
            by_name,
            app: App::of(tool)?.map(Arc::new),
            tool: tool.clone().unbind(),
        })
    }
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<CallFrame>,
    /// Slots that wait for the one that reads.
    idle: usize,
    reading: bool,
    draining: bool,
    /// The link has ended.
    ended: bool,
}

/// The worker's link. All slots of a worker share it.
#[pyclass(frozen, module = "clutch._core")]
pub struct WorkerLink {
    pub writer: Arc<Writer>,
    pub board: Arc<Board>,
    pub regions: Arc<RegionPool>,
    pub describe: Py<PyAny>,
    /// Python runs while it is held: who waits for it must not hold the GIL.
    inbox: Mutex<Inbox>,
    tables: Arc<Mutex<RegionTable>>,
    announced: Mutex<Announced>,
    functions: Mutex<Vec<Option<Arc<Defined>>>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    streams: Mutex<Streams>,
    credited: Condvar,
    resolve: Py<PyAny>,
    /// An event loop reads; threads only wait.
    loop_reads: AtomicBool,
    payload_bytes_max: u64,
    pub slots: Arc<Slots>,
    stacks: Arc<OnceLock<Stacks>>,
    drain: Arc<Drain>,
    /// What has no end of its own was told to end.
    ending: AtomicBool,
    /// Called with the id of work that is to stop, by the thread that reads.
    on_cancel: Mutex<Option<Py<PyAny>>>,
    /// Gives the stacks of all tasks or greenlets.
    on_stacks: Mutex<Option<Py<PyAny>>>,
    /// Looked at after calls, where the pool has a limit for it.
    memory: Option<OwnMemory>,
    /// Since when the oldest result waits for company.
    /// In nanoseconds since `born`; 0: none waits.
    waiting_ns: AtomicU64,
    born: Instant,
    /// Where slots are greenlets: lets the others run while one waits.
    waiter: Mutex<Option<Py<PyAny>>>,
    /// Streams whose last chunk waits for the next flush.
    holding: Mutex<Vec<u64>>,
    /// Word of the request that takes its first step in the main thread, and one; 0: none does.
    stepping: AtomicU64,
    main: ThreadId,
    /// By it a copy of the worker, which user code has forked, knows that the link is not its own.
    made: Moment,
}

#[pymethods]
impl WorkerLink {
    /// In the main thread. Takes over four descriptors: link, board, alarm, and a pidfd of the dispatcher. `resolve(codec, body)`
    /// gives a `Tool` for a function's name, a `Definition` for its pickle; `describe(exception)` gives the tuple that
    /// [`describe_failure`] reads. From `memory_floor` bytes of private memory on, it is told after calls that raised it.
    #[new]
    #[pyo3(signature = (descriptors, resolve, describe, payload_bytes_max, memory_floor=None))]
    fn new(
        descriptors: (i32, i32, i32, i32),
        resolve: Py<PyAny>,
        describe: Py<PyAny>,
        payload_bytes_max: u64,
        memory_floor: Option<u64>,
    ) -> PyResult<WorkerLink> {
        let (link, board, alarm, dispatcher) = descriptors;
        let inbox = Inbox::default();
        let board = Arc::new(Board::open(sys::adopt(board))?);
        let writer = Arc::new(Writer::new(sys::adopt(link), board.journal())?);
        let regions = Arc::new(RegionPool::for_one_reader());
        let (slots, stacks) = (Arc::<Slots>::default(), Arc::<OnceLock<Stacks>>::default());
        let drain = Arc::<Drain>::default();
        let alarm = watcher::Alarm {
            socket: Tracked::new(sys::adopt(alarm)),
            slots: slots.clone(),
            board: board.clone(),
            stacks: stacks.clone(),
            drain: drain.clone(),
            interrupt_signal: interrupt_signal(),
        };
        watcher::start(writer.clone(), Tracked::new(sys::adopt(dispatcher)), alarm, regions.clone())?;
        Ok(WorkerLink {
            writer,
            board,
            announced: Mutex::new(Announced::to_only_reader(&regions)),
            regions,
            describe,
            tables: inbox.regions.clone(),
            inbox: Mutex::new(inbox),
            functions: Mutex::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            streams: Mutex::default(),
            credited: Condvar::new(),
            resolve,
            loop_reads: AtomicBool::new(false),
            payload_bytes_max,
            slots,
            stacks,
            drain,
            ending: AtomicBool::new(false),
            on_cancel: Mutex::default(),
            on_stacks: Mutex::default(),
            memory: memory_floor.map(OwnMemory::new),
            waiting_ns: AtomicU64::new(0),
            born: Instant::now(),
            waiter: Mutex::default(),
            holding: Mutex::default(),
            stepping: AtomicU64::new(0),
            main: std::thread::current().id(),
            made: Moment::now(),
        })
    }

    /// Says that work may come. `info` is JSON.
    fn ready(&self, py: Python<'_>, info: &str) -> PyResult<()> {
        self.say(py, Kind::Ready, info)
    }

    /// A debugger asks at the terminal, or no longer does. From the first time on no work comes too late here.
    fn debugging(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        UNTIMED.store(true, Ordering::Relaxed);
        self.writer.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Debugging, u64::from(on), 0));
        self.flush(py)
    }

    /// Says that the start failed. `info` is JSON with a `reason`.
    fn failed(&self, py: Python<'_>, info: &str) -> PyResult<()> {
        self.say(py, Kind::Failed, info)
    }

    /// The loop of one slot: runs calls in this thread until the worker is told to end. What a call makes that is no
    /// plain value goes to `slot.finish(call, made)`; calls of tools that are not simple to `slot.special(call)`;
    /// coroutines of a mapped batch to `slot.wait(coroutine)`.
    fn serve(slf: &Bound<'_, Self>, slot: &Bound<'_, PyAny>) -> PyResult<()> {
        let link = slf.get();
        while let Some(frame) = link.next_call(slf.py())? {
            crate::call::run(slf, slot, frame)?;
        }
        link.flush(slf.py())
    }

    /// Descriptor for an event loop to wait on.
    fn fileno(&self) -> i32 {
        self.writer.socket().as_raw_fd()
    }

    /// For an event loop: takes in what has come, without waiting. Whether more may come, [`WorkerLink::is_draining`] knows.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Vec<Call>> {
        let frames = Self::take_in(slf, None)?;
        Ok(frames.into_iter().map(|frame| Call::new(slf.clone().unbind(), frame)).collect())
    }

    /// The same where an ASGI app is served: at most `room` requests take their first steps. Gives the requests that wait
    /// for something, with their tasks, and what has not begun.
    fn poll_requests<'py>(
        slf: &Bound<'py, Self>,
        starter: &Bound<'py, Starter>,
        room: usize,
    ) -> PyResult<(Vec<Waiting<'py>>, Vec<Call>)> {
        let frames = Self::take_in(slf, Some(starter.get().event_loop(slf.py())))?;
        let (mut requests, mut later): (Vec<_>, Vec<_>) =
            frames.into_iter().partition(|frame| slf.get().is_for_asgi(frame));
        later.extend(requests.split_off(room.min(requests.len())));
        let started = crate::call::start_requests(slf, starter.get(), requests)?;
        Ok((started, later.into_iter().map(|frame| Call::new(slf.clone().unbind(), frame)).collect()))
    }

    /// Writes what waits.
    pub fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        self.waiting_ns.store(0, Ordering::Relaxed);
        // To let go of the GIL for a write that does not wait would hand it to another thread, which keeps it for long.
        if self.writer.flush_some()? {
            return Ok(());
        }
        py.detach(|| self.writer.flush()).map_err(PyErr::from)
    }

    /// In an event loop, one turn after [`flush_soon`] and then another one.
    fn _flush_now(slf: &Bound<'_, Self>) -> PyResult<()> {
        streams::flush_now(slf)
    }

    /// The signal whose handler has to call [`WorkerLink::interrupt`] in the main thread.
    #[staticmethod]
    fn interrupt_signal() -> i32 {
        interrupt_signal()
    }

    /// Prepares to show stacks: `(signal, descriptor)` for `faulthandler.register(…, all_threads=False)`. Frames
    /// with one of `carriers` in their lines are left out where they lie below the user's. `of_threads(idents)` gives the
    /// text of these threads.
    fn show_stacks(&self, carriers: Vec<String>, of_threads: Option<Py<PyAny>>) -> PyResult<(i32, i32)> {
        let signal = sys::real_time_signal(STACKS_SIGNAL);
        let stacks = Stacks::new(signal, carriers, of_threads)?;
        let file = stacks.file();
        let _ = self.stacks.set(stacks);
        Ok((signal, file))
    }

    /// Raises `exception` (a class) in the threads whose work is to stop, where `is_safe(ident)`. True: this thread is one
    /// of them.
    fn interrupt(&self, exception: &Bound<'_, PyAny>, is_safe: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.slots.interrupt(&self.board, exception, is_safe)
    }

    /// To be called when faulthandler has been registered: what it looks at may make it crash.
    fn show_stacks_apart(&self) -> PyResult<()> {
        Ok(self.stacks.get().map_or(Ok(()), Stacks::run_apart)?)
    }

    /// Said where an Interrupted is raised that nobody hears: whether it was for work of this thread. Then it comes again.
    fn interrupt_lost(&self) -> bool {
        let lost = self.slots.lost();
        if lost {
            self.writer.write_soon();
        }
        lost
    }

    /// To be called by the handler again soon: it could not do what it should now.
    fn interrupt_again(&self) {
        self.slots.expect();
        self.writer.write_soon();
    }

    /// Has `waker.stop()` called when this thread's work is interrupted, `waker.wake()` when that was sent an exception, and
    /// `waker.show(tell)` when somebody wants to see where it stands; None: no more.
    fn set_waker(&self, waker: Option<Py<PyAny>>) {
        self.slots.set_waker(waker);
    }

    /// Calls `function(word, *args)` while nothing interrupts this thread, `word` being that of its work. Raises Interrupted
    /// when that is to stop by then.
    #[pyo3(signature = (function, /, *args))]
    fn outside<'py>(&self, function: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let word = self.slots.leave(py);
        let own = PyTuple::new(py, [word])?;
        let made = function.call1(own.as_sequence().concat(args.as_sequence())?.to_tuple()?);
        word.map_or(Ok(()), |word| self.enter(py, word))?;
        made
    }

    /// From here on the work with this word may be interrupted in this thread. Raises Interrupted when it is to stop already.
    pub fn enter(&self, py: Python<'_>, word: u32) -> PyResult<()> {
        if self.slots.enter(&self.board, word) {
            return Ok(());
        }
        self.slots.leave(py);
        Err(crate::errors::clutch_error(py, "Interrupted", "", &[]))
    }

    /// Nothing interrupts this thread any more, until it enters again.
    fn leave(&self, py: Python<'_>) {
        self.slots.leave(py);
    }

    /// Whether this thread is inside work that may be interrupted: not while a stream waits, nor when it is closed.
    fn is_inside(&self) -> bool {
        self.slots.is_inside()
    }

    /// Calls `listener(id, wants_stacks)` for work that is to stop, in the thread that reads the link.
    fn on_cancel(&self, listener: Py<PyAny>) {
        *self.on_cancel.lock() = Some(listener);
    }

    /// Calls `listener()` once when this worker is to end, while its work goes on: for work that has no end of its own. In
    /// a thread of its own, whatever other threads do; in this one when that was told before.
    fn on_drain(&self, py: Python<'_>, listener: Py<PyAny>) {
        self.drain.listen(py, listener);
    }

    /// Tells requests that have no end of their own that this worker is to end, and those that turn out to be such later.
    fn end_endless(&self, py: Python<'_>) -> PyResult<()> {
        self.ending.store(true, Ordering::SeqCst);
        let told: Vec<_> = {
            let mut streams = self.streams.lock();
            streams.values_mut().filter(|stream| stream.endless).map(Stream::end).collect()
        };
        self.credited.notify_all();
        told.iter().try_for_each(|(on_ending, waiters)| {
            on_ending.as_ref().map_or(Ok(()), |on_ending| on_ending(py))?;
            end_waits(py, waiters);
            Ok(())
        })
    }

    /// Asks `listener()` for the stacks of all tasks or greenlets when somebody wants to see them.
    fn on_stacks(&self, listener: Py<PyAny>) {
        *self.on_stacks.lock() = Some(listener);
    }

    /// Has `waiter(id)` called where code waits for something to come for its call: it returns when something has.
    fn wait_with(&self, waiter: Py<PyAny>) {
        *self.waiter.lock() = Some(waiter);
    }

    /// Calls `listener()` whenever something has come for this call; None stops it.
    fn listen_to(&self, id: u64, listener: Option<Py<PyAny>>) {
        let before = self.listen(id, listener);
        drop(before);
    }

    /// Sends the stacks of a task or greenlet whose caller waits for them; written with the next flush.
    fn tell_stacks(&self, id: u64, text: &str) {
        if self.is_in_copy() {
            return;
        }
        let head = Head { codec: Codec::Plain, ..Head::of(Kind::Stacks, id) };
        self.writer.outbox.push(|out| frame::put_text(&mut out.bytes, head, text.as_bytes()));
    }

    /// Whether a request that takes its first step is to stop; true once.
    fn is_step_to_stop(&self) -> bool {
        let word = self.stepping.load(Ordering::Relaxed);
        let is_to_stop = word > 0 && self.board.get((word - 1) as u32) == word::ABANDONED;
        if is_to_stop {
            self.leave_step();
        }
        is_to_stop
    }

    fn is_draining(&self) -> bool {
        self.queue.lock().draining
    }
}

impl WorkerLink {
    /// User code has forked the worker, and this is its copy: nothing of the link is to be touched. Its locks may be held
    /// for ever, and board, regions and frames are the worker's.
    pub fn is_in_copy(&self) -> bool {
        self.made.is_in_copy()
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

    fn is_for_asgi(&self, frame: &CallFrame) -> bool {
        frame.flags >> flag::KIND_SHIFT == WorkKind::Request as u8
            && self
                .known(frame.function)
                .is_some_and(|entry| entry.app.as_ref().is_some_and(|app| app.kind == serve::Kind::Asgi))
    }

    /// A request's first step begins: it may be stopped. The loops of other threads are not interrupted.
    pub fn enter_step(&self, word: u32) {
        if std::thread::current().id() == self.main {
            self.stepping.store(u64::from(word) + 1, Ordering::Relaxed);
        }
    }

    pub fn leave_step(&self) {
        if std::thread::current().id() == self.main {
            self.stepping.store(0, Ordering::Relaxed);
        }
    }

    fn say(&self, py: Python<'_>, kind: Kind, text: &str) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        let put = |out: &mut Pending| frame::put_simple(&mut out.bytes, kind, 0, Codec::Json, text.as_bytes());
        self.writer.outbox.push(put).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.flush(py)
    }

    fn defined(&self, function: u32) -> Option<Arc<Defined>> {
        self.functions.lock().get(function as usize).cloned().flatten()
    }

    /// What runs for a function's number; none: that was never defined, or nothing has read the definition yet.
    pub fn known(&self, function: u32) -> Option<Arc<Entry>> {
        self.functions.lock().get(function as usize)?.as_ref()?.made.get().cloned()
    }

    /// Whether its definition was read, or there is none to read.
    pub fn is_known(&self, function: u32) -> bool {
        self.defined(function).is_none_or(|defined| defined.made.get().is_some())
    }

    /// What runs for the function of a call that was begun. Its definition is read where that was not done before, which may
    /// run the user's code: `enter` makes that code one that may be stopped. None: the function comes with the arguments.
    pub fn entry(
        &self,
        py: Python<'_>,
        function: u32,
        enter: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<Option<Arc<Entry>>> {
        if let Some(known) = self.known(function) {
            return Ok(Some(known));
        }
        let Some(defined) = self.defined(function) else { return Ok(None) };
        enter()?;
        let read = defined.source.bind(py).call_method0("read");
        self.leave_copy(py, read.as_ref().err())?;
        let entry = Arc::new(Entry::of(&read?, false)?);
        Ok(Some(defined.made.get_or_init(|| entry).clone()))
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
            self.writer.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Begun, call.id, 0));
            // At once: the code may run for ever.
            py.detach(|| self.flush_beside_reader());
        }
        begun
    }

    /// The payload of a call that was begun, taken out of it.
    pub fn payload(&self, frame: &mut CallFrame) -> Result<Payload, Failure> {
        let leases = RegionTable::leases(&self.tables, frame.regions.iter().copied()).map_err(|error| {
            let message = format!("the arguments did not arrive: {error}");
            Failure::BadArguments { message, detail: String::new() }
        })?;
        Ok(Payload { codec: frame.codec, inline: std::mem::take(&mut frame.inline), leases })
    }

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
        let head = Head { codec: Codec::Plain, ..Head::of(Kind::Item, id) };
        self.put_outcome(head, Head { flags: flag::FAILED, ..head }, &[], end)
    }

    /// The same for the commonest small values, with nothing in between; false: it is another one.
    pub fn put_scalar_item(&self, id: u64, value: &Bound<'_, PyAny>) -> bool {
        let head = Head { codec: Codec::Plain, ..Head::of(Kind::Item, id) };
        let write = |out: &mut Vec<u8>| crate::codec::write_scalar(out, value);
        let (put, exposed) = self.writer.outbox.push_noting(|out| frame::put_written(&mut out.bytes, head, write));
        // A link that broke is seen by the reader.
        put.is_ok() && self.write_exposed(exposed).is_ok()
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

    /// What would be lost with this process is written before other code runs in it.
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
        let head = Head { codec: Codec::Json, ..Head::of(Kind::Stats, 0) };
        text.is_some_and(|text| {
            self.writer.outbox.push(|out| frame::put_text(&mut out.bytes, head, text.as_bytes()));
            true
        })
    }

    /// What is too large for the pool is a failure of its own.
    pub fn check_size(&self, payload: Payload) -> Result<Payload, Failure> {
        let (given, allowed) = (payload.bytes_total(), self.payload_bytes_max);
        if given <= allowed {
            return Ok(payload);
        }
        let message = format!("a result of {given} bytes; payload_max allows {allowed}");
        Err(Failure::Encode { type_name: "PayloadTooLarge".to_owned(), message, traceback: String::new() })
    }

    /// Returns up to where all has to be sent before other code runs: see [`WorkerLink::write_exposed`].
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

/// What a call's frame says beside its arguments: by what it is claimed, and which part of it is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub id: u64,
    pub word: u32,
    pub flags: u8,
    pub skip: u32,
    deadline_ns: u64,
}

impl Claim {
    pub fn of(frame: &CallFrame) -> Claim {
        let CallFrame { id, word, flags, skip, deadline_ns, .. } = *frame;
        Claim { id, word, flags, skip, deadline_ns }
    }

    /// Nobody waits for it any more.
    fn is_late(&self) -> bool {
        !UNTIMED.load(Ordering::Relaxed) && self.deadline_ns != NO_DEADLINE && sys::monotonic_ns() >= self.deadline_ns
    }
}

/// A value that no frame, or no shared memory, can be had for.
fn unsendable(error: PutError) -> Failure {
    Failure::Encode { type_name: "OSError".to_owned(), message: error.to_string(), traceback: String::new() }
}

/// Ends this worker: with a link that cannot be read it would hear of nothing any more.
fn link_broke(error: &dyn std::fmt::Display) -> ! {
    let _ = writeln!(io::stderr(), "clutch: the link of this worker broke: {error}");
    sys::exit_now(1)
}
