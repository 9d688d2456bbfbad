//! What proxies say of a request: whose it is, how it came to them, and when. Believed of those alone that are named.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderMap;

/// Longest time that a request is believed to have waited: more is a clock that is wrong.
const WAITED_MAX: Duration = Duration::from_secs(3600);

/// One address, or those that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn read(text: &str) -> Option<Network> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most))?;
        Some(Network { address, bits })
    }

    fn holds(&self, other: IpAddr) -> bool {
        let width_and_numbers = match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (32, u128::from(own.to_bits()), u128::from(other.to_bits())),
            (IpAddr::V6(own), IpAddr::V6(other)) => (128, own.to_bits(), other.to_bits()),
            _ => return false,
        };
        let (width, own, other) = width_and_numbers;
        (own ^ other).checked_shr(width - self.bits).unwrap_or(0) == 0
    }
}

/// Who is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trust {
    all: bool,
    networks: Vec<Network>,
}

/// What is believed of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    pub(super) client: Option<IpAddr>,
    pub(super) is_secure: Option<bool>,
    /// Before it came to us.
    pub(super) waited: Duration,
}

impl Trust {
    /// Addresses, networks and `*`; the configuration has checked them.
    pub(super) fn new(names: &[String]) -> Trust {
        Trust {
            all: names.iter().any(|name| name == "*"),
            networks: names.iter().filter_map(|name| Network::read(name)).collect(),
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        self.all || self.networks.iter().any(|network| network.holds(address.to_canonical()))
    }

    /// `from`: who has connected; none: by a unix socket, which only this machine's own reach.
    pub(super) fn read(&self, from: Option<IpAddr>, headers: &HeaderMap, now: SystemTime) -> Forwarded {
        if !from.is_none_or(|from| self.holds(from)) {
            return Forwarded::default();
        }
        Forwarded {
            client: self.client(headers),
            is_secure: last(headers, "x-forwarded-proto").map(|scheme| matches!(scheme, "https" | "wss")),
            waited: last(headers, "x-request-start").and_then(|start| waited(start, now)).unwrap_or_default(),
        }
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

    use super::*;

    fn trust(names: &[&str]) -> Trust {
        Trust::new(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
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
        assert!(self::trust(&["0.0.0.0/0"]).holds(ip("1.2.3.4")) && self::trust(&["*"]).holds(ip("::9")));
    }

    #[test]
    fn the_client_is_the_last_that_no_proxy_of_ours_is() {
        let client = |trusted: &[&str], chain: &'static str| {
            let headers = headers(&[("x-forwarded-for", chain)]);
            trust(trusted).read(Some(ip("10.0.0.1")), &headers, UNIX_EPOCH).client
        };
        let ours = ["10.0.0.0/8"];
        assert_eq!(client(&ours, "6.6.6.6, 1.2.3.4, 10.0.0.2"), Some(ip("1.2.3.4")), "the first may be forged");
        assert_eq!(client(&ours, "10.0.0.3, 10.0.0.2"), Some(ip("10.0.0.3")));
        assert_eq!(client(&ours, "[2::3]:80"), Some(ip("2::3")));
        assert_eq!(client(&ours, "1.2.3.4:5"), Some(ip("1.2.3.4")));
        assert_eq!(client(&ours, "1.2.3.4, unknown, 10.0.0.2"), Some(ip("10.0.0.2")));
        assert_eq!(client(&ours, "nobody"), None);
        assert_eq!(client(&["*"], "6.6.6.6, 1.2.3.4"), Some(ip("6.6.6.6")));
        assert_eq!(client(&["127.0.0.1"], "1.2.3.4"), None, "who is not named is not believed");
    }

    #[test]
    fn several_lines_are_one_list() {
        let headers = headers(&[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "1.2.3.4")]);
        assert_eq!(trust(&[]).read(None, &headers, UNIX_EPOCH).client, Some(ip("1.2.3.4")));
    }

    #[test]
    fn the_scheme_is_that_of_the_nearest_proxy() {
        for (value, expected) in [("https", true), ("http, https", true), ("https, http", false), ("wss", true)] {
            let headers = headers(&[("x-forwarded-proto", value)]);
            assert_eq!(trust(&[]).read(None, &headers, UNIX_EPOCH).is_secure, Some(expected), "{value}");
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
