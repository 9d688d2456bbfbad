//! Turns of those who write one file: nobody waits for long because others come again and again.
//!
//! SQLite has one writer at a time, and no queue: whoever finds the file locked looks again after ever longer pauses, so who
//! comes back at once is nearly always first. Here, who has waited for [`EAGER`] takes a ticket of a queue, and all others look
//! at that before they try. So long as nobody has waited for long there is no queue, which would cost a switch of processes
//! for each write.
//!
//! A ticket is a lock on one byte far beyond the end of the database file (an open file description lock, see locks.rs): it
//! ends with its holder, however that ends, and needs no file of its own. The queue is a courtesy, and SQLite's own lock
//! alone protects the file: programs that do not know the queue may go first, and one that stands still in it is passed by.

use std::cell::OnceCell;
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

/// A holder of the first ticket who has had it for so long may stand still, and is passed by. Longer than any one call writes.
const COURTESY: Duration = Duration::from_secs(2);

/// The bytes of the tickets, from the first on: SQLite locks none above 2³¹, and no file is as large.
const TICKETS: Range<u64> = 1 << 62..i64::MAX as u64;

/// What to do for a turn.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Try to lock the file: for so long, in SQLite's own way.
    Try(Duration),
    Take,
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

    /// `before`: the first ticket that another has, before one's own where there is one.
    fn step(&mut self, before: Option<u64>, at_most: Duration, now: Instant) -> Step {
        let waited = now.saturating_duration_since(self.since);
        self.before = before.map(|ticket| match self.before {
            Some((seen, since)) if seen == ticket => (ticket, since),
            _ => (ticket, now),
        });
        let is_stuck = self.stuck(now).is_some();
        if !self.is_tried && (before.is_none() || is_stuck) {
            self.is_tried = true;
            return Step::Try(if self.has_ticket { Duration::ZERO } else { EAGER.saturating_sub(waited) });
        }
        self.is_tried = false;
        if waited >= at_most {
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

    /// The ticket before one's own whose holder has had it for too long.
    fn stuck(&self, now: Instant) -> Option<u64> {
        self.before.filter(|(_, since)| now.saturating_duration_since(*since) >= COURTESY).map(|(ticket, _)| ticket)
    }
}

/// One connection's part in the queue of its file.
#[derive(Default)]
pub struct Turns {
    /// Of one's own, from the first turn on: locks of one open file do not keep each other out. None within: it takes no
    /// part.
    file: OnceCell<Option<Tracked>>,
    /// A ticket whose holder was passed by last.
    stuck: Option<u64>,
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
        let (file, mut stuck) = (self.file(path), self.stuck);
        let waited = loop {
            let before = before(file, ticket.as_ref(), &mut stuck);
            match wait.step(before, at_most, Instant::now()) {
                Step::Try(time) => {
                    if lock(time)? {
                        break None;
                    }
                }
                Step::Take => ticket = file.and_then(take),
                Step::Pause(time) => std::thread::sleep(time),
                Step::GiveUp => break Some(wait.since.elapsed()),
            }
            stuck = wait.stuck(Instant::now()).or(stuck);
        };
        drop(ticket);
        self.stuck = stuck;
        Ok(waited)
    }
}

/// The first ticket that another has, before one's own where there is one; that of a holder who is stuck does not count.
fn before(file: Option<&Tracked>, own: Option<&Ticket<'_>>, stuck: &mut Option<u64>) -> Option<u64> {
    let (file, end) = (file?, own.map_or(TICKETS.end, |ticket| ticket.at));
    let first = first_taken(file, TICKETS.start..end);
    if first.is_some() && first == *stuck {
        return first_taken(file, first? + 1..end);
    }
    *stuck = None;
    first
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
        assert_eq!(waiting.step(Some(7), 2_000), Step::Try(Duration::ZERO));
        assert!(matches!(waiting.step(Some(7), 2_000), Step::Pause(_)));
        assert!(matches!(waiting.step(Some(9), 2_001), Step::Pause(_)), "the next one moves");
    }

    /// Two who wait, one behind the other, and a third that comes when the file is free: the first is first.
    #[test]
    fn tickets_are_in_order_and_end_with_their_holders() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [first, second, mut third] = [Turns::default(), Turns::default(), Turns::default()];
        let seen = |of: &Turns, ticket: Option<&Ticket<'_>>| before(of.file(file.path()), ticket, &mut None);
        let one = take(first.file(file.path()).unwrap()).unwrap();
        let two = take(second.file(file.path()).unwrap()).unwrap();
        assert_eq!((one.at, two.at), (TICKETS.start, TICKETS.start + 1));
        assert_eq!((seen(&first, Some(&one)), seen(&second, Some(&two))), (None, Some(one.at)));
        assert_eq!(seen(&third, None), Some(one.at), "whatever the kernel tells first");
        assert_eq!(
            before(third.file(file.path()), None, &mut Some(one.at)),
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
