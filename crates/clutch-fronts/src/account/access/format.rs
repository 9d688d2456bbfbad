//! Writes a line of the access log: as text in pieces, or as a JSON object.
//!
//! The usual text is the combined format of web servers, then seconds (in the pool's line, until the head, until the end),
//! how it ended, and of a WebSocket the close code. What a client or an app has said is escaped wherever it stands.

use std::fmt::{self, Display, Write};
use std::process;
use std::time::{Duration, SystemTime};

use crate::config::{LogFact, LogFormat, LogPiece};
use clutch_pool::date::Date;
use hyper::header::{HeaderName, REFERER, USER_AGENT};
use serde_json::json;

use super::record::{HeaderText, KeptFields, REQUEST_ID, Record, RequestFacts};

/// Placeholder for an unknown value.
const NONE: &str = "-";

enum LinePart {
    Text(String),
    /// By its place among those that a record keeps.
    RequestHeader(usize),
    ResponseHeader(usize),
    Fact(LogFact),
}

/// Format of lines, and so which fields a record has to keep.
pub(super) struct Line {
    /// None: as JSON.
    pieces: Option<Vec<LinePart>>,
    pub(super) named: KeptFields,
    pub(super) front: String,
    /// Lines of WebSockets have the close code behind all else; those of requests have nothing there.
    has_close_codes: bool,
}

impl Line {
    pub(super) fn new(format: &LogFormat, front: &str) -> Line {
        let has_close_codes = matches!(format, LogFormat::Text);
        let mut line = Line { pieces: None, named: KeptFields::default(), front: front.to_owned(), has_close_codes };
        match format {
            LogFormat::Json => line.named.of_request = vec![REFERER, USER_AGENT, REQUEST_ID],
            LogFormat::Text => {
                line.pieces = Some(usual().iter().map(|piece| line.compiled(piece)).collect());
                // Names of tokens; not those that clients of an app give.
                line.named.user = false;
            }
            LogFormat::Line(pieces) => line.pieces = Some(pieces.iter().map(|piece| line.compiled(piece)).collect()),
        }
        line
    }

    fn compiled(&mut self, piece: &LogPiece) -> LinePart {
        self.named.user |= *piece == LogPiece::Fact(LogFact::User);
        let placed = |name: &str, names: &mut Vec<HeaderName>| {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let known = names.iter().position(|known| *known == name);
            Some(known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }))
        };
        match piece {
            LogPiece::Text(text) => LinePart::Text(text.clone()),
            LogPiece::Fact(fact) => LinePart::Fact(*fact),
            LogPiece::RequestHeader(name) => placed(name, &mut self.named.of_request)
                .map_or_else(|| LinePart::Text(NONE.to_owned()), LinePart::RequestHeader),
            LogPiece::ResponseHeader(name) => placed(name, &mut self.named.of_response)
                .map_or_else(|| LinePart::Text(NONE.to_owned()), LinePart::ResponseHeader),
        }
    }

    pub(super) fn of(&self, record: &Record) -> String {
        let Some(pieces) = &self.pieces else { return json(record, &self.front) };
        let mut line = String::with_capacity(256);
        for piece in pieces {
            // A String takes all that is written.
            let _ = match piece {
                LinePart::Text(text) => line.write_str(text),
                LinePart::RequestHeader(at) => {
                    put_said(&mut line, record.asked.as_ref().and_then(|asked| asked.headers.get(*at)))
                }
                LinePart::ResponseHeader(at) => put_said(&mut line, record.response_headers.get(*at)),
                LinePart::Fact(fact) => put_fact(&mut line, *fact, record),
            };
        }
        if let Some(code) = record.close_code.filter(|_| self.has_close_codes) {
            let _ = write!(line, " {code}");
        }
        line
    }

    pub(super) fn of_dropped(&self, count: u64) -> String {
        match &self.pieces {
            Some(_) => format!("# {count} lines were dropped: requests came faster than their lines could be written"),
            None => json!({
                "time": Date::of(SystemTime::now()).iso(),
                "level": "warning",
                "message": "lines were dropped: requests came faster than their lines could be written",
                "front": self.front,
                "dropped": count,
            })
            .to_string(),
        }
    }
}

/// `%(h)s - %(u)s %(t)s "%(r)s" %(s)s %(B)s "%(f)s" "%(a)s" %(queue_s)s %(head_s)s %(total_s)s %(end)s`
fn usual() -> Vec<LogPiece> {
    let text = |text: &str| LogPiece::Text(text.to_owned());
    let header = |name: HeaderName| LogPiece::RequestHeader(name.as_str().to_owned());
    let fact = LogPiece::Fact;
    vec![
        fact(LogFact::Client),
        text(" - "),
        fact(LogFact::User),
        text(" "),
        fact(LogFact::Date),
        text(" \""),
        fact(LogFact::RequestLine),
        text("\" "),
        fact(LogFact::Status),
        text(" "),
        fact(LogFact::Bytes),
        text(" \""),
        header(REFERER),
        text("\" \""),
        header(USER_AGENT),
        text("\" "),
        fact(LogFact::QueueSeconds),
        text(" "),
        fact(LogFact::HeadSeconds),
        text(" "),
        fact(LogFact::DecimalSeconds),
        text(" "),
        fact(LogFact::End),
    ]
}

fn put_said(line: &mut String, said: Option<&HeaderText>) -> fmt::Result {
    match said {
        Some(Some(said)) => put_escaped(line, said),
        _ => line.write_str(NONE),
    }
}

fn put_known(line: &mut String, known: Option<impl Display>) -> fmt::Result {
    match known {
        Some(known) => write!(line, "{known}"),
        None => line.write_str(NONE),
    }
}

fn put_fact(line: &mut String, fact: LogFact, record: &Record) -> fmt::Result {
    let (asked, total) = (record.asked.as_ref(), record.ended_after);
    let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
    match fact {
        LogFact::Client => put_known(line, record.client()),
        LogFact::User => put_said(line, asked.map(|asked| &asked.user)),
        LogFact::Date => write!(line, "[{}]", Date::of(record.at).of_web_servers()),
        LogFact::IsoDate => line.write_str(&Date::of(record.at).iso()),
        LogFact::RequestLine => put_request_line(line, record),
        LogFact::Method => put_known(line, asked.map(|asked| &asked.method)),
        LogFact::Path => match asked {
            Some(asked) => put_escaped(line, asked.path_and_query().0.as_bytes()),
            None => line.write_str(NONE),
        },
        // Nothing at all, as gunicorn has it: it stands after a question mark.
        LogFact::Query => {
            asked.and_then(|asked| asked.path_and_query().1).map_or(Ok(()), |query| put_escaped(line, query.as_bytes()))
        }
        LogFact::Protocol => put_known(line, asked.map(|asked| format!("{:?}", asked.version))),
        LogFact::Scheme => line.write_str(if record.is_secure { "https" } else { "http" }),
        LogFact::Status => put_known(line, record.status),
        LogFact::Bytes => write!(line, "{}", record.bytes),
        LogFact::ResponseBytes => put_known(line, record.status.map(|_| record.bytes)),
        LogFact::Seconds => write!(line, "{}", total.as_secs()),
        LogFact::Millis => write!(line, "{}", total.as_millis()),
        LogFact::Micros => write!(line, "{}", total.as_micros()),
        LogFact::DecimalSeconds => line.write_str(&seconds(total)),
        LogFact::DecimalMillis => write!(line, "{:.3}", total.as_secs_f64() * 1e3),
        LogFact::Pid => write!(line, "<{}>", process::id()),
        LogFact::ProxySeconds => line.write_str(&seconds(record.waited)),
        LogFact::QueueSeconds => put_known(line, record.queued.map(seconds)),
        LogFact::CpuSeconds => put_known(line, record.cpu.map(seconds)),
        LogFact::HeadSeconds => put_known(line, record.head_after.map(seconds)),
        LogFact::End => line.write_str(record.end.as_str()),
        LogFact::CloseCode => put_known(line, record.close_code),
    }
}

fn put_request_line(line: &mut String, record: &Record) -> fmt::Result {
    let Some(asked) = record.asked.as_ref() else {
        return put_escaped(line, record.line.as_deref().unwrap_or(NONE).as_bytes());
    };
    write!(line, "{} ", asked.method)?;
    put_escaped(line, asked.target.as_bytes())?;
    write!(line, " {:?}", asked.version)
}

/// Nothing that a client sends ends a line or a quotation.
fn put_escaped(line: &mut String, bytes: &[u8]) -> fmt::Result {
    for byte in bytes {
        match byte {
            b'"' | b'\\' => line.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => line.push(char::from(*byte)),
            _ => write!(line, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}

/// With the keys that all lines of a log as JSON have, and its own.
fn json(record: &Record, front: &str) -> String {
    let asked = record.asked.as_ref();
    let target = asked.map(RequestFacts::path_and_query);
    let header = |at: usize| {
        let said = asked.and_then(|asked| asked.headers.get(at)).and_then(Option::as_ref);
        said.map(|said| String::from_utf8_lossy(said).into_owned())
    };
    let mut message = String::new();
    // A String takes all that is written.
    let _ = put_request_line(&mut message, record);
    let _ = put_known(&mut message, record.status.map(|status| format!(" {status}")));
    json!({
        "time": Date::of(record.at).iso(),
        "level": "info",
        "message": message,
        "front": front,
        "client": record.client(),
        "user": asked.and_then(|asked| asked.user.as_ref()).map(|user| String::from_utf8_lossy(user)),
        "method": asked.map(|asked| asked.method.as_str()),
        "path": target.map(|(path, _)| path),
        "query": target.and_then(|(_, query)| query),
        "version": asked.map(|asked| format!("{:?}", asked.version)),
        "status": record.status,
        "bytes": record.bytes,
        "referer": header(0),
        "agent": header(1),
        "request_id": header(2),
        "proxy_s": record.waited.as_secs_f64(),
        "queue_s": record.queued.map(|queued| queued.as_secs_f64()),
        "cpu_s": record.cpu.map(|cpu| cpu.as_secs_f64()),
        "head_s": record.head_after.map(|after| after.as_secs_f64()),
        "total_s": record.ended_after.as_secs_f64(),
        "end": record.end.as_str(),
        "close_code": record.close_code,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use hyper::Request;
    use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};

    use super::*;
    use crate::account::access::AccessLog;
    use crate::account::figures::{End, Figures};
    use crate::net::peer::Peer;

    #[test]
    fn a_client_cannot_write_lines_of_its_own() {
        let mut line = String::new();
        put_escaped(&mut line, b"a\" \\ \n\x7f\xe9").expect("a String takes all");
        assert_eq!(line, "a\\\" \\\\ \\x0a\\x7f\\xe9");
    }

    fn written(pieces: Vec<LogPiece>) -> (String, String) {
        let log = AccessLog::begin("/dev/null", &LogFormat::Line(pieces), &[], Figures::new("serve")).expect("a log");
        let request = Request::get("/a%20b?c=d")
            .header("x-id", "one\ttwo")
            .header("x-id", "three")
            .header("authorization", "Basic YW5uOnNlY3JldDpz")
            .body(())
            .expect("a request");
        let peer = Arc::new(Peer::new(Some("1.2.3.4:5".parse().expect("an address")), None, true));
        let mut record = log.record(&peer, &request.into_parts().0);
        let mut headers = HeaderMap::new();
        headers.insert("x-of-app", HeaderValue::from_bytes(b"caf\xe9").expect("a value"));
        record.head_came(201, &headers, &log.line.named);
        record.cpu = Some(Duration::from_micros(1500));
        record.close_code = Some(4001);
        (record.bytes, record.end, record.ended_after) = (7, End::Whole, Duration::from_micros(2_345_678));
        let unheard = Record::of_nothing(&peer, Instant::now(), None, End::ClientGone);
        (log.line.of(&record), log.line.of(&unheard))
    }

    #[test]
    fn each_piece_is_what_gunicorn_writes_there() {
        let header = |name: &str| LogPiece::RequestHeader(name.to_owned());
        for (piece, expected, of_nothing) in [
            (LogPiece::Text("-".to_owned()), "-", "-"),
            (header("x-id"), "one\\x09two", "-"),
            (header("x-none"), "-", "-"),
            (LogPiece::ResponseHeader("x-of-app".to_owned()), "caf\\xe9", "-"),
            (LogPiece::Fact(LogFact::Client), "1.2.3.4", "1.2.3.4"),
            (LogPiece::Fact(LogFact::User), "ann", "-"),
            (LogPiece::Fact(LogFact::RequestLine), "GET /a%20b?c=d HTTP/1.1", "-"),
            (LogPiece::Fact(LogFact::Method), "GET", "-"),
            (LogPiece::Fact(LogFact::Path), "/a%20b", "-"),
            (LogPiece::Fact(LogFact::Query), "c=d", ""),
            (LogPiece::Fact(LogFact::Protocol), "HTTP/1.1", "-"),
            (LogPiece::Fact(LogFact::Scheme), "https", "https"),
            (LogPiece::Fact(LogFact::Status), "201", "-"),
            (LogPiece::Fact(LogFact::Bytes), "7", "0"),
            (LogPiece::Fact(LogFact::ResponseBytes), "7", "-"),
            (LogPiece::Fact(LogFact::Seconds), "2", "0"),
            (LogPiece::Fact(LogFact::Millis), "2345", "0"),
            (LogPiece::Fact(LogFact::Micros), "2345678", "0"),
            (LogPiece::Fact(LogFact::DecimalSeconds), "2.345678", "0.000000"),
            (LogPiece::Fact(LogFact::DecimalMillis), "2345.678", "0.000"),
            (LogPiece::Fact(LogFact::QueueSeconds), "-", "-"),
            (LogPiece::Fact(LogFact::CpuSeconds), "0.001500", "-"),
            (LogPiece::Fact(LogFact::End), "whole", "client-gone"),
            (LogPiece::Fact(LogFact::CloseCode), "4001", "-"),
        ] {
            let name = format!("{piece:?}");
            assert_eq!(written(vec![piece]), (expected.to_owned(), of_nothing.to_owned()), "{name}");
        }
    }

    #[test]
    fn a_record_keeps_what_its_line_names_and_no_password() {
        let named = Line::new(
            &LogFormat::Line(vec![
                LogPiece::RequestHeader("x-a".to_owned()),
                LogPiece::ResponseHeader("x-b".to_owned()),
                LogPiece::RequestHeader("x-a".to_owned()),
            ]),
            "serve",
        )
        .named;
        assert_eq!(
            (named.of_request.as_slice(), named.of_response.as_slice()),
            (&["x-a".parse().expect("a name")][..], &["x-b".parse().expect("a name")][..])
        );
        let mut headers = HeaderMap::new();
        let mut user = |text: &'static str| {
            headers.insert(AUTHORIZATION, text.parse().expect("a value"));
            let said =
                Line::new(&LogFormat::Line(vec![LogPiece::Fact(LogFact::User)]), "serve").named.user(&headers)?;
            assert_eq!(named_nobody(&headers), None);
            String::from_utf8(said.into()).ok()
        };
        assert_eq!(user("basic YW5u"), Some("ann".to_owned()));
        for wrong in ["Basic", "Basic ", "Basic OnNlY3JldA==", "Basic ?", "Bearer YW5uOnNlY3JldA=="] {
            assert_eq!(user(wrong), None, "{wrong}");
        }
    }

    fn named_nobody(headers: &HeaderMap) -> HeaderText {
        Line::new(&LogFormat::Text, "serve").named.user(headers)
    }

    #[test]
    fn a_client_by_a_unix_socket_has_no_address() {
        let peer = Arc::new(Peer::new(None, None, false));
        let record = Record::of_nothing(&peer, Instant::now(), None, End::ClientGone);
        assert!(Line::new(&LogFormat::Json, "serve").of(&record).contains("\"client\":null"));
        assert!(Line::new(&LogFormat::Text, "serve").of(&record).starts_with("- - - ["));
    }
}
