//! The pool's pure machine against random events and races; `model` says what always holds.

mod model;

use std::time::{Duration, Instant};

use clutch_core::pool::state::{Limits, Machine, Request, WorkerKey};
use clutch_core::work::WorkId;
use model::{Word, World, request};
use proptest::prelude::*;

/// One thing that happens. Numbers pick among what is there.
#[derive(Clone, Debug)]
enum Happening {
    Submit { function: u32, priority: i8, deadline_ms: Option<u64>, block: bool, retry: u32 },
    Begin(usize),
    Finish { pick: usize, run_us: u64 },
    LateReply(usize),
    Cancel(usize),
    Abandon(usize),
    CancelWaiting,
    Pass { us: u64 },
    Ready { slots: usize, calls_max: Option<u64> },
    Hold(usize),
    Resume(usize),
    Drain(usize),
    Gone(usize),
    Racy(bool),
    Close,
    Failing,
    Recovered,
}

fn submit() -> impl Strategy<Value = Happening> {
    let deadline = prop_oneof![3 => Just(None), 1 => (0u64..20).prop_map(Some)];
    let retry = prop_oneof![4 => Just(0u32), 1 => 1u32..3];
    (0u32..3, -1i8..=1, deadline, prop::bool::weighted(0.1), retry).prop_map(
        |(function, priority, deadline_ms, block, retry)| Happening::Submit {
            function,
            priority,
            deadline_ms,
            block,
            retry,
        },
    )
}

fn happening() -> impl Strategy<Value = Happening> {
    let pick = 0usize..8;
    prop_oneof![
        30 => submit(),
        15 => pick.clone().prop_map(Happening::Begin),
        15 => (pick.clone(), prop_oneof![1u64..100, 1000u64..100_000])
            .prop_map(|(pick, run_us)| Happening::Finish { pick, run_us }),
        2 => pick.clone().prop_map(Happening::LateReply),
        5 => (0usize..64).prop_map(Happening::Cancel),
        5 => (0usize..64).prop_map(Happening::Abandon),
        1 => Just(Happening::CancelWaiting),
        10 => prop_oneof![1u64..500, 1000u64..5000].prop_map(|us| Happening::Pass { us }),
        6 => (1usize..4, prop_oneof![3 => Just(None), 1 => (1u64..8).prop_map(Some)])
            .prop_map(|(slots, calls_max)| Happening::Ready { slots, calls_max }),
        3 => pick.clone().prop_map(Happening::Hold),
        3 => pick.clone().prop_map(Happening::Resume),
        2 => pick.clone().prop_map(Happening::Drain),
        3 => pick.prop_map(Happening::Gone),
        2 => any::<bool>().prop_map(Happening::Racy),
        1 => prop::bool::weighted(0.2).prop_map(|close| if close { Happening::Close } else { Happening::Recovered }),
        1 => Just(Happening::Failing),
        1 => Just(Happening::Recovered),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let queue = prop_oneof![1 => Just(None), 3 => (0usize..6).prop_map(Some)];
    (queue, any::<bool>()).prop_map(|(queue, block)| Limits { queue, block })
}

fn pick_worker(world: &World, pick: usize) -> Option<WorkerKey> {
    let count = world.workers.len();
    (count > 0).then(|| *world.workers.keys().nth(pick % count).expect("in range"))
}

fn pick_work(world: &World, pick: usize) -> Option<WorkId> {
    let count = world.works.len();
    (count > 0).then(|| *world.works.keys().nth_back(pick % count).expect("in range"))
}

fn happen(world: &mut World, happening: Happening) {
    match happening {
        Happening::Submit { function, priority, deadline_ms, block, retry } => {
            let deadline = deadline_ms.map(|ms| world.now + Duration::from_millis(ms));
            world.submit(Request { function, priority, deadline, block, retry });
        }
        Happening::Cancel(pick) => pick_work(world, pick).into_iter().for_each(|id| world.cancel(id)),
        Happening::Abandon(pick) => {
            pick_work(world, pick).into_iter().for_each(|id| world.on(clutch_core::pool::state::Event::Abandon { id }))
        }
        Happening::CancelWaiting => world.cancel_waiting(),
        Happening::Pass { us } => world.pass(Duration::from_micros(us)),
        Happening::Ready { slots, calls_max } if world.workers.len() < 6 => drop(world.worker(slots, calls_max)),
        Happening::Ready { .. } => {}
        Happening::Racy(racy) => world.racy = racy,
        Happening::Close => world.close(),
        Happening::Failing => world.fail(true),
        Happening::Recovered => world.fail(false),
        Happening::Begin(pick)
        | Happening::Finish { pick, .. }
        | Happening::LateReply(pick)
        | Happening::Hold(pick)
        | Happening::Resume(pick)
        | Happening::Drain(pick)
        | Happening::Gone(pick) => {
            if let Some(worker) = pick_worker(world, pick) {
                happen_to(world, worker, &happening);
            }
        }
    }
}

fn happen_to(world: &mut World, worker: WorkerKey, happening: &Happening) {
    match happening {
        Happening::Begin(_) => drop(world.begin(worker)),
        Happening::Finish { pick, run_us } => {
            let begun: Vec<WorkId> = world.workers[&worker]
                .frames
                .iter()
                .filter(|(_, word)| *word != Word::Sent)
                .map(|(id, _)| *id)
                .collect();
            if !begun.is_empty() {
                world.finish(worker, begun[pick % begun.len()], Duration::from_micros(*run_us));
            }
        }
        Happening::LateReply(pick) => {
            let answered = world.works.iter().filter(|(_, known)| known.answers == 1).map(|(id, _)| *id).nth(*pick);
            let on_link = |id: &WorkId| world.workers[&worker].frames.iter().any(|(known, _)| known == id);
            if let Some(id) = answered.filter(|id| !on_link(id)) {
                world.late_reply(worker, id);
            }
        }
        Happening::Hold(_) => world.hold(worker, true),
        Happening::Resume(_) => world.hold(worker, false),
        Happening::Drain(_) => world.drain(worker),
        Happening::Gone(_) => world.gone(worker),
        other => unreachable!("{other:?} happens to no worker"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each submission is answered once, nothing starts past its deadline, no slot idles while work waits, first in is
    /// first out, the queue keeps its bound: whatever happens, in whatever order.
    #[test]
    fn failure_20_the_rules_hold_whatever_happens(
        limits in limits(),
        happenings in prop::collection::vec(happening(), 1..150),
    ) {
        let mut world = World::new(limits);
        for one in happenings {
            happen(&mut world, one);
        }
        world.finish_all();
    }
}
