//! End of an answer in the bytes that arrive. Pure: one request is out at a time, so nothing follows an answer.

use std::fmt;

use super::chunked::Chunked;

/// Most header lines of a response that are understood.
const HEADERS_MAX: usize = 100;
/// Largest head of a response.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const SWITCHING_PROTOCOLS: u16 = 101;

/// An answer that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of HTTP; another protocol has none.
    pub status: Option<u16>,
    /// The server closes the connection after it.
    pub closes: bool,
}

impl Answer {
    pub fn is_fine(self) -> bool {
        self.status.is_none_or(|status| (200..300).contains(&status))
    }
}

/// Bytes that are no answer to what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Follows answers of one connection.
#[derive(Clone, Debug)]
pub enum Reader {
    Http(Http),
    /// Always the same bytes.
    Exact {
        expected: Vec<u8>,
        seen: usize,
    },
    /// So many bytes.
    Length {
        length: usize,
        seen: usize,
    },
    /// Bytes up to these, of which `last` are the newest that came.
    Until {
        end: Vec<u8>,
        last: Vec<u8>,
    },
}

/// Responses over HTTP/1.
#[derive(Clone, Debug, Default)]
pub struct Http {
    head: Vec<u8>,
    body: Option<(Body, Answer)>,
    /// The request was one whose response has no body, whatever its head says.
    is_head: bool,
}

#[derive(Clone, Debug)]
enum Body {
    Length(u64),
    Chunked(Chunked),
    ToEnd,
}

impl Reader {
    /// Forgets what came, before a request is sent.
    pub fn begin(&mut self, is_head: bool) {
        match self {
            Reader::Http(http) => {
                http.head.clear();
                http.body = None;
                http.is_head = is_head;
            }
            Reader::Exact { seen, .. } | Reader::Length { seen, .. } => *seen = 0,
            Reader::Until { last, .. } => last.clear(),
        }
    }

    /// Takes what came; some when the answer is whole.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Wrong> {
        let is_whole = match self {
            Reader::Http(http) => return http.take(bytes),
            Reader::Exact { expected, seen } => take_exact(expected, seen, bytes)?,
            Reader::Length { length, seen } => {
                *seen += bytes.len();
                at_most(*seen, *length)? == *length
            }
            Reader::Until { end, last } => take_until(end, last, bytes)?,
        };
        Ok(is_whole.then_some(Answer { status: None, closes: false }))
    }

    /// The server has closed the connection; some if that ends the answer.
    pub fn end(&mut self) -> Option<Answer> {
        match self {
            Reader::Http(Http { body: Some((Body::ToEnd, answer)), .. }) => Some(*answer),
            _ => None,
        }
    }
}

fn take_exact(expected: &[u8], seen: &mut usize, bytes: &[u8]) -> Result<bool, Wrong> {
    if !expected[*seen..].starts_with(bytes) {
        let came = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        return Err(Wrong(format!("{came:?} came where {:?} was expected", String::from_utf8_lossy(expected))));
    }
    *seen += bytes.len();
    Ok(*seen == expected.len())
}

fn take_until(end: &[u8], last: &mut Vec<u8>, bytes: &[u8]) -> Result<bool, Wrong> {
    let before = last.len();
    last.extend_from_slice(bytes);
    let found = last.windows(end.len()).position(|window| window == end);
    if let Some(at) = found {
        at_most(before + bytes.len(), at + end.len())?;
        return Ok(true);
    }
    // What may be the beginning of the end.
    last.drain(..last.len().saturating_sub(end.len() - 1));
    Ok(false)
}

fn at_most(came: usize, expected: usize) -> Result<usize, Wrong> {
    if came > expected {
        return Err(Wrong(format!("{} bytes came after the end of the answer", came - expected)));
    }
    Ok(came)
}

impl Http {
    fn take(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Wrong> {
        if self.body.is_some() {
            return self.take_body(bytes);
        }
        if self.head.is_empty() {
            return self.take_head(bytes);
        }
        let mut head = std::mem::take(&mut self.head);
        head.extend_from_slice(bytes);
        self.take_head(&head)
    }

    /// The bytes begin with a head.
    fn take_head(&mut self, mut bytes: &[u8]) -> Result<Option<Answer>, Wrong> {
        loop {
            let Some((head_bytes, status, body, answer)) = parsed(bytes, self.is_head)? else {
                self.head = bytes.to_vec();
                return Ok(None);
            };
            bytes = &bytes[head_bytes..];
            if (100..200).contains(&status) && status != SWITCHING_PROTOCOLS {
                continue;
            }
            self.body = Some((body, answer));
            return self.take_body(bytes);
        }
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Wrong> {
        let Some((body, answer)) = &mut self.body else { return Ok(None) };
        let is_whole = match body {
            Body::Length(left) => {
                let came = at_most(bytes.len(), usize::try_from(*left).unwrap_or(usize::MAX))?;
                *left -= came as u64;
                *left == 0
            }
            Body::Chunked(chunked) => {
                let used = chunked.take(bytes).map_err(Wrong)?;
                at_most(bytes.len(), used)?;
                chunked.is_whole()
            }
            Body::ToEnd => false,
        };
        Ok(is_whole.then_some(*answer))
    }
}

/// Bytes of the head, its status, and how the body ends; none while the head is not whole.
fn parsed(head: &[u8], is_head: bool) -> Result<Option<(usize, u16, Body, Answer)>, Wrong> {
    let mut headers = [const { std::mem::MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut response, head, &mut headers);
    let parsed = parsed.map_err(|error| Wrong(format!("a malformed response: {error}")))?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        return if head.len() > HEAD_BYTES_MAX { Err(Wrong("an endless head".into())) } else { Ok(None) };
    };
    let status = response.code.unwrap_or(0);
    let said = said(response.headers)?;
    let body = match said {
        _ if is_head || matches!(status, 100..200 | 204 | 304) => Body::Length(0),
        Said { is_chunked: Some(true), .. } => Body::Chunked(Chunked::default()),
        Said { is_chunked: None, length: Some(length), .. } => Body::Length(length),
        _ => Body::ToEnd,
    };
    let by_default = response.version == Some(0);
    let closes = said.closes.unwrap_or(by_default) || matches!(body, Body::ToEnd);
    Ok(Some((head_bytes, status, body, Answer { status: Some(status), closes })))
}

/// What the headers say of the message's end.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    /// Whether that is the last of the transfer codings; none if there are none.
    is_chunked: Option<bool>,
    closes: Option<bool>,
}

fn said(headers: &[httparse::Header<'_>]) -> Result<Said, Wrong> {
    let mut said = Said::default();
    for header in headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = String::from_utf8_lossy(header.value);
            let length = text.trim().parse().map_err(|_| Wrong(format!("Content-Length: {text}")))?;
            if said.length.replace(length).is_some_and(|other| other != length) {
                return Err(Wrong("two values of Content-Length".into()));
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            said.is_chunked = Some(words(header.value).last().is_some_and(|word| word == "chunked"));
        } else if header.name.eq_ignore_ascii_case("connection") {
            for word in words(header.value) {
                match word.as_str() {
                    "close" => said.closes = Some(true),
                    "keep-alive" => said.closes = said.closes.or(Some(false)),
                    _ => {}
                }
            }
        }
    }
    Ok(said)
}

fn words(value: &[u8]) -> impl Iterator<Item = String> {
    let words = value.split(|byte| *byte == b',').map(|word| word.trim_ascii());
    words.map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FINE: Answer = Answer { status: Some(200), closes: false };
    const CLOSES: Answer = Answer { status: Some(200), closes: true };

    fn http() -> Reader {
        Reader::Http(Http::default())
    }

    fn response(head: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {}\r\n\r\n{body}", head.replace('\n', "\r\n")).into_bytes()
    }

    fn with_length(status: &str, body: &str) -> Vec<u8> {
        response(&format!("{status}\ncontent-length: {}\nserver: x", body.len()), body)
    }

    fn wrong(bytes: &[u8]) -> String {
        http().take(bytes).unwrap_err().0
    }

    #[test]
    fn a_status_that_is_not_2xx_is_not_fine_and_the_next_answer_begins() {
        let mut reader = http();
        let full = reader.take(&with_length("503 Full", "later")).unwrap().unwrap();
        assert!(full.status == Some(503) && !full.is_fine());
        reader.begin(false);
        assert!(reader.take(&response("204 None", "")).unwrap().unwrap().is_fine());
    }

    #[test]
    fn a_connection_closes_as_the_version_and_the_header_say() {
        let closes = |bytes: &[u8]| http().take(bytes).unwrap().unwrap().closes;
        assert!(closes(&response("200 OK\ncontent-length: 0\nConnection: foo, Close", "")));
        assert!(!closes(&response("200 OK\ncontent-length: 0\nConnection: keep-alive", "")));
        assert!(closes(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(!closes(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn a_response_without_a_length_ends_with_the_connection() {
        let mut reader = http();
        assert_eq!(reader.take(&response("200 OK", "body")), Ok(None));
        assert_eq!(reader.take(b" and more"), Ok(None));
        assert_eq!(reader.end(), Some(CLOSES));
        let mut reader = http();
        assert_eq!(reader.take(&response("200 OK\ncontent-length: 9", "body")), Ok(None));
        assert_eq!(reader.end(), None, "it was to be longer");
    }

    #[test]
    fn answers_to_head_have_no_body() {
        let mut reader = http();
        reader.begin(true);
        assert_eq!(reader.take(&response("200 OK\ncontent-length: 9", "")), Ok(Some(FINE)));
        reader.begin(true);
        assert_eq!(reader.take(&response("200 OK\ntransfer-encoding: chunked", "")), Ok(Some(FINE)));
        reader.begin(false);
        let not_modified = reader.take(&response("304 As before\ncontent-length: 9", "")).unwrap();
        assert_eq!(not_modified.unwrap().status, Some(304));
    }

    #[test]
    fn an_upgrade_is_an_answer() {
        let answer = http().take(&response("101 Switching\nupgrade: websocket", "")).unwrap().unwrap();
        assert_eq!(answer.status, Some(101));
    }

    #[test]
    fn what_is_no_response_is_told() {
        assert!(wrong(&[with_length("200 OK", "body"), b"more".to_vec()].concat()).contains("4 bytes came after"));
        assert!(wrong(b"SMTP ready\r\n\r\n").contains("malformed"));
        assert!(wrong(&[b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; HEAD_BYTES_MAX]].concat()).contains("endless"));
        assert!(wrong(&response("200 OK\ncontent-length: 1\ncontent-length: 2", "a")).contains("two values"));
        assert!(wrong(&response("200 OK\ncontent-length: -1", "")).contains("Content-Length: -1"));
        assert!(wrong(&response("200 OK\ntransfer-encoding: chunked", "x\r\n")).contains("chunk"));
        assert!(wrong(&response("200 OK\ntransfer-encoding: chunked", "0\r\n\r\nmore")).contains("came after"));
    }

    #[test]
    fn other_bytes_than_expected_are_told() {
        let mut reader = Reader::Exact { expected: b"hello".to_vec(), seen: 0 };
        assert_eq!(reader.take(b"hel"), Ok(None));
        assert!(reader.take(b"p").unwrap_err().0.contains("expected"));
        reader.begin(false);
        assert!(reader.take(b"hellohello").is_err());
        assert!(Reader::Length { length: 3, seen: 0 }.take(b"four").is_err());
        assert!(Reader::Until { end: b"\n".to_vec(), last: Vec::new() }.take(b"a\nb").is_err());
    }

    /// Responses of each framing, and whether their end is the connection's.
    fn framed(body: &str) -> Vec<(Reader, Vec<u8>, Answer)> {
        let (first, second) = body.split_at(body.len() / 2);
        let chunk = |text: &str| match text.len() {
            0 => String::new(),
            length => format!("{length:x};a=\"b\"\r\n{text}\r\n"),
        };
        let (first, second) = (chunk(first), chunk(second));
        let chunked = |trailers: &str| format!("{first}{second}0\r\n{trailers}\r\n");
        let head = "200 OK\nTransfer-Encoding: gzip, Chunked\ncontent-length: 3";
        let early = [response("100 Continue", ""), response("103 Early\nlink: x", ""), with_length("200 OK", body)];
        let none = Answer { status: None, closes: false };
        let exact = Reader::Exact { expected: b"aab\r\n".to_vec(), seen: 0 };
        let until = Reader::Until { end: b"ab\r\n".to_vec(), last: Vec::new() };
        vec![
            (http(), with_length("200 OK", body), FINE),
            (http(), early.concat(), FINE),
            (http(), response(head, &chunked("")), FINE),
            (http(), response(head, &chunked("etag: x\r\nother: y\r\n")), FINE),
            (http(), response("200 OK\nconnection: close\ntransfer-encoding: chunked", &chunked("")), CLOSES),
            (exact, b"aab\r\n".to_vec(), none),
            (until, format!("{body}aab\r\n").into_bytes(), none),
            (Reader::Length { length: 7, seen: 0 }, b"7 bytes".to_vec(), none),
        ]
    }

    proptest! {
        /// However the bytes are cut, an answer is whole with its last byte and not before.
        #[test]
        fn an_answer_ends_with_its_last_byte(body in "[a-z]{0,40}", cuts in prop::collection::vec(1..9usize, 1..40)) {
            for (mut reader, bytes, answer) in framed(&body) {
                for _ in 0..2 {
                    reader.begin(false);
                    let (mut left, mut cuts) = (&bytes[..], cuts.iter().cycle());
                    while !left.is_empty() {
                        let (piece, rest) = left.split_at(left.len().min(*cuts.next().unwrap()));
                        let expected = rest.is_empty().then_some(answer);
                        prop_assert_eq!(reader.take(piece), Ok(expected), "{}", String::from_utf8_lossy(&bytes));
                        left = rest;
                    }
                }
            }
        }

        /// Nothing that a server sends is a panic.
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), is_chunked: bool) {
            let mut reader = http();
            if is_chunked {
                prop_assert_eq!(reader.take(&response("200 OK\ntransfer-encoding: chunked", "")), Ok(None));
            }
            let _ = reader.take(&bytes);
        }
    }
}
