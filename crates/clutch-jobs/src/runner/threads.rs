//! The threads of a runner: how many there are, and a wait for their end that has an end itself.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;

#[derive(Default)]
pub(super) struct Threads {
    alive: Mutex<usize>,
    ended: Condvar,
}

/// Marks one of them as alive, until it ends in whatever way.
struct Alive(Arc<Threads>);

impl Drop for Alive {
    fn drop(&mut self) {
        *self.0.alive.lock() -= 1;
        self.0.ended.notify_all();
    }
}

impl Threads {
    pub fn spawn(self: &Arc<Threads>, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        *self.alive.lock() += 1;
        let alive = Alive(self.clone());
        let run = move || {
            let _alive = alive;
            sys::block_signals();
            run();
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }

    /// Waits until all have ended, or it is this time. Whether they have.
    pub fn wait(&self, until: Instant) -> bool {
        self.ended.wait_until(self.alive.lock(), until, |alive| *alive == 0).1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_hangs_is_not_waited_for() {
        let threads = Arc::<Threads>::default();
        let (go, hang) = mpsc::channel::<()>();
        threads.spawn("hangs", move || assert!(hang.recv().is_err())).unwrap();
        assert!(!threads.wait(Instant::now()));
        drop(go);
        assert!(threads.wait(Instant::now() + Duration::from_secs(30)));
    }
}
