//! When the runner that leads its store looks after it: a pure machine.
//!
//! Each runner tries to lead; one at a time does, and goes on while it renews that. The leader stages jobs whose time
//! has come, at that time; rescues those of runners whose leases have lapsed; and deletes what has ended long ago. As
//! long as there is more than one look takes in, it looks again at once. Whether it still leads when its look is carried
//! out does not matter: two that lead for a while do nothing twice.
//!
//! Periodic jobs need no leader: whoever has entries enqueues their jobs when they are due, since the leader may be
//! another program, which does not know them. The store takes each tick once.

use std::time::{Duration, Instant};

use crate::cron::{Cron, Missed};
use crate::job::Millis;
use crate::leases::{LOOKS_MIN, Lapsed, Observer};
use crate::store::{Led, RENEWALS, Schedule, Tick, Upkeep};

/// Maximum time between two looks of a leader: how late a rescue is beyond its lease, and a job that was enqueued
/// for a time before the next that was known. With short leases it is less, so that enough looks fall into one.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which others try to lead: the gap when the leader has left. The same holds for it.
pub(crate) const LEAD_INTERVAL: Duration = Duration::from_millis(375);

/// Longest lease of a leader: the gap when it was killed. One that only stood still leads no more, and has lost nothing.
const LEAD_LEASE: Duration = Duration::from_secs(3);

/// The same where the store tells of what there is to do: a server that others share is asked less while nothing happens,
/// and what waits for its time after a kill waits longer.
const QUIET_LEAD_LEASE: Duration = Duration::from_secs(9);

/// Least time between two looks while there is more to delete: nobody waits for that.
const PRUNE_PAUSE: Duration = Duration::from_millis(30);

/// Most jobs of each kind in one look, so that claims come in between.
pub const BATCH: usize = 1000;

#[derive(Debug)]
pub enum Performed {
    /// [`Duty::Lead`], sent then.
    Led {
        led: Led,
        sent: Instant,
    },
    /// [`Duty::Look`], at this time of the store's clock.
    Looked {
        upkeep: Upkeep,
        ticks: Vec<Tick>,
        now: Millis,
        sent: Instant,
    },
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Try to lead, or to go on leading, given [`Maintenance::lapsed`].
    Lead,
    /// With [`Maintenance::ticks`] and [`Maintenance::lapsed`], and at most so many jobs of each kind.
    Look {
        limit: usize,
    },
    Wait(Instant),
}

#[derive(Debug)]
pub struct Maintenance {
    /// As leader.
    lease: Duration,
    look_interval: Duration,
    lead_interval: Duration,
    cron: Cron,
    leases: Observer,
    leads: bool,
    lead_at: Instant,
    look_at: Instant,
    /// Longest time between two looks while there is no news.
    quiet_interval: Duration,
    looked_at: Instant,
    /// The store could not be had: first it is tried to lead.
    is_lost: bool,
}

impl Maintenance {
    /// `lease`: that of the runners.
    pub fn new(lease: Duration, cron: Cron, now: Instant) -> Maintenance {
        let look_interval = LOOK_INTERVAL.min(lease / LOOKS_MIN);
        let lease = lease.min(LEAD_LEASE);
        Maintenance {
            lease,
            look_interval,
            quiet_interval: look_interval,
            looked_at: now,
            lead_interval: LEAD_INTERVAL.min(lease / LOOKS_MIN),
            cron,
            leases: Observer::default(),
            leads: false,
            lead_at: now,
            look_at: now,
            is_lost: false,
        }
    }

    /// Looks less often while there is no news, since the store tells of all that a leader has to know ([`Self::arrived`]).
    /// `lease`: that of the runners.
    pub fn quiet(mut self, interval: Duration, lease: Duration) -> Maintenance {
        self.quiet_interval = interval.min(lease / LOOKS_MIN).max(self.look_interval);
        if interval > LOOK_INTERVAL {
            self.lease = lease.min(QUIET_LEAD_LEASE);
            self.lead_interval = self.lease / LOOKS_MIN;
        }
        self
    }

    /// There is news in the store: the next look is as soon after the last as it may be.
    pub fn arrived(&mut self) {
        self.look_at = self.look_at.min(self.looked_at + self.look_interval);
    }

    /// Returns the lease as leader.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Returns the leases that have lapsed.
    pub fn lapsed(&self) -> Vec<Lapsed> {
        self.leases.lapsed()
    }

    /// Takes the entries of periodic jobs that the store keeps.
    pub fn keep(&mut self, schedules: &[Schedule], clock: Millis) {
        self.cron.keep(schedules, clock);
    }

    /// Looks for entries of periodic jobs that a clock which was ahead has silenced.
    pub fn ask_of_future(&mut self, clock: Millis) {
        self.cron.ask_of_future(clock);
    }

    /// Returns the ticks of periodic jobs that were missed, since it was asked last.
    pub fn take_missed(&mut self) -> Vec<Missed> {
        self.cron.take_missed()
    }

    /// Returns the ticks of periodic jobs that a look is to report.
    pub fn ticks(&mut self, clock: Millis) -> Vec<Tick> {
        self.cron.ticks(clock)
    }

    pub fn on(&mut self, event: Performed, now: Instant) {
        self.is_lost = matches!(event, Performed::Failed);
        match event {
            Performed::Led { led, sent } => {
                if led.leads && !self.leads {
                    self.look_at = now;
                }
                // Until now, it has looked as often as one that did not lead, or did.
                let interval = if self.leads { self.quiet_interval } else { self.lead_interval };
                self.leases.looked(led.leases, sent, interval);
                self.leads = led.leads;
                self.cron.ask_again();
                let longest = if led.leads { Duration::MAX } else { self.lead_interval };
                self.lead_at = now + (self.lease / RENEWALS).min(longest);
            }
            Performed::Looked { upkeep, ticks, now: then, sent } => {
                // Who has only come with ticks was told of no lease.
                if self.leads {
                    self.leases.looked(upkeep.leases, sent, self.quiet_interval);
                }
                self.cron.ticked(&ticks, &upkeep.last_ticks);
                let is_more = [upkeep.staged, upkeep.rescued, upkeep.passed].iter().any(|done| *done >= BATCH);
                let due = upkeep.next_due.map(|due| millis_until(due, then));
                let longest = if upkeep.pruned >= BATCH { PRUNE_PAUSE } else { self.quiet_interval };
                let wait = if is_more { Duration::ZERO } else { due.unwrap_or(longest).min(longest) };
                // What is due at once and was not staged is due to a clock that went back: not without a pause.
                let least = if is_more { Duration::ZERO } else { Duration::from_millis(1) };
                self.look_at = now + wait.max(least);
                self.looked_at = now;
            }
            Performed::Failed => {
                // Whoever cannot reach the store does not know whether it leads.
                self.leads = false;
                self.lead_at = now + self.lead_interval;
            }
        }
    }

    /// `clock`: what the store's clock shows now.
    pub fn step(&self, now: Instant, clock: Millis) -> Duty {
        if now >= self.lead_at {
            return Duty::Lead;
        }
        let look_at = self.leads.then_some(self.look_at);
        let due_at = self.cron.due_at().filter(|_| !self.is_lost);
        let tick_at = due_at.map(|due_at| now + millis_until(due_at, clock));
        let limit = if self.leads { BATCH } else { 0 };
        match look_at.into_iter().chain(tick_at).min() {
            Some(at) if at <= now => Duty::Look { limit },
            at => Duty::Wait(at.unwrap_or(self.lead_at).min(self.lead_at)),
        }
    }
}

fn millis_until(time: Millis, clock: Millis) -> Duration {
    Duration::from_millis(u64::try_from(time.saturating_sub(clock)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::CronEntry;

    const LEASE: Duration = Duration::from_secs(30);
    const LOOK: Duty = Duty::Look { limit: BATCH };

    fn leader(now: Instant) -> Maintenance {
        let mut one = Maintenance::new(LEASE, Cron::default(), now);
        assert_eq!(one.step(now, 0), Duty::Lead);
        one.on(led(true, now), now);
        one
    }

    fn led(leads: bool, sent: Instant) -> Performed {
        Performed::Led { led: Led { leads, leases: Vec::new() }, sent }
    }

    fn looked(upkeep: Upkeep, now: Millis, sent: Instant) -> Performed {
        Performed::Looked { upkeep, ticks: Vec::new(), now, sent }
    }

    #[test]
    fn who_does_not_lead_tries_again() {
        let now = Instant::now();
        let mut one = Maintenance::new(LEASE, Cron::default(), now);
        one.on(led(false, now), now);
        assert_eq!(one.step(now, 0), Duty::Wait(now + LEAD_INTERVAL));
        assert_eq!(one.step(now + LEAD_INTERVAL, 0), Duty::Lead);
        one.on(led(true, now), now);
        one.on(looked(Upkeep::default(), 0, now), now);
        assert!(one.step(now + LEAD_INTERVAL, 0) == LOOK, "the leader holds on for a third of its lease");
        assert_eq!(one.step(now + LEAD_LEASE / 3, 0), Duty::Lead);
    }

    #[test]
    fn a_job_is_staged_when_it_is_due() {
        let now = Instant::now();
        let mut one = leader(now);
        assert_eq!(one.step(now, 0), LOOK);
        let upkeep = Upkeep { next_due: Some(5_150), ..Upkeep::default() };
        one.on(looked(upkeep, 5_000, now), now);
        assert_eq!(one.step(now, 0), Duty::Wait(now + Duration::from_millis(150)));
        // Another may be enqueued meanwhile that is due before.
        one.on(looked(Upkeep { next_due: Some(9_000), ..Upkeep::default() }, 5_000, now), now);
        assert_eq!(one.step(now, 0), Duty::Wait(now + LOOK_INTERVAL));
    }

    #[test]
    fn without_news_a_leader_looks_less_often() {
        let now = Instant::now();
        let mut one = Maintenance::new(LEASE, Cron::default(), now).quiet(Duration::from_millis(700), LEASE);
        one.on(led(true, now), now);
        one.on(looked(Upkeep::default(), 0, now), now);
        assert_eq!(one.step(now, 0), Duty::Wait(now + Duration::from_millis(700)));
        one.arrived();
        assert_eq!(one.step(now, 0), Duty::Wait(now + LOOK_INTERVAL));
        one.on(looked(Upkeep { next_due: Some(40), ..Upkeep::default() }, 0, now), now);
        one.arrived();
        assert_eq!(one.step(now, 0), Duty::Wait(now + Duration::from_millis(40)));
        let short = Maintenance::new(LEASE, Cron::default(), now).quiet(LEASE, LEASE);
        assert_eq!(short.quiet_interval, LEASE / LOOKS_MIN, "enough looks fall into a lease");
        assert_eq!((short.lease(), short.lead_interval), (QUIET_LEAD_LEASE, QUIET_LEAD_LEASE / LOOKS_MIN));
        let second = Duration::from_secs(1);
        let shortest = Maintenance::new(second, Cron::default(), now).quiet(LEASE, second);
        assert_eq!((shortest.lease(), shortest.lead_interval), (second, second / LOOKS_MIN));
    }

    #[test]
    fn a_hundred_thousand_are_staged_without_a_pause() {
        let now = Instant::now();
        let mut one = leader(now);
        for _ in 0..100 {
            assert_eq!(one.step(now, 0), LOOK);
            one.on(looked(Upkeep { staged: BATCH, next_due: Some(1), ..Upkeep::default() }, 9, now), now);
        }
        one.on(looked(Upkeep::default(), 9, now), now);
        assert_eq!(one.step(now, 0), Duty::Wait(now + LOOK_INTERVAL));
    }

    #[test]
    fn a_clock_that_goes_back_makes_nobody_spin() {
        let now = Instant::now();
        let mut one = leader(now);
        one.on(looked(Upkeep { next_due: Some(1_000), ..Upkeep::default() }, 9_000, now), now);
        assert!(matches!(one.step(now, 0), Duty::Wait(_)));
    }

    #[test]
    fn who_cannot_reach_the_store_leads_no_more() {
        let now = Instant::now();
        let mut one = leader(now);
        one.on(Performed::Failed, now);
        assert!(!one.leads());
        assert_eq!(one.step(now + LEAD_INTERVAL, 0), Duty::Lead);
    }

    /// Returns a machine with an hourly entry, at half past midnight in 1970.
    fn with_cron(now: Instant, leads: bool) -> Maintenance {
        let every = r#"{"name": "x", "every_ms": 3600000, "zone": "UTC", "misfire": "last", "overlap": "allow",
            "job": {"queue": "default", "tool": "x", "arguments": {}, "attempts_max": 1}}"#;
        let entry = CronEntry::new(serde_json::from_str(every).unwrap(), 0).unwrap();
        let mut one = Maintenance::new(LEASE, Cron::new(vec![entry]), now);
        one.on(led(leads, now), now);
        let ticks = one.ticks(1_800_000);
        assert!(ticks[0].job.is_none());
        let upkeep = Upkeep { last_ticks: vec![1_800_000], ..Upkeep::default() };
        one.on(Performed::Looked { upkeep, ticks, now: 1_800_000, sent: now }, now);
        one
    }

    #[test]
    fn who_does_not_lead_has_its_periodic_jobs_enqueued_and_nothing_else() {
        let now = Instant::now();
        let mut one = with_cron(now, false);
        assert_eq!(one.step(now, 3_599_800), Duty::Wait(now + Duration::from_millis(200)));
        assert_eq!(one.step(now, 3_600_000), Duty::Look { limit: 0 });
        assert_eq!(one.ticks(3_600_000).len(), 1);
        assert_eq!(with_cron(now, true).step(now, 3_600_000), Duty::Look { limit: BATCH });
    }

    #[test]
    fn a_tick_waits_while_the_store_cannot_be_had() {
        let now = Instant::now();
        let mut one = with_cron(now, true);
        one.on(Performed::Failed, now);
        assert_eq!(one.step(now, 3_600_000), Duty::Wait(now + LEAD_INTERVAL));
        assert_eq!(one.step(now + LEAD_INTERVAL, 3_600_000), Duty::Lead);
        one.on(led(false, now + LEAD_INTERVAL), now + LEAD_INTERVAL);
        assert_eq!(one.step(now + LEAD_INTERVAL, 3_600_000), Duty::Look { limit: 0 });
    }
}
