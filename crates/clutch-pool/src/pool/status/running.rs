//! Running work, for those who look: in the log, in `clutch ps`. Found when somebody asks, kept by nobody.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::link::board::word;
use crate::pool::core::Core;
use crate::pool::effects::OnLink;
use crate::pool::entry::Entry;
use crate::pool::peer::Peer;
use crate::pool::state::WorkerKey;
use crate::work::{Running, WorkId};

/// Running work and the process that runs it: a worker that leaves and its replacement have one number.
#[derive(Debug, Serialize)]
pub struct RunningInWorker {
    #[serde(flatten)]
    pub running: Running,
    pub pid: Option<i32>,
}

impl Core {
    /// The oldest first.
    pub(in crate::pool) fn running(&self, worker: WorkerKey, now: Instant) -> Vec<Running> {
        let Some(peer) = self.peers.get(&worker) else { return Vec::new() };
        let running = self.machine.sent(worker).filter_map(|id| {
            let ((what, job), abandoned) = match self.machine.body(id) {
                Some(entry) => ((self.describe_begun(peer, entry)?, entry.job()), false),
                None => (peer.abandoned_work(id)?, true),
            };
            let seconds = now.saturating_duration_since(self.machine.sent_at(id, worker)?).as_secs_f64();
            Some(Running { id, what, job, seconds, abandoned })
        });
        running.collect()
    }

    /// Returns how long a worker has run what it has not ended, in all its slots together.
    pub(in crate::pool) fn unended_s(&self, worker: WorkerKey, now: Instant) -> f64 {
        let Some(peer) = self.peers.get(&worker) else { return 0.0 };
        let has_begun = |id: &WorkId| match self.machine.body(*id) {
            Some(entry) => entry.word.is_some_and(|at| peer.link.board.get(at) == word::BEGUN),
            None => true,
        };
        let begun = self.machine.sent(worker).filter(has_begun);
        begun.map(|id| self.ran(OnLink { worker, id, now }).as_secs_f64()).sum()
    }

    fn describe_begun(&self, peer: &Peer, entry: &Entry) -> Option<String> {
        let board = &peer.link.board;
        let at = entry.word.filter(|at| board.get(*at) == word::BEGUN)?;
        let what = self.functions.describe(entry);
        let items = entry.work.items;
        let item = board.items_begun(at).load(Ordering::Acquire);
        Some(if items > 0 { format!("{what} (item {item} of {items} of a map)") } else { what })
    }

    /// Returns the time that a call has run on this worker.
    pub(in crate::pool) fn ran(&self, work: OnLink) -> Duration {
        let sent = self.machine.sent_at(work.id, work.worker);
        sent.map_or(Duration::ZERO, |sent| work.now.saturating_duration_since(sent))
    }
}
