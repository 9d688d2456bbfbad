//! The pool's machine at its limits: how much is sent ahead and when more is, when a worker stands still, who runs alone.

use std::time::{Duration, Instant};

use crate::model::{CUT_IN, STOPS_IN, World, request};
use clutch_pool::pool::state::{
    AHEAD_MAX, Action, Begun, Event, Hold, Limits, Machine, Request, STALLED, StopCause, Verdict, WorkerKey,
};
use clutch_pool::work::{Where, WorkId};

const NS: Duration = Duration::from_nanos(1);
const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Short, and what a test is about.
const SHORT: u32 = 2;
const OTHER: u32 = 0;

/// Runs one alone, to its end.
fn teach(world: &mut World, worker: WorkerKey, request: Request, run: Duration) {
    world.submit(request);
    let id = world.begin(worker).expect("sent at once");
    world.finish(worker, id, run);
}

fn frames(world: &World, worker: WorkerKey) -> usize {
    world.workers[&worker].frames.len()
}

/// A worker that knows how long the short ones run, and so many of them that came all at once; those in slots have begun.
fn filled(slots: usize, words: usize, run: Duration, count: usize) -> World {
    let mut world = World::new(Limits::default());
    world.words = words;
    let worker = world.worker(slots, None);
    teach(&mut world, worker, request(SHORT), run);
    world.hold(worker, Hold::Stopped);
    for _ in 0..count {
        world.submit(request(SHORT));
    }
    world.release(worker, Hold::Stopped);
    while world.begin(worker).is_some() {}
    world
}

/// One ends, and the next begins.
fn step(world: &mut World, run: Duration) -> usize {
    let id = world.workers[&0].frames[0].0;
    world.finish(0, id, run);
    world.begin(0);
    frames(world, 0)
}

// ---- ahead

#[test]
fn what_is_sent_ahead_is_bounded_by_number_run_time_and_words() {
    let ahead = |slots, words, run, count| frames(&filled(slots, words, run, count), 0);
    assert_eq!(ahead(1, 1024, US, 200), 1 + AHEAD_MAX);
    assert_eq!(ahead(2, 1024, US, 200), 2 + 2 * AHEAD_MAX);
    assert_eq!(ahead(20, 5000, US, 3000), 20 + 16 * AHEAD_MAX, "of many slots, no more than of sixteen");
    assert_eq!(ahead(1, 1024, 10 * US, 200), 21, "200 µs for a slot, and what was there before");
    assert_eq!(ahead(2, 1024, 10 * US, 200), 41);
    assert_eq!(ahead(2, 16, US, 200), 14, "a slot's worth of words stays free");
}

#[test]
fn more_is_sent_ahead_when_less_than_half_is_left() {
    let after = |run, steps| {
        let mut world = filled(1, 1024, run, 200);
        (0..steps).map(|_| step(&mut world, run)).collect::<Vec<_>>()
    };
    let down = |from: usize, to: usize, again: usize| (to..=from).rev().chain([again, again - 1]).collect::<Vec<_>>();
    assert_eq!(after(US, 34), down(64, 33, 65), "32 of 64 are half");
    assert_eq!(after(10 * US, 12), down(20, 11, 21), "100 of 200 µs are half");
}

/// Whether a function whose calls ran so long, one after the other, is sent ahead of a short one that runs.
fn is_ahead(runs: &[u64]) -> bool {
    let mut world = World::new(Limits::default());
    let worker = world.worker(1, None);
    teach(&mut world, worker, request(SHORT), US);
    for run in runs {
        teach(&mut world, worker, request(OTHER), Duration::from_nanos(*run));
    }
    world.submit(request(SHORT));
    world.begin(worker).expect("sent at once");
    world.submit(request(OTHER));
    let ahead = frames(&world, worker) == 2;
    world.finish_all();
    ahead
}

#[test]
fn only_what_is_known_to_be_short_is_sent_ahead() {
    assert!(!is_ahead(&[]), "nobody knows");
    assert!(is_ahead(&[200_000]) && !is_ahead(&[200_001]));
    assert!(is_ahead(&[0]), "what takes no time at all is known, too");
    let mut world = World::new(Limits::default());
    let worker = world.worker(1, None);
    teach(&mut world, worker, request(SHORT), US);
    teach(&mut world, worker, Request { endless: true, ..request(OTHER) }, US);
    world.submit(request(SHORT));
    world.begin(worker).expect("sent at once");
    world.submit(request(OTHER));
    assert_eq!(frames(&world, worker), 1, "how long endless work went on says nothing");
}

#[test]
fn a_longer_run_doubles_what_is_expected_at_most() {
    const LONG: u64 = 1_000_000_000;
    assert!(is_ahead(&[100_000, LONG]) && !is_ahead(&[100_001, LONG]));
    assert!(is_ahead(&[60_000, LONG]) && !is_ahead(&[60_000, LONG, LONG]));
    assert!(is_ahead(&[150_000, 200_000]) && !is_ahead(&[150_000, 200_001]), "a little longer is a little more");
}

#[test]
fn a_shorter_run_takes_off_an_eighth_of_the_difference() {
    assert!(is_ahead(&[208_000, 144_000]) && !is_ahead(&[208_001, 144_001]));
    // 240, 220, 202.5, 187 µs.
    assert!(!is_ahead(&[240_000, 80_000]) && !is_ahead(&[240_000, 80_000, 80_000]));
    assert!(is_ahead(&[240_000, 80_000, 80_000, 80_000]));
}

#[test]
fn failure_24_a_worker_stands_still_after_a_millisecond_or_what_its_slots_would_take_in_turn() {
    for (slots, run, count, stalls) in [
        (1, US, 10, STALLED),
        (1, 10 * US, 30, STALLED),
        (10, 10 * US, 15, STALLED),
        (10, 10 * US, 150, 1500 * US),
        (10, 10 * US, 500, 2 * MS),
    ] {
        let mut world = filled(slots, 1024, run, count);
        let sent = frames(&world, 0);
        assert!(sent > slots);
        world.pass(stalls);
        assert_eq!(frames(&world, 0), sent, "{slots} slots, {count} calls: too early");
        world.pass(NS);
        assert_eq!(frames(&world, 0), slots, "{slots} slots, {count} calls: what has not begun is taken back");
        world.finish_all();
    }
}

#[test]
fn failure_20_what_stands_still_is_taken_back_from_its_end() {
    let mut world = filled(1, 1024, US, 10);
    let sent: Vec<WorkId> = world.workers[&0].frames.iter().map(|frame| frame.0).collect();
    let mut actions = Vec::new();
    world.machine.settle(world.now + STALLED + NS, &mut actions);
    let taken = actions.iter().filter_map(|action| match action {
        Action::Take { id, .. } => Some(*id),
        _ => None,
    });
    // A worker that goes on meanwhile begins none before those that it was sent earlier.
    assert_eq!(taken.collect::<Vec<_>>(), sent[1..].iter().rev().copied().collect::<Vec<_>>());
}

#[test]
fn after_it_stood_still_one_more_is_sent_ahead_for_each_answer() {
    let mut world = filled(1, 1024, US, 5000);
    world.pass(STALLED + NS);
    assert_eq!(frames(&world, 0), 1);
    let mut expected = 1;
    for answers in 1..=200 {
        let most = AHEAD_MAX.min(answers);
        expected = (expected - 1usize).max(1);
        if 2 * (expected - 1) < most {
            expected = 1 + most;
        }
        assert_eq!(step(&mut world, US), expected, "after {answers}");
    }
}

#[test]
fn a_worker_that_gave_some_to_idle_slots_is_sent_as_much_ahead_as_before() {
    let mut world = filled(1, 1024, US, 65);
    let other = world.worker(3, None);
    assert_eq!((frames(&world, 0), frames(&world, other)), (62, 3), "a slot's worth for each, the oldest");
    world.gone(other);
    for _ in 0..100 {
        world.submit(request(SHORT));
    }
    let most = (0..40).map(|_| step(&mut world, US)).max();
    assert_eq!(most, Some(1 + AHEAD_MAX));
    let mut few = filled(1, 1024, US, 4);
    let other = few.worker(5, None);
    assert_eq!((frames(&few, 0), frames(&few, other)), (1, 3), "half, and half of what is left");
}

// ---- who gets what

/// A machine whose workers give everything back when asked, and where each piece was sent.
struct Bare {
    machine: Machine<()>,
    now: Instant,
    sent: Vec<(WorkerKey, WorkId)>,
    answers: Vec<Verdict>,
}

impl Bare {
    fn new(slots: &[usize]) -> Bare {
        let (machine, now) = (Machine::new(Limits::default()), Instant::now());
        let mut bare = Bare { machine, now, sent: Vec::new(), answers: Vec::new() };
        for (worker, slots) in slots.iter().enumerate() {
            let ready = Event::WorkerReady { worker: worker as u32, slots: *slots, words: 4096, calls_max: None };
            bare.on(ready);
        }
        bare
    }

    fn on(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.on(event, self.now, &mut out);
        self.settle(out);
    }

    fn submit(&mut self, request: Request) -> WorkId {
        let mut out = Vec::new();
        let id = self.machine.submit(request, (), self.now, &mut out);
        self.settle(out);
        id
    }

    fn settle(&mut self, mut out: Vec<Action<()>>) {
        loop {
            self.machine.settle(self.now, &mut out);
            if out.is_empty() {
                return;
            }
            for action in std::mem::take(&mut out) {
                match action {
                    Action::Send { worker, id } => self.sent.push((worker, id)),
                    Action::Take { worker, id } => {
                        self.machine.on(Event::Taken { worker, id, taken: true }, self.now, &mut out);
                    }
                    Action::Answer { verdict, .. } => self.answers.push(verdict),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Where the next short one goes, of workers with so many of 10 µs each.
    fn next_among(loads: &[(usize, usize)]) -> WorkerKey {
        let mut bare = Bare::new(&loads.iter().map(|(slots, _)| *slots).collect::<Vec<_>>());
        let taught = bare.submit(request(SHORT));
        bare.machine.finished(bare.sent[0].0, taught, 10_000, bare.now);
        let workers = 0..loads.len() as u32;
        for _ in 0..loads.iter().map(|(slots, _)| slots).sum() {
            bare.submit(request(SHORT));
        }
        workers.clone().for_each(|worker| bare.on(Event::Hold { worker, why: Hold::Starved }));
        for (worker, (slots, count)) in workers.clone().zip(loads) {
            bare.on(Event::Release { worker, why: Hold::Starved });
            for _ in *slots..*count {
                bare.submit(request(SHORT));
            }
            assert_eq!(bare.machine.worker(worker).expect("a worker").0, *count);
            bare.on(Event::Hold { worker, why: Hold::Starved });
        }
        let id = bare.submit(request(SHORT));
        workers.for_each(|worker| {
            let mut out = Vec::new();
            bare.machine.on(Event::Release { worker, why: Hold::Starved }, bare.now, &mut out);
        });
        bare.settle(Vec::new());
        bare.machine.worker_of(id).expect("it is sent")
    }
}

#[test]
fn who_has_the_least_to_do_for_each_slot_is_sent_ahead_first() {
    assert_eq!(Bare::next_among(&[(2, 14), (1, 6)]), 1, "70 and 60 µs for a slot");
    assert_eq!(Bare::next_among(&[(1, 6), (2, 10)]), 1, "60 and 50");
    assert_eq!(Bare::next_among(&[(1, 6), (2, 14)]), 0, "60 and 70");
}

#[test]
fn an_idle_worker_comes_before_one_that_has_next_to_nothing() {
    let mut bare = Bare::new(&[2000, 2000, 1]);
    for worker in 0..3 {
        bare.submit(request(OTHER));
        assert_eq!(bare.sent.last().map(|(to, _)| *to), Some(worker));
    }
}

#[test]
fn what_is_known_to_have_begun_is_lost_with_its_worker_and_what_goes_on_is_not() {
    for goes_on in [false, true] {
        let mut bare = Bare::new(&[1]);
        let id = bare.submit(request(OTHER));
        bare.on(Event::Taken { worker: 0, id, taken: false });
        if goes_on {
            bare.machine.goes_on(id);
        }
        bare.on(Event::WorkerGone { worker: 0, begun: Vec::new(), ended: false });
        let (queued, answers) = (bare.machine.counts().queued, bare.answers.clone());
        assert_eq!((queued, answers), if goes_on { (1, vec![]) } else { (0, vec![Verdict::Lost(0)]) });
    }
}

#[test]
fn the_fewest_that_were_busy_are_told_since_the_window_began_however_often_somebody_looks() {
    let mut bare = Bare::new(&[3]);
    let ids = [0, 1, 2].map(|_| bare.submit(request(OTHER)));
    let busy = |bare: &mut Bare| (bare.machine.demand().busy, bare.machine.demand().busy_least);
    assert_eq!(bare.machine.demand().busy_least, 0, "none were, at first");
    bare.machine.begin_window();
    for id in &ids[..2] {
        bare.machine.finished(0, *id, 1, bare.now);
    }
    for _ in 0..2 {
        bare.submit(request(OTHER));
    }
    assert_eq!([busy(&mut bare), busy(&mut bare)], [(3, 1), (3, 1)]);
    bare.machine.begin_window();
    assert_eq!(busy(&mut bare), (3, 3));
}

// ---- deadlines

#[test]
fn failure_18_at_its_deadline_work_is_not_sent_any_more() {
    for (slipped, verdict) in [(MS - NS, None), (MS, Some(Verdict::Expired(Where::Queue)))] {
        let mut world = World::new(Limits::default());
        let deadline = Some(world.now + MS);
        let id = world.submit(Request { deadline, ..request(OTHER) });
        world.now += slipped;
        world.worker(1, None);
        assert_eq!(world.works[&id].verdict, verdict);
        let suspects = suspects(&mut world, 2, deadline);
        world.worker(1, None);
        assert!(verdict.is_none() || suspects.iter().all(|id| world.works[id].verdict == verdict));
        world.finish_all();
    }
}

#[test]
fn work_that_has_its_first_answer_may_take_its_time() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(2, None);
    let deadline = Some(world.now + MS);
    let [lifted, late] = [0, 1].map(|_| world.submit(Request { deadline, ..request(OTHER) }));
    while world.begin(worker).is_some() {}
    world.machine.lift_deadline(lifted);
    world.works.get_mut(&lifted).expect("known work").request.deadline = None;
    world.pass(MS);
    assert_eq!((world.works[&lifted].answers, world.works[&late].answers), (0, 1));
    let stops_at = world.machine.next_deadline();
    world.machine.lift_deadline(late);
    assert_eq!(world.machine.next_deadline(), stops_at, "what was told to stop should");
    world.pass(STOPS_IN);
    world.finish_all();
}

#[test]
fn what_is_cut_off_with_its_worker_is_told_from_what_was_given_up() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(2, None);
    let [cut, given_up] = [0, 1].map(|_| world.submit(Request { endless: true, ..request(OTHER) }));
    while world.begin(worker).is_some() {}
    world.abandon(given_up);
    world.drain(worker);
    world.pass(CUT_IN);
    assert_eq!((world.machine.is_drained(cut), world.machine.is_drained(given_up)), (true, false));
    assert!(!world.machine.is_drained(cut + 1), "nobody knows this one");
    let mut out = Vec::new();
    world.now += STOPS_IN;
    world.machine.tick(world.now, &mut out);
    let causes: Vec<_> =
        out.iter().map(|action| matches!(action, Action::Stuck { cause: StopCause::Drained, .. })).collect();
    assert_eq!(causes.iter().filter(|drained| **drained).count(), 1, "{out:?}");
}

#[test]
fn who_has_only_endless_work_can_end_at_any_time() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(2, None);
    assert!(world.machine.has_only_endless(worker), "it has nothing to do");
    let endless = world.submit(Request { endless: true, ..request(OTHER) });
    assert!(world.machine.has_only_endless(worker));
    let other = world.submit(request(OTHER));
    assert!(!world.machine.has_only_endless(worker));
    world.mark_endless(other);
    assert!(world.machine.has_only_endless(worker));
    world.abandon(endless);
    assert!(world.machine.has_only_endless(worker), "it was told to stop");
}

#[test]
fn endless_work_is_cut_off_at_the_earliest_of_the_instants_that_its_worker_is_given() {
    for (first, second) in [(30, 1), (1, 30)] {
        let mut world = World::new(Limits::default());
        let worker = world.worker(1, None);
        world.submit(Request { endless: true, ..request(OTHER) });
        world.begin(worker).expect("sent at once");
        for seconds in [first, second] {
            let by = world.now + seconds * SECOND;
            world.machine.on(Event::EndEndless { worker, by }, world.now, &mut Vec::new());
        }
        assert_eq!(world.machine.next_deadline(), Some(world.now + SECOND), "{first} s, then {second} s");
    }
}

#[test]
fn all_work_can_be_cut_off_be_it_endless_or_not() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(2, None);
    let all = [true, false].map(|endless| world.submit(Request { endless, ..request(OTHER) }));
    while world.begin(worker).is_some() {}
    world.machine.cut_all(world.now + SECOND);
    assert_eq!(world.machine.next_deadline(), Some(world.now + SECOND));
    let mut out = Vec::new();
    world.machine.tick(world.now + SECOND - NS, &mut out);
    assert!(out.is_empty(), "{out:?}");
    world.machine.tick(world.now + SECOND, &mut out);
    let cut: Vec<_> =
        out.iter().filter_map(|action| if let Action::CutOff { id, .. } = action { Some(*id) } else { None }).collect();
    assert_eq!(cut, all);
    let told = |out: &[Action<u64>]| out.iter().filter(|action| matches!(action, Action::CutRest { .. })).count();
    assert_eq!(told(&out), 1, "what is not known here");
    out.clear();
    let begun = Begun { worker, since: world.now };
    let late = world.machine.adopt(request(OTHER), 7, begun, world.now + SECOND, &mut out).expect("a worker");
    world.machine.tick(world.now + SECOND, &mut out);
    assert!(matches!(out[..], [Action::CutOff { id, .. }] if id == late), "what is known late: {out:?}");
}

#[test]
fn failure_21_instants_of_what_is_gone_are_forgotten_when_they_are_more_than_what_is_left() {
    const KEPT: usize = 100;
    let (now, mut out) = (Instant::now(), Vec::new());
    let mut machine: Machine<()> = Machine::new(Limits::default());
    let request = Request { deadline: Some(now + MS), ..request(OTHER) };
    for _ in 0..KEPT {
        machine.submit(request, (), now, &mut out);
    }
    let instants = |machine: &Machine<()>| format!("{machine:?}").matches("Reverse((").count();
    let held = (0..1000).map(|_| {
        let id = machine.submit(request, (), now, &mut out);
        machine.on(Event::Abandon { id }, now, &mut out);
        instants(&machine)
    });
    let held: Vec<usize> = held.collect();
    assert_eq!(held.iter().max(), Some(&(2 * KEPT + 64)));
    assert_eq!(held.iter().min(), Some(&KEPT));
}

// ---- alone

/// So many that had begun in one worker that died, and are to run again.
fn suspects(world: &mut World, count: usize, deadline: Option<Instant>) -> Vec<WorkId> {
    let dying = world.worker(count, None);
    let ids: Vec<_> = (0..count).map(|_| world.submit(Request { retry: 1, deadline, ..request(OTHER) })).collect();
    while world.begin(dying).is_some() {}
    world.gone(dying);
    ids
}

fn alone(world: &World) -> usize {
    world.workers.values().filter(|worker| worker.alone.is_some()).count()
}

#[test]
fn suspects_run_in_half_of_the_workers() {
    let mut world = World::new(Limits::default());
    suspects(&mut world, 8, None);
    for workers in 1..=7usize {
        world.worker(1, None);
        assert_eq!(alone(&world), workers.div_ceil(2), "of {workers}");
    }
    world.finish_all();
}

/// A worker with two that run, and two suspects that wait.
fn kept(limits: Limits) -> (World, [WorkId; 2], Vec<WorkId>) {
    let mut world = World::new(limits);
    let worker = world.worker(2, None);
    let running = [0, 1].map(|_| world.submit(request(OTHER)));
    while world.begin(worker).is_some() {}
    let suspects = suspects(&mut world, 2, None);
    (world, running, suspects)
}

#[test]
fn a_busy_worker_is_kept_free_until_a_suspect_can_run() {
    let (mut world, running, suspects) = kept(Limits::default());
    let next = world.submit(request(OTHER));
    world.finish(0, running[0], MS);
    assert_eq!(frames(&world, 0), 1, "its slot stays empty");
    world.finish(0, running[1], MS);
    assert_eq!(world.workers[&0].alone, Some(suspects[0]));
    world.begin(0);
    world.finish(0, suspects[0], MS);
    assert_eq!(world.workers[&0].alone, Some(suspects[1]), "one after the other");
    world.begin(0);
    world.finish(0, suspects[1], MS);
    assert_eq!(world.machine.worker_of(next), Some(0), "and then the others");
    world.finish_all();
}

#[test]
fn a_worker_that_was_kept_for_suspects_takes_work_again_when_they_are_given_up() {
    let (mut world, running, suspects) = kept(Limits { queue: Some(0), ..Limits::default() });
    assert_eq!(world.machine.counts().slots, 0);
    suspects.into_iter().for_each(|id| world.abandon(id));
    assert_eq!(world.machine.counts().slots, 2);
    running.into_iter().for_each(|id| world.finish(0, id, MS));
    let id = world.submit(request(OTHER));
    assert_eq!(world.machine.worker_of(id), Some(0), "there is no line, and it is idle");
    world.finish_all();
}

#[test]
fn workers_that_have_equally_much_to_do_take_turns_where_it_is_asked_for() {
    for (takes_turns, expected) in [(false, [0, 0, 0, 0]), (true, [0, 1, 2, 0])] {
        let mut world = World::new(Limits { takes_turns, ..Limits::default() });
        (0..3).for_each(|_| {
            world.worker(2, None);
        });
        let chosen = [(); 4].map(|()| {
            let id = world.submit(request(OTHER));
            let worker = world.machine.worker_of(id).expect("it has slots");
            world.begin(worker);
            world.finish(worker, id, MS);
            worker
        });
        assert_eq!(chosen, expected);
        world.finish_all();
    }
}

#[test]
fn failure_26_work_that_has_told_a_part_of_its_answer_does_not_run_again() {
    for told in [false, true] {
        let mut world = World::new(Limits::default());
        let worker = world.worker(1, None);
        let id = world.submit(Request { retry: 3, ..request(OTHER) });
        world.begin(worker);
        if told {
            world.machine.told_part(id);
            world.works.get_mut(&id).expect("known work").request.retry = 0;
        }
        world.gone(worker);
        assert_eq!(world.works[&id].verdict, told.then_some(Verdict::Lost(worker)));
        world.finish_all();
    }
}

#[test]
fn the_worker_with_the_least_to_do_is_kept_for_suspects() {
    let mut world = World::new(Limits::default());
    for slots in [3, 2] {
        let worker = world.worker(slots, None);
        for _ in 0..slots {
            world.submit(request(OTHER));
            world.begin(worker).expect("sent at once");
        }
    }
    let suspects = suspects(&mut world, 2, None);
    let next = world.submit(request(OTHER));
    for _ in 0..2 {
        assert_eq!(world.machine.worker_of(next), None, "its slots stay empty");
        let id = world.workers[&1].frames[0].0;
        world.finish(1, id, MS);
    }
    assert_eq!(world.workers[&1].alone, Some(suspects[0]));
    world.finish_all();
}

#[test]
fn what_is_kept_with_work_is_there_until_it_is_answered() {
    let (mut machine, now, mut out) = (Machine::new(Limits::default()), Instant::now(), Vec::new());
    let [id, other] = ["one", "other"].map(|body| machine.submit(request(OTHER), body.to_owned(), now, &mut out));
    assert_eq!(machine.body(id).map(String::as_str), Some("one"));
    machine.body_mut(id).expect("it is open").push_str(" more");
    let (body, queued) = machine.sending(id).expect("it is open");
    assert_eq!((body.as_str(), queued), ("one more", Duration::ZERO));
    machine.on(Event::Abandon { id }, now, &mut out);
    let answer =
        out.into_iter().find_map(|action| if let Action::Answer { body, .. } = action { Some(body) } else { None });
    assert_eq!(answer.as_deref(), Some("one more"));
    assert!(machine.body(id).is_none() && machine.body_mut(id).is_none() && machine.sending(id).is_none());
    assert_eq!(machine.body(other).map(String::as_str), Some("other"));
}

#[test]
fn what_no_worker_will_take_is_refused_or_cancelled_where_the_pool_is_cut_off() {
    for (cut, verdict) in [(false, Verdict::Failing), (true, Verdict::Cancelled)] {
        let mut bare = Bare::new(&[1]);
        let unbegun = bare.submit(request(OTHER));
        bare.submit(request(OTHER));
        if cut {
            bare.machine.cancel_rest();
        }
        bare.on(Event::Failing);
        bare.on(Event::Taken { worker: 0, id: unbegun, taken: true });
        assert_eq!(bare.answers, [verdict; 2]);
    }
}
