//! The reading side of a worker's link: who reads, and where each frame goes that has come.
//!
//! Reading belongs to whichever slot has nothing to run, or to an event loop.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use clutch_pool::link::{Filled, Inbox};
use clutch_wire::frame::{Head, Kind, flag};
use clutch_wire::region::RegionTable;
use clutch_wire::sync::{Condvar, Mutex, MutexGuard};
use clutch_wire::{Codec, Failure, Payload};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::beside::{Beside, Ready};
use super::call_frame::CallFrame;
use super::flusher::Flusher;
use super::native_future::NativeFuture;
use super::sender::Sender;
use super::streams::{Stream, Streams, end_waits};
use super::writer::link_broke;

/// Takes the definition of a function: its number, and how its body is to be read. Runs none of the user's code: that may
/// take for ever, and whatever else the worker does waits for who reads. (But for finalizers, where a map is over.)
pub type OnDefine = Box<dyn Fn(Python<'_>, u32, Codec, &[u8]) -> PyResult<()> + Send + Sync>;

/// What a slot does.
pub enum Next {
    Call(CallFrame),
    /// What has come beside the link.
    Ready(Arc<dyn Ready>),
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<CallFrame>,
    /// Number of slots that wait for the reading one.
    idle: usize,
    reading: bool,
    draining: bool,
    /// Whether the link has ended.
    ended: bool,
}

/// The receiving half of the worker's link. All slots of a worker share it.
pub struct Reader {
    sender: Arc<Sender>,
    streams: Arc<Streams>,
    flusher: Arc<Flusher>,
    /// Python runs while it is held: who waits for it must not hold the GIL.
    inbox: Mutex<Inbox>,
    tables: Arc<Mutex<RegionTable>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Whether an event loop reads, and threads only wait.
    loop_reads: AtomicBool,
    on_define: OnDefine,
    /// Called with the id of work that is to stop, by the thread that reads.
    on_cancel: Mutex<Option<Py<PyAny>>>,
    /// Called with a descriptor by which a front passes connections; none: such are closed.
    on_channel: Mutex<Option<Py<PyAny>>>,
    /// What slots take on beside calls.
    beside: OnceLock<Arc<dyn Beside>>,
    /// Gives the stacks of all tasks or greenlets.
    on_stacks: Mutex<Option<Py<PyAny>>>,
    /// Callable that lets other greenlets run while one waits; none if slots are not greenlets.
    waiter: Mutex<Option<Py<PyAny>>>,
}

impl Reader {
    pub fn new(sender: Arc<Sender>, streams: Arc<Streams>, flusher: Arc<Flusher>, on_define: OnDefine) -> Reader {
        let inbox = Inbox::default();
        Reader {
            sender,
            streams,
            flusher,
            tables: inbox.regions.clone(),
            inbox: Mutex::new(inbox),
            queue: Mutex::default(),
            changed: Condvar::new(),
            loop_reads: AtomicBool::new(false),
            on_define,
            on_cancel: Mutex::default(),
            on_channel: Mutex::default(),
            beside: OnceLock::new(),
            on_stacks: Mutex::default(),
            waiter: Mutex::default(),
        }
    }

    /// Calls `listener(id, wants_stacks)` for work that is to stop.
    pub fn on_cancel(&self, listener: Py<PyAny>) {
        *self.on_cancel.lock() = Some(listener);
    }

    /// Hands `listener(descriptor)` each socket by which a front passes connections.
    pub fn on_channel(&self, listener: Py<PyAny>) {
        *self.on_channel.lock() = Some(listener);
    }

    /// From now on slots take on what comes of this, too; the first stays.
    pub fn put_beside(&self, beside: Arc<dyn Beside>) {
        let _ = self.beside.set(beside);
    }

    /// Asks `listener()` for the stacks of all tasks or greenlets when somebody wants to see them.
    pub fn on_stacks(&self, listener: Py<PyAny>) {
        *self.on_stacks.lock() = Some(listener);
    }

    /// Has `waiter(id)` called where code waits for something to come for its call.
    pub fn wait_with(&self, waiter: Py<PyAny>) {
        *self.waiter.lock() = Some(waiter);
    }

    pub fn is_draining(&self) -> bool {
        self.queue.lock().draining
    }

    /// The payload of a call that was begun, taken out of it.
    pub fn payload(&self, frame: &mut CallFrame) -> Result<Payload, Failure> {
        let leases = RegionTable::leases(&self.tables, frame.regions.iter().copied()).map_err(|error| {
            let message = format!("the arguments did not arrive: {error}");
            Failure::BadArguments { message, detail: String::new() }
        })?;
        Ok(Payload { form: frame.form, inline: std::mem::take(&mut frame.inline), leases })
    }

    // ---- calls

    /// Takes in what has come for an event loop. Coroutines of `event_loop`, the one that runs here, go on at once when
    /// something has come for them; their output goes with the caller's flush.
    pub fn take_in(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<VecDeque<CallFrame>> {
        if self.sender.is_in_copy() {
            return Ok(VecDeque::new());
        }
        self.loop_reads.store(true, Ordering::Relaxed);
        let mut waits = Vec::new();
        {
            let mut inbox = self.lock_inbox(py);
            match inbox.fill(self.sender.writer.socket(), false) {
                Ok(Filled::Bytes) => self.absorb(py, &mut inbox, &mut waits)?,
                Ok(Filled::Nothing) => {}
                Ok(Filled::End) => self.end(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => link_broke(&error),
            }
        }
        match event_loop {
            Some(event_loop) if !waits.is_empty() => self.go_on(event_loop, &waits)?,
            _ => end_waits(py, &waits),
        }
        Ok(std::mem::take(&mut self.queue.lock().calls))
    }

    fn go_on(&self, event_loop: &Bound<'_, PyAny>, waits: &[Py<NativeFuture>]) -> PyResult<()> {
        self.flusher.flushing_here(event_loop, || {
            for wait in waits {
                match wait.get().is_of(event_loop) {
                    true => NativeFuture::end_now(wait.bind(event_loop.py())),
                    false => NativeFuture::end_soon(wait.bind(event_loop.py())),
                }
            }
        })
    }

    /// What a slot does next; none: the worker is told to end.
    pub fn next(&self, py: Python<'_>) -> PyResult<Option<Next>> {
        loop {
            let mut queue = self.queue.lock();
            if let Some(frame) = queue.calls.pop_front() {
                drop(queue);
                self.sender.keep_company(py)?;
                return Ok(Some(Next::Call(frame)));
            }
            if queue.draining {
                self.changed.notify_all();
                drop(queue);
                py.detach(|| self.beside.get().iter().for_each(|beside| beside.leave()));
                return Ok(None);
            }
            if let Some(ready) = self.beside.get().and_then(|beside| beside.next()) {
                return Ok(Some(Next::Ready(ready)));
            }
            let reads = !std::mem::replace(&mut queue.reading, true);
            drop(queue);
            self.sender.forget_waiting();
            match reads {
                true => self.read(py, true, true)?,
                false => py.detach(|| self.wait_for_reader()),
            }
        }
    }

    // ---- waiting for something to come for a call

    /// Waits until something is there of a stream, in whatever way this thread may wait.
    pub fn wait_for(&self, py: Python<'_>, id: u64, there: impl Fn(&Stream) -> bool + Sync) -> PyResult<()> {
        while !self.streams.with(id, |stream| there(stream)).unwrap_or(true) {
            let waiter = self.waiter.lock().as_ref().map(|waiter| waiter.clone_ref(py));
            match waiter {
                Some(waiter) => drop(waiter.call1(py, (id,))?),
                None => self.wait_streams(py, id, &there)?,
            }
        }
        Ok(())
    }

    /// Waits until something happens to streams: reads the link when nobody else does.
    pub fn wait_streams(&self, py: Python<'_>, id: u64, there: impl Fn(&Stream) -> bool + Sync) -> PyResult<()> {
        if self.sender.is_in_copy() {
            let message = "this process was forked from a worker, which gets the data of the call";
            return Err(PyOSError::new_err(message));
        }
        if !self.begins_to_read() {
            py.detach(|| {
                // A link that broke is seen by the reader.
                let _ = self.sender.writer.flush();
                self.streams.wait_changed(id, &there);
            });
            return Ok(());
        }
        if self.streams.with(id, |stream| there(stream)).unwrap_or(true) {
            self.let_others_read();
            return Ok(());
        }
        self.read_for_streams(py, true)
    }

    /// Reads what has come, if somebody would have to wait for it to be read: for code that goes on without a wait, and
    /// would not learn that its client has gone.
    pub fn read_ready(&self, py: Python<'_>) -> PyResult<()> {
        if self.sender.is_in_copy() || !self.begins_to_read() {
            return Ok(());
        }
        self.read_for_streams(py, false)
    }

    // ---- reading

    /// True: this thread reads from now on, and nobody else.
    fn begins_to_read(&self) -> bool {
        !self.loop_reads.load(Ordering::Relaxed) && !std::mem::replace(&mut self.queue.lock().reading, true)
    }

    fn read_for_streams(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.read(py, false, wait)?;
        if self.queue.lock().ended {
            self.streams.cancel_all();
        }
        Ok(())
    }

    /// Whoever holds it may want the GIL: it is waited for without.
    fn lock_inbox(&self, py: Python<'_>) -> MutexGuard<'_, Inbox> {
        loop {
            match self.inbox.try_lock() {
                Some(inbox) => return inbox,
                None => py.detach(|| drop(self.inbox.lock())),
            }
        }
    }

    /// Reads once, as the one that `queue.reading` stands for. `idle`: what a handler of the user's raises hits no work.
    /// `wait`: until something has come.
    fn read(&self, py: Python<'_>, idle: bool, wait: bool) -> PyResult<()> {
        let mut inbox = self.lock_inbox(py);
        let filling = &mut *inbox;
        let writer = &self.sender.writer;
        let beside = self.beside.get().filter(|_| idle);
        let filled = py.detach(|| {
            writer.flush()?;
            match beside {
                Some(beside) if !beside.wait(wait)? => Ok(Filled::Nothing),
                Some(_) => filling.fill(writer.socket(), false),
                None => filling.fill(writer.socket(), wait),
            }
        });
        let taken = self.take_filled(py, filled, &mut inbox, idle);
        drop(inbox);
        self.let_others_read();
        taken
    }

    fn take_filled(&self, py: Python<'_>, filled: io::Result<Filled>, inbox: &mut Inbox, idle: bool) -> PyResult<()> {
        match filled {
            Ok(Filled::Bytes) => {
                let mut waits = Vec::new();
                self.absorb(py, inbox, &mut waits)?;
                end_waits(py, &waits);
            }
            Ok(Filled::Nothing) => {}
            Ok(Filled::End) => self.end(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => match py.check_signals() {
                Err(raised) if idle => raised.write_unraisable(py, None),
                handled => handled?,
            },
            Err(error) => link_broke(&error),
        }
        Ok(())
    }

    fn wait_for_reader(&self) {
        self.sender.flush_beside_reader();
        let mut queue = self.queue.lock();
        queue.idle += 1;
        let is_ready = || self.beside.get().is_some_and(|beside| beside.count() > 0);
        let goes_on = |queue: &Queue| !queue.calls.is_empty() || queue.draining || !queue.reading || is_ready();
        queue = self.changed.wait(queue, goes_on);
        queue.idle -= 1;
    }

    /// Somebody else reads now, or runs what came beyond the first call.
    fn let_others_read(&self) {
        let mut queue = self.queue.lock();
        queue.reading = false;
        let ready = self.beside.get().map_or(0, |beside| beside.count());
        let wanted = (queue.calls.len() + ready).max(1).min(queue.idle);
        drop(queue);
        for _ in 0..wanted {
            self.changed.notify_one();
        }
    }

    // ---- frames

    /// Takes whole frames out of the inbox. `waits` gets those that are to end: something has come.
    fn absorb(&self, py: Python<'_>, inbox: &mut Inbox, waits: &mut Vec<Py<NativeFuture>>) -> PyResult<()> {
        while let Some(mut received) = inbox.next_frame().unwrap_or_else(|error| link_broke(&error)) {
            let descriptor = received.descriptors.pop();
            let frame = &received.frame;
            let id = frame.head.id;
            match frame.head.kind {
                Kind::Call => self.queue_call(CallFrame::of(frame, descriptor)),
                Kind::Define => (self.on_define)(py, id as u32, frame.head.form.codec, frame.payload)?,
                Kind::Credit => waits.extend(self.streams.event(py, id, |stream| stream.credited(frame.credit()))),
                Kind::Cancel => waits.extend(self.cancel(py, id, frame.head.flags & flag::WANT_STACKS != 0)),
                Kind::Chunk => {
                    let payload = received.payload().unwrap_or_else(|error| link_broke(&error));
                    let more = frame.head.flags & flag::MORE != 0;
                    let mut is_aside = false;
                    waits.extend(self.streams.event(py, id, |stream| is_aside = stream.take(payload, more)));
                    if is_aside {
                        self.streams.tell_aside(py, id);
                    }
                }
                Kind::Channel => self.take_channel(py, descriptor),
                Kind::Stacks => self.answer_stacks(py, frame.head),
                Kind::Unreceived => self.sender.was_unreceived(id as u32),
                Kind::Drain => self.queue.lock().draining = true,
                _ => {}
            }
        }
        for region in inbox.take_unreceived() {
            self.sender.put_head(Kind::Unreceived, u64::from(region));
        }
        Ok(())
    }

    /// Answers with the stacks of all tasks or greenlets; written at once, since somebody waits for it.
    fn answer_stacks(&self, py: Python<'_>, head: Head) {
        let Some(listener) = self.on_stacks.lock().as_ref().map(|listener| listener.clone_ref(py)) else { return };
        let told = listener.call0(py).and_then(|text| {
            let text: String = text.extract(py)?;
            self.sender.put_text(Head { form: Codec::Plain.into(), ..head }, &text);
            self.sender.flush(py)
        });
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    }

    fn take_channel(&self, py: Python<'_>, channel: Option<OwnedFd>) {
        let listener = self.on_channel.lock().as_ref().map(|listener| listener.clone_ref(py));
        let (Some(listener), Some(channel)) = (listener, channel) else { return };
        if let Err(error) = listener.call1(py, (channel.into_raw_fd(),)) {
            error.write_unraisable(py, None);
        }
    }

    fn cancel(&self, py: Python<'_>, id: u64, wants_stacks: bool) -> Vec<Py<NativeFuture>> {
        let waits = self.streams.event(py, id, |stream| stream.cancelled = true);
        let listener = self.on_cancel.lock().as_ref().map(|listener| listener.clone_ref(py));
        if let Some(listener) = listener
            && let Err(error) = listener.call1(py, (id, wants_stacks))
        {
            error.write_unraisable(py, None);
        }
        waits
    }

    fn end(&self) {
        let mut queue = self.queue.lock();
        (queue.draining, queue.ended) = (true, true);
    }

    fn queue_call(&self, call: CallFrame) {
        if call.flags & flag::HAS_INPUT != 0 {
            self.streams.expect_input(call.id);
        }
        self.queue.lock().calls.push_back(call);
    }
}
