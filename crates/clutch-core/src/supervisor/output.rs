//! What workers print: line by line to the dispatcher's own stdout and stderr, prefixed; the last bytes are kept.
//!
//! One thread for the whole process reads the pipes and writes. A slow reader of our stdout slows the workers' prints, and
//! the end of a program, which waits for them; a closed one is ignored.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::sync::{Condvar, Mutex};

use crate::forked::{self, PerProcess, Tracked};
use crate::stdio::Stream;
use crate::sys::{self, Poller};

/// A line longer than this is passed on in pieces.
const LINE_BYTES_MAX: usize = 16 << 10;

/// The last output of one worker, both streams in the order of arrival.
#[derive(Debug)]
pub struct Tail {
    bytes: Mutex<VecDeque<u8>>,
    kept: usize,
}

impl Tail {
    pub fn new(kept: usize) -> Arc<Tail> {
        Arc::new(Tail { bytes: Mutex::new(VecDeque::new()), kept })
    }

    fn add(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock();
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(self.kept);
        kept.drain(..surplus);
    }

    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.lock().iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The read end of one pipe.
struct Source {
    pipe: OwnedFd,
    stream: Stream,
    prefix: String,
    tail: Arc<Tail>,
    state: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    partial: Vec<u8>,
    /// Prefixed lines that wait to be written.
    ready: Vec<u8>,
    ended: bool,
}

impl Source {
    /// Takes in what the pipe holds now; true while it may bring more.
    fn read(&self) -> bool {
        let mut state = self.state.lock();
        let mut bytes = [0u8; 16 << 10];
        // Bounded, so that one loud worker does not keep the others from being heard.
        for _ in 0..16 {
            match rustix::io::read(&self.pipe, &mut bytes) {
                Ok(0) => {
                    state.ended = true;
                    state.end_line(&self.prefix);
                    return false;
                }
                Ok(count) => {
                    self.tail.add(&bytes[..count]);
                    state.add(&self.prefix, &bytes[..count]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return !state.ended,
            }
        }
        true
    }
}

impl Lines {
    fn add(&mut self, prefix: &str, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LINE_BYTES_MAX {
                self.end_line(prefix);
            }
        }
    }

    fn end_line(&mut self, prefix: &str) {
        if self.partial.is_empty() {
            return;
        }
        self.ready.extend_from_slice(prefix.as_bytes());
        self.ready.append(&mut self.partial);
        if self.ready.last() != Some(&b'\n') {
            self.ready.push(b'\n');
        }
    }
}

struct Reader {
    poller: Poller,
    sources: Mutex<HashMap<u64, Arc<Source>>>,
    next: AtomicU64,
    /// Somebody waits for what the pipes hold now.
    bell: Tracked,
    rounds: Mutex<Rounds>,
    changed: Condvar,
}

/// Times that all pipes were looked at because somebody waits for what they hold.
#[derive(Default)]
struct Rounds {
    asked: u64,
    done: u64,
    /// There will be no more.
    over: bool,
}

static READER: PerProcess<Reader> = PerProcess::new();

/// The one reader of this process.
fn reader() -> io::Result<&'static Reader> {
    READER.served("clutch-output", Reader::new, Reader::run)
}

/// What workers have printed by the time this was made.
pub struct Printed {
    reader: &'static Reader,
    round: u64,
}

impl Printed {
    /// None: this process has no workers.
    pub fn by_now() -> Option<Printed> {
        let reader = READER.made()?;
        let round = {
            let mut rounds = reader.rounds.lock();
            rounds.asked += 1;
            rounds.asked
        };
        sys::signal_event(reader.bell.as_fd());
        Some(Printed { reader, round })
    }

    /// Waits until it is written; false: not before the deadline.
    pub fn wait_written(&self, deadline: Instant) -> bool {
        let reader = self.reader;
        reader.changed.wait_until(reader.rounds.lock(), deadline, |rounds| rounds.done >= self.round || rounds.over).1
    }
}

const BELL: u64 = 0;

impl Reader {
    fn new() -> io::Result<Reader> {
        let (poller, bell) = (Poller::new()?, Tracked::new(sys::event_fd()?));
        poller.add(bell.as_fd(), BELL, false)?;
        // As long as the process; a copy that used it would have the pipes of this one in it, and this one its own.
        forked::track(poller.as_raw_fd());
        let (sources, next) = (Mutex::default(), AtomicU64::new(BELL + 1));
        Ok(Reader { poller, sources, next, bell, rounds: Mutex::default(), changed: Condvar::new() })
    }

    fn run(&self) {
        sys::block_signals();
        let mut tokens = Vec::new();
        while self.poller.wait(&mut tokens, None).is_ok() {
            for token in tokens.drain(..) {
                match token {
                    BELL => self.look_at_all(),
                    token => self.pass_on(token),
                }
            }
        }
        self.rounds.lock().over = true;
        self.changed.notify_all();
    }

    fn pass_on(&self, token: u64) {
        let Some(source) = self.sources.lock().get(&token).cloned() else { return };
        let more = source.read();
        let ready = std::mem::take(&mut source.state.lock().ready);
        let mut ours = source.stream;
        // Whoever closed it does not want it.
        let _ = ours.write_all(&ready);
        if !more {
            self.poller.remove(source.pipe.as_fd());
            self.sources.lock().remove(&token);
        }
    }

    fn look_at_all(&self) {
        sys::clear_event(self.bell.as_fd());
        let asked = self.rounds.lock().asked;
        let tokens: Vec<u64> = self.sources.lock().keys().copied().collect();
        tokens.into_iter().for_each(|token| self.pass_on(token));
        self.rounds.lock().done = asked;
        self.changed.notify_all();
    }
}

impl Drop for Reader {
    /// Another one was first, or no thread could be started for it.
    fn drop(&mut self) {
        forked::untrack(self.poller.as_raw_fd());
    }
}

/// The pipes of one worker as the dispatcher holds them.
pub struct Output {
    sources: Vec<Arc<Source>>,
    pub tail: Arc<Tail>,
}

impl Output {
    /// Makes two pipes; returns the write ends for stdout and stderr.
    pub fn open(prefix: &str, kept: usize) -> io::Result<(Output, OwnedFd, OwnedFd)> {
        let tail = Tail::new(kept);
        let (out, out_write) = source(Stream::Out, prefix, &tail)?;
        let (err, err_write) = source(Stream::Err, prefix, &tail)?;
        Ok((Output { sources: vec![out, err], tail }, out_write, err_write))
    }

    /// The last output, with what the pipes still hold.
    pub fn last(&self) -> String {
        for source in &self.sources {
            source.read();
        }
        self.tail.text()
    }
}

fn source(stream: Stream, prefix: &str, tail: &Arc<Tail>) -> io::Result<(Arc<Source>, OwnedFd)> {
    let (read, write) = sys::pipe()?;
    rustix::io::ioctl_fionbio(&read, true)?;
    let state = Mutex::default();
    let source = Arc::new(Source { pipe: read, stream, prefix: format!("[{prefix}] "), tail: tail.clone(), state });
    let reader = reader()?;
    let token = reader.next.fetch_add(1, Ordering::Relaxed);
    reader.sources.lock().insert(token, source.clone());
    if let Err(error) = reader.poller.add(source.pipe.as_fd(), token, false) {
        reader.sources.lock().remove(&token);
        return Err(error);
    }
    Ok((source, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_prefixed_and_pieces_wait_for_their_end() {
        let mut lines = Lines::default();
        lines.add("[a/0] ", b"one\ntw");
        assert_eq!(lines.ready, b"[a/0] one\n");
        lines.add("[a/0] ", b"o\n");
        assert_eq!(lines.ready, b"[a/0] one\n[a/0] two\n");
    }

    #[test]
    fn failure_8_only_the_last_bytes_are_kept() {
        let tail = Tail::new(8);
        tail.add(&[b'x'; 1 << 20]);
        tail.add(b"the end!");
        assert_eq!(tail.text(), "the end!");
    }
}
