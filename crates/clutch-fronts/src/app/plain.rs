//! Requests of HTTP/1 of which nothing can be read in two ways, and for which a worker needs nobody else: a worker that
//! holds their connection answers them itself. All others are for the front, with their connection.
//!
//! Pure: bytes to heads. What is refused anywhere is not plain, so that whoever refuses it does so for all.

use httparse::{EMPTY_HEADER, Request, Status};
use memchr::{memchr, memchr2};
use smallvec::SmallVec;

/// Most header lines of a plain head.
const HEADERS_MAX: usize = 64;

/// Most bytes of a plain head, and of the body behind it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 64 << 10;

/// Limits of a front, as far as they are below those of plain requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    head_bytes: usize,
    headers: usize,
    body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_bytes: HEAD_BYTES_MAX, headers: HEADERS_MAX, body_bytes: BODY_BYTES_MAX }
    }
}

impl Limits {
    pub fn within(head_bytes: usize, headers: usize, body_bytes: usize) -> Limits {
        let all = Limits::default();
        Limits {
            head_bytes: head_bytes.min(all.head_bytes),
            headers: headers.min(all.headers),
            body_bytes: body_bytes.min(all.body_bytes),
        }
    }
}

/// Headers by which proxies tell of their clients.
const OF_PROXIES: [&[u8]; 4] = [b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-ssl", b"x-forwarded-protocol"];

/// Headers that change what a connection speaks, how a body is framed, when it is sent, or how long a request may take.
const OF_FRONT: [&[u8]; 10] = [
    b"transfer-encoding",
    b"upgrade",
    b"expect",
    b"te",
    b"trailer",
    b"keep-alive",
    b"proxy-connection",
    b"http2-settings",
    b"sec-websocket-key",
    b"x-request-start",
];

/// The bytes of a connection from the start of a request on.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack: a box would cost more")]
pub enum Read<'a> {
    /// A whole request, of so many bytes.
    Request(Plain<'a>, usize),
    /// More of its head has to come.
    More,
    /// More of its body has to come.
    MoreBody,
    /// It is for the front.
    Other,
}

/// A plain request.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    pub method: &'a str,
    pub path: &'a [u8],
    /// Without the question mark.
    pub query: &'a [u8],
    /// Names as they came.
    pub headers: SmallVec<[(&'a [u8], &'a [u8]); 16]>,
    pub body: &'a [u8],
    /// The client asks for the end of the connection behind the response.
    pub is_last: bool,
}

impl Plain<'_> {
    /// Tells whether a proxy has told something of its client.
    pub fn is_forwarded(&self) -> bool {
        let is_of_proxy = |name: &[u8]| {
            name.first().is_some_and(|first| first | 0x20 == b'x')
                && OF_PROXIES.into_iter().any(|known| name.eq_ignore_ascii_case(known))
        };
        self.headers.iter().any(|(name, _)| is_of_proxy(name))
    }
}

/// Reads the first request of these bytes.
pub fn read(bytes: &[u8], limits: Limits) -> Read<'_> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4) else {
        let is_too_long = bytes.len() > limits.head_bytes;
        return if is_too_long || !may_be_head(bytes) { Read::Other } else { Read::More };
    };
    if end > limits.head_bytes || !may_be_head(&bytes[..end]) {
        return Read::Other;
    }
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    match request.parse(&bytes[..end]) {
        Ok(Status::Complete(length)) if length == end => {}
        _ => return Read::Other,
    }
    let (Some(method), Some(target), Some(1)) = (request.method, request.path, request.version) else {
        return Read::Other;
    };
    if !is_method(method) || !is_target(target.as_bytes()) {
        return Read::Other;
    }
    let Some(Told { length, is_last }) = told(request.headers) else { return Read::Other };
    if length > limits.body_bytes || request.headers.len() > limits.headers {
        return Read::Other;
    }
    let Some(body) = bytes.get(end..end + length) else { return Read::MoreBody };
    let (path, query) = match memchr(b'?', target.as_bytes()) {
        Some(at) => (&target.as_bytes()[..at], &target.as_bytes()[at + 1..]),
        None => (target.as_bytes(), &b""[..]),
    };
    let headers = request.headers.iter().map(|header| (header.name.as_bytes(), header.value)).collect();
    Read::Request(Plain { method, path, query, headers, body, is_last }, end + length)
}

/// Visible ASCII, spaces and tabs, in lines that end by CRLF and begin with neither of these two.
fn may_be_head(bytes: &[u8]) -> bool {
    let is_odd = |byte: &u8| (*byte < b' ' && !matches!(byte, b'\r' | b'\n' | b'\t')) || *byte >= 0x7f;
    // All of them: several are looked at in one step of the processor.
    if bytes.iter().fold(false, |odd, byte| odd | is_odd(byte)) || bytes.first().is_some_and(u8::is_ascii_whitespace) {
        return false;
    }
    let mut rest = bytes;
    while let Some(at) = memchr2(b'\r', b'\n', rest) {
        match rest[at..] {
            [b'\r'] | [b'\r', b'\n'] => return true,
            [b'\r', b'\n', next, ..] if !matches!(next, b' ' | b'\t' | b'\n') => rest = &rest[at + 2..],
            _ => return false,
        }
    }
    true
}

fn is_method(method: &str) -> bool {
    matches!(method, "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS")
}

/// Bytes that stand for themselves in every reading of a target.
const OF_TARGETS: [bool; 256] = {
    let (mut table, mut at) = ([false; 256], 0);
    while at < 128 {
        table[at] = (at as u8).is_ascii_alphanumeric();
        at += 1;
    }
    let others = b"-._~/?&=+:,;@!$'()*";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// A path with or without a query, of bytes that stand for themselves in every reading, and whole escapes.
fn is_target(target: &[u8]) -> bool {
    let mut rest = target;
    if rest.first() != Some(&b'/') {
        return false;
    }
    while let Some(at) = rest.iter().position(|byte| !OF_TARGETS[usize::from(*byte)]) {
        match (rest[at], rest.get(at + 1..at + 3)) {
            (b'%', Some(digits)) if digits.iter().all(u8::is_ascii_hexdigit) && digits != b"00" => {
                rest = &rest[at + 3..]
            }
            _ => return false,
        }
    }
    true
}

/// A name or an address of version 4, with or without a port.
fn is_host(value: &[u8]) -> bool {
    let (name, port) = memchr(b':', value).map_or((value, &b"0"[..]), |at| (&value[..at], &value[at + 1..]));
    let is_of_names = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
    let is_port = port.iter().all(u8::is_ascii_digit)
        && std::str::from_utf8(port).is_ok_and(|digits| digits.parse::<u16>().is_ok());
    !name.is_empty() && name.iter().all(is_of_names) && is_port
}

struct Told {
    length: usize,
    is_last: bool,
}

/// What a plain head tells of its body and of the connection; none: it is not plain.
fn told(headers: &[httparse::Header<'_>]) -> Option<Told> {
    let (mut length, mut is_last, mut hosts) = (None, None, 0);
    for header in headers {
        let (name, value) = (header.name.as_bytes(), header.value);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if name.contains(&b'_') || OF_FRONT.into_iter().any(is) {
            return None;
        }
        if is(b"host") {
            hosts += 1;
            if !is_host(value) {
                return None;
            }
        } else if is(b"content-length") {
            let is_number = !value.is_empty() && value.len() < 10 && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()?;
            if length.replace(number).is_some() {
                return None;
            }
        } else if is(b"connection") {
            let asks = match value {
                value if value.eq_ignore_ascii_case(b"keep-alive") => false,
                value if value.eq_ignore_ascii_case(b"close") => true,
                _ => return None,
            };
            if is_last.replace(asks).is_some() {
                return None;
            }
        }
    }
    (hosts == 1).then(|| Told { length: length.unwrap_or_default(), is_last: is_last.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Read<'_> {
        super::read(bytes, Limits::default())
    }

    fn of(lines: &str) -> String {
        format!("{}\r\n\r\n", lines.replace('\n', "\r\n"))
    }

    #[test]
    fn a_plain_request_is_read_whole() {
        let text = of("POST /a%20b/c?d=e&f HTTP/1.1\nHost: example:80\nContent-Length: 4\nX-Tab: a\tb") + "bodyGET";
        let Read::Request(plain, length) = read(text.as_bytes()) else { panic!("{:?}", read(text.as_bytes())) };
        assert_eq!((plain.method, plain.path, plain.query), ("POST", &b"/a%20b/c"[..], &b"d=e&f"[..]));
        assert_eq!((plain.body, length, plain.is_last), (&b"body"[..], text.len() - 3, false));
        assert_eq!(plain.headers[2], (&b"X-Tab"[..], &b"a\tb"[..]));
    }

    #[test]
    fn of_a_part_more_is_to_come() {
        let text = of("GET / HTTP/1.1\nHost: a\nContent-Length: 3\nConnection: close") + "abc";
        for end in 0..text.len() {
            let more = if end < text.len() - 3 { Read::More } else { Read::MoreBody };
            assert_eq!(read(&text.as_bytes()[..end]), more, "{end}");
        }
        assert!(matches!(read(text.as_bytes()), Read::Request(Plain { is_last: true, .. }, _)));
    }

    #[test]
    fn limits_of_the_front_hold_where_they_are_lower() {
        let text = of("POST / HTTP/1.1\nHost: a\nContent-Length: 3\nX-Forwarded-For: 1.2.3.4") + "abc";
        let Read::Request(plain, length) = read(text.as_bytes()) else { panic!("not plain") };
        assert!(plain.is_forwarded() && length == text.len());
        let of = |limits| matches!(super::read(text.as_bytes(), limits), Read::Request(..));
        let (head, all) = (length - 3, usize::MAX);
        assert!(of(Limits::within(all, all, all)) && of(Limits::within(head, 3, 3)));
        for (head_bytes, headers, body_bytes) in [(head - 1, 3, 3), (head, 2, 3), (head, 3, 2)] {
            assert!(!of(Limits::within(head_bytes, headers, body_bytes)));
        }
        assert_eq!(Limits::within(all, all, all), Limits::default());
    }

    #[test]
    fn what_is_not_plain_is_for_the_front() {
        let long = format!("GET / HTTP/1.1\nHost: a\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        for lines in [
            "GET / HTTP/1.0\nHost: a",
            "GET / HTTP/1.1",
            "GET / HTTP/1.1\nHost: a\nHost: a",
            "GET / HTTP/1.1\nHost: a b",
            "GET / HTTP/1.1\nHost:",
            "GET / HTTP/1.1\nHost: :80",
            "GET / HTTP/1.1\nHost: a:",
            "GET / HTTP/1.1\nHost: a:b",
            "GET / HTTP/1.1\nHost: a:80:80",
            "GET / HTTP/1.1\nHost: a:65536",
            "get / HTTP/1.1\nHost: a",
            "CONNECT / HTTP/1.1\nHost: a",
            "GET  / HTTP/1.1\nHost: a",
            "GET http://a/ HTTP/1.1\nHost: a",
            "GET * HTTP/1.1\nHost: a",
            "GET /a#b HTTP/1.1\nHost: a",
            "GET /% HTTP/1.1\nHost: a",
            "GET /%00 HTTP/1.1\nHost: a",
            "GET /\u{e9} HTTP/1.1\nHost: a",
            "GET / HTTP/1.1\nHost: a\nX_Y: b",
            "GET / HTTP/1.1\nHost: a\nX : b",
            "GET / HTTP/1.1\nHost: a\n X: b",
            "GET / HTTP/1.1\nHost: a\nX: \u{e9}",
            "GET / HTTP/1.1\nHost: a\nUpgrade: websocket",
            "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 3",
            "POST / HTTP/1.1\nHost: a\nContent-Length: 3\nContent-Length: 3",
            "POST / HTTP/1.1\nHost: a\nContent-Length: +3",
            "POST / HTTP/1.1\nHost: a\nContent-Length: 70000",
            "GET / HTTP/1.1\nHost: a\nConnection: upgrade",
            "PRI * HTTP/2.0\n",
            &long,
        ] {
            assert_eq!(read(of(lines).as_bytes()), Read::Other, "{lines}");
        }
        for bytes in
            [&b"GET / HTTP/1.1\nHost: a\n\n"[..], b"GET / HTTP/1.1\rHost", b"\x16\x03\x01", b"\r\nGET /", b"\n"]
        {
            assert!(matches!(read(bytes), Read::Other), "{bytes:?}");
        }
    }

    /// The same as the function, in other words.
    fn is_head_by_bytes(bytes: &[u8]) -> bool {
        let mut before = b'\n';
        for byte in bytes {
            let is_allowed = match (before, *byte) {
                (b'\r', next) => next == b'\n',
                (b'\n', b' ' | b'\t') | (_, b'\n') => false,
                (_, b'\r' | b'\t') => true,
                (_, byte) => (b' '..=b'~').contains(&byte),
            };
            if !is_allowed {
                return false;
            }
            before = *byte;
        }
        bytes.first() != Some(&b'\r')
    }

    proptest! {
        #[test]
        fn heads_are_told_from_other_bytes(
            bytes in proptest::collection::vec(prop_oneof![
                4 => Just(b"\r\n".to_vec()), 6 => Just(b"ab".to_vec()), 1 => any::<u8>().prop_map(|byte| vec![byte]),
            ], 0..20),
        ) {
            let bytes = bytes.concat();
            prop_assert_eq!(may_be_head(&bytes), is_head_by_bytes(&bytes));
        }

        /// Whatever comes, it is read in one way: a whole request is the same with more behind it, and no part of it is one.
        #[test]
        fn a_request_is_read_in_one_way(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':'), any::<u8>()], 0..60),
            more in proptest::collection::vec(any::<u8>(), 0..20),
            is_started in any::<bool>(),
        ) {
            let mut text = if is_started { of("GET /a HTTP/1.1\nHost: a\nContent-Length: 2").into_bytes() } else { Vec::new() };
            text.extend(bytes);
            if let Read::Request(plain, length) = read(&text) {
                prop_assert!(length <= text.len());
                let all = [&text[..length], &more].concat();
                prop_assert_eq!(format!("{:?}", read(&all)), format!("{:?}", Read::Request(plain, length)));
                for end in 0..length {
                    prop_assert!(matches!(read(&text[..end]), Read::More | Read::MoreBody));
                }
            }
        }
    }
}
