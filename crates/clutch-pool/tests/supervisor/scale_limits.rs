//! The policy of scaling at its limits: what it decides just before, at and after each, and the numbers it arrives at.
//!
//! Expected numbers are worked out by hand beside each scene.

use std::time::{Duration, Instant};

use crate::world::config;
use clutch_pool::config::PoolConfig;
use clutch_pool::supervisor::scale::{Bounds, Decision, Rules, Sample, Scaling, room};

/// Looks a blink of 25 ms apart when work waits, and 100 ms apart for a step down, which follow each other after 3 s.
const RULES: Rules = Rules { delay: Duration::from_millis(100), idle: Duration::from_secs(30), memory_max: None };
const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);
const SECOND: u64 = 1_000_000_000;

/// A pool of this size that may have from 1 to 100, with nothing to do.
fn idle(target: usize) -> Sample {
    Sample {
        bounds: Bounds { min: 1, max: 100, target },
        serving: Duration::from_secs(3600),
        ready: target,
        starting: 0,
        processes: target,
        slots: 1,
        busy: 0,
        busy_least: 0,
        waiting: 0,
        waited: None,
        finished: 0,
        run_ns: 0,
        private: Vec::new(),
    }
}

/// So much waits, for so long.
fn late(target: usize, waiting: usize, waited: Duration) -> Sample {
    Sample { waiting, waited: Some(waited), busy: target, busy_least: target, ..idle(target) }
}

/// So many slots run something, none of them all along, and something was finished that took no time.
fn busy(slots: usize, target: usize) -> Sample {
    Sample { busy: slots, finished: 1, ..idle(target) }
}

struct Policy {
    scaling: Scaling,
    start: Instant,
}

impl Policy {
    fn new(rules: Rules) -> Policy {
        Policy { scaling: Scaling::new(rules), start: Instant::now() + Duration::from_secs(3600) }
    }

    fn decide(&mut self, sample: &Sample, at: Duration) -> Option<Decision> {
        self.scaling.decide(sample, self.start + at)
    }

    fn target(&mut self, sample: &Sample, at: Duration) -> Option<usize> {
        self.decide(sample, at).map(|decision| decision.target)
    }
}

// ---- when it is asked

#[test]
fn work_that_waits_is_looked_at_after_the_delay_and_then_a_blink_apart() {
    let mut policy = Policy::new(RULES);
    let (bounds, now) = (idle(2).bounds, policy.start);
    let full = Bounds { max: 2, ..bounds };
    assert_eq!(policy.scaling.next_look(bounds, Some(now)), Some(now + RULES.delay));
    assert_eq!(policy.scaling.next_look(full, Some(now)), None, "it cannot grow");
    policy.decide(&idle(2), Duration::ZERO);
    let lowest = Bounds { min: 2, ..bounds };
    for (waits_since, due) in [(now, now + 100 * MS), (now - 75 * MS, now + 25 * MS), (now - 80 * MS, now + 25 * MS)] {
        assert_eq!(policy.scaling.next_look(lowest, Some(waits_since)), Some(due));
    }
    assert_eq!(policy.scaling.next_look(Bounds { max: 2, ..lowest }, Some(now)), None);
}

#[test]
fn a_pool_that_may_shrink_is_looked_at_from_time_to_time() {
    for (delay, idle_for, period) in [(100, 30_000, 100), (100, 1000, 50), (100, 10, 1), (3000, 30_000, 1500)] {
        let rules = Rules { delay: delay * MS, idle: idle_for * MS, memory_max: None };
        let mut policy = Policy::new(rules);
        let (bounds, now) = (idle(2).bounds, policy.start);
        assert_eq!(policy.scaling.next_look(bounds, None), None, "the first look is for what waits");
        policy.decide(&idle(2), Duration::ZERO);
        assert_eq!(policy.scaling.next_look(bounds, None), Some(now + period * MS));
        assert_eq!(policy.scaling.next_look(Bounds { min: 2, ..bounds }, None), None, "it cannot shrink");
        let soon = now - rules.delay + (rules.delay / 4).max(MS);
        let first = (now + period * MS).min(now + (rules.delay / 4).max(MS));
        assert_eq!(policy.scaling.next_look(bounds, Some(soon)), Some(first), "the earlier of the two");
    }
}

#[test]
fn the_rules_are_those_of_the_options_and_never_nothing() {
    let of = |delay, idle| {
        let config = PoolConfig { scale_delay_ms: delay, scale_idle_ms: idle, memory_max_bytes: Some(5), ..config() };
        let Rules { delay, idle, memory_max } = Rules::of(&config);
        (delay, idle, memory_max)
    };
    assert_eq!(of(7, 9), (7 * MS, 9 * MS, Some(5)));
    assert_eq!(of(0, 0), (MS, MS, Some(5)));
}

#[test]
fn a_blink_is_a_quarter_of_the_delay() {
    for (delay, blink) in [(400 * MS, 100 * MS), (8 * MS, 2 * MS), (2 * MS, MS)] {
        let mut policy = Policy::new(Rules { delay, ..RULES });
        policy.decide(&idle(2), Duration::ZERO);
        let lowest = Bounds { min: 2, ..idle(2).bounds };
        let due = policy.scaling.next_look(lowest, Some(policy.start - Duration::from_secs(1800)));
        assert_eq!(due, Some(policy.start + blink));
    }
}

// ---- up

#[test]
fn it_grows_when_work_has_waited_for_the_delay_and_still_does_a_blink_later() {
    let begin = |first_waits: Duration| {
        let mut policy = Policy::new(RULES);
        assert_eq!(policy.decide(&late(1, 4, first_waits), Duration::ZERO), None, "the first look that sees it");
        policy
    };
    let still = late(1, 4, 200 * MS);
    assert_eq!(begin(100 * MS).target(&still, 25 * MS - NS), None);
    assert_eq!(begin(100 * MS).target(&still, 25 * MS), Some(5), "a slot for each");
    assert_eq!(begin(100 * MS).target(&still, 26 * MS), Some(5));
    assert_eq!(begin(100 * MS - NS).target(&still, 25 * MS), None, "it was not late before");
    let mut policy = begin(100 * MS);
    assert_eq!(policy.decide(&late(1, 4, 50 * MS), 10 * MS), None);
    assert_eq!(policy.decide(&still, 25 * MS), None, "in between nothing was late");
    assert_eq!(policy.target(&still, 50 * MS), Some(5));
}

#[test]
fn what_waited_for_the_first_worker_is_late_when_that_has_served_for_the_delay() {
    let mut policy = Policy::new(RULES);
    let serving = |serving| Sample { serving, ..late(1, 4, 5000 * MS) };
    for (at, has_served) in [(0, 99 * MS), (50, 100 * MS - NS)] {
        assert_eq!(policy.decide(&serving(has_served), at * MS), None);
    }
    assert_eq!(policy.decide(&serving(100 * MS), 75 * MS), None, "late from here on");
    assert_eq!(policy.target(&serving(125 * MS), 100 * MS), Some(5));
}

#[test]
fn a_growth_is_waited_for_and_then_followed_by_the_next() {
    let grown = || {
        let mut policy = Policy::new(RULES);
        policy.decide(&late(1, 4, 200 * MS), Duration::ZERO);
        assert_eq!(policy.target(&late(1, 4, 225 * MS), 25 * MS), Some(5));
        policy
    };
    let more = late(5, 4, 300 * MS);
    assert_eq!(grown().target(&more, 125 * MS - NS), None);
    assert_eq!(grown().target(&more, 125 * MS), Some(9));
    assert_eq!(grown().target(&more, 126 * MS), Some(9));
}

#[test]
fn it_says_what_waits_and_for_how_long() {
    let mut policy = Policy::new(RULES);
    policy.decide(&late(3, 4, 200 * MS), Duration::ZERO);
    let decision = policy.decide(&Sample { busy: 2, ..late(3, 4, 225 * MS) }, 25 * MS).expect("a step up");
    assert_eq!(decision.reason, "work waits for 225 ms: 4 in the queue, 2 running");
    assert_eq!(decision.target, 6);
}

/// What it decides of work that is late, under rules with a delay of 200 ms, and of which so many calls ran for so long.
fn decided(sample: Sample, rules: Rules, (finished, run_ns): (u64, u64)) -> Option<usize> {
    let mut policy = Policy::new(Rules { delay: 200 * MS, ..rules });
    policy.decide(&Sample { finished, run_ns, ..sample.clone() }, Duration::ZERO);
    policy.target(&Sample { finished, run_ns, ..sample }, 50 * MS)
}

/// Ten calls that ran for 0.1 s each.
const TENTHS: (u64, u64) = (10, SECOND);

#[test]
fn it_grows_by_what_keeps_up_and_what_works_the_backlog_off() {
    // 40 · 0.1 s = 4 s of work came within 0.4 s: 10 slots, 12.5 at a share of 0.8; and 4 s / (0.2 s · 10) = 2.
    let sample = late(1, 40, 400 * MS);
    assert_eq!(decided(sample.clone(), RULES, TENTHS), Some(15));
    // Twice as many slots in a worker.
    assert_eq!(decided(Sample { slots: 2, ..sample.clone() }, RULES, TENTHS), Some(8));
    // 40 · 0.3 s = 12 s: 37.5 and 6, of which no more than 41 can be of use.
    assert_eq!(decided(sample.clone(), RULES, (10, 3 * SECOND)), Some(41));
    // The last that were finished count, not all: then ten ran for 0.1 s each, before them ten for 1 s.
    let mut policy = Policy::new(Rules { delay: 200 * MS, ..RULES });
    policy.decide(&Sample { finished: 10, run_ns: 10 * SECOND, ..idle(1) }, Duration::ZERO);
    let both = Sample { finished: 20, run_ns: 11 * SECOND, ..sample };
    policy.decide(&both, 10 * MS);
    assert_eq!(policy.target(&both, 60 * MS), Some(15), "and are remembered while nothing is finished");
}

#[test]
fn a_full_slot_is_a_full_worker_and_no_more() {
    for (waiting, workers) in [(15, 2), (16, 3), (23, 3), (24, 4)] {
        let sample = Sample { slots: 8, busy: 1, ..late(1, waiting, 400 * MS) };
        assert_eq!(decided(sample, RULES, (0, 0)), Some(workers), "{waiting} wait, one runs");
    }
}

#[test]
fn where_all_are_ready_and_work_is_late_one_more_is_needed_whatever_was_estimated() {
    // 1 · 0.1 s / 0.4 s / 0.8 and 0.1 s / 2 s: 0.4 slots.
    let sample = late(3, 1, 400 * MS);
    assert_eq!(decided(sample.clone(), RULES, TENTHS), Some(4));
    assert_eq!(decided(Sample { ready: 2, starting: 1, ..sample.clone() }, RULES, TENTHS), None, "one is on its way");
    assert_eq!(decided(Sample { ready: 4, ..sample }, RULES, TENTHS), Some(4), "one that drains still answers");
}

#[test]
fn it_never_grows_above_its_bounds_or_to_what_it_has() {
    let sample = late(5, 40, 400 * MS);
    let bound = |max| Sample { bounds: Bounds { max, ..sample.bounds }, ..sample.clone() };
    assert_eq!(decided(bound(7), RULES, TENTHS), Some(7));
    assert_eq!(decided(bound(5), RULES, TENTHS), None);
}

#[test]
fn failure_37_it_grows_into_the_memory_that_is_left() {
    let rules = |memory_max| Rules { memory_max: Some(memory_max), ..RULES };
    let sample = Sample {
        ready: 3,
        starting: 2,
        processes: 6,
        private: vec![10, 8, 10],
        bounds: idle(4).bounds,
        ..late(4, 90, 400 * MS)
    };
    // Six processes, three of them known, take 10 + 8 + 10 + 3 · 10 = 58; what is left of it holds so many of 10.
    for (memory_max, most) in [(98, Some(9)), (97, Some(8)), (68, Some(6)), (67, Some(5)), (10, Some(5))] {
        assert_eq!(decided(sample.clone(), rules(memory_max), (0, 0)), most, "of {memory_max}");
    }
    let few = Sample { ready: 1, starting: 1, ..sample };
    assert_eq!(decided(few, rules(68), (0, 0)), None, "as many as there should be anyway, and no more");
}

#[test]
fn room_is_counted_in_whole_workers() {
    assert_eq!([room(39, &[10], 1), room(40, &[10], 1), room(9, &[10], 1)], [2, 3, 0]);
    assert_eq!(room(5, &[0], 1), 5, "what takes nothing takes a byte");
    assert_eq!(room(u64::MAX, &[1, u64::MAX - 1], 3), 0, "more than can be counted");
}

// ---- down

/// So many workers would have been enough, as is said when the pool has been calm since these looks and shrinks.
fn needed(looks: &[(Duration, Sample)]) -> String {
    let mut policy = Policy::new(RULES);
    for (at, sample) in looks {
        assert_eq!(policy.decide(sample, *at), None);
    }
    let (at, last) = looks.last().expect("a look");
    let quiet = Sample { busy: 0, busy_least: 0, waiting: 0, waited: None, ..last.clone() };
    let decision = policy.decide(&quiet, *at + RULES.idle).expect("a step down");
    assert_eq!(decision.target, last.bounds.target - 1);
    decision.reason.split(" of ").next().expect("a number").to_owned()
}

#[test]
fn slots_that_are_held_all_along_are_needed_and_one_beside_them_where_work_is_done() {
    let held = Sample { busy: 5, busy_least: 5, ..idle(90) };
    assert_eq!(needed(&[(Duration::ZERO, held.clone())]), "5");
    let moving = Sample { finished: 1, ..held };
    assert_eq!(needed(&[(Duration::ZERO, moving)]), "6");
    assert_eq!(needed(&[(Duration::ZERO, idle(90))]), "0");
    assert_eq!(needed(&[(Duration::ZERO, Sample { finished: 1, ..idle(90) })]), "1");
}

#[test]
fn the_load_is_averaged_over_a_tenth_of_the_idle_time() {
    let (first, tenth) = ((Duration::ZERO, busy(0, 90)), 3000 * MS);
    // 40 · (1 − 1/e) = 25.3; at a share of 0.8 that is 31.6.
    assert_eq!(needed(&[first.clone(), (tenth, busy(40, 90))]), "32");
    let waiting = Sample { waiting: 10, waited: Some(MS), ..busy(30, 90) };
    assert_eq!(needed(&[first.clone(), (tenth, waiting)]), "32", "what waits counts as well");
    // 25.3 + (40 − 25.3) · (1 − 1/e) = 34.6; 43.2.
    assert_eq!(needed(&[first.clone(), (tenth, busy(40, 90)), (2 * tenth, busy(40, 90))]), "44");
    // 40 · (1 − 1/√e) = 15.7; 19.7.
    assert_eq!(needed(&[first.clone(), (tenth / 2, busy(40, 90))]), "20");
    // Ten of them are held: (40 − 10) · (1 − 1/e) / 0.8 = 23.7, beside those ten.
    let held = Sample { busy_least: 10, ..busy(40, 90) };
    assert_eq!(needed(&[first.clone(), (tenth, held)]), "34");
    // Long enough ago it is forgotten: what was 25.3 is now 25.3/e² = 3.4; 4.3. The most within the time counts.
    let mut policy = Policy::new(RULES);
    for (at, sample) in [first, (tenth, busy(40, 90)), (3 * tenth, busy(0, 90))] {
        policy.decide(&sample, at);
    }
    let reason = |policy: &mut Policy, at| policy.decide(&busy(0, 90), at).expect("a step down").reason;
    assert_eq!(reason(&mut policy, 11 * tenth), "32 of 90 workers were enough for the last 30 s");
    assert_eq!(reason(&mut policy, 12 * tenth), "5 of 90 workers were enough for the last 30 s");
}

#[test]
fn what_comes_at_once_needs_slots_for_as_long_as_it_runs() {
    // Of 40, each of which runs for 0.3 s: 40 · 0.3 / (0.3 + 0.1).
    let many = Sample { busy: 40, finished: 10, run_ns: 3 * SECOND, ..idle(90) };
    assert_eq!(needed(&[(Duration::ZERO, many.clone())]), "30");
    assert_eq!(needed(&[(Duration::ZERO, Sample { run_ns: SECOND, ..many.clone() })]), "20");
    assert_eq!(needed(&[(Duration::ZERO, Sample { busy: 30, waiting: 10, waited: Some(MS), ..many })]), "30");
    assert_eq!(needed(&[(Duration::ZERO, Sample { busy: 40, ..idle(90) })]), "40", "nobody knows how long it runs");
    assert_eq!(needed(&[(Duration::ZERO, Sample { busy: 40, slots: 8, ..idle(90) })]), "5");
    assert_eq!(needed(&[(Duration::ZERO, Sample { busy: 41, slots: 8, ..idle(90) })]), "6");
    assert_eq!(needed(&[(Duration::ZERO, Sample { busy: 40, slots: 0, ..idle(90) })]), "40", "as good as one");
}

#[test]
fn the_most_that_was_needed_within_the_idle_time_is_enough() {
    let seconds = Duration::from_secs;
    let looks = [(0, 0), (10, 7), (12, 3), (14, 5), (15, 5), (20, 2)];
    let held = |busy| Sample { busy, busy_least: busy, ..idle(90) };
    let after = |at| {
        let mut policy = Policy::new(RULES);
        for (at, busy) in looks {
            assert_eq!(policy.decide(&held(busy), seconds(at)), None);
        }
        policy.decide(&held(1), at).map(|decision| decision.reason)
    };
    let enough = |workers: usize| Some(format!("{workers} of 90 workers were enough for the last 30 s"));
    assert_eq!(after(seconds(30) - NS), None, "it was not seen for so long");
    assert_eq!(after(seconds(30)), enough(7));
    assert_eq!(after(seconds(40)), enough(7), "to the end");
    assert_eq!(after(seconds(40) + NS), enough(5), "the last time that this was so");
    assert_eq!(after(seconds(45)), enough(5));
    assert_eq!(after(seconds(45) + NS), enough(2));
    assert_eq!(after(seconds(50) + NS), enough(1));
}

#[test]
fn it_shrinks_by_one_only_where_fewer_were_enough_and_nothing_is_under_way() {
    let calm = |sample: Sample| {
        let mut policy = Policy::new(RULES);
        policy.decide(&sample, Duration::ZERO);
        policy.target(&sample, RULES.idle)
    };
    assert_eq!(calm(idle(3)), Some(2));
    assert_eq!(calm(Sample { bounds: Bounds { min: 3, ..idle(3).bounds }, ..idle(3) }), None, "at its least");
    assert_eq!(calm(Sample { bounds: Bounds { min: 4, ..idle(3).bounds }, ..idle(3) }), None, "below it");
    assert_eq!(calm(Sample { waiting: 1, waited: Some(MS), ..idle(3) }), None, "something waits");
    assert_eq!(calm(Sample { starting: 1, ..idle(3) }), None, "one is on its way");
    let held = |busy| Sample { busy, busy_least: busy, ..idle(3) };
    assert_eq!([calm(held(4)), calm(held(3)), calm(held(2))], [None, None, Some(2)]);
}

#[test]
fn steps_down_follow_each_other_after_a_tenth_of_the_idle_time() {
    let stepped = || {
        let mut policy = Policy::new(RULES);
        policy.decide(&idle(5), Duration::ZERO);
        assert_eq!(policy.target(&idle(5), RULES.idle), Some(4));
        policy
    };
    let tenth = RULES.idle + 3000 * MS;
    assert_eq!(stepped().target(&idle(4), tenth - NS), None);
    assert_eq!(stepped().target(&idle(4), tenth), Some(3));
    assert_eq!(stepped().target(&idle(4), tenth + NS), Some(3));
}

#[test]
fn after_it_grew_it_does_not_shrink_for_all_of_the_idle_time() {
    let grown = || {
        let mut policy = Policy::new(RULES);
        policy.decide(&idle(1), Duration::ZERO);
        policy.decide(&late(1, 4, 200 * MS), 20_000 * MS);
        assert_eq!(policy.target(&late(1, 4, 225 * MS), 20_025 * MS), Some(5));
        policy.decide(&idle(5), 20_026 * MS);
        policy
    };
    let calm = 20_025 * MS + RULES.idle;
    // At the look that it grew at, six were needed: one was held, and 4 / 0.8 beside it.
    assert_eq!(grown().target(&idle(7), calm - NS), None);
    assert_eq!(grown().target(&idle(7), calm), Some(6));
}
