//! Checks of each request: the Host must be this server's, no page of another origin that is not allowed to, and a token where
//! one is needed.
//!
//! A web page can send requests to a server on loopback, directly or by a DNS name that it rebinds to 127.0.0.1. So the
//! Host is checked against the names that the bind has. Where a token guards a front beyond loopback, no page can know
//! it; where TLS does, no browser takes its certificate for that of the rebound name: then the Host may be whatever a load
//! balancer makes of it.

use std::net::IpAddr;
use std::sync::Arc;

use clutch_host::Address;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Response};

use crate::body::Body;
use crate::body::problem::Problem;
use crate::net::cors::Cors;
use crate::net::sessions::Sessions;
use crate::net::tokens::{Holder, Tokens};

/// The port that a URL need not mention.
const HTTP_PORT: u16 = 80;

/// Header by which a browser says whether the page that asks is of this server; `none`: its user does.
const FETCH_SITE: &str = "sec-fetch-site";

/// Longest origin that is shown to whoever sent it.
const ORIGIN_SHOWN_MAX: usize = 200;

#[derive(Debug)]
enum Hosts {
    /// No browser reaches it, or a token guards it.
    Any,
    /// Names with the port, in lower case.
    Exactly(Vec<String>),
    /// Numeric addresses, and these names, with any port: what a page cannot rebind.
    NumericOr(Vec<String>),
}

/// Guards of a front, wherever it listens.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) has_tls: bool,
    /// Sessions of browsers that have signed in with a token. None: the front has none.
    pub(crate) sessions: Option<Arc<Sessions>>,
    /// None: the front has no such option.
    pub(crate) cors: Option<Arc<Cors>>,
}

/// The check that each request passes first, of those that come by one address.
pub(crate) struct AccessControl {
    hosts: Hosts,
    guard: Guard,
    local: bool,
    is_unix: bool,
}

impl AccessControl {
    pub(crate) fn new(bind: &str, address: &Address, guard: Guard) -> AccessControl {
        let local = address.is_local();
        // The number of a socket that was handed over is no name.
        let taken_over = bind.starts_with("fd:").then(|| address.to_string());
        let bind = taken_over.as_deref().unwrap_or(bind);
        let hosts = match address {
            Address::Unix(_) => Hosts::Any,
            Address::Tcp(_) if guard.has_tls => Hosts::Any,
            Address::Tcp(address) if local => {
                let names = [host_of(bind), "localhost", "127.0.0.1", "[::1]"];
                Hosts::Exactly(with_port(&names, address.port()))
            }
            Address::Tcp(_) if guard.tokens.is_some() => Hosts::Any,
            Address::Tcp(_) => Hosts::NumericOr(own_names(bind)),
        };
        AccessControl { hosts, guard, local, is_unix: matches!(address, Address::Unix(_)) }
    }

    /// Returns whether the address is a unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        self.is_unix
    }

    /// Returns whether all clients are on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    pub(crate) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.guard.tokens.as_ref()
    }

    pub(crate) fn sessions(&self) -> Option<&Arc<Sessions>> {
        self.guard.sessions.as_ref()
    }

    /// Returns who asks, by the token; nobody in particular where none is needed.
    pub(crate) fn check(&self, head: &Parts) -> Result<Arc<Holder>, Box<Problem>> {
        self.check_origin(head)?;
        let Some(tokens) = &self.guard.tokens else { return Ok(Arc::default()) };
        let holder = match (bearer(&head.headers), &self.guard.sessions) {
            (Some(token), _) => tokens.holder(token),
            (None, Some(sessions)) => {
                let is_known = sessions.allow(tokens, &head.headers) && self.check_own_page(head)?;
                is_known.then(Arc::default)
            }
            (None, None) => None,
        };
        holder.ok_or_else(Problem::unauthorized)
    }

    /// Refuses a request by cookie that a page at another port of the host makes: browsers send cookies with it by
    /// themselves, and no Origin with what they only read. A change needs the Origin of this very server.
    fn check_own_page(&self, head: &Parts) -> Result<bool, Box<Problem>> {
        // Browsers say it to servers on loopback and by TLS, and not to others.
        let mut sites = head.headers.get_all(FETCH_SITE).iter();
        if !sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none")) {
            return Err(Problem::foreign_origin("; a session is for its own pages"));
        }
        let mut origins = head.headers.get_all(ORIGIN).iter();
        let is_own = match (origins.next(), origins.next()) {
            (Some(origin), None) => is_same_origin(origin, self.host(head)?),
            _ => false,
        };
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if is_read || is_own {
            Ok(true)
        } else {
            Err(Problem::foreign_origin("; a session needs the Origin of its own page"))
        }
    }

    /// The Host, and the origin of the page that asks; not the token.
    pub(crate) fn check_origin(&self, head: &Parts) -> Result<(), Box<Problem>> {
        let host = self.host(head)?;
        match head.headers.get(ORIGIN).filter(|origin| !self.may_be_from(origin, host)) {
            Some(origin) => Err(Problem::foreign_origin(&self.remedy(origin))),
            None => Ok(()),
        }
    }

    /// The answer to a browser that asks whether a page may call; it brings no token. None: it asks no such thing.
    pub(crate) fn preflight(&self, head: &Parts) -> Result<Option<Response<Body>>, Box<Problem>> {
        match &self.guard.cors {
            Some(cors) if cors.is_preflight(head) => self.host(head).map(|_| Some(cors.granted())),
            _ => Ok(None),
        }
    }

    /// Says in an answer which page may read it.
    pub(crate) fn mark(&self, head: &Parts, answer: &mut HeaderMap) {
        self.guard.cors.iter().for_each(|cors| cors.mark(&head.headers, answer));
    }

    fn host<'a>(&self, head: &'a Parts) -> Result<&'a str, Box<Problem>> {
        let host = host(head)?;
        if !self.hosts.allow(host) {
            return Err(Problem::wrong_host(format!("'{host}' is not a name of this server{}", self.hosts.hint())));
        }
        Ok(host)
    }

    fn may_be_from(&self, origin: &HeaderValue, host: &str) -> bool {
        is_same_origin(origin, host) || self.guard.cors.as_ref().is_some_and(|cors| cors.allows(origin))
    }

    /// Says what would let a page of this origin in.
    fn remedy(&self, origin: &HeaderValue) -> String {
        let shown = origin.to_str().ok().filter(|shown| shown.len() <= ORIGIN_SHOWN_MAX && shown.contains("://"));
        match (&self.guard.cors, shown) {
            (Some(cors), Some(origin)) => format!("; to allow it, add it to {}: [\"{origin}\"]", cors.option),
            (Some(cors), None) => format!("; {} allows some", cors.option),
            (None, _) => String::new(),
        }
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

/// The token that a request brings.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
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

    fn guard(token: Option<&str>, has_tls: bool, origins: Option<&[&str]>) -> Guard {
        let tokens = Tokens::new("http", token, None, None, &Arc::default()).expect("no file");
        let listed = |origins: &[&str]| origins.iter().map(|origin| (*origin).to_owned()).collect::<Vec<_>>();
        Guard {
            tokens,
            has_tls,
            sessions: None,
            cors: origins.map(|origins| Arc::new(Cors::new("fronts.api.cors_origins", &listed(origins), &[]))),
        }
    }

    fn passes(access_control: &AccessControl, headers: &[(&str, &str)]) -> bool {
        access_control.check(&head(headers)).is_ok()
    }

    #[test]
    fn on_loopback_only_its_own_names_with_the_port_are_let_in() {
        let access_control = AccessControl::new("127.0.0.1:8080", &loopback(8080), Guard::default());
        for host in ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"] {
            assert!(passes(&access_control, &[("host", host)]), "{host}");
        }
        for host in
            ["127.0.0.1", "127.0.0.1:80", "evil.example:8080", "localhost.evil.example:8080", "", "a@localhost:8080"]
        {
            assert!(!passes(&access_control, &[("host", host)]), "{host}");
        }
        assert!(!passes(&access_control, &[]));
        assert!(!passes(&access_control, &[("host", "localhost:8080"), ("host", "evil.example")]));
        assert!(passes(&AccessControl::new("127.0.0.1:80", &loopback(80), Guard::default()), &[("host", "localhost")]));
    }

    #[test]
    fn a_page_of_another_origin_stays_out_everywhere() {
        let here = AccessControl::new("127.0.0.1:8080", &loopback(8080), guard(None, false, Some(&[])));
        let host = ("host", "localhost:8080");
        assert!(passes(&here, &[host, ("origin", "http://localhost:8080")]));
        for origin in
            ["null", "http://localhost:3000", "http://evil.example", "file://", "http://localhost:8080.evil.example"]
        {
            assert!(!passes(&here, &[host, ("origin", origin)]), "{origin}");
        }
        let unix =
            AccessControl::new("unix:/run/clutch", &Address::Unix(PathBuf::from("/run/clutch")), Guard::default());
        assert!(passes(&unix, &[("host", "whatever")]));
        assert!(!passes(&unix, &[("host", "whatever"), ("origin", "http://evil.example")]));
    }

    #[test]
    fn beyond_loopback_a_token_or_an_address_that_no_page_can_rebind() {
        let open = AccessControl::new("0.0.0.0:8080", &anywhere(), Guard::default());
        assert!(passes(&open, &[("host", "10.0.0.5:9000")]));
        assert!(passes(&open, &[("host", "[fe80::1]:9000")]));
        assert!(!passes(&open, &[("host", "rebound.example:8080")]));
        let guarded = AccessControl::new("0.0.0.0:8080", &anywhere(), guard(Some("secret"), false, None));
        let host = ("host", "api.example");
        assert!(passes(&guarded, &[host, ("authorization", "bearer secret")]));
        for given in ["Bearer secre", "Bearer secrets", "Bearer ", "Basic secret", "secret", "Bearer Secret"] {
            assert!(!passes(&guarded, &[host, ("authorization", given)]), "{given}");
        }
        assert!(!passes(&guarded, &[host]));
        let encrypted = AccessControl::new("0.0.0.0:8443", &anywhere(), guard(None, true, None));
        assert!(passes(&encrypted, &[host]));
    }

    #[test]
    fn loopback_is_known_by_the_address_however_the_socket_came() {
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        for address in [loopback(8080), Address::Tcp((mapped, 8080).into())] {
            let access_control = AccessControl::new("fd:3", &address, Guard::default());
            assert!(access_control.is_local());
            assert!(passes(&access_control, &[("host", "localhost:8080")]));
            assert!(!passes(&access_control, &[("host", "rebound.example:8080")]));
        }
        let access_control = AccessControl::new("fd:3", &anywhere(), Guard::default());
        assert!(!access_control.is_local());
        assert!(!passes(&access_control, &[("host", "fd")]));
    }

    #[test]
    fn listed_origins_come_in_and_others_are_told_how() {
        let listed = Some(&["https://app.example"][..]);
        let access_control =
            AccessControl::new("127.0.0.1:8080", &loopback(8080), guard(Some("secret"), false, listed));
        let host = ("host", "localhost:8080");
        let (origin, token) = (("origin", "https://app.example"), ("authorization", "Bearer secret"));
        assert!(passes(&access_control, &[host, origin, token]));
        assert!(!passes(&access_control, &[host, origin]));
        assert!(!passes(&access_control, &[("host", "evil.example:8080"), origin, token]));
        let refused =
            access_control.check(&head(&[host, ("origin", "https://other.example"), token])).expect_err("foreign");
        let document = String::from_utf8(refused.document()).expect("text");
        assert!(document.contains(r#"fronts.api.cors_origins: [\"https://other.example\"]"#), "{document}");
    }

    #[test]
    fn a_preflight_needs_no_token_but_the_right_host() {
        let access_control =
            AccessControl::new("127.0.0.1:8080", &loopback(8080), guard(Some("secret"), false, Some(&["https://a.b"])));
        let asked = |host: &str, origin: &str| {
            let mut head = head(&[("host", host), ("origin", origin), ("access-control-request-method", "POST")]);
            head.method = Method::OPTIONS;
            access_control.preflight(&head).map(|answer| answer.map(|answer| answer.status().as_u16())).map_err(|_| ())
        };
        assert_eq!(asked("localhost:8080", "https://a.b"), Ok(Some(204)));
        assert_eq!(asked("localhost:8080", "https://c.d"), Ok(None));
        assert_eq!(asked("evil.example:8080", "https://a.b"), Err(()));
    }
}
