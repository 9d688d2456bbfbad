//! Requests that workers have answered by themselves, as they tell of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request};
use memchr::memchr;

use super::Note;
use super::access::{AccessLog, Record, Recorded};
use super::classes::Times;
use super::figures::{End, Figures};
use crate::held::message::{Sum, Told, ToldEnd};
use crate::net::peer::Peer;

/// Most header lines of a head that are looked at.
const HEADERS_MAX: usize = 512;

/// Notes what proxies say of a request: its record, whose connection it was, and its headers.
pub(crate) type Forwarded = Box<dyn Fn(&mut Record, &Peer, &HeaderMap) + Send + Sync>;

/// Hears records for the figures of a front, and for its access log.
pub(crate) struct Records {
    pub(crate) figures: Arc<Figures>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    pub(crate) forwarded: Forwarded,
}

impl Records {
    /// `peer`: whose connection it was, where that is known. `cut`: how the front itself has cut it off.
    pub(crate) fn hear(&self, told: &Told<'_>, peer: Option<&Arc<Peer>>, cut: Option<End>) {
        let end = cut.unwrap_or_else(|| self.end_of(told.end));
        self.count(told, end);
        if let (Some(log), Some(peer)) = (&self.access_log, peer) {
            self.write(log, told, end, peer);
        }
    }

    /// Tells of a request that has ended here, without a record of its worker. `asked`: its head, or the beginning of it.
    pub(crate) fn ended_here(&self, asked: &[u8], peer: &Arc<Peer>, here: &EndedHere) {
        let EndedHere { status, end, after, bytes } = *here;
        self.figures.ended(status, end, &Times::of(after));
        let Some(log) = &self.access_log else { return };
        let Some(head) = parts(asked).or_else(|| parts(&only_line(asked)?)) else {
            let since = Instant::now().checked_sub(after).unwrap_or_else(Instant::now);
            let line = String::from_utf8_lossy(first_line(asked)).into_owned() + "…";
            let line = Some(&*line).filter(|_| !asked.is_empty());
            return log.write(Record::of_nothing(peer, since, status, end).with_line(line));
        };
        let mut record = log.record(peer, &head);
        (self.forwarded)(&mut record, peer, &head.headers);
        let mut recorded = Box::new(Recorded { record, log: log.clone() });
        if let Some(status) = status {
            recorded.head_came(status, &HeaderMap::new());
        }
        recorded.record.is_past(after, after);
        recorded.ended(end, bytes, Some(Duration::ZERO), None);
    }

    fn count(&self, told: &Told<'_>, end: End) {
        let Told { method, route, bytes, .. } = *told;
        let bytes = bytes.saturating_add(told.response_head.len() as u64);
        let times = Times::of(Duration::from_micros(told.after_us));
        self.figures.received(told.request_head.len());
        self.count_all(&Sum { status: told.status, method, route, bytes, times }, end);
    }

    fn count_all(&self, sum: &Sum<'_>, end: End) {
        let (status, figures) = (status_of(sum.status), &self.figures);
        figures.ended(status, end, &sum.times);
        figures.sent(usize::try_from(sum.bytes).unwrap_or(usize::MAX));
        if let Some(method) = Method::from_bytes(sum.method.as_bytes()).ok().filter(|_| !sum.route.is_empty()) {
            let mut routes = figures.routes.lock();
            let route = routes.number_of(sum.route);
            routes.ended(route, &method, status, &sum.times);
        }
    }

    /// The same for requests that nobody wants to know one by one.
    pub(crate) fn hear_sum(&self, sum: &Sum<'_>) {
        self.count_all(sum, End::Whole);
    }

    /// A line, as for a request that was answered here.
    fn write(&self, log: &Arc<AccessLog>, told: &Told<'_>, end: End, peer: &Arc<Peer>) {
        // Whoever tells of a head that is none gets no line for it.
        let Some(asked) = parts(told.request_head) else { return };
        let mut record = log.record(peer, &asked);
        (self.forwarded)(&mut record, peer, &asked.headers);
        let mut recorded = Box::new(Recorded { record, log: log.clone() });
        if let Some(status) = status_of(told.status) {
            recorded.head_came(status, &headers(told.response_head).unwrap_or_default());
        }
        recorded.record.is_past(Duration::from_micros(told.after_us), Duration::from_micros(told.head_after_us));
        let cpu = Some(told.cpu_us).filter(|cpu| *cpu > 0).map(Duration::from_micros);
        recorded.ended(end, told.bytes, Some(Duration::ZERO), cpu);
    }

    fn end_of(&self, told: ToldEnd) -> End {
        match told {
            ToldEnd::Whole | ToldEnd::Failed => End::Whole,
            ToldEnd::BrokenOff => End::BrokenOff,
            ToldEnd::ClientGone => self.figures.seen_as(End::ClientGone),
        }
    }
}

/// End of a request that the front itself has answered, or cut off. `after`: the time that it took; `bytes`: of the body that
/// it was told.
pub(crate) struct EndedHere {
    pub(crate) status: Option<u16>,
    pub(crate) end: End,
    pub(crate) after: Duration,
    pub(crate) bytes: u64,
}

fn first_line(head: &[u8]) -> &[u8] {
    let line = head.split(|byte| *byte == b'\r' || *byte == 0).next();
    line.unwrap_or_default()
}

/// A head of its first line, of the beginning of one; none: the line is not whole.
fn only_line(beginning: &[u8]) -> Option<Vec<u8>> {
    let line = first_line(beginning);
    (line.len() < beginning.len()).then(|| [line, b"\r\n\r\n"].concat())
}

/// None: no response was begun.
fn status_of(told: u16) -> Option<u16> {
    Some(told).filter(|status| *status > 0)
}

/// The head of a plain request; none: it is none.
fn parts(head: &[u8]) -> Option<Parts> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut request = Request::builder().method(method).uri(target).body(()).ok()?;
    *request.headers_mut() = headers(head)?;
    Some(request.into_parts().0)
}

/// The headers of a head, behind its first line.
fn headers(head: &[u8]) -> Option<HeaderMap> {
    let lines = &head[memchr(b'\n', head)? + 1..];
    let mut room = [EMPTY_HEADER; HEADERS_MAX];
    let Ok(Status::Complete((_, read))) = httparse::parse_headers(lines, &mut room) else { return None };
    let named = read.iter().filter_map(|header| {
        Some((HeaderName::from_bytes(header.name.as_bytes()).ok()?, HeaderValue::from_bytes(header.value).ok()?))
    });
    Some(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_on_the_wire() {
        let asked = parts(b"POST /a%20b?c=d HTTP/1.1\r\nHost: a\r\nX-Id: 7\r\nX-Id: 8\r\n\r\n").expect("a head");
        assert_eq!((asked.method, asked.uri.to_string()), (Method::POST, "/a%20b?c=d".to_owned()));
        assert_eq!((asked.headers["x-id"].as_bytes(), asked.headers.len()), (&b"7"[..], 3));
        let answered = headers(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n").expect("a head");
        assert_eq!(answered["content-length"], "3");
        for head in [&b""[..], b"GET", b"GET /", b"\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n"] {
            assert!(parts(head).is_none(), "{head:?}");
        }
    }

    #[test]
    fn of_the_beginning_of_a_head_the_first_line_is_known_if_it_is_whole() {
        let line = only_line(b"GET /a?b HTTP/1.1\r\nHost: exam").expect("a line");
        let asked = parts(&line).expect("a head");
        assert_eq!((asked.method, asked.uri.to_string(), asked.headers.len()), (Method::GET, "/a?b".to_owned(), 0));
        assert!(only_line(b"GET /long").is_none() && only_line(b"").is_none());
        assert_eq!(first_line(b"GET /\0\0"), b"GET /");
    }
}
