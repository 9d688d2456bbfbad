//! Queues that nobody seems to serve: pure.

use std::collections::HashSet;

use crate::fetcher::Lanes;
use crate::job::Millis;
use crate::store::QueueStats;

/// Wait of a queue's first job before it is reported.
const WAIT_MIN: Millis = 60_000;

/// Most queues that are told of.
const TOLD_MAX: usize = 1000;

/// Tells of each queue once.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    told: HashSet<String>,
}

impl Unserved {
    /// Returns queues outside of these lanes whose first job has waited for long, with none running; with that time, in
    /// seconds.
    pub(super) fn found<'a>(
        &mut self,
        queues: &'a [QueueStats],
        lanes: &Lanes,
        now: Millis,
    ) -> Vec<(&'a QueueStats, u64)> {
        let is_served = |queue: &QueueStats| lanes.queues.iter().any(|(name, _)| *name == queue.name);
        let idle = queues.iter().filter(|queue| !queue.is_paused && queue.running == 0 && !is_served(queue));
        let waiting = idle.filter_map(|queue| Some((queue, now - queue.oldest_at?)));
        let long = waiting.filter(|(_, waited)| *waited >= WAIT_MIN);
        long.filter(|(queue, _)| self.told.len() < TOLD_MAX && self.told.insert(queue.name.clone()))
            .map(|(queue, waited)| (queue, u64::try_from(waited / 1000).unwrap_or_default()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_000_000;

    fn queue(name: &str, waited: Millis) -> QueueStats {
        QueueStats { name: name.to_owned(), available: 1, oldest_at: Some(NOW - waited), ..QueueStats::default() }
    }

    fn names(unserved: &mut Unserved, queues: &[QueueStats]) -> Vec<String> {
        let lanes = Lanes { queues: vec![("default".to_owned(), 1)], strict: false };
        unserved.found(queues, &lanes, NOW).into_iter().map(|(queue, _)| queue.name.clone()).collect()
    }

    #[test]
    fn a_queue_is_told_of_once() {
        let mut unserved = Unserved::default();
        let queues = [queue("default", 120_000), queue("mail", 61_000), queue("new", 59_000)];
        assert_eq!(names(&mut unserved, &queues), ["mail"]);
        assert!(names(&mut unserved, &queues).is_empty());
    }

    #[test]
    fn who_is_paused_or_served_elsewhere_is_not_told_of() {
        let paused = QueueStats { is_paused: true, ..queue("paused", 61_000) };
        let runs = QueueStats { running: 1, ..queue("runs", 61_000) };
        let empty = QueueStats { oldest_at: None, ..queue("empty", 0) };
        assert!(names(&mut Unserved::default(), &[paused, runs, empty]).is_empty());
    }
}
