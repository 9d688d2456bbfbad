//! Sessions of browsers: a page signs in once with a token, and a cookie stands for it from then on.
//!
//! A page cannot put a header on all of its requests (an `EventSource` has none), and should keep no token. The cookie holds
//! a random id, never the token; scripts cannot read it, and it goes to this site alone. A session ends after its time,
//! when its client signs out, and when its token is none any more.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use hyper::header::{COOKIE, HeaderMap, HeaderValue};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::net::tokens::{Tokens, is_same};

/// Lifetime of a session.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(12 * 3600);

/// Maximum number of sessions; beyond them the oldest ends.
const SESSIONS_MAX: usize = 64;

/// Maximum number of sign-ins with a wrong token within a minute; beyond them a wrong one is told to wait. A right one
/// always signs in, or anybody could lock operators out. So this stops no guessing, nor is there a limit on tokens in
/// headers: tokens must be long.
const FAILURES_MAX: usize = 10;
pub(crate) const FAILURES_WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of cookies of our name that are looked at. Another port of the host may set some for each path.
const COOKIES_MAX: usize = 64;

/// Bytes of an id: what nobody guesses.
const ID_BYTES: usize = 32;

/// An id as it is in the cookie: hexadecimal.
type SessionId = String;

/// Sessions of the clients of one address.
pub(crate) struct Sessions {
    /// The name of the cookie. Browsers send cookies to all ports of a host, so it has the port.
    cookie: String,
    /// Set where the cookie travels by TLS alone.
    is_secure: bool,
    table: Mutex<SessionTable>,
}

/// Reason for which nobody is signed in.
#[derive(Debug)]
pub(crate) enum NotSignedIn {
    WrongToken,
    TooManyFailures,
    NoRandomness(io::Error),
}

impl Sessions {
    pub(crate) fn new(port: u16, is_secure: bool) -> Sessions {
        Sessions { cookie: format!("clutch-session-{port}"), is_secure, table: Mutex::default() }
    }

    /// Begins a session. Returns what sets its cookie.
    pub(crate) fn sign_in(&self, tokens: &Tokens, token: &[u8]) -> Result<HeaderValue, NotSignedIn> {
        let now = Instant::now();
        if !tokens.allow(token) {
            return Err(self.table.lock().failed(now));
        }
        let id = new_id().map_err(NotSignedIn::NoRandomness)?;
        let cookie = self.set_cookie(&id, SESSION_LIFE);
        self.table.lock().add(OpenSession { id, token: token.to_vec(), ends_at: now + SESSION_LIFE }, now);
        Ok(cookie)
    }

    /// Ends the session of a request, if it has one. Returns what removes its cookie.
    pub(crate) fn sign_out(&self, headers: &HeaderMap) -> HeaderValue {
        let mut table = self.table.lock();
        for id in self.ids_in(headers) {
            table.sessions.retain(|session| !is_same(id, session.id.as_bytes()));
        }
        self.set_cookie("", Duration::ZERO)
    }

    /// Returns whether a request brings the cookie of a session whose token still holds.
    pub(crate) fn allow(&self, tokens: &Tokens, headers: &HeaderMap) -> bool {
        let (now, table) = (Instant::now(), self.table.lock());
        self.ids_in(headers).any(|id| table.token_of(id, now).is_some_and(|token| tokens.allow(token)))
    }

    /// Returns the ids of a request: another port of the host can set a cookie of the same name, which comes first.
    fn ids_in<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a [u8]> {
        let given = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
        let named = given.filter_map(|pair| pair.trim_ascii().strip_prefix(self.cookie.as_bytes()));
        named.filter_map(|rest| rest.strip_prefix(b"=")).take(COOKIES_MAX)
    }

    fn set_cookie(&self, id: &str, life: Duration) -> HeaderValue {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let (name, age) = (&self.cookie, life.as_secs());
        let text = format!("{name}={id}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
        // All of it is visible ASCII.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

fn new_id() -> io::Result<SessionId> {
    let mut bytes = [0; ID_BYTES];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled < ID_BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

struct OpenSession {
    id: SessionId,
    /// The token that it was begun with.
    token: Vec<u8>,
    ends_at: Instant,
}

/// Open sessions, the oldest first, and sign-ins that failed.
#[derive(Default)]
struct SessionTable {
    sessions: VecDeque<OpenSession>,
    failures: VecDeque<Instant>,
}

impl SessionTable {
    /// Counts a sign-in with a wrong token.
    fn failed(&mut self, now: Instant) -> NotSignedIn {
        while self.failures.front().is_some_and(|at| now >= *at + FAILURES_WITHIN) {
            self.failures.pop_front();
        }
        if self.failures.len() == FAILURES_MAX {
            return NotSignedIn::TooManyFailures;
        }
        self.failures.push_back(now);
        NotSignedIn::WrongToken
    }

    fn add(&mut self, session: OpenSession, now: Instant) {
        self.sessions.retain(|session| now < session.ends_at);
        if self.sessions.len() == SESSIONS_MAX {
            self.sessions.pop_front();
        }
        self.sessions.push_back(session);
    }

    /// Compares with each, in a time that depends on lengths only.
    fn token_of(&self, id: &[u8], now: Instant) -> Option<&[u8]> {
        let open = self.sessions.iter().filter(|session| now < session.ends_at);
        open.fold(
            None,
            |found, session| if is_same(id, session.id.as_bytes()) { Some(&session.token[..]) } else { found },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(nr: usize, ends_at: Instant) -> OpenSession {
        OpenSession { id: format!("{nr:064x}"), token: b"secret".to_vec(), ends_at }
    }

    #[test]
    fn sessions_end_in_time_and_the_oldest_makes_room() {
        let (now, mut table) = (Instant::now(), SessionTable::default());
        let ends_at = now + SESSION_LIFE;
        (0..SESSIONS_MAX).for_each(|nr| table.add(session(nr, ends_at), now));
        let is_open =
            |table: &SessionTable, nr: usize, at| table.token_of(format!("{nr:064x}").as_bytes(), at).is_some();
        assert!(is_open(&table, 0, now));
        table.add(session(SESSIONS_MAX, ends_at), now);
        assert!(!is_open(&table, 0, now) && is_open(&table, 1, now) && is_open(&table, SESSIONS_MAX, now));
        assert!(!is_open(&table, 1, ends_at));
        table.add(session(0, ends_at + SESSION_LIFE), ends_at);
        assert_eq!(table.sessions.len(), 1, "those that have ended are forgotten");
        assert_eq!(table.token_of(b"", now), None);
    }

    #[test]
    fn sign_ins_that_fail_are_bounded_in_a_minute() {
        let (now, mut table) = (Instant::now(), SessionTable::default());
        let mut may_fail = |at| matches!(table.failed(at), NotSignedIn::WrongToken);
        for nr in 0..FAILURES_MAX as u32 {
            assert!(may_fail(now + Duration::from_secs(1) * nr));
        }
        assert!(!may_fail(now + FAILURES_WITHIN - Duration::from_millis(1)));
        assert!(may_fail(now + FAILURES_WITHIN), "the first one is a minute ago");
        assert!(!may_fail(now + FAILURES_WITHIN));
    }

    #[test]
    fn the_cookie_is_kept_from_scripts_and_other_sites() {
        let cookie = Sessions::new(9000, false).set_cookie("ab", SESSION_LIFE);
        assert_eq!(cookie, "clutch-session-9000=ab; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        let cookie = Sessions::new(9000, true).set_cookie("", Duration::ZERO);
        assert_eq!(cookie, "clutch-session-9000=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure");
    }

    #[test]
    fn cookies_are_found_among_others() {
        let sessions = Sessions::new(9000, false);
        let ids_in = |text: &str| {
            let value = HeaderValue::from_str(text).expect("a value");
            let headers: HeaderMap = [(COOKIE, value)].into_iter().collect();
            sessions.ids_in(&headers).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(ids_in("a=b; clutch-session-9000=0f; c=d"), [b"0f"]);
        let junk = |count: usize| "clutch-session-9000=; ".repeat(count) + "clutch-session-9000=0f";
        assert_eq!(ids_in(&junk(1)), [&b""[..], b"0f"]);
        assert_eq!(ids_in(&junk(COOKIES_MAX)).len(), COOKIES_MAX);
        for other in
            ["clutch-session-90001=0f", "clutch-session-900=0f", "clutch-session-9000", "x-clutch-session-9000=1"]
        {
            assert!(ids_in(other).is_empty(), "{other}");
        }
    }
}
