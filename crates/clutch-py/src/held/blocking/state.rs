//! What the slots of a worker know of the connections that they take turns at.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use clutch_fronts::held::ledger::{Adoption, Turn};
use clutch_wire::forked::Tracked;
use clutch_wire::sync::Mutex;
use clutch_wire::sys::Poller;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

use super::slow::Slow;
use crate::handlers::early::Unsent;
use crate::handlers::http::App;
use crate::held::channel::Channel;
use crate::held::front::Front;
use crate::held::pace::Pace;
use crate::link::WorkerLink;
use crate::link::sender::ThreadCpu;
use crate::slots::Slots;

/// The connections that the slots of this worker hold.
pub(in crate::held) struct Blocking {
    pub(super) link: Py<WorkerLink>,
    pub(super) slots: Py<Slots>,
    /// Those that no slot has now.
    pub(super) seats: Mutex<Vec<Seat>>,
    pub(super) app: Arc<App>,
    pub(super) channel: Channel,
    pub(super) poller: Poller,
    /// Several threads: a connection that one has is not waited for by another.
    pub(super) is_shared: bool,
    pub(super) front: OnceLock<Front>,
    pub(super) connections: Mutex<FxHashMap<u32, Arc<Held>>>,
    pub(super) ready: Mutex<VecDeque<Arc<Held>>>,
    /// Of a slot alone: responses that are sent when all that is ready is answered, or the first has waited a while.
    pub(super) unsent: Arc<Unsent<Arc<Held>>>,
    /// Sends what slow clients have not taken; made for the first of them.
    pub(super) slow: Mutex<Option<Arc<Slow>>>,
    /// Rings when something is ready that the poller does not tell of.
    pub(super) bell: Tracked,
    /// Time that has been worked since the first of them, in nanoseconds.
    pub(super) worked_ns: AtomicU64,
    pub(super) pace: Pace,
    pub(super) is_leaving: AtomicBool,
    /// Whether a client has sent a part of a request.
    pub(super) has_partial: AtomicBool,
    pub(super) this: Weak<Blocking>,
}

/// What a slot has while it has its turn at a connection.
#[derive(Default)]
pub(super) struct Seat {
    /// Word of the board.
    pub(super) word: Option<u32>,
    /// Room for what the client sends; empty between turns.
    pub(super) room: Vec<u8>,
}

/// A connection, from its pass to its end or its way back.
pub(super) struct Held {
    pub(super) holder: Arc<Blocking>,
    pub(super) place: u32,
    /// Who has connected; none: by a unix socket.
    pub(super) from: Option<IpAddr>,
    pub(super) client: (String, u16),
    pub(super) server: (String, u16),
    /// The part that its environs share.
    pub(super) template: OnceLock<Py<PyDict>>,
    pub(super) state: Mutex<State>,
    pub(super) this: Weak<Held>,
}

#[derive(Default)]
pub(super) struct State {
    /// None: it is closed, or the front's.
    pub(super) socket: Option<Arc<Tracked>>,
    /// Read, and not answered.
    pub(super) input: Vec<u8>,
    /// The poller tells of it.
    pub(super) is_watched: bool,
    /// It waits for its turn.
    pub(super) is_ready: bool,
    /// Requests among what was read wait until the client has taken the responses before them.
    pub(super) is_kept: bool,
    /// Not all that has come was read, or not that nothing more comes.
    pub(super) has_more: bool,
    /// That is the beginning of a request, whose rest is waited for.
    pub(super) is_partial: bool,
    /// Its client says nothing more.
    pub(super) is_over: bool,
    /// A request is on its way, or may be: the place is claimed.
    pub(super) turn: Option<Turn>,
    /// The front has it again, which answers in the app's place.
    pub(super) is_taken: bool,
    /// What is read comes behind a request whose response is over.
    pub(super) follows: bool,
    /// By what the pool knows the request of a connection that is taken.
    pub(super) adoption: Option<Adoption>,
    /// Word of the board that the slot has, for what comes next if the pool has taken that of this request.
    pub(super) word: Option<u32>,
    /// Not sent.
    pub(super) output: Vec<u8>,
    /// All of that is of responses before the request that is answered.
    pub(super) is_earlier: bool,
    /// The rest of a response is being sent beside the slots.
    pub(super) is_slow: bool,
    /// No request follows.
    pub(super) closes: bool,
    /// What comes when the output is sent.
    pub(super) next: Next,
    /// Of the request that is answered, where somebody wants to know.
    pub(super) method: String,
    pub(super) request_head: Vec<u8>,
    /// CPU time of the thread as its code began.
    pub(super) cpu: Option<ThreadCpu>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// More is being done with it.
    #[default]
    GoOn,
    /// Requests that were read wait for that.
    Answer,
    Rest,
    End,
}
