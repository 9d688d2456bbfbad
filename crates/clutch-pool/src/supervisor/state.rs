//! The supervisor's decisions as a pure machine: who lives. No I/O, no clock, no wait.
//!
//! Five parts decide by themselves: how many workers there should be, which image they come from, who of them leaves when,
//! when starts have to wait, and how the pool stops. The machine passes on what happens, and what one part's decision means
//! for another; parts do not know each other, but that the fleet asks of its workers' images. A replacement is ready before
//! the old worker is told to drain.

mod backoff;
mod deaths;
mod ends;
mod escalation;
mod fleet;
mod life;
mod messages;
mod retirement;
mod shutdown;
mod sizing;
mod turns;
mod worker;
mod zygotes;

use std::time::{Duration, Instant};

use clutch_wire::sys::{EndSignal, Fate};

use self::backoff::{StartBackoff, Trouble};
pub use self::ends::{fate_text, signal_name};
pub use self::fleet::{FORKS_MAX, Fleet};
use self::fleet::{Origin, Scene};
pub use self::life::STATUS_WAIT;
pub use self::messages::{Action, Event, WorkerRecord};
pub use self::shutdown::{ENDLESS_LEAVE, IDLE_LEAVE, stop_term};
use self::shutdown::{STOPPED, Shutdown, StopStep};
use self::sizing::Sizing;
pub use self::worker::{State, Worker};
use self::zygotes::{ZygoteLoss, Zygotes};
pub use super::leave::Leave;
use super::scale::Bounds;
use crate::config::{PoolConfig, Shape};
use crate::pool::state::WorkerKey;
use crate::pool::{Denied, Ticket, Weighed};

/// See the file's head.
#[derive(Debug)]
pub struct Supervisor {
    /// The code is being written.
    development: bool,
    sizing: Sizing,
    zygotes: Zygotes,
    fleet: Fleet,
    backoff: StartBackoff,
    shutdown: Shutdown,
    wake: Option<Instant>,
}

impl Supervisor {
    pub fn new(config: PoolConfig) -> Supervisor {
        Supervisor {
            development: config.development,
            sizing: Sizing::new(&config),
            zygotes: Zygotes::new(config.start_timeout(), config.start_timeout_ms.is_none(), config.shape),
            backoff: StartBackoff::new(config.restarts_max),
            shutdown: Shutdown::default(),
            wake: None,
            fleet: Fleet::new(config),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.shutdown.is_closed()
    }

    pub fn is_stopping(&self) -> bool {
        self.shutdown.is_under_way()
    }

    /// Returns why no worker can start.
    pub fn failing(&self) -> Option<&str> {
        self.backoff.failing()
    }

    /// Returns what is wrong, if anything: no worker can start, or not all of them.
    pub fn reason(&self) -> Option<String> {
        self.backoff.reason()
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub fn bounds(&self) -> Bounds {
        self.sizing.bounds()
    }

    /// Slots of a worker.
    pub fn slots(&self) -> usize {
        self.sizing.slots()
    }

    /// The image that workers are forked from; before there is one, the number of the last try.
    pub fn generation(&self) -> u32 {
        self.zygotes.generation()
    }

    /// When [`Event::Tick`] has something to do.
    pub fn next_wake(&self) -> Option<Instant> {
        self.wake
    }

    /// Takes in one event. What follows for the others is found by [`Supervisor::settle`], once for many events: it
    /// looks at every worker.
    pub fn take(&mut self, event: Event, now: Instant, out: &mut Vec<Action>) {
        let at = Scene { now, zygotes: &self.zygotes };
        match event {
            Event::Reload { ticket }
            | Event::Recycle { ticket, .. }
            | Event::Kill { ticket, .. }
            | Event::Scale { ticket, .. }
                if self.shutdown.is_under_way() =>
            {
                out.push(Action::Done { ticket, outcome: Err(Denied::Closed) });
            }
            Event::ZygoteUp { generation, shape } => self.zygote_up(generation, shape, now, out),
            Event::ZygoteFailed { generation, reason } => self.zygote_failed(generation, reason, now, out),
            Event::ZygoteGone { generation, reason, signal } => self.zygote_gone(generation, reason, signal, now, out),
            Event::Forked { worker, pid, watched } => self.forked(worker, pid, watched, now, out),
            Event::ForkFailed { worker, reason } => self.fork_failed(worker, reason, now, out),
            Event::WorkerReady { worker } => self.worker_ready(worker, now, out),
            Event::StartFailed { worker, reason } => self.fleet.start_failed(worker, reason),
            Event::LastOutput { worker, text } => self.fleet.last_output(worker, text),
            Event::Fate { worker, fate: Fate::Stopped } => self.fleet.stopped(worker, Some(now), out),
            Event::Fate { worker, fate: Fate::Continued } => self.fleet.stopped(worker, None, out),
            Event::Fate { worker, fate } => self.gone(worker, Some(fate), now, out),
            Event::Died { worker } => self.fleet.died(worker, now),
            Event::LinkEnded { worker, reason } => self.fleet.link_ended(worker, reason, now, out),
            Event::Worn { worker, why } => self.fleet.worn(worker, why),
            Event::Drained { worker, stuck } => {
                // A stop may leave it more time than the pool's own grace.
                let by = now + self.fleet.graces().0;
                let end_by = self.shutdown.term_at().map_or(by, |at| at.max(by));
                self.fleet.drained(worker, stuck, end_by, at, out);
            }
            Event::Stuck { worker, cause } => self.fleet.stuck(worker, cause, now, out),
            Event::Debugging { worker, on } => self.fleet.debug(worker, on, now, out),
            Event::Memory(figures) => self.weigh(&figures, now, out),
            Event::Resize { target, idlest } => {
                self.sizing.aim(target);
                self.fleet.trim(self.sizing.target(), &idlest, at, out);
            }
            Event::Reload { ticket } if self.development => self.start_over(ticket, now, out),
            Event::Reload { ticket } => self.zygotes.reload(ticket, now, out),
            Event::Recycle { ticket, nr } => self.fleet.recycle(ticket, nr),
            Event::Kill { ticket, nr } => self.fleet.kill_by_command(ticket, nr, now, out),
            Event::Scale { ticket, min, max, idle } => {
                self.sizing.bound(min, max);
                self.fleet.trim(self.sizing.target(), &idle, at, out);
                out.push(Action::Done { ticket, outcome: Ok(()) });
            }
            Event::Stop { grace, term, idle } => self.stop(grace, term, &idle, now),
            Event::Empty => self.stop_empty(now),
            Event::Tick => {}
        }
    }

    /// Does what has become due, starts what is missing, and lets go what is too many.
    pub fn settle(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.keep_time(now, out);
        if self.is_stopping() {
            self.keep_stopping(now, out);
        } else {
            self.keep_target(now, out);
        }
        self.zygotes.keep(&self.fleet.generations(), self.shutdown.is_under_way(), now, out);
        if self.fleet.is_empty() && self.zygotes.is_empty() && self.shutdown.close() {
            out.push(Action::Closed);
        }
        self.fleet.note_serving(now);
        self.wake = self.find_wake(now);
    }

    fn find_wake(&self, now: Instant) -> Option<Instant> {
        let of_pool = if self.is_stopping() { self.shutdown.next_wake() } else { self.backoff.next_wake() };
        let of_workers = self.fleet.next_wake(self.scene(now));
        [of_pool, of_workers, self.zygotes.next_wake()].into_iter().flatten().min()
    }

    fn scene(&self, now: Instant) -> Scene<'_> {
        Scene { now, zygotes: &self.zygotes }
    }

    // ---- zygotes, and what they mean for workers

    fn zygote_up(&mut self, generation: u32, shape: Option<Shape>, now: Instant, out: &mut Vec<Action>) {
        let Some(shape) = self.zygotes.up(generation, shape, now, out) else { return };
        self.sizing.reshape(shape);
        if self.zygotes.takes_over(generation) {
            self.backoff.try_anew();
            self.fleet.hurry_draining(now);
        }
    }

    fn zygote_failed(&mut self, generation: u32, reason: String, now: Instant, out: &mut Vec<Action>) {
        self.zygotes.end(generation, now, out);
        self.cannot_load(generation, Trouble { reason, by_code: true }, now, out);
    }

    fn zygote_gone(
        &mut self,
        generation: u32,
        reason: String,
        signal: Option<i32>,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let Some(loss) = self.zygotes.gone(generation) else { return };
        self.fleet.forget_unborn(generation, Scene { now, zygotes: &self.zygotes }, out);
        match loss {
            ZygoteLoss::Expected => {}
            ZygoteLoss::Proven => self.follow_zygote(generation, now),
            // It could not say why.
            ZygoteLoss::Unproven if signal.is_some() && self.backoff.may_lose_zygote() => {
                self.zygotes.give_up(generation);
                self.backoff.back_off(now, out);
            }
            ZygoteLoss::Unproven | ZygoteLoss::Aside => {
                let by_code = signal.is_none_or(|signal| !is_from_outside(signal));
                self.cannot_load(generation, Trouble { reason, by_code }, now, out);
            }
        }
    }

    /// The zygote had workers that were ready, and its successor will, too.
    fn follow_zygote(&mut self, generation: u32, now: Instant) {
        self.zygotes.give_up(generation);
        self.fleet.note_restart();
        self.backoff.note_death(now);
    }

    /// Kills a zygote that has not done in `start_timeout` what it was told; another one follows.
    fn zygote_hangs(&mut self, generation: u32, now: Instant, out: &mut Vec<Action>) {
        let limit = self.fleet.start_timeout().as_secs_f64();
        let Some(loss) = self.zygotes.kill_deaf(generation, out) else { return };
        let reason = format!("the zygote forked no worker within start_timeout ({limit} s) and was killed");
        self.backoff.note_trouble(reason.clone());
        match loss {
            ZygoteLoss::Proven => self.follow_zygote(generation, now),
            _ => self.cannot_load(generation, Trouble { reason, by_code: false }, now, out),
        }
    }

    fn cannot_load(&mut self, generation: u32, trouble: Trouble, now: Instant, out: &mut Vec<Action>) {
        if self.zygotes.fail_reload(generation, &trouble.reason, out) {
            if !self.zygotes.has_current() {
                self.fail(trouble, now, out);
            }
        } else if self.zygotes.give_up(generation) {
            self.cannot_start(generation, trouble, now, out);
        }
    }

    /// No worker of this generation can start: the image before takes over again, or nothing does. While code is being
    /// written, the one before is not what anybody wants to see.
    fn cannot_start(&mut self, generation: u32, trouble: Trouble, now: Instant, out: &mut Vec<Action>) {
        let failed = self.zygotes.fail_roll(generation, &trouble.reason, out);
        if self.development {
            self.backoff.await_reload(trouble.by_code);
        } else if failed.is_some_and(|failed| self.roll_back(failed, now, out)) {
            return;
        }
        self.fail(trouble, now, out);
    }

    /// Workers of the new image do not start: those of the old one stay, and those that did start leave again. False when
    /// the old image is not there any more to fork from.
    fn roll_back(&mut self, failed: u32, now: Instant, out: &mut Vec<Action>) -> bool {
        self.fleet.stay(Leave::Reload, Scene { now, zygotes: &self.zygotes }, out);
        let Some(shape) = self.zygotes.go_back(failed, &self.fleet.generations()) else { return false };
        self.sizing.reshape(shape);
        self.backoff.try_anew();
        self.fleet.drop_rejected(Scene { now, zygotes: &self.zygotes }, out);
        true
    }

    fn fail(&mut self, trouble: Trouble, now: Instant, out: &mut Vec<Action>) {
        self.backoff.back_off(now, out);
        self.fleet.fail_recycles(&trouble.reason, Scene { now, zygotes: &self.zygotes }, out);
        let first_round = self.backoff.first_round(self.fleet.last_key(), self.fleet.start_timeout(), now);
        let others_start = first_round.is_some_and(|last| self.fleet.starts(last, &self.zygotes));
        if self.fleet.ready() > 0 || others_start {
            self.backoff.note_trouble(trouble.reason);
        } else if !self.is_stopping() {
            self.backoff.fail(trouble, out);
        }
    }

    /// As a first start, while what runs may end in order. In operation old code serves until new code does; whoever has
    /// just saved a file wants to see that file at work, or what is wrong with it.
    fn start_over(&mut self, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        self.backoff.start_over(out);
        self.zygotes.start_over(ticket, now, out);
        self.fleet.leave_at_once(now, out);
    }

    // ---- workers, and what they mean for their images and the next starts

    fn forked(&mut self, key: WorkerKey, pid: i32, watched: bool, now: Instant, out: &mut Vec<Action>) {
        let Some(generation) = self.fleet.generation_of(key) else { return };
        self.zygotes.answered(generation, now);
        if self.fleet.forked(key, pid, watched, now) {
            self.worker_ready(key, now, out);
        }
    }

    fn fork_failed(&mut self, key: WorkerKey, reason: String, now: Instant, out: &mut Vec<Action>) {
        let Some(generation) = self.fleet.generation_of(key) else { return };
        self.zygotes.answered(generation, now);
        self.fleet.start_failed(key, reason);
        self.gone(key, None, now, out);
    }

    fn worker_ready(&mut self, key: WorkerKey, now: Instant, out: &mut Vec<Action>) {
        if self.fleet.worker_ready(key, Scene { now, zygotes: &self.zygotes }, out) {
            self.fleet.generation_of(key).into_iter().for_each(|generation| self.zygotes.prove(generation));
            self.backoff.recover();
        }
    }

    fn weigh(&mut self, figures: &[Weighed], now: Instant, out: &mut Vec<Action>) {
        self.fleet.weigh(figures, Scene { now, zygotes: &self.zygotes }, out);
        if self.backoff.has_failed() && figures.iter().any(|figure| figure.at_limit) {
            out.push(Action::ServeOn);
        }
    }

    fn gone(&mut self, key: WorkerKey, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        let gone = self.fleet.gone(key, fate, Scene { now, zygotes: &self.zygotes }, out);
        match gone {
            Some(worker) if worker.state() == State::Ready => self.backoff.note_death(now),
            // One that was not wanted any more has not failed.
            Some(worker) if worker.has_failed_to_start() && !self.is_stopping() => {
                self.died_starting(&worker, fate, now, out);
            }
            _ => {}
        }
    }

    fn died_starting(&mut self, worker: &Worker, fate: Option<Fate>, now: Instant, out: &mut Vec<Action>) {
        let silent = || {
            let last = worker.last_output().map_or_else(String::new, |text| format!("; its last output:\n{text}"));
            format!("workers die before they are ready: the last one {}{last}", fate_text(fate))
        };
        let said = worker.failure().map(str::to_owned);
        match said.or_else(|| self.backoff.is_last_silent_death().then(silent)) {
            Some(reason) => self.cannot_start(worker.generation, Trouble { reason, by_code: false }, now, out),
            None => self.backoff.back_off(now, out),
        }
    }

    // ---- what time brings

    fn keep_time(&mut self, now: Instant, out: &mut Vec<Action>) {
        for generation in self.zygotes.overdue(now) {
            out.push(Action::ShowZygote { generation });
            self.zygote_failed(generation, self.fleet.load_overdue(), now, out);
        }
        for key in self.fleet.keys() {
            let hangs = self.fleet.keep_time(key, Scene { now, zygotes: &self.zygotes }, out);
            hangs.into_iter().for_each(|generation| self.zygote_hangs(generation, now, out));
            if self.fleet.is_over(key, self.scene(now)) {
                self.gone(key, None, now, out);
            }
        }
    }

    /// Starts what is missing.
    fn keep_target(&mut self, now: Instant, out: &mut Vec<Action>) {
        let (target, at) = (self.sizing.target(), Scene { now, zygotes: &self.zygotes });
        self.fleet.trim(target, &[], at, out);
        self.fleet.keep_turns(at, out);
        self.fleet.let_go_unreplaced(target, at, out);
        if self.fleet.ready() >= target {
            let leaving = if self.development { None } else { self.fleet.generations().first().copied() };
            self.zygotes.finish_roll(leaving, out);
        }
        self.fleet.keep_recycles(out);
        if self.backoff.must_wait(self.fleet.ready() > 0, now, out) {
            return;
        }
        if let Some(generation) = self.zygotes.up_now() {
            let origin = Origin { generation, slots: self.sizing.slots() };
            self.fleet.fork_missing(target, origin, now, out);
        } else if !self.zygotes.has_successor() {
            self.zygotes.start(now, out);
        }
    }

    // ---- its end

    fn stop(&mut self, grace: Duration, term: Duration, idle: &[WorkerKey], now: Instant) {
        self.shutdown.begin(grace, term, now);
        if grace.is_zero() {
            self.fleet.spare_idle(idle, now + IDLE_LEAVE);
        }
    }

    /// The stop of a pool that was closed and has no work left: all workers are idle.
    fn stop_empty(&mut self, now: Instant) {
        // Whoever has stopped it has said how long it may take.
        if self.is_stopping() {
            return;
        }
        let (grace, term_grace) = self.fleet.graces();
        if grace.is_zero() {
            self.fleet.spare_idle(&self.fleet.keys(), now + IDLE_LEAVE);
        }
        self.shutdown.begin(grace, stop_term(grace, term_grace), now);
    }

    fn keep_stopping(&mut self, now: Instant, out: &mut Vec<Action>) {
        for step in self.shutdown.due(now) {
            match step {
                StopStep::Quiet => self.quiet(now, out),
                StopStep::Term(cause) => self.fleet.terminate_all(cause, now, out),
                StopStep::Kill(cause) => {
                    let all = self.fleet.kill_all(cause, now, out);
                    if self.shutdown.killed(all, now) {
                        self.fleet.waits_for().into_iter().for_each(|generation| self.zygotes.kill(generation, out));
                    }
                }
            }
        }
    }

    fn quiet(&mut self, now: Instant, out: &mut Vec<Action>) {
        out.push(Action::RefuseWaiting);
        self.zygotes.deny_reloads(out);
        self.fleet.end_recycles(&Denied::Closed, out);
        let limit = self.shutdown.kill_at().unwrap_or(now);
        self.fleet.quiet(STOPPED, limit, Scene { now, zygotes: &self.zygotes }, out);
    }
}

/// Sent by somebody, the kernel's out-of-memory killer among them; others are what code does to itself.
fn is_from_outside(signal: i32) -> bool {
    signal == EndSignal::Kill as i32 || signal == EndSignal::Term as i32
}
