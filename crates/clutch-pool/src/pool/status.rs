//! The public status of a pool and its workers.

pub(super) mod company;
mod insights;
pub(super) mod running;
pub(super) mod schemas;
pub(super) mod spent;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::sync::{Condvar, Mutex};
use clutch_wire::sys;
use serde::Serialize;

use self::company::Pace;
use self::running::RunningInWorker;
use self::schemas::ToolSchemas;
use self::spent::{Insights, Spent, Tally};
use super::Pool;
use super::core::Core;
use super::state::WorkerKey;
use crate::config::{PoolConfig, Shape};
use crate::work::{Running, WorkId};

/// The public view of a worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerView {
    pub nr: u32,
    /// None until it is forked.
    pub pid: Option<i32>,
    pub generation: u32,
    pub state: &'static str,
    pub calls: u64,
    pub sent: usize,
    /// Bytes when it was last looked at; none: nothing asks for it.
    pub rss: Option<u64>,
    pub private: Option<u64>,
}

/// State of the whole pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Starting,
    Ready,
    Failing,
    Draining,
    Closed,
}

/// Kept by the supervisor, read by anybody.
#[derive(Clone, Debug)]
pub struct Status {
    pub health: Health,
    /// The same, as far as its workers are concerned.
    pub(super) lives: Health,
    /// Told to take no submissions.
    pub(super) quiet: bool,
    pub reason: Option<String>,
    pub ready: usize,
    pub target: usize,
    /// Between which the target may be set.
    pub min: usize,
    pub max: usize,
    pub workers: Vec<(WorkerKey, WorkerView)>,
    pub zygote_pid: Option<i32>,
    pub generation: u32,
    pub restarts: u64,
    pub ends: BTreeMap<&'static str, u64>,
    /// The zygote's own words: tools, warnings, Python version; JSON.
    pub image: serde_json::Value,
    /// Schemas of the image's tools; none: no network front reaches them, or only workers know them.
    pub schemas: Option<Arc<ToolSchemas>>,
}

impl Status {
    pub fn set_health(&mut self, lives: Health) {
        let serves = matches!(lives, Health::Starting | Health::Ready);
        self.health = if self.quiet && serves { Health::Draining } else { lives.clone() };
        self.lives = lives;
    }

    pub(super) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        self.set_health(self.lives.clone());
    }
}

impl Status {
    pub(super) fn new(config: &PoolConfig) -> Status {
        Status {
            health: Health::Starting,
            lives: Health::Starting,
            quiet: false,
            reason: None,
            ready: 0,
            target: config.workers_min as usize,
            min: config.workers_min as usize,
            max: config.shape.workers as usize,
            workers: Vec::new(),
            zygote_pid: None,
            generation: 0,
            restarts: 0,
            ends: BTreeMap::new(),
            image: serde_json::Value::Null,
            schemas: None,
        }
    }
}

/// The status, for all to read and to wait for.
pub(super) struct StatusBoard {
    pool: String,
    status: Mutex<Status>,
    changed: Condvar,
}

impl StatusBoard {
    pub(super) fn new(config: &PoolConfig) -> StatusBoard {
        let (pool, status) = (config.name.clone(), Mutex::new(Status::new(config)));
        StatusBoard { pool, status, changed: Condvar::new() }
    }

    pub(super) fn update(&self, update: impl FnOnce(&mut Status)) {
        update(&mut self.status.lock());
        self.changed.notify_all();
    }

    fn get(&self) -> Status {
        self.status.lock().clone()
    }

    /// `pool/0`. None: it is gone.
    pub(super) fn name_of(&self, worker: WorkerKey) -> Option<String> {
        let status = self.status.lock();
        let (_, view) = status.workers.iter().find(|(key, _)| *key == worker)?;
        Some(format!("{}/{}", self.pool, view.nr))
    }

    fn wait(&self, deadline: Option<Instant>, done: impl Fn(&Status) -> bool) -> bool {
        let status = self.status.lock();
        match deadline {
            Some(at) => self.changed.wait_until(status, at, done).1,
            None => done(&self.changed.wait(status, &done)),
        }
    }
}

/// Counts and workers at one instant.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    pub name: String,
    pub state: Health,
    pub reason: Option<String>,
    /// In the queue, and requests that wait at the worker that holds their connection.
    pub queued: usize,
    /// Work that was cancelled, or whose deadline passed, while it waited in the queue.
    pub gave_up: u64,
    /// Total time that finished work had waited for its slot, in seconds.
    pub queued_s: f64,
    /// Submitters that wait for room in the queue.
    pub blocked: usize,
    pub sent: usize,
    pub slots: usize,
    pub ready: usize,
    pub target: usize,
    pub min: usize,
    pub max: usize,
    pub done: u64,
    pub failed: u64,
    pub drained: u64,
    pub restarts: u64,
    /// Number of workers that have ended, by reason.
    pub ends: BTreeMap<&'static str, u64>,
    pub generation: u32,
    pub zygote_pid: Option<i32>,
    pub workers: Vec<WorkerView>,
    /// As it is used: the image may have chosen another than the configuration has.
    pub shape: Shape,
    /// Time of slots that ran something, and CPU time of all workers so far, in seconds.
    pub run_s: f64,
    pub cpu_s: f64,
    /// How long work takes alone in its worker, and beside other work.
    pub company: Vec<Pace>,
    pub image: serde_json::Value,
}

impl Core {
    /// The time of all workers so far.
    fn spent(&self, now: Instant) -> Spent {
        let mut spent = self.noted.past;
        for (key, peer) in &self.peers {
            spent.add(peer.life.spent(self.unended_s(*key, now), now));
        }
        spent
    }
}

impl Pool {
    /// Asks the kernel for the CPU time of the workers that live. Without the lock: there may be many.
    fn look_at_cpu(&self) {
        let pids: Vec<_> = self.core.lock().peers.iter().map(|(key, peer)| (*key, peer.life.who.1)).collect();
        let times = pids.into_iter().filter(|(_, pid)| *pid > 0);
        let times: Vec<_> = times.filter_map(|(key, pid)| Some((key, sys::cpu_time(pid)?))).collect();
        let mut core = self.core.lock();
        for (key, cpu) in times {
            core.peers.get_mut(&key).into_iter().for_each(|peer| peer.life.cpu = peer.life.cpu.max(cpu));
        }
    }

    pub fn stats(&self) -> Stats {
        self.look_at_cpu();
        let waiting_at_workers = self.waiting_at_workers();
        let (counts, (queued_total, gave_up), done, failed, drained, status, spent, company) = {
            let (core, now) = (self.core.lock(), Instant::now());
            let (counts, waited) = (core.machine.counts(), (core.machine.queued_total(), core.machine.gave_up()));
            let Tally { done, failed, drained, .. } = core.noted.tally;
            let (spent, company) = (core.spent(now), core.noted.company.paces(now));
            (counts, waited, done, failed, drained, self.status_with_calls(&core), spent, company)
        };
        let shape = serde_json::from_value(status.image["shape"].clone()).unwrap_or(self.config.shape);
        Stats {
            name: self.config.name.clone(),
            state: status.health,
            reason: status.reason,
            queued: counts.queued + waiting_at_workers,
            gave_up,
            queued_s: queued_total.as_secs_f64(),
            blocked: counts.blocked,
            sent: counts.sent,
            slots: counts.slots,
            ready: status.ready,
            target: status.target,
            min: status.min,
            max: status.max,
            done,
            failed,
            drained,
            restarts: status.restarts,
            ends: status.ends,
            generation: status.generation,
            zygote_pid: status.zygote_pid,
            workers: status.workers.into_iter().map(|(_, view)| view).collect(),
            shape,
            run_s: spent.run.as_secs_f64(),
            cpu_s: spent.cpu.as_secs_f64(),
            company,
            image: status.image,
        }
    }

    fn status_with_calls(&self, core: &Core) -> Status {
        let mut status = self.status.get();
        for (key, view) in &mut status.workers {
            if let Some((sent, calls)) = core.machine.worker(*key) {
                (view.sent, view.calls) = (sent, calls);
            }
        }
        status
    }

    pub fn status(&self) -> Status {
        self.status.get()
    }

    /// Waits until `done` holds of the status, or the deadline passes; returns whether it holds.
    pub fn wait_status(&self, deadline: Option<Instant>, done: impl Fn(&Status) -> bool) -> bool {
        self.status.wait(deadline, done)
    }

    pub fn insights(&self) -> Insights {
        if self.is_forked() {
            return Insights::default();
        }
        self.look_at_cpu();
        let (core, now) = (self.core.lock(), Instant::now());
        let spent = core.spent(now);
        Insights { workers: core.workers_so_far(), spent, slowest: core.noted.slowest.iter().cloned().collect() }
    }

    // ---- what workers run

    /// Lists what one worker runs.
    pub fn running_in(&self, worker: WorkerKey) -> Vec<Running> {
        self.core.lock().running(worker, Instant::now())
    }

    /// Lists what each worker runs.
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
