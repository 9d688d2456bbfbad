//! Our own stdout and stderr. Past the standard library's, whose locks a fork may leave taken in the copy for good.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::stdio;

use crate::forked::PerProcess;
use crate::sync::Mutex;
use crate::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Streams that this process was started without. The number of such a one is that of whatever file was opened since.
static MISSING: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

impl Stream {
    /// Stops writing to the stream.
    pub fn leave_out(self) {
        MISSING[self as usize].store(true, Ordering::Relaxed);
    }

    fn descriptor(self) -> Option<BorrowedFd<'static>> {
        let is_missing = MISSING[self as usize].load(Ordering::Relaxed);
        (!is_missing).then(|| match self {
            Stream::Out => stdio::stdout(),
            Stream::Err => stdio::stderr(),
        })
    }
}

impl Write for Stream {
    /// Writes all of it, without interleaving with other threads.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        static TURNS: [PerProcess<Mutex<()>>; 2] = [PerProcess::new(), PerProcess::new()];
        let Some(ours) = self.descriptor() else { return Ok(bytes.len()) };
        let (turn, _) = TURNS[*self as usize].get(|| Ok(Mutex::new(())))?;
        let _turn = turn.lock();
        let mut left = bytes;
        while !left.is_empty() {
            match rustix::io::write(ours, left) {
                Ok(count) => left = &left[count..],
                Err(Errno::INTR) => {}
                // Somebody who has it, too, made it so.
                Err(Errno::AGAIN) => sys::wait_writable(ours)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
