//! Responses that slow clients have not taken yet: a thread sends what is left of them, so that no slot waits for a client.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::forked::Tracked;
use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys::{self, Interests, Poller};

use crate::handlers::output::TAKEN_BYTES_MIN;

/// A slot waits so long for a client before it leaves the rest to the thread.
pub(super) const SLOT_PATIENCE: Duration = Duration::from_millis(20);

/// Interval at which clients are looked at that take nothing.
const LOOK: Duration = Duration::from_secs(1);

/// Token of the bell in the poller.
const BELL: u64 = 0;

/// Hears what has become of a response that was left.
pub(super) trait Left: Send + Sync {
    /// `is_whole`: its client has taken all of it; else nobody takes more.
    fn sent(&self, is_whole: bool);
}

/// What is left of a response.
pub(super) struct Rest {
    pub(super) socket: Arc<Tracked>,
    pub(super) bytes: Vec<u8>,
    /// A client that takes nothing for so long is given up.
    pub(super) patience: Duration,
    pub(super) of: Arc<dyn Left>,
}

struct Sending {
    rest: Rest,
    sent: usize,
    /// When the client had taken enough last, and how much since.
    since: Instant,
    taken: usize,
}

#[derive(Default)]
struct State {
    /// Not taken over by the thread.
    new: Vec<Rest>,
    /// All that are being sent.
    count: usize,
}

/// See the file's head.
pub(super) struct Slow {
    poller: Poller,
    bell: Tracked,
    state: Mutex<State>,
    changed: Condvar,
}

impl Slow {
    pub(super) fn start() -> io::Result<Arc<Slow>> {
        let (poller, bell): (Poller, OwnedFd) = (Poller::new()?, sys::event_fd()?);
        poller.add(bell.as_fd(), BELL, false)?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let slow = Arc::new(Slow { poller, bell: Tracked::new(bell), state, changed });
        let own = slow.clone();
        std::thread::Builder::new().name("clutch-slow".to_owned()).spawn(move || own.run())?;
        Ok(slow)
    }

    pub(super) fn leave(&self, rest: Rest) {
        {
            let mut state = self.state.lock();
            state.count += 1;
            state.new.push(rest);
        }
        sys::signal_event(self.bell.as_fd());
    }

    /// Waits until nothing is left.
    pub(super) fn wait_all(&self) {
        drop(self.changed.wait(self.state.lock(), |state| state.count == 0));
    }

    fn run(&self) {
        sys::block_signals();
        let (mut all, mut next, mut tokens) = (HashMap::new(), BELL + 1, Vec::new());
        loop {
            let patience = (!all.is_empty()).then_some(LOOK);
            if self.poller.wait_for(&mut tokens, patience, sys::TOKENS_MAX).is_err() {
                return;
            }
            for token in tokens.drain(..) {
                if token == BELL {
                    sys::clear_event(self.bell.as_fd());
                    let new = std::mem::take(&mut self.state.lock().new);
                    for rest in new {
                        // Where there is no memory to watch it, its client is given up after a while.
                        let writes = Interests { reads: false, writes: true };
                        let _ = self.poller.change(rest.socket.as_fd(), next, Interests::NONE, writes);
                        all.insert(next, Sending { rest, sent: 0, taken: 0, since: Instant::now() });
                        next += 1;
                    }
                    continue;
                }
                let Some(sending) = all.get_mut(&token) else { continue };
                if let Some(is_whole) = sending.go_on()
                    && let Some(ended) = all.remove(&token)
                {
                    self.end(ended, is_whole);
                }
            }
            let is_late = |sending: &Sending| sending.since.elapsed() >= sending.rest.patience;
            let late: Vec<u64> = all.iter().filter(|(_, sending)| is_late(sending)).map(|(token, _)| *token).collect();
            for ended in late.iter().filter_map(|token| all.remove(token)).collect::<Vec<_>>() {
                self.end(ended, false);
            }
        }
    }

    fn end(&self, ended: Sending, is_whole: bool) {
        let Rest { socket, of, .. } = ended.rest;
        // The front's copy would keep it in the poller.
        self.poller.remove(socket.as_fd());
        drop(socket);
        of.sent(is_whole);
        self.state.lock().count -= 1;
        self.changed.notify_all();
    }
}

impl Sending {
    /// Sends what there is room for. Returns whether all is sent, when it is over.
    fn go_on(&mut self) -> Option<bool> {
        match sys::send(self.rest.socket.as_fd(), &self.rest.bytes[self.sent..], &[], false) {
            Ok(count) => {
                self.sent += count;
                self.taken += count;
                if self.taken >= TAKEN_BYTES_MIN {
                    (self.since, self.taken) = (Instant::now(), 0);
                }
                (self.sent == self.rest.bytes.len()).then_some(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
            Err(_) => Some(false),
        }
    }
}
