//! The life of a worker's process: if it is there, and when it is over for us without a word of its zygote's.

use std::time::{Duration, Instant};

/// Maximum time for the exit status to arrive of a worker that is dead, or whose link has ended.
pub const STATUS_WAIT: Duration = Duration::from_millis(500);
/// Maximum time for a worker that was killed to die: it is stuck in the kernel and runs no code of the user's any more.
const DEATH_WAIT: Duration = Duration::from_secs(10);

/// A worker's process and its link, whose end tells of the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessLife {
    /// The zygote has not told that it is there. `greeted`: the worker's own word that it is ready came first.
    Unborn { greeted: bool },
    /// `watched`: the end of the process is told.
    Alive { pid: i32, watched: bool },
    /// The link has ended, and the process is to follow.
    Unlinked { pid: Option<i32>, watched: bool, since: Instant },
    /// The process is dead; its zygote is to tell how it ended.
    Dead { pid: i32, unlinked: bool, since: Instant },
}

impl Default for ProcessLife {
    fn default() -> ProcessLife {
        ProcessLife::Unborn { greeted: false }
    }
}

impl ProcessLife {
    pub(super) fn pid(self) -> Option<i32> {
        match self {
            ProcessLife::Unborn { .. } => None,
            ProcessLife::Alive { pid, .. } | ProcessLife::Dead { pid, .. } => Some(pid),
            ProcessLife::Unlinked { pid, .. } => pid,
        }
    }

    pub(super) fn is_unlinked(self) -> bool {
        matches!(self, ProcessLife::Unlinked { .. } | ProcessLife::Dead { unlinked: true, .. })
    }

    /// Returns whether nothing but its zygote tells of its end.
    pub(super) fn needs_zygote(self) -> bool {
        match self {
            ProcessLife::Unborn { .. } => true,
            ProcessLife::Alive { watched, .. } | ProcessLife::Unlinked { watched, .. } => !watched,
            ProcessLife::Dead { .. } => false,
        }
    }

    /// The worker says that it is ready. Returns whether that was too early.
    pub(super) fn greet(&mut self) -> bool {
        match self {
            ProcessLife::Unborn { greeted } => {
                *greeted = true;
                true
            }
            _ => false,
        }
    }

    /// Returns whether the worker has said before that it is ready.
    pub(super) fn forked(&mut self, pid: i32, watched: bool) -> bool {
        match *self {
            ProcessLife::Unborn { greeted } => {
                *self = ProcessLife::Alive { pid, watched };
                greeted
            }
            ProcessLife::Unlinked { since, .. } => {
                *self = ProcessLife::Unlinked { pid: Some(pid), watched, since };
                false
            }
            ProcessLife::Alive { .. } | ProcessLife::Dead { .. } => false,
        }
    }

    pub(super) fn unlink(&mut self, now: Instant) {
        *self = match *self {
            ProcessLife::Unborn { .. } => ProcessLife::Unlinked { pid: None, watched: false, since: now },
            ProcessLife::Alive { pid, watched } => ProcessLife::Unlinked { pid: Some(pid), watched, since: now },
            ProcessLife::Dead { pid, since, .. } => ProcessLife::Dead { pid, unlinked: true, since },
            unlinked @ ProcessLife::Unlinked { .. } => unlinked,
        }
    }

    pub(super) fn die(&mut self, now: Instant) {
        let unlinked = self.is_unlinked();
        match *self {
            ProcessLife::Alive { pid, watched: true } | ProcessLife::Unlinked { pid: Some(pid), watched: true, .. } => {
                *self = ProcessLife::Dead { pid, unlinked, since: now };
            }
            _ => {}
        }
    }

    /// When the worker is gone for us, though nobody has told how it ended; `told`: its zygote is there and may tell.
    pub(super) fn over_at(self, told: bool) -> Option<Instant> {
        let wait = if told { STATUS_WAIT } else { Duration::ZERO };
        match self {
            ProcessLife::Unborn { .. } | ProcessLife::Alive { .. } => None,
            ProcessLife::Unlinked { watched: true, since, .. } => Some(since + DEATH_WAIT),
            ProcessLife::Unlinked { since, .. } | ProcessLife::Dead { since, .. } => Some(since + wait),
        }
    }
}

/// The last that a worker has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum LastWords {
    #[default]
    None,
    /// The last it wrote, of one that died before it was ready.
    Output(String),
    /// Why it could not start, or what was wrong with its link.
    Reason(String),
}

impl LastWords {
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            LastWords::Reason(reason) => Some(reason),
            _ => None,
        }
    }

    pub(super) fn output(&self) -> Option<&str> {
        match self {
            LastWords::Output(text) => Some(text),
            _ => None,
        }
    }

    /// A reason says more.
    pub(super) fn note_output(&mut self, text: String) {
        if self.reason().is_none() {
            *self = LastWords::Output(text);
        }
    }

    /// A reason that was known before is the better one.
    pub(super) fn note_broken(&mut self, reason: Option<String>) {
        if let Some(reason) = reason.filter(|_| self.reason().is_none()) {
            *self = LastWords::Reason(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_process_is_over_as_soon_as_nobody_can_tell_more_of_it() {
        let now = Instant::now();
        let over = |life: ProcessLife| [life.over_at(true), life.over_at(false)].map(|at| at.map(|at| at - now));
        assert_eq!(over(ProcessLife::Alive { pid: 1, watched: true }), [None, None]);
        let dead = ProcessLife::Dead { pid: 1, unlinked: false, since: now };
        assert_eq!(over(dead), [Some(STATUS_WAIT), Some(Duration::ZERO)]);
        let unlinked = |watched| ProcessLife::Unlinked { pid: Some(1), watched, since: now };
        assert_eq!(over(unlinked(true)), [Some(DEATH_WAIT); 2], "its death is told");
        assert_eq!(over(unlinked(false)), [Some(STATUS_WAIT), Some(Duration::ZERO)]);
    }

    #[test]
    fn a_reason_is_kept_and_output_is_not() {
        let mut words = LastWords::default();
        words.note_output("Traceback".to_owned());
        words.note_broken(None);
        assert_eq!((words.output(), words.reason()), (Some("Traceback"), None));
        words.note_broken(Some("its link broke".to_owned()));
        words.note_output("more".to_owned());
        words.note_broken(Some("again".to_owned()));
        assert_eq!((words.output(), words.reason()), (None, Some("its link broke")));
    }

    proptest! {
        /// Whatever is told in whatever order: each of it stays so, and only what is known to have ended is over.
        #[test]
        fn what_was_told_of_a_process_is_not_forgotten(
            told in prop::collection::vec(0u8..4, 0..8),
            watched in any::<bool>(),
        ) {
            let now = Instant::now();
            let (mut life, mut is_forked, mut is_unlinked, mut is_dead) = (ProcessLife::default(), false, false, false);
            for what in told {
                match what {
                    0 => drop(life.greet()),
                    1 => {
                        life.forked(1, watched);
                        is_forked = true;
                    }
                    2 => {
                        life.unlink(now);
                        is_unlinked = true;
                    }
                    _ => {
                        life.die(now);
                        is_dead |= is_forked && watched;
                    }
                }
                prop_assert_eq!(life.pid(), is_forked.then_some(1));
                prop_assert_eq!(life.is_unlinked(), is_unlinked);
                prop_assert_eq!(life.over_at(true).is_some(), is_unlinked || is_dead);
                prop_assert_eq!(life.needs_zygote(), !(is_forked && watched));
            }
        }
    }
}
