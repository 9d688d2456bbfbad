//! Turns of those who write one file: nobody waits for long because others come again and again.
//!
//! SQLite has one writer at a time, and no queue: whoever finds the file locked looks again after ever longer pauses, so who
//! comes back at once is nearly always first. Here, who has waited for [`EAGER`] takes a ticket of a queue, and all others look
//! at that before they try. So long as nobody has waited for long there is no queue, which would cost a switch of processes
//! for each write.
//!
//! A ticket is a lock on one byte far beyond the end of the database file (an open file description lock, see locks.rs): it
//! ends with its holder, however that ends, and needs no file of its own. The queue is a courtesy, and SQLite's own lock
//! alone protects the file: programs that do not know the queue may go first, and those that stand still in it are passed by,
//! however many they are: one that is suspended takes what it holds along, and often there are several.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use clutch_wire::forked::Tracked;

use super::locks::{any_lock, try_lock, unlock};

/// Who has waited for so long takes a ticket.
const EAGER: Duration = Duration::from_millis(100);

/// Pause of the first in the queue between two tries; of the others between two looks, by how long they have waited.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// A holder of the first ticket who has had it for so long may stand still, and is passed by, with all who are behind it and
/// could have done so themselves. Longer than any one call writes.
const COURTESY: Duration = Duration::from_secs(2);

/// The bytes of the tickets, from the first on: SQLite locks none above 2³¹, and no file is as large.
const TICKETS: Range<u64> = 1 << 62..i64::MAX as u64;

/// What to do for a turn.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Try to lock the file: for so long, in SQLite's own way.
    Try(Duration),
    Take,
    /// Wait no more for those who have tickets now.
    PassBy,
    Pause(Duration),
    GiveUp,
}

/// The wait for one turn: pure.
struct Wait {
    since: Instant,
    has_ticket: bool,
    /// The ticket before one's own that was seen last, and since when.
    before: Option<(u64, Instant)>,
    is_tried: bool,
}

impl Wait {
    fn new(now: Instant) -> Wait {
        Wait { since: now, has_ticket: false, before: None, is_tried: false }
    }

    /// `before`: the first ticket that another has, before one's own where there is one; none of those that were passed by.
    fn step(&mut self, before: Option<u64>, at_most: Duration, now: Instant) -> Step {
        let waited = now.saturating_duration_since(self.since);
        self.before = before.map(|ticket| match self.before {
            Some((seen, since)) if seen == ticket => (ticket, since),
            _ => (ticket, now),
        });
        if self.before.is_some_and(|(_, since)| now.saturating_duration_since(since) >= COURTESY) {
            return Step::PassBy;
        }
        // Whoever was suspended meanwhile, or was never first, tries once at least.
        let is_last = waited >= at_most;
        if !self.is_tried && (before.is_none() || is_last) {
            self.is_tried = true;
            return Step::Try(if self.has_ticket { Duration::ZERO } else { EAGER.saturating_sub(waited) });
        }
        self.is_tried = false;
        if is_last {
            return Step::GiveUp;
        }
        if !self.has_ticket && waited >= EAGER {
            self.has_ticket = true;
            return Step::Take;
        }
        Step::Pause(match before {
            None => FIRST_PAUSE,
            Some(_) => (waited / 32).clamp(PAUSES[0], PAUSES[1]),
        })
    }
}

/// One connection's part in the queue of its file.
#[derive(Default)]
pub struct Turns {
    /// Of one's own, from the first turn on: locks of one open file do not keep each other out. None within: it takes no
    /// part.
    file: OnceCell<Option<Tracked>>,
    /// Tickets whose holders were passed by, as long as they have them.
    passed: BTreeSet<u64>,
}

/// A ticket in the queue, until it is dropped.
struct Ticket<'a> {
    file: &'a Tracked,
    at: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        unlock(self.file, self.at);
    }
}

impl Turns {
    /// None: it cannot be opened.
    fn file(&self, path: &Path) -> Option<&Tracked> {
        let open = || {
            let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
            Some(Tracked::new(OwnedFd::from(file)))
        };
        self.file.get_or_init(open).as_ref()
    }

    /// Waits for the turn to write to the file at this path, always the same, for `at_most` so long. `lock` tries to lock it
    /// for the given time, and returns whether it has. Returns how long it has waited in vain.
    pub fn wait<E>(
        &mut self,
        path: &Path,
        at_most: Duration,
        mut lock: impl FnMut(Duration) -> Result<bool, E>,
    ) -> Result<Option<Duration>, E> {
        let mut wait = Wait::new(Instant::now());
        let mut ticket: Option<Ticket<'_>> = None;
        let mut passed = std::mem::take(&mut self.passed);
        let file = self.file(path);
        let waited = loop {
            let before = before(file, ticket.as_ref(), &mut passed);
            match wait.step(before, at_most, Instant::now()) {
                Step::Try(time) => {
                    if lock(time)? {
                        break None;
                    }
                }
                Step::Take => ticket = file.and_then(take),
                Step::PassBy => passed.extend(file.into_iter().flat_map(|file| tickets(file, ticket.as_ref()))),
                Step::Pause(time) => std::thread::sleep(time),
                Step::GiveUp => break Some(wait.since.elapsed()),
            }
        };
        drop(ticket);
        self.passed = passed;
        Ok(waited)
    }
}

/// The first ticket that another has, before one's own where there is one, of those that were not passed by. What of these is
/// given back is forgotten: others may take it.
fn before(file: Option<&Tracked>, own: Option<&Ticket<'_>>, passed: &mut BTreeSet<u64>) -> Option<u64> {
    let mut there = BTreeSet::new();
    let first = tickets(file?, own).find(|ticket| {
        let is_passed = passed.contains(ticket);
        there.extend(is_passed.then_some(*ticket));
        !is_passed
    });
    passed.retain(|ticket| there.contains(ticket) || first.is_some_and(|first| *ticket > first));
    first
}

/// Those of others, before one's own where there is one, in their order.
fn tickets(file: &Tracked, own: Option<&Ticket<'_>>) -> impl Iterator<Item = u64> {
    let (mut start, end) = (TICKETS.start, own.map_or(TICKETS.end, |ticket| ticket.at));
    std::iter::from_fn(move || {
        let ticket = first_taken(file, start..end)?;
        start = ticket + 1;
        Some(ticket)
    })
}

/// The kernel tells any of several.
fn first_taken(file: &Tracked, mut within: Range<u64>) -> Option<u64> {
    let mut first = None;
    while !within.is_empty()
        && let Some(found) = any_lock(file, within.clone())
    {
        first = Some(found);
        within.end = found;
    }
    first
}

/// Behind all others.
fn take(file: &Tracked) -> Option<Ticket<'_>> {
    let mut at = TICKETS.start;
    loop {
        while let Some(taken) = any_lock(file, at..TICKETS.end) {
            at = taken + 1;
        }
        match try_lock(file, at) {
            Ok(true) => return Some(Ticket { file, at }),
            // Another was first.
            Ok(false) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
pub(super) fn is_taken(file: &std::fs::File, nr: u64) -> bool {
    any_lock(file, TICKETS.start + nr..TICKETS.start + nr + 1).is_some()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc;

    use super::*;

    const AT_MOST: Duration = Duration::from_secs(5);

    struct Waiting {
        wait: Wait,
        start: Instant,
    }

    impl Waiting {
        fn new() -> Waiting {
            let start = Instant::now();
            Waiting { wait: Wait::new(start), start }
        }

        fn step(&mut self, before: Option<u64>, at_ms: u64) -> Step {
            self.wait.step(before, AT_MOST, self.start + Duration::from_millis(at_ms))
        }
    }

    #[test]
    fn where_nobody_waits_sqlite_itself_is_asked_and_later_a_ticket_taken() {
        let mut waiting = Waiting::new();
        assert_eq!(waiting.step(None, 0), Step::Try(EAGER));
        assert_eq!(waiting.step(None, 100), Step::Take);
        for at_ms in [100, 200, 4_999] {
            assert_eq!(waiting.step(None, at_ms), Step::Try(Duration::ZERO));
            assert_eq!(waiting.step(None, at_ms), Step::Pause(FIRST_PAUSE));
        }
        assert_eq!(waiting.step(None, 5_000), Step::Try(Duration::ZERO), "a last try");
        assert_eq!(waiting.step(None, 5_000), Step::GiveUp);
    }

    #[test]
    fn who_finds_a_queue_tries_nothing_before_its_turn() {
        let mut waiting = Waiting::new();
        assert_eq!(waiting.step(Some(7), 0), Step::Pause(PAUSES[0]));
        assert_eq!(waiting.step(Some(7), 100), Step::Take);
        assert_eq!(waiting.step(Some(7), 100), Step::Pause(Duration::from_micros(3_125)));
        assert_eq!(waiting.step(Some(8), 900), Step::Pause(PAUSES[1]));
        assert_eq!(waiting.step(None, 901), Step::Try(Duration::ZERO));
    }

    #[test]
    fn who_stands_still_at_the_head_is_passed_by() {
        let mut waiting = Waiting::new();
        assert_eq!(waiting.step(Some(7), 0), Step::Pause(PAUSES[0]));
        assert_eq!(waiting.step(Some(7), 1_999), Step::Take);
        assert!(matches!(waiting.step(Some(7), 1_999), Step::Pause(_)));
        assert_eq!(waiting.step(Some(7), 2_000), Step::PassBy);
        assert_eq!(waiting.step(None, 2_000), Step::Try(Duration::ZERO));
        assert!(matches!(waiting.step(Some(9), 2_001), Step::Pause(_)), "one that came later");
    }

    #[test]
    fn nobody_gives_up_without_a_try() {
        let mut waiting = Waiting::new();
        assert_eq!(waiting.step(Some(7), 0), Step::Pause(PAUSES[0]));
        assert_eq!(waiting.step(Some(8), 20_000), Step::Try(Duration::ZERO), "it was suspended, or never first");
        assert_eq!(waiting.step(Some(8), 20_000), Step::GiveUp);
    }

    /// As when all processes of a container are suspended.
    #[test]
    fn all_who_stand_still_are_passed_by_at_once_and_stay_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let holders = [Turns::default(), Turns::default(), Turns::default()];
        let mut held: Vec<_> = holders.iter().map(|holder| take(holder.file(file.path()).unwrap()).unwrap()).collect();
        let mut other = Turns::default();
        let mut turn = |at_most| {
            let began = Instant::now();
            let tried = other.wait(file.path(), at_most, |_| Ok::<_, Infallible>(true));
            (tried, began.elapsed() >= COURTESY, other.passed.len())
        };
        assert_eq!(turn(AT_MOST), (Ok(None), true, 3));
        assert_eq!(turn(AT_MOST), (Ok(None), false, 3), "they are known");
        held.remove(1);
        assert_eq!(turn(AT_MOST), (Ok(None), false, 2), "who gives a ticket back may have another");
        held.clear();
        assert_eq!(turn(AT_MOST), (Ok(None), false, 0));
    }

    /// Two who wait, one behind the other, and a third that comes when the file is free: the first is first.
    #[test]
    fn tickets_are_in_order_and_end_with_their_holders() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [first, second, mut third] = [Turns::default(), Turns::default(), Turns::default()];
        let seen = |of: &Turns, ticket: Option<&Ticket<'_>>| before(of.file(file.path()), ticket, &mut BTreeSet::new());
        let one = take(first.file(file.path()).unwrap()).unwrap();
        let two = take(second.file(file.path()).unwrap()).unwrap();
        assert_eq!((one.at, two.at), (TICKETS.start, TICKETS.start + 1));
        assert_eq!((seen(&first, Some(&one)), seen(&second, Some(&two))), (None, Some(one.at)));
        assert_eq!(seen(&third, None), Some(one.at), "whatever the kernel tells first");
        assert_eq!(
            before(third.file(file.path()), None, &mut BTreeSet::from([one.at])),
            Some(two.at),
            "who is stuck does not count"
        );
        drop(one);
        assert_eq!((seen(&second, Some(&two)), seen(&third, None)), (None, Some(two.at)));
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let waited = third.wait(file.path(), Duration::from_secs(60), |_| {
                    tell.send("third").unwrap();
                    Ok::<_, Infallible>(true)
                });
                assert_eq!(waited, Ok(None));
            });
            let third_ticket = || any_lock(second.file(file.path()).unwrap(), two.at + 1..TICKETS.end);
            while third_ticket().is_none() {
                std::thread::yield_now();
            }
            tell.send("second").unwrap();
            drop(two);
        });
        assert_eq!(told.iter().take(2).collect::<Vec<_>>(), ["second", "third"]);
    }
}
