//! State of a response: a pure machine. The front gets a head, parts of the body, and the word that it is whole.

use clutch_wire::headers::HeaderWriter;
use hyper::StatusCode;

use super::http1::{self, Facts};
use crate::codec::http::{self, RESPONSE_HEADERS_MAX, put_response_with, put_route, response_flag};

/// Longest name of a header, and longest reason of a status, in bytes.
const NAME_BYTES_MAX: usize = 65_535;

/// Most bytes of a route that are told.
const ROUTE_BYTES_MAX: usize = 200;

/// Violation of the protocol by an app; it is raised in the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    StartedTwice,
    NotStarted,
    Ended,
    TooLong,
    TooShort,
    Status,
    Reason,
    HeaderName,
    HeaderValue,
    HeaderCount,
    Length,
}

impl Misuse {
    pub fn as_str(self) -> &'static str {
        match self {
            Misuse::StartedTwice => "the response was started twice",
            Misuse::NotStarted => "the body came before http.response.start",
            Misuse::Ended => "the response was already complete",
            Misuse::TooLong => "the body is longer than its Content-Length",
            Misuse::TooShort => "the body is shorter than its Content-Length",
            Misuse::Status => "a status from 200 to 999 is allowed",
            Misuse::Reason => "the reason of a status holds no CR, LF, NUL or other control character",
            Misuse::HeaderName => "the name of a header is letters, digits and !#$%&'*+-.^_`|~, at most 65,535",
            Misuse::HeaderValue => "the value of a header holds no CR, LF, NUL or other control character",
            Misuse::HeaderCount => "a response has at most 10,000 header lines",
            Misuse::Length => "a Content-Length is in digits, and each further one says the same",
        }
    }
}

/// Status of a response whose body is empty; the front writes its Content-Length of 0.
const RESET_CONTENT: u16 = 205;

/// Part of a response, to be sent to the front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The head, to be followed by these bytes of the body.
    Head {
        head: Vec<u8>,
        is_whole: bool,
    },
    Body {
        is_last: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    /// The head waits for the first part of the body.
    Started(Vec<u8>),
    Sending,
    Whole,
}

/// Where a head goes, and so how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// To a front, by the link.
    Link,
    /// To the client, as far as the app has told: what the connection needs is added when the first part of the body is there.
    Http1,
}

/// A head as it is put together.
#[derive(Clone, Debug)]
pub struct Head {
    bytes: Vec<u8>,
    status: u16,
    /// Content-Length of the response.
    length: Option<u64>,
    is_event_stream: bool,
    /// Of one for a client.
    facts: Option<Facts>,
}

impl Head {
    /// `reason`: what the app calls its status; empty: as the standard does. `headers` are names and values. `has_body`:
    /// the request was no HEAD.
    pub fn new<'a>(
        status: u16,
        reason: &[u8],
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        has_body: bool,
    ) -> Result<Head, Misuse> {
        check_status(status)?;
        Head::put(Form::Link, status, reason, headers, has_body)
    }

    /// The same for a client of HTTP/1.1.
    pub fn for_client<'a>(
        status: u16,
        reason: &[u8],
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        has_body: bool,
    ) -> Result<Head, Misuse> {
        check_status(status)?;
        Head::put(Form::Http1, status, reason, headers, has_body)
    }

    /// The same, with the route by which the app's framework found what answers. What is too long for a name of a figure is
    /// cut.
    #[must_use]
    pub fn with_route(mut self, route: &str) -> Head {
        let longest = route.len().min(ROUTE_BYTES_MAX);
        let end = (0..=longest).rev().find(|at| route.is_char_boundary(*at)).unwrap_or_default();
        put_route(&mut self.bytes, &route.as_bytes()[..end]);
        self
    }

    /// The head that accepts a WebSocket, as it goes on the link.
    pub fn accepting<'a>(headers: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Result<Vec<u8>, Misuse> {
        Head::put(Form::Link, 101, b"", headers, false).map(|head| head.bytes)
    }

    fn put<'a>(
        form: Form,
        status: u16,
        reason: &[u8],
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        has_body: bool,
    ) -> Result<Head, Misuse> {
        let mut bytes = Vec::with_capacity(256);
        let length = agreed_length(headers.clone(), has_body && !is_without_body(status))?;
        // Without a body it is 0, which the front says.
        let mut says_length = length.is_some() && status != RESET_CONTENT;
        let mut is_event_stream = false;
        let own = own_reason(status, reason)?;
        let mut writer = match form {
            Form::Link => HeadWriter::Link(put_response_with(&mut bytes, 0, status, own)),
            Form::Http1 => HeadWriter::Http1(http1::Writer::begin(&mut bytes, status, own)),
        };
        for (nr, (name, value)) in headers.enumerate() {
            if nr == RESPONSE_HEADERS_MAX {
                return Err(Misuse::HeaderCount);
            }
            check_header(name, value)?;
            is_event_stream |= name.eq_ignore_ascii_case(b"content-type") && http::is_event_stream(value);
            if !is_length(name) {
                writer.put(name, value);
            } else if std::mem::take(&mut says_length) {
                writer.put(name, value.split(is_comma).next().unwrap_or_default());
            }
        }
        let facts = writer.facts();
        Ok(Head { bytes, status, length, is_event_stream, facts })
    }
}

/// Writes the lines of a head.
enum HeadWriter<'a> {
    Link(HeaderWriter<'a>),
    Http1(http1::Writer<'a>),
}

impl HeadWriter<'_> {
    fn put(&mut self, name: &[u8], value: &[u8]) {
        match self {
            HeadWriter::Link(writer) => writer.put(name, value),
            HeadWriter::Http1(writer) => writer.put(name, value),
        }
    }

    fn facts(self) -> Option<Facts> {
        match self {
            HeadWriter::Link(_) => None,
            HeadWriter::Http1(writer) => Some(writer.facts()),
        }
    }
}

fn check_status(status: u16) -> Result<(), Misuse> {
    if (200..=999).contains(&status) { Ok(()) } else { Err(Misuse::Status) }
}

/// Returns the app's own reason phrase where it differs from the standard one.
fn own_reason(status: u16, reason: &[u8]) -> Result<&[u8], Misuse> {
    if reason.len() > NAME_BYTES_MAX || reason.iter().any(is_control) {
        return Err(Misuse::Reason);
    }
    let usual = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    Ok(if usual.is_some_and(|usual| usual.as_bytes() == reason) { b"" } else { reason })
}

fn is_control(byte: &u8) -> bool {
    (*byte < b' ' && *byte != b'\t') || *byte == 0x7f
}

/// Fails if a header would let the app write lines of its own on the wire.
fn check_header(name: &[u8], value: &[u8]) -> Result<(), Misuse> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(is_name) {
        return Err(Misuse::HeaderName);
    }
    if value.iter().any(is_control) { Err(Misuse::HeaderValue) } else { Ok(()) }
}

/// Returns the Content-Length that all of them say, in one line or several (RFC 9110, 8.6). Where they differ, recipients
/// take the one or the other: an error before a body; without one, where frameworks add the length of what they send to
/// that of what GET would, none.
fn agreed_length<'a>(
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    has_body: bool,
) -> Result<Option<u64>, Misuse> {
    let values = headers.filter(|(name, _)| is_length(name)).flat_map(|(_, value)| value.split(is_comma));
    let mut lengths = values.map(length_of);
    let Some(first) = lengths.next().transpose()? else { return Ok(None) };
    let mut agree = true;
    for length in lengths {
        agree &= length? == first;
    }
    if !agree && has_body { Err(Misuse::Length) } else { Ok(agree.then_some(first)) }
}

fn is_length(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length")
}

fn is_comma(byte: &u8) -> bool {
    *byte == b','
}

fn is_without_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | RESET_CONTENT | 304)
}

fn length_of(value: &[u8]) -> Result<u64, Misuse> {
    let text = std::str::from_utf8(value).map_err(|_| Misuse::Length)?.trim();
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(Misuse::Length)
}

/// State of one response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    phase: Phase,
    /// Bytes that are still missing of the promised Content-Length.
    left: Option<u64>,
    /// To HEAD, or with a status that has none.
    without_body: bool,
    is_event_stream: bool,
    facts: Option<Facts>,
}

impl Response {
    pub fn new(is_head: bool) -> Response {
        Response { without_body: is_head, ..Response::default() }
    }

    pub fn is_started(&self) -> bool {
        self.phase != Phase::Waiting
    }

    /// Returns whether the head waits for the first part of the body.
    pub fn has_head(&self) -> bool {
        matches!(self.phase, Phase::Started(_))
    }

    pub fn is_whole(&self) -> bool {
        self.phase == Phase::Whole
    }

    pub fn has_body(&self) -> bool {
        !self.without_body
    }

    /// Returns whether the response is an event stream, which has no end of its own.
    pub fn is_event_stream(&self) -> bool {
        self.is_event_stream
    }

    pub fn start(&mut self, head: Head) -> Result<(), Misuse> {
        if self.is_started() {
            return Err(Misuse::StartedTwice);
        }
        self.without_body |= is_without_body(head.status);
        self.left = head.length.filter(|_| !self.without_body);
        self.is_event_stream = head.is_event_stream;
        self.facts = head.facts;
        self.phase = Phase::Started(head.bytes);
        Ok(())
    }

    /// What is known of a head for a client.
    pub fn facts(&self) -> Option<Facts> {
        self.facts
    }

    /// So much of a part is within the length that the app has promised.
    pub fn within(&self, bytes: u64) -> u64 {
        self.left.map_or(bytes, |left| bytes.min(left))
    }

    /// A part of the body.
    pub fn body(&mut self, bytes: u64, more: bool) -> Result<Part, Misuse> {
        match &self.phase {
            Phase::Waiting => return Err(Misuse::NotStarted),
            Phase::Whole => return Err(Misuse::Ended),
            Phase::Started(_) | Phase::Sending => {}
        }
        self.count(bytes, more)?;
        let next = if more { Phase::Sending } else { Phase::Whole };
        Ok(match std::mem::replace(&mut self.phase, next) {
            Phase::Started(mut head) => {
                if self.facts.is_none() {
                    head[0] |= if more { 0 } else { response_flag::WHOLE };
                }
                Part::Head { head, is_whole: !more }
            }
            _ => Part::Body { is_last: !more },
        })
    }

    fn count(&mut self, bytes: u64, more: bool) -> Result<(), Misuse> {
        let Some(left) = self.left else { return Ok(()) };
        let left = left.checked_sub(bytes).ok_or(Misuse::TooLong)?;
        self.left = Some(left);
        if left > 0 && !more { Err(Misuse::TooShort) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(length: Option<&str>) -> Head {
        let headers = length.iter().map(|length| (&b"Content-Length"[..], length.as_bytes()));
        Head::new(200, b"", headers, true).expect("a head")
    }

    fn started(length: Option<&str>) -> Response {
        let mut response = Response::new(false);
        response.start(head(length)).expect("a start");
        response
    }

    #[test]
    fn a_body_of_one_part_goes_with_its_head() {
        let part = started(None).body(5, false).expect("a part");
        assert!(matches!(part, Part::Head { head, is_whole: true } if head[0] == response_flag::WHOLE));
    }

    #[test]
    fn parts_follow_the_head_until_the_last() {
        let mut response = started(Some("6"));
        assert!(matches!(response.body(2, true), Ok(Part::Head { is_whole: false, .. })));
        assert_eq!(response.body(2, true), Ok(Part::Body { is_last: false }));
        assert_eq!(response.body(2, false), Ok(Part::Body { is_last: true }));
        assert_eq!(response.body(0, false), Err(Misuse::Ended));
    }

    #[test]
    fn what_is_too_much_too_little_or_too_early_is_told() {
        assert_eq!(Response::new(false).body(0, false), Err(Misuse::NotStarted));
        assert_eq!(started(Some("3")).body(4, true), Err(Misuse::TooLong));
        assert_eq!(started(Some("3")).body(2, false), Err(Misuse::TooShort));
        assert_eq!(started(None).start(head(None)), Err(Misuse::StartedTwice));
        assert_eq!(Head::new(199, b"", std::iter::empty(), true).err(), Some(Misuse::Status));
        assert_eq!((started(Some("3")).within(4), started(None).within(4)), (3, 4));
    }

    #[test]
    fn headers_stay_on_their_lines() {
        let made = |lines: &[(&'static str, &'static str)]| {
            Head::new(200, b"", lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), true).err()
        };
        assert_eq!(made(&[("X-A", "tab\tand caf\u{e9}")]), None);
        for value in ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "a\0b", "\u{7f}"] {
            assert_eq!(made(&[("X-A", value)]), Some(Misuse::HeaderValue), "{value:?}");
        }
        for name in ["", "a b", "a:", "a\r\nb", "\u{e9}"] {
            assert_eq!(made(&[(name, "a")]), Some(Misuse::HeaderName), "{name:?}");
        }
        for length in ["+5", "-5", "5, 6", "5,", "", "five", "99999999999999999999"] {
            assert_eq!(made(&[("Content-Length", length)]), Some(Misuse::Length), "{length:?}");
        }
    }

    #[test]
    fn lengths_that_agree_are_said_once_and_others_where_no_body_tells_which_is_right() {
        let said = |status, values: &[&str], has_body| {
            let headers = values.iter().map(|value| (&b"Content-Length"[..], value.as_bytes()));
            let head = Head::new(status, b"", headers.chain([(&b"x"[..], &b"y"[..])]), has_body)?;
            let read = http::ResponseHead::read(&head.bytes).expect("a head").0;
            let values: Vec<_> =
                read.headers.iter().filter(|(name, _)| is_length(name)).map(|(_, value)| value).collect();
            assert_eq!(read.headers.len(), values.len() + 1);
            Ok((String::from_utf8(values.join(&b' ')).expect("digits"), head.length))
        };
        for (status, has_body) in [(200, true), (200, false), (304, true)] {
            assert_eq!(said(status, &["5, 5", "05", "5"], has_body), Ok(("5".to_owned(), Some(5))), "{status}");
            assert_eq!(said(status, &["5", "five"], has_body), Err(Misuse::Length), "{status}");
        }
        for values in [["1000", "0"], ["0", "1000"]] {
            assert_eq!(said(200, &values, true), Err(Misuse::Length));
            assert_eq!(said(200, &values, false), Ok((String::new(), None)));
            assert_eq!(said(304, &values, true), Ok((String::new(), None)));
        }
    }

    fn reason_of(head: &Head) -> Vec<u8> {
        http::ResponseHead::read(&head.bytes).expect("a head").0.reason.to_vec()
    }

    #[test]
    fn a_reason_travels_where_it_is_not_the_usual_one() {
        let made =
            |status, reason: &[u8]| Head::new(status, reason, std::iter::empty(), true).map(|head| reason_of(&head));
        assert_eq!(made(200, b"OK"), Ok(Vec::new()));
        assert_eq!(made(200, b"Fine"), Ok(b"Fine".to_vec()));
        assert_eq!(made(299, b"Odd \xe9"), Ok(b"Odd \xe9".to_vec()));
        assert_eq!(made(200, b"OK\r\nX: y"), Err(Misuse::Reason));
    }

    #[test]
    fn a_route_is_cut_between_characters() {
        let head = Head::new(200, b"Fine", std::iter::empty(), true).expect("a head").with_route(&"\u{e9}".repeat(150));
        let (read, _) = http::ResponseHead::read(&head.bytes).expect("a head");
        assert_eq!((read.route, read.reason), ("\u{e9}".repeat(100).as_bytes(), &b"Fine"[..]));
        let odd = Head::new(200, b"", std::iter::empty(), true)
            .expect("a head")
            .with_route(&format!("/{}", "\u{e9}".repeat(150)));
        assert_eq!(http::ResponseHead::read(&odd.bytes).expect("a head").0.route.len(), 199);
    }

    #[test]
    fn a_response_has_no_more_header_lines_than_the_limit() {
        let made = |count| Head::new(200, b"", std::iter::repeat_n((&b"x"[..], &b"y"[..]), count), true).err();
        assert_eq!(made(RESPONSE_HEADERS_MAX), None);
        assert_eq!(made(RESPONSE_HEADERS_MAX + 1), Some(Misuse::HeaderCount));
    }

    #[test]
    fn what_resets_content_has_none_and_says_no_length() {
        let length = [(&b"Content-Length"[..], &b"5"[..])];
        let head = Head::new(205, b"", length.into_iter(), true).expect("a head");
        assert!(http::ResponseHead::read(&head.bytes).expect("a head").0.headers.is_empty());
        let mut response = Response::new(false);
        response.start(head).expect("a start");
        assert!(response.body(2, false).is_ok() && !response.has_body());
    }

    #[test]
    fn an_answer_to_head_may_promise_a_body_that_does_not_come() {
        let mut response = Response::new(true);
        response.start(head(Some("100"))).expect("a start");
        assert!(response.body(0, false).is_ok());
    }
}
