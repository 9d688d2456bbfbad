//! When a runner asks its store, and for how much: a pure machine.
//!
//! The machine claims only what the pool can begin, so that no job waits behind another while a slot elsewhere is idle:
//! the pool gives a permit for each job, and says how many of those that have turned out short may be claimed ahead. Work that has ended is settled in the same round trip that claims the next. While the store cannot be had, the
//! machine waits, longer each time, and keeps what is to be settled.

use std::time::{Duration, Instant};

/// The first wait after a failure of the store, and the longest: half of the time between two renewals, if that is less.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(2);

/// Interval at which the store is asked without a notice: one may be lost with its connection.
const ASK_ANYWAY: Duration = Duration::from_secs(5);

/// Pause of claims once the pool has given a job back.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// Least interval between writes of what running jobs have noted.
const NOTES_INTERVAL: Duration = Duration::from_millis(100);

/// Least time between two rounds while more than half of the slots have work: short jobs end in the meantime, and one
/// round settles and claims for many.
const GATHER: Duration = Duration::from_micros(200);

/// The same while every slot has work ahead, of half as much as it may have: no slot waits for a round, and what has ended
/// is settled a little later.
const GATHER_AHEAD: Duration = Duration::from_millis(2);

/// Events of a fetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// So many jobs may be here at a time: so many in slots, and the others ahead of these.
    Places {
        all: usize,
        slots: usize,
    },
    /// The pool has given no permit: others use it. And: it may give some again.
    Crowded,
    Room,
    /// There may be something new in the store.
    Arrived,
    /// A job that ran has ended and is to be settled.
    Ended,
    /// A job that runs has left a note.
    Noted,
    /// A round is over: so many were asked for, given, and settled.
    Round {
        asked: usize,
        claimed: usize,
        settled: usize,
    },
    Renewed,
    /// The lease seems to have lapsed: to renew it tells.
    Unleased,
    /// A limit of rate holds jobs back until then.
    HeldBack(Instant),
    /// The lease had lapsed: none of the jobs is its own any more. They were told to stop, and end unsettled.
    Lapsed,
    /// A job of a lapsed lease has ended.
    Dropped,
    /// The pool has not taken a job, or not run it: it is settled as it was, and would be claimed again at once.
    Refused,
    /// The store could not be had: for a round, or else a renewal.
    Failed {
        is_round: bool,
    },
    /// Claim no more; or again.
    Quiet(bool),
}

/// Actions of a fetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write what was noted and what has ended, and claim at most so many.
    Round {
        limit: usize,
    },
    Renew,
    /// Nothing, until something happens or it is this time.
    Wait(Instant),
}

#[derive(Debug)]
pub struct Fetcher {
    /// Interval at which its lease is renewed.
    renewal: Duration,
    places: usize,
    slots: usize,
    running: usize,
    unsettled: usize,
    claims: ClaimTimes,
    notes: Notes,
    outage: Outage,
    renew_at: Instant,
    /// When the last round was over.
    round_at: Option<Instant>,
}

/// Whether the store may have something to claim, and when it is asked.
#[derive(Debug)]
struct ClaimTimes {
    quiet: bool,
    may_have: bool,
    /// The pool gives no permits.
    is_crowded: bool,
    /// Since when the store has had more than was asked for.
    more_since: Option<Instant>,
    /// End of a pause of claims.
    from: Instant,
    ask_at: Instant,
    /// When a limit of rate gives more.
    again_at: Option<Instant>,
}

impl ClaimTimes {
    fn answered(&mut self, asked: usize, claimed: usize, now: Instant) {
        if asked > 0 {
            self.may_have = claimed == asked;
            self.more_since = self.may_have.then(|| self.more_since.unwrap_or(now));
            self.ask_at = now + ASK_ANYWAY;
        }
    }

    fn keep_time(&mut self, now: Instant) {
        if now >= self.ask_at {
            self.may_have = true;
            self.is_crowded = false;
            self.ask_at = now + ASK_ANYWAY;
        }
        if self.again_at.is_some_and(|at| now >= at) {
            self.again_at = None;
            self.may_have = true;
        }
    }

    fn may_ask(&self) -> bool {
        self.may_have && !self.quiet && !self.is_crowded
    }

    fn next_wake(&self) -> Instant {
        self.ask_at.min(self.again_at.unwrap_or(self.ask_at))
    }
}

/// What running jobs have noted and the store does not know yet.
#[derive(Debug)]
struct Notes {
    unwritten: bool,
    write_at: Instant,
}

impl Notes {
    fn written(&mut self, now: Instant) {
        if std::mem::take(&mut self.unwritten) {
            self.write_at = now + NOTES_INTERVAL;
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.unwritten.then_some(self.write_at)
    }
}

/// Failures of the store in a row, and when it is tried again.
#[derive(Debug, Default)]
struct Outage {
    failures: u32,
    /// A round has failed, and none has succeeded since: that a renewal does says nothing of rounds.
    of_rounds: bool,
    retry_at: Option<Instant>,
}

impl Outage {
    fn failed(&mut self, is_round: bool, longest: Duration, now: Instant) {
        let wait = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures += 1;
        self.of_rounds |= is_round;
        self.retry_at = Some(now + wait);
    }

    fn renewed(&mut self) {
        self.retry_at = None;
        if !self.of_rounds {
            self.failures = 0;
        }
    }
}

impl Fetcher {
    /// `renewal`: the interval at which its lease is renewed.
    pub fn new(renewal: Duration, now: Instant) -> Fetcher {
        Fetcher {
            renewal,
            places: 0,
            slots: 0,
            running: 0,
            unsettled: 0,
            claims: ClaimTimes {
                quiet: false,
                may_have: true,
                is_crowded: false,
                more_since: None,
                from: now,
                ask_at: now + ASK_ANYWAY,
                again_at: None,
            },
            notes: Notes { unwritten: false, write_at: now },
            outage: Outage::default(),
            renew_at: now,
            round_at: None,
        }
    }

    /// Jobs that run, and those that are not settled yet.
    pub fn held(&self) -> usize {
        self.running + self.unsettled
    }

    pub fn is_failing(&self) -> bool {
        self.outage.failures > 0
    }

    pub fn on(&mut self, event: Event, now: Instant) {
        match event {
            Event::Places { all, slots } => (self.places, self.slots) = (all, slots),
            Event::Crowded => self.claims.is_crowded = true,
            Event::Room => self.claims.is_crowded = false,
            Event::Arrived => self.claims.may_have = true,
            Event::Ended => {
                self.running -= 1;
                self.unsettled += 1;
                // It may have held back others: of its key, or of its queue.
                self.claims.may_have = true;
            }
            Event::Noted => self.notes.unwritten = true,
            Event::Round { asked, claimed, settled } => {
                self.notes.written(now);
                self.round_at = Some(now);
                self.running += claimed;
                self.unsettled -= settled;
                self.outage = Outage::default();
                self.claims.answered(asked, claimed, now);
            }
            Event::Renewed => self.renewed(now),
            Event::Unleased => self.renew_at = now,
            Event::HeldBack(until) => self.claims.again_at = Some(until),
            Event::Lapsed => {
                self.unsettled = 0;
                self.notes.unwritten = false;
                self.claims.may_have = true;
                self.renewed(now);
            }
            Event::Dropped => self.running -= 1,
            Event::Refused => self.claims.from = now + REFUSED_PAUSE,
            Event::Failed { is_round } => {
                self.outage.failed(is_round, RETRY_LONGEST.min(self.renewal / 2), now);
                self.claims.may_have = true;
                // Whether its last round was carried out, it does not know: what it holds is made sure of first.
                self.renew_at = now;
            }
            Event::Quiet(quiet) => {
                self.claims.quiet = quiet;
                self.claims.may_have = true;
            }
        }
    }

    fn renewed(&mut self, now: Instant) {
        self.renew_at = now + self.renewal;
        self.outage.renewed();
    }

    /// Whether it would claim if the pool gave permits.
    pub fn wants_more(&self) -> bool {
        self.claims.may_have && !self.claims.quiet && self.places > self.running && !self.is_failing()
    }

    /// Since when the store has had more than the pool could begin; none: it has not.
    pub fn backlog_since(&self) -> Option<Instant> {
        self.claims.more_since.filter(|_| !self.claims.quiet && self.places > 0)
    }

    /// Until when ends are gathered before the next round. None: there is a slot that waits for it, or will soon.
    fn gather_until(&self) -> Option<Instant> {
        let ahead = self.places.saturating_sub(self.slots);
        let has_half_ahead = ahead > 1 && 2 * self.running.saturating_sub(self.slots) >= ahead;
        let is_busy = 2 * self.running > self.places;
        let time = if has_half_ahead { GATHER_AHEAD } else { GATHER };
        self.round_at.filter(|_| is_busy).map(|at| at + time)
    }

    pub fn step(&mut self, now: Instant) -> Step {
        if let Some(at) = self.outage.retry_at.filter(|at| *at > now) {
            return Step::Wait(at);
        }
        if now >= self.renew_at {
            return Step::Renew;
        }
        self.claims.keep_time(now);
        let free = if self.claims.may_ask() { self.places.saturating_sub(self.running) } else { 0 };
        let limit = if now >= self.claims.from { free } else { 0 };
        let note_at = self.notes.next_wake();
        if limit > 0 || self.unsettled > 0 || note_at.is_some_and(|at| now >= at) {
            return match self.gather_until().filter(|until| now < *until) {
                Some(until) => Step::Wait(until),
                None => Step::Round { limit },
            };
        }
        let claim_at = (free > 0).then_some(self.claims.from);
        let wait = self.renew_at.min(self.claims.next_wake());
        Step::Wait([claim_at, note_at].into_iter().flatten().fold(wait, Instant::min))
    }
}

/// The queues of a runner, with how often each comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Names and weights, in the order of the configuration.
    pub queues: Vec<(String, u32)>,
    /// The first before the second, always.
    pub strict: bool,
}

impl Lanes {
    /// The order of one claim. Without `strict`, each comes first as often as its weight says. `random` gives 0..1.
    pub fn order(&self, mut random: impl FnMut() -> f64) -> Vec<String> {
        if self.strict || self.queues.len() < 2 {
            return self.queues.iter().map(|(name, _)| name.clone()).collect();
        }
        let mut left: Vec<&(String, u32)> = self.queues.iter().collect();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let total: f64 = left.iter().map(|(_, weight)| f64::from(*weight)).sum();
            let mut at = random() * total;
            let chosen = left.iter().position(|(_, weight)| {
                at -= f64::from(*weight);
                at < 0.0
            });
            order.push(left.remove(chosen.unwrap_or(left.len() - 1)).0.clone());
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RENEWAL: Duration = Duration::from_secs(10);

    /// One that has taken its lease.
    fn leased(now: Instant) -> Fetcher {
        let mut fetcher = Fetcher::new(RENEWAL, now);
        assert_eq!(fetcher.step(now), Step::Renew, "others see at once that it is there");
        fetcher.on(Event::Renewed, now);
        fetcher
    }

    #[test]
    fn it_claims_what_free_places_can_take() {
        let now = Instant::now();
        let mut fetcher = leased(now);
        assert!(matches!(fetcher.step(now), Step::Wait(_)), "no slots");
        fetcher.on(Event::Places { all: 4, slots: 4 }, now);
        assert_eq!(fetcher.step(now), Step::Round { limit: 4 });
        fetcher.on(Event::Round { asked: 4, claimed: 3, settled: 0 }, now);
        assert!(matches!(fetcher.step(now), Step::Wait(_)), "the store has no more");
        fetcher.on(Event::Ended, now);
        assert_eq!(fetcher.step(now), Step::Round { limit: 2 }, "settled and claimed in one round");
        fetcher.on(Event::Round { asked: 2, claimed: 0, settled: 1 }, now);
        assert!(matches!(fetcher.step(now), Step::Wait(_)));
        fetcher.on(Event::Arrived, now);
        assert_eq!(fetcher.step(now), Step::Round { limit: 2 });
    }

    #[test]
    fn a_pool_that_others_fill_is_asked_again_when_it_has_room() {
        let now = Instant::now();
        let mut fetcher = leased(now);
        fetcher.on(Event::Places { all: 4, slots: 4 }, now);
        assert_eq!(fetcher.step(now), Step::Round { limit: 4 });
        fetcher.on(Event::Crowded, now);
        assert!(matches!(fetcher.step(now), Step::Wait(_)), "it would spin");
        fetcher.on(Event::Room, now);
        assert_eq!(fetcher.step(now), Step::Round { limit: 4 });
        fetcher.on(Event::Crowded, now);
        let Step::Wait(at) = fetcher.step(now) else { panic!("it waits") };
        assert_eq!(at, now + ASK_ANYWAY, "it asks anyway");
        assert_eq!(fetcher.step(at), Step::Round { limit: 4 });
    }

    #[test]
    fn without_its_store_it_wants_nothing_of_the_pool() {
        let now = Instant::now();
        let mut fetcher = leased(now);
        fetcher.on(Event::Places { all: 4, slots: 4 }, now);
        assert!(fetcher.wants_more());
        fetcher.on(Event::Failed { is_round: false }, now);
        assert!(!fetcher.wants_more());
        fetcher.on(Event::Renewed, now);
        assert!(fetcher.wants_more());
    }

    #[test]
    fn it_tells_since_when_the_store_has_had_more_than_was_asked_for() {
        let (now, later) = (Instant::now(), Instant::now() + RENEWAL / 2);
        let mut fetcher = leased(now);
        fetcher.on(Event::Places { all: 2, slots: 2 }, now);
        let round = |fetcher: &mut Fetcher, claimed, at| {
            fetcher.on(Event::Round { asked: 2, claimed, settled: 0 }, at);
            fetcher.backlog_since()
        };
        assert_eq!(round(&mut fetcher, 1, now), None);
        assert_eq!(round(&mut fetcher, 2, now), Some(now));
        assert_eq!(round(&mut fetcher, 2, later), Some(now));
        fetcher.on(Event::Quiet(true), later);
        assert_eq!(fetcher.backlog_since(), None, "what it will not take needs no slots");
        fetcher.on(Event::Quiet(false), later);
        assert_eq!(fetcher.backlog_since(), Some(now));
        assert_eq!(round(&mut fetcher, 0, later), None);
    }

    #[test]
    fn a_store_that_cannot_be_had_is_asked_again_less_often() {
        let mut now = Instant::now();
        let mut fetcher = leased(now);
        fetcher.on(Event::Places { all: 1, slots: 1 }, now);
        let mut waits = Vec::new();
        assert_eq!(fetcher.step(now), Step::Round { limit: 1 });
        for _ in 0..8 {
            fetcher.on(Event::Failed { is_round: false }, now);
            let Step::Wait(at) = fetcher.step(now) else { panic!("it waits") };
            waits.push((at - now).as_millis());
            now = at;
            assert_eq!(fetcher.step(now), Step::Renew, "what it holds is made sure of first");
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        fetcher.on(Event::Renewed, now);
        assert!(!fetcher.is_failing());
        assert_eq!(fetcher.step(now), Step::Round { limit: 1 });
    }

    #[test]
    fn rounds_that_fail_are_tried_less_often_though_renewals_succeed() {
        let mut now = Instant::now();
        let mut fetcher = leased(now);
        fetcher.on(Event::Places { all: 1, slots: 1 }, now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert_eq!(fetcher.step(now), Step::Round { limit: 1 });
            fetcher.on(Event::Failed { is_round: true }, now);
            let Step::Wait(at) = fetcher.step(now) else { panic!("it waits") };
            waits.push((at - now).as_millis());
            now = at;
            assert_eq!(fetcher.step(now), Step::Renew);
            fetcher.on(Event::Renewed, now);
            assert!(fetcher.is_failing());
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        fetcher.on(Event::Round { asked: 1, claimed: 0, settled: 0 }, now);
        assert!(!fetcher.is_failing());
    }

    #[test]
    fn a_quiet_one_settles_and_renews_only() {
        let now = Instant::now();
        let mut fetcher = leased(now);
        fetcher.on(Event::Places { all: 2, slots: 2 }, now);
        fetcher.on(Event::Round { asked: 2, claimed: 2, settled: 0 }, now);
        fetcher.on(Event::Quiet(true), now);
        fetcher.on(Event::Ended, now);
        assert_eq!(fetcher.step(now), Step::Round { limit: 0 });
        fetcher.on(Event::Round { asked: 0, claimed: 0, settled: 1 }, now);
        assert!(matches!(fetcher.step(now), Step::Wait(_)));
        assert_eq!(fetcher.step(now + RENEWAL), Step::Renew);
        assert_eq!(fetcher.held(), 1);
    }

    #[test]
    fn queues_come_first_as_often_as_they_weigh() {
        let lanes = Lanes { queues: vec![("critical".into(), 3), ("default".into(), 1)], strict: false };
        let mut at = 0;
        let firsts = (0..100).filter(|_| {
            let mut random = || {
                at += 1;
                f64::from(at * 37 % 100) / 100.0
            };
            lanes.order(&mut random)[0] == "critical"
        });
        assert!((70..=80).contains(&firsts.count()));
        let strict = Lanes { strict: true, ..lanes };
        assert_eq!(strict.order(|| 0.99), ["critical", "default"]);
    }

    /// A store with endless jobs, and an adversary who chooses what happens.
    #[derive(Clone, Copy, Debug)]
    enum Choice {
        Step,
        End,
        Note,
        Arrive,
        Places(usize, usize),
        Crowded,
        Room,
        Fail { is_round: bool },
        Refuse,
        Lapse,
        Quiet(bool),
        Pass(u64),
    }

    fn choices() -> impl Strategy<Value = Vec<Choice>> {
        let one = prop_oneof![
            4 => Just(Choice::Step),
            3 => Just(Choice::End),
            1 => Just(Choice::Note),
            1 => Just(Choice::Arrive),
            1 => (0usize..20, 0usize..20).prop_map(|(slots, ahead)| Choice::Places(slots, ahead)),
            1 => Just(Choice::Crowded),
            1 => Just(Choice::Room),
            1 => any::<bool>().prop_map(|is_round| Choice::Fail { is_round }),
            1 => Just(Choice::Refuse),
            1 => Just(Choice::Lapse),
            1 => any::<bool>().prop_map(Choice::Quiet),
            1 => (0u64..40_000).prop_map(Choice::Pass),
        ];
        prop::collection::vec(one, 0..200)
    }

    #[test]
    fn ends_are_gathered_while_every_slot_has_work_ahead() {
        let now = Instant::now();
        let mut fetcher = leased(now);
        fetcher.on(Event::Places { all: 16, slots: 2 }, now);
        assert_eq!(fetcher.step(now), Step::Round { limit: 16 });
        fetcher.on(Event::Round { asked: 16, claimed: 16, settled: 0 }, now);
        fetcher.on(Event::Ended, now);
        assert_eq!(fetcher.step(now), Step::Wait(now + GATHER_AHEAD));
        (0..6).for_each(|_| fetcher.on(Event::Ended, now));
        assert_eq!(fetcher.step(now), Step::Wait(now + GATHER_AHEAD), "9 are left: 2 run, 7 of 14 are ahead");
        fetcher.on(Event::Ended, now);
        assert!(matches!(fetcher.step(now + GATHER), Step::Round { limit: 8 }), "less than half are");
        fetcher.on(Event::Places { all: 8, slots: 8 }, now);
        assert!(
            matches!(fetcher.step(now), Step::Wait(at) if at == now + GATHER),
            "none are ahead: no slot is to wait"
        );
    }

    proptest! {
        #[test]
        fn it_never_holds_more_than_its_places_and_never_forgets_to_settle(choices in choices(), given in 0usize..6) {
            let mut now = Instant::now();
            let mut fetcher = leased(now);
            let (mut places, mut running, mut dropping, mut unsettled, mut quiet) = (0, 0, 0, 0, false);
            let mut noted = false;
            for one in choices {
                match one {
                    Choice::Pass(ms) => now += Duration::from_millis(ms),
                    Choice::Places(slots, ahead) => {
                        places = slots + ahead;
                        fetcher.on(Event::Places { all: places, slots }, now);
                    }
                    Choice::Crowded => fetcher.on(Event::Crowded, now),
                    Choice::Room => fetcher.on(Event::Room, now),
                    Choice::Note => { noted = true; fetcher.on(Event::Noted, now); }
                    Choice::Arrive => fetcher.on(Event::Arrived, now),
                    Choice::Quiet(on) => { quiet = on; fetcher.on(Event::Quiet(on), now); }
                    Choice::Fail { is_round } => fetcher.on(Event::Failed { is_round }, now),
                    Choice::Refuse => fetcher.on(Event::Refused, now),
                    Choice::Lapse => {
                        (dropping, running, unsettled, noted) = (dropping + running, 0, 0, false);
                        fetcher.on(Event::Lapsed, now);
                    }
                    Choice::End if dropping > 0 => { dropping -= 1; fetcher.on(Event::Dropped, now); }
                    Choice::End if running > 0 => { running -= 1; unsettled += 1; fetcher.on(Event::Ended, now); }
                    Choice::End => {}
                    Choice::Step => match fetcher.step(now) {
                        Step::Round { limit } => {
                            prop_assert!(limit == 0 || running + dropping + limit <= places);
                            prop_assert!(!(quiet && limit > 0));
                            prop_assert!(limit > 0 || unsettled > 0 || noted, "a round for nothing");
                            let claimed = given.min(limit);
                            fetcher.on(Event::Round { asked: limit, claimed, settled: unsettled }, now);
                            (running, unsettled, noted) = (running + claimed, 0, false);
                        }
                        Step::Renew => fetcher.on(Event::Renewed, now),
                        Step::Wait(at) => {
                            prop_assert!(at > now, "it would spin");
                            prop_assert!(unsettled == 0 || at <= now + GATHER_AHEAD || fetcher.is_failing());
                            prop_assert!(!noted || at <= now + NOTES_INTERVAL || fetcher.is_failing());
                        }
                    },
                }
                prop_assert_eq!(fetcher.held(), running + dropping + unsettled);
            }
        }
    }
}
