//! One line for each request, when its response has ended.
//!
//! The front's threads only hand records over; a thread of its own writes them. Where it cannot keep up, lines are dropped,
//! counted, and the count is written. How a line is written is in access/format.rs.

mod format;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use clutch_pool::config::LogFormat;
use clutch_wire::stdio::Stream;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use clutch_wire::terminal;
use hyper::header::{HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use self::format::Line;
use crate::account::Note;
use crate::figures::{End, Figures};
use crate::net::peer::Peer;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Records that wait to be written; more are dropped.
const WAITING_MAX: usize = 10_000;

/// Bytes of what clients have said, in the records that wait: beyond them, more are dropped, too.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// How long an end waits for what is still to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// What a client or an app has said in one header: a copy, since a slice would keep all that was read with it.
type Said = Option<Box<[u8]>>;

fn said(headers: &HeaderMap, names: &[HeaderName]) -> Box<[Said]> {
    names.iter().map(|name| headers.get(name).map(|value| value.as_bytes().into())).collect()
}

/// What a request asked for.
#[derive(Debug)]
struct Asked {
    method: Method,
    target: Box<str>,
    version: Version,
    /// Of those headers that the line names.
    headers: Box<[Said]>,
    user: Said,
}

impl Asked {
    fn of(head: &Parts, line: &Line) -> Asked {
        let target = match head.uri.path_and_query() {
            Some(target) => target.as_str().into(),
            None => head.uri.to_string().into(),
        };
        let (method, version) = (head.method.clone(), head.version);
        Asked { method, target, version, headers: said(&head.headers, &line.headers), user: line.user(&head.headers) }
    }

    /// Bytes that the client has said.
    fn weight(&self) -> usize {
        let said = self.headers.iter().chain([&self.user]).flatten().map(|value| value.len()).sum::<usize>();
        self.method.as_str().len() + self.target.len() + said
    }

    fn path_and_query(&self) -> (&str, Option<&str>) {
        self.target.split_once('?').map_or((&self.target, None), |(path, query)| (path, Some(query)))
    }
}

/// One request, as far as it has come.
#[derive(Debug)]
pub(crate) struct Record {
    peer: Arc<Peer>,
    /// As proxies say.
    client: Option<IpAddr>,
    is_secure: bool,
    waited: Duration,
    /// In the line of the pool. None: no worker got it.
    queued: Option<Duration>,
    /// None: no head could be read.
    asked: Option<Asked>,
    at: SystemTime,
    begun: Instant,
    head_after: Option<Duration>,
    ended_after: Duration,
    status: Option<u16>,
    /// Of the response, those that the line names.
    response_headers: Box<[Said]>,
    bytes: u64,
    end: End,
}

impl Record {
    fn begin(peer: &Arc<Peer>, asked: Option<Asked>) -> Box<Record> {
        Box::new(Record {
            peer: peer.clone(),
            client: None,
            is_secure: peer.is_secure,
            waited: Duration::ZERO,
            queued: None,
            asked,
            at: SystemTime::now(),
            begun: Instant::now(),
            head_after: None,
            ended_after: Duration::ZERO,
            status: None,
            response_headers: Box::default(),
            bytes: 0,
            end: End::ClientGone,
        })
    }

    /// `log`: keeps what its lines name.
    pub(crate) fn of(peer: &Arc<Peer>, head: &Parts, log: &AccessLog) -> Box<Record> {
        Record::begin(peer, Some(Asked::of(head, &log.line)))
    }

    /// What proxies say of it. `waited`: before it came to us.
    pub(crate) fn forwarded(&mut self, client: Option<IpAddr>, is_secure: Option<bool>, waited: Duration) {
        (self.client, self.waited) = (client, waited);
        self.is_secure = is_secure.unwrap_or(self.is_secure);
    }

    /// Of what became no request.
    pub(crate) fn of_nothing(peer: &Arc<Peer>, since: Instant, status: Option<u16>, end: End) -> Box<Record> {
        let mut record = Record::begin(peer, None);
        record.at = record.at.checked_sub(since.elapsed()).unwrap_or(record.at);
        (record.begun, record.status, record.end) = (since, status, end);
        record
    }

    fn head_came(&mut self, status: u16, headers: &HeaderMap, line: &Line) {
        self.response_headers = said(headers, &line.response_headers);
        self.status = Some(status);
        self.head_after = Some(self.begun.elapsed());
    }

    fn weight(&self) -> usize {
        let of_response = self.response_headers.iter().flatten().map(|value| value.len()).sum::<usize>();
        self.asked.as_ref().map_or(0, Asked::weight) + of_response
    }

    /// None: by a unix socket, and no proxy has said more.
    fn client(&self) -> Option<String> {
        let peer = Some(self.peer.client_address()).filter(|address| !address.is_empty());
        self.client.map(|client| client.to_string()).or_else(|| peer.map(str::to_owned))
    }
}

// ---- the log

enum Message {
    Line(Box<Record>),
    Reopen,
}

/// What the front's threads and the writer both count.
#[derive(Default)]
struct Backlog {
    /// Of the records that wait.
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
    fn head_came(&mut self, status: u16, headers: &HeaderMap) {
        self.record.head_came(status, headers, &self.log.line);
    }

    fn ended(mut self: Box<Self>, end: End, bytes: u64, queued: Option<Duration>) {
        let record = &mut self.record;
        (record.end, record.bytes, record.queued) = (end, bytes, queued);
        self.log.write(self.record);
    }
}

/// The access log of a front. Dropped, it writes what it has.
pub(crate) struct AccessLog {
    line: Arc<Line>,
    lines: Option<SyncSender<Message>>,
    backlog: Arc<Backlog>,
    figures: Arc<Figures>,
    /// Closed when the writer has ended.
    ended: Mutex<Receiver<()>>,
}

impl AccessLog {
    /// `path`: `-` is standard output; none: there is no log.
    pub(crate) fn open(
        path: Option<&str>,
        format: &LogFormat,
        figures: &Arc<Figures>,
    ) -> io::Result<Option<Arc<AccessLog>>> {
        path.map(|path| AccessLog::begin(path, format, figures.clone()).map(Arc::new)).transpose()
    }

    fn begin(path: &str, format: &LogFormat, figures: Arc<Figures>) -> io::Result<AccessLog> {
        let line = Arc::new(Line::new(format, figures.front));
        let (lines, records) = sync_channel(WAITING_MAX);
        let (end, ended) = sync_channel(0);
        let backlog = Arc::<Backlog>::default();
        let out = output(path, figures.front)?;
        let mut writer = Writer { path: path.to_owned(), line: line.clone(), out, backlog: backlog.clone() };
        std::thread::Builder::new().name("clutch-access".to_owned()).spawn(move || {
            sys::block_signals();
            writer.run(&records);
            drop(end);
        })?;
        Ok(AccessLog { line, lines: Some(lines), backlog, figures, ended: Mutex::new(ended) })
    }

    pub(crate) fn write(&self, mut record: Box<Record>) {
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
}

impl Writer {
    fn run(&mut self, records: &Receiver<Message>) {
        while let Ok(first) = records.recv() {
            if self.path == "-" {
                terminal::wait_turn();
            }
            for message in std::iter::once(first).chain(records.try_iter()) {
                match message {
                    Message::Line(record) => {
                        let _ = writeln!(self.out, "{}", self.line.of(&record));
                        self.backlog.give_back(record.weight());
                    }
                    Message::Reopen => self.reopen(),
                }
            }
            self.tell_dropped();
            // A full disk is no reason to refuse requests.
            let _ = self.out.flush();
        }
    }

    fn tell_dropped(&mut self) {
        let count = self.backlog.dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(self.out, "{}", self.line.of_dropped(count));
        }
    }

    /// Where it cannot be had, the old one goes on.
    fn reopen(&mut self) {
        let _ = self.out.flush();
        if let Ok(out) = output(&self.path, self.line.front) {
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
