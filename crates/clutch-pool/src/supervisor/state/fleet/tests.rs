//! A fleet without processes: who leaves when, and that a replacement is always ready before.

use super::*;
use crate::config::Shape;
use crate::pool::{Memory, Weighed};
use proptest::prelude::*;

#[path = "../../../../tests/support/config.rs"]
mod options;

const TARGET: usize = 3;
const GRACE: Duration = Duration::from_secs(1);

fn config() -> PoolConfig {
    let free = options::config("fleet");
    PoolConfig {
        shape: Shape { workers: TARGET as u32, ..free.shape },
        workers_min: TARGET as u32,
        start_timeout_ms: Some(5_000),
        recycle_memory_bytes: Some(100),
        restarts_max: 100,
        scale_idle_ms: 100,
        grace_ms: GRACE.as_millis() as u64,
        interrupt_grace_ms: 100,
        term_grace_ms: 100,
        stopped_limit_ms: 1_000,
        payload_bytes_max: 1,
        output_kept_bytes: 1,
        ..free
    }
}

/// A fleet, the images it comes from, and the time.
struct Sea {
    fleet: Fleet,
    zygotes: Zygotes,
    now: Instant,
    out: Vec<Action>,
}

impl Sea {
    /// All workers of the first image are ready.
    fn new(recycle_together: usize) -> Sea {
        let config = PoolConfig { recycle_together, ..config() };
        let zygotes = Zygotes::new(Duration::from_secs(5), false, config.shape);
        let mut sea = Sea { fleet: Fleet::new(config), zygotes, now: Instant::now(), out: Vec::new() };
        sea.zygotes.start(sea.now, &mut sea.out);
        sea.load(1);
        sea.keep();
        sea.let_start();
        sea
    }

    fn load(&mut self, generation: u32) {
        self.zygotes.up(generation, None, self.now, &mut self.out);
    }

    /// All images that load are up.
    fn reload(&mut self) {
        self.zygotes.reload(0, self.now, &mut self.out);
        (1..=10).for_each(|generation| self.load(generation));
    }

    fn workers(&self, state: State) -> Vec<WorkerKey> {
        self.fleet.workers.values().filter(|worker| worker.state() == state).map(|worker| worker.key).collect()
    }

    fn let_start(&mut self) {
        for key in self.workers(State::Starting) {
            self.fleet.forked(key, 1, true, self.now);
            let at = Scene { now: self.now, zygotes: &self.zygotes };
            self.fleet.worker_ready(key, at, &mut self.out);
        }
    }

    fn let_end(&mut self) {
        for key in self.workers(State::Draining) {
            let at = Scene { now: self.now, zygotes: &self.zygotes };
            self.fleet.gone(key, Some(Fate::Exited(0)), at, &mut self.out);
        }
    }

    fn weigh(&mut self, key: WorkerKey, private: u64) {
        let (memory, at_limit) = (Memory { rss: private, private: Some(private) }, private >= 100);
        let at = Scene { now: self.now, zygotes: &self.zygotes };
        self.fleet.weigh(&[Weighed { worker: key, memory, at_limit }], at, &mut self.out);
    }

    /// Does what the machine does when all has been told.
    fn keep(&mut self) {
        let at = Scene { now: self.now, zygotes: &self.zygotes };
        self.fleet.keep_turns(at, &mut self.out);
        self.fleet.let_go_unreplaced(TARGET, at, &mut self.out);
        let origin = Origin { generation: self.zygotes.generation(), slots: 1 };
        self.fleet.fork_missing(TARGET, origin, self.now, &mut self.out);
    }
}

proptest! {
    /// Whoever is to leave, for whatever reason: never fewer are ready than there should be, and no more start than are
    /// missing.
    #[test]
    fn a_replacement_is_ready_before_anybody_leaves(
        history in prop::collection::vec((0u8..6, any::<usize>()), 0..60),
        together in 1usize..3,
    ) {
        let mut sea = Sea::new(together);
        for (what, pick) in history {
            let ready = sea.workers(State::Ready);
            let key = ready[pick % ready.len()];
            match what {
                0 => sea.reload(),
                1 => sea.fleet.recycle(0, Some(pick as u32 % TARGET as u32)),
                2 => sea.weigh(key, 90 + pick as u64 % 20),
                3 => sea.fleet.worn(key, Leave::Calls),
                4 => sea.let_start(),
                _ => sea.let_end(),
            }
            sea.keep();
            prop_assert!(sea.fleet.ready() >= TARGET, "{} are ready", sea.fleet.ready());
            prop_assert!(sea.fleet.live() <= TARGET, "{} are live", sea.fleet.live());
        }
        for _ in 0..20 {
            sea.let_start();
            sea.let_end();
            sea.keep();
        }
        prop_assert_eq!(sea.fleet.generations(), BTreeSet::from([sea.zygotes.generation()]), "and in the end all have");
    }

    /// However workers are spared, stuck or ended before: after KILL to all, none is left that was not told.
    #[test]
    fn all_but_those_that_may_end_in_order_are_killed(spared in prop::collection::vec(any::<bool>(), TARGET)) {
        let mut sea = Sea::new(1);
        let keys = sea.fleet.keys();
        let idle: Vec<_> = keys.iter().zip(&spared).filter(|(_, idle)| **idle).map(|(key, _)| *key).collect();
        sea.fleet.spare_idle(&idle, sea.now + GRACE);
        sea.out.clear();
        let all = sea.fleet.kill_all("over", sea.now, &mut sea.out);
        let killed = sea.out.iter().filter(|action| matches!(action, Action::Kill { .. })).count();
        prop_assert_eq!((all, killed), (idle.is_empty(), TARGET - idle.len()));
        for key in keys {
            let at = Scene { now: sea.now + GRACE, zygotes: &sea.zygotes };
            sea.fleet.keep_time(key, at, &mut sea.out);
        }
        prop_assert_eq!(sea.workers(State::Killed).len(), TARGET, "when their time is over, they too");
    }
}

#[test]
fn a_number_is_free_when_nobody_serves_under_it() {
    let mut sea = Sea::new(3);
    sea.fleet.worn(1, Leave::Calls);
    sea.keep();
    sea.let_start();
    let numbers = |sea: &Sea| sea.fleet.workers.values().map(|worker| (worker.key, worker.nr)).collect::<Vec<_>>();
    assert_eq!(numbers(&sea), [(1, 0), (2, 1), (3, 2), (4, 0)], "the replacement has the number of the old worker");
    let at = Scene { now: sea.now, zygotes: &sea.zygotes };
    sea.fleet.gone(2, Some(Fate::Signaled(9)), at, &mut sea.out);
    sea.keep();
    assert_eq!(numbers(&sea).last(), Some(&(5, 1)), "the lowest that is free");
    assert_eq!((sea.fleet.restarts(), sea.fleet.ends()), (1, &BTreeMap::from([("signal", 1)])));
}
