//! `clutch._core`: the bridge between Python and the crates below. This file is the whole surface.
//!
//! `python/clutch/_core.pyi` describes it and is checked by stubtest. `unsafe` lives in buffer.rs, context.rs,
//! finalizing.rs, gil_lock.rs and interrupt.rs only.

mod buffer;
mod call;
mod codec;
mod collector;
mod context;
mod dispatcher;
mod errors;
mod gil_lock;
mod handlers;
mod held;
mod link;
mod load;
mod serving;
mod slots;
mod way;
mod worker;
mod zygote;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    // The dispatcher's side.
    #[pymodule_export]
    use crate::dispatcher::{
        Bridge, CallOptions, ClaimedJob, Completion, Events, Fronts, InlineJobs, JobStore, JobsEnqueued, MapFunction,
        MapItems, Plane, PoolCore, PrintedByNow, StreamCore, close_jobs_store, finish_callbacks, interrupt_at_exit,
        jobs_now, keep_from_copies, next_tick, print_as, programs_folder, recover_terminal, stop_jobs_clock,
    };

    // The worker's side, from the link up.
    #[pymodule_export]
    use crate::buffer::test_and_set;
    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::collector::Collector;
    #[pymodule_export]
    use crate::handlers::asgi::PyLines;
    #[pymodule_export]
    use crate::handlers::asgi::held::{AdoptedRequest, HeldRequest};
    #[pymodule_export]
    use crate::handlers::outcome::CallFailed;
    #[pymodule_export]
    use crate::handlers::{Descriptor, JobChannel, StartResponse, share_state};
    #[pymodule_export]
    use crate::held::{Holder, hold_in_slots};
    #[pymodule_export]
    use crate::link::WorkerLink;
    #[pymodule_export]
    use crate::serving::{EagerStarter, LoopSleep, poll, poll_eagerly, serve};
    #[pymodule_export]
    use crate::slots::Slots;
    #[pymodule_export]
    use crate::worker::Worker;
    #[pymodule_export]
    use crate::zygote::{ForkOrder, ZygoteControl, guard_from_signals, guard_from_term, own_term, set_title};

    // Of the lab.
    #[pymodule_export]
    use crate::load::{Latencies, Load};

    use clutch_jobs::job::State;
    use pyo3::types::PyTuple;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        dispatcher::watch_forks(module.py())?;
        module.add("CODEC_NAME", clutch_wire::Codec::Name as u8)?;
        module.add("EVENTS", events(module.py())?)?;
        module.add("JOB_ENDS", names(module.py(), State::is_end)?)?;
        module.add("JOB_STATES", names(module.py(), |_| true)?)?;
        module.add("PRIORITY_MAX", clutch_pool::pool::state::queue::PRIORITY_MAX)?;
        module.add("WIRE_VERSION", clutch_wire::frame::WIRE_VERSION)?;
        module.add("WORKERS_MAX", clutch_pool::config::WORKERS_MAX)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// Returns the name, the scope, the fields and the description of each event.
    fn events(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        let facts = [clutch_pool::pool::facts::FACTS, clutch_pool::supervisor::facts::FACTS, clutch_jobs::facts::FACTS];
        let rows = facts.into_iter().flatten().map(|fact| {
            let fields = PyTuple::new(py, fact.fields)?;
            (fact.name, fact.scope.name(), fields, fact.about.trim()).into_pyobject(py)
        });
        PyTuple::new(py, rows.collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the names of these states of jobs, in order.
    fn names(py: Python<'_>, is: impl Fn(State) -> bool) -> PyResult<Bound<'_, PyTuple>> {
        let states = State::ALL.into_iter().filter(|state| is(*state));
        PyTuple::new(py, states.map(State::as_str).collect::<Vec<_>>())
    }
}
