//! Permits for what is fetched from elsewhere: all of it can begin, whoever else uses the pool, and none is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::model::{Word, World, request};
use clutch_pool::pool::state::{FETCHED_AHEAD, FETCHED_AHEAD_ALL_MAX, FETCHED_AHEAD_MAX, Limits, Places, Request};
use clutch_pool::work::FetcherKey;

const OTHER: u32 = 0;
const LONG: Duration = Duration::from_secs(1);

fn fetched(fetcher: FetcherKey) -> Request {
    Request { block: true, fetcher: Some(fetcher), ..request(OTHER) }
}

/// Ends something that runs.
fn end(world: &mut World, pick: usize, run: Duration) {
    let begun = world.workers.iter().flat_map(|(worker, has)| {
        has.frames.iter().filter(|(_, word)| *word == Word::Begun).map(move |(id, _)| (*worker, *id))
    });
    let begun: Vec<_> = begun.collect();
    if !begun.is_empty() {
        let (worker, id) = begun[pick % begun.len()];
        world.finish(worker, id, run);
    }
}

fn begin_all(world: &mut World) {
    for worker in world.workers.keys().copied().collect::<Vec<_>>() {
        while world.begin(worker).is_some() {}
    }
}

#[derive(Clone, Debug)]
enum Choice {
    /// Somebody else submits work.
    Submit,
    Take {
        fetcher: usize,
        most: usize,
    },
    /// What was fetched, for so many of the permits.
    Fetch {
        fetcher: usize,
        most: usize,
    },
    GiveBack {
        fetcher: usize,
        most: usize,
    },
    GiveWay {
        fetcher: usize,
    },
    End(usize),
    Ready {
        slots: usize,
    },
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let (fetcher, most) = (0usize..2, 0usize..6);
    let one = prop_oneof![
        2 => Just(Choice::Submit),
        4 => (fetcher.clone(), most.clone()).prop_map(|(fetcher, most)| Choice::Take { fetcher, most }),
        4 => (fetcher.clone(), most.clone()).prop_map(|(fetcher, most)| Choice::Fetch { fetcher, most }),
        2 => (fetcher.clone(), most).prop_map(|(fetcher, most)| Choice::GiveBack { fetcher, most }),
        1 => fetcher.prop_map(|fetcher| Choice::GiveWay { fetcher }),
        4 => (0usize..8).prop_map(Choice::End),
        1 => (1usize..4).prop_map(|slots| Choice::Ready { slots }),
    ];
    prop::collection::vec(one, 0..80)
}

proptest! {
    #[test]
    fn permits_are_for_slots_that_nobody_else_has_and_none_is_lost(choices in choices()) {
        let mut world = World::new(Limits::default());
        let fetchers = [world.machine.open_fetcher(), world.machine.open_fetcher()];
        let mut short: Vec<usize> = Vec::new();
        let mut held: BTreeMap<FetcherKey, usize> = fetchers.iter().map(|key| (*key, 0)).collect();
        for choice in choices {
            match choice {
                Choice::Submit => drop(world.submit(request(OTHER))),
                Choice::Take { fetcher, most } => {
                    let out: usize = held.values().sum();
                    let free = world.free_slots().saturating_sub(world.queued());
                    let taken = world.machine.permit(fetchers[fetcher], most);
                    // One slot is left to the other fetcher, if it has waited longer.
                    let left = short.iter().position(|one| *one == fetcher).unwrap_or(short.len());
                    prop_assert_eq!(taken, most.min(free.saturating_sub(out + left)));
                    if most == 0 {
                        // Who waits for room goes on to do so.
                    } else if taken == most {
                        short.retain(|one| *one != fetcher);
                    } else if !short.contains(&fetcher) {
                        short.push(fetcher);
                    }
                    *held.entry(fetchers[fetcher]).or_default() += taken;
                }
                Choice::Fetch { fetcher, most } => {
                    let key = fetchers[fetcher];
                    for _ in 0..most.min(held[&key]) {
                        let (free, queued) = (world.free_slots(), world.queued());
                        world.submit(fetched(key));
                        prop_assert!(world.queued() == queued || free == 0, "it could not begin though a slot was free");
                        *held.entry(key).or_default() -= 1;
                    }
                }
                Choice::GiveBack { fetcher, most } => {
                    let key = fetchers[fetcher];
                    let given = most.min(held[&key]);
                    world.machine.give_back_permits(key, given);
                    *held.entry(key).or_default() -= given;
                }
                Choice::GiveWay { fetcher } => {
                    world.machine.give_way(fetchers[fetcher]);
                    short.retain(|one| *one != fetcher);
                }
                Choice::End(pick) => end(&mut world, pick, LONG),
                Choice::Ready { slots } if world.workers.len() < 3 => drop(world.worker(slots, None)),
                Choice::Ready { .. } => {}
            }
            begin_all(&mut world);
        }
        fetchers.iter().for_each(|key| world.machine.close_fetcher(*key));
        let next = world.machine.open_fetcher();
        let free = world.free_slots().saturating_sub(world.queued());
        prop_assert_eq!(world.machine.permit(next, usize::MAX), free, "permits of those that are gone");
    }
}

#[test]
fn whoever_was_short_hears_of_room_once() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(1, None);
    let other = world.submit(request(OTHER));
    begin_all(&mut world);
    let fetcher = world.machine.open_fetcher();
    assert!(!world.machine.tells_room(), "nobody was short");
    assert_eq!(world.machine.permit(fetcher, 1), 0);
    assert!(!world.machine.tells_room(), "there is none");
    world.finish(worker, other, LONG);
    assert_eq!([world.machine.tells_room(), world.machine.tells_room()], [true, false]);
    assert_eq!(world.machine.permit(fetcher, 1), 1);
}

#[test]
fn whoever_waits_for_room_hears_of_it_although_it_has_asked_for_none_since() {
    let mut world = World::new(Limits::default());
    let worker = world.worker(1, None);
    let other = world.submit(request(OTHER));
    begin_all(&mut world);
    let fetcher = world.machine.open_fetcher();
    assert_eq!([world.machine.permit(fetcher, 1), world.machine.permit(fetcher, 0)], [0, 0]);
    world.finish(worker, other, LONG);
    assert!(world.machine.tells_room(), "a round that only settles asks for none");
    world.machine.give_way(fetcher);
    assert!(!world.machine.tells_room());
}

#[test]
fn what_is_fetched_ahead_gives_way_to_another_fetcher_that_is_short() {
    let mut world = World::new(Limits::default());
    world.worker(1, None);
    let (greedy, other) = (world.machine.open_fetcher(), world.machine.open_fetcher());
    assert_eq!(world.machine.permit(greedy, 1), 1);
    world.submit(fetched(greedy));
    begin_all(&mut world);
    end(&mut world, 0, Duration::from_micros(1));
    let many = world.machine.permit(greedy, 3);
    for _ in 0..many {
        world.submit(fetched(greedy));
    }
    assert_eq!((many, world.machine.permit(other, 1)), (3, 0));
    assert_eq!(world.machine.permit(greedy, 1), 0, "another waits");
    for _ in 0..many {
        begin_all(&mut world);
        end(&mut world, 0, Duration::from_micros(1));
    }
    assert!(world.machine.tells_room());
    assert_eq!((world.machine.permit(greedy, 1), world.machine.permit(other, 1)), (0, 1), "its slot is left to it");
    world.machine.give_back_permits(other, 1);
    assert_eq!((world.machine.permit(greedy, 0), world.machine.permit(other, 0)), (0, 0));
    [greedy, other].into_iter().for_each(|fetcher| world.machine.give_way(fetcher));
    assert_eq!(world.machine.permit(greedy, 5), 5, "nobody else waits");
}

#[test]
fn short_work_is_fetched_ahead_of_the_slots_and_one_long_run_ends_that() {
    let mut world = World::new(Limits::default());
    world.worker(2, None);
    let fetcher = world.machine.open_fetcher();
    let mut ahead = |runs: &[Duration]| {
        for run in runs {
            world.machine.permit(fetcher, 1);
            world.submit(fetched(fetcher));
            begin_all(&mut world);
            end(&mut world, 0, *run);
        }
        world.machine.places(fetcher)
    };
    let places = |ahead| Places { slots: 2, ahead };
    assert_eq!(ahead(&[]), places(0), "nothing is known of it");
    assert_eq!(ahead(&[Duration::from_micros(1)]), places(FETCHED_AHEAD_MAX));
    assert_eq!(ahead(&[FETCHED_AHEAD / 10]), places(10));
    assert_eq!(ahead(&[LONG]), places(0));
    assert_eq!(ahead(&[Duration::from_micros(1)]), places(0), "as long as one may be long again");
    assert_eq!(ahead(&[Duration::from_micros(1); 80]).ahead, FETCHED_AHEAD_MAX);
    let most = world.machine.places(fetcher).all();
    assert_eq!(world.machine.permit(fetcher, usize::MAX), most);
    world.worker(510, None);
    assert_eq!(world.machine.places(fetcher), Places { slots: 512, ahead: FETCHED_AHEAD_ALL_MAX / 512 });
}

#[test]
fn what_could_not_be_fetched_is_demand_for_more_slots() {
    let mut world = World::new(Limits::default());
    world.worker(3, None);
    let (fetcher, other) = (world.machine.open_fetcher(), world.machine.open_fetcher());
    let since = world.now;
    let demand = |world: &mut World| {
        let demand = world.machine.demand();
        (demand.waiting, demand.waits_since)
    };
    assert_eq!(demand(&mut world), (0, None));
    world.machine.set_backlog(fetcher, Some(since));
    world.machine.set_backlog(other, Some(since + LONG));
    assert_eq!(demand(&mut world), (3, Some(since)));
    world.machine.close_fetcher(fetcher);
    assert_eq!(demand(&mut world), (3, Some(since + LONG)));
    world.machine.set_backlog(other, None);
    assert_eq!(demand(&mut world), (0, None));
}
