//! What a front says of requests that workers take by themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_host::Warnings;
use clutch_pool::work::{FunctionId, Outcome, WorkId};

use super::ledger::BEGINNING_BYTES;
use super::news::Verdict;
use crate::account::figures::End;

/// See the file's head. Called on any thread, without a lock.
pub(crate) trait Terms: Send + Sync {
    /// Function of the pool that requests are calls of.
    fn function(&self) -> FunctionId;

    /// None: no worker has told the app's interface yet.
    fn is_wsgi(&self) -> Option<bool>;

    /// Limit of the time until a response begins.
    fn timeout(&self) -> Option<Duration>;

    /// Limit of each pause in a response after that, while its client is ready for more.
    fn silence(&self) -> Option<Duration>;

    /// Describes a request for people, by its first bytes.
    fn describe(&self, beginning: &[u8; BEGINNING_BYTES]) -> String;

    /// A request that nothing limits has no response, from `since` until the result is dropped.
    fn wait(&self, id: WorkId, since: Instant) -> Box<dyn Send>;

    /// A response has no end of its own, and has its slot until the result is dropped.
    fn endless(&self) -> Box<dyn Send>;

    /// Where is told what becomes of work that outlives the front, too.
    fn warnings(&self) -> Arc<Warnings>;

    /// What the client of a request is told that has ended so, without a response. None: its time was over.
    fn verdict(&self, outcome: Option<&Outcome>) -> Verdict;

    /// Tells that a response is cut off whose work has ended so. Returns how the request ends.
    fn cut_off(&self, outcome: &Outcome) -> End;
}
