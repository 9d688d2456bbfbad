//! Finds the ends of HTTP/1 lines on a connection, beside the HTTP library.
//!
//! The library takes a lone LF for the end of a line in a head, and does not in trailers. A proxy that reads it the other
//! way finds other requests in the same bytes than we do (request smuggling), so a line ends by CRLF here, or the
//! connection does. This machine follows the framing closely enough to know where lines are: heads, sizes of chunks,
//! trailers. Bodies and HTTP/2 pass unseen.

use std::io;

use crate::net::protocol::Protocol;

/// Connection preface of HTTP/2 with prior knowledge.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// No head is valid with it: the library answers 400 and closes the connection.
const INVALID: u8 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingState {
    /// So many bytes of the preface have come.
    Preface(usize),
    Head,
    /// So many bytes are left.
    Body(u64),
    ChunkSize,
    /// Behind the digits of a chunk's size.
    ChunkExtension,
    ChunkSizeLf,
    Chunk(u64),
    ChunkCr,
    ChunkLf,
    TrailerStart,
    Trailer,
    /// Behind the CR of a trailer, or of the line that ends them.
    TrailerCr {
        is_last: bool,
    },
    /// Nothing that follows is a line of HTTP/1: HTTP/2, WebSockets, or a head that the library refuses.
    Opaque,
    /// Framing was violated behind a head.
    Broken,
}

/// Framing that the head being read announces for its body.
#[derive(Clone, Copy, Debug, Default)]
struct Announced {
    length: u64,
    is_chunked: bool,
    is_websocket: bool,
}

/// Framing of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    protocol: Protocol,
    state: FramingState,
    is_http2: bool,
    announced: Announced,
    /// Bytes of the current line that came with earlier reads.
    line: Vec<u8>,
    /// The line is the first of its head.
    is_first: bool,
    chunk: u64,
    targets: Targets,
}

impl Framing {
    /// The library takes a preface for one, whatever was agreed upon; here it is one of `protocol`.
    pub(super) fn new(protocol: Protocol) -> Framing {
        let (state, announced) = (FramingState::Preface(0), Announced::default());
        Framing {
            protocol,
            state,
            is_http2: false,
            announced,
            line: Vec::new(),
            is_first: true,
            chunk: 0,
            targets: Targets::default(),
        }
    }

    /// Targets of requests that the library would refuse, as they came, in the order of their heads.
    pub(super) fn take_targets(&mut self) -> Vec<(u64, RawTarget)> {
        std::mem::take(&mut self.targets.found)
    }

    /// The first line of the head that came last, or of what came in its place, as far as it is kept.
    pub(super) fn first_line(&self) -> &[u8] {
        if self.is_first && !self.line.is_empty() { &self.line } else { &self.targets.first_line }
    }

    /// Returns whether the preface of HTTP/2 has come.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// A head has come, and more of its body is to come.
    pub(super) fn is_in_body(&self) -> bool {
        !matches!(self.state, FramingState::Preface(_) | FramingState::Head | FramingState::Opaque)
    }

    /// Bytes on their way to the library. A head with a line that does not end by CRLF is made invalid in place; such a
    /// line behind a head is an error, and everything after it too.
    pub(super) fn pass(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            at += match self.state {
                FramingState::Opaque => return Ok(()),
                FramingState::Broken => return Err(violated()),
                FramingState::Preface(seen) => self.preface(bytes, seen),
                FramingState::Head => self.head(&mut bytes[at..]),
                FramingState::Body(left) => {
                    let (taken, left) = taken(bytes.len() - at, left);
                    self.state = if left == 0 { self.next_head() } else { FramingState::Body(left) };
                    taken
                }
                FramingState::Chunk(left) => {
                    let (taken, left) = taken(bytes.len() - at, left);
                    self.state = if left == 0 { FramingState::ChunkCr } else { FramingState::Chunk(left) };
                    taken
                }
                _ => {
                    self.state = self.after(bytes[at]);
                    1
                }
            };
        }
        if self.state == FramingState::Broken { Err(violated()) } else { Ok(()) }
    }

    /// Reads the very first bytes. If they are no preface, they begin a head; the bytes kept so far belong to its first
    /// line.
    fn preface(&mut self, bytes: &mut [u8], seen: usize) -> usize {
        let wanted = &PREFACE[seen..];
        let same = bytes.iter().zip(wanted).take_while(|(byte, wanted)| byte == wanted).count();
        self.state = match self.protocol {
            Protocol::Http1 if same == wanted.len() => {
                bytes[same - 1] = INVALID;
                FramingState::Opaque
            }
            _ if same == wanted.len() => {
                self.is_http2 = true;
                FramingState::Opaque
            }
            _ if same == bytes.len() => FramingState::Preface(seen + same),
            Protocol::Http2 => FramingState::Broken,
            _ => {
                self.line.extend_from_slice(&PREFACE[..seen]);
                FramingState::Head
            }
        };
        // Those of a head are looked at again, as such.
        if matches!(self.state, FramingState::Head | FramingState::Broken) { 0 } else { same }
    }

    /// Reads one line of a head, or the part of it that is there.
    fn head(&mut self, bytes: &mut [u8]) -> usize {
        let end = memchr::memchr(b'\n', bytes);
        if self.is_first {
            let line_end = end.unwrap_or(bytes.len());
            self.targets.replace(&self.line, &mut bytes[..line_end]);
        }
        let Some(end) = end else {
            self.line.extend_from_slice(bytes);
            return bytes.len();
        };
        let mut line = std::mem::take(&mut self.line);
        let is_valid = match line.is_empty() {
            true => self.read_line(&bytes[..end]),
            false => {
                line.extend_from_slice(&bytes[..end]);
                self.read_line(&line)
            }
        };
        if is_valid {
            return end + 1;
        }
        bytes[end] = INVALID;
        self.state = FramingState::Opaque;
        end
    }

    /// False: it is no line of a head, or a target with a fragment. Servers leave that out or take it for part of the
    /// path, so what a proxy keeps from the app, or a cache keeps, may be another path than the app's.
    fn read_line(&mut self, line: &[u8]) -> bool {
        let is_ended = line.ends_with(b"\r");
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.is_first && !line.is_empty() {
            self.targets.read(line);
        }
        if !is_ended {
            return false;
        }
        match (line.is_empty(), self.is_first) {
            // The library passes over an empty line before a request.
            (true, true) => {}
            (true, false) => self.state = self.body(),
            (false, true) if line.contains(&b'#') => return false,
            (false, _) => {
                self.announced.read(line);
                self.is_first = false;
            }
        }
        true
    }

    fn body(&mut self) -> FramingState {
        match self.announced {
            Announced { is_websocket: true, .. } => FramingState::Opaque,
            Announced { is_chunked: true, .. } => self.next_chunk(),
            Announced { length: 0, .. } => self.next_head(),
            Announced { length, .. } => FramingState::Body(length),
        }
    }

    fn next_head(&mut self) -> FramingState {
        (self.announced, self.is_first) = (Announced::default(), true);
        FramingState::Head
    }

    fn next_chunk(&mut self) -> FramingState {
        self.chunk = 0;
        FramingState::ChunkSize
    }

    /// The next byte around the data of chunks, and of trailers.
    fn after(&mut self, byte: u8) -> FramingState {
        match (self.state, byte) {
            (FramingState::ChunkSize | FramingState::ChunkExtension, b'\r') => FramingState::ChunkSizeLf,
            (FramingState::ChunkSize, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                // More digits than fit: the library refuses it.
                self.chunk = self.chunk.saturating_mul(16).saturating_add(digit);
                FramingState::ChunkSize
            }
            (FramingState::ChunkSize | FramingState::ChunkExtension, b'\t' | b' '..=b'~' | 0x80..) => {
                FramingState::ChunkExtension
            }
            (FramingState::ChunkSizeLf, b'\n') if self.chunk == 0 => FramingState::TrailerStart,
            (FramingState::ChunkSizeLf, b'\n') => FramingState::Chunk(self.chunk),
            (FramingState::ChunkCr, b'\r') => FramingState::ChunkLf,
            (FramingState::ChunkLf, b'\n') => self.next_chunk(),
            (FramingState::TrailerStart | FramingState::Trailer, b'\r') => {
                FramingState::TrailerCr { is_last: self.state == FramingState::TrailerStart }
            }
            (FramingState::TrailerStart | FramingState::Trailer, byte) if byte != b'\n' => FramingState::Trailer,
            (FramingState::TrailerCr { is_last: true }, b'\n') => self.next_head(),
            (FramingState::TrailerCr { is_last: false }, b'\n') => FramingState::TrailerStart,
            _ => FramingState::Broken,
        }
    }
}

/// Bytes that stand for themselves in the targets of browsers' and others' requests, and that the library refuses there.
/// It gets another in their place, and the app those that came.
const REFUSED: [u8; 4] = [b'"', b'<', b'>', b'`'];

/// In their place: no digit of an escape.
const STAND_IN: u8 = b'X';

/// Longest part of a head's first line that is kept for the log.
pub(super) const FIRST_LINE_MAX: usize = 200;

/// Targets of the heads of one connection.
#[derive(Debug, Default)]
struct Targets {
    /// Heads that have begun.
    count: u64,
    first_line: Vec<u8>,
    /// Places in the line being read, and the bytes that were there.
    replaced: Vec<(usize, u8)>,
    found: Vec<(u64, RawTarget)>,
}

impl Targets {
    /// `piece` comes behind `before` in a head's first line.
    fn replace(&mut self, before: &[u8], piece: &mut [u8]) {
        if !piece.iter().any(|byte| REFUSED.contains(byte)) {
            return;
        }
        let mut spaces = before.iter().filter(|byte| **byte == b' ').count();
        for (at, byte) in piece.iter_mut().enumerate() {
            match *byte {
                b' ' => spaces += 1,
                refused if spaces == 1 && REFUSED.contains(&refused) => {
                    self.replaced.push((before.len() + at, refused));
                    *byte = STAND_IN;
                }
                _ => {}
            }
        }
    }

    /// A first line is whole.
    fn read(&mut self, line: &[u8]) {
        self.count += 1;
        self.first_line.clear();
        self.first_line.extend_from_slice(&line[..line.len().min(FIRST_LINE_MAX)]);
        if self.replaced.is_empty() {
            return;
        }
        let mut line = line.to_vec();
        for (at, byte) in self.replaced.drain(..) {
            line[at] = byte;
        }
        self.first_line.copy_from_slice(&line[..line.len().min(FIRST_LINE_MAX)]);
        let target = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        self.found.push((self.count, RawTarget(target.into())));
    }
}

/// The target of a request as it came, where the library has another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawTarget(Box<[u8]>);

impl RawTarget {
    /// As text, which all that is replaced is.
    pub(crate) fn text(&self, length: usize) -> String {
        String::from_utf8_lossy(&self.0[self.0.len().saturating_sub(length)..]).into_owned()
    }

    /// Path and query: the end of the target that is as long as what the library has.
    pub(crate) fn path_and_query(&self, length: usize) -> (&[u8], &[u8]) {
        let both = &self.0[self.0.len().saturating_sub(length)..];
        match memchr::memchr(b'?', both) {
            Some(at) => (&both[..at], &both[at + 1..]),
            None => (both, b""),
        }
    }
}

impl Announced {
    /// A header line that says how long the body is. What the library refuses need not be understood.
    fn read(&mut self, line: &[u8]) {
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T' | b'u' | b'U')) {
            return;
        }
        let Some(colon) = memchr::memchr(b':', line) else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            self.length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).unwrap_or(0);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.is_websocket |= names_websocket(value);
        }
    }
}

/// Whether what follows such a head may be frames. Anywhere in the value: rather once too often.
pub(super) fn names_websocket(value: &[u8]) -> bool {
    value.windows(b"websocket".len()).any(|word| word.eq_ignore_ascii_case(b"websocket"))
}

/// Returns how many of the bytes that are there belong to the body, and how many of the body are left.
fn taken(there: usize, left: u64) -> (usize, u64) {
    let taken = usize::try_from(left).map_or(there, |left| left.min(there));
    (taken, left - taken as u64)
}

fn violated() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bytes after the last request are not HTTP")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes that the library gets, in reads of `step` bytes; none if there was an error.
    fn passed(bytes: &[u8], step: usize) -> Option<Vec<u8>> {
        passed_as(Protocol::Either, bytes, step)
    }

    fn passed_as(protocol: Protocol, bytes: &[u8], step: usize) -> Option<Vec<u8>> {
        let (mut framing, mut bytes) = (Framing::new(protocol), bytes.to_vec());
        let read = bytes.chunks_mut(step).try_for_each(|read| framing.pass(read));
        read.ok().map(|()| bytes)
    }

    const HEAD: &str = "POST /a HTTP/1.1\r\nHost: h\r\n";

    fn chunked(body: &str) -> String {
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{body}")
    }

    #[test]
    fn what_is_framed_well_passes_unchanged() {
        let sized = format!("{HEAD}content-length: 5\r\n\r\na\nb\ncGET / HTTP/1.1\r\n\r\n");
        for bytes in [
            format!("{HEAD}\r\n"),
            format!("\r\n{HEAD}\r\n{HEAD}\r\n"),
            sized,
            chunked("5\r\na\nb\nc\r\n1;x=\"y\"\r\n\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
            chunked("0\r\nA: b\r\nC: d\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\n\r".to_owned(),
            format!("{HEAD}Upgrade: WebSocket\r\n\r\n\n\n"),
        ] {
            for step in [1, 2, 3, 7, 1000] {
                assert_eq!(passed(bytes.as_bytes(), step).as_deref(), Some(bytes.as_bytes()), "{bytes:?} by {step}");
            }
        }
    }

    #[test]
    fn what_the_library_refuses_in_a_target_is_kept_beside_it() {
        let bytes =
            b"GET /plain HTTP/1.1\r\nHost: \"h\"\r\n\r\nGET http://h/a`b?q=<\"x\">&r HTTP/1.1\r\nHost: h\r\n\r\n";
        for step in [1, 2, 3, 7, 1000] {
            let (mut framing, mut passed) = (Framing::new(Protocol::Either), bytes.to_vec());
            passed.chunks_mut(step).try_for_each(|read| framing.pass(read)).expect("no error");
            let text = String::from_utf8(passed).expect("it is text");
            assert!(text.contains("Host: \"h\"") && text.contains("GET http://h/aXb?q=XXxXX&r HTTP/1.1"), "{text}");
            let found = framing.take_targets();
            let [(2, target)] = &found[..] else { panic!("{found:?}") };
            assert_eq!(target.path_and_query("/aXb?q=XXxXX&r".len()), (&b"/a`b"[..], &b"q=<\"x\">&r"[..]));
            assert_eq!(framing.first_line(), b"GET http://h/a`b?q=<\"x\">&r HTTP/1.1");
        }
    }

    #[test]
    fn a_head_with_another_end_of_line_is_made_invalid() {
        let sized = format!("{HEAD}Content-Length: 2\r\n\r\nab");
        for bytes in [
            "GET / HTTP/1.1\nHost: h\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            format!("{HEAD}\n"),
            "\nGET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            format!("{sized}GET / HTTP/1.1\n\r\n"),
            format!("{}GET / HTTP/1.1\n\r\n", chunked("0\r\n\r\n")),
        ] {
            for step in [1, 2, 3, 7, 1000] {
                let got = passed(bytes.as_bytes(), step).expect("no error");
                assert!(got.contains(&INVALID), "{bytes:?} by {step}");
            }
        }
    }

    #[test]
    fn another_end_of_line_behind_a_head_is_an_error() {
        for body in [
            "0\r\nA: b\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
            "0\r\n\n",
            "0\r\nA: b\n\n",
            "0\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhelloX0\r\n\r\n",
            "5;\0\r\nhello\r\n0\r\n\r\n",
            "5;a=b\x0b\r\nhello\r\n0\r\n\r\n",
            "0\r\nA: b\rc\r\n\r\n",
        ] {
            for step in [1, 2, 3, 7, 1000] {
                assert_eq!(passed(chunked(body).as_bytes(), step), None, "{body:?} by {step}");
            }
        }
    }

    #[test]
    fn what_was_agreed_upon_is_spoken() {
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(passed_as(Protocol::Http2, PREFACE, step).as_deref(), Some(PREFACE));
            assert_eq!(passed_as(Protocol::Http2, b"PRI * HTTP/2.0\r\n\r\nXY\r\n", step), None);
            assert_eq!(passed_as(Protocol::Http2, b"GET / HTTP/1.1\r\n\r\n", step), None);
            let spoilt = passed_as(Protocol::Http1, PREFACE, step).expect("no error");
            assert!(spoilt.contains(&INVALID), "by {step}");
            assert!(passed_as(Protocol::Http1, b"GET / HTTP/1.1\r\n\r\n", step).is_some());
        }
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_changes_nothing(
            parts in prop::collection::vec(prop::sample::select(vec![
                HEAD, "\r\n", "\n", "\r", "Transfer-Encoding: chunked\r\n", "Content-Length: 3\r\n", "abc", "3\r\n", "0\r\n",
            ]), 0..20),
            step in 1_usize..9,
        ) {
            let bytes = parts.concat();
            prop_assert_eq!(passed(bytes.as_bytes(), step), passed(bytes.as_bytes(), 10_000));
        }
    }
}
