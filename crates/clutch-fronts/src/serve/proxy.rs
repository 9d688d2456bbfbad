//! The head of the PROXY protocol, versions 1 and 2: who a proxy before us speaks for.
//!
//! Read before anything else of a connection, to its last byte and not beyond. What the bytes mean is pure.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Longest line of version 1.
const LINE_BYTES_MAX: usize = 107;

/// Longest rest of version 2 that is read: addresses, and what proxies add.
const REST_BYTES_MAX: usize = 4096;

/// Client and server. None: the proxy speaks for itself, or does not know.
pub(super) type Parties = Option<(SocketAddr, SocketAddr)>;

/// Fails with InvalidData on anything else.
pub(super) async fn read<R: AsyncRead + Unpin>(io: &mut R) -> io::Result<Parties> {
    let mut start = [0; SIGNATURE.len()];
    io.read_exact(&mut start).await?;
    if start == *SIGNATURE { read_binary(io).await } else { read_line(io, &start).await }
}

async fn read_line<R: AsyncRead + Unpin>(io: &mut R, start: &[u8]) -> io::Result<Parties> {
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE_BYTES_MAX || !line.starts_with(b"PROXY ") {
            return Err(wrong());
        }
        line.push(io.read_u8().await?);
    }
    let line = std::str::from_utf8(&line[..line.len() - 2]).map_err(|_| wrong())?;
    of_line(line).ok_or_else(wrong)
}

async fn read_binary<R: AsyncRead + Unpin>(io: &mut R) -> io::Result<Parties> {
    let mut head = [0; 4];
    io.read_exact(&mut head).await?;
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if length > REST_BYTES_MAX {
        return Err(wrong());
    }
    let mut rest = vec![0; length];
    io.read_exact(&mut rest).await?;
    of_binary(head[0], head[1], &rest).ok_or_else(wrong)
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no PROXY protocol header")
}

/// None: it is none.
fn of_line(line: &str) -> Option<Parties> {
    let mut words = line.split(' ');
    if words.next() != Some("PROXY") {
        return None;
    }
    let kind = words.next()?;
    if kind == "UNKNOWN" {
        return Some(None);
    }
    let (from, to): (IpAddr, IpAddr) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (from_port, to_port): (u16, u16) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let fits = match kind {
        "TCP4" => from.is_ipv4() && to.is_ipv4(),
        "TCP6" => from.is_ipv6() && to.is_ipv6(),
        _ => false,
    };
    let is_all = fits && words.next().is_none();
    is_all.then(|| Some((SocketAddr::new(from, from_port), SocketAddr::new(to, to_port))))
}

fn of_binary(version_and_command: u8, family: u8, rest: &[u8]) -> Option<Parties> {
    match version_and_command {
        0x20 => return Some(None),
        0x21 => {}
        _ => return None,
    }
    match family {
        0x11 => parties::<4>(rest, |bytes| IpAddr::V4(Ipv4Addr::from(bytes))),
        0x21 => parties::<16>(rest, |bytes| IpAddr::V6(Ipv6Addr::from(bytes))),
        // Unspecified, datagrams, unix sockets: no address that an app could use.
        _ => Some(None),
    }
}

fn parties<const N: usize>(rest: &[u8], address: impl Fn([u8; N]) -> IpAddr) -> Option<Parties> {
    let (from, rest) = rest.split_first_chunk::<N>()?;
    let (to, rest) = rest.split_first_chunk::<N>()?;
    let (from_port, rest) = rest.split_first_chunk::<2>()?;
    let (to_port, _) = rest.split_first_chunk::<2>()?;
    let with_port = |bytes: &[u8; N], port: &[u8; 2]| SocketAddr::new(address(*bytes), u16::from_be_bytes(*port));
    Some(Some((with_port(from, from_port), with_port(to, to_port))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(from: &str, to: &str) -> Option<Parties> {
        Some(Some((from.parse().expect("an address"), to.parse().expect("an address"))))
    }

    #[test]
    fn lines_are_read() {
        assert_eq!(of_line("PROXY TCP4 1.2.3.4 5.6.7.8 9 10"), of("1.2.3.4:9", "5.6.7.8:10"));
        assert_eq!(of_line("PROXY TCP6 ::1 2::3 9 10"), of("[::1]:9", "[2::3]:10"));
        assert_eq!(of_line("PROXY UNKNOWN whatever"), Some(None));
        for wrong in [
            "",
            "PROXY",
            "PROXY TCP4 1.2.3.4",
            "PROXY TCP4 ::1 ::2 9 10",
            "PROXY TCP4 1.2.3.4 5.6.7.8 9 99999",
            "PROXY TCP4 1.2.3.4 5.6.7.8 9 10 11",
            "PROXY  TCP4 1.2.3.4 5.6.7.8 9 10",
            "GET / HTTP/1.1",
        ] {
            assert_eq!(of_line(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn binary_heads_are_read() {
        let four = [1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 0, 10, 99];
        assert_eq!(of_binary(0x21, 0x11, &four), of("1.2.3.4:9", "5.6.7.8:10"), "what is added is passed over");
        assert_eq!(of_binary(0x21, 0x11, &four[..11]), None);
        assert_eq!(of_binary(0x20, 0x00, &[]), Some(None), "a health check of the proxy itself");
        assert_eq!(of_binary(0x21, 0x31, &[0; 216]), Some(None));
        assert_eq!(of_binary(0x31, 0x11, &four), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(line in ".{0,120}", head: (u8, u8), rest in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (of_line(&line), of_binary(head.0, head.1, &rest));
        }
    }
}
