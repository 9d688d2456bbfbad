//! Reads the headers of proxies: whose a request is, how it came to them, and when. Only trusted proxies are believed.
//!
//! Pure: names and values of headers to facts.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use smallvec::SmallVec;

/// Longest time that a request is believed to have waited: more is a clock that is wrong.
const WAITED_MAX: Duration = Duration::from_secs(3600);

/// An address, or a network of them.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Proxies that are believed.
#[derive(Debug, Default)]
pub struct Trust {
    /// Whoever connects is one of our proxies. Who that proxy has heard of need not be.
    all: bool,
    /// Addresses of our proxies.
    networks: Vec<IpNet>,
    /// The PROXY protocol tells who has connected. That it came through a proxy says nothing of its headers.
    by_proxy_protocol: bool,
}

/// Facts of a request that are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    pub client: Option<IpAddr>,
    pub is_secure: Option<bool>,
    /// Whoever has connected is believed.
    pub is_trusted: bool,
    /// Before it came to us.
    pub waited: Duration,
}

/// Values of the headers that proxies write, in the order in which they came.
#[derive(Default)]
struct Said<'a> {
    clients: SmallVec<[&'a [u8]; 2]>,
    proto: Option<&'a [u8]>,
    ssl: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    start: Option<&'a [u8]>,
}

impl<'a> Said<'a> {
    /// Names in any case. Of several lines the last counts, but for those of clients, which are one list.
    fn of(headers: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Said<'a> {
        let mut said = Said::default();
        for (name, value) in headers {
            if name.first().is_none_or(|first| first | 0x20 != b'x') {
                continue;
            }
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            if is(b"x-forwarded-for") {
                said.clients.push(value);
            } else if is(b"x-forwarded-proto") {
                said.proto = Some(value);
            } else if is(b"x-forwarded-ssl") {
                said.ssl = Some(value);
            } else if is(b"x-forwarded-protocol") {
                said.protocol = Some(value);
            } else if is(b"x-request-start") {
                said.start = Some(value);
            }
        }
        said
    }
}

impl Trust {
    /// Addresses, networks and `*`; the configuration has checked them. A network of all addresses is `*`, too.
    pub fn new(names: &[String], by_proxy_protocol: bool) -> Trust {
        let networks = names.iter().filter_map(|name| network(name));
        let (everything, networks): (Vec<_>, Vec<_>) = networks.partition(|network| network.prefix_len() == 0);
        let all = !everything.is_empty() || names.iter().any(|name| name == "*");
        Trust { all, networks, by_proxy_protocol }
    }

    /// The request came from a proxy that was named.
    fn holds(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address.to_canonical()))
    }

    /// Whether the headers of whoever has connected are believed.
    pub fn believes(&self, from: Option<IpAddr>) -> bool {
        self.all || from.is_none_or(|from| self.holds(from))
    }

    /// `from`: who has connected; none: by a unix socket, which only this machine's own reach. `headers`: names in any case,
    /// and values.
    pub fn read<'a>(
        &self,
        from: Option<IpAddr>,
        headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        now: impl FnOnce() -> SystemTime,
    ) -> Forwarded {
        let is_named = from.is_none_or(|from| self.holds(from));
        if !is_named && !self.all {
            return Forwarded::default();
        }
        let (has_proxy, said) = (is_named || !self.by_proxy_protocol, Said::of(headers));
        Forwarded {
            client: has_proxy.then(|| self.client(&said)).flatten(),
            is_secure: is_secure(&said),
            is_trusted: true,
            waited: last(said.start).and_then(|start| waited(start, now())).unwrap_or_default(),
        }
    }

    /// From the right, the first that is no proxy of ours: what is left of it anybody may have written.
    fn client(&self, said: &Said<'_>) -> Option<IpAddr> {
        let lines = said.clients.iter().rev();
        let hops = lines.flat_map(|line| text(line).unwrap_or_default().rsplit(',')).map(address);
        let mut client = None;
        for hop in hops {
            // What is no address was not written by a proxy that could be believed.
            let Some(hop) = hop else { break };
            client = Some(hop);
            if !self.holds(hop) {
                break;
            }
        }
        client
    }
}

/// By the header that most proxies send, or by one of those that gunicorn takes as well.
fn is_secure(said: &Said<'_>) -> Option<bool> {
    let is = |value, words: [&str; 2]| last(value).map(|word| words.contains(&word));
    is(said.proto, ["https", "wss"])
        .or_else(|| is(said.ssl, ["on", "on"]))
        .or_else(|| is(said.protocol, ["https", "ssl"]))
}

fn last(value: Option<&[u8]>) -> Option<&str> {
    text(value?)?.rsplit(',').next().map(str::trim)
}

/// A value that is printable ASCII, or else none: no proxy writes others here.
fn text(value: &[u8]) -> Option<&str> {
    let is_text = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    std::str::from_utf8(value).ok().filter(|_| is_text)
}

/// With a port or without, IPv6 in brackets or without.
fn address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']')).unwrap_or(hop);
    bare.parse().ok().or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// `t=` or nothing, then seconds, milliseconds or microseconds since 1970: which, their size tells.
fn waited(start: &str, now: SystemTime) -> Option<Duration> {
    let number: f64 = start.strip_prefix("t=").unwrap_or(start).parse().ok()?;
    let seconds = match number {
        number if number > 1e14 => number / 1e6,
        number if number > 1e11 => number / 1e3,
        number => number,
    };
    let start = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
    now.duration_since(start).ok().filter(|waited| *waited <= WAITED_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trust(names: &[&str]) -> Trust {
        Trust::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), false)
    }

    fn headers<'a>(lines: &[(&'a str, &'a str)]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = lines.iter().map(|(name, text)| (name.as_bytes(), text.as_bytes()));
        bytes.collect::<Vec<_>>().into_iter()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn networks_hold_what_begins_as_they_do() {
        let trust = trust(&["10.0.0.0/8", "::1", "2001:db8::/32", "0.0.0.1"]);
        for address in ["10.9.8.7", "::1", "2001:db8:1::", "::ffff:10.0.0.1", "0.0.0.1"] {
            assert!(trust.holds(ip(address)), "{address}");
        }
        for address in ["11.0.0.1", "::2", "2001:db9::", "127.0.0.1", "0.0.0.2"] {
            assert!(!trust.holds(ip(address)), "{address}");
        }
    }

    #[test]
    fn the_client_is_the_last_that_no_proxy_of_ours_is() {
        let client = |trusted: &[&str], chain: &'static str| {
            let headers = headers(&[("x-forwarded-for", chain)]);
            trust(trusted).read(Some(ip("10.0.0.1")), headers, || UNIX_EPOCH).client
        };
        let ours = ["10.0.0.0/8"];
        assert_eq!(client(&ours, "6.6.6.6, 1.2.3.4, 10.0.0.2"), Some(ip("1.2.3.4")), "the first may be forged");
        assert_eq!(client(&ours, "10.0.0.3, 10.0.0.2"), Some(ip("10.0.0.3")));
        assert_eq!(client(&ours, "[2::3]:80"), Some(ip("2::3")));
        assert_eq!(client(&ours, "1.2.3.4:5"), Some(ip("1.2.3.4")));
        assert_eq!(client(&ours, "1.2.3.4, unknown, 10.0.0.2"), Some(ip("10.0.0.2")));
        assert_eq!(client(&ours, "nobody"), None);
        for all in [["*"], ["0.0.0.0/0"]] {
            assert_eq!(client(&all, "6.6.6.6, 1.2.3.4"), Some(ip("1.2.3.4")), "the last, which our proxy has written");
        }
        assert_eq!(client(&["*", "10.0.0.0/8"], "6.6.6.6, 1.2.3.4, 10.0.0.2"), Some(ip("1.2.3.4")));
        assert_eq!(client(&["127.0.0.1"], "1.2.3.4"), None, "who is not named is not believed");
    }

    /// Entries that a client may have forged: addresses of others, of our proxies, and some that are no addresses.
    const FORGED: [&str; 10] =
        ["6.6.6.6", "10.0.0.7", "127.0.0.1", "::1", "1.2.3.4", "[::2]:9", "unknown", "", " ,", "9.9.9.9:80"];

    fn forged() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(&FORGED[..]), 0..6).prop_map(|hops| hops.join(","))
    }

    fn of_lines(lines: &[String]) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines.iter().map(|text| (&b"X-Forwarded-For"[..], text.as_bytes()))
    }

    proptest! {
        /// Each proxy adds who has connected to it, as a line of its own or to the last one.
        #[test]
        fn failure_70_an_address_that_a_client_wrote_itself_is_never_believed(
            mut lines in prop::collection::vec(forged(), 0..3),
            names in prop::sample::select(vec![
                vec!["127.0.0.1", "::1"], vec!["*"], vec!["0.0.0.0/0"], vec!["10.0.0.0/8"], vec!["*", "10.0.0.0/8"],
            ]),
            from in prop::sample::select(vec![None, Some("127.0.0.1"), Some("10.0.0.1"), Some("5.5.5.5")]),
            proxies in 0..3usize,
            adds_lines: bool,
            by_proxy_protocol: bool,
        ) {
            let names: Vec<_> = names.into_iter().map(str::to_owned).collect();
            let trust = Trust::new(&names, by_proxy_protocol);
            // The proxy that speaks the PROXY protocol writes no header: who it speaks for is the one who has connected.
            let is_client = by_proxy_protocol && from == Some("5.5.5.5");
            let appended: Vec<_> = ["8.8.8.8", "10.0.0.2", "10.0.0.3"].into_iter().take(1 + proxies).collect();
            for hop in appended.iter().filter(|_| !is_client) {
                match lines.last_mut() {
                    Some(line) if !adds_lines => *line = format!("{line}, {hop}"),
                    _ => lines.push((*hop).to_owned()),
                }
            }
            let client = trust.read(from.map(ip), of_lines(&lines), || UNIX_EPOCH).client;
            let written_by_proxies = client.is_none_or(|client| appended.iter().any(|hop| ip(hop) == client));
            prop_assert!(!is_client || client.is_none(), "{client:?}");
            prop_assert!(written_by_proxies, "{client:?}");
            // Where the proxies are named, it is who has come to the first of them.
            if names.contains(&"10.0.0.0/8".to_owned()) && from.is_none_or(|from| from == "10.0.0.1") {
                prop_assert_eq!(client, Some(ip("8.8.8.8")));
            }
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        let headers = headers(&[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "1.2.3.4")]);
        assert_eq!(trust(&[]).read(None, headers, || UNIX_EPOCH).client, Some(ip("1.2.3.4")));
    }

    #[test]
    fn the_scheme_is_that_of_the_nearest_proxy() {
        for (value, expected) in [("https", true), ("http, https", true), ("https, http", false), ("wss", true)] {
            let headers = headers(&[("x-forwarded-proto", value)]);
            assert_eq!(trust(&[]).read(None, headers, || UNIX_EPOCH).is_secure, Some(expected), "{value}");
        }
        for (name, value, expected) in [
            ("x-forwarded-ssl", "on", true),
            ("x-forwarded-ssl", "off", false),
            ("x-forwarded-protocol", "ssl", true),
            ("x-forwarded-protocol", "http", false),
        ] {
            let alone = headers(&[(name, value)]);
            assert_eq!(trust(&[]).read(None, alone, || UNIX_EPOCH).is_secure, Some(expected), "{name}: {value}");
            let contradicted = headers(&[(name, value), ("x-forwarded-proto", "http")]);
            assert_eq!(trust(&[]).read(None, contradicted, || UNIX_EPOCH).is_secure, Some(false), "{name}: {value}");
        }
    }

    #[test]
    fn starts_are_read_in_all_their_units() {
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_001_500);
        for text in ["1700000000", "t=1700000000.0", "1700000000000", "t=1700000000000000"] {
            assert_eq!(waited(text, now), Some(Duration::from_millis(1500)), "{text}");
        }
        for text in ["", "t=", "soon", "nan", "-1", "1", "1700000002", "inf", "1e300"] {
            assert_eq!(waited(text, now), None, "{text}");
        }
    }
}
