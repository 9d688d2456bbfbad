//! Address of jobs of Sidekiq: a URL, which says beside the server's address who writes there.

use super::payload::Times;
use crate::store::{Result, StoreError};
use crate::stores::redis::Location;

/// Schemes, and the same for the client of Redis.
const SCHEMES: [(&str, &str); 3] = [("sidekiq", "redis"), ("sidekiqs", "rediss"), ("sidekiq+unix", "redis+unix")];

/// Whether the scheme of a URL is one of this format.
pub fn is_scheme(scheme: &str) -> bool {
    SCHEMES.iter().any(|(known, _)| *known == scheme)
}

/// Whether it is a URL of this format.
pub fn check(url: &str) -> Result<()> {
    Location::parse(&Address::parse(url)?.url).map(drop)
}

/// Parts of the URL beside the address.
pub(super) struct Address {
    /// With its colon, or empty.
    pub namespace: String,
    pub times: Times,
    /// After a process's name: where Sidekiq of this version looks for what it runs.
    pub work: &'static str,
    /// URL of the server.
    pub url: String,
}

impl Address {
    pub fn parse(url: &str) -> Result<Address> {
        let refused = |why: &str| {
            Err(StoreError::Refused(format!(
                "the URL of the store: {why}; allowed: sidekiq://[:password@]host[:port][/db][?namespace=NAME][&version=8]"
            )))
        };
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let Some((_, scheme)) = SCHEMES.iter().find(|(known, _)| *known == scheme) else {
            return refused("not one of Sidekiq's");
        };
        let (server, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut work = ":work";
        let (mut namespace, mut times, mut others) = (String::new(), Times::Seconds, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("namespace", "") => namespace.clear(),
                ("namespace", name) => namespace = format!("{name}:"),
                ("version", version) => match version.parse::<u32>() {
                    Ok(version) => {
                        times = if version >= 8 { Times::Milliseconds } else { Times::Seconds };
                        work = if version >= 7 { ":work" } else { ":workers" };
                    }
                    Err(_) => return refused("version is a number, such as 7 or 8"),
                },
                ("prefix", _) => return refused("its prefix is called namespace"),
                _ => others.push(option),
            }
        }
        Ok(Address { namespace, times, work, url: format!("{scheme}://{server}?{}", others.join("&")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_says_what_writes_there() {
        let told = Address::parse("sidekiq://:s3cret@host:7000/3?namespace=app&version=8").unwrap();
        assert_eq!((told.namespace.as_str(), told.times), ("app:", Times::Milliseconds));
        assert_eq!(told.url, "redis://:s3cret@host:7000/3?");
        let plain = Address::parse("sidekiq://host").unwrap();
        assert_eq!((plain.times, plain.work), (Times::Seconds, ":work"));
        assert_eq!(Address::parse("sidekiq://host?version=6").unwrap().work, ":workers");
        for url in ["sidekiq://:s3cret@host?version=new", "sidekiq://:s3cret@host?prefix=a"] {
            assert!(!Address::parse(url).err().unwrap().to_string().contains("s3cret"));
        }
    }
}
