//! Work that a worker died of: how often it may try, and that its next try runs alone where others could be guilty too.

use super::Submission;

/// The consequence of a worker's death for one piece of work that had begun in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sentence {
    Lost,
    Poisoned,
    /// Run again; `alone`: it was not the only one that could have done it.
    Again {
        alone: bool,
    },
}

impl<T> Submission<T> {
    /// `suspects`: how many had begun there. `ended`: Clutch ended the worker itself, which counts against nobody.
    pub(super) fn sentence(&mut self, suspects: usize, ended: bool, deaths_max: u32) -> Sentence {
        if ended {
            return if self.request.retry > 0 { Sentence::Again { alone: false } } else { Sentence::Lost };
        }
        self.deaths += 1;
        if self.deaths >= deaths_max {
            return Sentence::Poisoned;
        }
        match self.request.retry.checked_sub(1) {
            None => Sentence::Lost,
            Some(left) => {
                self.request.retry = left;
                Sentence::Again { alone: suspects > 1 }
            }
        }
    }
}
