//! Access log: one line for each request, written when its response has ended.
//!
//! The front's threads only hand records over; a thread of its own writes them. Where it cannot keep up, lines are dropped,
//! counted, and the count is written. What is known of a request is in access/record.rs, how its line is written in
//! access/format.rs.

mod format;
mod record;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use clutch_wire::stdio::Stream;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use clutch_wire::terminal;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;

use self::format::Line;
pub(crate) use self::record::{REQUEST_ID, Record};
use super::Note;
use super::figures::{End, Figures};
use crate::config::{ConnectionConfig, LogFormat};
use crate::net::peer::Peer;

/// Records that wait to be written; more are dropped.
const WAITING_MAX: usize = 10_000;

/// Bytes of what clients have said, in the records that wait: beyond them, more are dropped, too.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Maximum time that a stop waits for lines that are not written yet.
const LAST_LINES: Duration = Duration::from_secs(1);

enum Message {
    Line(Box<Record>),
    Reopen,
}

/// Counters that the front's threads and the writer share.
#[derive(Default)]
struct Backlog {
    /// Bytes of the records that wait.
    bytes: AtomicUsize,
    /// Records for which there was no room, since a line has told of them.
    dropped: AtomicU64,
}

impl Backlog {
    /// Makes room for a record; false: there is none.
    fn take(&self, bytes: usize) -> bool {
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= WAITING_BYTES_MAX;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A record that its log is to get.
pub(crate) struct Recorded {
    pub(crate) record: Box<Record>,
    pub(crate) log: Arc<AccessLog>,
}

impl Note for Recorded {
    fn is_by(&mut self, name: &str) {
        self.record.is_by(name);
    }

    fn head_came(&mut self, status: u16, headers: &HeaderMap) {
        self.record.head_came(status, headers, &self.log.line.named);
    }

    fn closed(&mut self, code: u16) {
        self.record.close_code = Some(code);
    }

    fn ended(mut self: Box<Self>, end: End, bytes: u64, queued: Option<Duration>, cpu: Option<Duration>) {
        let record = &mut self.record;
        (record.end, record.bytes, record.queued, record.cpu) = (end, bytes, queued, cpu);
        self.log.write(self.record);
    }
}

/// The access log of a front. Dropped, it writes what it has.
pub(crate) struct AccessLog {
    line: Arc<Line>,
    skip: Vec<String>,
    lines: Option<SyncSender<Message>>,
    backlog: Arc<Backlog>,
    figures: Arc<Figures>,
    /// Closed when the writer has ended.
    ended: Mutex<Receiver<()>>,
}

impl AccessLog {
    /// Its path: `-` is standard output; none: there is no log.
    pub(crate) fn open(config: &ConnectionConfig, figures: &Arc<Figures>) -> io::Result<Option<Arc<AccessLog>>> {
        let path = config.access_log.as_deref();
        let (format, skip) = (&config.access_log_format, &config.access_log_skip);
        path.map(|path| AccessLog::begin(path, format, skip, figures.clone()).map(Arc::new)).transpose()
    }

    fn begin(path: &str, format: &LogFormat, skip: &[String], figures: Arc<Figures>) -> io::Result<AccessLog> {
        let (line, skip) = (Arc::new(Line::new(format, &figures.front)), skip.to_vec());
        let (lines, records) = sync_channel(WAITING_MAX);
        let (end, ended) = sync_channel(0);
        let backlog = Arc::<Backlog>::default();
        let out = output(path, &figures.front)?;
        let mut writer = Writer {
            path: path.to_owned(),
            line: line.clone(),
            out,
            backlog: backlog.clone(),
            figures: figures.clone(),
        };
        std::thread::Builder::new().name("clutch-access".to_owned()).spawn(move || {
            sys::block_signals();
            writer.run(&records);
            drop(end);
        })?;
        Ok(AccessLog { line, skip, lines: Some(lines), backlog, figures, ended: Mutex::new(ended) })
    }

    /// Makes the record of a request that begins, with the fields that its line names.
    pub(crate) fn record(&self, peer: &Arc<Peer>, head: &Parts) -> Box<Record> {
        Record::of(peer, head, &self.line.named)
    }

    pub(crate) fn write(&self, mut record: Box<Record>) {
        if !self.skip.is_empty()
            && record.has_succeeded()
            && record.path().is_some_and(|path| is_any_of(&self.skip, path))
        {
            return;
        }
        record.ended_after = record.begun.elapsed();
        let bytes = record.weight();
        let has_room = self.backlog.take(bytes);
        if has_room && self.lines.as_ref().is_none_or(|lines| lines.try_send(Message::Line(record)).is_ok()) {
            return;
        }
        if has_room {
            self.backlog.give_back(bytes);
        }
        self.figures.dropped_line();
        self.backlog.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// The file was moved away: a new one is begun.
    pub(crate) fn reopen(&self) {
        // A log that is full is asked again, by another signal.
        let _ = self.lines.as_ref().map(|lines| lines.try_send(Message::Reopen));
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        drop(self.lines.take());
        // A reader of standard output that has stopped reading does not hold the end up.
        let _ = self.ended.get_mut().recv_timeout(LAST_LINES);
    }
}

/// `/health` is itself, `/static/*` all below `/static/`.
fn is_any_of(paths: &[String], path: &str) -> bool {
    let is_it = |known: &String| match known.strip_suffix('*') {
        Some(folder) if folder.ends_with('/') => path.starts_with(folder),
        _ => known == path,
    };
    paths.iter().any(is_it)
}

fn output(path: &str, front: &str) -> io::Result<BufWriter<Box<dyn Write + Send>>> {
    let out: Box<dyn Write + Send> = match path {
        "-" => Box::new(Stream::Out),
        path => Box::new(open(path, front)?),
    };
    Ok(BufWriter::with_capacity(64 << 10, out))
}

fn open(path: &str, front: &str) -> io::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| io::Error::new(error.kind(), format!("fronts.{front}.access_log '{path}': {error}")))
}

struct Writer {
    path: String,
    line: Arc<Line>,
    out: BufWriter<Box<dyn Write + Send>>,
    backlog: Arc<Backlog>,
    figures: Arc<Figures>,
}

impl Writer {
    fn run(&mut self, records: &Receiver<Message>) {
        let mut batch = Vec::new();
        while let Ok(first) = records.recv() {
            batch.push(first);
            batch.extend(records.try_iter());
            // For all of them: what their requests have printed is behind no line.
            if self.path == "-" {
                terminal::wait_turn();
            }
            for message in batch.drain(..) {
                match message {
                    Message::Line(record) => {
                        self.write(&self.line.of(&record));
                        self.backlog.give_back(record.weight());
                    }
                    Message::Reopen => self.reopen(),
                }
            }
            self.tell_dropped();
            // A full disk is no reason to refuse requests. What was made of them waits for room, as far as it fits.
            if let Err(error) = self.out.flush() {
                self.figures.unwritten(&self.path, &error);
            }
        }
    }

    fn write(&mut self, line: &str) {
        if let Err(error) = writeln!(self.out, "{line}") {
            self.figures.dropped_line();
            self.figures.unwritten(&self.path, &error);
        }
    }

    fn tell_dropped(&mut self) {
        let count = self.backlog.dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(self.out, "{}", self.line.of_dropped(count));
        }
    }

    /// Opens the file again. If that fails, the old one stays in use.
    fn reopen(&mut self) {
        let _ = self.out.flush();
        if let Ok(out) = output(&self.path, &self.line.front) {
            self.out = out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_to_be_written_is_bounded_in_bytes() {
        let backlog = Backlog::default();
        assert!(backlog.take(WAITING_BYTES_MAX - 10));
        assert!(!backlog.take(11), "and it takes nothing");
        assert!(backlog.take(10));
        backlog.give_back(10);
        assert!(backlog.take(1));
    }
}
