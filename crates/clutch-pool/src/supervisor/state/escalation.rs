//! Ends one worker that does not end by itself: TERM, then KILL, each step with its limit.

use std::time::Instant;

/// Why a worker is ended that was told to end, or to stop its work, and has not.
pub(super) const GRACE_OVER: &str = "it was told to end, and its grace has passed";
const LEAVE_OVER: &str = "the pool was stopped and it took too long to end in order";

/// Progress of the end of one worker. Each step but the last has its limit, and there is no way back.
#[derive(Clone, Debug)]
pub(super) enum Escalation {
    /// The worker may end in order.
    InOrder {
        /// Work in it was told to stop and has not: the reason, where the worker is ended.
        stuck: Option<String>,
        /// TERM follows then.
        term_at: Option<Instant>,
        /// Had nothing to do at a stop without a grace: it may end in order until then, and KILL follows.
        spared_until: Option<Instant>,
    },
    /// Was told with TERM: KILL follows.
    Termed {
        cause: String,
        kill_at: Instant,
        /// A stop without a grace leaves it that time.
        spared: bool,
    },
    Killed {
        cause: String,
    },
}

/// A step that is due, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Term(&'static str),
    Kill(&'static str),
}

impl Default for Escalation {
    fn default() -> Escalation {
        Escalation::InOrder { stuck: None, term_at: None, spared_until: None }
    }
}

impl Escalation {
    /// Why Clutch ends it.
    pub(super) fn cause(&self) -> Option<&str> {
        match self {
            Escalation::InOrder { .. } => None,
            Escalation::Termed { cause, .. } | Escalation::Killed { cause } => Some(cause),
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        matches!(self, Escalation::InOrder { stuck: Some(_), .. })
    }

    pub(super) fn is_termed(&self) -> bool {
        matches!(self, Escalation::Termed { .. })
    }

    pub(super) fn is_spared(&self) -> bool {
        matches!(self, Escalation::InOrder { spared_until: Some(_), .. } | Escalation::Termed { spared: true, .. })
    }

    pub(super) fn note_stuck(&mut self, cause: String) {
        if let Escalation::InOrder { stuck, .. } = self {
            stuck.get_or_insert(cause);
        }
    }

    /// TERM follows then, or earlier where that was said before.
    pub(super) fn end_by(&mut self, at: Instant) {
        if let Escalation::InOrder { term_at, .. } = self {
            *term_at = Some(term_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Moves the time of TERM, where one was set.
    pub(super) fn put_off(&mut self, at: Instant) {
        if let Escalation::InOrder { term_at: Some(term_at), .. } = self {
            *term_at = at;
        }
    }

    /// None: not spared any more. A limit only becomes shorter.
    pub(super) fn spare_until(&mut self, limit: Option<Instant>) {
        match self {
            Escalation::InOrder { spared_until, .. } => {
                *spared_until = limit.map(|limit| spared_until.map_or(limit, |before| before.min(limit)));
            }
            Escalation::Termed { kill_at, spared, .. } => {
                *spared = limit.is_some();
                *kill_at = limit.map_or(*kill_at, |limit| limit.min(*kill_at));
            }
            Escalation::Killed { .. } => {}
        }
    }

    /// Told again, it only has less time. Returns whether it was not told before.
    pub(super) fn term(&mut self, cause: &str, kill_at: Instant) -> bool {
        if let Escalation::Termed { kill_at: before, .. } = self {
            *before = kill_at.min(*before);
            return false;
        }
        *self = Escalation::Termed { cause: self.take_cause(cause), kill_at, spared: false };
        true
    }

    pub(super) fn kill(&mut self, cause: &str) {
        *self = Escalation::Killed { cause: self.take_cause(cause) };
    }

    /// Takes the reason that the worker is ended for already, or else this one.
    fn take_cause(&mut self, cause: &str) -> String {
        let known = match self {
            Escalation::InOrder { stuck, .. } => stuck.take(),
            Escalation::Termed { cause, .. } | Escalation::Killed { cause } => Some(std::mem::take(cause)),
        };
        known.unwrap_or_else(|| cause.to_owned())
    }

    /// `debugged`: somebody thinks at its prompt, and its grace does not end meanwhile.
    pub(super) fn due(&self, now: Instant, debugged: bool) -> Option<Due> {
        let is_over = |limit: &Option<Instant>| limit.is_some_and(|at| at <= now);
        match self {
            Escalation::Termed { kill_at, .. } if *kill_at <= now => Some(Due::Kill(GRACE_OVER)),
            Escalation::InOrder { spared_until, .. } if is_over(spared_until) => Some(Due::Kill(LEAVE_OVER)),
            Escalation::InOrder { term_at, .. } if is_over(term_at) && !debugged => Some(Due::Term(GRACE_OVER)),
            _ => None,
        }
    }

    pub(super) fn next_wake(&self, debugged: bool) -> Option<Instant> {
        match self {
            Escalation::InOrder { term_at, spared_until, .. } => {
                term_at.filter(|_| !debugged).into_iter().chain(*spared_until).min()
            }
            Escalation::Termed { kill_at, .. } => Some(*kill_at),
            Escalation::Killed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const STEP: Duration = Duration::from_secs(1);

    #[test]
    fn each_step_follows_the_one_before() {
        let now = Instant::now();
        let mut escalation = Escalation::default();
        assert_eq!((escalation.next_wake(false), escalation.cause()), (None, None));
        escalation.end_by(now + 2 * STEP);
        escalation.end_by(now + STEP);
        escalation.end_by(now + 3 * STEP);
        assert_eq!(escalation.next_wake(false), Some(now + STEP), "the earliest limit");
        assert_eq!(escalation.due(now + STEP, false), Some(Due::Term(GRACE_OVER)));
        escalation.term("the reason", now + 2 * STEP);
        assert_eq!((escalation.due(now + STEP, false), escalation.next_wake(false)), (None, Some(now + 2 * STEP)));
        assert_eq!(escalation.due(now + 2 * STEP, false), Some(Due::Kill(GRACE_OVER)));
        escalation.kill("another reason");
        escalation.end_by(now);
        escalation.spare_until(Some(now));
        assert_eq!((escalation.due(now + 9 * STEP, false), escalation.next_wake(false)), (None, None));
        assert_eq!(escalation.cause(), Some("the reason"));
    }

    #[test]
    fn a_debugger_and_an_idle_worker_have_their_time() {
        let now = Instant::now();
        let mut escalation = Escalation::default();
        escalation.put_off(now + STEP);
        assert_eq!(escalation.next_wake(false), None, "nothing was to end");
        escalation.end_by(now);
        assert_eq!((escalation.due(now, true), escalation.next_wake(true)), (None, None));
        escalation.put_off(now + 2 * STEP);
        escalation.spare_until(Some(now + STEP));
        escalation.spare_until(Some(now + 5 * STEP));
        assert_eq!(escalation.due(now + STEP, true), Some(Due::Kill(LEAVE_OVER)));
        escalation.spare_until(None);
        assert!(!escalation.is_spared() && escalation.due(now + STEP, false).is_none());
    }

    #[test]
    fn work_that_does_not_stop_is_the_reason() {
        let mut escalation = Escalation::default();
        escalation.note_stuck("the first call".to_owned());
        escalation.note_stuck("the second call".to_owned());
        assert!(escalation.is_stuck());
        escalation.kill(GRACE_OVER);
        assert_eq!(escalation.cause(), Some("the first call"));
    }
}
