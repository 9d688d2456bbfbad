//! Decides which requests the app gets, and which are refused by their head.
//!
//! hyper has refused what is no HTTP: bare CRs, folded lines, spaces in names, lengths that contradict one another. Here are
//! the limits, and what a proxy before us may have read otherwise than we do. A check is a pure function of a head.

use std::error::Error;
use std::io;
use std::net::Ipv6Addr;

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Version};

use super::body::AppBody;
use super::response::{gone, plain, refused};

/// Why a request is not taken; its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    /// The client has gone.
    is_gone: bool,
}

impl Refused {
    pub(super) fn with(status: StatusCode) -> Refused {
        Refused { status, is_gone: false }
    }

    /// Makes the refusal of a body that is not HTTP, or whose client has gone in the middle of it and does not hear of
    /// this.
    pub(super) fn body_broken(error: &hyper::Error) -> Refused {
        Refused { status: StatusCode::BAD_REQUEST, is_gone: is_loss(error) }
    }

    pub(super) fn body_too_large() -> Refused {
        Refused::with(StatusCode::PAYLOAD_TOO_LARGE)
    }

    pub(super) fn body_too_slow() -> Refused {
        Refused::with(StatusCode::REQUEST_TIMEOUT)
    }

    pub(super) fn response(self) -> Response<AppBody> {
        let mut response = plain(self.status);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        match self.is_gone {
            true => gone(response),
            false => refused(response, self.reason()),
        }
    }

    /// For the log: what is refused, of which front, and why.
    pub(super) fn words(self, front: &str, head: &Parts) -> String {
        let why = match self.status {
            StatusCode::PAYLOAD_TOO_LARGE => format!("its body is larger than fronts.{front}.body_max"),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => format!("its head is larger than fronts.{front}.head_max"),
            StatusCode::METHOD_NOT_ALLOWED => "it is not for a server of apps".to_owned(),
            StatusCode::NOT_IMPLEMENTED => "its transfer coding is not understood".to_owned(),
            _ => "its target or Host is not valid".to_owned(),
        };
        let (status, shown) = (self.status.as_u16(), super::request::shown(head));
        format!("fronts.{front}: {shown}: a request was refused with {status}: {why}")
    }

    pub(super) fn reason(self) -> &'static str {
        match self.status {
            StatusCode::PAYLOAD_TOO_LARGE => "body-too-large",
            StatusCode::REQUEST_TIMEOUT => "body-too-slow",
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "head-too-large",
            _ => "malformed",
        }
    }
}

/// The connection ended in the middle, or the stream did; else what came was wrong.
fn is_loss(error: &hyper::Error) -> bool {
    let Some(source) = error.source() else { return false };
    match source.downcast_ref::<io::Error>() {
        Some(error) => !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput),
        None => source.downcast_ref::<h2::Error>().is_some_and(|error| error.is_remote() || error.is_io()),
    }
}

/// Whether an app sees it; `body_bytes_max`: none, no limit.
pub(super) fn check(head: &Parts, body: &Incoming, body_bytes_max: Option<u64>) -> Result<(), Refused> {
    check_head(head)?;
    match body_bytes_max {
        Some(most) if body.size_hint().lower() > most => Err(Refused::body_too_large()),
        _ => Ok(()),
    }
}

fn check_head(head: &Parts) -> Result<(), Refused> {
    check_target(head)?;
    check_host(head)?;
    check_coding(&head.headers)
}

/// A path of an app, and nothing to be connected through. Escapes that are none are the app's to judge, as elsewhere.
fn check_target(head: &Parts) -> Result<(), Refused> {
    if head.method == Method::CONNECT && head.extensions.get::<hyper::ext::Protocol>().is_none() {
        return Err(Refused::with(StatusCode::METHOD_NOT_ALLOWED));
    }
    let path = head.uri.path();
    let is_path = path.starts_with('/') || path == "*" && head.method == Method::OPTIONS;
    if is_path { Ok(()) } else { Err(Refused::with(StatusCode::BAD_REQUEST)) }
}

/// Each `%` is followed by two digits that are not those of NUL.
fn is_escaped_well(name: &[u8]) -> bool {
    let mut rest = name;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) && digits != b"00" => rest = &rest[at + 3..],
            _ => return false,
        }
    }
    true
}

/// Checks that there is one valid Host, and that the target's own authority says the same. The app decides which hosts
/// there are.
fn check_host(head: &Parts) -> Result<(), Refused> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let fits = match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let scheme = head.uri.scheme_str().unwrap_or("http");
            let is_same = |authority: &[u8]| {
                without_port(authority, scheme).eq_ignore_ascii_case(without_port(host.as_bytes(), scheme))
            };
            is_host(host.as_bytes()) && authority.is_none_or(|authority| is_host(authority) && is_same(authority))
        }
        // HTTP/1.0 has none; of later versions each request says what it is for.
        (None, _) => authority.map_or(head.version == Version::HTTP_10, is_host),
        (Some(_), Some(_)) => false,
    };
    if fits { Ok(()) } else { Err(Refused::with(StatusCode::BAD_REQUEST)) }
}

/// `uri-host [":" port]` of RFC 9110, 7.2: a name, an address, or nothing.
fn is_host(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) if is_literal(address) => ("", rest),
        Some(_) => return false,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    is_name(name.as_bytes()) && (port.is_empty() || is_port(port))
}

/// In brackets: an IPv6 address, with its zone or without.
fn is_literal(address: &str) -> bool {
    let (address, zone) = address.split_once("%25").unwrap_or((address, ""));
    address.parse::<Ipv6Addr>().is_ok() && is_name(zone.as_bytes())
}

fn is_name(name: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(byte);
    name.iter().all(is_allowed) && is_escaped_well(name)
}

/// Behind a colon, which may stand alone.
fn is_port(port: &str) -> bool {
    let digits = port.strip_prefix(':');
    digits.is_some_and(|digits| {
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits.is_empty() || digits.parse::<u16>().is_ok())
    })
}

/// Without the port that its scheme has anyway.
fn without_port<'a>(host: &'a [u8], scheme: &str) -> &'a [u8] {
    let port: &[u8] = if scheme == "https" { b":443" } else { b":80" };
    host.strip_suffix(port).or_else(|| host.strip_suffix(b":")).unwrap_or(host)
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

    /// The status that a head is refused with; 0: it is admitted.
    fn status(method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        check_head(&head).err().map_or(0, |refused| refused.status.as_u16())
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
            ("GET", "/100%", 0),
            ("GET", "/%4", 0),
            ("GET", "/%zz", 0),
            ("GET", "/a%00b", 0),
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
    fn hosts_are_names_or_addresses() {
        for host in [
            "",
            "a",
            "a.b-c_d",
            "a:80",
            "a:",
            "[::1]",
            "[::1]:80",
            "[fe80::1%25eth0]",
            "1.2.3.4:5",
            "h%2d",
            "h,i",
            "h;i",
            "*",
        ] {
            assert_eq!(status("GET", "/", &[("Host", host)]), 0, "{host}");
        }
        for host in [
            "h i", "h/", "h@i", "u:p@h", "h\ti", "h:abc", "h:-1", "h:80:80", "[::1", "::1", "h?x", "h#x", "h\\x",
            "<h>", "h:99999", "h%00", "h%", "[::1]x", "[x]", "é",
        ] {
            assert_eq!(status("GET", "/", &[("Host", host)]), 400, "{host}");
        }
        for (target, host) in [("http://a:80/", "a"), ("http://a/", "A:80"), ("https://a/", "a:443")] {
            assert_eq!(status("GET", target, &[("Host", host)]), 0, "{target} {host}");
        }
        for (target, host) in [("http://a:81/", "a"), ("https://a/", "a:80"), ("http://u@a/", "u@a"), ("http://a/", "")]
        {
            assert_eq!(status("GET", target, &[("Host", host)]), 400, "{target} {host}");
        }
    }
}
