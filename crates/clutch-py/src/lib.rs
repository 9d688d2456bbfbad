//! `clutch._core`: the bridge between Python and the crates below. This file is the whole surface.
//!
//! `python/clutch/_core.pyi` describes it and is checked by stubtest. `unsafe` lives in buffer.rs, context.rs,
//! finalizing.rs and interrupt.rs only.

mod bridge;
mod buffer;
mod call;
mod codec;
mod context;
mod descriptor;
mod drain;
mod errors;
mod finalizing;
mod fronts;
mod future;
mod interrupt;
mod number;
mod pool;
mod registry;
mod serve;
mod stacks;
mod timeout;
mod types;
mod watcher;
mod worker;
mod zygote;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    // The dispatcher's side.
    #[pymodule_export]
    use crate::bridge::Bridge;
    #[pymodule_export]
    use crate::fronts::{Fronts, Runtime};
    #[pymodule_export]
    use crate::future::{Completion, MapItems, StreamCore, finish_callbacks, interrupt_at_exit};
    #[pymodule_export]
    use crate::pool::{CallOptions, PoolCore};
    #[pymodule_export]
    use crate::registry::{Events, PrintedByNow, keep_from_copies, print_as, recover_terminal};

    // The worker's side.
    #[pymodule_export]
    use crate::buffer::test_and_set;
    #[pymodule_export]
    use crate::call::{Call, CallFailed};
    #[pymodule_export]
    use crate::descriptor::Descriptor;
    #[pymodule_export]
    use crate::serve::{StartResponse, Starter, share_state};
    #[pymodule_export]
    use crate::worker::WorkerLink;
    #[pymodule_export]
    use crate::zygote::{ForkOrder, ZygoteControl, set_title};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        registry::watch_forks(module.py())?;
        module.add("WIRE_VERSION", clutch_wire::frame::WIRE_VERSION)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
