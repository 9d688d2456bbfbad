//! Heads of requests and responses as they travel on a link (`Codec::Http`). docs/wire.md shows the bytes.
//!
//! Names of headers are lower-case. A head is followed by the body, or its first part, up to the end of the payload.
//! Knows no I/O; what it reads from a worker or writes for one is checked here, what came from a client elsewhere.

use super::WireError;

/// Bytes of a body that one credit stands for.
pub const CREDIT_BYTES: u64 = 64 << 10;

/// Credit that the producer of a response's body starts with.
pub const BODY_WINDOW: u32 = 8;

/// Pieces of a request's body that may be on their way to the worker. All of them may while its app waits, and fewer while
/// it has something to do.
pub const INPUT_WINDOW: u32 = 4;

/// What a part of a body takes of the credit.
pub fn credit_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CREDIT_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// Whether a Content-Type says that the body is a stream of events, which has no end of its own.
pub fn is_event_stream(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

/// Bits of a request's flags.
pub mod request_flag {
    /// The client speaks TLS: the scheme is `https` or `wss`.
    pub const SECURE: u8 = 1;
    /// It asks for a WebSocket.
    pub const WEBSOCKET: u8 = 2;
}

/// Most header lines of a response. Far more than any client takes, and fewer than what holds them on the other end can.
pub const RESPONSE_HEADERS_MAX: usize = 10_000;

/// Bits of a response's flags.
pub mod response_flag {
    /// The payload holds the whole body.
    pub const WHOLE: u8 = 1;
    /// The status has a reason of its own.
    pub const REASON: u8 = 2;
}

/// Where a connection comes from or goes to: an address and a port, or the path of a unix socket and no port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<'a> {
    pub address: &'a str,
    pub port: u16,
}

/// What comes before the headers of a request.
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
    /// Empty: that of the standard.
    pub reason: &'a [u8],
    pub headers: Headers<'a>,
}

/// Header lines in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut reader = Reader(self.bytes);
        // Checked when the head was read.
        std::iter::from_fn(move || Some((reader.short().ok()?, reader.long().ok()?))).take(self.len())
    }
}

// ---- writing

fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_place(out: &mut Vec<u8>, place: Place<'_>) {
    put_short(out, place.address.as_bytes());
    out.extend_from_slice(&place.port.to_le_bytes());
}

/// Appends header lines; their count is written when all are known.
#[derive(Debug)]
pub struct HeaderWriter<'a> {
    out: &'a mut Vec<u8>,
    at: usize,
    count: u16,
}

impl<'a> HeaderWriter<'a> {
    fn new(out: &'a mut Vec<u8>) -> HeaderWriter<'a> {
        let at = out.len();
        out.extend_from_slice(&[0; 2]);
        HeaderWriter { out, at, count: 0 }
    }

    /// A name of at most 65,535 bytes. No more than 65,535 lines: the limits on both kinds of heads are below that.
    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        put_short(self.out, name);
        put_long(self.out, value);
        self.count += 1;
        self.out[self.at..self.at + 2].copy_from_slice(&self.count.to_le_bytes());
    }
}

/// Appends header lines alone: those of a call.
pub fn put_headers(out: &mut Vec<u8>) -> HeaderWriter<'_> {
    HeaderWriter::new(out)
}

/// Appends a request's head up to its headers.
pub fn put_request<'a>(out: &'a mut Vec<u8>, line: RequestLine<'_>) -> HeaderWriter<'a> {
    out.extend_from_slice(&[line.version, line.flags]);
    put_short(out, line.method.as_bytes());
    put_long(out, line.path);
    put_long(out, line.query);
    put_place(out, line.client);
    put_place(out, line.server);
    HeaderWriter::new(out)
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
    HeaderWriter::new(out)
}

// ---- reading

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| short(count - self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    fn short(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.u16()?;
        self.take(usize::from(count))
    }

    fn long(&mut self) -> Result<&'a [u8], WireError> {
        let count = u32::from_le_bytes(self.array()?);
        self.take(count as usize)
    }

    fn text(&mut self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.short()?).map_err(|error| WireError::Text(error.to_string()))
    }

    fn place(&mut self) -> Result<Place<'a>, WireError> {
        Ok(Place { address: self.text()?, port: self.u16()? })
    }

    fn headers(&mut self) -> Result<Headers<'a>, WireError> {
        let count = self.u16()?;
        let bytes = self.0;
        for _ in 0..count {
            self.short()?;
            self.long()?;
        }
        Ok(Headers { count, bytes: &bytes[..bytes.len() - self.0.len()] })
    }
}

fn short(missing: usize) -> WireError {
    WireError::Text(format!("a head is {missing} bytes short"))
}

/// Header lines, and what follows them.
pub fn read_headers(bytes: &[u8]) -> Result<(Headers<'_>, &[u8]), WireError> {
    let mut reader = Reader(bytes);
    let headers = reader.headers()?;
    Ok((headers, reader.0))
}

impl<'a> RequestHead<'a> {
    /// The head, and the body that follows it.
    pub fn read(bytes: &'a [u8]) -> Result<(RequestHead<'a>, &'a [u8]), WireError> {
        let mut reader = Reader(bytes);
        let line = RequestLine {
            version: reader.u8()?,
            flags: reader.u8()?,
            method: reader.text()?,
            path: reader.long()?,
            query: reader.long()?,
            client: reader.place()?,
            server: reader.place()?,
        };
        let head = RequestHead { line, headers: reader.headers()? };
        Ok((head, reader.0))
    }
}

impl<'a> ResponseHead<'a> {
    /// The head, and the part of the body that follows it.
    pub fn read(bytes: &'a [u8]) -> Result<(ResponseHead<'a>, &'a [u8]), WireError> {
        let mut reader = Reader(bytes);
        let (flags, status) = (reader.u8()?, reader.u16()?);
        let reason = if flags & response_flag::REASON != 0 { reader.short()? } else { &[] };
        let head = ResponseHead { flags, status, reason, headers: reader.headers()? };
        Ok((head, reader.0))
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
        for cut in 0..bytes.len() {
            assert!(ResponseHead::read(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
