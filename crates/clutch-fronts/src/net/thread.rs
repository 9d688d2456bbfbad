//! A thread of its own for a front: everything about a connection happens in it, without a hop.

use std::io;
use std::thread::JoinHandle;

use clutch_wire::sys;
use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::oneshot;

use crate::net::listen::{Access, Listener, not_bound};

/// Dropped, it ends: what it served is cut off.
pub(crate) struct FrontThread {
    handle: Handle,
    /// Closed when this is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FrontThread {
    pub(crate) fn start(nr: usize) -> io::Result<FrontThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(format!("clutch-serve-{nr}")).spawn(move || {
            sys::block_signals();
            // It ends when the other side is dropped.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(FrontThread { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// For each address a listener for this thread, then one of the same socket for each of the others.
    pub(crate) fn bind(
        &self,
        place: &str,
        bind: &str,
        access: Access,
        others: &[FrontThread],
    ) -> io::Result<Vec<Vec<Listener>>> {
        let listeners = {
            let _entered = self.enter();
            Listener::bind_each(bind, access).map_err(|error| not_bound(place, bind, &error))?
        };
        let with_shared = |first: Listener| {
            let shared = others.iter().map(|other| {
                let _entered = other.enter();
                first.share()
            });
            let shared: Vec<Listener> = shared.collect::<io::Result<_>>()?;
            Ok(std::iter::once(first).chain(shared).collect())
        };
        listeners.into_iter().map(with_shared).collect()
    }
}

impl Drop for FrontThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it was told when it happened.
            let _ = thread.join();
        }
    }
}
