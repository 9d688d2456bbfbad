//! Who may come in: the Host must be this server's, no page of another origin, and the token where there is one.
//!
//! A web page can send requests to a server on loopback, directly or by a DNS name that it rebinds to 127.0.0.1. So the
//! Host is checked against the names that the bind has; where a token guards a front beyond loopback, no page can know
//! it, and the Host may be whatever a load balancer makes of it.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;

use super::listen::Address;
use super::problem::Problem;

/// The port that a URL need not mention.
const HTTP_PORT: u16 = 80;

#[derive(Debug)]
enum Hosts {
    /// No browser reaches it, or a token guards it.
    Any,
    /// Names with the port, in lower case.
    Exactly(Vec<String>),
    /// Numeric addresses, and these names, with any port: what a page cannot rebind.
    NumericOr(Vec<String>),
}

/// The check that each request passes first.
#[derive(Debug)]
pub(super) struct Door {
    hosts: Hosts,
    token: Option<Vec<u8>>,
    local: bool,
}

impl Door {
    pub(super) fn new(bind: &str, address: &Address, token: Option<&str>) -> Door {
        let (hosts, local) = match address {
            Address::Unix(_) => (Hosts::Any, true),
            Address::Tcp(address) if address.ip().is_loopback() => {
                let names = [host_of(bind), "localhost", "127.0.0.1", "[::1]"];
                (Hosts::Exactly(with_port(&names, address.port())), true)
            }
            Address::Tcp(_) if token.is_some() => (Hosts::Any, false),
            Address::Tcp(_) => (Hosts::NumericOr(own_names(bind)), false),
        };
        Door { hosts, token: token.map(|token| token.as_bytes().to_vec()), local }
    }

    /// Whether whoever comes in is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.local
    }

    /// Whether there is a token that callers must bring.
    pub(super) fn wants_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn check(&self, head: &Parts) -> Result<(), Box<Problem>> {
        self.check_origin(head)?;
        match &self.token {
            Some(token) if !bears(&head.headers, token) => Err(Problem::unauthorized()),
            _ => Ok(()),
        }
    }

    /// The Host, and the origin of the page that asks; not the token.
    pub(super) fn check_origin(&self, head: &Parts) -> Result<(), Box<Problem>> {
        let host = host(head)?;
        if !self.hosts.allow(host) {
            return Err(Problem::wrong_host(format!("'{host}' is not a name of this server{}", self.hosts.hint())));
        }
        if head.headers.get(ORIGIN).is_some_and(|origin| !is_same_origin(origin, host)) {
            return Err(Problem::foreign_origin());
        }
        Ok(())
    }
}

impl Hosts {
    fn allow(&self, host: &str) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::Exactly(names) => names.iter().any(|name| name.eq_ignore_ascii_case(host)),
            Hosts::NumericOr(names) => {
                let host = host_of(host);
                is_numeric(host) || names.iter().any(|name| name.eq_ignore_ascii_case(host))
            }
        }
    }

    fn hint(&self) -> String {
        match self {
            Hosts::Any => String::new(),
            Hosts::Exactly(names) => format!(": {}", names.join(", ")),
            Hosts::NumericOr(names) => {
                format!(": an address, {}; with a token any name is accepted", names.join(", "))
            }
        }
    }
}

/// The one host that the request is meant for. A URI that names one outweighs the header.
fn host(head: &Parts) -> Result<&str, Box<Problem>> {
    if let Some(authority) = head.uri.authority() {
        return Ok(authority.as_str());
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => Ok(host),
        (None, _) => Err(Problem::bad_request("there is no Host header")),
        _ => Err(Problem::bad_request("the Host header is not one name")),
    }
}

fn is_same_origin(origin: &HeaderValue, host: &str) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    !host.is_empty() && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn bears(headers: &HeaderMap, token: &[u8]) -> bool {
    let Some(given) = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes) else {
        return false;
    };
    match given.split_at_checked("Bearer ".len()) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"Bearer ") => is_same(given, token),
        _ => false,
    }
}

/// Compares in a time that depends on the lengths only.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differing = given.iter().zip(token).fold(0, |differing, (one, other)| differing | (one ^ other));
    std::hint::black_box(differing) == 0 && given.len() == token.len()
}

/// The part before the port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn is_numeric(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
}

fn own_names(bind: &str) -> Vec<String> {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names = vec!["localhost".to_owned(), host_of(bind).to_owned(), node];
    names.retain(|name| !name.is_empty() && !is_numeric(name));
    names.dedup();
    names
}

fn with_port(names: &[&str], port: u16) -> Vec<String> {
    let mut named: Vec<String> = names.iter().map(|name| format!("{}:{port}", name.to_ascii_lowercase())).collect();
    if port == HTTP_PORT {
        named.extend(names.iter().map(|name| name.to_ascii_lowercase()));
    }
    named.sort();
    named.dedup();
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn loopback(port: u16) -> Address {
        Address::Tcp(([127, 0, 0, 1], port).into())
    }

    fn anywhere() -> Address {
        Address::Tcp(([0, 0, 0, 0], 8080).into())
    }

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn passes(door: &Door, headers: &[(&str, &str)]) -> bool {
        door.check(&head(headers)).is_ok()
    }

    #[test]
    fn on_loopback_only_its_own_names_with_the_port_are_let_in() {
        let door = Door::new("127.0.0.1:8080", &loopback(8080), None);
        for host in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"] {
            assert!(passes(&door, &[("host", host)]), "{host}");
        }
        for host in
            ["127.0.0.1", "127.0.0.1:80", "evil.example:8080", "localhost.evil.example:8080", "", "a@localhost:8080"]
        {
            assert!(!passes(&door, &[("host", host)]), "{host}");
        }
        assert!(!passes(&door, &[]));
        assert!(!passes(&door, &[("host", "localhost:8080"), ("host", "evil.example")]));
        assert!(passes(&Door::new("127.0.0.1:80", &loopback(80), None), &[("host", "localhost")]));
    }

    #[test]
    fn a_page_of_another_origin_stays_out_everywhere() {
        let here = Door::new("127.0.0.1:8080", &loopback(8080), None);
        let host = ("host", "localhost:8080");
        assert!(passes(&here, &[host, ("origin", "http://localhost:8080")]));
        for origin in
            ["null", "http://localhost:3000", "http://evil.example", "file://", "http://localhost:8080.evil.example"]
        {
            assert!(!passes(&here, &[host, ("origin", origin)]), "{origin}");
        }
        let unix = Door::new("unix:/run/clutch", &Address::Unix(PathBuf::from("/run/clutch")), None);
        assert!(passes(&unix, &[("host", "whatever")]));
        assert!(!passes(&unix, &[("host", "whatever"), ("origin", "http://evil.example")]));
    }

    #[test]
    fn beyond_loopback_a_token_or_an_address_that_no_page_can_rebind() {
        let open = Door::new("0.0.0.0:8080", &anywhere(), None);
        assert!(passes(&open, &[("host", "10.0.0.5:9000")]));
        assert!(passes(&open, &[("host", "[fe80::1]:9000")]));
        assert!(!passes(&open, &[("host", "rebound.example:8080")]));
        let guarded = Door::new("0.0.0.0:8080", &anywhere(), Some("secret"));
        let host = ("host", "api.example");
        assert!(passes(&guarded, &[host, ("authorization", "bearer secret")]));
        for given in ["Bearer secre", "Bearer secrets", "Bearer ", "Basic secret", "secret", "Bearer Secret"] {
            assert!(!passes(&guarded, &[host, ("authorization", given)]), "{given}");
        }
        assert!(!passes(&guarded, &[host]));
    }
}
