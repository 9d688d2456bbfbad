//! Reads the headers of proxies: whose a request is, how it came to them, and when. Only trusted proxies are believed.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clutch_host::Warnings;
use hyper::header::HeaderMap;
use ipnet::IpNet;

/// Longest time that a request is believed to have waited: more is a clock that is wrong.
const WAITED_MAX: Duration = Duration::from_secs(3600);

/// An address, or a network of them.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Proxies that are believed.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Whoever connects is one of our proxies. Who that proxy has heard of need not be.
    all: bool,
    /// Addresses of our proxies.
    networks: Vec<IpNet>,
    /// The PROXY protocol tells who has connected. That it came through a proxy says nothing of its headers.
    by_proxy_protocol: bool,
    has_told_of_clocks: AtomicBool,
}

/// Facts of a request that are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    pub(super) client: Option<IpAddr>,
    pub(super) is_secure: Option<bool>,
    /// Whoever has connected is believed.
    pub(super) is_trusted: bool,
    /// Before it came to us.
    pub(super) waited: Duration,
}

impl Trust {
    /// Addresses, networks and `*`; the configuration has checked them. A network of all addresses is `*`, too.
    pub(super) fn new(names: &[String], by_proxy_protocol: bool) -> Trust {
        let networks = names.iter().filter_map(|name| network(name));
        let (everything, networks): (Vec<_>, Vec<_>) = networks.partition(|network| network.prefix_len() == 0);
        let all = !everything.is_empty() || names.iter().any(|name| name == "*");
        Trust { all, networks, by_proxy_protocol, has_told_of_clocks: AtomicBool::new(false) }
    }

    /// The request came from a proxy that was named.
    fn holds(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address.to_canonical()))
    }

    /// `from`: who has connected; none: by a unix socket, which only this machine's own reach.
    pub(super) fn read(
        &self,
        from: Option<IpAddr>,
        headers: &HeaderMap,
        now: impl FnOnce() -> SystemTime,
    ) -> Forwarded {
        let is_named = from.is_none_or(|from| self.holds(from));
        if !is_named && !self.all {
            return Forwarded::default();
        }
        let has_proxy = is_named || !self.by_proxy_protocol;
        Forwarded {
            client: has_proxy.then(|| self.client(headers)).flatten(),
            is_secure: is_secure(headers),
            is_trusted: true,
            waited: last(headers, "x-request-start").and_then(|start| waited(start, now())).unwrap_or_default(),
        }
    }

    /// Returns what is left of `timeout`. Half of it at least: else a clock that is wrong would refuse every request.
    pub(super) fn left(&self, front: &str, timeout: Duration, waited: Duration, warnings: &Warnings) -> Duration {
        let most = timeout / 2;
        if waited > most && !self.has_told_of_clocks.swap(true, Ordering::Relaxed) {
            warnings.tell("X-Request-Start", || told_of_clocks(front, waited, most));
        }
        timeout - waited.min(most)
    }

    /// From the right, the first that is no proxy of ours: what is left of it anybody may have written.
    fn client(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let hops = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(',')).map(address);
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

fn told_of_clocks(front: &str, waited: Duration, most: Duration) -> String {
    format!(
        "X-Request-Start: a request came {:.1} s after its first proxy had it, by the proxy's clock; counted are {:.1} s, \
         half of fronts.{front}.timeout. Either requests wait there, or one of the clocks is wrong (told once)",
        waited.as_secs_f64(),
        most.as_secs_f64(),
    )
}

/// By the header that most proxies send, or by one of those that gunicorn takes as well.
fn is_secure(headers: &HeaderMap) -> Option<bool> {
    let is = |name, words: [&str; 2]| last(headers, name).map(|word| words.contains(&word));
    is("x-forwarded-proto", ["https", "wss"])
        .or_else(|| is("x-forwarded-ssl", ["on", "on"]))
        .or_else(|| is("x-forwarded-protocol", ["https", "ssl"]))
}

fn last<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim)
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
    use hyper::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn trust(names: &[&str]) -> Trust {
        Trust::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), false)
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let value = HeaderValue::from_static;
        lines.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
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
            trust(trusted).read(Some(ip("10.0.0.1")), &headers, || UNIX_EPOCH).client
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

    fn of_lines(lines: &[String]) -> HeaderMap {
        let line = |text: &String| (HeaderName::from_static("x-forwarded-for"), HeaderValue::try_from(text));
        lines.iter().map(line).map(|(name, value)| (name, value.expect("a value"))).collect()
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
            let client = trust.read(from.map(ip), &of_lines(&lines), || UNIX_EPOCH).client;
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
    fn a_clock_that_is_wrong_spends_half_of_the_time_and_is_told_once() {
        let (trust, warnings, timeout) = (trust(&[]), Warnings::default(), Duration::from_secs(30));
        let left = |seconds| trust.left("shop", timeout, Duration::from_secs(seconds), &warnings).as_secs();
        assert_eq!([0, 10, 15, 16, 3600].map(left), [30, 20, 15, 15, 15]);
        warnings.close();
        assert!(
            warnings
                .next()
                .is_some_and(|words| words.contains("came 16.0 s after") && words.contains("fronts.shop.timeout"))
        );
        assert_eq!(warnings.next(), None);
    }

    #[test]
    fn several_lines_are_one_list() {
        let headers = headers(&[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "1.2.3.4")]);
        assert_eq!(trust(&[]).read(None, &headers, || UNIX_EPOCH).client, Some(ip("1.2.3.4")));
    }

    #[test]
    fn the_scheme_is_that_of_the_nearest_proxy() {
        for (value, expected) in [("https", true), ("http, https", true), ("https, http", false), ("wss", true)] {
            let headers = headers(&[("x-forwarded-proto", value)]);
            assert_eq!(trust(&[]).read(None, &headers, || UNIX_EPOCH).is_secure, Some(expected), "{value}");
        }
        for (name, value, expected) in [
            ("x-forwarded-ssl", "on", true),
            ("x-forwarded-ssl", "off", false),
            ("x-forwarded-protocol", "ssl", true),
            ("x-forwarded-protocol", "http", false),
        ] {
            let alone = headers(&[(name, value)]);
            assert_eq!(trust(&[]).read(None, &alone, || UNIX_EPOCH).is_secure, Some(expected), "{name}: {value}");
            let contradicted = headers(&[(name, value), ("x-forwarded-proto", "http")]);
            assert_eq!(trust(&[]).read(None, &contradicted, || UNIX_EPOCH).is_secure, Some(false), "{name}: {value}");
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
