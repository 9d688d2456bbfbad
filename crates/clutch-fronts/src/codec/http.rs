//! Heads of requests and responses as they travel on a link ([`HEAD`](super::HEAD)). docs/wire.md shows the bytes.
//!
//! Names of headers are lower-case. A head is followed by the body, or its first part, up to the end of the payload.
//! Knows no I/O; what it reads from a worker or writes for one is checked here, what came from a client elsewhere.

use clutch_wire::frame::WireError;
use clutch_wire::headers::{HeaderWriter, Headers, Reader, put_headers, put_long, put_short};

/// Bytes of a body that one credit stands for.
pub const CREDIT_BYTES: u64 = 64 << 10;

/// Credit that the producer of a response's body starts with.
pub const BODY_WINDOW: u32 = 8;

/// Pieces of a request's body that may be on their way to the worker. All of them may while its app waits, and fewer while
/// it has something to do.
pub const INPUT_WINDOW: u32 = 4;

/// Returns the credit that a part of a body takes.
pub fn credit_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CREDIT_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// Tells whether a Content-Type is that of a stream of events, which has no end of its own.
pub fn is_event_stream(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

/// Bits of a request's flags.
pub mod request_flag {
    /// The client speaks TLS: the scheme is `https` or `wss`.
    pub const SECURE: u8 = 1;
    /// The client asks for a WebSocket.
    pub const WEBSOCKET: u8 = 2;
    /// With it comes the client's socket, which the worker may use when it is told to.
    pub const LENDS: u8 = 4;
}

/// Bytes of a response's head up to the end of its status: flags, status.
const STATUS_END: usize = 3;

/// Most header lines of a response. Far more than any client takes, and fewer than what holds them on the other end can.
pub const RESPONSE_HEADERS_MAX: usize = 10_000;

/// Bits of a response's flags.
pub mod response_flag {
    /// The payload holds the whole body.
    pub const WHOLE: u8 = 1;
    /// The status has a reason of its own.
    pub const REASON: u8 = 2;
    /// The app's framework has told by which route it found what answers.
    pub const ROUTE: u8 = 4;
    /// Of a WebSocket that is accepted: the worker has the socket, and waits for the word to use it.
    pub const SPEAKS: u8 = 8;
}

/// An end of a connection: an address and a port, or the path of a unix socket and no port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<'a> {
    pub address: &'a str,
    pub port: u16,
}

/// The part of a request before its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// 10, 11 or 20.
    pub version: u8,
    pub flags: u8,
    pub method: &'a str,
    /// As it came, percent-encoded.
    pub path: &'a [u8],
    /// Without the question mark.
    pub query: &'a [u8],
    pub client: Place<'a>,
    pub server: Place<'a>,
}

/// The head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    pub line: RequestLine<'a>,
    pub headers: Headers<'a>,
}

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    pub flags: u8,
    pub status: u16,
    /// As the app's framework writes it; empty: it has told none.
    pub route: &'a [u8],
    /// Empty: that of the standard.
    pub reason: &'a [u8],
    pub headers: Headers<'a>,
}

// ---- writing

fn put_place(out: &mut Vec<u8>, place: Place<'_>) {
    put_short(out, place.address.as_bytes());
    out.extend_from_slice(&place.port.to_le_bytes());
}

/// Appends a request's head up to its headers.
pub fn put_request<'a>(out: &'a mut Vec<u8>, line: RequestLine<'_>) -> HeaderWriter<'a> {
    out.extend_from_slice(&[line.version, line.flags]);
    put_short(out, line.method.as_bytes());
    put_long(out, line.path);
    put_long(out, line.query);
    put_place(out, line.client);
    put_place(out, line.server);
    put_headers(out)
}

/// Appends a response's head up to its headers.
pub fn put_response(out: &mut Vec<u8>, flags: u8, status: u16) -> HeaderWriter<'_> {
    put_response_with(out, flags, status, b"")
}

/// The same where the status has a reason of its own; empty: it has none.
pub fn put_response_with<'a>(out: &'a mut Vec<u8>, flags: u8, status: u16, reason: &[u8]) -> HeaderWriter<'a> {
    out.push(flags | if reason.is_empty() { 0 } else { response_flag::REASON });
    out.extend_from_slice(&status.to_le_bytes());
    if !reason.is_empty() {
        put_short(out, reason);
    }
    put_headers(out)
}

/// Adds the route to a response's head that has none yet. `head` begins with its flags.
pub fn put_route(head: &mut Vec<u8>, route: &[u8]) {
    let (end, count) = (head.len(), 2 + route.len());
    head.resize(end + count, 0);
    head.copy_within(STATUS_END..end, STATUS_END + count);
    head[0] |= response_flag::ROUTE;
    head[STATUS_END..STATUS_END + 2].copy_from_slice(&(route.len() as u16).to_le_bytes());
    head[STATUS_END + 2..STATUS_END + count].copy_from_slice(route);
}

// ---- reading

fn place<'a>(reader: &mut Reader<'a>) -> Result<Place<'a>, WireError> {
    Ok(Place { address: reader.text()?, port: reader.u16()? })
}

impl<'a> RequestHead<'a> {
    /// The head, and the body that follows it.
    pub fn read(bytes: &'a [u8]) -> Result<(RequestHead<'a>, &'a [u8]), WireError> {
        let mut reader = Reader::new(bytes);
        let line = RequestLine {
            version: reader.u8()?,
            flags: reader.u8()?,
            method: reader.text()?,
            path: reader.long()?,
            query: reader.long()?,
            client: place(&mut reader)?,
            server: place(&mut reader)?,
        };
        let head = RequestHead { line, headers: reader.headers()? };
        Ok((head, reader.rest()))
    }
}

/// Returns the route in a response's head, if there is one.
pub fn route_of(head: &[u8]) -> Option<&[u8]> {
    let has_route = head.first().is_some_and(|flags| flags & response_flag::ROUTE != 0);
    Reader::new(head.get(STATUS_END..).filter(|_| has_route)?).short().ok()
}

impl<'a> ResponseHead<'a> {
    /// The head, and the part of the body that follows it.
    pub fn read(bytes: &'a [u8]) -> Result<(ResponseHead<'a>, &'a [u8]), WireError> {
        let mut reader = Reader::new(bytes);
        let (flags, status) = (reader.u8()?, reader.u16()?);
        let mut told = |flag| if flags & flag != 0 { reader.short() } else { Ok(&[][..]) };
        let (route, reason) = (told(response_flag::ROUTE)?, told(response_flag::REASON)?);
        let head = ResponseHead { flags, status, route, reason, headers: reader.headers()? };
        Ok((head, reader.rest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> RequestLine<'static> {
        RequestLine {
            version: 11,
            flags: request_flag::SECURE,
            method: "GET",
            path: b"/a%20b",
            query: b"c=d",
            client: Place { address: "10.0.0.1", port: 4711 },
            server: Place { address: "::1", port: 443 },
        }
    }

    #[test]
    fn a_request_comes_back_as_it_went() {
        let mut bytes = Vec::new();
        let mut headers = put_request(&mut bytes, line());
        headers.put(b"host", b"example");
        headers.put(b"x-empty", b"");
        bytes.extend_from_slice(b"body");
        let (head, body) = RequestHead::read(&bytes).expect("a head");
        assert_eq!(head.line, line());
        let headers: Vec<_> = head.headers.iter().collect();
        assert_eq!(headers, [(&b"host"[..], &b"example"[..]), (b"x-empty", b"")]);
        assert_eq!(body, b"body");
    }

    #[test]
    fn a_response_comes_back_as_it_went() {
        let mut bytes = Vec::new();
        put_response(&mut bytes, response_flag::WHOLE, 204).put(b"x", b"y");
        let (head, body) = ResponseHead::read(&bytes).expect("a head");
        assert_eq!((head.status, head.flags, head.headers.len(), body.len()), (204, response_flag::WHOLE, 1, 0));
        let mut bytes = Vec::new();
        put_response_with(&mut bytes, 0, 200, b"Fine").put(b"x", b"y");
        let (head, _) = ResponseHead::read(&bytes).expect("a head");
        assert_eq!((head.status, head.reason, head.headers.len()), (200, &b"Fine"[..], 1));
        put_route(&mut bytes, b"/items/{id}");
        let (head, _) = ResponseHead::read(&bytes).expect("a head");
        assert_eq!((head.route, head.reason, head.headers.len()), (&b"/items/{id}"[..], &b"Fine"[..], 1));
        assert_eq!((route_of(&bytes), route_of(&bytes[..8]), route_of(b"")), (Some(&b"/items/{id}"[..]), None, None));
    }

    #[test]
    fn no_cut_of_a_head_is_taken_for_a_whole_one() {
        let mut bytes = Vec::new();
        put_request(&mut bytes, line()).put(b"host", b"example");
        for cut in 0..bytes.len() {
            assert!(RequestHead::read(&bytes[..cut]).is_err(), "{cut}");
        }
        let mut bytes = Vec::new();
        put_response_with(&mut bytes, 0, 200, b"Fine").put(b"host", b"example");
        put_route(&mut bytes, b"/items");
        for cut in 0..bytes.len() {
            assert!(ResponseHead::read(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
