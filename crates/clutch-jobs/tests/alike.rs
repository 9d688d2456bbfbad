//! The stores do the same: whatever is done to both, Redis answers what SQLite answers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "redis/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_jobs::job::{AfterFailure, Backoff, Claimed, Ending, JobError, Millis, NewJob, settle};
use clutch_jobs::leases::Observer;
use clutch_jobs::store::{Change, Filter, Keep, QueueChange, QueueStats, Report, Runner, Store, StoreError, Want};
use clutch_jobs::stores;
use proptest::prelude::*;
use serde_json::value::RawValue;

const START: Millis = 1_800_000_000_000;
const LEASE: Duration = Duration::from_secs(30);
const KEEP: Keep =
    Keep { completed: Duration::from_secs(40), cancelled: Duration::from_secs(50), dead: Duration::from_secs(60) };
const QUEUES: [&str; 2] = ["one", "two"];

/// What is done to both; numbers of jobs are taken modulo those that there are.
#[derive(Clone, Debug)]
enum Step {
    Enqueue {
        queue: usize,
        priority: i8,
        later: Millis,
        unique: Option<u8>,
        key: Option<u8>,
        key_limit: u32,
        result_ms: Millis,
        after: Vec<usize>,
        runs_anyway: bool,
    },
    /// By one of the runners: so many, and what it holds ends like this.
    Round {
        runner: u8,
        limit: usize,
        ends: Vec<u8>,
    },
    Renew {
        runner: u8,
        forgets: bool,
    },
    Leave {
        runner: u8,
    },
    Look,
    Change {
        job: usize,
        change: u8,
    },
    Pause {
        queue: usize,
        is_paused: bool,
    },
    Limit {
        queue: usize,
        most: Option<u32>,
    },
    Pass {
        ms: Millis,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let new = (0..2usize, -1..2i8, 0..4i64, prop::option::weighted(0.3, 0..3u8), prop::option::weighted(0.4, 0..2u8));
    let after = prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(any::<usize>(), 1..4)];
    let new = (new, 1..3u32, prop_oneof![Just(0), Just(70_000)], after, any::<bool>());
    prop_oneof![
        6 => new.prop_map(|((queue, priority, later, unique, key), key_limit, result_ms, after, runs_anyway)| Step::Enqueue {
            queue, priority, unique, key, key_limit, result_ms, after, runs_anyway, later: (later - 1).max(0) * 20_000,
        }),
        6 => (0..3u8, 0..4usize, prop::collection::vec(0..8u8, 0..4))
            .prop_map(|(runner, limit, ends)| Step::Round { runner, limit, ends }),
        1 => (0..3u8, any::<bool>()).prop_map(|(runner, forgets)| Step::Renew { runner, forgets }),
        1 => (0..3u8).prop_map(|runner| Step::Leave { runner }),
        3 => Just(Step::Look),
        3 => (any::<usize>(), 0..4u8).prop_map(|(job, change)| Step::Change { job, change }),
        1 => (0..2usize, any::<bool>()).prop_map(|(queue, is_paused)| Step::Pause { queue, is_paused }),
        1 => (0..2usize, prop::option::of(0..3u32)).prop_map(|(queue, most)| Step::Limit { queue, most }),
        2 => (1..45_000i64).prop_map(|ms| Step::Pass { ms }),
    ]
}

/// One store, and what its runners hold.
struct Side {
    store: Arc<dyn Store>,
    /// The ids in the order in which they were given, so that both sides can be compared.
    ids: Vec<String>,
    held: [Vec<Claimed>; 3],
    observer: Observer,
    began: Instant,
    now: Millis,
}

fn runner(nr: u8) -> Runner {
    Runner::new(format!("r{nr}"), LEASE)
}

fn ending(kind: u8, now: Millis) -> Ending {
    let error = JobError { at: now, attempt: 1, kind: "raised".into(), message: "no".into(), traceback: String::new() };
    match kind {
        0 | 1 => Ending::Returned("7".to_owned()),
        2 => Ending::Snoozed { ms: 9_001 },
        3 => Ending::CancelledItself { reason: String::from("mine") },
        4 => Ending::RetryAsked { ms: 11_003, reason: "later".to_owned() },
        5 => Ending::Impossible { error, why: "it says so".into() },
        6 => Ending::Failed(error),
        _ => Ending::CutOff { reason: "stopping".to_owned() },
    }
}

impl Side {
    fn new(store: Arc<dyn Store>) -> Side {
        let (ids, observer, began) = (Vec::new(), Observer::default(), Instant::now());
        Side { store, ids, held: Default::default(), observer, began, now: START }
    }

    fn nr(&self, id: &str) -> usize {
        self.ids.iter().position(|known| known == id).unwrap()
    }

    /// What the store says, in words in which both sides say the same.
    fn take(&mut self, step: &Step) -> String {
        // So that no two jobs are due at the same time.
        self.now += 1;
        match step {
            Step::Enqueue { queue, priority, later, unique, key, key_limit, result_ms, after, runs_anyway } => {
                let job = NewJob {
                    priority: *priority,
                    attempts_max: 2,
                    backoff: Backoff::Constant { ms: 7_007 },
                    scheduled_at: (*later > 0).then_some(self.now + later),
                    unique: unique.map(|nr| nr.to_string()),
                    key: key.map(|nr| nr.to_string()),
                    key_limit: *key_limit,
                    result_ms: *result_ms,
                    // Also those that are there no more.
                    after: after
                        .iter()
                        .filter_map(|nr| Some(self.ids[nr.checked_rem(self.ids.len())?].clone()))
                        .collect(),
                    after_failure: if *runs_anyway { AfterFailure::Run } else { AfterFailure::Cancel },
                    ..NewJob::new(QUEUES[*queue], "t", RawValue::from_string("{}".to_owned()).unwrap())
                };
                let told = match self.store.enqueue(&[job], self.now) {
                    Ok(mut told) => told.remove(0),
                    // Of several that are there no more, each names another.
                    Err(StoreError::Refused(_)) => return "refused".to_owned(),
                    Err(error) => panic!("{error}"),
                };
                if told.is_new {
                    self.ids.push(told.id.clone());
                }
                format!("{} {}", self.nr(&told.id), told.is_new)
            }
            Step::Round { runner, limit, ends } => self.round(*runner, *limit, ends),
            Step::Renew { runner: nr, forgets } => {
                let held = &mut self.held[usize::from(*nr)];
                if *forgets {
                    held.pop();
                }
                let ids: Vec<_> = held.iter().map(|job| job.id.clone()).collect();
                let renewed = self.store.renew(&runner(*nr), &ids, self.now).unwrap();
                let renewed = renewed.map(|told| {
                    [told.cancelled, told.lost].map(|ids| ids.iter().map(|id| self.nr(id)).collect::<BTreeSet<_>>())
                });
                format!("{renewed:?}")
            }
            Step::Leave { runner: nr } => format!("{:?}", self.store.leave(&runner(*nr))),
            Step::Look => {
                let lapsed = self.observer.lapsed();
                let mut upkeep = self.store.look_after(&KEEP, 1000, &[], &lapsed, self.now).unwrap();
                upkeep.leases.sort_by(|one, other| one.holder.cmp(&other.holder));
                let sent = self.began + Duration::from_millis((self.now - START) as u64);
                // No time is too long: nothing stands still here.
                self.observer.looked(upkeep.leases.clone(), sent, Duration::from_secs(3600));
                format!("{upkeep:?}")
            }
            Step::Change { job, change } => {
                let Some(nr) = job.checked_rem(self.ids.len()) else { return String::new() };
                let arguments = r#"{"args":[7],"kwargs":{}}"#;
                let change =
                    [Change::Cancel, Change::Retry, Change::Delete, Change::RetryWith(arguments)][usize::from(*change)];
                format!("{:?}", self.store.change(&self.ids[nr], change, self.now).unwrap())
            }
            Step::Pause { queue, is_paused } => {
                format!("{:?}", self.store.set_queue(QUEUES[*queue], QueueChange::Pause(*is_paused)))
            }
            Step::Limit { queue, most } => {
                format!("{:?}", self.store.set_queue(QUEUES[*queue], QueueChange::RunningMax(*most)))
            }
            Step::Pass { ms } => {
                self.now += ms;
                String::new()
            }
        }
    }

    fn round(&mut self, nr: u8, limit: usize, ends: &[u8]) -> String {
        let held = &mut self.held[usize::from(nr)];
        let ended: Vec<_> = held.drain(..ends.len().min(held.len())).collect();
        let now = self.now;
        let settled = ended.iter().zip(ends).map(|(job, kind)| settle(job, ending(*kind, now), now, 0.5));
        let report = Report { settled: settled.collect(), ..Report::default() };
        let want = Want { limit, queues: QUEUES.map(str::to_owned).into() };
        let round = self.store.round(&runner(nr), &report, &want, self.now).unwrap();
        let lost: BTreeSet<_> = round.lost.iter().map(|id| self.nr(id)).collect();
        let claimed: Vec<_> = round
            .claimed
            .iter()
            .map(|job| (self.nr(&job.id), job.attempt, job.attempts_max, job.queue.clone(), job.results.clone()))
            .collect();
        self.held[usize::from(nr)].extend(round.claimed);
        format!("lost {lost:?}, claimed {claimed:?}")
    }

    /// With the numbers of jobs in place of their ids.
    fn without_ids(&self, text: &str) -> String {
        let word = |word: &str| {
            let id = word.trim_end_matches([',', ';']);
            self.ids.iter().position(|known| known == id).map_or(word.to_owned(), |nr| format!("#{nr}"))
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// All that people can see of it.
    fn look(&self) -> String {
        let mut queues = self.store.queues().unwrap();
        // Whether a queue whose settings are the defaults again is listed, is of no account.
        queues.retain(|queue| *queue != QueueStats { name: queue.name.clone(), ..QueueStats::default() });
        let mut text = format!("{queues:#?}\n");
        for job in self.store.list(&Filter { limit: 1000, ..Filter::default() }).unwrap() {
            let mut job = self.store.get(&job.id).unwrap().unwrap();
            job.id = self.nr(&job.id).to_string();
            job.reason = job.reason.map(|reason| self.without_ids(&reason));
            for ids in [&mut job.after, &mut job.dependents].into_iter().flatten() {
                ids.iter_mut().for_each(|id| *id = self.nr(id).to_string());
            }
            // Kept until a time that is compared with the clock of the machine.
            job.result = None;
            text += &format!("{}\n", serde_json::to_string(&job).unwrap());
        }
        text
    }
}

fn check(steps: &[Step], server: &server::Server) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:///{}?synchronous=normal", folder.path().join("jobs.db").display());
    let mut sides = [&url, &server.new_url()].map(|url| Side::new(stores::open(url).unwrap()));
    for (nr, step) in steps.iter().enumerate() {
        let told = sides.each_mut().map(|side| side.take(step));
        assert_eq!(told[0], told[1], "step {nr}: {step:?}");
        let seen = sides.each_ref().map(Side::look);
        assert_eq!(seen[0], seen[1], "after step {nr}: {step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redis_does_what_sqlite_does(steps in prop::collection::vec(step(), 1..60)) {
        if let Some(server) = server::shared() {
            check(&steps, server);
        }
    }
}
