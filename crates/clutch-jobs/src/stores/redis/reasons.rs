//! Why a server cannot be had, in words for people: what it said, what of the URL is likely wrong, and what to write.

use redis::{ConnectionAddr, ErrorKind, RedisError, ServerErrorKind};

use super::location::{Location, Topology};
use super::tls;

/// Code of the errors of our scripts that have done nothing (guard.lua).
pub(super) const DAMAGED: &str = "DAMAGED";

/// Letters that a URL takes for its own.
const ENCODED: &str = "characters such as @ / : and % in it are written %40 %2F %3A and %25";

/// What of a URL its errors depend on. None of it is a secret.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    has_user: bool,
    db: i64,
    kind: Kind,
    /// Some other host was asked first.
    is_found: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Tls,
    Socket,
}

impl Asked {
    pub fn of(location: &Location) -> Asked {
        let settings = &location.settings;
        Asked {
            has_user: settings.username().is_some(),
            db: settings.db(),
            kind: match &location.addresses[0] {
                ConnectionAddr::Tcp(..) => Kind::Plain,
                ConnectionAddr::TcpTls { .. } => Kind::Tls,
                _ => Kind::Socket,
            },
            is_found: !matches!(location.topology, Topology::Server),
        }
    }

    /// `is_first`: the server has never been had. `root`: the prefix of all keys.
    pub fn reason(&self, error: &RedisError, is_first: bool, root: &str) -> String {
        if let Some(trouble) = tls::trouble(error) {
            return trouble;
        }
        let detail = error.detail().unwrap_or_default();
        match error.kind() {
            ErrorKind::AuthenticationFailed => self.wrong_password(),
            ErrorKind::InvalidClientConfig if !detail.is_empty() => detail.to_owned(),
            ErrorKind::Server(ServerErrorKind::Ask) => {
                "its keys are being moved to another node of the cluster".to_owned()
            }
            ErrorKind::Parse => "what answers is not a Redis server".to_owned(),
            _ if error.code() == Some("NOAUTH") => self.no_password(),
            _ if detail.contains("DB index is out of range") => format!(
                "it has no database {}: a server has the numbers 0 to 15, unless its option `databases` says otherwise; \
                 correct the number in the URL",
                self.db
            ),
            _ if is_about_keys(error) => {
                format!("its user may not use the keys of this store: allow it, as by ACL SETUSER NAME ~{root}*")
            }
            _ if detail.contains("OOM command") || error.code() == Some("OOM") => {
                format!(
                    "its memory is full, so it takes no jobs until others have ended: raise its maxmemory ({error})"
                )
            }
            _ => format!("{}{}", said(error), if is_first { self.hint(error) } else { String::new() }),
        }
    }

    fn no_password(&self) -> String {
        let what = match (self.has_user, self.kind) {
            (_, Kind::Socket) => "the URL has none: add ?pass=PASSWORD",
            (true, _) => {
                "the URL has a user only: write redis://USER:PASSWORD@…, or redis://:PASSWORD@… without a user"
            }
            (false, _) => "the URL has none: write redis://:PASSWORD@…, or redis://USER:PASSWORD@…",
        };
        format!("it wants a password, and {what}; {ENCODED}")
    }

    fn wrong_password(&self) -> String {
        match self.has_user {
            true => format!("it does not accept the user and the password of the URL, or has no such user; {ENCODED}"),
            false => format!(
                "it does not accept the password of the URL, or has none itself, and then the URL must have none; {ENCODED}"
            ),
        }
    }

    /// What is likely wrong where nothing ever answered.
    fn hint(&self, error: &RedisError) -> String {
        let hint = match self.kind {
            Kind::Tls if error.is_timeout() => "if its port is not for TLS, write redis:// in place of rediss://",
            Kind::Plain if error.is_connection_refusal() => "is it started, and are host and port right?",
            // A socket that is not there is one of these.
            Kind::Socket if error.is_connection_refusal() => "is it started, and is the path that of its `unixsocket`?",
            Kind::Plain if error.is_connection_dropped() && !self.is_found => {
                "if its port is for TLS, write rediss:// in place of redis://"
            }
            _ => return String::new(),
        };
        format!("; {hint}")
    }
}

fn said(error: &RedisError) -> String {
    match error.is_timeout() {
        true => "it does not answer in time".to_owned(),
        false => error.to_string(),
    }
}

fn is_about_keys(error: &RedisError) -> bool {
    let text = error.to_string();
    (text.contains("NOPERM") || text.contains("NoPerm") || text.contains("ermissions")) && text.contains("key")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn reason(url: &str, error: RedisError, is_first: bool) -> String {
        Asked::of(&Location::parse(url).unwrap()).reason(&error, is_first, "{clutch}")
    }

    #[test]
    fn what_is_likely_wrong_is_said_of_a_server_that_never_answered() {
        let io = |kind: io::ErrorKind| RedisError::from(io::Error::from(kind));
        let hint = |url: &str, kind: io::ErrorKind| reason(url, io(kind), true);
        assert!(hint("redis://h", io::ErrorKind::ConnectionReset).ends_with("write rediss:// in place of redis://"));
        assert!(hint("rediss://h", io::ErrorKind::TimedOut).ends_with("write redis:// in place of rediss://"));
        assert!(hint("redis://h", io::ErrorKind::ConnectionRefused).ends_with("are host and port right?"));
        assert!(hint("redis+unix:///h", io::ErrorKind::NotFound).ends_with("that of its `unixsocket`?"));
        let later = reason("redis://h", io(io::ErrorKind::ConnectionReset), false);
        assert!(!later.contains("rediss"), "{later}");
    }

    #[test]
    fn passwords_are_never_said() {
        for url in ["redis://s3cret@h", "redis://:s3cret@h", "redis://s3cret:s3cret@h", "redis+unix:///h?pass=s3cret"] {
            let failed = RedisError::from((ErrorKind::AuthenticationFailed, "no"));
            let missing = redis::make_extension_error("NOAUTH".to_owned(), Some("no".to_owned()));
            for error in [failed, missing] {
                let said = reason(url, error, true);
                assert!(said.contains("password") && !said.contains("s3cret"), "{said}");
            }
        }
    }
}
