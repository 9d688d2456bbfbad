//! End of a connection, and what is logged of it besides its requests.

use std::error::Error;
use std::time::Instant;

use crate::account::figures::End;

/// State of a connection when it ended.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) ended: Ended,
    pub(crate) came: Instant,
    /// Since when bytes came that were no request, where none ran.
    pub(crate) head_since: Option<Instant>,
    /// No request had come.
    pub(crate) is_first: bool,
    /// The first line of what was no HTTP, as far as it is kept.
    pub(crate) line: Option<Box<str>>,
}

impl Closed {
    /// Returns what to log besides the requests.
    pub(crate) fn unheard(&self) -> Option<Unheard> {
        let Closed { ended, came, head_since, is_first, .. } = *self;
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
}

/// Something was sent that never became a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unheard {
    pub(crate) since: Instant,
    /// None: the client was told nothing.
    pub(crate) status: Option<u16>,
    pub(crate) end: End,
}

/// Cause of the end of an HTTP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client closed it, or either side had said that it would end.
    Itself,
    /// A limit of its client was reached.
    Cut,
    /// The bytes were not HTTP, and the client was told so with this status.
    Malformed(u16),
    /// The bytes were not HTTP/2: the client was told by GOAWAY.
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
}

/// Returns the status with which hyper answers by itself.
fn status_of(error: &hyper::Error) -> u16 {
    match error.is_parse_too_large() {
        // It tells the two apart by words alone.
        true if error.to_string() == "URI too long" => 414,
        true => 431,
        false => 400,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_for_what_was_sent_and_became_no_request() {
        let came = Instant::now();
        let line = |ended: Ended, head_since, is_first| {
            let closed = Closed { ended, came, head_since, is_first, line: None };
            closed.unheard().map(|unheard| (unheard.status, unheard.end))
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
