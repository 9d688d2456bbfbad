//! Whose lease is over: a pure machine that shares no clock with anybody.
//!
//! A lease is a counter in the store, which its holder raises. An observer remembers by its own monotonic clock since
//! when each counter has stood, and a lease is over when that is as long as the lease. Two rules keep an outage from
//! being taken for a death:
//!
//! * Time counts only while the store answers the observer: between two looks that succeeded no more of it passes than a
//!   bit more than their interval, and no more than a small part of the lease. While the store, the network or the
//!   observer itself stood still, no time has passed: nobody could have renewed then. And a counter must have stood in
//!   several looks, between which its holder could renew.
//! * What the observer concludes is a [`Lapsed`]: a name and the counter as it stood. The store takes the lease away only
//!   if the counter is still that one, within the same transaction or script. So it does not matter how late a command
//!   arrives.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Shortest and longest lease that an observer believes: the store may be written by others.
const LENGTHS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 24 * 3600));

/// Least number of looks in which a counter has stood when its lease is over.
pub const LOOKS_MIN: u32 = 8;

/// A lease as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub holder: String,
    /// The counter. Raised by each renewal, and never set back.
    pub renewals: u64,
    /// Time without a renewal after which the lease is over.
    pub length: Duration,
}

/// A lease that an observer has seen to be over: it is, if its counter is still this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    pub holder: String,
    pub renewals: u64,
}

#[derive(Debug)]
struct Counter {
    renewals: u64,
    length: Duration,
    /// Time for which it has stood while the store answered.
    stood: Duration,
}

/// Remembers since when the counters of leases stand.
#[derive(Debug, Default)]
pub struct Observer {
    looked_at: Option<Instant>,
    counters: HashMap<String, Counter>,
}

impl Observer {
    /// Takes all leases of the store, as a look found them that was sent at `sent`. `interval`: the longest time that
    /// passes between two looks by intention.
    pub fn looked(&mut self, leases: Vec<Lease>, sent: Instant, interval: Duration) {
        let passed = self.looked_at.map_or(Duration::ZERO, |before| sent.saturating_duration_since(before));
        let passed = passed.min(2 * interval);
        self.looked_at = Some(sent);
        let mut before = std::mem::take(&mut self.counters);
        for Lease { holder, renewals, length } in leases {
            let length = length.clamp(LENGTHS.0, LENGTHS.1);
            let known = before.remove(&holder).filter(|known| known.renewals == renewals);
            let stood = known.map_or(Duration::ZERO, |known| known.stood + passed.min(length / LOOKS_MIN));
            self.counters.insert(holder, Counter { renewals, length, stood });
        }
    }

    /// Returns the leases whose counters have stood for as long as the lease.
    pub fn lapsed(&self) -> Vec<Lapsed> {
        let lapsed = self.counters.iter().filter(|(_, counter)| counter.stood >= counter.length);
        lapsed.map(|(holder, counter)| Lapsed { holder: holder.clone(), renewals: counter.renewals }).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);
    const INTERVAL: Duration = Duration::from_millis(250);
    /// Between two tries to lead.
    const LEAD_MS: u64 = crate::maintenance::LEAD_INTERVAL.as_millis() as u64;

    fn lease(holder: &str, renewals: u64) -> Lease {
        Lease { holder: holder.to_owned(), renewals, length: LENGTH }
    }

    /// Looks for so long, and finds these.
    fn look(observer: &mut Observer, since: Instant, from_ms: u64, to_ms: u64, leases: &[Lease]) {
        for ms in (from_ms..=to_ms).step_by(250) {
            observer.looked(leases.to_vec(), since + Duration::from_millis(ms), INTERVAL);
        }
    }

    #[test]
    fn a_counter_that_stands_for_a_lease_has_lapsed() {
        let (mut observer, now) = (Observer::default(), Instant::now());
        look(&mut observer, now, 0, 29_750, &[lease("a", 7)]);
        assert_eq!(observer.lapsed(), []);
        look(&mut observer, now, 30_000, 30_000, &[lease("a", 7)]);
        assert_eq!(observer.lapsed(), [Lapsed { holder: "a".to_owned(), renewals: 7 }]);
        look(&mut observer, now, 30_250, 30_250, &[lease("a", 8)]);
        assert_eq!(observer.lapsed(), [], "it was only late");
    }

    #[test]
    fn no_time_passes_while_nobody_could_renew() {
        let (mut observer, now) = (Observer::default(), Instant::now());
        look(&mut observer, now, 0, 1000, &[lease("a", 7)]);
        let later = now + Duration::from_secs(100_000);
        look(&mut observer, later, 0, 28_000, &[lease("a", 7)]);
        assert_eq!(observer.lapsed(), []);
        look(&mut observer, later, 28_250, 28_500, &[lease("a", 7)]);
        assert_eq!(observer.lapsed().len(), 1);
    }

    #[test]
    fn a_length_that_nobody_can_mean_is_none() {
        let (mut observer, now) = (Observer::default(), Instant::now());
        let odd = [Duration::ZERO, Duration::MAX].map(|length| Lease { length, ..lease("a", 1) });
        for odd in odd {
            look(&mut observer, now, 0, 500, &[odd]);
            assert_eq!(observer.lapsed(), []);
        }
    }

    /// What the adversary does next.
    #[derive(Clone, Debug)]
    enum Choice {
        Pass(u64),
        /// The store stands still: what is sent waits.
        Freeze,
        /// It goes on: what waits is carried out, of each sender in order, the senders mixed like this.
        Thaw(Vec<usize>),
        Kill(usize),
        /// An observer stands still, as when its process or machine is stopped; or goes on.
        Stop(usize, bool),
    }

    fn choice() -> impl Strategy<Value = Choice> {
        prop_oneof![
            6 => (1u64..60_000).prop_map(Choice::Pass),
            2 => Just(Choice::Freeze),
            3 => prop::collection::vec(0usize..SENDERS, 0..12).prop_map(Choice::Thaw),
            1 => (0..HOLDERS).prop_map(Choice::Kill),
            2 => (0..OBSERVERS, any::<bool>()).prop_map(|(observer, stands)| Choice::Stop(observer, stands)),
        ]
    }

    const HOLDERS: usize = 3;
    const OBSERVERS: usize = 2;
    const SENDERS: usize = HOLDERS + OBSERVERS;
    const STEP_MS: u64 = 25;
    /// As the stores' own: who waits for longer gives up, and tries again.
    const TIMEOUT_MS: u64 = 5_000;

    /// A store, three holders and two observers, each of which waits for its answer before it sends the next command.
    struct Model {
        length: Duration,
        began: Instant,
        ms: u64,
        is_frozen: bool,
        counters: [Option<u64>; HOLDERS],
        dead: [bool; HOLDERS],
        stopped: [bool; OBSERVERS],
        observers: [Observer; OBSERVERS],
        /// By sender, holders first: when it sends next, and what is on its way.
        next_ms: [u64; SENDERS],
        sent: [Option<(u64, Vec<Lapsed>)>; SENDERS],
    }

    impl Model {
        fn new(length: Duration) -> Model {
            Model {
                length,
                began: Instant::now(),
                ms: 0,
                is_frozen: false,
                counters: [Some(0); HOLDERS],
                dead: Default::default(),
                stopped: Default::default(),
                observers: Default::default(),
                next_ms: Default::default(),
                sent: Default::default(),
            }
        }

        fn length_ms(&self) -> u64 {
            self.length.as_millis() as u64
        }

        fn carry_out(&mut self, sender: usize) {
            let Some((sent_ms, lapsed)) = self.sent[sender].take() else { return };
            if sender < HOLDERS {
                // A command may arrive when who sent it is dead.
                self.counters[sender] = self.counters[sender].map(|counter| counter + 1);
                self.next_ms[sender] = self.ms + self.length_ms() / 3;
                return;
            }
            for one in lapsed {
                let holder: usize = one.holder.parse().unwrap();
                if self.counters[holder] == Some(one.renewals) {
                    assert!(self.dead[holder], "{holder} lives, and could not have renewed more often");
                    self.counters[holder] = None;
                }
            }
            let leases = self.counters.iter().enumerate();
            let length = self.length;
            let lease =
                |(nr, counter): (usize, &Option<u64>)| Some(Lease { length, ..lease(&nr.to_string(), (*counter)?) });
            let leases = leases.filter_map(lease).collect();
            let sent = self.began + Duration::from_millis(sent_ms);
            self.observers[sender - HOLDERS].looked(leases, sent, INTERVAL);
            self.next_ms[sender] = self.ms + INTERVAL.as_millis() as u64;
        }

        fn pass(&mut self, ms: u64) {
            for _ in 0..ms.div_ceil(STEP_MS) {
                self.ms += STEP_MS;
                for sender in 0..SENDERS {
                    if self.sent[sender].as_ref().is_some_and(|(at, _)| self.ms >= at + TIMEOUT_MS) {
                        self.sent[sender] = None;
                        // As a fetcher and the upkeep do.
                        self.next_ms[sender] = self.ms + if sender < HOLDERS { self.length_ms() / 6 } else { LEAD_MS };
                    }
                    let is_still = if sender < HOLDERS { self.dead[sender] } else { self.stopped[sender - HOLDERS] };
                    if is_still || self.sent[sender].is_some() || self.ms < self.next_ms[sender] {
                        continue;
                    }
                    let lapsed = self.observers.get(sender.wrapping_sub(HOLDERS)).map(Observer::lapsed);
                    self.sent[sender] = Some((self.ms, lapsed.unwrap_or_default()));
                    if !self.is_frozen {
                        self.carry_out(sender);
                    }
                }
            }
        }

        fn thaw(&mut self, order: &[usize]) {
            self.is_frozen = false;
            order.iter().copied().chain(0..SENDERS).for_each(|sender| self.carry_out(sender));
        }

        fn choose(&mut self, choice: &Choice) {
            match choice {
                Choice::Pass(ms) => self.pass(*ms),
                Choice::Freeze => self.is_frozen = true,
                Choice::Thaw(order) => self.thaw(order),
                Choice::Kill(holder) => self.dead[*holder] = true,
                Choice::Stop(observer, stands) => self.stopped[*observer] = *stands,
            }
        }
    }

    proptest! {
        #[test]
        fn who_lives_keeps_its_lease_whatever_stands_still_and_who_is_dead_loses_it(
            choices in prop::collection::vec(choice(), 0..60),
            seconds in prop_oneof![Just(1u64), Just(2), Just(5), Just(30)],
        ) {
            let mut model = Model::new(Duration::from_secs(seconds));
            choices.iter().for_each(|choice| model.choose(choice));
            model.thaw(&[]);
            model.stopped = [false; OBSERVERS];
            model.pass(2 * model.length_ms() + 10_000);
            for holder in 0..HOLDERS {
                prop_assert_eq!(model.counters[holder].is_none(), model.dead[holder], "{}", holder);
            }
        }
    }
}
