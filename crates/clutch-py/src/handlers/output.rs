//! Bytes that are to be sent to a client, or that it has not taken yet.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::held::Content;

/// Bytes that are read of a client at a time.
pub const READ_BYTES: usize = 16 << 10;

/// Content up to so many bytes is sent with what is before it as one piece; beyond, it is not copied.
pub const JOINED_BYTES_MAX: usize = 16 << 10;

/// A client that takes fewer bytes in a while has taken none.
pub const TAKEN_BYTES_MIN: usize = 1024;

/// Bytes that may wait while the app goes on.
const ROOM_BYTES: usize = 256 << 10;

/// So much is sent at once, and not when the turn is over.
const MUCH_BYTES: usize = 64 << 10;

/// Most pieces that are sent at a time.
const PIECES_MAX: usize = 8;

enum Piece {
    Own(Vec<u8>),
    Apps(Py<PyBytes>),
}

impl Piece {
    fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Apps(bytes) => bytes.bind(py).as_bytes(),
        }
    }
}

/// What waits for a client.
#[derive(Default)]
pub struct Output {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    sent: usize,
    waiting: usize,
    /// When the client had taken enough last, while it does not take all; and how much since.
    since: Option<Instant>,
    taken: usize,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub fn has_room(&self) -> bool {
        self.waiting < ROOM_BYTES
    }

    pub fn is_much(&self) -> bool {
        self.waiting >= MUCH_BYTES
    }

    /// Since when the client has taken next to nothing of what waits.
    pub fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Adds bytes, and then content.
    pub fn put(&mut self, mut bytes: Vec<u8>, content: Content<'_, '_>) {
        let given = content.bytes();
        self.waiting += bytes.len() + given.len();
        let is_joined = given.len() <= JOINED_BYTES_MAX;
        if is_joined {
            bytes.extend_from_slice(given);
        }
        match self.pieces.back_mut() {
            Some(Piece::Own(last)) if last.len() <= JOINED_BYTES_MAX => last.extend_from_slice(&bytes),
            _ if bytes.is_empty() => {}
            _ => self.pieces.push_back(Piece::Own(bytes)),
        }
        if !is_joined {
            self.pieces.push_back(match content {
                Content::Bytes(bytes) => Piece::Apps(bytes.clone().unbind()),
                Content::Slice(bytes) => Piece::Own(bytes.to_vec()),
            });
        }
    }

    /// Sends as much as there is room for. An error: the client is gone.
    pub fn go_on(&mut self, py: Python<'_>, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.waiting > 0 {
            let count = send(socket, py, &self.pieces, self.sent)?;
            if count == 0 {
                self.since.get_or_insert_with(Instant::now);
                return Ok(());
            }
            self.drop_sent(py, count);
        }
        (self.since, self.taken) = (None, 0);
        Ok(())
    }

    /// Whether [`Output::send_early`] has something to send.
    pub fn goes_early(&self) -> bool {
        self.pieces.len() == 1 && matches!(self.pieces.front(), Some(Piece::Own(_)))
    }

    /// Sends of a single piece that is not Python's what there is room for, without Python. Whoever comes after goes on.
    pub fn send_early(&mut self, socket: BorrowedFd<'_>) {
        let [Piece::Own(bytes)] = self.pieces.make_contiguous() else { return };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // What is wrong with the socket is found then.
        let count = rustix::net::send(socket, &bytes[self.sent..], flags).unwrap_or_default();
        self.sent += count;
        self.waiting -= count;
        if self.sent == bytes.len() {
            self.pieces.clear();
            self.sent = 0;
        }
    }

    fn drop_sent(&mut self, py: Python<'_>, count: usize) {
        self.waiting -= count;
        self.sent += count;
        while let Some(length) = self.pieces.front().map(|first| first.bytes(py).len()).filter(|one| *one <= self.sent)
        {
            self.sent -= length;
            self.pieces.pop_front();
        }
        self.taken += count;
        if self.since.is_some() && self.taken >= TAKEN_BYTES_MIN {
            (self.since, self.taken) = (Some(Instant::now()), 0);
        }
    }

    /// All that is not sent.
    pub fn unsent(&self, py: Python<'_>) -> Vec<u8> {
        let all: Vec<&[u8]> = self.pieces.iter().map(|piece| piece.bytes(py)).collect();
        all.concat().split_off(self.sent)
    }

    pub fn clear(&mut self) {
        *self = Output::default();
    }
}

/// Returns how much was sent; 0: the socket has no room.
fn send(socket: BorrowedFd<'_>, py: Python<'_>, pieces: &VecDeque<Piece>, sent: usize) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let first = pieces.front().map_or(&[][..], |first| &first.bytes(py)[sent..]);
    let count = match pieces.len() {
        1 => rustix::net::send(socket, first, flags),
        count => {
            let mut parts = [IoSlice::new(&[]); PIECES_MAX];
            parts[0] = IoSlice::new(first);
            for (part, piece) in parts[1..].iter_mut().zip(pieces.iter().skip(1)) {
                *part = IoSlice::new(piece.bytes(py));
            }
            let parts = &parts[..count.min(PIECES_MAX)];
            rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)
        }
    };
    match count.map_err(io::Error::from) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        sent => sent,
    }
}
