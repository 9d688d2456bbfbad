//! What workers print: line by line to the dispatcher's own stdout and stderr, with the worker's name; the last bytes are
//! kept.
//!
//! One thread for the whole process reads the pipes and writes. A slow reader of our stdout slows the workers' prints, and
//! the end of a program, which waits for them; a closed one is ignored.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clutch_wire::forked::{self, PerProcess, Tracked};
use clutch_wire::stdio::Stream;
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys::{self, Poller};
use clutch_wire::terminal;
use serde_json::{Map, Value};

use crate::date::Date;

/// A line longer than this is passed on in pieces.
const LINE_BYTES_MAX: usize = 16 << 10;

/// How long another line for the terminal waits for what workers have printed before it.
const LINE_WAIT: Duration = Duration::from_millis(50);

/// How a traceback begins, and that of a group of exceptions.
const TRACEBACK: &[u8] = b"Traceback (most recent call last):";
const GROUP_TRACEBACK: &[u8] = b"  + Exception Group Traceback (most recent call last):";

/// What Python writes between two tracebacks of one chain.
const LINKS: [&[u8]; 2] = [
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
];

/// How long the first lines of a traceback wait for the last one, and how many of them.
const TRACEBACK_WAIT: Duration = Duration::from_millis(100);
const TRACEBACK_BYTES_MAX: usize = 256 << 10;

/// How long a traceback waits for the next one of its chain.
const CHAIN_WAIT: Duration = Duration::from_millis(5);

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
    label: Label,
    tail: Arc<Tail>,
    state: Mutex<Lines>,
}

/// What is told of each line.
struct Label {
    stream: Stream,
    /// `pool/0`.
    worker: String,
    style: Style,
}

/// How lines are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With their worker's name.
    Named,
    /// As JSON objects, one each, with the keys of a log.
    Json,
    /// As they are, those of a traceback together: there is one worker, and somebody reads it at a terminal.
    Plain,
}

static STYLE: Mutex<Style> = Mutex::new(Style::Named);

/// Of workers that start from now on.
pub fn pass_on_as(style: Style) {
    *STYLE.lock() = style;
    if style == Style::Plain {
        terminal::write_first(|| {
            let deadline = Instant::now() + LINE_WAIT;
            let _ = Printed::by_now().map(|printed| printed.wait_written(deadline));
        });
    }
}

impl Label {
    fn put(&self, out: &mut Vec<u8>, line: &[u8]) {
        match self.style {
            Style::Json => out.extend_from_slice(self.json(line).to_string().as_bytes()),
            Style::Plain => out.extend_from_slice(line),
            Style::Named => {
                out.extend_from_slice(format!("[{}] ", self.worker).as_bytes());
                out.extend_from_slice(line);
            }
        }
        out.push(b'\n');
    }

    /// A line that is an object already, as logging libraries write them, keeps what it says.
    fn json(&self, line: &[u8]) -> Value {
        let object = serde_json::from_slice::<Map<String, Value>>(line);
        self.named(object.unwrap_or_else(|_| logged(level_of(line), String::from_utf8_lossy(line).into_owned())))
    }

    fn named(&self, mut object: Map<String, Value>) -> Value {
        let stream = if self.stream == Stream::Out { "stdout" } else { "stderr" };
        let pool = self.worker.rsplit_once('/').map_or(self.worker.as_str(), |(pool, _)| pool);
        for (key, value) in [("pool", pool), ("worker", self.worker.as_str()), ("stream", stream)] {
            object.entry(key).or_insert_with(|| value.into());
        }
        Value::Object(object)
    }
}

/// The level of a line that begins with its name, as those of `logging.basicConfig()` do; else "info": logs of all levels go
/// to standard error.
fn level_of(line: &[u8]) -> &'static str {
    const LEVELS: [(&str, &str); 5] =
        [("DEBUG", "debug"), ("INFO", "info"), ("WARNING", "warning"), ("ERROR", "error"), ("CRITICAL", "critical")];
    let after = |name: &str| line.strip_prefix(name.as_bytes()).and_then(<[u8]>::first);
    let named = LEVELS.iter().find(|(name, _)| matches!(after(name), Some(b':' | b' ')));
    named.map_or("info", |(_, level)| level)
}

/// The keys that each line of a log has.
fn logged(level: &str, message: String) -> Map<String, Value> {
    let time = Date::of(SystemTime::now()).iso();
    [("time", time.into()), ("level", level.into()), ("message", message.into())]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A traceback whose lines come one by one, to be told as one object.
struct Traceback {
    /// Since when its next line is waited for.
    since: Instant,
    text: Vec<u8>,
    /// The line right before it: what was logged with the exception.
    before: Option<Vec<u8>>,
    is_group: bool,
    /// The line that names the exception. Another traceback may follow, which this one led to.
    last: Option<Vec<u8>>,
    /// Python has said that it does.
    is_linked: bool,
    /// Lines for which it was too long.
    left_out: usize,
}

impl Traceback {
    fn begin(line: &[u8], before: Option<Vec<u8>>) -> Option<Traceback> {
        let is_group = line.starts_with(GROUP_TRACEBACK);
        let (text, since) = (line.to_vec(), Instant::now());
        let begun = Traceback { since, text, before, is_group, last: None, is_linked: false, left_out: 0 };
        (is_group || line.starts_with(TRACEBACK)).then_some(begun)
    }

    /// Takes the next line in; false: it is none of this traceback.
    fn add(&mut self, line: &[u8]) -> bool {
        let begins_group = line.starts_with(GROUP_TRACEBACK);
        let begins = begins_group || line.starts_with(TRACEBACK);
        let (is_inner, is_link) = (line.is_empty() || line.starts_with(b" "), LINKS.contains(&line));
        let is_over = self.last.is_some() || self.is_group;
        if is_over && !(is_link || if begins { self.is_linked } else { is_inner }) {
            return false;
        }
        self.is_group |= begins_group;
        if begins {
            (self.last, self.is_linked) = (None, false);
        } else if is_link {
            self.is_linked = true;
        } else if !is_inner && !is_over {
            self.last = Some(line.to_vec());
        }
        self.since = Instant::now();
        self.keep(line);
        true
    }

    /// Of one that is too long the first lines are kept, and those that name exceptions.
    fn keep(&mut self, line: &[u8]) {
        let is_named = self.last.as_deref() == Some(line);
        if self.text.len() + line.len() > TRACEBACK_BYTES_MAX && !is_named {
            self.left_out += 1;
            return;
        }
        if self.left_out > 0 {
            let left_out = std::mem::take(&mut self.left_out);
            self.text.extend_from_slice(format!("\n  [{left_out} lines left out]").as_bytes());
        }
        self.text.push(b'\n');
        self.text.extend_from_slice(line);
    }

    /// When it is told, whatever is missing.
    fn due(&self) -> Instant {
        self.since + if self.last.is_some() { CHAIN_WAIT } else { TRACEBACK_WAIT }
    }

    fn json(self, label: &Label) -> Value {
        let text = String::from_utf8_lossy(self.text.trim_ascii_end()).into_owned();
        let named = self.last.map(|line| String::from_utf8_lossy(&line).into_owned());
        let named = named.unwrap_or_else(|| {
            let second = text.lines().nth(1).unwrap_or_default();
            second.trim_start_matches([' ', '|', '+']).to_owned()
        });
        let before = self.before.map(|line| String::from_utf8_lossy(&line).into_owned());
        let mut object = logged("error", before.map_or(named.clone(), |before| format!("{before}: {named}")));
        object.insert("traceback".to_owned(), text.into());
        label.named(object)
    }
}

#[derive(Default)]
struct Lines {
    partial: Vec<u8>,
    /// Lines that wait to be written.
    ready: Vec<u8>,
    /// At a terminal: a traceback has begun, and its last line has not come: since when.
    traceback: Option<Instant>,
    /// As JSON: the traceback whose lines come.
    gathered: Option<Traceback>,
    /// As JSON: where the object of the last line begins in `ready`, and that line, if it came by the same read.
    latest: Option<(usize, Vec<u8>)>,
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
                    state.end_line(&self.label);
                    return false;
                }
                Ok(count) => {
                    self.tail.add(&bytes[..count]);
                    state.add(&self.label, &bytes[..count]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return !state.ended,
            }
        }
        true
    }
}

impl Lines {
    fn add(&mut self, label: &Label, bytes: &[u8]) {
        self.latest = None;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LINE_BYTES_MAX {
                self.end_line(label);
            }
        }
    }

    fn end_line(&mut self, label: &Label) {
        if self.partial.is_empty() {
            return;
        }
        let partial = std::mem::take(&mut self.partial);
        let line = partial.strip_suffix(b"\n").unwrap_or(&partial);
        if label.style == Style::Json {
            self.end_json_line(label, line);
            return;
        }
        if label.style == Style::Plain {
            self.traceback = match line {
                line if line.starts_with(TRACEBACK) => self.traceback.or_else(|| Some(Instant::now())),
                // Its frames, and what is between two of one chain.
                line if line.is_empty() || line.starts_with(b" ") => self.traceback,
                _ => None,
            };
        }
        label.put(&mut self.ready, line);
    }

    fn end_json_line(&mut self, label: &Label, line: &[u8]) {
        if self.gathered.as_mut().is_some_and(|traceback| traceback.add(line)) {
            return;
        }
        self.put_gathered(label);
        let before = self.latest.take().filter(|(_, line)| !line.is_empty() && !line.starts_with(b"{"));
        let (at, said) = before.map_or((None, None), |(at, line)| (Some(at), Some(line)));
        self.gathered = Traceback::begin(line, said);
        match (&self.gathered, at) {
            (Some(_), Some(at)) => self.ready.truncate(at),
            (Some(_), None) => {}
            (None, _) => {
                self.latest = Some((self.ready.len(), line.to_vec()));
                label.put(&mut self.ready, line);
            }
        }
    }

    fn put_gathered(&mut self, label: &Label) {
        let Some(traceback) = self.gathered.take() else { return };
        self.ready.extend_from_slice(traceback.json(label).to_string().as_bytes());
        self.ready.push(b'\n');
    }

    /// When to look again, of lines that wait for others.
    fn due(&self) -> Option<Instant> {
        self.traceback.map(|since| since + TRACEBACK_WAIT).or(self.gathered.as_ref().map(Traceback::due))
    }

    /// What is to be written now: not the first lines of a traceback alone, unless the others do not come.
    fn take_ready(&mut self, label: &Label, now: Instant) -> Vec<u8> {
        if self.ended || self.gathered.as_ref().is_some_and(|traceback| now >= traceback.due()) {
            self.put_gathered(label);
        }
        let is_whole = self.traceback.is_none_or(|since| now >= since + TRACEBACK_WAIT);
        if !(is_whole || self.ended || self.ready.len() > TRACEBACK_BYTES_MAX) {
            return Vec::new();
        }
        self.traceback = None;
        std::mem::take(&mut self.ready)
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
        let mut unfinished: Option<Instant> = None;
        while self.poller.wait(&mut tokens, unfinished).is_ok() {
            terminal::wait_free();
            let is_due = unfinished.take_if(|at| *at <= Instant::now()).is_some();
            for token in tokens.drain(..) {
                match token {
                    BELL => unfinished = self.look_at_all(),
                    token => unfinished = [unfinished, self.pass_on(token)].into_iter().flatten().min(),
                }
            }
            if is_due {
                unfinished = self.pass_all_on();
            }
        }
        self.rounds.lock().over = true;
        self.changed.notify_all();
    }

    /// When to look again, of lines that wait for others.
    fn pass_on(&self, token: u64) -> Option<Instant> {
        let source = self.sources.lock().get(&token).cloned()?;
        let more = source.read();
        let (ready, again) = {
            let mut state = source.state.lock();
            (state.take_ready(&source.label, Instant::now()), state.due())
        };
        let mut ours = source.label.stream;
        // Whoever closed it does not want it.
        let _ = ours.write_all(&ready);
        if !more {
            self.poller.remove(source.pipe.as_fd());
            self.sources.lock().remove(&token);
        }
        again
    }

    fn look_at_all(&self) -> Option<Instant> {
        sys::clear_event(self.bell.as_fd());
        let asked = self.rounds.lock().asked;
        let again = self.pass_all_on();
        self.rounds.lock().done = asked;
        self.changed.notify_all();
        again
    }

    fn pass_all_on(&self) -> Option<Instant> {
        let tokens: Vec<u64> = self.sources.lock().keys().copied().collect();
        tokens.into_iter().filter_map(|token| self.pass_on(token)).min()
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
        let (out, out_write) = source(Stream::Out, worker, &tail)?;
        let (err, err_write) = source(Stream::Err, worker, &tail)?;
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

fn source(stream: Stream, worker: &str, tail: &Arc<Tail>) -> io::Result<(Arc<Source>, OwnedFd)> {
    let (read, write) = sys::pipe()?;
    rustix::io::ioctl_fionbio(&read, true)?;
    let state = Mutex::default();
    let label = Label { stream, worker: worker.to_owned(), style: *STYLE.lock() };
    let source = Arc::new(Source { pipe: read, label, tail: tail.clone(), state });
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
    use std::io::BufRead;

    use super::*;

    #[test]
    fn lines_are_prefixed_and_pieces_wait_for_their_end() {
        let (mut lines, label) = (Lines::default(), label(Style::Named));
        lines.add(&label, b"one\ntw");
        assert_eq!(lines.ready, b"[a/0] one\n");
        lines.add(&label, b"o\n");
        assert_eq!(lines.ready, b"[a/0] one\n[a/0] two\n");
    }

    fn label(style: Style) -> Label {
        Label { stream: Stream::Err, worker: "a/0".to_owned(), style }
    }

    #[test]
    fn at_a_terminal_lines_are_plain_and_those_of_a_traceback_come_together() {
        let (mut lines, label) = (Lines::default(), label(Style::Plain));
        let now = Instant::now();
        lines.add(&label, b"hello\n");
        assert_eq!(lines.take_ready(&label, now), b"hello\n");
        lines.add(&label, b"Traceback (most recent call last):\n  File \"a.py\", line 1\n");
        assert_eq!(lines.take_ready(&label, now), b"", "its last line has not come");
        lines.add(&label, b"ValueError: no\n");
        assert!(lines.take_ready(&label, now).ends_with(b"line 1\nValueError: no\n"));
        lines.add(&label, b"Traceback (most recent call last):\n");
        assert_eq!(lines.take_ready(&label, now), b"");
        let later = Instant::now() + TRACEBACK_WAIT;
        assert_eq!(lines.take_ready(&label, later), b"Traceback (most recent call last):\n", "it does not come");
    }

    #[test]
    fn as_json_each_line_is_an_object_that_names_its_worker() {
        let (mut lines, label) = (Lines::default(), label(Style::Json));
        lines.add(
            &label,
            b"caf\xe9 \"x\"\n{\"level\": \"error\", \"worker\": 7}\n[1]\n\nWARNING:shop:no stock\nERRORS\n",
        );
        let lines: Vec<Value> =
            lines.ready.lines().map(|line| serde_json::from_str(&line.expect("text")).expect("JSON")).collect();
        assert_eq!(lines[0]["message"], "caf\u{fffd} \"x\"");
        assert_eq!((&lines[0]["level"], &lines[0]["stream"]), (&"info".into(), &"stderr".into()));
        assert_eq!((&lines[0]["pool"], &lines[0]["worker"]), (&"a".into(), &"a/0".into()));
        assert_eq!((&lines[1]["level"], &lines[1]["worker"]), (&"error".into(), &7.into()), "it keeps what it says");
        assert_eq!(lines[1].get("message"), None);
        assert_eq!((&lines[2]["message"], &lines[3]["message"]), (&"[1]".into(), &"".into()));
        assert_eq!((&lines[4]["level"], &lines[5]["level"]), (&"warning".into(), &"info".into()));
    }

    const RAISED: &str =
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    raise KeyError(1)\nKeyError: 1\n";

    fn told(lines: &mut Lines, label: &Label, at: Instant) -> Vec<Value> {
        let ready = lines.take_ready(label, at);
        ready.lines().map(|line| serde_json::from_str(&line.expect("text")).expect("JSON")).collect()
    }

    #[test]
    fn as_json_a_traceback_is_one_error_with_what_was_logged_with_it() {
        let (mut lines, label) = (Lines::default(), label(Style::Json));
        let later = || Instant::now() + TRACEBACK_WAIT;
        lines.add(&label, b"before\n");
        lines.add(&label, format!("ERROR:shop:no price\n{RAISED}").as_bytes());
        lines.add(&label, b"after\n");
        let objects = told(&mut lines, &label, Instant::now());
        assert_eq!(objects.len(), 3);
        assert_eq!((&objects[0]["message"], &objects[2]["message"]), (&"before".into(), &"after".into()));
        assert_eq!((&objects[1]["level"], &objects[1]["worker"]), (&"error".into(), &"a/0".into()));
        assert_eq!(objects[1]["message"], "ERROR:shop:no price: KeyError: 1");
        assert_eq!(objects[1]["traceback"], RAISED.trim_end());
        // Others that it has not led to.
        lines.add(&label, format!("{RAISED}{RAISED}").as_bytes());
        assert_eq!(told(&mut lines, &label, later()).len(), 2);
        // Line by line, and a chain.
        let chain =
            format!("{RAISED}\nDuring handling of the above exception, another exception occurred:\n\n{RAISED}");
        chain.split_inclusive('\n').for_each(|line| lines.add(&label, line.as_bytes()));
        assert_eq!(told(&mut lines, &label, Instant::now() - CHAIN_WAIT), Vec::<Value>::new());
        let objects = told(&mut lines, &label, later());
        assert_eq!((objects.len(), &objects[0]["message"]), (1, &"KeyError: 1".into()));
        assert_eq!(objects[0]["traceback"], chain.trim_end());
        let group =
            "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: two (1 sub-exception)\n";
        lines.add(&label, format!("{group}  +-+---------------- 1 ----------------\nserved on\n").as_bytes());
        let objects = told(&mut lines, &label, Instant::now());
        assert_eq!((objects.len(), &objects[1]["message"]), (2, &"served on".into()));
        assert_eq!(objects[0]["message"], "ExceptionGroup: two (1 sub-exception)");
    }

    #[test]
    fn as_json_a_traceback_that_does_not_end_is_told_all_the_same() {
        let (mut lines, label) = (Lines::default(), label(Style::Json));
        lines.add(&label, b"Traceback (most recent call last):\n  File \"a.py\", line 1\n");
        assert!(lines.due().is_some());
        assert_eq!(told(&mut lines, &label, Instant::now()), Vec::<Value>::new());
        assert_eq!(told(&mut lines, &label, Instant::now() + TRACEBACK_WAIT).len(), 1);
        lines.add(&label, TRACEBACK);
        lines.add(&label, b"\n");
        for _ in 0..40 {
            lines.add(&label, &[b' '; LINE_BYTES_MAX]);
        }
        lines.add(&label, b"KeyError: 1\n");
        lines.ended = true;
        let objects = told(&mut lines, &label, Instant::now());
        assert_eq!((objects.len(), &objects[0]["message"]), (1, &"KeyError: 1".into()));
        let text = objects[0]["traceback"].as_str().expect("text");
        assert!(text.len() < TRACEBACK_BYTES_MAX + 100 && text.ends_with(" lines left out]\nKeyError: 1"), "bounded");
    }

    #[test]
    fn failure_8_only_the_last_bytes_are_kept() {
        let tail = Tail::new(8);
        tail.add(&[b'x'; 1 << 20]);
        tail.add(b"the end!");
        assert_eq!(tail.text(), "the end!");
    }
}
