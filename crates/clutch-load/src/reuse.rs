//! Whether a request that its connection has cost is sent once more. Pure.
//!
//! A server may close a connection that it keeps alive at any time, without a word: after an idle timeout, after so many
//! requests, when a worker is replaced. A request that is on its way then is lost, and it is the client that sends it
//! again, if that can do no harm (RFC 9112, 9.3.1; RFC 9110, 9.2.2). A retry is the first request of its connection, so
//! it is never retried itself.

use super::connection::Failed;

/// What a connection has carried since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reuse {
    has_answered: bool,
    /// Bytes of the answer to the last request have come.
    is_heard: bool,
}

impl Reuse {
    /// A request is sent.
    pub fn sends(&mut self) {
        self.is_heard = false;
    }

    /// Bytes of its answer came.
    pub fn hears(&mut self) {
        self.is_heard = true;
    }

    /// Its answer is whole.
    pub fn answered(&mut self) {
        self.has_answered = true;
    }

    /// Whether a server that kept the connection alive has closed it while it was idle.
    pub fn is_left(self, failed: &Failed) -> bool {
        self.has_answered && failed.is_close()
    }

    /// Whether the last request, which failed so, is to be sent again over a new connection.
    pub fn is_retried(self, is_idempotent: bool, failed: &Failed) -> bool {
        is_idempotent && !self.is_heard && self.is_left(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;

    use super::*;

    /// What becomes of a request that is sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fate {
        Answered,
        Closed,
        Reset,
        Broken,
        ClosedInTheMiddle,
        Unreachable,
        Wrong,
    }

    use Fate::*;

    impl Fate {
        fn failed(self) -> Failed {
            match self {
                Answered | Closed | ClosedInTheMiddle => Failed::Closed,
                Reset => Failed::Io(io::ErrorKind::ConnectionReset.into()),
                Broken => Failed::Io(io::ErrorKind::BrokenPipe.into()),
                Unreachable => Failed::Io(io::ErrorKind::HostUnreachable.into()),
                Wrong => Failed::Wrong("no response".into()),
            }
        }
    }

    /// Sends a request; what became of it, and whether it is to be sent again.
    fn sent(reuse: &mut Reuse, fate: Fate, is_idempotent: bool) -> bool {
        reuse.sends();
        if matches!(fate, Answered | ClosedInTheMiddle) {
            reuse.hears();
        }
        if fate == Answered {
            reuse.answered();
            return false;
        }
        reuse.is_retried(is_idempotent, &fate.failed())
    }

    fn fates() -> impl Strategy<Value = Vec<Fate>> {
        let fate = prop::sample::select(vec![
            Answered,
            Answered,
            Answered,
            Closed,
            Reset,
            Broken,
            ClosedInTheMiddle,
            Unreachable,
            Wrong,
        ]);
        prop::collection::vec(fate, 1..60)
    }

    proptest! {
        /// Whatever a server does: a request is sent a second time when its connection, which had answered before, was
        /// closed without a byte for it; and never a third time.
        #[test]
        fn a_request_is_sent_twice_at_most(fates in fates(), is_idempotent: bool) {
            let (mut reuse, mut answers, mut sends) = (Reuse::default(), 0, 0);
            for fate in fates {
                sends += 1;
                let again = sent(&mut reuse, fate, is_idempotent);
                let is_unheard = matches!(fate, Closed | Reset | Broken);
                prop_assert_eq!(again, is_idempotent && answers > 0 && is_unheard, "{:?} after {} answers", fate, answers);
                prop_assert!(sends == 1 || !again, "a retry is retried");
                sends = if again { sends } else { 0 };
                if fate == Answered {
                    answers += 1;
                } else {
                    (reuse, answers) = (Reuse::default(), 0);
                }
            }
        }
    }

    #[test]
    fn an_idle_connection_is_left_when_it_has_answered_before() {
        let mut reuse = Reuse::default();
        assert!(!reuse.is_left(&Reset.failed()), "nothing was kept alive");
        sent(&mut reuse, Answered, false);
        assert!(reuse.is_left(&Reset.failed()) && !reuse.is_left(&Wrong.failed()));
    }
}
