//! Words of a worker's board for the requests that it takes by itself: the worker's own, and one that the front has for those
//! that have none, such as coroutines that wait.

use clutch_pool::config::Shape;

use super::ledger::NO_WORD;

/// Most words that are reserved while it is not known how many the worker needs.
const UNKNOWN_MAX: usize = 64;

/// Number of words that a worker needs: one for each thread of a WSGI app, one for each event loop of an ASGI app.
pub(super) fn words_of(shape: Shape, is_wsgi: Option<bool>) -> usize {
    let (slots, loops) = (shape.slots() as usize, shape.threads.max(1) as usize);
    match is_wsgi {
        Some(true) => slots,
        Some(false) => loops,
        None => slots.max(loops).min(UNKNOWN_MAX),
    }
}

/// See the file's head.
pub(super) struct Words {
    of_worker: Vec<u32>,
    of_front: Option<u32>,
}

impl Words {
    pub(super) fn new(of_worker: Vec<u32>) -> Words {
        Words { of_worker, of_front: None }
    }

    /// The word for a request that has this one, or none. None: the worker has given it away meanwhile, or none can be
    /// reserved, and the request is looked at again later.
    pub(super) fn word_of(&mut self, own: Option<u32>, reserve: impl FnOnce() -> Option<u32>) -> Option<u32> {
        match own {
            Some(own) => self.of_worker.contains(&own).then_some(own),
            None => {
                self.of_front = self.of_front.or_else(reserve);
                self.of_front
            }
        }
    }

    /// A request was adopted with this word, and `next` is there in its place. Returns the one that the worker has instead.
    pub(super) fn adopted(&mut self, word: u32, next: u32) -> u32 {
        match self.of_worker.iter_mut().find(|own| **own == word) {
            Some(own) => {
                *own = next;
                next
            }
            None => {
                self.of_front = Some(next);
                NO_WORD
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clutch_pool::config::Profile;

    use super::*;

    #[test]
    fn a_worker_needs_a_word_for_all_that_runs_at_a_time() {
        let shape = |threads, tasks| Shape { profile: Profile::Async, workers: 2, threads, tasks };
        assert_eq!((words_of(shape(4, 1), Some(true)), words_of(shape(0, 0), Some(true))), (4, 1));
        assert_eq!((words_of(shape(2, 100), Some(false)), words_of(shape(0, 100), Some(false))), (2, 1));
        assert_eq!((words_of(shape(1, 8), None), words_of(shape(2, 100), None)), (8, 64));
        assert_eq!(words_of(shape(1, 100), Some(true)), 100);
    }

    #[test]
    fn each_word_is_for_one_request_and_the_next_goes_to_who_gave_it() {
        let mut words = Words::new(vec![1, 2]);
        assert_eq!((words.word_of(Some(2), || None), words.adopted(2, 7)), (Some(2), 7));
        assert_eq!(words.word_of(Some(2), || None), None, "it is that of adopted work");
        assert_eq!(words.word_of(Some(7), || None), Some(7));
        assert_eq!(words.word_of(None, || None), None);
        assert_eq!((words.word_of(None, || Some(9)), words.adopted(9, 10)), (Some(9), NO_WORD));
        assert_eq!(words.word_of(None, || None), Some(10));
    }
}
