//! Events of zygotes and workers, and of a pool as they make it.

use crate::work::Running;

crate::facts! {
    /// A zygote has started to load the target.
    "zygote_started" LIVES ZygoteStarted { generation: u32, pid: i32 }

    /// A zygote has loaded the target.
    "zygote_ready" LIVES ZygoteReady { generation: u32, warnings: Vec<String> }

    /// A zygote has ended unasked.
    "zygote_lost" LIVES ZygoteLost { generation: u32, reason: String }

    /// New code is being loaded.
    "reload_started" LIVES ReloadStarted { generation: u32 }

    /// New code runs in all workers.
    "reload_finished" LIVES ReloadFinished { generation: u32 }

    /// New code could not be loaded or started; the old code goes on.
    "reload_failed" LIVES ReloadFailed { generation: u32, reason: String }

    /// A worker was forked.
    "worker_starting" LIVES WorkerStarting { nr: u32, generation: u32, pid: i32 }

    /// A worker takes work.
    "worker_ready" LIVES WorkerReady { nr: u32, generation: u32, pid: i32 }

    /// A worker takes no more work.
    "worker_draining" LIVES WorkerDraining { nr: u32, pid: i32, reason: String }

    /// A signal has stopped a worker.
    "worker_stopped" LIVES WorkerStopped { nr: u32, pid: i32 }

    /// A stopped worker runs again.
    "worker_continued" LIVES WorkerContinued { nr: u32, pid: i32 }

    /// A worker that is to end waits at the prompt of a debugger; it ends after that.
    "worker_debugged" LIVES WorkerDebugged { nr: u32, pid: i32 }

    /// A worker was sent a signal to end it. `served`: it had been ready; `running`: work that it had begun.
    "worker_killed" LIVES WorkerKilled {
        nr: u32,
        pid: i32,
        signal: String,
        reason: String,
        served: bool,
        running: Vec<Running>,
    }

    /// A worker has ended. `left`: the reason, if it ended when it was told to; `ended`: Clutch ended it; `served`: it had
    /// been ready; `running`: work that it had begun; `held`: short requests that it had begun on connections of its
    /// own.
    "worker_gone" LIVES WorkerGone {
        nr: u32,
        pid: i32,
        cause: String,
        left: Option<String>,
        ended: bool,
        served: bool,
        running: Vec<Running>,
        held: Vec<String>,
    }

    /// No worker of the pool can start.
    "pool_failing" LIVES PoolFailing { reason: String }

    /// A pool that was failing has workers again.
    "pool_recovered" LIVES PoolRecovered {}

    /// The target number of workers has changed.
    "pool_scaled" LIVES PoolScaled { from: usize, to: usize, reason: String }

    /// The pool is one worker short for a while.
    "pool_short" LIVES PoolShort { nr: u32, reason: String }

    /// The pool has ended.
    "pool_closed" LIVES PoolClosed {}
}
