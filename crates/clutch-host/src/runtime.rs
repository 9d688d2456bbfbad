//! The async runtime of a dispatcher: two threads that serve whatever waits for many things at once.

use std::io;
use std::time::Duration;

use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads of the runtime: they serve all fronts but those that have threads of their own.
const THREADS: usize = 2;

/// Maximum time that a stop waits until aborted tasks have released their resources.
const CUT: Duration = Duration::from_secs(1);

/// A runtime that starts when it is first asked for. A dispatcher without network fronts has none.
#[derive(Default)]
pub struct AsyncRuntime(Mutex<Option<Runtime>>);

impl AsyncRuntime {
    pub fn handle(&self) -> io::Result<Handle> {
        let mut runtime = self.0.lock();
        let running = match runtime.take() {
            Some(running) => running,
            None => start()?,
        };
        Ok(runtime.insert(running).handle().clone())
    }

    /// None: nobody has asked for it yet.
    pub fn running(&self) -> Option<Handle> {
        self.0.lock().as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Ends its threads and aborts what still runs in them. A second stop has no effect.
    pub fn stop(&self) {
        let runtime = self.0.lock().take();
        runtime.into_iter().for_each(|runtime| runtime.shutdown_timeout(CUT));
    }
}

impl Drop for AsyncRuntime {
    /// Cuts everything off without waiting.
    fn drop(&mut self) {
        self.0.get_mut().take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Starts a runtime whose threads take no signals.
fn start() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("clutch-async")
        .on_thread_start(sys::block_signals)
        .enable_all()
        .build()
}
