//! Which requests are an app's business, and which are refused by their head.
//!
//! hyper has refused what is no HTTP: bare CRs, folded lines, spaces in names, lengths that contradict one another. Here are
//! the limits, and what a proxy before us may have read otherwise than we do. A check is a pure function of a head.

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Version};

use super::body::Body;
use super::response::{plain, refused};

/// What a header line has beside its name and value: a colon, a space and the line's end.
const LINE_BYTES: usize = 4;

/// Why a request is not taken; its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
}

impl Refused {
    pub(super) fn with(status: StatusCode) -> Refused {
        Refused { status }
    }

    /// It is no HTTP, or its client has gone and hears nothing of this.
    pub(super) fn body_broken() -> Refused {
        Refused::with(StatusCode::BAD_REQUEST)
    }

    pub(super) fn body_too_large() -> Refused {
        Refused::with(StatusCode::PAYLOAD_TOO_LARGE)
    }

    pub(super) fn body_too_slow() -> Refused {
        Refused::with(StatusCode::REQUEST_TIMEOUT)
    }

    pub(super) fn response(self) -> Response<Body> {
        let mut response = plain(self.status);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        refused(response)
    }
}

/// What is accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    pub(super) head_bytes_max: usize,
    pub(super) headers_max: usize,
    pub(super) body_bytes_max: Option<u64>,
}

impl Admission {
    pub(super) fn check(&self, head: &Parts, body: &Incoming) -> Result<(), Refused> {
        self.check_head(head)?;
        match self.body_bytes_max {
            Some(most) if body.size_hint().lower() > most => Err(Refused::body_too_large()),
            _ => Ok(()),
        }
    }

    fn check_head(&self, head: &Parts) -> Result<(), Refused> {
        if head.headers.len() > self.headers_max || bytes_of(&head.headers) > self.head_bytes_max {
            return Err(Refused::with(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        check_target(head)?;
        check_host(head)?;
        check_coding(&head.headers)
    }
}

fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE_BYTES).sum()
}

/// A path of an app: nothing to be connected through, and no byte that programs read in different ways.
fn check_target(head: &Parts) -> Result<(), Refused> {
    if head.method == Method::CONNECT && head.extensions.get::<hyper::ext::Protocol>().is_none() {
        return Err(Refused::with(StatusCode::METHOD_NOT_ALLOWED));
    }
    let path = head.uri.path();
    let is_path = path.starts_with('/') || path == "*" && head.method == Method::OPTIONS;
    if is_path && is_escaped_well(path.as_bytes()) { Ok(()) } else { Err(Refused::with(StatusCode::BAD_REQUEST)) }
}

/// Each `%` is followed by two digits that are not those of NUL.
fn is_escaped_well(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) && digits != b"00" => rest = &rest[at + 3..],
            _ => return false,
        }
    }
    true
}

/// One Host, and the target's own authority says the same. Which hosts there are is the app's business.
fn check_host(head: &Parts) -> Result<(), Refused> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let fits = match (hosts.next(), hosts.next()) {
        (Some(host), None) => head
            .uri
            .authority()
            .is_none_or(|authority| authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())),
        (None, _) => head.version != Version::HTTP_11,
        (Some(_), Some(_)) => false,
    };
    if fits { Ok(()) } else { Err(Refused::with(StatusCode::BAD_REQUEST)) }
}

/// `chunked` once is all that is understood.
fn check_coding(headers: &HeaderMap) -> Result<(), Refused> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(_), None) => Err(Refused::with(StatusCode::NOT_IMPLEMENTED)),
        (Some(_), Some(_)) => Err(Refused::with(StatusCode::BAD_REQUEST)),
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const ADMISSION: Admission = Admission { head_bytes_max: 300, headers_max: 4, body_bytes_max: None };

    /// The status that a head is refused with; 0: it is admitted.
    fn status(method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        ADMISSION.check_head(&head).err().map_or(0, |refused| refused.status.as_u16())
    }

    #[test]
    fn targets_are_paths() {
        let host = [("Host", "a")];
        for (method, target, expected) in [
            ("GET", "/a/b%20c?%zz", 0),
            ("GET", "/%E2%82%ac", 0),
            ("GET", "http://a/path", 0),
            ("GET", "http://b/path", 400),
            ("OPTIONS", "*", 0),
            ("GET", "*", 400),
            ("CONNECT", "a:443", 405),
            ("GET", "/%", 400),
            ("GET", "/%4", 400),
            ("GET", "/%zz", 400),
            ("GET", "/a%00b", 400),
            ("GET", "/%2500", 0),
        ] {
            assert_eq!(status(method, target, &host), expected, "{method} {target}");
        }
    }

    #[test]
    fn hosts_and_codings_come_once() {
        for (headers, expected) in [
            (&[("Host", "")][..], 0),
            (&[][..], 400),
            (&[("Host", "a"), ("Host", "a")], 400),
            (&[("Host", "a"), ("Transfer-Encoding", "Chunked")], 0),
            (&[("Host", "a"), ("Transfer-Encoding", "gzip, chunked")], 501),
            (&[("Host", "a"), ("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")], 400),
        ] {
            assert_eq!(status("GET", "/", headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn heads_have_their_limits() {
        let long = "x".repeat(300);
        assert_eq!(status("GET", "/", &[("Host", "a"), ("X", &long[..280])]), 0);
        assert_eq!(status("GET", "/", &[("Host", "a"), ("X", &long)]), 431);
        assert_eq!(status("GET", "/", &[("Host", "a"), ("A", ""), ("B", ""), ("C", ""), ("D", "")]), 431);
    }
}
