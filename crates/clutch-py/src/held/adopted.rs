//! Requests that a front has made known to its pool: the worker ends them on its link, too.

use std::time::{Duration, Instant};

use clutch_fronts::held::Ledger;
use clutch_fronts::held::ledger::{Adoption, Ended, Turn};
use clutch_wire::Payload;
use pyo3::prelude::*;

use crate::link::WorkerLink;

/// What has become of a request whose response is over.
pub(super) struct Settled {
    /// Of what comes next on the connection; none: the front has taken it.
    pub(super) turn: Option<Turn>,
    /// By what the pool knows the request.
    pub(super) adoption: Option<Adoption>,
}

/// The response is over: from here on nobody adopts the request.
pub(super) fn settle(ledger: &Ledger, turn: Turn) -> Settled {
    match ledger.over(turn) {
        Ended::Done { next, adoption } => Settled { turn: Some(next), adoption },
        Ended::Taken => Settled { turn: None, adoption: ledger.adoption_of(turn) },
    }
}

/// Ends it; `after`: so long after it had begun. The response has gone to its client already.
pub(super) fn end(py: Python<'_>, link: &WorkerLink, adoption: Adoption, after: Duration) -> PyResult<()> {
    let now = Instant::now();
    link.sender.put_end(adoption.id, now.checked_sub(after).unwrap_or(now), Ok(Payload::empty()))?;
    link.sender.flush(py)
}
