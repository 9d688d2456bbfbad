//! What comes before HTTP on a connection: the head of the PROXY protocol, the handshake of TLS; and what the access log
//! tells of a connection on which no request came of what was sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio_util::io::InspectReader;

use crate::front::connection::{Closed, Ended};
use crate::front::figures::End;
use crate::front::listen::Io;

/// A connection that has not come to HTTP yet.
pub(super) struct Arrival {
    pub(super) client: Option<SocketAddr>,
    pub(super) server: Option<SocketAddr>,
    pub(super) at: Instant,
    /// Its client has sent something: one that only looks whether somebody listens is not worth a line.
    has_sent: Arc<AtomicBool>,
}

impl Arrival {
    /// `is_watched`: something comes before HTTP.
    pub(super) fn of(
        io: Box<dyn Io>,
        client: Option<SocketAddr>,
        server: Option<SocketAddr>,
        is_watched: bool,
    ) -> (Arrival, Box<dyn Io>) {
        let has_sent = Arc::default();
        let io = if is_watched { noticed(io, Arc::clone(&has_sent)) } else { io };
        (Arrival { client, server, at: Instant::now(), has_sent }, io)
    }

    /// How a connection ended that never came to HTTP. None: nobody said anything. `error`: it was not the time that ended.
    pub(super) fn failed(&self, error: Option<&io::Error>) -> Option<Unheard> {
        let is_wrong = error.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData);
        let end = if is_wrong { End::Refused } else { End::ClientGone };
        self.has_sent.load(Ordering::Relaxed).then_some(Unheard { since: self.at, status: None, end })
    }
}

/// Something was sent that never became a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unheard {
    pub(super) since: Instant,
    /// None: the client was told nothing.
    pub(super) status: Option<u16>,
    pub(super) end: End,
}

/// What is told of a connection of HTTP that has ended, beside its requests.
pub(super) fn unheard(closed: &Closed) -> Option<Unheard> {
    let Closed { ended, came, head_since, is_first } = *closed;
    // Bytes that came while no request ran need not be those of a head: what is left of the body of the request before,
    // which nobody wanted, looks the same; so it counts that no request had come, or that hyper knows better.
    let gone = |is_head: bool| {
        let since = head_since.filter(|_| is_head || is_first)?;
        Some(Unheard { since, status: None, end: End::ClientGone })
    };
    let refused = |status| Some(Unheard { since: head_since.unwrap_or(came), status, end: End::Refused });
    match ended {
        Ended::Malformed(status) => refused(Some(status)),
        Ended::Violated => refused(None),
        Ended::Cut => gone(true),
        Ended::Lost { in_message } => gone(in_message),
        Ended::Itself => gone(false),
    }
}

/// A connection that notes whether anything comes.
fn noticed(io: Box<dyn Io>, has_sent: Arc<AtomicBool>) -> Box<dyn Io> {
    Box::new(InspectReader::new(io, move |bytes: &[u8]| {
        if !bytes.is_empty() {
            has_sent.store(true, Ordering::Relaxed);
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_for_what_was_sent_and_became_no_request() {
        let came = Instant::now();
        let line = |ended: Ended, head_since, is_first| {
            let closed = Closed { ended, came, head_since, is_first };
            unheard(&closed).map(|unheard| (unheard.status, unheard.end))
        };
        let (gone, head) = (Some((None, End::ClientGone)), Some(came));
        for is_first in [true, false] {
            assert_eq!(line(Ended::Itself, None, is_first), None, "an idle connection is closed");
            assert_eq!(line(Ended::Cut, None, is_first), None, "it did not read its response: that has its own line");
            assert_eq!(line(Ended::Cut, head, is_first), gone);
            assert_eq!(line(Ended::Lost { in_message: true }, head, is_first), gone);
            assert_eq!(line(Ended::Malformed(400), head, is_first), Some((Some(400), End::Refused)));
            assert_eq!(line(Ended::Violated, None, is_first), Some((None, End::Refused)));
        }
        assert_eq!(line(Ended::Itself, head, true), gone);
        assert_eq!(line(Ended::Itself, head, false), None, "the rest of a body that its app did not read");
        assert_eq!(line(Ended::Lost { in_message: false }, head, false), None);
    }
}
