//! Responses that wait for others to be sent together, and a thread that sends them when what runs in between takes long: it
//! needs no Python, which the code that runs may hold for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;

/// What is there waits for more so long at most.
pub const UNSENT_MAX: Duration = Duration::from_millis(1);

/// Looks without anything to send after which the thread sleeps until it is woken.
const LOOKS_MAX: u32 = 50;

/// Where looks find nothing late, the time between them grows up to this.
const LOOK_MAX: Duration = UNSENT_MAX.saturating_mul(6);

/// Interval at which a thread that sleeps looks whether it is still wanted.
const WANTED_LOOK: Duration = Duration::from_secs(10);

/// Connections with something to send.
pub struct Unsent<T> {
    waiting: Mutex<Waiting<T>>,
    /// Changed with what waits, for those that only look.
    is_empty: AtomicBool,
    is_asleep: Mutex<bool>,
    woken: Condvar,
}

struct Waiting<T> {
    /// Of the first.
    since: Option<Instant>,
    connections: Vec<T>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting { since: None, connections: Vec::new() }
    }
}

impl<T: Clone + Send + 'static> Unsent<T> {
    /// `send_early`: sends of one what can be sent without Python.
    pub fn watched(send_early: fn(&T)) -> Arc<Unsent<T>> {
        let (waiting, is_asleep, woken) = (Mutex::default(), Mutex::default(), Condvar::new());
        let unsent = Arc::new(Unsent { waiting, is_empty: AtomicBool::new(true), is_asleep, woken });
        let watched = Arc::downgrade(&unsent);
        // Without the thread they wait for what runs in between.
        let _ = std::thread::Builder::new().name("clutch-early".to_owned()).spawn(move || watch(&watched, send_early));
        unsent
    }

    pub fn push(&self, connection: T) {
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.connections.push(connection);
            let is_first = waiting.since.is_none();
            if is_first {
                waiting.since = Some(Instant::now());
                self.is_empty.store(false, Ordering::Relaxed);
            }
            is_first
        };
        if is_first && std::mem::take(&mut *self.is_asleep.lock()) {
            self.woken.notify_one();
        }
    }

    pub fn take(&self) -> Vec<T> {
        let mut waiting = self.waiting.lock();
        self.is_empty.store(true, Ordering::Relaxed);
        std::mem::take(&mut *waiting).connections
    }

    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Relaxed)
    }

    /// Those that have waited too long, and whether any wait.
    fn late(&self) -> (Vec<T>, bool) {
        let waiting = self.waiting.lock();
        let is_late = waiting.since.is_some_and(|since| since.elapsed() >= UNSENT_MAX);
        (if is_late { waiting.connections.clone() } else { Vec::new() }, waiting.since.is_some())
    }
}

fn watch<T: Clone + Send + 'static>(watched: &Weak<Unsent<T>>, send_early: fn(&T)) {
    sys::block_signals();
    let (mut idle, mut pause) = (0, UNSENT_MAX);
    while let Some(unsent) = watched.upgrade() {
        let (late, waits) = unsent.late();
        late.iter().for_each(send_early);
        idle = if waits { 0 } else { idle + 1 };
        pause = if late.is_empty() { LOOK_MAX.min(pause * 2) } else { UNSENT_MAX };
        if idle < LOOKS_MAX {
            drop(unsent);
            std::thread::sleep(pause);
            continue;
        }
        idle = 0;
        let mut is_asleep = unsent.is_asleep.lock();
        // Whoever comes from here on finds it asleep.
        *is_asleep = !unsent.late().1;
        if *is_asleep {
            unsent.woken.wait_for(is_asleep, WANTED_LOOK);
        }
    }
}
