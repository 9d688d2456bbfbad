//! Enqueues of many callers at a time: how they share the connections to their store.
//!
//! With [`Strategy::Pipelined`], the default, whoever finds nobody at work leads: it takes along all that waits, in one
//! trip to the store (on SQLite one commit), and hands the lead on. So batches grow with the load, and nobody waits for
//! a timer. Every enqueue returns only when the store has confirmed it; where the store does not answer a trip, all
//! that wait fail with it, rather than one trip after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;

use crate::job::NewJob;
use crate::store::{Enqueued, Result, Store, StoreError};

/// Strategy by which callers share connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A single connection, one caller at a time.
    Single,
    /// A few connections, each enqueue by one at random.
    Pool,
    /// A few connections, each enqueue by one that is free.
    Checkout,
    /// A single connection, which takes all that waits in one trip.
    #[default]
    Pipelined,
}

impl Strategy {
    pub const ALL: [(&str, Strategy); 4] = [
        ("single", Strategy::Single),
        ("pool", Strategy::Pool),
        ("checkout", Strategy::Checkout),
        ("pipelined", Strategy::Pipelined),
    ];

    pub fn named(name: &str) -> Option<Strategy> {
        Strategy::ALL.into_iter().find_map(|(known, strategy)| (known == name).then_some(strategy))
    }
}

/// Most jobs that one caller enqueues at a time: the store does nothing for others meanwhile.
const JOBS_MAX: usize = 100_000;

/// Most jobs of one trip, and most bytes of what they carry; one entry may have more.
const TRIP_JOBS_MAX: usize = 1000;
const TRIP_BYTES_MAX: usize = 8 << 20;

/// After how long the failure of a trip is one of all that wait.
const SLOW: Duration = Duration::from_secs(1);

/// Called with what became of the jobs, in any thread.
pub type Done = Box<dyn FnOnce(Result<Vec<Enqueued>>) + Send>;

/// Maximum wait of the thread before it checks whether anybody can still leave something for it.
const THREAD_WAIT: Duration = Duration::from_secs(1);

/// Message to a waiting caller.
enum Told {
    /// The caller's turn to lead.
    Lead,
    Enqueued(Result<Vec<Enqueued>>),
}

/// Place of a waiting caller.
#[derive(Default)]
struct Seat {
    told: Mutex<Option<Told>>,
    changed: Condvar,
}

impl Seat {
    fn tell(&self, told: Told) {
        *self.told.lock() = Some(told);
        self.changed.notify_one();
    }

    fn wait(&self) -> Told {
        loop {
            let mut told = self.changed.wait(self.told.lock(), Option::is_some);
            if let Some(told) = told.take() {
                return told;
            }
        }
    }
}

enum Waiting {
    Caller(Arc<Seat>),
    Callback(Done),
}

struct Pending {
    jobs: Vec<NewJob>,
    bytes: usize,
    waiting: Waiting,
}

impl Pending {
    fn new(jobs: Vec<NewJob>, waiting: Waiting) -> Pending {
        Pending { bytes: jobs.iter().map(NewJob::bytes).sum(), jobs, waiting }
    }
}

impl Waiting {
    fn tell(self, enqueued: Result<Vec<Enqueued>>) {
        match self {
            Waiting::Caller(seat) => seat.tell(Told::Enqueued(enqueued)),
            Waiting::Callback(done) => done(enqueued),
        }
    }
}

#[derive(Default)]
struct WaitingLine {
    entries: VecDeque<Pending>,
    is_led: bool,
    /// There is a thread, which leads for those that only left a callback.
    has_thread: bool,
    /// True when the thread's turn to lead has come.
    is_threads_turn: bool,
}

/// Enqueues in one store.
pub struct Enqueuer {
    strategy: Strategy,
    /// Stores, one for each connection.
    stores: Vec<Arc<dyn Store>>,
    /// Free stores, with [`Strategy::Checkout`].
    free: Mutex<Vec<usize>>,
    freed: Condvar,
    turn: AtomicUsize,
    line: Mutex<WaitingLine>,
    /// The thread has something to lead.
    to_lead: Condvar,
}

impl Enqueuer {
    /// `stores`: the same store, opened as often as there are to be connections; at least once.
    pub fn new(strategy: Strategy, stores: Vec<Arc<dyn Store>>) -> Arc<Enqueuer> {
        Arc::new(Enqueuer {
            strategy,
            free: Mutex::new((0..stores.len()).collect()),
            freed: Condvar::new(),
            turn: AtomicUsize::new(0),
            stores,
            line: Mutex::default(),
            to_lead: Condvar::new(),
        })
    }

    /// All of the jobs or none; blocks until the store has confirmed it.
    pub fn enqueue(&self, mut jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.check(&jobs)?;
        match self.strategy {
            Strategy::Single => self.put(0, &mut jobs),
            Strategy::Pool => {
                let at = self.turn.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9) % self.stores.len();
                self.put(at, &mut jobs)
            }
            Strategy::Checkout => {
                let mut free = self.freed.wait(self.free.lock(), |free| !free.is_empty());
                let at = free.pop().unwrap_or_default();
                drop(free);
                let enqueued = self.put(at, &mut jobs);
                self.free.lock().push(at);
                self.freed.notify_one();
                enqueued
            }
            Strategy::Pipelined => self.enqueue_together(jobs),
        }
    }

    /// Returns at once; `done` is called by a thread that serves the store. It must not block.
    pub fn enqueue_soon(self: &Arc<Enqueuer>, jobs: Vec<NewJob>, done: Done) -> Result<()> {
        self.check(&jobs)?;
        let mut line = self.line.lock();
        if !line.has_thread {
            let this = Arc::downgrade(self);
            let lead = move || {
                sys::block_signals();
                while let Some(enqueuer) = this.upgrade() {
                    enqueuer.lead_in_thread();
                }
            };
            let spawned = std::thread::Builder::new().name("clutch-enqueue".to_owned()).spawn(lead);
            let refused = |error| StoreError::Refused(format!("no thread can be had to enqueue in: {error}"));
            spawned.map_err(refused)?;
            line.has_thread = true;
        }
        line.entries.push_back(Pending::new(jobs, Waiting::Callback(done)));
        if !line.is_led {
            line.is_led = true;
            self.hand_on(&mut line);
        }
        Ok(())
    }

    fn enqueue_together(&self, mut jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        let mut line = self.line.lock();
        if !line.is_led {
            line.is_led = true;
            drop(line);
            // Nobody waits: this is the common case of one caller.
            return self.trip(&mut jobs);
        }
        let seat = Arc::<Seat>::default();
        line.entries.push_back(Pending::new(jobs, Waiting::Caller(seat.clone())));
        drop(line);
        loop {
            match seat.wait() {
                Told::Enqueued(enqueued) => return enqueued,
                Told::Lead => self.lead(),
            }
        }
    }

    fn lead_in_thread(&self) {
        let until = Instant::now() + THREAD_WAIT;
        let (mut line, is_due) = self.to_lead.wait_until(self.line.lock(), until, |line| line.is_threads_turn);
        line.is_threads_turn = false;
        drop(line);
        if is_due {
            self.lead();
        }
    }

    /// Before a job joins others, which it would take along.
    fn check(&self, jobs: &[NewJob]) -> Result<()> {
        if jobs.len() > JOBS_MAX {
            let count = jobs.len();
            return Err(StoreError::Refused(format!("{count} jobs at a time: at most {JOBS_MAX} are taken")));
        }
        jobs.iter().try_for_each(|job| {
            job.check().map_err(StoreError::Refused)?;
            self.stores[0].check(job)
        })
    }

    /// Durations begin here, where the clock of the store is known: whoever only leaves jobs does not wait for it.
    fn put(&self, at: usize, jobs: &mut [NewJob]) -> Result<Vec<Enqueued>> {
        let store = &self.stores[at];
        let now = store.read_clock()?;
        jobs.iter_mut().for_each(|job| job.begin_at(now));
        store.enqueue(jobs, now)
    }

    /// Makes one trip with all that waits; then another caller leads.
    fn lead(&self) {
        let (mut jobs, waiting) = self.take_trip();
        let mut enqueued = self.trip(&mut jobs).map(Vec::into_iter);
        let is_of_one = match &enqueued {
            Ok(_) | Err(StoreError::Unavailable { .. }) => false,
            Err(StoreError::Refused(_) | StoreError::Damaged { .. }) => true,
            Err(StoreError::Unusable { .. }) => self.stores[0].undoes(),
        };
        if is_of_one && waiting.len() > 1 {
            return self.tell_each(&mut jobs, waiting);
        }
        for (count, waiting) in waiting {
            waiting.tell(match &mut enqueued {
                Ok(enqueued) => Ok(enqueued.by_ref().take(count).collect()),
                Err(error) => Err(error.clone()),
            });
        }
    }

    /// One of them is refused, and nothing was written: each goes by itself, and has its own answer.
    fn tell_each(&self, mut jobs: &mut [NewJob], waiting: Vec<(usize, Waiting)>) {
        for (count, waiting) in waiting {
            let (own, others) = jobs.split_at_mut(count);
            waiting.tell(self.put(0, own));
            jobs = others;
        }
    }

    /// Enqueues, and hands the lead on.
    fn trip(&self, jobs: &mut [NewJob]) -> Result<Vec<Enqueued>> {
        let since = Instant::now();
        let enqueued = self.put(0, jobs);
        let mut line = self.line.lock();
        let failed = match &enqueued {
            Err(StoreError::Unavailable { .. }) if since.elapsed() >= SLOW => std::mem::take(&mut line.entries),
            _ => VecDeque::new(),
        };
        self.hand_on(&mut line);
        drop(line);
        if let Err(error) = &enqueued {
            failed.into_iter().for_each(|entry| entry.waiting.tell(Err(error.clone())));
        }
        enqueued
    }

    /// The jobs of those at the head of the line, and who waits for how many of them.
    fn take_trip(&self) -> (Vec<NewJob>, Vec<(usize, Waiting)>) {
        let mut line = self.line.lock();
        let (mut jobs, mut waiting, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = line.entries.front() {
            let fits = jobs.len() + next.jobs.len() <= TRIP_JOBS_MAX && bytes + next.bytes <= TRIP_BYTES_MAX;
            if !fits && !jobs.is_empty() {
                break;
            }
            let Some(entry) = line.entries.pop_front() else { break };
            bytes += entry.bytes;
            waiting.push((entry.jobs.len(), entry.waiting));
            jobs.extend(entry.jobs);
        }
        (jobs, waiting)
    }

    /// The first that waits leads; none: whoever comes next.
    fn hand_on(&self, line: &mut WaitingLine) {
        match line.entries.front() {
            None => line.is_led = false,
            Some(Pending { waiting: Waiting::Caller(seat), .. }) => seat.tell(Told::Lead),
            Some(Pending { waiting: Waiting::Callback(_), .. }) => {
                line.is_threads_turn = true;
                self.to_lead.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::stores;

    /// A trigger of the application's refuses some rows: whoever goes along with them is not refused.
    #[test]
    fn a_refusal_is_the_one_of_who_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs.db");
        let store = stores::open(&format!("sqlite:///{}", file.display())).unwrap();
        let trigger = "CREATE TRIGGER app_refuses BEFORE INSERT ON clutch_jobs WHEN new.tool = 'odd' \
                       BEGIN SELECT RAISE(ABORT, 'the application refuses'); END";
        rusqlite::Connection::open(&file).unwrap().execute(trigger, []).unwrap();
        let enqueuer = Enqueuer::new(Strategy::Pipelined, vec![store.clone()]);
        let seats: Vec<Arc<Seat>> = (0..6).map(|_| Arc::default()).collect();
        for (nr, seat) in seats.iter().enumerate() {
            let tool = if nr == 2 { "odd" } else { "send" };
            let jobs = vec![NewJob::new("default", tool, RawValue::from_string("{}".to_owned()).unwrap()); 2];
            enqueuer.line.lock().entries.push_back(Pending::new(jobs, Waiting::Caller(seat.clone())));
        }
        enqueuer.lead();
        for (nr, seat) in seats.iter().enumerate() {
            match seat.wait() {
                Told::Enqueued(Ok(enqueued)) => assert!(nr != 2 && enqueued.len() == 2),
                Told::Enqueued(Err(error)) => assert!(nr == 2 && error.to_string().contains("the application refuses")),
                Told::Lead => panic!("all went along"),
            }
        }
        assert_eq!(store.queues().unwrap()[0].available, 10);
    }

    #[test]
    fn a_trip_has_bounds_but_for_its_first_entry() {
        let folder = tempfile::tempdir().unwrap();
        let store = stores::open(&format!("sqlite:///{}/jobs.db", folder.path().display())).unwrap();
        let enqueuer = Enqueuer::new(Strategy::Pipelined, vec![store]);
        let add = |count: usize, bytes: usize| {
            let arguments = RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
            let jobs = vec![NewJob::new("default", "send", arguments); count];
            enqueuer.line.lock().entries.push_back(Pending::new(jobs, Waiting::Caller(Arc::default())));
        };
        let half = TRIP_BYTES_MAX / 2;
        for (count, bytes) in [(1, half), (1, half), (1, 2), (TRIP_JOBS_MAX, 2), (TRIP_JOBS_MAX + 1, 2), (3, half)] {
            add(count, bytes);
        }
        let mut trips = Vec::new();
        while !enqueuer.line.lock().entries.is_empty() {
            trips.push(enqueuer.take_trip().0.len());
        }
        assert_eq!(trips, [2, 1, TRIP_JOBS_MAX, TRIP_JOBS_MAX + 1, 3]);
    }
}
