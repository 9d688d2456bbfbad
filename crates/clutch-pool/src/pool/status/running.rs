//! What workers run, for those who look: in the log, in `clutch ps`. Found when somebody asks, kept by nobody.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clutch_wire::Codec;
use serde::Serialize;

use super::WorkerView;
use crate::link::board::word;
use crate::pool::Pool;
use crate::pool::core::Core;
use crate::pool::entry::Entry;
use crate::pool::peer::Peer;
use crate::pool::state::WorkerKey;
use crate::work::{Running, WorkId};

/// What a worker runs, and which process that is: one that leaves and its replacement have one number.
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

    fn describe_begun(&self, peer: &Peer, entry: &Entry) -> Option<String> {
        let board = &peer.link.board;
        let at = entry.word.filter(|at| board.get(*at) == word::BEGUN)?;
        let what = self.describe(entry);
        let items = entry.work.items;
        let item = board.items_begun(at).load(Ordering::Acquire);
        Some(if items > 0 { format!("{what} (item {item} of {items} of a map)") } else { what })
    }

    /// What a piece of work is, for people.
    pub(in crate::pool) fn describe(&self, entry: &Entry) -> String {
        let work = &entry.work;
        let named = || {
            let function = self.functions.get(work.function as usize)?;
            Some(&function.name).filter(|name| !name.is_empty() && function.codec != Codec::Empty).cloned()
        };
        let described = work.reply.describe(&work.payload).or_else(named);
        described.unwrap_or_else(|| work.kind.name().to_owned())
    }
}

impl Pool {
    /// What one worker runs.
    pub fn running_in(&self, worker: WorkerKey) -> Vec<Running> {
        self.core.lock().running(worker, Instant::now())
    }

    /// What each worker runs.
    pub fn running(&self) -> Vec<(WorkerKey, Vec<Running>)> {
        if self.is_forked() {
            return Vec::new();
        }
        let (core, now) = (self.core.lock(), Instant::now());
        core.peers.keys().map(|worker| (*worker, core.running(*worker, now))).collect()
    }

    /// The same by the number of the worker.
    pub fn running_by_nr(&self) -> BTreeMap<u32, Vec<RunningInWorker>> {
        let views: HashMap<_, _> = self.status().workers.into_iter().collect();
        let mut found: BTreeMap<u32, Vec<RunningInWorker>> = BTreeMap::new();
        for (key, running) in self.running() {
            let Some(view) = views.get(&key) else { continue };
            let running = running.into_iter().map(|running| RunningInWorker { running, pid: view.pid });
            found.entry(view.nr).or_default().extend(running);
        }
        found
    }

    /// The Python stacks of every worker, of worker `nr`, or of the worker that has `call`, by the worker's number. Workers
    /// that do not answer within `wait` are left out.
    pub fn stacks_by_nr(&self, nr: Option<u32>, call: Option<WorkId>, wait: Duration) -> Vec<(u32, String)> {
        let holder = call.map(|id| self.worker_of(id));
        let wanted = |key, view: &WorkerView| {
            nr.is_none_or(|nr| nr == view.nr) && holder.is_none_or(|holder| holder == Some(key))
        };
        let workers = self.status().workers.into_iter().filter(|(key, view)| wanted(*key, view));
        let asked = workers.map(|(key, view)| (view.nr, self.stacks(key, Instant::now() + wait)));
        asked.filter_map(|(nr, stacks)| Some((nr, stacks?))).collect()
    }
}
