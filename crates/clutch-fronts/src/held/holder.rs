//! The front's end of one worker that holds connections: the ledger, the channel, and the sockets, which stay here whatever
//! becomes of the worker.
//!
//! Connections are passed by any thread of the front; one task, in one thread, reads the channel and looks at the ledger.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clutch_pool::pool::Pool;
use clutch_pool::pool::state::WorkerKey;
use clutch_wire::forked::Tracked;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use tokio::sync::{Notify, oneshot};

use super::ledger::{Ledger, State, WantedBack};
use super::message::{Settings, Sum, ToFront, ToWorker, Told};
use super::news::{Asked, Lost, News, Returned, Unanswered, Verdict};
use super::places::{Held, Places};
use super::terms::Terms;
use super::words::Words;
use crate::account::figures::End;
use crate::codec::http::Place;
use crate::net::peer::Peer;

/// Connections at rest for so long are taken back: the next request of each goes to the worker that has the least to do.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// A worker that leaves a request unread for so long stands still.
pub(super) const UNREAD_MAX: Duration = Duration::from_millis(50);

/// A request that is left unread for so long, where no other worker would read it earlier, waits in the pool's queue, which
/// has its limits.
const UNSERVED_MAX: Duration = Duration::from_secs(1);

/// Datagrams that are read before others have their turn.
const DATAGRAMS_MAX: usize = 64;

/// Connections of a worker that are looked at for what it has to do.
const LOOKED_AT_MAX: usize = 256;

/// What a worker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load {
    /// Requests wait there that it does not read.
    pub(super) stands_still: bool,
    /// Connections on which it has something to do, and all that it holds.
    at_work: usize,
    held: usize,
}

/// A connection that is to be passed, beside its socket.
pub(crate) struct Passing<'a> {
    pub(crate) peer: &'a Arc<Peer>,
    /// What its client has sent already.
    pub(crate) bytes: &'a [u8],
}

/// What a worker tells of requests that have ended.
pub(super) enum Heard<'a> {
    One(&'a Told<'a>, Whose),
    All(&'a Sum<'a>),
}

/// What is told of a request beside its record: whose connection it was, and how the front has cut it off, if it has.
pub(super) struct Whose {
    pub(super) peer: Option<Arc<Peer>>,
    pub(super) cut: Option<End>,
}

/// State of the channel after it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// Nothing more is there now.
    Empty,
    /// There may be more.
    Full,
    /// The worker writes nothing any more.
    Ended,
}

/// See the file's head.
pub(crate) struct Holder {
    pub(super) worker: WorkerKey,
    /// Number of the worker in its pool.
    pub(super) nr: u32,
    channel: Tracked,
    pub(super) ledger: Ledger,
    /// Locked while nothing of the pool is called: the pool calls what locks it.
    pub(super) places: Mutex<Places>,
    pub(super) words: Mutex<Words>,
    terms: Weak<dyn Terms>,
    /// It takes no further connection.
    leaves: AtomicBool,
    /// The front ends.
    ends: AtomicBool,
    /// Nothing is to be held there that rests.
    is_left: AtomicBool,
    /// The same for a while, in which nothing is passed to it.
    is_quiet: AtomicBool,
    /// Requests wait there that it does not read.
    stands_still: AtomicBool,
    /// Requests that it had not read for long at the last look, and was left.
    unread: AtomicUsize,
    /// Its process is no more.
    is_dead: AtomicBool,
    /// Told when its task has to look: it holds something again, has something to be told, or is dead.
    pub(super) woken: Notify,
}

impl AsFd for Holder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for Holder {
    fn as_raw_fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }
}

impl Holder {
    /// Fails when there is no memory or descriptor for the ledger, or the worker is gone already.
    pub(super) fn open(
        worker: WorkerKey,
        nr: u32,
        channel: OwnedFd,
        settings: Settings,
        terms: Weak<dyn Terms>,
    ) -> io::Result<Holder> {
        let words = Mutex::new(Words::new(settings.words.clone()));
        let (ledger, descriptor) = Ledger::create()?;
        let mut message = Vec::new();
        ToWorker::Settings(settings).put(&mut message);
        sys::send(channel.as_fd(), &message, &[descriptor.as_fd()], false)?;
        Ok(Holder {
            worker,
            nr,
            channel: Tracked::new(channel),
            ledger,
            places: Mutex::default(),
            words,
            terms,
            leaves: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
            stands_still: AtomicBool::new(false),
            unread: AtomicUsize::new(0),
            is_dead: AtomicBool::new(false),
            woken: Notify::new(),
        })
    }

    /// None: the front has ended.
    pub(super) fn terms(&self) -> Option<Arc<dyn Terms>> {
        self.terms.upgrade()
    }

    // ---- for the threads of connections

    /// What the worker has to do: the less, the earlier it comes to the next request. None: it takes no more.
    pub(super) fn load(&self) -> Option<Load> {
        if !self.takes() {
            return None;
        }
        let places = self.places.lock();
        let at_work = places.held.keys().take(LOOKED_AT_MAX).filter(|place| self.ledger.is_at_work(**place)).count();
        Some(Load { stands_still: self.stands_still.load(Ordering::Relaxed), at_work, held: places.held.len() })
    }

    /// The worker is to hand back each connection after the response that it gives, or is about to.
    fn want_back(&self) {
        self.leaves.store(true, Ordering::SeqCst);
        self.tell_wanted();
    }

    /// The same, and nobody answers what would follow.
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.want_back();
    }

    fn wanted(&self) -> WantedBack {
        let is_wanted = self.leaves.load(Ordering::SeqCst) || self.is_quiet.load(Ordering::SeqCst);
        match self.ends.load(Ordering::SeqCst) {
            true => WantedBack::Last,
            false if is_wanted => WantedBack::Yes,
            false => WantedBack::No,
        }
    }

    /// Looks again afterwards: two changes may come at the same time.
    fn tell_wanted(&self) {
        let mut told = None;
        while told != Some(self.wanted()) {
            let wanted = self.wanted();
            self.ledger.want_back(wanted);
            told = Some(wanted);
        }
    }

    /// The worker gets nothing for a while, and what it holds comes back; or it gets connections again.
    pub(super) fn quiet(&self, quiet: bool) {
        self.is_quiet.store(quiet, Ordering::SeqCst);
        self.tell_wanted();
        if quiet {
            // What rests is taken before who asked for it goes on.
            self.look(false);
        }
        self.woken.notify_one();
    }

    fn takes(&self) -> bool {
        !self.leaves.load(Ordering::Relaxed) && !self.is_quiet.load(Ordering::Relaxed)
    }

    /// The worker gets no more: what rests there is taken back, too.
    pub(super) fn leave(&self) {
        self.want_back();
        self.is_left.store(true, Ordering::Relaxed);
        self.woken.notify_one();
    }

    /// Passes a connection to the worker. The socket comes back at once when there is no room for it, or no worker.
    pub(crate) fn pass(self: &Arc<Holder>, socket: OwnedFd, passing: &Passing<'_>) -> Result<Passed, OwnedFd> {
        let Passing { peer, bytes } = *passing;
        let mut places = self.places.lock();
        let place = if self.takes() { places.take_free() } else { None };
        let Some(place) = place else { return Err(socket) };
        let (client, server) = (place_of(&peer.client), place_of(&peer.server));
        let mut message = Vec::with_capacity(128 + bytes.len());
        ToWorker::Pass { place, client, server, bytes }.put(&mut message);
        // Before it is sent: the worker may have it at once.
        let first = self.ledger.pass(place);
        // Under the lock: what the worker says of the place is read when it is ours.
        if sys::send(self.channel.as_fd(), &message, &[socket.as_fd()], false).is_err() {
            self.ledger.free(place);
            places.give_back(place);
            return Err(socket);
        }
        let was_empty = places.held.is_empty();
        let (serial, returned) = places.hold(first, socket, peer.clone());
        drop(places);
        if was_empty {
            self.woken.notify_one();
        }
        Ok(Passed { holder: self.clone(), place, serial, returned: Some(returned) })
    }

    /// Takes a connection back on which nothing runs. None: the worker has it.
    fn take(&self, places: &mut Places, place: u32) -> Option<(State, Duration, Held)> {
        let age = self.ledger.age(place);
        let state = self.ledger.take(place)?;
        Some((state, age, self.taken(places, place)?))
    }

    /// A connection was taken in the ledger: its worker is told.
    pub(super) fn taken(&self, places: &mut Places, place: u32) -> Option<Held> {
        let held = places.take_away(place)?;
        self.tell_of_taken(places, place);
        Some(held)
    }

    pub(super) fn tell_of_taken(&self, places: &mut Places, place: u32) {
        if self.tell_taken(place).is_err() {
            places.untold.push(place);
            self.woken.notify_one();
        }
    }

    fn tell_taken(&self, place: u32) -> io::Result<usize> {
        let mut message = Vec::new();
        ToWorker::Taken { place }.put(&mut message);
        sys::send(self.channel.as_fd(), &message, &[], false)
    }

    /// Says this as soon as there is room for it; a worker that is gone hears nothing.
    pub(super) fn say(&self, message: Vec<u8>) {
        if !self.is_said(&message) {
            self.places.lock().unsaid.push(message);
            self.woken.notify_one();
        }
    }

    fn is_said(&self, message: &[u8]) -> bool {
        let said = sys::send(self.channel.as_fd(), message, &[], false);
        !said.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    // ---- for the task of the worker

    /// Reads what the worker has said; `hear` gets what it tells of requests. `pool`: knows what goes on behind responses; none: it is gone.
    pub(super) fn read(&self, buffer: &mut [u8], pool: Option<&Pool>, hear: &mut dyn FnMut(Heard<'_>)) -> Channel {
        // Whatever the worker has said of a place before it freed it is read now, unless there is more than a turn of it.
        let freed = self.places.lock().freed(|place| self.ledger.state(place) == State::Free);
        for _ in 0..DATAGRAMS_MAX {
            let count = match sys::receive(self.channel.as_fd(), buffer, false) {
                Ok(0) => return Channel::Ended,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.places.lock().reuse(&freed);
                    return Channel::Empty;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Channel::Ended,
            };
            self.stands_still.store(false, Ordering::Relaxed);
            let mut rest = &buffer[..count];
            while !rest.is_empty() {
                // A worker that cannot be understood has nothing more to say.
                let Ok((message, more)) = ToFront::read(rest) else { return Channel::Ended };
                self.heed(&message, pool, hear);
                rest = more;
            }
        }
        Channel::Full
    }

    fn heed(&self, message: &ToFront<'_>, pool: Option<&Pool>, hear: &mut dyn FnMut(Heard<'_>)) {
        match message {
            ToFront::Back { place, bytes } => {
                let leaves = self.leaves.load(Ordering::Relaxed);
                self.returned(*place, News::Back { bytes: bytes.to_vec(), leaves });
            }
            ToFront::Gone { place } => self.returned(*place, News::Gone),
            ToFront::Told(told) => {
                let whose = {
                    let mut places = self.places.lock();
                    let held = places.held.get_mut(&told.place);
                    let cut = match held {
                        // Whoever cut it has told of it.
                        Some(Held { cut: Some(End::Stopped), .. }) => return,
                        Some(held) if told.adopted => held.cut.take(),
                        _ => None,
                    };
                    Whose { peer: places.peer(told.place), cut }
                };
                hear(Heard::One(told, whose));
            }
            ToFront::Sum(sum) => hear(Heard::All(sum)),
            ToFront::Leaving => self.leaves.store(true, Ordering::Relaxed),
            ToFront::GoesOn(told) => self.adopt_behind(pool, *told),
        }
    }

    /// The place is the front's again: that of a connection that the worker does not hold was so already.
    fn returned(&self, place: u32, news: News) {
        let mut places = self.places.lock();
        let Some(held) = places.held.remove(&place) else { return };
        self.ledger.free(place);
        places.give_back(place);
        drop(places);
        held.give(news);
    }

    pub(super) fn held(&self) -> usize {
        self.places.lock().held.len()
    }

    /// Requests that the worker has begun and its pool does not know, as they are shown to people.
    pub(super) fn unknown(&self) -> Vec<String> {
        let Some(terms) = self.terms() else { return Vec::new() };
        let places = self.places.lock();
        let unknown = places.held.keys().filter(|place| self.ledger.is_unknown(**place));
        unknown.filter_map(|place| self.ledger.noted(*place)).map(|(_, asked)| terms.describe(&asked)).collect()
    }

    /// Number of requests that wait for the worker to read them, as of the last look.
    pub(super) fn waiting(&self) -> usize {
        // Where nothing is held, nobody looks.
        self.unread.load(Ordering::Relaxed).min(self.held())
    }

    pub(super) fn holds_some(&self) -> bool {
        let places = self.places.lock();
        !places.held.is_empty() || !places.untold.is_empty() || !places.unsaid.is_empty()
    }

    /// Takes back what has been at rest for long, and what the worker does not come to read: where `may_move`, to be passed to
    /// another one, else to be served here. To be called each time that [`UNREAD_MAX`] is over, or more often.
    pub(super) fn look(&self, may_move: bool) {
        let mut places = self.places.lock();
        let untold = std::mem::take(&mut places.untold);
        places.untold = untold.into_iter().filter(|place| self.tell_taken(*place).is_err()).collect();
        places.unsaid.retain(|message| !self.is_said(message));
        let is_left = self.is_left.load(Ordering::Relaxed) || self.is_quiet.load(Ordering::Relaxed);
        let (mut unread, mut idle, mut rested) = (Vec::new(), Vec::new(), Vec::new());
        for (place, held) in &places.held {
            let age = self.ledger.age(*place);
            match self.ledger.state(*place) {
                State::Sent | State::Idle if is_left => rested.push(*place),
                State::Sent if age >= UNREAD_MAX => unread.push((*place, age)),
                State::Idle if age >= UNREAD_MAX => idle.push((*place, age, held.socket.as_fd())),
                _ => {}
            }
        }
        let (now, with_bytes) = (Instant::now(), with_bytes(&idle));
        let waiting: HashMap<u32, Instant> =
            with_bytes.into_iter().map(|place| (place, places.waiting.get(&place).copied().unwrap_or(now))).collect();
        let mut served = Vec::new();
        for (place, age, _) in idle {
            match waiting.get(&place) {
                // They came after its last response.
                Some(since) => unread.push((place, now.saturating_duration_since(*since).min(age))),
                None if age >= IDLE_MAX => rested.push(place),
                None => {}
            }
        }
        unread.retain(|(_, waited)| *waited >= UNREAD_MAX);
        // The pool's queue has few places: who has waited longest comes first there.
        unread.sort_unstable_by_key(|(_, waited)| std::cmp::Reverse(*waited));
        self.stands_still.store(!unread.is_empty(), Ordering::Relaxed);
        places.waiting = waiting;
        let mut left = 0;
        for (place, waited) in unread {
            match may_move {
                true => rested.push(place),
                false if waited >= UNSERVED_MAX => served.push((place, waited)),
                false => left += 1,
            }
        }
        self.unread.store(left, Ordering::Relaxed);
        let mut back = Vec::new();
        for place in rested {
            back.extend(self.take(&mut places, place).map(|(state, age, held)| (held, News::Taken(state, age))));
        }
        for (place, waited) in served {
            back.extend(self.take(&mut places, place).map(|(state, _, held)| (held, News::Unread(state, waited))));
        }
        drop(places);
        back.into_iter().for_each(|(held, news)| held.give(news));
    }

    pub(super) fn died(&self) {
        self.is_dead.store(true, Ordering::Release);
        self.leaves.store(true, Ordering::Relaxed);
        self.woken.notify_one();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    /// The worker has closed its channel: it gets nothing any more, and what it does not have now is taken back.
    pub(super) fn channel_ended(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.end_with(|_, _| None);
    }

    /// The worker is dead, and all that it has said was read: whatever it held comes back. Returns how many requests are lost
    /// of which its pool does not know.
    pub(super) fn settle(&self) -> u64 {
        let terms = self.terms();
        let limit = terms.as_ref().and_then(|terms| terms.timeout());
        let late = limit.zip(terms.map(|terms| terms.verdict(None)));
        let lost = self.places.lock().held.keys().filter(|place| self.ledger.is_unknown(**place)).count();
        self.end_with(|place, held| Some(self.news_of_lost(place, held, late.as_ref())));
        lost as u64
    }

    /// The news of a request that has ended with its worker. `late`: the time until a response begins, and what is told after it.
    fn news_of_lost(&self, place: u32, held: &Held, late: Option<&(Duration, Verdict)>) -> News {
        let lost = self.lost(place, held);
        let Lost { is_answering, after, asked, .. } = lost;
        match (asked, late) {
            (Some(asked), Some((limit, verdict))) if !is_answering && after >= *limit => {
                News::Unanswered(Box::new(Unanswered { asked, after, verdict: verdict.clone() }))
            }
            _ => News::Lost(lost),
        }
    }

    /// What is known of a request that its worker does not end.
    fn lost(&self, place: u32, held: &Held) -> Lost {
        let (is_answering, after) = (self.ledger.state(place) == State::Answering, self.ledger.age(place));
        let noted = self.ledger.noted(place);
        let asked = noted.map(|(turn, beginning)| Asked { beginning, is_first: turn == held.first });
        let status = self.ledger.status(place).filter(|_| is_answering && asked.is_some());
        Lost { is_answering, status, after, asked, cut: held.cut }
    }

    /// `of_busy`: the news of what the worker has, by its place.
    fn end_with(&self, of_busy: impl Fn(u32, &Held) -> Option<News>) {
        let mut places = self.places.lock();
        let held: Vec<u32> = places.held.keys().copied().collect();
        let mut ended = Vec::new();
        for place in held {
            if let Some((state, age, held)) = self.take(&mut places, place) {
                ended.push((held, News::Taken(state, age)));
            } else if let Some(news) = places.held.get(&place).and_then(|held| of_busy(place, held)) {
                ended.extend(places.take_away(place).map(|held| (held, news)));
            }
        }
        places.untold.clear();
        places.unsaid.clear();
        drop(places);
        ended.into_iter().for_each(|(held, news)| held.give(news));
    }
}

/// Those of these sockets that have something to read, be it their end.
fn with_bytes(sockets: &[(u32, Duration, BorrowedFd<'_>)]) -> Vec<u32> {
    let ready = sys::readable_ones(sockets.iter().map(|(.., socket)| *socket));
    ready.into_iter().map(|at| sockets[at].0).collect()
}

fn place_of((address, port): &(String, u16)) -> Place<'_> {
    Place { address, port: *port }
}

/// A connection that a worker holds. Dropped, it is taken back and closed, or cut off.
pub(crate) struct Passed {
    holder: Arc<Holder>,
    place: u32,
    serial: u64,
    /// None: it has come back.
    returned: Option<oneshot::Receiver<Returned>>,
}

impl Passed {
    /// Waits until the connection comes back. None: the front has ended.
    pub(crate) async fn returned(&mut self) -> Option<Returned> {
        let returned = self.returned.as_mut()?.await.ok();
        self.returned = None;
        returned
    }

    /// Takes it back, unless the worker has it.
    pub(crate) fn take(&mut self) -> Option<Returned> {
        let taken = {
            let mut places = self.holder.places.lock();
            let is_held = places.of(self.place, self.serial).is_some();
            if is_held { self.holder.take(&mut places, self.place) } else { None }
        };
        let (state, age, held) = taken?;
        self.returned = None;
        Some((News::Taken(state, age), held.socket))
    }

    /// Cuts the connection off, as this does when it is dropped. Returns what is known of the request that the worker has;
    /// none: it has none, or it was told of.
    pub(crate) fn cut(&mut self) -> Option<Lost> {
        self.returned.as_ref()?;
        if self.take().is_some() {
            return None;
        }
        self.returned = None;
        let mut places = self.holder.places.lock();
        let held = places.of(self.place, self.serial)?;
        sys::hang_up(held.socket.as_fd());
        let lost = self.holder.lost(self.place, held);
        held.cut = Some(End::Stopped);
        lost.asked.is_some().then_some(lost)
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.cut();
    }
}
