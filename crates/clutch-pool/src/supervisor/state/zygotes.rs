//! The zygotes of a pool: one that workers are forked from, one that a reload loads, older ones that still have workers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clutch_wire::sys::EndSignal;

use super::workers::{SILENT_DEATHS, Trouble};
use super::{Action, Leave, State, Supervisor};
use crate::config::Shape;
use crate::pool::state::WorkerKey;
use crate::pool::{Denied, Ticket};

/// How long a zygote that was told to end may take for it before it is killed.
const END_WAIT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading {
        since: Instant,
    },
    Up,
    /// Told to end; killed at that time, or already.
    Ending {
        kill_at: Option<Instant>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ZygoteRecord {
    phase: Phase,
    /// A worker of it was ready.
    pub(super) proven: bool,
    /// When it did what it was told for the last time.
    pub(super) answered: Option<Instant>,
    /// Where its policy changed that of the config.
    shape: Option<Shape>,
}

impl ZygoteRecord {
    /// Whether it tells of its workers' ends.
    pub(super) fn has_loaded(&self) -> bool {
        !matches!(self.phase, Phase::Loading { .. })
    }

    pub(super) fn next_wake(&self, limit: Duration) -> Option<Instant> {
        match self.phase {
            Phase::Loading { since } => Some(since + limit),
            Phase::Up => None,
            Phase::Ending { kill_at } => kill_at,
        }
    }
}

/// A reload: the generation that is loaded or takes over, and who waits for it.
#[derive(Debug)]
pub(super) struct Reload {
    pub(super) generation: u32,
    pub(super) tickets: Vec<Ticket>,
}

impl Supervisor {
    /// The image that workers are forked from; before there is one, the number of the last try.
    pub fn generation(&self) -> u32 {
        self.current.unwrap_or(self.generation)
    }

    pub(super) fn current_is_up(&self) -> bool {
        self.current.is_some_and(|generation| self.is_up(generation))
    }

    fn is_up(&self, generation: u32) -> bool {
        self.zygotes.get(&generation).is_some_and(|zygote| zygote.phase == Phase::Up)
    }

    fn is_reload(&self, generation: u32) -> bool {
        self.reload.as_ref().is_some_and(|reload| reload.generation == generation)
    }

    pub(super) fn start_zygote(&mut self, now: Instant, out: &mut Vec<Action>) -> u32 {
        self.generation += 1;
        let zygote = ZygoteRecord { phase: Phase::Loading { since: now }, proven: false, answered: None, shape: None };
        self.zygotes.insert(self.generation, zygote);
        out.push(Action::StartZygote { generation: self.generation });
        self.generation
    }

    /// One that loads is killed: it hears nothing.
    fn end_zygote(&mut self, generation: u32, now: Instant, out: &mut Vec<Action>) {
        let Some(zygote) = self.zygotes.get_mut(&generation) else { return };
        let at_once = !zygote.has_loaded();
        if !matches!(zygote.phase, Phase::Ending { .. }) {
            zygote.phase = Phase::Ending { kill_at: (!at_once).then(|| now + END_WAIT) };
            out.push(Action::EndZygote { generation, at_once });
        }
    }

    // ---- what becomes of them

    pub(super) fn zygote_up(&mut self, generation: u32, shape: Option<Shape>, now: Instant, out: &mut Vec<Action>) {
        let Some(zygote) = self.zygotes.get_mut(&generation).filter(|zygote| !zygote.has_loaded()) else { return };
        (zygote.phase, zygote.shape) = (Phase::Up, shape);
        if self.is_reload(generation) {
            self.begin_roll(now, out);
        } else if self.current == Some(generation) {
            self.fork_from(generation);
        } else {
            self.end_zygote(generation, now, out);
        }
    }

    pub(super) fn zygote_failed(&mut self, generation: u32, reason: String, now: Instant, out: &mut Vec<Action>) {
        self.end_zygote(generation, now, out);
        self.cannot_load(generation, Trouble { reason, by_code: true }, now, out);
    }

    fn cannot_load(&mut self, generation: u32, trouble: Trouble, now: Instant, out: &mut Vec<Action>) {
        if self.is_reload(generation) {
            if let Some(reload) = self.reload.take() {
                self.fail_reload(reload, &trouble.reason, out);
            }
            if self.current.is_none() {
                self.fail(trouble, now, out);
            }
        } else if self.current == Some(generation) {
            self.current = None;
            self.cannot_start(generation, trouble, now, out);
        }
    }

    pub(super) fn zygote_gone(
        &mut self,
        generation: u32,
        reason: String,
        signal: Option<i32>,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let Some(zygote) = self.zygotes.remove(&generation) else { return };
        self.forget_unborn(generation, out);
        let is_current = self.current == Some(generation);
        match zygote.phase {
            Phase::Ending { .. } => {}
            Phase::Up if zygote.proven && is_current => self.replace_zygote(now),
            // It could not say why; one that dies like this again and again is to blame.
            Phase::Loading { .. } | Phase::Up
                if is_current && signal.is_some() && self.zygotes_killed < SILENT_DEATHS - 1 =>
            {
                self.zygotes_killed += 1;
                self.current = None;
                self.back_off(now);
            }
            Phase::Loading { .. } | Phase::Up => {
                let by_code = signal.is_none_or(|signal| !is_from_outside(signal));
                self.cannot_load(generation, Trouble { reason, by_code }, now, out);
            }
        }
    }

    /// It had workers that were ready: its successor will, too.
    fn replace_zygote(&mut self, now: Instant) {
        self.current = None;
        self.restarts += 1;
        self.deaths.note(now);
    }

    pub(super) fn zygote_answered(&mut self, generation: u32, now: Instant) {
        if let Some(zygote) = self.zygotes.get_mut(&generation) {
            zygote.answered = Some(now);
        }
    }

    /// It lives, and has not done in `start_timeout` what it was told: killed, and followed by another.
    pub(super) fn zygote_hangs(&mut self, generation: u32, now: Instant, out: &mut Vec<Action>) {
        let limit = self.start_timeout().as_secs_f64();
        let Some(zygote) = self.zygotes.get_mut(&generation).filter(|zygote| zygote.phase == Phase::Up) else { return };
        let reason = format!("the zygote forked no worker within start_timeout ({limit} s) and was killed");
        let proven = zygote.proven;
        zygote.phase = Phase::Ending { kill_at: None };
        out.push(Action::EndZygote { generation, at_once: true });
        self.trouble = Some(reason.clone());
        if proven && self.current == Some(generation) {
            self.replace_zygote(now);
        } else {
            self.cannot_load(generation, Trouble { reason, by_code: false }, now, out);
        }
    }

    /// Nothing else is left to wait for: what these zygotes were told to fork, or to kill, they do not.
    pub(super) fn end_deaf_zygotes(&mut self, out: &mut Vec<Action>) {
        let waited_for = |worker: &&super::Worker| worker.pid.is_none() || !worker.watched;
        let deaf: BTreeSet<u32> = self.workers.values().filter(waited_for).map(|worker| worker.generation).collect();
        for generation in deaf {
            let Some(zygote) = self.zygotes.get_mut(&generation) else { continue };
            zygote.phase = Phase::Ending { kill_at: None };
            out.push(Action::EndZygote { generation, at_once: true });
        }
    }

    /// Workers that it was told to fork and had not.
    fn forget_unborn(&mut self, generation: u32, out: &mut Vec<Action>) {
        let unborn = |worker: &super::Worker| worker.generation == generation && worker.pid.is_none();
        for key in self.keys() {
            if self.workers.get(&key).is_some_and(unborn) {
                self.remove(key, None, out);
            }
        }
    }

    pub(super) fn keep_loading(&mut self, now: Instant, out: &mut Vec<Action>) {
        let limit = self.start_timeout();
        for generation in self.generations() {
            let phase = self.zygotes.get(&generation).map(|zygote| zygote.phase);
            if matches!(phase, Some(Phase::Loading { since }) if now >= since + limit) {
                let reason = format!("loading took longer than start_timeout ({} s)", limit.as_secs_f64());
                self.zygote_failed(generation, reason, now, out);
            }
        }
    }

    /// Ends those of no use any more, and kills what does not end.
    pub(super) fn keep_zygotes(&mut self, now: Instant, out: &mut Vec<Action>) {
        for generation in self.generations() {
            if !self.is_of_use(generation) {
                self.end_zygote(generation, now, out);
            }
            if let Some(ZygoteRecord { phase: Phase::Ending { kill_at }, .. }) = self.zygotes.get_mut(&generation)
                && kill_at.is_some_and(|at| at <= now)
            {
                *kill_at = None;
                out.push(Action::EndZygote { generation, at_once: true });
            }
        }
        let (zygotes, workers) = (&self.zygotes, &self.workers);
        let known = |at: &u32| zygotes.contains_key(at) || workers.values().any(|worker| worker.generation == *at);
        self.rejected.retain(known);
    }

    /// Of a pool that stops: only for the ends of its workers.
    fn is_of_use(&self, generation: u32) -> bool {
        let stopping = self.stopping.is_some();
        let wanted = self.current == Some(generation) || self.is_reload(generation) || self.roll.is_some();
        let has_workers = self.workers.values().any(|worker| worker.generation == generation);
        has_workers || (wanted && !stopping)
    }

    pub(super) fn generations(&self) -> Vec<u32> {
        self.zygotes.keys().copied().collect()
    }

    pub(super) fn has_no_zygote(&self) -> bool {
        self.zygotes.is_empty()
    }

    // ---- reload

    /// Loads the code anew beside what runs. One that was still loading is overtaken.
    pub(super) fn reload(&mut self, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        if self.stopping.is_some() {
            return self.deny_reload(ticket, out);
        }
        let mut tickets = vec![ticket];
        if let Some(overtaken) = self.reload.take() {
            self.end_zygote(overtaken.generation, now, out);
            tickets.extend(overtaken.tickets);
        }
        let generation = self.start_zygote(now, out);
        self.reload = Some(Reload { generation, tickets });
        out.push(Action::ReloadStarted { generation });
    }

    pub(super) fn deny_reload(&self, ticket: Ticket, out: &mut Vec<Action>) {
        out.push(Action::Done { ticket, outcome: Err(Denied::Closed) });
    }

    /// The image that is being loaded is not wanted any more.
    pub(super) fn end_loading(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(generation) = self.current.take().filter(|generation| !self.is_up(*generation)) {
            self.end_zygote(generation, now, out);
        }
    }

    /// The new image is there: new workers come from it, the others leave in turn.
    fn begin_roll(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(mut reload) = self.reload.take() else { return };
        reload.tickets.extend(self.roll.take().into_iter().flat_map(|overtaken| overtaken.tickets));
        let generation = reload.generation;
        if let Some(old) = self.current.filter(|old| !self.is_up(*old)) {
            self.end_zygote(old, now, out);
        }
        self.roll = Some(reload);
        self.fork_from(generation);
        (self.failures, self.retry_at) = (0, None);
        let limit = now + self.config.grace();
        let draining = self.workers.values_mut().filter(|worker| worker.state == State::Draining);
        draining.for_each(|worker| worker.escalation.end_by(limit));
    }

    /// Whether workers of this image are to be replaced by others.
    pub(super) fn is_outdated(&self, generation: u32) -> bool {
        let rolled = self.roll.as_ref().is_some_and(|roll| generation < roll.generation);
        rolled || self.rejected.contains(&generation)
    }

    /// From now on workers come from this image. A policy of it may have changed their number.
    fn fork_from(&mut self, generation: u32) {
        let own = self.zygotes.get(&generation).and_then(|zygote| zygote.shape);
        let shape = own.unwrap_or(self.config.shape);
        if shape.workers != self.shape.workers {
            let workers = shape.workers as usize;
            self.min = (self.min * workers / self.max.max(1)).clamp(1, workers);
            (self.max, self.target) = (workers, self.min);
        }
        (self.current, self.shape) = (Some(generation), shape);
    }

    /// All workers run the new image: those who asked for it are told.
    pub(super) fn keep_roll(&mut self, out: &mut Vec<Action>) {
        let Some(generation) = self.roll.as_ref().map(|roll| roll.generation) else { return };
        let old = self.workers.values().any(|worker| worker.generation < generation);
        if (old && !self.config.development) || self.ready() < self.target {
            return;
        }
        out.push(Action::ReloadFinished { generation });
        let tickets = self.roll.take().map_or(Vec::new(), |roll| roll.tickets);
        out.extend(tickets.into_iter().map(|ticket| Action::Done { ticket, outcome: Ok(()) }));
    }

    pub(super) fn fail_reload(&mut self, reload: Reload, reason: &str, out: &mut Vec<Action>) {
        out.push(Action::ReloadFailed { generation: reload.generation, reason: reason.to_owned() });
        let failed = |ticket| Action::Done { ticket, outcome: Err(Denied::Failed(reason.to_owned())) };
        out.extend(reload.tickets.into_iter().map(failed));
    }

    /// Workers of the new image do not start: those of the old one stay, and those that did start leave again. False when
    /// the old image is not there any more to fork from.
    pub(super) fn roll_back(&mut self, reason: &str, now: Instant, out: &mut Vec<Action>) -> bool {
        let Some(roll) = self.roll.take() else { return false };
        let generation = roll.generation;
        self.fail_reload(roll, reason, out);
        self.stay(Leave::Reload, now, out);
        let Some(before) = self.before(generation) else { return false };
        self.fork_from(before);
        (self.failures, self.retry_at) = (0, None);
        let new: Vec<u32> =
            self.workers.values().map(|worker| worker.generation).filter(|at| *at >= generation).collect();
        self.rejected.extend(new);
        self.rejected.insert(generation);
        for key in self.keys() {
            self.drop_rejected(key, now, out);
        }
        true
    }

    /// Those that are ready leave in turn; the others are of no use.
    fn drop_rejected(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        let Some(worker) = self.workers.get_mut(&key).filter(|worker| worker.state == State::Starting) else { return };
        if self.rejected.contains(&worker.generation) {
            worker.retirement.leave_now_for(Leave::Reload);
            self.kill(key, "the reload failed", now, out);
        }
    }

    /// The newest image before this one that workers can be forked from.
    fn before(&self, generation: u32) -> Option<u32> {
        let older = self.zygotes.range(..generation);
        let usable = older.filter(|(at, zygote)| zygote.phase == Phase::Up && !self.rejected.contains(at));
        usable.max_by_key(|(generation, zygote)| (zygote.proven, **generation)).map(|(generation, _)| *generation)
    }
}

/// Sent by somebody, the kernel's out-of-memory killer among them; others are what code does to itself.
fn is_from_outside(signal: i32) -> bool {
    signal == EndSignal::Kill as i32 || signal == EndSignal::Term as i32
}
