//! What comes before HTTP on a connection: the head of the PROXY protocol, the handshake of TLS; and what the access log
//! tells of a connection on which no request came of what was sent.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio_util::io::InspectReader;

use super::access::End;
use crate::front::listen::{Io, Stream};

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
    pub(super) fn of(stream: Stream, is_watched: bool) -> (Arrival, Box<dyn Io>) {
        let Stream { io, client, server } = stream;
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

/// What ended a connection of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client closed it, or either side had said that it would end.
    Itself,
    /// A limit of its client was reached.
    Cut,
    /// What came was no HTTP, and the client was told so.
    Malformed(u16),
    /// What came was no HTTP/2: the client was told by GOAWAY.
    Violated,
    /// The connection was lost; `in_message`: in the middle of one.
    Lost { in_message: bool },
}

impl Ended {
    /// As hyper tells it.
    pub(super) fn of(result: Result<(), Box<dyn Error + Send + Sync>>) -> Ended {
        let Err(error) = result else { return Ended::Itself };
        let Some(error) = error.downcast_ref::<hyper::Error>() else { return Ended::Lost { in_message: false } };
        if error.is_parse() {
            return Ended::Malformed(status_of(error));
        }
        match error.source().and_then(|source| source.downcast_ref::<h2::Error>()) {
            Some(error) if error.is_go_away() && error.is_library() => Ended::Violated,
            _ => Ended::Lost { in_message: error.is_incomplete_message() },
        }
    }

    /// `head_since`: bytes came while no request ran. They need not be those of a head: what is left of the body of the
    /// request before, which nobody wanted, looks the same; so `is_first` counts, or that hyper knows better.
    pub(super) fn unheard(self, came: Instant, head_since: Option<Instant>, is_first: bool) -> Option<Unheard> {
        let gone = |is_head: bool| {
            let since = head_since.filter(|_| is_head || is_first)?;
            Some(Unheard { since, status: None, end: End::ClientGone })
        };
        let refused = |status| Some(Unheard { since: head_since.unwrap_or(came), status, end: End::Refused });
        match self {
            Ended::Malformed(status) => refused(Some(status)),
            Ended::Violated => refused(None),
            Ended::Cut => gone(true),
            Ended::Lost { in_message } => gone(in_message),
            Ended::Itself => gone(false),
        }
    }
}

/// What hyper answers by itself.
fn status_of(error: &hyper::Error) -> u16 {
    match error.is_parse_too_large() {
        // It tells the two apart by words alone.
        true if error.to_string() == "URI too long" => 414,
        true => 431,
        false => 400,
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
            ended.unheard(came, head_since, is_first).map(|unheard| (unheard.status, unheard.end))
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
