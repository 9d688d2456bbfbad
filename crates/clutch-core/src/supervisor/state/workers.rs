//! The lives of workers: forked, ready, gone; starts that fail; starting what is missing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::zygotes::Zygote;
use super::{Action, Leave, State, Supervisor, Worker, WorkerRecord};
use crate::pool::state::WorkerKey;
use crate::supervisor::recycle::Recycling;
use crate::sys::{EndSignal, Fate};

/// First wait after a start that failed; doubled each time.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Longest wait between attempts to start.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Workers (or zygotes) that die before they are ready, without saying why, before the pool is called failing.
pub(super) const SILENT_DEATHS: u32 = 3;
/// How long the exit status of a worker whose link has ended may take to arrive.
pub(super) const STATUS_WAIT: Duration = Duration::from_millis(500);

impl Supervisor {
    // ---- starts that fail

    /// No worker of this generation can be had: the image before takes over again, or nothing does.
    pub(super) fn cannot_start(&mut self, generation: u32, reason: String, now: Instant, out: &mut Vec<Action>) {
        let rolled = self.roll.as_ref().is_some_and(|roll| generation >= roll.generation);
        if !(rolled && self.roll_back(&reason, now, out)) {
            self.fail(reason, now, out);
        }
    }

    pub(super) fn fail(&mut self, reason: String, now: Instant, out: &mut Vec<Action>) {
        self.back_off(now);
        self.fail_recycles(&reason, now, out);
        if self.ready() == 0 && self.stopping.is_none() {
            self.say_failing(reason, out);
        }
    }

    fn say_failing(&mut self, reason: String, out: &mut Vec<Action>) {
        self.failing = Some(reason.clone());
        let loaded = self.current_is_up();
        out.push(Action::Failing { reason, loaded });
    }

    pub(super) fn back_off(&mut self, now: Instant) {
        let wait = BACKOFF_FIRST * 2u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + wait.min(BACKOFF_MAX));
    }

    // ---- workers

    pub(super) fn forked(&mut self, worker: WorkerKey, pid: i32) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.pid = Some(pid);
        }
    }

    pub(super) fn fork_failed(&mut self, key: WorkerKey, reason: String, now: Instant, out: &mut Vec<Action>) {
        self.start_failed(key, reason);
        self.gone(key, None, now, out);
    }

    pub(super) fn worker_ready(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        // One that was ended meanwhile is not wanted any more.
        let starts = |worker: &&mut Worker| worker.state == State::Starting && worker.cause.is_none();
        let Some(worker) = self.workers.get_mut(&key).filter(starts) else { return };
        (worker.state, worker.since) = (State::Ready, now);
        let (calls, replaced) = (worker.recycling.calls, worker.replaces.take());
        if let Some(zygote) = self.zygotes.get_mut(&worker.generation) {
            zygote.proven = true;
        }
        (self.failures, self.retry_at, self.failing) = (0, None, None);
        out.push(Action::Admit { worker: key, calls });
        if let Some((old, why)) = replaced.and_then(|old| Some((old, self.workers.get(&old)?.leaving?))) {
            self.drain(old, why, now, out);
        }
    }

    pub(super) fn drain(&mut self, key: WorkerKey, why: Leave, now: Instant, out: &mut Vec<Action>) {
        let grace = self.config.grace();
        let outdated = self.workers.get(&key).is_some_and(|worker| self.is_outdated(worker.generation));
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| worker.state == State::Ready) else { return };
        worker.state = State::Draining;
        if outdated {
            worker.end_by(now + grace);
        }
        out.push(Action::Drain { worker: key, reason: why.as_str() });
    }

    pub(super) fn start_failed(&mut self, key: WorkerKey, reason: String) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.said = Some(reason);
        }
    }

    pub(super) fn fate(&mut self, key: WorkerKey, fate: Fate, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        match fate {
            Fate::Stopped => {
                worker.stopped_since.get_or_insert(now);
                out.push(Action::Hold { worker: key, held: true });
            }
            Fate::Continued => {
                worker.stopped_since = None;
                out.push(Action::Hold { worker: key, held: false });
            }
            Fate::Exited(_) | Fate::Signaled(_) => self.gone(key, Some(fate), now, out),
        }
    }

    /// The zygote tells of the end soon; when there is none any more, the end of the link has to do.
    pub(super) fn link_ended(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        // A worker that broke its link and lives on is of no use.
        out.push(Action::Kill { worker: key, signal: EndSignal::Kill });
        if self.zygotes.get(&worker.generation).is_some_and(Zygote::has_loaded) {
            worker.link_ended.get_or_insert(now);
        } else {
            self.gone(key, None, now, out);
        }
    }

    fn gone(&mut self, key: WorkerKey, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.remove(key, fate, out) else { return };
        if worker.state == State::Ready || (worker.state == State::Killed && !worker.is_out()) {
            self.restarts += 1;
        }
        if worker.state == State::Ready && worker.cause.is_none() {
            self.deaths.note(now);
        }
        // One that was not wanted any more has not failed.
        if worker.state == State::Starting && worker.leaving.is_none() && self.stopping.is_none() {
            self.died_starting(worker, fate, now, out);
        }
    }

    pub(super) fn remove(&mut self, key: WorkerKey, fate: Option<Fate>, out: &mut Vec<Action>) -> Option<Worker> {
        let worker = self.workers.remove(&key)?;
        let record = WorkerRecord {
            nr: worker.nr,
            generation: worker.generation,
            pid: worker.pid.unwrap_or(0),
            said: worker.said.clone(),
            cause: worker.cause.clone(),
        };
        out.push(Action::Gone { worker: key, fate, record: Box::new(record) });
        Some(worker)
    }

    fn died_starting(&mut self, worker: Worker, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        let generation = worker.generation;
        match worker.said.or(worker.cause) {
            Some(reason) => self.cannot_start(generation, reason, now, out),
            None if self.failures + 1 >= SILENT_DEATHS => {
                let reason = format!("workers die before they are ready: the last one {}", fate_text(fate));
                self.cannot_start(generation, reason, now, out);
            }
            None => self.back_off(now),
        }
    }

    // ---- what time brings

    pub(super) fn keep_time(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.keep_loading(now, out);
        for key in self.keys() {
            self.keep_worker_time(key, now, out);
        }
    }

    fn keep_worker_time(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let (limit, stopped_limit) = (self.start_timeout(), self.stopped_limit());
        let Some(worker) = self.workers.get_mut(&key) else { return };
        let late = worker.state == State::Starting && now >= worker.since + limit;
        let stopped = worker.stopped_since.is_some_and(|since| now >= since + stopped_limit);
        let ended = worker.link_ended.is_some_and(|since| now >= since + STATUS_WAIT);
        if stopped {
            worker.stopped_since = None;
            self.kill(key, "it was stopped for longer than stopped_limit", now, out);
        }
        if late {
            let reason = format!("the start took longer than start_timeout ({} s)", limit.as_secs_f64());
            self.kill(key, &reason, now, out);
        }
        self.keep_ladder(key, now, out);
        if ended {
            self.gone(key, None, now, out);
        }
    }

    /// Starts what is missing.
    pub(super) fn keep_target(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.trim(&[], now, out);
        self.keep_turns(now, out);
        self.let_go_unreplaced(now, out);
        self.keep_roll(out);
        self.keep_recycles(out);
        if self.must_wait(now, out) {
            return;
        }
        if self.current.is_none() && self.reload.is_none() {
            let generation = self.start_zygote(now, out);
            self.current = Some(generation);
        } else if self.current_is_up() {
            self.fork_missing(now, out);
        }
    }

    /// After starts that failed, or when too many workers died.
    fn must_wait(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
        self.retry_at = self.retry_at.filter(|at| *at > now);
        self.held_until = self.deaths.wait_until(now);
        if self.held_until.is_some() && self.ready() == 0 && self.failing.is_none() {
            self.say_failing(self.deaths.reason(), out);
        }
        self.retry_at.is_some() || self.held_until.is_some()
    }

    fn fork_missing(&mut self, now: Instant, out: &mut Vec<Action>) {
        while self.live() < self.target {
            let old = self.unreplaced().first().copied();
            let its = old.and_then(|key| self.workers.get(&key)).map(|worker| worker.nr);
            let nr = its.unwrap_or_else(|| self.free_nr());
            self.fork(nr, old, now, out);
        }
    }

    pub(super) fn live(&self) -> usize {
        self.workers.values().filter(|worker| worker.is_live()).count()
    }

    /// Nor the number of one that serves until it is replaced: it may have to stay.
    fn free_nr(&self) -> u32 {
        let serves = |worker: &&Worker| worker.is_live() || worker.state == State::Ready;
        let used: BTreeSet<u32> = self.workers.values().filter(serves).map(|worker| worker.nr).collect();
        (0..).find(|nr| !used.contains(nr)).unwrap_or(0)
    }

    fn fork(&mut self, nr: u32, replaces: Option<WorkerKey>, now: Instant, out: &mut Vec<Action>) {
        let Some(generation) = self.current else { return };
        self.next_key += 1;
        let key = self.next_key;
        // A fixed sequence spreads the thresholds evenly (multiples of the golden ratio).
        self.draws += 1;
        let draw = (self.draws as f64 * 0.618_033_988_75).fract();
        let worker = Worker {
            nr,
            generation,
            pid: None,
            state: State::Starting,
            slots: self.shape.slots() as usize,
            since: now,
            recycling: Recycling::draw(&self.config, now, draw),
            worn: None,
            due: None,
            leaving: None,
            leaves_first: false,
            memory: None,
            barred: false,
            replaces,
            stopped_since: None,
            link_ended: None,
            stuck: None,
            end_at: None,
            kill_at: None,
            said: None,
            cause: None,
        };
        self.workers.insert(key, worker);
        out.push(Action::Fork { worker: key, nr, generation });
    }
}

/// How a worker ended, in words.
pub fn fate_text(fate: Option<Fate>) -> String {
    match fate {
        Some(Fate::Signaled(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        Some(Fate::Exited(code)) => format!("exited with code {code}"),
        _ => "ended, nobody could tell how".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
