//! The dispatcher's side: pools, what callers wait on, fronts, and what belongs to the process.

mod bridge;
mod finalizing;
mod fronts;
mod future;
mod jobs;
mod number;
mod plane;
mod pool;
mod registry;
mod timeout;

pub use self::bridge::Bridge;
pub use self::fronts::Fronts;
pub use self::future::{Completion, MapItems, StreamCore, finish_callbacks, interrupt_at_exit};
pub use self::jobs::inline::{ClaimedJob, InlineJobs, close_jobs_store, jobs_now, stop_jobs_clock};
pub use self::jobs::{JobStore, JobsEnqueued, next_tick};
pub use self::plane::{Plane, programs_folder};
pub use self::pool::{CallOptions, MapFunction, PoolCore};
pub use self::registry::{Events, PrintedByNow, keep_from_copies, print_as, recover_terminal, watch_forks};
