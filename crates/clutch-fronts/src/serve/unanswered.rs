//! Requests whose app has not begun to answer, and when each came: where no limit ends them, the log tells of those that
//! take long, with their stacks, and they go on.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use clutch_host::Warnings;
use clutch_pool::pool::Pool;
use clutch_pool::work::WorkId;
use clutch_wire::sync::Mutex;

/// A request that runs for longer is told of, once.
const LONG: Duration = Duration::from_secs(30);

/// Interval at which they are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Most stacks that are asked for at a look, and how long for.
const ASKED_MAX: usize = 3;
const STACKS_WAIT: Duration = Duration::from_secs(2);

/// Most lines of a worker's stacks that are shown.
const STACK_LINES_MAX: usize = 60;

#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<BTreeMap<WorkId, Waiting>>);

#[derive(Debug)]
struct Waiting {
    since: Instant,
    is_told: bool,
}

impl Unanswered {
    /// It waits, since then, until this is dropped.
    pub(super) fn wait(self: &Arc<Self>, id: WorkId, since: Instant) -> Waits {
        self.0.lock().insert(id, Waiting { since, is_told: false });
        Waits { all: self.clone(), id }
    }

    /// Those that take long and were not told of, with the time; they count as told.
    fn take_long(&self, now: Instant) -> Vec<(WorkId, Duration)> {
        let mut all = self.0.lock();
        let long = all.iter_mut().filter(|(_, one)| !one.is_told && now.saturating_duration_since(one.since) >= LONG);
        long.map(|(id, one)| {
            one.is_told = true;
            (*id, now.saturating_duration_since(one.since))
        })
        .collect()
    }
}

pub(super) struct Waits {
    all: Arc<Unanswered>,
    id: WorkId,
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.id);
    }
}

/// Tells of those that take long, for as long as the front is there. `front`: its name.
pub(super) async fn watch(front: String, unanswered: Weak<Unanswered>, pool: Arc<Pool>, warnings: Arc<Warnings>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(all) = unanswered.upgrade() else { return };
        let long = all.take_long(Instant::now());
        drop(all);
        for (nr, (id, time)) in long.into_iter().enumerate() {
            let shown = pool.clone();
            let stacks = move || shown.stacks_by_nr(None, Some(id), STACKS_WAIT);
            let asked =
                if nr < ASKED_MAX { tokio::task::spawn_blocking(stacks).await.unwrap_or_default() } else { Vec::new() };
            let running = pool.running().into_iter().flat_map(|(_, running)| running).find(|running| running.id == id);
            let what = running.map_or_else(|| "a request".to_owned(), |running| running.what);
            warnings.tell("long", || words(&front, &pool.config.name, &what, time, &asked));
        }
    }
}

fn words(front: &str, pool: &str, what: &str, time: Duration, stacks: &[(u32, String)]) -> String {
    let stacks = stacks.iter().map(|(nr, stacks)| format!("\nworker {pool}/{nr}:\n{}", cut(stacks, pool, *nr)));
    format!(
        "fronts.{front}: {what} has run for {:.0} s and has not begun its response; it goes on, since no limit is set \
         (-t 60 ends such requests with 504){}",
        time.as_secs_f64(),
        stacks.collect::<String>(),
    )
}

/// The first lines: a worker may run hundreds of requests, all waiting at the same place.
fn cut(stacks: &str, pool: &str, nr: u32) -> String {
    let stacks = stacks.trim_end();
    match stacks.match_indices('\n').nth(STACK_LINES_MAX) {
        None => stacks.to_owned(),
        Some((at, _)) => format!("{}\n… (clutch stack {pool}/{nr} shows all)", &stacks[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stacks_are_cut() {
        let lines = |count| (0..count).map(|nr| format!("line {nr}\n")).collect::<String>();
        assert_eq!(cut(&lines(STACK_LINES_MAX), "web", 0).lines().count(), STACK_LINES_MAX);
        let long = cut(&lines(1000), "web", 0);
        assert!(long.ends_with("… (clutch stack web/0 shows all)") && long.lines().count() < STACK_LINES_MAX + 3);
    }

    #[test]
    fn each_that_takes_long_is_told_of_once_and_none_that_was_answered() {
        let (all, now) = (Arc::<Unanswered>::default(), Instant::now());
        let (first, second) = (all.wait(1, now), all.wait(2, now));
        assert!(all.take_long(now + LONG / 2).is_empty());
        drop(second);
        let told: Vec<_> = all.take_long(now + LONG * 2).into_iter().map(|(id, _)| id).collect();
        assert_eq!(told, [1]);
        assert!(all.take_long(now + LONG * 3).is_empty());
        drop(first);
        assert!(all.0.lock().is_empty());
    }
}
