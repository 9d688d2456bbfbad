//! What a worker knows of a front whose connections it holds, and limits of its own.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use clutch_fronts::app::forwarded::{Forwarded, Trust};
use clutch_fronts::app::plain::{Limits, Plain};
use clutch_fronts::codec::http::Place;
use clutch_fronts::held::Ledger;
use clutch_fronts::held::message::Settings;

/// Token of the channel in a poller, which is no place.
pub(super) const CHANNEL: u64 = u64::MAX - 1;

/// A client has so long to send the rest of a request; then the front waits for it.
pub(super) const REST_WAIT: Duration = Duration::from_millis(50);

/// Interval at which connections are looked at whose client is slow.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Records wait so long for others at most.
pub(super) const RECORDS_WAIT: Duration = Duration::from_millis(20);

/// So long wait sums of few requests, of which no line is written.
pub(super) const SUMS_WAIT: Duration = Duration::from_millis(100);

/// What the front has told.
pub(super) struct Front {
    pub(super) ledger: Ledger,
    pub(super) limits: Limits,
    pub(super) root_path: String,
    pub(super) write_timeout: Duration,
    pub(super) wants_heads: bool,
    trust: Trust,
}

impl Front {
    pub(super) fn new(settings: &Settings, ledger: Ledger) -> Front {
        Front {
            ledger,
            limits: Limits::within(settings.head_bytes_max, settings.headers_max, settings.body_bytes_max),
            root_path: settings.root_path.clone(),
            write_timeout: Duration::from_millis(settings.write_timeout_ms),
            wants_heads: settings.wants_heads,
            trust: Trust::new(&settings.forwarded_allow, false),
        }
    }

    /// What a proxy that is believed has told of its client; none: nothing. `from`: who has connected.
    pub(super) fn forwarded(&self, plain: &Plain<'_>, from: Option<IpAddr>) -> Option<Forwarded> {
        let is_told = plain.is_forwarded() && self.trust.believes(from);
        is_told.then(|| self.trust.read(from, plain.headers.iter().copied(), SystemTime::now))
    }
}

/// A connection as it is passed.
pub(super) struct Passed<'a> {
    pub(super) place: u32,
    pub(super) client: Place<'a>,
    pub(super) server: Place<'a>,
    pub(super) bytes: &'a [u8],
}

impl Passed<'_> {
    /// Who has connected; none: by a unix socket.
    pub(super) fn from(&self) -> Option<IpAddr> {
        self.client.address.parse().ok()
    }
}
