//! Address of the queues of a Celery app: a URL, which says beside the server's address what the app's broker options say.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::store::{Result, StoreError};
use crate::stores::redis::Location;

/// Whether the scheme of a URL is one of this format: that of Redis, with `celery` in front.
pub fn is_scheme(scheme: &str) -> bool {
    server_scheme(scheme).is_some()
}

fn server_scheme(scheme: &str) -> Option<String> {
    let rest = scheme.strip_prefix("celery")?;
    let plain = rest == "s" || rest.is_empty() || rest.starts_with('+') || rest.starts_with("s+");
    let scheme = match rest {
        "+unix" => "redis+unix".to_owned(),
        _ => format!("redis{rest}"),
    };
    (plain && crate::stores::redis::is_scheme(&scheme)).then_some(scheme)
}

/// Whether it is a URL of this format.
pub fn check(url: &str) -> Result<()> {
    Location::parse(&Address::parse(url)?.url).map(drop)
}

/// Parts of the URL beside the address.
#[derive(Debug)]
pub(super) struct Address {
    /// Before every key: `global_keyprefix`.
    pub prefix: String,
    /// Between a queue and a priority: `sep`.
    pub separator: String,
    /// The steps of priorities, the first before the others: `priority_steps`.
    pub steps: Vec<u8>,
    /// After how long peers take a message for abandoned: `visibility_timeout`.
    pub visibility: Duration,
    /// Of times without an offset: the app's `timezone`.
    pub timezone: TimeZone,
    /// By which the node that runs the tasks and its workers know each other.
    pub node: String,
    /// URL of the server.
    pub url: String,
}

/// Defaults of kombu.
const STEPS: [u8; 4] = [0, 3, 6, 9];
const SEPARATOR: &str = "\u{6}\u{16}";
const VISIBILITY: Duration = Duration::from_secs(3600);

impl Address {
    pub fn parse(url: &str) -> Result<Address> {
        let refused = |why: &str| {
            Err(StoreError::Refused(format!(
                "the URL of the store: {why}; allowed: celery://[:password@]host[:port][/db][?prefix=TEXT]\
                 [&steps=0,3,6,9][&separator=TEXT][&visibility_timeout=SECONDS][&timezone=NAME][&node=NAME]"
            )))
        };
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let Some(scheme) = server_scheme(scheme) else { return refused("not one of Celery's") };
        let (server, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = Address {
            prefix: String::new(),
            separator: SEPARATOR.to_owned(),
            steps: STEPS.to_vec(),
            visibility: VISIBILITY,
            timezone: TimeZone::UTC,
            node: String::new(),
            url: String::new(),
        };
        let mut others = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let text = || decoded(value);
            match name {
                "prefix" => match text() {
                    Some(text) => address.prefix = text,
                    None => return refused("its prefix is not text"),
                },
                "node" => match text() {
                    Some(text) => address.node = text,
                    None => return refused("its node is not text"),
                },
                "separator" => match text() {
                    Some(text) if !text.is_empty() => address.separator = text,
                    _ => return refused("its separator is not text"),
                },
                "steps" => match value.split(',').map(str::parse).collect::<std::result::Result<Vec<u8>, _>>() {
                    Ok(steps) if !steps.is_empty() && steps.is_sorted() => address.steps = steps,
                    _ => return refused("steps are ascending numbers from 0 to 255, such as 0,3,6,9"),
                },
                "visibility_timeout" => {
                    match value.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok()) {
                        Some(time) if !time.is_zero() => address.visibility = time,
                        _ => return refused("its visibility_timeout is a number of seconds above 0"),
                    }
                }
                "timezone" => match text().map(|name| TimeZone::get(&name)) {
                    Some(Ok(zone)) => address.timezone = zone,
                    _ => return refused("its timezone is not the name of one, such as Europe/Berlin"),
                },
                _ => others.push(option),
            }
        }
        address.url = format!("{scheme}://{server}?{}", others.join("&"));
        Ok(address)
    }

    /// The list of a queue and the step of its priorities at this place.
    pub fn key(&self, queue: &str, step: u8) -> String {
        match step {
            0 => format!("{}{queue}", self.prefix),
            _ => format!("{}{queue}{}{step}", self.prefix, self.separator),
        }
    }

    /// The step of a priority, which kombu takes for one from 0 to 9.
    pub fn step(&self, priority: i64) -> u8 {
        let priority = priority.clamp(0, 9);
        let at = self.steps.partition_point(|step| i64::from(*step) <= priority);
        self.steps[at.saturating_sub(1)]
    }
}

/// Text in which bytes may be written `%41`.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = value.bytes();
    let mut found = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            found.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        found.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(found).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_says_what_the_options_of_the_broker_say() {
        let plain = Address::parse("celery://:s3cret@host:7000/3").unwrap();
        assert_eq!(plain.url, "redis://:s3cret@host:7000/3?");
        assert_eq!(plain.key("q", 0), "q");
        assert_eq!(plain.key("q", 6), "q\u{6}\u{16}6");
        let own = Address::parse("celery://h?prefix=a%3A&steps=0,5&separator=:&visibility_timeout=2.5").unwrap();
        assert_eq!((own.key("q", 5).as_str(), own.visibility), ("a:q:5", Duration::from_millis(2500)));
        for url in ["celery://:s3cret@h?steps=9,0", "celery://:s3cret@h?timezone=Nowhere", "celeryx://:s3cret@h"] {
            assert!(!Address::parse(url).unwrap_err().to_string().contains("s3cret"), "{url}");
        }
    }

    #[test]
    fn priorities_are_rounded_down_to_their_steps() {
        let plain = Address::parse("celery://h").unwrap();
        let steps: Vec<u8> = [-1, 0, 2, 3, 5, 6, 9, 12, 255].into_iter().map(|priority| plain.step(priority)).collect();
        assert_eq!(steps, [0, 0, 0, 3, 3, 6, 9, 9, 9]);
    }
}
