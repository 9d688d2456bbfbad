//! Where a store on Redis is: its URL.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use crate::store::{Result, StoreError};

/// Of the keys, unless the URL says another.
const PREFIX: &str = "clutch";

/// Schemes, and what the client library calls the same.
const SCHEMES: [(&str, &str); 7] = [
    ("redis", "redis"),
    ("rediss", "rediss"),
    ("redis+unix", "redis+unix"),
    ("unix", "redis+unix"),
    ("valkey", "redis"),
    ("valkeys", "rediss"),
    ("valkey+unix", "redis+unix"),
];

/// `redis://[[user]:password@]host[:port][/db]`, `rediss://` with TLS, `redis+unix:///path[?db=…&user=…&pass=…]`; the same
/// with `valkey`. Each takes `?prefix=NAME`.
#[derive(Clone, Debug)]
pub struct Location {
    pub info: ConnectionInfo,
    pub prefix: String,
}

/// Whether the scheme of a URL is one of Redis.
pub fn is_scheme(scheme: &str) -> bool {
    SCHEMES.iter().any(|(known, _)| *known == scheme)
}

impl Location {
    pub fn parse(url: &str) -> Result<Location> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let known = SCHEMES.iter().find(|(known, _)| *known == scheme);
        let (_, scheme) = known.ok_or_else(|| refused("not the URL of a Redis or Valkey server"))?;
        let (address, fragment) = match rest.split_once('#') {
            Some((address, fragment)) => (address, format!("#{fragment}")),
            None => (rest, String::new()),
        };
        let (address, query) = address.split_once('?').unwrap_or((address, ""));
        let (mut prefix, mut others) = (PREFIX.to_owned(), Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("prefix", name) => prefix = checked(name)?,
                ("db" | "user" | "pass", _) if *scheme == "redis+unix" => others.push(option),
                (name, _) => return Err(refused(&format!("its query has '{name}', which means nothing here"))),
            }
        }
        let url = format!("{scheme}://{address}?{}{fragment}", others.join("&"));
        let info = url.as_str().into_connection_info().map_err(|error| refused(&error.to_string()))?;
        let settings = info.redis_settings().clone().set_lib_name("clutch", env!("CARGO_PKG_VERSION"));
        Ok(Location { info: info.set_redis_settings(settings), prefix })
    }

    /// As people name it: a URL without user and password.
    pub fn name(&self) -> String {
        let settings: &RedisConnectionInfo = self.info.redis_settings();
        let address = match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => format!("redis://{}:{port}/{}?", bracketed(host), settings.db()),
            ConnectionAddr::TcpTls { host, port, .. } => {
                format!("rediss://{}:{port}/{}?", bracketed(host), settings.db())
            }
            ConnectionAddr::Unix(path) if settings.db() != 0 => {
                format!("redis+unix://{}?db={}&", path.display(), settings.db())
            }
            other => format!("redis+unix://{other}?"),
        };
        match self.prefix.as_str() {
            PREFIX => address.trim_end_matches(['?', '&']).to_owned(),
            prefix => format!("{address}prefix={prefix}"),
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// A prefix is part of the hash tag of all keys.
fn checked(prefix: &str) -> Result<String> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-.:".contains(letter);
    match !prefix.is_empty() && prefix.chars().all(is_allowed) {
        true => Ok(prefix.to_owned()),
        false => Err(refused("a prefix is made of letters, digits and _-.: only")),
    }
}

/// Without the URL, which may hold a password.
fn refused(why: &str) -> StoreError {
    StoreError::Refused(format!(
        "the URL of the store: {why}; allowed: redis://[:password@]host[:port][/db], rediss://…, redis+unix:///path, \
         each with ?prefix=NAME"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(url: &str) -> String {
        Location::parse(url).unwrap().name()
    }

    #[test]
    fn names_have_no_secrets() {
        assert_eq!(name("redis://:s3cret@db.example:7000/3?prefix=mail"), "redis://db.example:7000/3?prefix=mail");
        assert_eq!(name("valkeys://me:s3cret@[::1]"), "rediss://[::1]:6379/0");
        assert_eq!(name("redis+unix:///run/redis.sock?pass=s3cret"), "redis+unix:///run/redis.sock");
        assert_eq!(name("unix:///run/redis.sock?db=2&prefix=a"), "redis+unix:///run/redis.sock?db=2&prefix=a");
    }

    #[test]
    fn what_is_in_a_url_is_used() {
        let location = Location::parse("redis://me:s%40cret@host/4?prefix=a:b").unwrap();
        let settings = location.info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("s@cret"), 4));
        assert_eq!(location.prefix, "a:b");
    }

    #[test]
    fn a_refusal_has_no_secrets() {
        for url in [
            "redsi://:s3cret@host",
            "redis://:s3cret@host/x",
            "redis://:s3cret@host?prefix=",
            "redis://:s3cret@h?pass=s3cret",
        ] {
            let error = Location::parse(url).unwrap_err();
            assert!(matches!(error, StoreError::Refused(_)) && !error.to_string().contains("s3cret"), "{error}");
        }
    }
}
