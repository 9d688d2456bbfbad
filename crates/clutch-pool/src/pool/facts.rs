//! Events of work, and of a pool that its callers or operators cause.

use std::sync::Arc;

crate::facts! {
    /// User code has started on a piece of work, or has run for long on one that its worker took by itself. `queued_s`:
    /// seconds until it was sent to its worker; `trace`: the W3C `traceparent` of its caller.
    "work_begun" BEGUN WorkBegun {
        id: u64,
        kind: &'static str,
        what: String,
        queued_s: f64,
        trace: Option<Arc<str>>,
    }

    /// A worker has answered a piece of work; of what it took by itself, only what it had begun as `work_begun` says.
    /// `run_s`: seconds in user code; `error`: the kind of the failure, if it failed; `tool`: the name of the tool, of a
    /// call by name.
    "work_finished" FINISHED WorkFinished {
        id: u64,
        kind: &'static str,
        what: String,
        tool: Option<Arc<str>>,
        nr: u32,
        pid: i32,
        queued_s: f64,
        run_s: f64,
        failed: bool,
        error: Option<&'static str>,
        trace: Option<Arc<str>>,
    }

    /// Work that no code had begun left a worker and runs elsewhere.
    "work_taken_back" INCIDENTS WorkTakenBack { id: u64 }

    /// The deadline of a piece of work has passed. `at`: where it was.
    "work_expired" INCIDENTS WorkExpired { id: u64, at: String, tool: Option<Arc<str>> }

    /// A caller or an operator has cancelled a piece of work.
    "work_cancelled" INCIDENTS WorkCancelled { id: u64 }

    /// Work was cut off so that its worker could end.
    "work_drained" INCIDENTS WorkDrained { id: u64 }

    /// Code behind a response was told to stop after this time, so that its worker could end: nobody else hears of it. Of
    /// requests that a worker holds, their front tells.
    "work_cut_off" LIVES WorkCutOff { id: u64, what: String, run_s: f64 }

    /// A worker died while it ran this work.
    "work_lost" INCIDENTS WorkLost { id: u64, tool: Option<Arc<str>> }

    /// Work that has killed `deaths` workers is not run again. `job`: its id, if it is an attempt of a job.
    "work_poisoned" LIVES WorkPoisoned { id: u64, deaths: u32, what: String, job: Option<String> }

    /// The pool refuses work; at most once a second. `refused`: number of refusals since the last event.
    "pool_full" LIVES PoolFull { refused: u64, limit: usize }

    /// An operator has acted on the pool. `action` says what was done.
    "operator_acted" LIVES OperatorActed { action: String }
}
