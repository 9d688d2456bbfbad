//! Holds the connections of one channel on an event loop.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clutch_fronts::held::Ledger;
use clutch_fronts::held::message::{ToFront, ToWorker};
use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, ENDED, Poller};
use pyo3::prelude::*;
use pyo3::types::PySet;

use super::channel::Channel;
use super::connection::Connection;
use super::front::{CHANNEL, Front, Passed};
use super::pace::Pace;
use super::shared::{Member, Shared};
use crate::handlers::asgi::scope;
use crate::handlers::early::Unsent;
use crate::handlers::http::App;
use crate::serving::EagerStarter;
use crate::way;
use crate::worker::Worker;

/// Holds the connections that come by one channel, on one event loop.
#[pyclass(frozen, module = "clutch._core")]
pub struct Holder(Arc<Shared>);

#[pymethods]
impl Holder {
    /// Takes over the channel's descriptor. `tool` has the app; `running` are the loop's tasks, at most `tasks` of them.
    #[new]
    fn new(
        worker: &Bound<'_, Worker>,
        starter: &Bound<'_, EagerStarter>,
        tool: &Bound<'_, PyAny>,
        wait_for: Py<PyAny>,
        running: Py<PySet>,
        tasks: usize,
        channel: i32,
    ) -> PyResult<Holder> {
        let py = worker.py();
        let app = Arc::new(App::of(tool)?);
        let event_loop = starter.get().event_loop(py).clone().unbind();
        let (poller, channel) = (Poller::new()?, Channel::new(sys::adopt(channel)));
        poller.add(channel.socket(), CHANNEL, false)?;
        Ok(Holder(Arc::new(Shared {
            worker: worker.clone().unbind(),
            starter: starter.clone().unbind(),
            app,
            event_loop,
            wait_for,
            running,
            tasks,
            channel,
            poller,
            unsent: Unsent::watched(|connection: &Arc<dyn Member>| connection.send_early()),
            will_send: AtomicBool::new(false),
            pace: Pace::default(),
            arena: Mutex::default(),
            front: OnceLock::new(),
            connections: Mutex::default(),
            behind: Mutex::default(),
            behind_told: AtomicU32::new(0),
            is_leaving: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            on_left: Mutex::default(),
            stepping: AtomicU32::new(0),
            has_timer: AtomicBool::new(false),
            has_rest_timer: AtomicBool::new(false),
            has_records_timer: AtomicBool::new(false),
        })))
    }

    /// Descriptor for the event loop to wait on.
    fn fileno(&self) -> i32 {
        self.0.poller.as_raw_fd()
    }

    /// Something is there: of the channel, or of connections.
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        way::turn(py, || self.0.turn(py), || Ok(()))
    }

    /// Whether a request that takes its first step is to stop; true once.
    fn is_step_to_stop(&self) -> bool {
        let Some(place) = self.0.stepping.load(Ordering::Relaxed).checked_sub(1) else { return false };
        let connection = self.0.connections.lock().get(&place).cloned();
        let is_to_stop = connection.is_some_and(|connection| connection.is_to_stop());
        if is_to_stop {
            self.0.stepping.store(0, Ordering::Relaxed);
        }
        is_to_stop
    }

    /// Tells responses that have no end of their own, as event streams, that the worker is to end.
    fn end_endless(&self, py: Python<'_>) {
        self.0.end_endless(py);
    }

    /// Takes no further connection, hands back those on which nothing runs, and the others when they are answered. Calls
    /// `on_left()` when there are none.
    fn leave(&self, py: Python<'_>, on_left: Py<PyAny>) -> PyResult<()> {
        *self.0.on_left.lock() = Some(on_left);
        self.0.end_endless(py);
        self.0.leave(py)
    }
}

impl Shared {
    /// One turn: lets the app take its steps with what has come, and sends what it has said, for all connections at once.
    /// Each is read when its turn comes: what a step keeps waiting for long, the front gives to another worker.
    fn turn(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        if self.is_in_copy() {
            return Ok(());
        }
        let mut tokens = Vec::new();
        self.poller.wait_for(&mut tokens, Some(Duration::ZERO), self.pace.most())?;
        let is_told = tokens.contains(&CHANNEL);
        let come: Vec<(Arc<dyn Member>, bool)> = {
            let connections = self.connections.lock();
            let of = |token: &u64| Some((connections.get(&(*token as u32))?.clone(), *token & ENDED != 0));
            tokens.iter().filter(|token| **token != CHANNEL).filter_map(of).collect()
        };
        // The code of a request may take long, and its worker may die of it.
        self.channel.flush_when_due();
        let sends = !self.will_send.swap(true, Ordering::Relaxed);
        let told = if is_told { self.read_channel(py) } else { Ok(()) };
        let mut arena = std::mem::take(&mut *self.arena.lock());
        let take_in = |(connection, is_ended): (Arc<dyn Member>, bool)| {
            arena.clear();
            if connection.read(py, &mut arena, is_ended)? { connection.take_in(py, &arena) } else { Ok(()) }
        };
        let taken = told.and(self.pace.each(come, take_in, || self.send_unsent(py)));
        arena.clear();
        *self.arena.lock() = arena;
        if sends { self.send_all(py).and(taken) } else { taken }
    }

    fn read_channel(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        while let Some((message, descriptor)) = self.channel.receive() {
            if message.is_empty() {
                return self.front_left(py);
            }
            // What cannot be read is of another version, which the handshake of the link rules out.
            let Ok(read) = ToWorker::read(&message) else { continue };
            match read {
                ToWorker::Settings(settings) => {
                    if let Some(ledger) = descriptor.and_then(|page| Ledger::open(page).ok()) {
                        let _ = self.front.set(Front::new(&settings, ledger));
                    }
                }
                ToWorker::Pass { place, client, server, bytes } => {
                    self.take(py, Passed { place, client, server, bytes }, descriptor)?;
                }
                ToWorker::Taken { place } => self.was_taken(py, place)?,
                ToWorker::Known { number, adoption } => self.is_known(py, number, adoption)?,
            }
        }
        self.channel.flush();
        Ok(())
    }

    fn take(self: &Arc<Self>, py: Python<'_>, passed: Passed<'_>, socket: Option<OwnedFd>) -> PyResult<()> {
        let Some(front) = self.front() else { return Ok(()) };
        // The front has it again: the word of that follows.
        let Some(turn) = front.ledger.begin(passed.place) else { return Ok(()) };
        let Some(socket) = socket.filter(|_| !self.is_leaving()) else {
            // No descriptor was left to receive it.
            return self.say(py, &ToFront::Back { place: passed.place, bytes: passed.bytes });
        };
        let template = scope::of_connection(self.app.template.bind(py), passed.client, passed.server)?;
        scope::make_room(&template)?;
        let connection = Connection::new(self.clone(), &passed, (socket, turn), template.unbind());
        self.connections.lock().insert(passed.place, connection.clone());
        connection.begin(py, passed.bytes)
    }

    fn was_taken(&self, py: Python<'_>, place: u32) -> PyResult<()> {
        let taken = self.connections.lock().remove(&place);
        if let Some(connection) = taken {
            connection.let_go(py);
        }
        // What is to be said of it is said before somebody else has the place.
        self.channel.flush();
        self.front().iter().for_each(|front| front.ledger.free(place));
        self.look_whether_left(py)
    }

    /// The front is gone: nobody takes anything back.
    fn front_left(&self, py: Python<'_>) -> PyResult<()> {
        self.poller.remove(self.channel.socket());
        self.channel.close();
        self.is_leaving.store(true, Ordering::Relaxed);
        for connection in self.all() {
            connection.hand_back_if_idle(py)?;
        }
        // Nobody answers any more.
        let behind = std::mem::take(&mut *self.behind.lock());
        drop(behind);
        self.look_whether_left(py)
    }

    /// Responses that have no end of their own are told that the worker is to end.
    fn end_endless(&self, py: Python<'_>) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.all().iter().for_each(|connection| connection.end_endless(py));
    }

    fn leave(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        if !self.is_leaving.swap(true, Ordering::Relaxed) {
            self.say(py, &ToFront::Leaving)?;
        }
        for connection in self.all() {
            connection.hand_back_if_idle(py)?;
        }
        self.look_whether_left(py)
    }
}
