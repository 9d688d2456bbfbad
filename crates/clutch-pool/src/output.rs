//! Output of workers: line by line to the dispatcher's own stdout and stderr, with the worker's name; the last bytes are
//! kept.
//!
//! A single thread of the process reads the pipes and writes. A slow reader of our stdout slows the workers' prints, and
//! the end of a program, which waits for them; a closed one is ignored. A traceback is one line or one write of its worker:
//! see `_worker/tracebacks.py`.

mod lines;
mod source;
mod style;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clutch_wire::forked::{self, PerProcess, Tracked};
use clutch_wire::stdio::Stream;
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys::{self, Poller};
use clutch_wire::terminal;

pub use self::lines::Tail;
use self::source::Source;
use self::style::Label;
pub use self::style::Style;

/// Maximum time that another line for the terminal waits for what workers have printed before it: the reader is late on
/// a busy machine, and stands still only where the terminal does.
const LINE_WAIT: Duration = Duration::from_secs(5);

static STYLE: Mutex<Style> = Mutex::new(Style::Named);

/// Sets the style for workers that start from now on.
pub fn pass_on_as(style: Style) {
    *STYLE.lock() = style;
    if style == Style::Plain {
        terminal::write_first(|| {
            let deadline = Instant::now() + LINE_WAIT;
            let _ = Printed::by_now().map(|printed| printed.wait_written(deadline));
        });
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
    unfinished: Mutex<Unfinished>,
}

/// Lines whose end has not come.
#[derive(Default)]
struct Unfinished {
    /// Sources that have the beginning of one.
    sources: BTreeSet<u64>,
    /// The source whose line was written last, as far as it had come.
    open: Option<u64>,
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

/// The output of workers up to the time at which this was made.
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
        let (rounds, changed, unfinished) = (Mutex::default(), Condvar::new(), Mutex::default());
        Ok(Reader { poller, sources, next, bell, rounds, changed, unfinished })
    }

    fn run(&self) {
        sys::block_signals();
        let mut tokens = Vec::new();
        while self.poller.wait(&mut tokens, self.next_due()).is_ok() {
            terminal::wait_free();
            // In the order in which they have come; the bell stands for all that has come before it.
            let rings = tokens.contains(&BELL);
            tokens.drain(..).filter(|token| *token != BELL).for_each(|token| self.pass_on(token));
            if rings {
                self.look_at_all();
            }
            self.begin_lines(Instant::now());
        }
        self.rounds.lock().over = true;
        self.changed.notify_all();
    }

    fn pass_on(&self, token: u64) {
        let Some(source) = self.sources.lock().get(&token).cloned() else { return };
        let more = source.read();
        self.write(token, &source);
        if !more {
            self.poller.remove(source.pipe.as_fd());
            self.sources.lock().remove(&token);
        }
    }

    /// Writes what is ready of a source; behind the beginning of another one's line on a line of its own.
    fn write(&self, token: u64, source: &Source) {
        let (ready, is_open, due) = {
            let mut lines = source.lines.lock();
            (lines.take_ready(), lines.is_open(), lines.due_at(&source.label))
        };
        let broken_off = {
            let mut unfinished = self.unfinished.lock();
            if due.is_some() {
                unfinished.sources.insert(token);
            } else {
                unfinished.sources.remove(&token);
            }
            let before = (!ready.is_empty()).then(|| std::mem::replace(&mut unfinished.open, is_open.then_some(token)));
            before.flatten().filter(|before| *before != token)
        };
        // Whoever closed a stream does not want it.
        if let Some(other) = broken_off.and_then(|other| self.sources.lock().get(&other).cloned()) {
            other.lines.lock().break_off();
            let mut theirs = other.label.stream;
            let _ = theirs.write_all(b"\n");
        }
        let mut ours = source.label.stream;
        let _ = ours.write_all(&ready);
    }

    fn unfinished(&self) -> Vec<(u64, Arc<Source>)> {
        let tokens = self.unfinished.lock().sources.clone();
        let sources = self.sources.lock();
        tokens.into_iter().filter_map(|token| Some((token, sources.get(&token)?.clone()))).collect()
    }

    fn next_due(&self) -> Option<Instant> {
        self.unfinished().iter().filter_map(|(_, source)| source.lines.lock().due_at(&source.label)).min()
    }

    fn begin_lines(&self, now: Instant) {
        for (token, source) in self.unfinished() {
            source.lines.lock().begin_line(&source.label, now);
            self.write(token, &source);
        }
    }

    fn look_at_all(&self) {
        sys::clear_event(self.bell.as_fd());
        let asked = self.rounds.lock().asked;
        let mut tokens: Vec<u64> = self.sources.lock().keys().copied().collect();
        tokens.sort_unstable();
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
    pub fn open(worker: &str, kept: usize) -> io::Result<(Output, OwnedFd, OwnedFd)> {
        let tail = Tail::new(kept);
        let (out, out_write) = opened(Stream::Out, worker, &tail)?;
        let (err, err_write) = opened(Stream::Err, worker, &tail)?;
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

/// Makes a pipe for one stream of a worker, which the reader reads; returns it with its write end.
fn opened(stream: Stream, worker: &str, tail: &Arc<Tail>) -> io::Result<(Arc<Source>, OwnedFd)> {
    let (read, write) = sys::pipe()?;
    let label = Label { stream, worker: worker.to_owned(), style: *STYLE.lock() };
    let source = Arc::new(Source::new(read, label, tail.clone())?);
    let reader = reader()?;
    let token = reader.next.fetch_add(1, Ordering::Relaxed);
    reader.sources.lock().insert(token, source.clone());
    if let Err(error) = reader.poller.add(source.pipe.as_fd(), token, false) {
        reader.sources.lock().remove(&token);
        return Err(error);
    }
    Ok((source, write))
}
