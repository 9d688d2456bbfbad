//! Connections of a WSGI app that slots take turns at, each in its thread: whoever reads the link waits for them, too.

mod connection;
mod sending;
mod slow;
mod state;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clutch_fronts::held::Ledger;
use clutch_fronts::held::message::{ToFront, ToWorker};
use clutch_wire::forked::Tracked;
use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, ENDED, Poller};
use pyo3::prelude::*;

use self::slow::Slow;
use self::state::{Blocking, Held, Seat};
use super::channel::Channel;
use super::front::{CHANNEL, Front, Passed, REST_WAIT};
use super::pace::Pace;
use crate::handlers::early::{UNSENT_MAX, Unsent};
use crate::handlers::http::App;
use crate::link::WorkerLink;
use crate::link::beside::{Beside, Ready};
use crate::slots::Slots;
use crate::worker::Worker;

/// Token of the link in the poller, which is no place.
const LINK: u64 = u64::MAX;

/// That of the bell.
const BELL: u64 = CHANNEL - 1;

impl Blocking {
    pub(super) fn new(
        (link, slots): (Py<WorkerLink>, Py<Slots>),
        app: Arc<App>,
        channel: OwnedFd,
        is_shared: bool,
    ) -> io::Result<Arc<Blocking>> {
        let (poller, channel) = (Poller::new()?, Channel::new(channel));
        poller.add(link.get().socket(), LINK, false)?;
        poller.add(channel.socket(), CHANNEL, false)?;
        let bell = Tracked::new(sys::event_fd()?);
        poller.add(bell.as_fd(), BELL, false)?;
        Ok(Arc::new_cyclic(|this| Blocking {
            link,
            slots,
            seats: Mutex::default(),
            app,
            channel,
            poller,
            is_shared,
            front: OnceLock::new(),
            connections: Mutex::default(),
            ready: Mutex::default(),
            slow: Mutex::default(),
            bell,
            unsent: Unsent::watched(|held: &Arc<Held>| held.send_early()),
            worked_ns: AtomicU64::new(0),
            pace: Pace::default(),
            is_leaving: AtomicBool::new(false),
            has_partial: AtomicBool::new(false),
            this: this.clone(),
        }))
    }

    fn read_channel(&self) {
        while let Some((message, descriptor)) = self.channel.receive() {
            if message.is_empty() {
                self.poller.remove(self.channel.socket());
                self.channel.close();
                self.leave();
                return;
            }
            // What cannot be read is of another version, which the handshake of the link rules out.
            match ToWorker::read(&message) {
                Ok(ToWorker::Settings(settings)) => {
                    if let Some(ledger) = descriptor.and_then(|page| Ledger::open(page).ok()) {
                        let seat = |word: &u32| Seat { word: Some(*word), ..Seat::default() };
                        *self.seats.lock() = settings.words.iter().map(seat).collect();
                        let _ = self.front.set(Front::new(&settings, ledger));
                    }
                }
                Ok(ToWorker::Pass { place, client, server, bytes }) => {
                    self.take(&Passed { place, client, server, bytes }, descriptor);
                }
                Ok(ToWorker::Taken { place }) => {
                    let taken = self.connections.lock().remove(&place);
                    if let Some(held) = taken {
                        held.taken();
                    }
                    // What is to be said of it is said before somebody else has the place.
                    self.channel.flush();
                    self.front.get().iter().for_each(|front| front.ledger.free(place));
                }
                // In a slot nothing goes on behind a response.
                Ok(ToWorker::Known { .. }) | Err(_) => {}
            }
        }
    }

    fn take(&self, passed: &Passed<'_>, socket: Option<OwnedFd>) {
        let (Some(front), Some(holder)) = (self.front.get(), self.this.upgrade()) else { return };
        let place = passed.place;
        let is_leaving = self.is_leaving.load(Ordering::Relaxed);
        let Some(socket) = socket.filter(|_| !is_leaving) else {
            if front.ledger.begin(place).is_some() {
                self.channel.say(&ToFront::Back { place, bytes: passed.bytes });
            }
            return;
        };
        let held = Held::new(holder, passed, socket);
        self.connections.lock().insert(place, held.clone());
        // It is watched from its first turn on where something of it is here already.
        match !passed.bytes.is_empty() {
            true => self.ready.lock().push_back(held),
            false => held.watch(&mut held.state.lock()),
        }
    }

    /// None: no thread can be started.
    fn slow(&self) -> Option<Arc<Slow>> {
        let mut slow = self.slow.lock();
        if slow.is_none() {
            *slow = Slow::start().ok();
        }
        slow.clone()
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed) || self.is_wanted_back()
    }

    fn is_wanted_back(&self) -> bool {
        self.front.get().is_some_and(|front| front.ledger.is_wanted_back())
    }

    fn is_last(&self) -> bool {
        self.front.get().is_some_and(|front| front.ledger.is_last())
    }

    fn forget(&self, place: u32) {
        let forgotten = self.connections.lock().remove(&place);
        drop(forgotten);
    }

    /// Hands back connections whose clients are slow with the rest of a request.
    fn look(&self) {
        // Another slot may find one while this looks.
        self.has_partial.store(false, Ordering::Relaxed);
        let all: Vec<_> = self.connections.lock().values().cloned().collect();
        let mut are_slow = false;
        for held in all {
            let (is_partial, is_slow) = {
                let state = held.state.lock();
                (state.is_partial, state.is_slow)
            };
            let age = self.front.get().map(|front| front.ledger.age(held.place)).filter(|_| is_partial);
            match age.map(|age| age >= REST_WAIT && !is_slow) {
                Some(true) => held.hand_back_if_idle(),
                Some(false) => are_slow = true,
                None => {}
            }
        }
        if are_slow {
            self.has_partial.store(true, Ordering::Relaxed);
        }
    }

    /// Sends the responses that wait.
    fn send_unsent(&self) {
        self.worked_ns.store(0, Ordering::Relaxed);
        self.unsent.take().iter().for_each(|held| held.send_output());
    }

    /// Time that the poller waits at most; None: any.
    fn patience(&self, wait: bool) -> Option<Duration> {
        let records = self.channel.flush_when_due();
        if !wait || !self.ready.lock().is_empty() {
            return Some(Duration::ZERO);
        }
        let partial = self.has_partial.load(Ordering::Relaxed).then_some(REST_WAIT);
        records.into_iter().chain(partial).min()
    }
}

impl Beside for Blocking {
    fn wait(&self, wait: bool) -> io::Result<bool> {
        self.send_unsent();
        let (mut tokens, mut has_link) = (Vec::new(), false);
        let patience = self.patience(wait);
        self.poller.wait_for(&mut tokens, patience, self.pace.most())?;
        let mut ready = Vec::new();
        for token in &tokens {
            match *token {
                LINK => has_link = true,
                CHANNEL => self.read_channel(),
                BELL => sys::clear_event(self.bell.as_fd()),
                _ => {}
            }
        }
        let connections = self.connections.lock();
        for token in tokens.iter().filter(|token| ![LINK, CHANNEL, BELL].contains(token)) {
            let held = connections.get(&(*token as u32));
            ready.extend(held.filter(|held| held.gets_ready(*token & ENDED != 0)).cloned());
        }
        drop(connections);
        self.ready.lock().extend(ready);
        if self.has_partial.load(Ordering::Relaxed) {
            self.look();
        }
        Ok(has_link)
    }

    fn next(&self) -> Option<Arc<dyn Ready>> {
        // Who finds nothing waits, which sends them.
        if Duration::from_nanos(self.worked_ns.load(Ordering::Relaxed)) >= UNSENT_MAX {
            return None;
        }
        self.ready.lock().pop_front().map(|held| held as Arc<dyn Ready>)
    }

    fn count(&self) -> usize {
        self.ready.lock().len()
    }

    fn leave(&self) {
        if !self.is_leaving.swap(true, Ordering::Relaxed) {
            self.channel.say(&ToFront::Leaving);
        }
        // Nobody waits any more, which would send them.
        self.send_unsent();
        let slow = self.slow.lock().clone();
        slow.iter().for_each(|slow| slow.wait_all());
        let all: Vec<_> = self.connections.lock().values().cloned().collect();
        all.iter().for_each(|held| held.hand_back_if_idle());
        self.channel.flush();
    }
}

/// Has the slots of this worker hold the connections that come by `channel`, whose descriptor is taken over. `is_shared`: in
/// several threads.
#[pyfunction]
pub fn hold_in_slots(
    worker: &Bound<'_, Worker>,
    tool: &Bound<'_, PyAny>,
    channel: i32,
    is_shared: bool,
) -> PyResult<()> {
    let (py, link, app) = (worker.py(), &worker.get().link, Arc::new(App::of(tool)?));
    let own = (link.clone_ref(py), worker.get().slots.clone_ref(py));
    let holder = Blocking::new(own, app, sys::adopt(channel), is_shared)?;
    link.get().reader.put_beside(holder);
    Ok(())
}
