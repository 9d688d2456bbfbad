//! One line for each request, when its response has ended.
//!
//! The front's threads only hand records over; a thread of its own writes them. Where it cannot keep up, lines are dropped,
//! counted, and the count is written. Text is the combined format of web servers, then seconds (in the pool's line, until the head,
//! until the end) and how it ended.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sync::Mutex;
use hyper::header::{HeaderName, REFERER, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Version};
use serde_json::json;

use super::forwarded::Forwarded;
use super::request::Peer;
use crate::config::LogFormat;
use crate::front::account::{End, Line};
use crate::front::figures::Figures;
use crate::stdio::Stream;
use crate::sys;

/// Records that wait to be written; more are dropped.
const WAITING_MAX: usize = 10_000;

/// Bytes of what clients have said, in the records that wait: beyond them, more are dropped, too.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// How long an end waits for what is still to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// What a request asked for: copies, since a slice of the head would keep all that was read with it.
#[derive(Debug)]
struct Asked {
    method: Method,
    target: Box<str>,
    version: Version,
    referer: Option<Box<[u8]>>,
    agent: Option<Box<[u8]>>,
}

impl Asked {
    fn of(head: &Parts) -> Asked {
        let kept = |name: HeaderName| head.headers.get(name).map(|value| value.as_bytes().into());
        let target = match head.uri.path_and_query() {
            Some(target) => target.as_str().into(),
            None => head.uri.to_string().into(),
        };
        let (method, version) = (head.method.clone(), head.version);
        Asked { method, target, version, referer: kept(REFERER), agent: kept(USER_AGENT) }
    }

    /// Bytes that the client has said.
    fn weight(&self) -> usize {
        let said = [&self.referer, &self.agent].into_iter().flatten().map(|value| value.len()).sum::<usize>();
        self.method.as_str().len() + self.target.len() + said
    }

    fn path_and_query(&self) -> (&str, Option<&str>) {
        self.target.split_once('?').map_or((&self.target, None), |(path, query)| (path, Some(query)))
    }
}

/// One request, as far as it has come.
#[derive(Debug)]
pub(super) struct Record {
    peer: Arc<Peer>,
    /// As proxies say.
    client: Option<IpAddr>,
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
    bytes: u64,
    end: End,
}

impl Record {
    fn begin(peer: &Arc<Peer>, asked: Option<Asked>) -> Box<Record> {
        Box::new(Record {
            peer: peer.clone(),
            client: None,
            waited: Duration::ZERO,
            queued: None,
            asked,
            at: SystemTime::now(),
            begun: Instant::now(),
            head_after: None,
            ended_after: Duration::ZERO,
            status: None,
            bytes: 0,
            end: End::ClientGone,
        })
    }

    pub(super) fn of(peer: &Arc<Peer>, head: &Parts, forwarded: &Forwarded) -> Box<Record> {
        let mut record = Record::begin(peer, Some(Asked::of(head)));
        (record.client, record.waited) = (forwarded.client, forwarded.waited);
        record
    }

    /// Of what became no request.
    pub(super) fn of_nothing(peer: &Arc<Peer>, since: Instant, status: Option<u16>, end: End) -> Box<Record> {
        let mut record = Record::begin(peer, None);
        record.at = record.at.checked_sub(since.elapsed()).unwrap_or(record.at);
        (record.begun, record.status, record.end) = (since, status, end);
        record
    }

    fn head_came(&mut self, status: u16) {
        self.status = Some(status);
        self.head_after = Some(self.begun.elapsed());
    }

    fn weight(&self) -> usize {
        self.asked.as_ref().map_or(0, Asked::weight)
    }

    fn client(&self) -> String {
        self.client.map_or_else(|| self.peer.client_address().to_owned(), |client| client.to_string())
    }

    // ---- as a line

    fn text(&self) -> String {
        let value = |value: fn(&Asked) -> &Option<Box<[u8]>>| {
            let found = self.asked.as_ref().and_then(|asked| value(asked).as_ref());
            found.map_or_else(|| "-".to_owned(), |found| escaped(found))
        };
        let request = self.asked.as_ref().map_or_else(
            || "-".to_owned(),
            |asked| format!("{} {} {:?}", asked.method, escaped(asked.target.as_bytes()), asked.version),
        );
        let client = Some(self.client()).filter(|client| !client.is_empty()).unwrap_or_else(|| "-".to_owned());
        let status = self.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        let seconds =
            |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), |time| format!("{:.6}", time.as_secs_f64()));
        let (head, queued) = (seconds(self.head_after), seconds(self.queued));
        format!(
            "{client} - - [{}] \"{request}\" {status} {} \"{}\" \"{}\" {queued} {head} {:.6} {}",
            Date::of(self.at).of_web_servers(),
            self.bytes,
            value(|asked| &asked.referer),
            value(|asked| &asked.agent),
            self.ended_after.as_secs_f64(),
            self.end.as_str(),
        )
    }

    fn json(&self) -> String {
        let text = |value: &Option<Box<[u8]>>| value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned());
        let asked = self.asked.as_ref();
        let target = asked.map(Asked::path_and_query);
        json!({
            "time": Date::of(self.at).iso(),
            "client": self.client(),
            "method": asked.map(|asked| asked.method.as_str()),
            "path": target.map(|(path, _)| path),
            "query": target.and_then(|(_, query)| query),
            "version": asked.map(|asked| format!("{:?}", asked.version)),
            "status": self.status,
            "bytes": self.bytes,
            "referer": asked.and_then(|asked| text(&asked.referer)),
            "agent": asked.and_then(|asked| text(&asked.agent)),
            "proxy_s": self.waited.as_secs_f64(),
            "queue_s": self.queued.map(|queued| queued.as_secs_f64()),
            "head_s": self.head_after.map(|after| after.as_secs_f64()),
            "total_s": self.ended_after.as_secs_f64(),
            "end": self.end.as_str(),
        })
        .to_string()
    }
}

/// Nothing that a client sends ends a line or a quotation.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text += &format!("\\x{byte:02x}"),
        }
    }
    text
}

/// A moment of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: u64,
    month: usize,
    day: u64,
    seconds: u64,
    millis: u32,
}

impl Date {
    fn of(at: SystemTime) -> Date {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Years from March on, so that the odd day is a year's last; eras of 400 years repeat.
        let days = since.as_secs() / 86_400 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * years + years / 4 - years / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Date {
            year: era * 400 + years + u64::from(month <= 2),
            month: month as usize,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            seconds: since.as_secs() % 86_400,
            millis: since.subsec_millis(),
        }
    }

    fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60)
    }

    fn of_web_servers(&self) -> String {
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        format!("{:02}/{}/{}:{} +0000", self.day, MONTHS[self.month - 1], self.year, self.clock())
    }

    fn iso(&self) -> String {
        format!("{}-{:02}-{:02}T{}.{:03}Z", self.year, self.month, self.day, self.clock(), self.millis)
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
pub(super) struct Recorded {
    pub(super) record: Box<Record>,
    pub(super) log: Arc<AccessLog>,
}

impl Line for Recorded {
    fn head_came(&mut self, status: u16, _headers: &HeaderMap) {
        self.record.head_came(status);
    }

    fn ended(mut self: Box<Self>, end: End, bytes: u64, queued: Option<Duration>) {
        let record = &mut self.record;
        (record.end, record.bytes, record.queued) = (end, bytes, queued);
        self.log.write(self.record);
    }
}

/// The access log of a front. Dropped, it writes what it has.
pub(super) struct AccessLog {
    lines: Option<SyncSender<Message>>,
    backlog: Arc<Backlog>,
    figures: Arc<Figures>,
    /// Closed when the writer has ended.
    ended: Mutex<Receiver<()>>,
}

impl AccessLog {
    /// `-` is standard output.
    pub(super) fn open(path: &str, format: LogFormat, figures: Arc<Figures>) -> io::Result<AccessLog> {
        let (lines, records) = sync_channel(WAITING_MAX);
        let (end, ended) = sync_channel(0);
        let backlog = Arc::<Backlog>::default();
        let mut writer = Writer { path: path.to_owned(), format, out: output(path)?, backlog: backlog.clone() };
        std::thread::Builder::new().name("clutch-access".to_owned()).spawn(move || {
            sys::block_signals();
            writer.run(&records);
            drop(end);
        })?;
        Ok(AccessLog { lines: Some(lines), backlog, figures, ended: Mutex::new(ended) })
    }

    pub(super) fn write(&self, mut record: Box<Record>) {
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
    pub(super) fn reopen(&self) {
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

fn output(path: &str) -> io::Result<BufWriter<Box<dyn Write + Send>>> {
    let out: Box<dyn Write + Send> = match path {
        "-" => Box::new(Stream::Out),
        path => Box::new(open(path)?),
    };
    Ok(BufWriter::with_capacity(64 << 10, out))
}

fn open(path: &str) -> io::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| io::Error::new(error.kind(), format!("fronts.serve.access_log '{path}': {error}")))
}

struct Writer {
    path: String,
    format: LogFormat,
    out: BufWriter<Box<dyn Write + Send>>,
    backlog: Arc<Backlog>,
}

impl Writer {
    fn run(&mut self, records: &Receiver<Message>) {
        while let Ok(first) = records.recv() {
            for message in std::iter::once(first).chain(records.try_iter()) {
                match message {
                    Message::Line(record) => {
                        self.line(&record);
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

    fn line(&mut self, record: &Record) {
        let line = match self.format {
            LogFormat::Text => record.text(),
            LogFormat::Json => record.json(),
        };
        let _ = writeln!(self.out, "{line}");
    }

    fn tell_dropped(&mut self) {
        let count = self.backlog.dropped.swap(0, Ordering::Relaxed);
        if count == 0 {
            return;
        }
        let _ = match self.format {
            LogFormat::Text => {
                writeln!(self.out, "# {count} lines were dropped: they came faster than they are written")
            }
            LogFormat::Json => writeln!(self.out, "{}", json!({ "dropped": count })),
        };
    }

    /// Where it cannot be had, the old one goes on.
    fn reopen(&mut self) {
        let _ = self.out.flush();
        if let Ok(out) = output(&self.path) {
            self.out = out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_735_689_600, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Date::of(UNIX_EPOCH + Duration::from_secs(seconds)).iso(), expected);
        }
        let date = Date::of(UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
        assert_eq!(date.of_web_servers(), "14/Nov/2023:22:13:20 +0000");
        assert_eq!(date.iso(), "2023-11-14T22:13:20.123Z");
    }

    #[test]
    fn what_waits_to_be_written_is_bounded_in_bytes() {
        let backlog = Backlog::default();
        assert!(backlog.take(WAITING_BYTES_MAX - 10));
        assert!(!backlog.take(11), "and it takes nothing");
        assert!(backlog.take(10));
        backlog.give_back(10);
        assert!(backlog.take(1));
    }

    #[test]
    fn a_client_cannot_write_lines_of_its_own() {
        assert_eq!(escaped(b"a\" \\ \n\x7f\xe9"), "a\\\" \\\\ \\x0a\\x7f\\xe9");
    }
}
