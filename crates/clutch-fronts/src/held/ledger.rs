//! The ledger: a page that a front shares with one worker. Each connection that the worker holds has a place in it, which
//! says who may read from the connection now, since when, and what runs on it.
//!
//! A request that runs for long the front *adopts*: it makes it known to its pool, and tells the worker by which id, before
//! the worker ends it. Each request has a number within its place, so that neither side mistakes one for the next.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clutch_wire::sys::{self, Mapping};

/// Connections that one worker holds at most.
pub const PLACES: u32 = 4096;

/// Bytes of a request that a place keeps, from the first on.
pub const BEGINNING_BYTES: usize = 64;

/// In place of a word of the board: the work has none of its own.
pub const NO_WORD: u32 = u32::MAX;

/// In its place, too: no whole request is here.
const NOTHING: u32 = u32::MAX - 1;

/// Words before the first place.
const HEAD_WORDS: usize = 16;

/// Words of a place.
const PLACE_WORDS: usize = 32;

/// Of a place: the state with the number of the request; the time of its last change in milliseconds of CLOCK_MONOTONIC.
const STATE: usize = 0;
const SINCE: usize = 1;
/// The board's word of what runs, and the beginning of the request.
const WORD: usize = 2;
const BEGINNING: usize = PLACE_WORDS - BEGINNING_BYTES / 4;
/// What has become of an adoption, and the id in two halves, the word that the worker had, and the one that it has from now on.
const ADOPTION: usize = 3;
const ID: usize = 4;
const OWN_WORD: usize = 6;
const NEXT_WORD: usize = 7;
/// Since when the client is ready for more of a response that has begun, as [`SINCE`]; 0: it is not.
const READY_SINCE: usize = 8;
/// Status of the response, with [`ENDLESS`] where that has no end of its own; 0: none has begun.
const STATUS: usize = 9;

const BYTES: usize = ((HEAD_WORDS + PLACES as usize * PLACE_WORDS) * 4).next_multiple_of(4096);

/// Word of the page for [`WantedBack`].
const WANTED_BACK: usize = 0;

/// Whether the worker is to hand each connection back as soon as its response is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WantedBack {
    /// It keeps them.
    No = 0,
    /// Others answer what follows there.
    Yes = 1,
    /// The front ends: nobody does, and the response says so.
    Last = 2,
}

/// Set in the state of a request that the front adopts, or has adopted.
const ADOPTED: u32 = 1 << 7;

/// Set in the state when something of the response of its request is written: without it, `Answering` says that of the request
/// before something may not be sent.
const BEGUN: u32 = 1 << 6;

/// What of the state's word is the number of the request.
const NUMBER: u32 = 0xffff_0000;
const NEXT_NUMBER: u32 = 1 << 16;

/// Set beside the status of a response that has no end of its own, as an event stream.
const ENDLESS: u32 = 1 << 16;

/// Values of the word for an adoption.
const UNDER_WAY: u32 = 0;
const DONE: u32 = 1;
const REFUSED: u32 = 2;

/// State of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// The front may use it for another connection.
    Free = 0,
    /// The worker has not come by to read the message that passes it.
    Sent = 1,
    /// No request is on its way: either side may claim it.
    Idle = 2,
    /// The worker reads a request, or answers it. Nothing of the response is written.
    Busy = 3,
    /// The worker writes the response.
    Answering = 4,
    /// The front has taken it back. The worker closes its descriptor, and frees the place.
    Taken = 5,
}

impl State {
    fn of(word: u32) -> State {
        use State::*;
        [Free, Sent, Idle, Busy, Answering, Taken]
            .get((word & !ADOPTED & !BEGUN & !NUMBER) as usize)
            .copied()
            .unwrap_or(Taken)
    }
}

/// A request on a connection, by its place and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub place: u32,
    number: u32,
}

impl Turn {
    fn word(self, state: State) -> u32 {
        self.number | state as u32
    }

    fn next(self) -> Turn {
        Turn { number: self.number.wrapping_add(NEXT_NUMBER), ..self }
    }
}

/// A request that runs, as its worker has noted it.
#[derive(Clone, Debug)]
pub struct Noted {
    pub turn: Turn,
    pub age: Duration,
    /// None: it has no word of its own.
    pub word: Option<u32>,
    /// Its first bytes.
    pub beginning: [u8; BEGINNING_BYTES],
    word_seen: u32,
}

/// What the worker of an adopted request has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// Id of the work in its pool, by which the worker ends it.
    pub id: u64,
    /// Word of the board that it has.
    pub word: u32,
    /// Word that the worker uses from now on in place of that one, if that was its own.
    pub next_word: u32,
}

/// What has become of a request whose response is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// What comes next on the connection has the turn `next`. By `adoption` the pool knows the request, which is the
    /// worker's to end; none: it was not adopted, or the pool has not taken it.
    Done { next: Turn, adoption: Option<Adoption> },
    /// The front has taken the connection.
    Taken,
}

/// The page, for both sides.
#[derive(Clone, Debug)]
pub struct Ledger {
    mapping: Arc<Mapping>,
}

impl Ledger {
    /// A fresh page, and the descriptor by which the worker opens it.
    pub fn create() -> io::Result<(Ledger, OwnedFd)> {
        let descriptor = sys::shared_memory("clutch-ledger", BYTES)?;
        Ok((Ledger { mapping: Arc::new(Mapping::new(descriptor.as_fd(), BYTES)?) }, descriptor))
    }

    pub fn open(descriptor: OwnedFd) -> io::Result<Ledger> {
        Ok(Ledger { mapping: Arc::new(Mapping::new(descriptor.as_fd(), BYTES)?) })
    }

    fn at(&self, place: u32, word: usize) -> &AtomicU32 {
        assert!(place < PLACES, "a place outside of its ledger");
        self.mapping.word(HEAD_WORDS + place as usize * PLACE_WORDS + word)
    }

    fn beginning(&self, place: u32) -> &[AtomicU32] {
        assert!(place < PLACES, "a place outside of its ledger");
        self.mapping.words(HEAD_WORDS + place as usize * PLACE_WORDS + BEGINNING, BEGINNING_BYTES / 4)
    }

    fn stamp(&self, place: u32) {
        self.at(place, SINCE).store(now_ms(), Ordering::Release);
    }

    fn seen(&self, place: u32) -> u32 {
        self.at(place, STATE).load(Ordering::SeqCst)
    }

    fn swap(&self, place: u32, from: u32, to: u32) -> bool {
        self.at(place, STATE).compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub fn state(&self, place: u32) -> State {
        State::of(self.seen(place))
    }

    /// Time since its state changed last.
    pub fn age(&self, place: u32) -> Duration {
        passed_since(self.at(place, SINCE).load(Ordering::Acquire))
    }

    // ---- for the front

    /// A connection is on its way to the worker. The place must be free. Returns the turn of its first request.
    pub fn pass(&self, place: u32) -> Turn {
        self.stamp(place);
        let passed = Turn { place, number: self.seen(place) & NUMBER };
        self.at(place, STATE).store(passed.word(State::Sent), Ordering::SeqCst);
        passed.next()
    }

    /// Takes a connection back on which nothing runs. Returns what it was: `Sent` or `Idle`; none: the worker has it.
    pub fn take(&self, place: u32) -> Option<State> {
        let seen = self.seen(place);
        let state = State::of(seen);
        let rests = matches!(state, State::Sent | State::Idle);
        (rests && self.swap(place, seen, (seen & NUMBER) | State::Taken as u32)).then_some(state)
    }

    /// The worker has said that it is done with it, or has died.
    pub fn free(&self, place: u32) {
        let number = self.seen(place) & NUMBER;
        self.at(place, STATE).store(number | State::Free as u32, Ordering::SeqCst);
    }

    pub fn want_back(&self, wanted: WantedBack) {
        self.mapping.word(WANTED_BACK).store(wanted as u32, Ordering::SeqCst);
    }

    /// Whether the worker has something to do with it, or will have.
    pub fn is_at_work(&self, place: u32) -> bool {
        matches!(self.state(place), State::Sent | State::Busy | State::Answering)
    }

    /// Whether a request runs that is not adopted.
    pub fn is_unknown(&self, place: u32) -> bool {
        let seen = self.seen(place);
        seen & ADOPTED == 0 && matches!(State::of(seen), State::Busy | State::Answering)
    }

    /// The request that runs for so long or longer, or whose response has no end, unless it is adopted.
    pub fn runs_for(&self, place: u32, long: Duration) -> Option<Noted> {
        let seen = self.seen(place);
        if seen & ADOPTED != 0 || !matches!(State::of(seen), State::Busy | State::Answering) {
            return None;
        }
        // Before the age, which is stamped before it is written.
        let word = self.at(place, WORD).load(Ordering::Acquire);
        let age = self.age(place);
        let (turn, beginning) = self.noted(place)?;
        if age < long && !self.is_endless(turn) {
            return None;
        }
        Some(Noted { turn, age, word: Some(word).filter(|word| *word != NO_WORD), beginning, word_seen: seen })
    }

    /// The request that was noted last, and its first bytes; none: no whole one is here.
    pub fn noted(&self, place: u32) -> Option<(Turn, [u8; BEGINNING_BYTES])> {
        let turn = Turn { place, number: self.seen(place) & NUMBER };
        if self.at(place, WORD).load(Ordering::Acquire) == NOTHING {
            return None;
        }
        let mut beginning = [0; BEGINNING_BYTES];
        for (four, kept) in beginning.chunks_exact_mut(4).zip(self.beginning(place)) {
            four.copy_from_slice(&kept.load(Ordering::Relaxed).to_le_bytes());
        }
        Some((turn, beginning))
    }

    /// Begins to adopt a request; false: it has ended, or goes on otherwise: to be looked at again. What follows at once is
    /// [`Ledger::adopted`]: its worker may wait for that.
    pub fn adopt(&self, noted: &Noted) -> bool {
        let place = noted.turn.place;
        self.at(place, ADOPTION).store(UNDER_WAY, Ordering::SeqCst);
        self.swap(place, noted.word_seen, noted.word_seen | ADOPTED)
    }

    /// The pool knows it now; none: it has not taken it.
    pub fn adopted(&self, turn: Turn, adoption: Option<Adoption>) {
        if let Some(Adoption { id, word, next_word }) = adoption {
            for (at, value) in [(ID, id as u32), (ID + 1, (id >> 32) as u32), (OWN_WORD, word), (NEXT_WORD, next_word)]
            {
                self.at(turn.place, at).store(value, Ordering::Relaxed);
            }
        }
        let done = if adoption.is_some() { DONE } else { REFUSED };
        self.at(turn.place, ADOPTION).store(done, Ordering::Release);
    }

    /// Takes the connection of an adopted request of whose response nothing is written; false: some is, or it has ended.
    pub fn take_unanswered(&self, turn: Turn) -> bool {
        self.swap(turn.place, turn.word(State::Busy) | ADOPTED, turn.word(State::Taken) | ADOPTED)
    }

    /// Whether this is the request that runs.
    pub fn runs(&self, turn: Turn) -> bool {
        let seen = self.seen(turn.place);
        seen & NUMBER == turn.number && matches!(State::of(seen), State::Busy | State::Answering)
    }

    /// Time that the client of a response which has begun has been ready for more of it; none: it has something to take.
    pub fn pause(&self, turn: Turn) -> Option<Duration> {
        let since = self.at(turn.place, READY_SINCE).load(Ordering::Acquire);
        (self.runs(turn) && !self.is_unanswered(turn) && since != 0).then(|| passed_since(since))
    }

    /// Whether this is the request that runs, and nothing of its response is written.
    pub fn is_unanswered(&self, turn: Turn) -> bool {
        self.runs(turn) && self.seen(turn.place) & BEGUN == 0
    }

    /// Status of the response of the request that was noted last; none: it has none yet.
    pub fn status(&self, place: u32) -> Option<u16> {
        let status = self.at(place, STATUS).load(Ordering::Relaxed) & !ENDLESS;
        u16::try_from(status).ok().filter(|status| *status > 0)
    }

    /// Whether this is the request that runs, and its response has no end of its own.
    pub fn is_endless(&self, turn: Turn) -> bool {
        self.at(turn.place, STATUS).load(Ordering::Acquire) & ENDLESS != 0 && self.runs(turn)
    }

    // ---- for the worker

    /// Claims a connection to read from it; none: the front has taken it back.
    pub fn begin(&self, place: u32) -> Option<Turn> {
        let seen = self.seen(place);
        if !matches!(State::of(seen), State::Sent | State::Idle) {
            return None;
        }
        let turn = Turn { place, number: seen & NUMBER }.next();
        // Before it is busy: else it would look as if it had been so since its last change.
        self.at(place, WORD).store(NOTHING, Ordering::Relaxed);
        self.stamp(place);
        self.swap(place, seen, turn.word(State::Busy)).then_some(turn)
    }

    /// What runs from now on. `word`: of the board, by which it is stopped; [`NO_WORD`]: it has none of its own. `request`: its bytes.
    pub fn note(&self, turn: Turn, word: u32, request: &[u8]) {
        let mut beginning = [0; BEGINNING_BYTES];
        let count = request.len().min(BEGINNING_BYTES);
        beginning[..count].copy_from_slice(&request[..count]);
        for (four, kept) in beginning.chunks_exact(4).zip(self.beginning(turn.place)) {
            kept.store(u32::from_le_bytes([four[0], four[1], four[2], four[3]]), Ordering::Relaxed);
        }
        // It may have come behind another one, or in parts.
        self.stamp(turn.place);
        self.at(turn.place, READY_SINCE).store(0, Ordering::Relaxed);
        self.at(turn.place, STATUS).store(0, Ordering::Relaxed);
        self.set_word(turn, word);
    }

    /// It has another word of the board.
    pub fn set_word(&self, turn: Turn, word: u32) {
        self.at(turn.place, WORD).store(word, Ordering::Release);
    }

    /// Bytes of the response are about to be written; false: the front has taken the connection, and nobody reads them.
    pub fn answers(&self, turn: Turn) -> bool {
        loop {
            let seen = self.seen(turn.place);
            if seen & NUMBER != turn.number {
                return false;
            }
            match State::of(seen) {
                State::Answering if seen & BEGUN != 0 => return true,
                State::Busy | State::Answering => {
                    let begun = turn.word(State::Answering) | BEGUN | (seen & ADOPTED);
                    if self.swap(turn.place, seen, begun) {
                        return true;
                    }
                }
                _ => return false,
            }
        }
    }

    /// The response has this status, and perhaps no end of its own.
    pub fn has_status(&self, turn: Turn, status: u16, is_endless: bool) {
        let endless = if is_endless { ENDLESS } else { 0 };
        self.at(turn.place, STATUS).store(u32::from(status) | endless, Ordering::Release);
    }

    /// All of a response is sent that was given so far. `more`: its client waits for more; else it does not, as long as it has
    /// something to take, or nobody says when there will be more.
    pub fn pauses(&self, turn: Turn, more: bool) {
        let since = if more { now_ms().max(1) } else { 0 };
        self.at(turn.place, READY_SINCE).store(since, Ordering::Release);
    }

    /// The response is over, though perhaps not all of it is sent: from now on it is nobody's work any more.
    pub fn over(&self, turn: Turn) -> Ended {
        let next = turn.next();
        loop {
            let seen = self.seen(turn.place);
            if seen & NUMBER != turn.number || !matches!(State::of(seen), State::Busy | State::Answering) {
                return Ended::Taken;
            }
            let adoption = if seen & ADOPTED != 0 { self.adoption(turn.place) } else { None };
            self.at(turn.place, WORD).store(NOTHING, Ordering::Relaxed);
            // The adoption ends with the number: in between the front could adopt the request again.
            if self.swap(turn.place, seen, next.word(State::of(seen))) {
                return Ended::Done { next, adoption };
            }
        }
    }

    /// Another request follows one that is [over](Ledger::over). `is_sent`: nothing is left of that one's response; else nobody
    /// else may write to the connection.
    pub fn follows(&self, turn: Turn, is_sent: bool) {
        self.stamp(turn.place);
        let state = if is_sent { State::Busy } else { State::Answering };
        self.at(turn.place, STATE).store(turn.word(state), Ordering::SeqCst);
    }

    /// Nothing is left of the response before the request that [follows](Ledger::follows): of its own nothing is written.
    pub fn caught_up(&self, turn: Turn) {
        let seen = self.seen(turn.place);
        if seen & (NUMBER | BEGUN) == turn.number && State::of(seen) == State::Answering {
            // It fails where the front adopts the request meanwhile.
            let busy = |adopted| turn.word(State::Busy) | adopted;
            let _ = self.swap(turn.place, seen, busy(seen & ADOPTED))
                || self.swap(turn.place, seen | ADOPTED, busy(ADOPTED));
        }
    }

    /// All is sent: either side may claim the connection from now on. To be told of a request that is [over](Ledger::over), or
    /// where there was none.
    pub fn rest(&self, turn: Turn) {
        self.stamp(turn.place);
        self.at(turn.place, STATE).store(turn.word(State::Idle), Ordering::SeqCst);
    }

    /// The adoption of a request that is not over, or whose connection the front has taken: waits for that if it is under
    /// way. None: it was not adopted. To be asked before the place is freed.
    pub fn adoption_of(&self, turn: Turn) -> Option<Adoption> {
        let seen = self.seen(turn.place);
        (seen & NUMBER == turn.number && seen & ADOPTED != 0).then(|| self.adoption(turn.place)).flatten()
    }

    /// The front is in the middle of it, at most.
    fn adoption(&self, place: u32) -> Option<Adoption> {
        let done = loop {
            match self.at(place, ADOPTION).load(Ordering::Acquire) {
                UNDER_WAY => std::thread::yield_now(),
                done => break done,
            }
        };
        let of = |word| self.at(place, word).load(Ordering::Relaxed);
        let id = u64::from(of(ID)) | u64::from(of(ID + 1)) << 32;
        (done == DONE).then(|| Adoption { id, word: of(OWN_WORD), next_word: of(NEXT_WORD) })
    }

    /// Claims a connection that rests, to hand it back; false: the front has taken it.
    pub fn hand_back(&self, place: u32) -> bool {
        self.begin(place).is_some()
    }

    /// Whether each connection is to be handed back as soon as its response is over. To be asked after [`Ledger::rest`]: then
    /// whoever is to take it back either sees it rest or is asked for it here.
    pub fn is_wanted_back(&self) -> bool {
        self.mapping.word(WANTED_BACK).load(Ordering::SeqCst) != WantedBack::No as u32
    }

    /// Whether the front serves no further request on any of them.
    pub fn is_last(&self) -> bool {
        self.mapping.word(WANTED_BACK).load(Ordering::SeqCst) == WantedBack::Last as u32
    }
}

fn passed_since(since: u32) -> Duration {
    // Another processor's clock may be a moment ahead.
    let age = now_ms().wrapping_sub(since) as i32;
    Duration::from_millis(u64::try_from(age).unwrap_or_default())
}

/// At the last tick of the clock. Wraps: only differences are looked at.
fn now_ms() -> u32 {
    (sys::coarse_ns() / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Who may read from the connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Owner {
        Nobody,
        Worker,
        Front,
    }

    proptest! {
        /// However the two sides come in turn, one of them at most has a connection, and neither loses it; each adoption is
        /// told to the worker once, for the request that it is of.
        #[test]
        fn a_connection_has_one_reader(turns in prop::collection::vec((any::<bool>(), 0..6u8), 1..80)) {
            let (ledger, descriptor) = Ledger::create().expect("a page");
            let worker = Ledger::open(descriptor).expect("the same page");
            let (mut owner, mut turn, mut answers, mut written) = (Owner::Front, None, false, false);
            // Ids of adoptions, and the request that each is of.
            let (mut requests, mut adopted) = (0u64, None);
            for (is_front, what) in turns {
                match (is_front, what, owner) {
                    (true, 0, Owner::Front) => {
                        ledger.free(7);
                        ledger.pass(7);
                        (owner, adopted) = (Owner::Nobody, None);
                    }
                    (true, 1, _) => {
                        let taken = ledger.take(7);
                        prop_assert_eq!(taken.is_some(), owner == Owner::Nobody && ledger.state(7) == State::Taken);
                        if taken.is_some() {
                            owner = Owner::Front;
                        }
                    }
                    (true, 2, _) => {
                        let noted = ledger.runs_for(7, Duration::ZERO);
                        prop_assert_eq!(noted.is_some(), owner == Owner::Worker && adopted.is_none());
                        if let Some(noted) = noted {
                            prop_assert_eq!(noted.beginning[0], requests as u8);
                            prop_assert_eq!(ledger.is_unanswered(noted.turn), !written);
                            prop_assert!(ledger.adopt(&noted));
                            let adoption = Adoption { id: requests << 32 | 5, word: 1, next_word: 2 };
                            ledger.adopted(noted.turn, Some(adoption));
                            adopted = Some((noted.turn, adoption));
                        }
                    }
                    (true, 3, _) => {
                        let Some((of, _)) = adopted else { continue };
                        let taken = ledger.take_unanswered(of);
                        prop_assert_eq!(taken, owner == Owner::Worker && !answers);
                        if taken {
                            owner = Owner::Front;
                        }
                    }
                    (false, 0, _) => {
                        let begun = worker.begin(7);
                        prop_assert_eq!(begun.is_some(), owner == Owner::Nobody);
                        if let Some(begun) = begun {
                            (owner, turn, answers, requests) = (Owner::Worker, Some(begun), false, requests + 1);
                            written = false;
                            worker.note(begun, NO_WORD, &[requests as u8]);
                        }
                    }
                    (false, 1, _) => {
                        let Some(turn) = turn else { continue };
                        let may = worker.answers(turn);
                        prop_assert_eq!(may, owner == Owner::Worker);
                        (answers, written) = (answers | may, written | may);
                    }
                    (false, what, _) => {
                        let (Some(now), follows) = (turn, what % 2 == 0) else { continue };
                        let known = adopted.map(|(_, adoption)| adoption);
                        match worker.over(now) {
                            Ended::Taken => {
                                prop_assert_ne!(owner, Owner::Worker);
                                turn = None;
                            }
                            Ended::Done { next, adoption } => {
                                prop_assert_eq!((owner, adoption), (Owner::Worker, known));
                                adopted = None;
                                prop_assert!(ledger.runs_for(7, Duration::ZERO).is_none());
                                if follows {
                                    let is_sent = what == 2;
                                    worker.follows(next, is_sent);
                                    (turn, answers, requests) = (Some(next), !is_sent, requests + 1);
                                    written = false;
                                    worker.note(next, NO_WORD, &[requests as u8]);
                                } else {
                                    worker.rest(next);
                                    (turn, owner) = (None, Owner::Nobody);
                                }
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn a_request_that_is_not_whole_is_not_adopted_and_one_that_was_taken_tells_its_id() {
        let (ledger, descriptor) = Ledger::create().expect("a page");
        let worker = Ledger::open(descriptor).expect("the same page");
        ledger.pass(3);
        let turn = worker.begin(3).expect("the connection");
        assert!(ledger.is_unknown(3) && ledger.runs_for(3, Duration::ZERO).is_none());
        worker.note(turn, 9, b"GET /a");
        assert!(ledger.runs_for(3, Duration::from_secs(60)).is_none());
        let noted = ledger.runs_for(3, Duration::ZERO).expect("it runs");
        assert_eq!((noted.word, &noted.beginning[..7]), (Some(9), &b"GET /a\0"[..]));
        let adoption = Adoption { id: 1 << 40, word: 9, next_word: 10 };
        assert!(ledger.adopt(&noted) && !ledger.adopt(&noted) && !ledger.is_unknown(3));
        ledger.adopted(noted.turn, Some(adoption));
        assert!(ledger.runs_for(3, Duration::ZERO).is_none() && ledger.runs(turn) && ledger.take_unanswered(turn));
        assert_eq!((worker.adoption_of(turn), worker.answers(turn)), (Some(adoption), false));
        assert_eq!(worker.over(turn), Ended::Taken);
    }

    #[test]
    fn what_the_pool_does_not_take_is_not_asked_for_again() {
        let (ledger, descriptor) = Ledger::create().expect("a page");
        let worker = Ledger::open(descriptor).expect("the same page");
        ledger.pass(3);
        let turn = worker.begin(3).expect("the connection");
        worker.note(turn, NO_WORD, b"");
        let noted = ledger.runs_for(3, Duration::ZERO).expect("it runs");
        assert!(ledger.adopt(&noted));
        ledger.adopted(turn, None);
        assert!(ledger.runs_for(3, Duration::ZERO).is_none());
        assert_eq!(worker.over(turn), Ended::Done { next: turn.next(), adoption: None });
    }

    #[test]
    fn a_request_behind_another_one_has_its_own_response() {
        let (ledger, descriptor) = Ledger::create().expect("a page");
        let worker = Ledger::open(descriptor).expect("the same page");
        let first = ledger.pass(3);
        assert_eq!((worker.begin(3), ledger.noted(3)), (Some(first), None));
        worker.note(first, 9, b"GET /a");
        assert!(ledger.is_unanswered(first) && worker.answers(first) && !ledger.is_unanswered(first));
        let Ended::Done { next: second, .. } = worker.over(first) else { panic!("it is the front's") };
        assert!(ledger.noted(3).is_none() && !ledger.runs(first));
        worker.follows(second, false);
        worker.note(second, 9, b"GET /b");
        assert!(ledger.is_unanswered(second), "though of the first something may not be sent");
        assert_eq!(ledger.noted(3).map(|(turn, beginning)| (turn, beginning[5])), Some((second, b'b')));
        assert!(worker.answers(second) && !ledger.is_unanswered(second));
        worker.caught_up(second);
        assert_eq!(ledger.state(3), State::Answering, "something of its own is written");
    }

    #[test]
    fn a_request_behind_a_response_that_is_sent_can_be_answered_by_the_front() {
        for is_adopted_late in [false, true] {
            let (ledger, descriptor) = Ledger::create().expect("a page");
            let worker = Ledger::open(descriptor).expect("the same page");
            ledger.pass(3);
            let first = worker.begin(3).expect("the connection");
            worker.note(first, 9, b"GET /a");
            assert!(worker.answers(first));
            let Ended::Done { next: second, .. } = worker.over(first) else { panic!("it is the front's") };
            worker.follows(second, false);
            worker.note(second, 9, b"GET /b");
            let adopt = || {
                let noted = ledger.runs_for(3, Duration::ZERO).expect("it runs");
                assert!(ledger.adopt(&noted));
                ledger.adopted(second, Some(Adoption { id: 5, word: 9, next_word: 10 }));
            };
            if !is_adopted_late {
                adopt();
                assert!(!ledger.take_unanswered(second), "of the first something may not be sent");
            }
            worker.caught_up(first);
            assert_eq!(ledger.state(3), State::Answering);
            worker.caught_up(second);
            if is_adopted_late {
                adopt();
            }
            assert!(ledger.is_unanswered(second) && ledger.take_unanswered(second));
            worker.caught_up(second);
            assert_eq!(ledger.state(3), State::Taken);
        }
    }

    #[test]
    fn a_pause_is_one_of_the_app_while_its_client_waits() {
        let (ledger, descriptor) = Ledger::create().expect("a page");
        let worker = Ledger::open(descriptor).expect("the same page");
        ledger.pass(3);
        let turn = worker.begin(3).expect("the connection");
        worker.note(turn, NO_WORD, b"GET /a");
        assert_eq!(ledger.pause(turn), None, "nothing is written");
        assert!(worker.answers(turn));
        assert_eq!(ledger.pause(turn), None);
        worker.pauses(turn, true);
        assert!(ledger.pause(turn).is_some_and(|pause| pause < Duration::from_secs(60)));
        worker.pauses(turn, false);
        assert_eq!(ledger.pause(turn), None);
        worker.pauses(turn, true);
        let Ended::Done { next, .. } = worker.over(turn) else { panic!("it is the front's") };
        assert_eq!(ledger.pause(turn), None);
        worker.note(next, NO_WORD, b"GET /b");
        assert!(worker.answers(next));
        assert_eq!(ledger.pause(next), None);
    }

    #[test]
    fn what_is_wanted_back_is_seen_by_the_worker() {
        let (ledger, descriptor) = Ledger::create().expect("a page");
        let worker = Ledger::open(descriptor).expect("the same page");
        assert!(!worker.is_wanted_back());
        ledger.want_back(WantedBack::Yes);
        ledger.pass(0);
        assert!(worker.is_wanted_back() && !worker.is_last() && worker.hand_back(0) && ledger.take(0).is_none());
        assert!(ledger.age(0) < Duration::from_secs(60));
        ledger.want_back(WantedBack::No);
        assert!(!worker.is_wanted_back());
        ledger.want_back(WantedBack::Last);
        assert!(worker.is_wanted_back() && worker.is_last());
    }

    #[test]
    fn a_request_whose_response_has_no_end_is_adopted_at_once() {
        const LONG: Duration = Duration::from_secs(3600);
        let (ledger, _descriptor) = Ledger::create().expect("a page");
        ledger.pass(3);
        let turn = ledger.begin(3).expect("a connection");
        ledger.note(turn, NO_WORD, b"GET /events");
        ledger.has_status(turn, 200, false);
        assert!(!ledger.is_endless(turn) && ledger.runs_for(3, LONG).is_none());
        ledger.has_status(turn, 200, true);
        assert!(ledger.is_endless(turn) && ledger.status(3) == Some(200));
        assert_eq!(ledger.runs_for(3, LONG).map(|noted| noted.turn), Some(turn));
        ledger.over(turn);
        assert!(!ledger.is_endless(turn));
    }
}
