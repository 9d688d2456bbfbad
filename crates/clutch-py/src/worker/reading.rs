//! The reading side of a worker's link: who reads, and where each frame goes that has come.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clutch_pool::link::{Filled, Inbox};
use clutch_wire::Codec;
use clutch_wire::frame::{self, Head, Kind, flag};
use clutch_wire::sync::MutexGuard;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::native_future::NativeFuture;
use super::streams::{self, end_waits, flush_soon};
use super::{COMPANY, CallFrame, Defined, Entry, WorkerLink, link_broke};

impl WorkerLink {
    /// What has come for an event loop. Coroutines of `event_loop`, the one that runs here, go on at once when something has come for them.
    pub(super) fn take_in(
        slf: &Bound<'_, Self>,
        event_loop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<VecDeque<CallFrame>> {
        let link = slf.get();
        if link.is_in_copy() {
            return Ok(VecDeque::new());
        }
        link.loop_reads.store(true, Ordering::Relaxed);
        let mut told = Vec::new();
        {
            let mut inbox = link.lock_inbox(slf.py());
            match inbox.fill(link.writer.socket(), false) {
                Ok(Filled::Bytes) => link.absorb(slf.py(), &mut inbox, &mut told)?,
                Ok(Filled::Nothing) => {}
                Ok(Filled::End) => link.end(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => link_broke(&error),
            }
        }
        match event_loop {
            Some(event_loop) => Self::go_on(slf, event_loop, told)?,
            None => end_waits(slf.py(), &told),
        }
        Ok(std::mem::take(&mut link.queue.lock().calls))
    }

    /// Ends waits: coroutines of this loop go on at once, and what they send goes with the caller's flush.
    fn go_on(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>, told: Vec<Py<NativeFuture>>) -> PyResult<()> {
        let py = slf.py();
        if told.is_empty() {
            return Ok(());
        }
        let flushes = streams::flush_here(event_loop);
        for waiter in told {
            match waiter.get().is_of(event_loop) {
                true => NativeFuture::end_now(waiter.bind(py)),
                false => NativeFuture::end_soon(waiter.bind(py)),
            }
        }
        if flushes {
            streams::flush_no_more();
            if !slf.get().holding.lock().is_empty() {
                flush_soon(slf)?;
            }
        }
        Ok(())
    }

    /// The next call for a slot; none: the worker is told to end.
    pub(super) fn next_call(&self, py: Python<'_>) -> PyResult<Option<CallFrame>> {
        loop {
            let mut queue = self.queue.lock();
            if let Some(frame) = queue.calls.pop_front() {
                drop(queue);
                self.keep_company(py)?;
                return Ok(Some(frame));
            }
            if queue.draining {
                self.changed.notify_all();
                return Ok(None);
            }
            let reads = !std::mem::replace(&mut queue.reading, true);
            drop(queue);
            self.waiting_ns.store(0, Ordering::Relaxed);
            match reads {
                true => self.read(py, true)?,
                false => py.detach(|| self.wait_for_reader()),
            }
        }
    }

    /// Results may wait for those of the calls at hand, but not for long.
    fn keep_company(&self, py: Python<'_>) -> PyResult<()> {
        match self.waiting_ns.load(Ordering::Relaxed) {
            0 => Ok(()),
            since if self.born.elapsed() > COMPANY + Duration::from_nanos(since) => self.flush(py),
            _ => {
                self.writer.write_soon();
                Ok(())
            }
        }
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
    pub(super) fn read(&self, py: Python<'_>, idle: bool) -> PyResult<()> {
        let mut inbox = self.lock_inbox(py);
        let filling = &mut *inbox;
        let filled = py.detach(|| {
            self.writer.flush()?;
            filling.fill(self.writer.socket(), true)
        });
        let taken = self.take_filled(py, filled, &mut inbox, idle);
        drop(inbox);
        self.let_others_read();
        taken
    }

    fn take_filled(&self, py: Python<'_>, filled: io::Result<Filled>, inbox: &mut Inbox, idle: bool) -> PyResult<()> {
        match filled {
            Ok(Filled::Bytes) => {
                let mut told = Vec::new();
                self.absorb(py, inbox, &mut told)?;
                end_waits(py, &told);
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
        self.flush_beside_reader();
        let mut queue = self.queue.lock();
        queue.idle += 1;
        queue = self.changed.wait(queue, |queue| !queue.calls.is_empty() || queue.draining || !queue.reading);
        queue.idle -= 1;
    }

    /// A link whose other end is gone is seen by the reader. One whose descriptor was closed here is not: who waits in the
    /// kernel waits on what it was.
    pub(super) fn flush_beside_reader(&self) {
        match self.writer.flush() {
            Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                link_broke(&error)
            }
            _ => {}
        }
    }

    /// Somebody else reads now, or runs what came beyond the first call.
    pub(super) fn let_others_read(&self) {
        let mut queue = self.queue.lock();
        queue.reading = false;
        let wanted = queue.calls.len().max(1).min(queue.idle);
        drop(queue);
        for _ in 0..wanted {
            self.changed.notify_one();
        }
    }

    /// Takes whole frames out of the inbox. `told` gets the waits that are to end: something has come.
    fn absorb(&self, py: Python<'_>, inbox: &mut Inbox, told: &mut Vec<Py<NativeFuture>>) -> PyResult<()> {
        while let Some(mut received) = inbox.next_frame().unwrap_or_else(|error| link_broke(&error)) {
            let descriptor = received.descriptors.pop();
            let frame = &received.frame;
            let id = frame.head.id;
            match frame.head.kind {
                Kind::Call => self.queue_call(frame, descriptor),
                Kind::Define => self.define(py, id as usize, frame.head.codec, frame.payload)?,
                Kind::Credit => told.extend(self.stream_event(py, id, |stream| stream.credited(frame.credit()))),
                Kind::Cancel => told.extend(self.cancel(py, id, frame.head.flags & flag::WANT_STACKS != 0)),
                Kind::Chunk => {
                    let payload = received.payload().unwrap_or_else(|error| link_broke(&error));
                    let more = frame.head.flags & flag::MORE != 0;
                    told.extend(self.stream_event(py, id, |stream| stream.take(payload, more)));
                }
                Kind::Stacks => self.answer_stacks(py, frame.head),
                Kind::Unreceived => self.announced.lock().was_unreceived(id as u32),
                Kind::Drain => self.queue.lock().draining = true,
                _ => {}
            }
        }
        for region in inbox.take_unreceived() {
            let region = u64::from(region);
            self.writer.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Unreceived, region, 0));
        }
        Ok(())
    }

    /// Where all tasks or greenlets stand; written at once, for somebody waits for it.
    fn answer_stacks(&self, py: Python<'_>, head: Head) {
        let Some(listener) = self.on_stacks.lock().as_ref().map(|listener| listener.clone_ref(py)) else { return };
        let told = listener.call0(py).and_then(|text| {
            let text: String = text.extract(py)?;
            let head = Head { codec: Codec::Plain, ..head };
            self.writer.outbox.push(|out| frame::put_text(&mut out.bytes, head, text.as_bytes()));
            self.flush(py)
        });
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    }

    fn cancel(&self, py: Python<'_>, id: u64, wants_stacks: bool) -> Vec<Py<NativeFuture>> {
        let told = self.stream_event(py, id, |stream| stream.cancelled = true);
        let listener = self.on_cancel.lock().as_ref().map(|listener| listener.clone_ref(py));
        if let Some(listener) = listener
            && let Err(error) = listener.call1(py, (id, wants_stacks))
        {
            error.write_unraisable(py, None);
        }
        told
    }

    fn end(&self) {
        let mut queue = self.queue.lock();
        (queue.draining, queue.ended) = (true, true);
    }

    fn queue_call(&self, frame: &frame::Frame<'_>, descriptor: Option<OwnedFd>) {
        if frame.head.flags & flag::HAS_INPUT != 0 {
            self.streams.lock().entry(frame.head.id).or_default();
        }
        let call = CallFrame {
            id: frame.head.id,
            word: frame.word(),
            function: frame.function(),
            deadline_ns: frame.deadline_ns(),
            skip: frame.skip(),
            flags: frame.head.flags,
            codec: frame.head.codec,
            descriptor,
            inline: frame.payload.to_vec(),
            regions: frame.regions().collect(),
        };
        self.queue.lock().calls.push_back(call);
    }

    /// Runs none of the user's code: that may take for ever, and whatever else the worker does waits for who reads.
    fn define(&self, py: Python<'_>, at: usize, codec: Codec, body: &[u8]) -> PyResult<()> {
        let source = self.resolve.bind(py).call1((codec as u8, PyBytes::new(py, body)))?;
        let made = match codec {
            Codec::Name => OnceLock::from(Arc::new(Entry::of(&source, true)?)),
            _ => OnceLock::new(),
        };
        let defined = Defined { made, source: source.unbind() };
        let mut functions = self.functions.lock();
        if functions.len() <= at {
            functions.resize_with(at + 1, || None);
        }
        functions[at] = Some(Arc::new(defined));
        Ok(())
    }
}
