//! The read end of one pipe.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use clutch_wire::sync::Mutex;

use super::lines::{Lines, Tail};
use super::style::Label;

/// The read end of one pipe, and what it has brought.
pub(super) struct Source {
    pub(super) pipe: OwnedFd,
    pub(super) label: Label,
    pub(super) lines: Mutex<Lines>,
    tail: Arc<Tail>,
}

impl Source {
    pub(super) fn new(pipe: OwnedFd, label: Label, tail: Arc<Tail>) -> io::Result<Source> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Source { pipe, label, lines: Mutex::default(), tail })
    }

    /// Takes in what the pipe holds now; true while it may bring more.
    pub(super) fn read(&self) -> bool {
        let mut lines = self.lines.lock();
        let mut bytes = [0u8; 16 << 10];
        // Bounded, so that one loud worker does not keep the others from being heard.
        for _ in 0..16 {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => {
                    lines.end_line(&self.label);
                    return false;
                }
                Ok(count) => {
                    self.tail.add(&bytes[..count]);
                    lines.add(&self.label, &bytes[..count], Instant::now());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
        true
    }
}
