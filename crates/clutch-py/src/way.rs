//! Gives other threads of the process their turn at the interpreter.
//!
//! A thread that waits for the GIL asks for it after 5 ms (`sys.getswitchinterval`) in which nobody has let go of it, and then
//! gets it. A loop that lets go of it for a moment in every turn, to ask the kernel what has come, wakes such a thread each
//! time, and has it back before the thread runs: the thread begins to wait anew, and may do so for seconds. So a loop keeps it
//! when there is something to do, and lets go of it for long enough now and then ([`Turns`] decides).

use std::time::Duration;

use clutch_wire::sys;
use clutch_wire::turns::{ENOUGH_NS, Turns};
use pyo3::ffi;
use pyo3::prelude::*;

static TURNS: Turns = Turns::new();

/// From now on sleeps are told.
pub fn knows_sleeps() {
    TURNS.knows_sleeps();
}

/// A loop has slept without the GIL from then on, until now.
pub fn slept(from_ns: u64) {
    TURNS.slept(from_ns, sys::monotonic_ns());
}

/// A turn of a loop. When it is time to, others get theirs behind it; `flush` sends what it has made before.
pub fn turn<R>(
    py: Python<'_>,
    turn: impl FnOnce() -> PyResult<R>,
    flush: impl FnOnce() -> PyResult<()>,
) -> PyResult<R> {
    if cfg!(Py_GIL_DISABLED) {
        return turn();
    }
    TURNS.begun(sys::monotonic_ns);
    let turned = turn();
    if TURNS.ended(sys::monotonic_ns()) && has_others(py) {
        flush()?;
        py.detach(|| std::thread::sleep(Duration::from_nanos(ENOUGH_NS)));
    }
    turned
}

/// Whether the interpreter knows another thread, whoever has started it.
fn has_others(_py: Python<'_>) -> bool {
    // SAFETY: The GIL is held, without which no thread state goes.
    unsafe {
        let first = ffi::PyInterpreterState_ThreadHead(ffi::PyInterpreterState_Get());
        !first.is_null() && !ffi::PyThreadState_Next(first).is_null()
    }
}
