//! Order to this worker to end when its work has, for work that would never end by itself.
//!
//! The order comes by the alarm, so it is heard also while every slot runs user code and nobody reads the link. The
//! native thread that hears it must not wait for the GIL (it is a net against orphans): listeners run in a thread of
//! their own.

use std::sync::Arc;

use clutch_wire::sync::Mutex;
use pyo3::prelude::*;

/// Listeners, each called once.
#[derive(Default)]
pub struct Drain {
    state: Mutex<DrainState>,
}

#[derive(Default)]
struct DrainState {
    told: bool,
    listeners: Vec<Py<PyAny>>,
}

impl Drain {
    /// Calls the listeners. A second call has no effect.
    pub fn tell(self: &Arc<Drain>) {
        if std::mem::replace(&mut self.state.lock().told, true) {
            return;
        }
        let drain = self.clone();
        let name = "clutch-drain".to_owned();
        // Without the thread nobody is told, and the grace ends what runs.
        let _ = std::thread::Builder::new().name(name).spawn(move || Python::attach(|py| drain.call_listeners(py)));
    }

    /// Calls `listener()` when the drain begins, or at once if it has.
    pub fn listen(&self, py: Python<'_>, listener: Py<PyAny>) {
        let mut state = self.state.lock();
        if !state.told {
            state.listeners.push(listener);
            return;
        }
        drop(state);
        call(py, &listener);
    }

    fn call_listeners(&self, py: Python<'_>) {
        let listeners = std::mem::take(&mut self.state.lock().listeners);
        listeners.iter().for_each(|listener| call(py, listener));
    }
}

fn call(py: Python<'_>, listener: &Py<PyAny>) {
    if let Err(error) = listener.call0(py) {
        error.write_unraisable(py, None);
    }
}
