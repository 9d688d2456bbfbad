//! End of an answer in the bytes that arrive. Pure: one request is out at a time, so nothing follows an answer.

use std::io;

/// Most header lines of a response that are understood.
const HEADERS_MAX: usize = 64;
/// Largest head of a response.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// State of the awaited answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Partial,
    Whole,
    /// Whole, and not what a client wants: a status other than 2xx.
    Refused,
}

/// Follows answers of one connection.
#[derive(Debug)]
pub enum Reader {
    /// A response with Content-Length.
    Http { head: Vec<u8>, body: Option<(usize, Answer)> },
    /// Always the same bytes.
    Exact { expected: Vec<u8>, seen: usize },
}

impl Reader {
    pub fn http() -> Reader {
        Reader::Http { head: Vec::new(), body: None }
    }

    pub fn exact(expected: Vec<u8>) -> Reader {
        Reader::Exact { expected, seen: 0 }
    }

    /// Takes what came. After an answer that is whole, the next one begins.
    pub fn take(&mut self, bytes: &[u8]) -> io::Result<Answer> {
        match self {
            Reader::Http { head, body } => take_http(head, body, bytes),
            Reader::Exact { expected, seen } => take_exact(expected, seen, bytes),
        }
    }
}

fn take_exact(expected: &[u8], seen: &mut usize, bytes: &[u8]) -> io::Result<Answer> {
    if !expected[*seen..].starts_with(bytes) {
        let came = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        return Err(invalid(format!("{came:?} came where {:?} was expected", String::from_utf8_lossy(expected))));
    }
    *seen = (*seen + bytes.len()) % expected.len();
    Ok(if *seen == 0 { Answer::Whole } else { Answer::Partial })
}

fn take_http(head: &mut Vec<u8>, body: &mut Option<(usize, Answer)>, bytes: &[u8]) -> io::Result<Answer> {
    let (left, verdict) = match *body {
        Some((left, verdict)) => (without(left, bytes.len())?, verdict),
        None => {
            head.extend_from_slice(bytes);
            let Some((head_bytes, length, verdict)) = parsed(head)? else { return Ok(Answer::Partial) };
            (without(length, head.len() - head_bytes)?, verdict)
        }
    };
    head.clear();
    *body = Some((left, verdict)).filter(|_| left > 0);
    Ok(if left > 0 { Answer::Partial } else { verdict })
}

fn without(left: usize, came: usize) -> io::Result<usize> {
    left.checked_sub(came).ok_or_else(|| invalid(format!("{came} bytes of a body came where {left} were left")))
}

/// Bytes of the head, length of the body and what the status means; none while the head is not whole.
fn parsed(head: &[u8]) -> io::Result<Option<(usize, usize, Answer)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let status = response.parse(head).map_err(|error| invalid(format!("a malformed response: {error}")))?;
    let httparse::Status::Complete(head_bytes) = status else {
        return if head.len() > HEAD_BYTES_MAX { Err(invalid("an endless head".into())) } else { Ok(None) };
    };
    let length = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse().ok());
    let length = length.ok_or_else(|| invalid("a response without Content-Length; its end cannot be seen".into()))?;
    let is_fine = response.code.is_some_and(|code| (200..300).contains(&code));
    Ok(Some((head_bytes, length, if is_fine { Answer::Whole } else { Answer::Refused })))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn response(status: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nserver: x\r\n\r\n{body}", body.len()).into_bytes()
    }

    #[test]
    fn a_status_that_is_not_2xx_is_refused_and_the_next_answer_begins() {
        let mut reader = Reader::http();
        assert_eq!(reader.take(&response("503 Full", "later")).unwrap(), Answer::Refused);
        assert_eq!(reader.take(&response("204 None", "")).unwrap(), Answer::Whole);
    }

    #[test]
    fn an_answer_whose_end_cannot_be_seen_is_an_error() {
        let error = Reader::http().take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap_err();
        assert!(error.to_string().contains("Content-Length"));
        assert!(Reader::http().take(&[response("200 OK", "body"), b"more".to_vec()].concat()).is_err());
        assert!(Reader::http().take(b"SMTP ready\r\n\r\n").is_err());
        assert!(
            Reader::http().take(&[b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; HEAD_BYTES_MAX]].concat()).is_err()
        );
    }

    #[test]
    fn other_bytes_than_expected_are_an_error() {
        let mut reader = Reader::exact(b"hello".to_vec());
        assert_eq!(reader.take(b"hel").unwrap(), Answer::Partial);
        assert!(reader.take(b"p").unwrap_err().to_string().contains("expected"));
        assert!(Reader::exact(b"hello".to_vec()).take(b"hellohello").is_err());
    }

    proptest! {
        /// However the bytes are cut, an answer is whole with its last byte and not before.
        #[test]
        fn an_answer_ends_with_its_last_byte(body in "[a-z]{0,40}", cuts in prop::collection::vec(1..9usize, 1..40)) {
            let mut readers = [(Reader::http(), response("200 OK", &body))]
                .into_iter()
                .chain([(Reader::exact(b"hello world\n".to_vec()), b"hello world\n".to_vec())])
                .collect::<Vec<_>>();
            for (reader, bytes) in &mut readers {
                for _ in 0..2 {
                    let (mut left, mut cuts) = (&bytes[..], cuts.iter().cycle());
                    while !left.is_empty() {
                        let (piece, rest) = left.split_at(left.len().min(*cuts.next().unwrap()));
                        let expected = if rest.is_empty() { Answer::Whole } else { Answer::Partial };
                        prop_assert_eq!(reader.take(piece).unwrap(), expected);
                        left = rest;
                    }
                }
            }
        }
    }
}
