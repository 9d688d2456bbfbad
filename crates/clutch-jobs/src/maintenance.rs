//! When the runner that leads its store looks after it: a pure machine.
//!
//! Each runner tries to lead; one at a time does, and goes on while it renews that. The leader stages jobs whose time
//! has come, at that time; rescues those of runners that are gone; and deletes what has ended long ago. As long as
//! there is more than one look takes in, it looks again at once.

use std::time::{Duration, Instant};

use crate::job::Millis;
use crate::store::Upkeep;

/// How long at most between two looks of a leader: how late a rescue is beyond its lease, and a job that was enqueued
/// for a time before the next that was known.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// How often who does not lead tries to: how long nobody does when the leader has left.
const LEAD_INTERVAL: Duration = Duration::from_secs(1);

/// How long at least between two looks while there is more to delete: nobody waits for that.
const PRUNE_PAUSE: Duration = Duration::from_millis(100);

/// Most jobs of each kind in one look, so that claims come in between.
pub const BATCH: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The answer to [`Step::Lead`].
    Leads(bool),
    /// The answer to [`Step::Look`], with the time of the store's clock.
    Looked {
        upkeep: Upkeep,
        now: Millis,
    },
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Try to lead, or to go on leading.
    Lead,
    Look,
    Wait(Instant),
}

#[derive(Debug)]
pub struct Maintenance {
    lease: Duration,
    leads: bool,
    lead_at: Instant,
    look_at: Instant,
}

impl Maintenance {
    pub fn new(lease: Duration, now: Instant) -> Maintenance {
        Maintenance { lease, leads: false, lead_at: now, look_at: now }
    }

    pub fn leads(&self) -> bool {
        self.leads
    }

    pub fn on(&mut self, event: Event, now: Instant) {
        match event {
            Event::Leads(leads) => {
                if leads && !self.leads {
                    self.look_at = now;
                }
                self.leads = leads;
                let longest = if leads { Duration::MAX } else { LEAD_INTERVAL };
                self.lead_at = now + (self.lease / 3).min(longest);
            }
            Event::Looked { upkeep, now: then } => {
                let is_more = [upkeep.staged, upkeep.rescued].iter().any(|done| *done >= BATCH);
                let due = upkeep.next_due.map(|due| Duration::from_millis(u64::try_from(due - then).unwrap_or(0)));
                let longest = if upkeep.pruned >= BATCH { PRUNE_PAUSE } else { LOOK_INTERVAL };
                let wait = if is_more { Duration::ZERO } else { due.unwrap_or(longest).min(longest) };
                // What is due at once and was not staged is due to a clock that went back: not without a pause.
                let least = if is_more { Duration::ZERO } else { Duration::from_millis(1) };
                self.look_at = now + wait.max(least);
            }
            Event::Failed => {
                // Whoever cannot reach the store does not know whether it leads.
                self.leads = false;
                self.lead_at = now + LEAD_INTERVAL;
            }
        }
    }

    pub fn step(&self, now: Instant) -> Step {
        if now >= self.lead_at {
            return Step::Lead;
        }
        match self.leads {
            true if now >= self.look_at => Step::Look,
            true => Step::Wait(self.look_at.min(self.lead_at)),
            false => Step::Wait(self.lead_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn leader(now: Instant) -> Maintenance {
        let mut one = Maintenance::new(LEASE, now);
        assert_eq!(one.step(now), Step::Lead);
        one.on(Event::Leads(true), now);
        one
    }

    #[test]
    fn who_does_not_lead_tries_again() {
        let now = Instant::now();
        let mut one = Maintenance::new(LEASE, now);
        one.on(Event::Leads(false), now);
        assert_eq!(one.step(now), Step::Wait(now + LEAD_INTERVAL));
        assert_eq!(one.step(now + LEAD_INTERVAL), Step::Lead);
        one.on(Event::Leads(true), now);
        one.on(Event::Looked { upkeep: Upkeep::default(), now: 0 }, now);
        assert!(matches!(one.step(now + LEAD_INTERVAL), Step::Look), "the leader holds on for a third of its lease");
        assert_eq!(one.step(now + LEASE / 3), Step::Lead);
    }

    #[test]
    fn a_job_is_staged_when_it_is_due() {
        let now = Instant::now();
        let mut one = leader(now);
        assert_eq!(one.step(now), Step::Look);
        let upkeep = Upkeep { next_due: Some(5_150), ..Upkeep::default() };
        one.on(Event::Looked { upkeep, now: 5_000 }, now);
        assert_eq!(one.step(now), Step::Wait(now + Duration::from_millis(150)));
        // Another may be enqueued meanwhile that is due before.
        one.on(Event::Looked { upkeep: Upkeep { next_due: Some(9_000), ..upkeep }, now: 5_000 }, now);
        assert_eq!(one.step(now), Step::Wait(now + LOOK_INTERVAL));
    }

    #[test]
    fn a_hundred_thousand_are_staged_without_a_pause() {
        let now = Instant::now();
        let mut one = leader(now);
        for _ in 0..100 {
            assert_eq!(one.step(now), Step::Look);
            one.on(
                Event::Looked { upkeep: Upkeep { staged: BATCH, next_due: Some(1), ..Upkeep::default() }, now: 9 },
                now,
            );
        }
        one.on(Event::Looked { upkeep: Upkeep::default(), now: 9 }, now);
        assert_eq!(one.step(now), Step::Wait(now + LOOK_INTERVAL));
    }

    #[test]
    fn a_clock_that_goes_back_makes_nobody_spin() {
        let now = Instant::now();
        let mut one = leader(now);
        one.on(Event::Looked { upkeep: Upkeep { next_due: Some(1_000), ..Upkeep::default() }, now: 9_000 }, now);
        assert!(matches!(one.step(now), Step::Wait(_)));
    }

    #[test]
    fn who_cannot_reach_the_store_leads_no_more() {
        let now = Instant::now();
        let mut one = leader(now);
        one.on(Event::Failed, now);
        assert!(!one.leads());
        assert_eq!(one.step(now + LEAD_INTERVAL), Step::Lead);
    }
}
