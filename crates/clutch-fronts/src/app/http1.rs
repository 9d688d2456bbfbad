//! Responses as they are written to a client of HTTP/1.1, by a worker that holds its connection: pure.
//!
//! Names are in lower case and values without spaces around them, as the front writes them for all others.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;

/// Facts of a head whose lines the app has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub status: u16,
    says_length: bool,
    has_date: bool,
    /// The app wants the connection closed.
    pub closes: bool,
}

/// How a body is told from what follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// By its length, or there is none.
    #[default]
    Length,
    Chunked,
}

/// What is known when the first part of a body is there.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// It is all of the body, and so long.
    pub whole: Option<u64>,
    /// The client is sent a body.
    pub has_body: bool,
    /// The request was a HEAD.
    pub is_head: bool,
    /// No request follows on the connection.
    pub is_last: bool,
}

/// Headers about the connection are the server's, all but the wish to close it. An app that sets them would break framing.
pub fn is_of_connection(name: &[u8], value: &[u8]) -> bool {
    const OF_CONNECTION: [&[u8]; 5] =
        [b"transfer-encoding", b"keep-alive", b"upgrade", b"proxy-connection", b"trailer"];
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    match name.first().map(u8::to_ascii_lowercase) {
        Some(b't' | b'k' | b'u' | b'p') => OF_CONNECTION.into_iter().any(is),
        Some(b'c') => is(b"connection") && !value.eq_ignore_ascii_case(b"close"),
        _ => false,
    }
}

/// Writes the lines of a head.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    facts: Facts,
}

impl<'a> Writer<'a> {
    /// `reason`: empty, that of the standard.
    pub(super) fn begin(out: &'a mut Vec<u8>, status: u16, reason: &[u8]) -> Writer<'a> {
        if status == 200 && reason.is_empty() {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            let usual = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
            // Writing to memory does not fail.
            let _ = write!(out, "HTTP/1.1 {status} ");
            out.extend_from_slice(if reason.is_empty() { usual.unwrap_or_default().as_bytes() } else { reason });
            out.extend_from_slice(b"\r\n");
        }
        Writer { out, facts: Facts { status, says_length: false, has_date: false, closes: false } }
    }

    pub(super) fn put(&mut self, name: &[u8], value: &[u8]) {
        let value = value.trim_ascii();
        if is_of_connection(name, value) {
            return;
        }
        match name.len() {
            4 => self.facts.has_date |= name.eq_ignore_ascii_case(b"date"),
            10 => self.facts.closes |= name.eq_ignore_ascii_case(b"connection"),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if !may_say_length(self.facts.status) {
                    return;
                }
                self.facts.says_length = true;
            }
            _ => {}
        }
        let at = self.out.len();
        self.out.extend_from_slice(name);
        self.out[at..].make_ascii_lowercase();
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn facts(self) -> Facts {
        self.facts
    }
}

/// RFC 9110, 8.6.
fn may_say_length(status: u16) -> bool {
    !matches!(status, 100..=199 | 204)
}

impl Facts {
    /// Adds to a head what the connection needs, and ends it.
    pub fn finish(&self, head: &mut Vec<u8>, first: First, now: SystemTime) -> Framing {
        let mut framing = Framing::Length;
        if !self.says_length && may_say_length(self.status) {
            match first.whole {
                Some(bytes) if first.has_body => put_length(head, bytes),
                // Without a body that the app could tell the length of.
                Some(_) if !first.is_head && self.status != 304 => put_length(head, 0),
                None if first.has_body => {
                    head.extend_from_slice(b"transfer-encoding: chunked\r\n");
                    framing = Framing::Chunked;
                }
                _ => {}
            }
        }
        if first.is_last && !self.closes {
            head.extend_from_slice(b"connection: close\r\n");
        }
        if !self.has_date {
            put_date(head, now);
        }
        head.extend_from_slice(b"\r\n");
        framing
    }
}

fn put_length(head: &mut Vec<u8>, bytes: u64) {
    // Writing to memory does not fail.
    let _ = write!(head, "content-length: {bytes}\r\n");
}

fn put_date(head: &mut Vec<u8>, now: SystemTime) {
    thread_local! {
        /// The line as it was written last, and when.
        static LAST: std::cell::RefCell<(u64, Vec<u8>)> = const { std::cell::RefCell::new((0, Vec::new())) };
    }
    let second = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    LAST.with_borrow_mut(|(at, line)| {
        if *at != second || line.is_empty() {
            *at = second;
            *line = format!("date: {}\r\n", httpdate::fmt_http_date(now)).into_bytes();
        }
        head.extend_from_slice(line);
    });
}

/// Appends a part of a chunked body; an empty one is nothing, unless it is the last.
pub fn put_chunk(out: &mut Vec<u8>, bytes: &[u8], is_last: bool) {
    if !bytes.is_empty() {
        // Writing to memory does not fail.
        let _ = write!(out, "{:x}\r\n", bytes.len());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
    if is_last {
        out.extend_from_slice(b"0\r\n\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::response::{Head, Part, Response};

    const FIRST: First = First { whole: Some(2), has_body: true, is_head: false, is_last: false };

    /// The head of a response, without its date.
    fn written(
        status: u16,
        lines: &[(&str, &str)],
        is_head: bool,
        first: impl Fn(First) -> First,
    ) -> (String, Framing) {
        let headers = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut response = Response::new(is_head);
        response.start(Head::for_client(status, b"", headers, !is_head).expect("a head")).expect("a start");
        let first = first(First { has_body: response.has_body(), is_head, ..FIRST });
        let length = first.whole.unwrap_or_default();
        let Ok(Part::Head { mut head, .. }) = response.body(length, first.whole.is_none()) else { panic!("no head") };
        let facts = response.facts().expect("facts");
        let framing = facts.finish(&mut head, first, UNIX_EPOCH + Duration::from_secs(784_111_777));
        let text = String::from_utf8(head).expect("text");
        (text.replace("date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "").replace("\r\n", "|"), framing)
    }

    fn of(status: u16, lines: &[(&str, &str)]) -> String {
        written(status, lines, false, |first| first).0
    }

    #[test]
    fn a_body_that_is_whole_has_its_length() {
        assert_eq!(of(200, &[("X-Some", " a\tb ")]), "HTTP/1.1 200 OK|x-some: a\tb|content-length: 2||");
        assert_eq!(of(299, &[("Content-Length", "2")]), "HTTP/1.1 299 |content-length: 2||");
        assert_eq!(of(404, &[]), "HTTP/1.1 404 Not Found|content-length: 2||");
    }

    #[test]
    fn where_there_is_no_body_no_length_misleads() {
        assert_eq!(of(204, &[("content-length", "2")]), "HTTP/1.1 204 No Content||");
        assert_eq!(of(205, &[("content-length", "2")]), "HTTP/1.1 205 Reset Content|content-length: 0||");
        assert_eq!(of(304, &[]), "HTTP/1.1 304 Not Modified||");
        assert_eq!(of(304, &[("content-length", "9")]), "HTTP/1.1 304 Not Modified|content-length: 9||");
        let head = |lines: &[(&str, &str)]| written(200, lines, true, |first| First { whole: Some(0), ..first }).0;
        assert_eq!(head(&[]), "HTTP/1.1 200 OK||");
        assert_eq!(head(&[("content-length", "9")]), "HTTP/1.1 200 OK|content-length: 9||");
    }

    #[test]
    fn a_body_that_goes_on_is_chunked_unless_its_length_is_told() {
        let goes_on = |first| First { whole: None, ..first };
        let chunked = ("HTTP/1.1 200 OK|transfer-encoding: chunked||".to_owned(), Framing::Chunked);
        assert_eq!(written(200, &[("Transfer-Encoding", "gzip")], false, goes_on), chunked);
        let told = ("HTTP/1.1 200 OK|content-length: 9||".to_owned(), Framing::Length);
        assert_eq!(written(200, &[("content-length", "9")], false, goes_on), told);
        assert_eq!(written(200, &[], true, goes_on).1, Framing::Length);
        let mut out = Vec::new();
        put_chunk(&mut out, b"", false);
        put_chunk(&mut out, &[b'x'; 17], false);
        put_chunk(&mut out, b"y", true);
        assert_eq!(out, b"11\r\nxxxxxxxxxxxxxxxxx\r\n1\r\ny\r\n0\r\n\r\n");
    }

    #[test]
    fn the_connection_is_the_servers() {
        let lines = [("Connection", "keep-alive, x"), ("Keep-Alive", "9"), ("upgrade", "a"), ("Trailer", "b")];
        assert_eq!(of(200, &lines), "HTTP/1.1 200 OK|content-length: 2||");
        let is_last = |first| First { is_last: true, ..first };
        let closed = "HTTP/1.1 200 OK|content-length: 2|connection: close||";
        assert_eq!(written(200, &[], false, is_last).0, closed);
        let by_app = "HTTP/1.1 200 OK|connection: Close|content-length: 2||";
        assert_eq!(written(200, &[("connection", "Close")], false, is_last).0, by_app);
    }

    #[test]
    fn a_date_of_the_app_stays_the_only_one() {
        assert_eq!(of(200, &[("Date", "today")]), "HTTP/1.1 200 OK|date: today|content-length: 2||");
        let mut head = Vec::new();
        put_date(&mut head, UNIX_EPOCH);
        assert_eq!(head, b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
    }
}
