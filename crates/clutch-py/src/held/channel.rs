//! The worker's end of the channel to a front: messages as they come, and those that wait to be sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use clutch_fronts::held::message::{MESSAGE_BYTES_MAX, ToFront, Told};
use clutch_fronts::held::sums::Sums;
use clutch_wire::forked::Tracked;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;

use super::front::{RECORDS_WAIT, SUMS_WAIT};

/// Bytes of records that are sent as one message; then they wait for no others.
const RECORDS_BYTES: usize = 32 << 10;

/// So many requests are told of as soon as records are: the pool counts those of a worker that has so many to live.
const SUMMED_MANY: u64 = 128;

#[derive(Default)]
struct Outgoing {
    /// Messages that the socket had no room for.
    waiting: VecDeque<Vec<u8>>,
    /// Records that wait for more.
    records: Vec<u8>,
    /// The same of requests that nobody wants to know one by one.
    sums: Sums,
    /// When something was sent last, in nanoseconds of the coarse clock.
    sent_ns: u64,
    is_closed: bool,
}

pub(super) struct Channel {
    socket: Tracked,
    outgoing: Mutex<Outgoing>,
    buffer: Mutex<Vec<u8>>,
}

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Channel {
        Channel { socket: Tracked::new(socket), outgoing: Mutex::default(), buffer: Mutex::default() }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next message and its descriptor; an empty one: the other end is gone; none: nothing has come.
    pub(super) fn receive(&self) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let mut buffer = self.buffer.lock();
        buffer.resize(MESSAGE_BYTES_MAX, 0);
        let mut descriptors = Vec::new();
        match sys::receive_with_descriptors(self.socket.as_fd(), &mut buffer, &mut descriptors, false) {
            Ok(count) => Some((buffer[..count].to_vec(), descriptors.pop())),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
            Err(_) => Some((Vec::new(), None)),
        }
    }

    /// A record waits for more, or for another message.
    pub(super) fn record(&self, record: Told<'_>) {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.sums.add(&record) {
            outgoing.append(&ToFront::Told(record));
        }
    }

    /// Sends the records that wait, if there are many, or if nothing was sent for a while. Returns how long they wait for
    /// others; none: there are none.
    pub(super) fn flush_when_due(&self) -> Option<Duration> {
        let mut outgoing = self.outgoing.lock();
        let (bytes, summed) = (outgoing.records.len(), outgoing.sums.calls());
        if bytes == 0 && summed == 0 {
            return None;
        }
        let wait = if bytes == 0 && summed < SUMMED_MANY { SUMS_WAIT } else { RECORDS_WAIT };
        let ago = Duration::from_nanos(sys::coarse_ns().saturating_sub(outgoing.sent_ns));
        if bytes < RECORDS_BYTES && !outgoing.sums.is_full() && ago < wait {
            return Some(wait - ago);
        }
        outgoing.take_records();
        outgoing.send(&self.socket);
        None
    }

    /// Sends a message, and the records before it.
    pub(super) fn say(&self, message: &ToFront<'_>) {
        let mut outgoing = self.outgoing.lock();
        outgoing.take_records();
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        outgoing.waiting.push_back(bytes);
        outgoing.send(&self.socket);
    }

    /// Sends what waits, records too.
    pub(super) fn flush(&self) {
        let mut outgoing = self.outgoing.lock();
        outgoing.take_records();
        outgoing.send(&self.socket);
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.outgoing.lock().waiting.is_empty()
    }

    /// Whether the other end is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.outgoing.lock().is_closed
    }

    /// Nothing more is sent.
    pub(super) fn close(&self) {
        *self.outgoing.lock() = Outgoing { is_closed: true, ..Outgoing::default() };
    }
}

impl Outgoing {
    /// Records that do not fit into one message go in several.
    fn append(&mut self, record: &ToFront<'_>) {
        let at = self.records.len();
        record.put(&mut self.records);
        if self.records.len() > MESSAGE_BYTES_MAX {
            let last = self.records.split_off(at);
            self.put_records();
            self.records = last;
        }
    }

    fn take_records(&mut self) {
        let mut sums = std::mem::take(&mut self.sums);
        sums.tell(|sum| self.append(&ToFront::Sum(sum)));
        self.put_records();
    }

    fn put_records(&mut self) {
        if !self.records.is_empty() {
            self.waiting.push_back(std::mem::take(&mut self.records));
            self.sent_ns = sys::coarse_ns();
        }
    }

    fn send(&mut self, socket: &Tracked) {
        while let Some(message) = self.waiting.front() {
            match sys::send(socket.as_fd(), message, &[], false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A front that is gone hears nothing.
                _ => drop(self.waiting.pop_front()),
            }
        }
        if self.is_closed {
            self.waiting.clear();
        }
    }
}
