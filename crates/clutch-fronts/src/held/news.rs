//! What the life of a connection hears of it while a worker holds it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use hyper::StatusCode;

use super::ledger::{BEGINNING_BYTES, State};
use crate::account::Fate;
use crate::account::figures::End;

/// What has become of a connection that a worker held.
#[derive(Debug)]
pub(crate) enum News {
    /// The worker has handed it back with what it has read and not answered. `leaves`: as it does with all others.
    Back { bytes: Vec<u8>, leaves: bool },
    /// It has ended.
    Gone,
    /// It was taken back after so long in this state, `Sent` or `Idle`.
    Taken(State, Duration),
    /// The same where a request has waited for so long, and no other worker would read it earlier.
    Unread(State, Duration),
    /// Its worker has died, and had begun with a request.
    Lost(Lost),
    /// It was taken back in the middle of a request that has ended without a response.
    Unanswered(Box<Unanswered>),
}

/// See [`News::Lost`].
#[derive(Debug)]
pub(crate) struct Lost {
    /// The worker had begun with the response, too.
    pub(crate) is_answering: bool,
    /// Of that response, where it is known.
    pub(crate) status: Option<u16>,
    /// Time that it had run.
    pub(crate) after: Duration,
    /// None: it was not whole.
    pub(crate) asked: Option<Asked>,
    /// How it had ended before; none: with its worker.
    pub(crate) cut: Option<End>,
}

/// See [`News::Unanswered`].
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) asked: Asked,
    /// Time that it had run.
    pub(crate) after: Duration,
    pub(crate) verdict: Verdict,
}

/// What the client of a request is told that has ended without a response.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) status: StatusCode,
    /// None: its code has failed, of which its worker has told.
    pub(crate) fate: Option<Fate>,
}

/// The request that it was, as far as the front knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) beginning: [u8; BEGINNING_BYTES],
    /// It came with its connection: the front has all of it.
    pub(crate) is_first: bool,
}

impl Asked {
    /// As much of its bytes as is known. `passed`: what came with its connection.
    pub(crate) fn with(&self, passed: &[u8]) -> Vec<u8> {
        if self.is_first { passed.to_vec() } else { self.beginning.to_vec() }
    }
}

/// A connection that comes back, with its news.
pub(crate) type Returned = (News, OwnedFd);
