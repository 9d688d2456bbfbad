//! Runs jobs without a pool, in the caller's own thread, for tests: they are claimed, told of their attempt, and settled as
//! those of any other runner.

use std::sync::Arc;
use std::time::Duration;

use clutch_pool::work::Outcome;
use clutch_wire::Payload;

use super::work::Details;
use super::{Stats, answer, new_runner, work};
use crate::job::{Claimed, Ending, Settled, settle};
use crate::maintenance;
use crate::random;
use crate::store::{Keep, Noted, Report, Result, Round, Runner, Store, Upkeep, Want};

/// Longer than anybody stays in a debugger: nobody renews it.
const LEASE: Duration = Duration::from_secs(24 * 3600);

/// Whoever tests wants to see what has ended, however far the clock was moved.
const KEEP: Keep = Keep { completed: Duration::MAX, cancelled: Duration::MAX, dead: Duration::MAX };

pub struct InlineRunner {
    store: Arc<dyn Store>,
    runner: Runner,
    stats: Stats,
}

impl InlineRunner {
    pub fn new(store: Arc<dyn Store>) -> InlineRunner {
        InlineRunner { store, runner: new_runner(LEASE), stats: Stats::default() }
    }

    /// Returns the figures of its own attempts.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns what the handler is told of a job beside its arguments: JSON.
    pub fn details(job: &Claimed) -> Vec<u8> {
        Details::of(job).to_json()
    }

    /// Makes jobs available that are due, or whose turn has come.
    pub fn stage(&self) -> Result<Upkeep> {
        loop {
            let upkeep = self.store.look_after(&KEEP, maintenance::BATCH, &[], &[], self.store.now())?;
            if upkeep.staged.max(upkeep.passed) < maintenance::BATCH {
                return Ok(upkeep);
            }
        }
    }

    /// Claims jobs that can begin. Jobs past their deadline are settled instead.
    pub fn claim(&mut self, want: &Want) -> Result<Round> {
        let mut round = self.round(&Report::default(), want)?;
        let now = self.store.now();
        let is_overdue = |job: &Claimed| job.deadline_at.is_some_and(|at| at <= now);
        let (overdue, claimed) = round.claimed.into_iter().partition::<Vec<_>, _>(is_overdue);
        round.claimed = claimed;
        for job in overdue {
            self.end(&job, work::overdue(&job, now))?;
        }
        Ok(round)
    }

    /// Takes a message of a running job.
    pub fn note(&mut self, job: &Claimed, said: &Payload) -> Result<()> {
        let mut noted = Noted { id: job.id.clone(), attempt: job.attempt, ..Noted::default() };
        answer::note(said, &mut noted);
        self.round(&Report { noted: vec![noted], ..Report::default() }, &Want::default()).map(drop)
    }

    pub fn settle(&mut self, job: &Claimed, outcome: Outcome) -> Result<Settled> {
        self.end(job, answer::ending(job, outcome, self.store.now()))
    }

    /// Puts back a job that was not begun, or was cut off through no fault of its own.
    pub fn put_back(&mut self, job: &Claimed, reason: &str) -> Result<()> {
        self.end(job, Ending::CutOff { reason: reason.to_owned() }).map(drop)
    }

    pub fn leave(&self) -> Result<()> {
        self.store.leave(&self.runner)
    }

    fn end(&mut self, job: &Claimed, ending: Ending) -> Result<Settled> {
        let is_attempt = !matches!(ending, Ending::CutOff { .. } | Ending::NotBegun { .. });
        let settled = settle(job, ending, self.store.now(), random::fraction());
        let report = Report { settled: vec![settled.clone()], ..Report::default() };
        self.round(&report, &Want::default())?;
        if is_attempt {
            self.stats.count(&settled);
        }
        Ok(settled)
    }

    fn round(&mut self, report: &Report, want: &Want) -> Result<Round> {
        self.runner.round += 1;
        self.store.round(&self.runner, report, want, self.store.now())
    }
}
