//! Gives other threads of the process their turn at the interpreter.
//!
//! A thread that waits for the GIL asks for it after 5 ms (`sys.getswitchinterval`) in which nobody has let go of it, and then
//! gets it. A loop that lets go of it for a moment in every turn, to ask the kernel what has come, wakes such a thread each
//! time, and has it back before the thread runs: the thread begins to wait anew, and may do so for seconds. So a loop keeps it
//! when there is something to do, and lets go of it for long enough now and then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clutch_wire::sys;
use pyo3::intern;
use pyo3::prelude::*;

/// Other threads are to have had their turn once in such a time: CPython's own interval.
const INTERVAL: Duration = Duration::from_millis(5);

/// A thread that waits for the GIL has it after so long, if nobody else wants it.
const ENOUGH: Duration = Duration::from_micros(100);

/// When others could last have it, in nanoseconds of the monotonic clock.
static GIVEN_NS: AtomicU64 = AtomicU64::new(0);

/// When the last turn ended.
static ENDED_NS: AtomicU64 = AtomicU64::new(0);

/// Loops tell how long they sleep.
static KNOWS_SLEEPS: AtomicBool = AtomicBool::new(false);

/// From now on sleeps are told.
pub fn knows_sleeps() {
    KNOWS_SLEEPS.store(true, Ordering::Relaxed);
}

/// A loop has slept without the GIL from then on, until now.
pub fn slept(from_ns: u64) {
    note(from_ns, sys::monotonic_ns());
}

fn note(from_ns: u64, now_ns: u64) {
    if now_ns.saturating_sub(from_ns) >= ENOUGH.as_nanos() as u64 {
        GIVEN_NS.store(now_ns, Ordering::Relaxed);
    }
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
    // Of a loop that does not tell when it sleeps, it is believed that it has since the last turn.
    let is_told = KNOWS_SLEEPS.load(Ordering::Relaxed);
    if !is_told {
        note(ENDED_NS.load(Ordering::Relaxed), sys::monotonic_ns());
    }
    let turned = turn();
    let ended_ns = sys::monotonic_ns();
    if ended_ns.saturating_sub(GIVEN_NS.load(Ordering::Relaxed)) >= INTERVAL.as_nanos() as u64 {
        GIVEN_NS.store(ended_ns, Ordering::Relaxed);
        if has_others(py)? {
            flush()?;
            py.detach(|| std::thread::sleep(ENOUGH));
        }
    }
    if !is_told {
        ENDED_NS.store(sys::monotonic_ns(), Ordering::Relaxed);
    }
    turned
}

/// Whether another thread of the process may run Python.
fn has_others(py: Python<'_>) -> PyResult<bool> {
    let count: usize = py.import(intern!(py, "threading"))?.call_method0(intern!(py, "active_count"))?.extract()?;
    Ok(count > 1)
}
