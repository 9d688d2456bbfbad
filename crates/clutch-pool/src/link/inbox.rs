//! Inbox of a link: bytes that were read and not yet taken as frames.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use clutch_wire::Payload;
use clutch_wire::frame::{self, Frame, HEAD_BYTES, Kind, WireError};
use clutch_wire::region::{Lease, RegionTable};
use clutch_wire::sync::Mutex;
use clutch_wire::sys;

use super::journal::{Journal, Position};
use super::outbox::MESSAGE_BYTES_MAX;

/// Room that the read buffer grows by: more than one message always fits.
const READ_BYTES: usize = 2 * MESSAGE_BYTES_MAX;

/// Result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    Bytes,
    Nothing,
    End,
}

/// Bytes that were read and not yet taken as frames.
#[derive(Debug, Default)]
pub struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Descriptors of each message that carried some, as many as arrived: the kernel drops those that this process may
    /// not have.
    descriptors: VecDeque<Vec<OwnedFd>>,
    /// The next message carries descriptors. Others are received without room for any, which costs less.
    carrying: bool,
    /// Position of the next bytes in the link's byte stream.
    position: Position,
    /// Regions whose descriptors did not arrive; the other end is to be told.
    unreceived: Vec<u32>,
    pub regions: Arc<Mutex<RegionTable>>,
}

impl Inbox {
    /// Reads once. With `wait` it blocks until there is something.
    pub fn fill(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<Filled> {
        self.make_room();
        let mut descriptors = Vec::new();
        let received = match self.carrying {
            true => sys::receive_with_descriptors(socket, &mut self.buffer[self.end..], &mut descriptors, wait),
            false => sys::receive(socket, &mut self.buffer[self.end..], wait),
        };
        match received {
            Ok(0) => Ok(Filled::End),
            Ok(count) => {
                if self.carrying {
                    self.descriptors.push_back(descriptors);
                }
                self.carrying = self.start == self.end && is_notice(&self.buffer[self.end..self.end + count]);
                self.advance(if self.carrying { 0 } else { count });
                Ok(Filled::Bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Filled::Nothing),
            // The other end died with messages unread; what it had written itself comes next.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.fill(socket, wait),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(Filled::End),
            Err(error) => Err(error),
        }
    }

    /// Goes on in the journal where the socket of a dead worker has ended; whether there was something.
    pub fn fill_from(&mut self, journal: &Journal) -> bool {
        let Some(rest) = journal.since(self.position) else { return false };
        self.buffer.truncate(self.end);
        self.buffer.extend_from_slice(&rest);
        self.advance(rest.len());
        !rest.is_empty()
    }

    fn advance(&mut self, count: usize) {
        self.end += count;
        self.position = self.position.wrapping_add(count as Position);
    }

    /// Regions whose descriptors did not arrive since this was asked last.
    pub fn take_unreceived(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unreceived)
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < MESSAGE_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let wanted = self.wanted().max(self.end + READ_BYTES);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
    }

    /// Length of the frame that is being received, as far as its head is known.
    fn wanted(&self) -> usize {
        match self.buffer.get(self.start..self.start + 4) {
            Some(head) if self.end - self.start >= 4 => {
                let body = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
                HEAD_BYTES + body.min(frame::FRAME_BYTES_MAX)
            }
            _ => 0,
        }
    }

    /// The next whole frame. Region announcements are taken note of and not returned.
    pub fn next_frame(&mut self) -> Result<Option<Received<'_>>, WireError> {
        loop {
            let at = self.start;
            let Some(end) = frame::frame_bytes(&self.buffer[at..self.end])?.map(|len| at + len) else {
                return Ok(None);
            };
            if end > self.end {
                return Ok(None);
            }
            self.start = end;
            if self.buffer[at + 4] == Kind::Descriptor as u8 {
                self.take_region(at, end)?;
                continue;
            }
            let Some((frame, _)) = Frame::parse(&self.buffer[at..end])? else { return Ok(None) };
            let carries = frame.descriptors() > 0;
            let descriptors = if carries { self.descriptors.pop_front().unwrap_or_default() } else { Vec::new() };
            return Ok(Some(Received { frame, bytes: &self.buffer[at..end], regions: &self.regions, descriptors }));
        }
    }

    /// All that comes next and is nothing but small results of this batch, one frame after the other: how many, how many
    /// of them failed, and their bytes as they came.
    pub fn next_items(&mut self, batch: u64) -> (u32, u32, &[u8]) {
        let (at, mut count, mut failed) = (self.start, 0, 0);
        while let Some((len, is_failure)) = frame::item_bytes(&self.buffer[self.start..self.end], batch) {
            self.start += len;
            count += 1;
            failed += u32::from(is_failure);
        }
        (count, failed, &self.buffer[at..self.start])
    }

    /// Takes note of a region that is announced, or is no more.
    fn take_region(&mut self, at: usize, end: usize) -> Result<(), WireError> {
        let Some((frame, _)) = Frame::parse(&self.buffer[at..end])? else { return Ok(()) };
        let descriptor = if frame.descriptors() > 0 { self.descriptors.pop_front() } else { None };
        let (id, descriptor) = (frame.head.id as u32, descriptor.into_iter().flatten().next());
        if !self.regions.lock().announce(id, frame.size(), descriptor)? {
            self.unreceived.push(id);
        }
        Ok(())
    }
}

/// Whether a message is the word that the next one carries descriptors. (Only between frames: inside one, bytes are
/// anything.)
fn is_notice(message: &[u8]) -> bool {
    message.len() == HEAD_BYTES && message[..4] == [0; 4] && message[4] == Kind::Carrying as u8
}

/// A frame with what came beside it.
#[derive(Debug)]
pub struct Received<'a> {
    pub frame: Frame<'a>,
    /// All of the frame, as it came.
    pub bytes: &'a [u8],
    regions: &'a Mutex<RegionTable>,
    pub descriptors: Vec<OwnedFd>,
}

impl Received<'_> {
    /// Takes hold of the payload's regions. Of a call only after its word was claimed: a call that the dispatcher took
    /// back has its regions lent to another worker by now.
    pub fn leases(&self) -> Result<Vec<Arc<Lease>>, WireError> {
        RegionTable::leases(self.regions, self.frame.regions())
    }

    pub fn payload(&self) -> Result<Payload, WireError> {
        Ok(Payload { form: self.frame.head.form, inline: self.frame.payload.to_vec(), leases: self.leases()? })
    }
}
