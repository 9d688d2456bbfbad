//! The private way to the plane: a unix socket, served by a thread of its own for as long as it is open.
//!
//! The socket needs neither Python nor the runtime of the fronts, so it answers while those start, stop, or are stuck. A
//! forked copy of the process has nothing of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use clutch_host::{Address, Plane};
use clutch_wire::forked::Moment;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use tokio::sync::{Notify, oneshot};

use super::door::Door;
use crate::account::figures::Figures;
use crate::net::accept::Accepting;
use crate::net::access_control::{AccessControl, Guard};
use crate::net::listen::{Access, Inode, Listener};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 32;

/// Until commands under way have answered, when it is closed.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// An open socket. Dropped, it is closed.
pub struct OperatorSocket {
    path: PathBuf,
    file: Inode,
    made: Moment,
    stop: Mutex<Option<oneshot::Sender<Duration>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl OperatorSocket {
    /// Listens at `path` from now on. Each notice of `ask` has `is_over` called in the socket's own thread, which ends when
    /// that says so.
    pub fn open(
        path: &Path,
        plane: Arc<Plane>,
        ask: Arc<Notify>,
        is_over: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<OperatorSocket> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let listener = Listener::bind(&format!("unix:{}", path.display()), Access::Owner)?;
        let file = Inode::of(path)?;
        let access_control = AccessControl::new("unix:", &Address::Unix(path.to_owned()), Guard::default());
        let door = Door::new(plane, access_control, Figures::new("operators"), Arc::default(), true);
        let mut accepting = Accepting::new(CONNECTIONS_MAX);
        accepting.add(listener, door);
        drop(entered);
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            sys::block_signals();
            let grace = runtime.block_on(async {
                let over = async {
                    while {
                        ask.notified().await;
                        !is_over()
                    } {}
                };
                tokio::select! {
                    grace = stopped => grace.unwrap_or_default(),
                    () = over => Duration::ZERO,
                }
            });
            runtime.block_on(accepting.end(grace));
            runtime.shutdown_timeout(grace);
        };
        let thread = std::thread::Builder::new().name("clutch-operator".to_owned()).spawn(serve)?;
        let (stop, thread) = (Mutex::new(Some(stop)), Mutex::new(Some(thread)));
        Ok(OperatorSocket { path: path.to_owned(), file, made: Moment::now(), stop, thread })
    }

    /// Nobody finds it from now on; another one may take its place.
    pub fn remove_file(&self) {
        if !self.made.is_in_copy() && Inode::of(&self.path).is_ok_and(|found| found == self.file) {
            // Gone already is as good.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Ends it; waits for commands under way only where asked to, and not for long.
    pub fn close(&self, waits: bool) {
        if self.made.is_in_copy() {
            return;
        }
        self.remove_file();
        let stop = self.stop.lock().take();
        // It may have ended by itself.
        let _ = stop.map(|stop| stop.send(if waits { CLOSE_WAIT } else { Duration::ZERO }));
        let thread = self.thread.lock().take();
        // Whoever closes it in its own thread does not wait for that.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for OperatorSocket {
    fn drop(&mut self) {
        if self.made.is_in_copy() {
            // Its thread is the original's.
            std::mem::forget((self.stop.get_mut().take(), self.thread.get_mut().take()));
        } else {
            self.close(false);
        }
    }
}
