//! Whether collections of garbage that find nothing are put off: a pure decision, in objects as CPython counts them.
//!
//! The interpreter collects its youngest generation when `usual` more objects have been made than freed since the last
//! time, and the next older one with every eleventh. Many requests under way make and free a multiple of that in each wave:
//! each of these collections looks through requests that are all alive.

/// Collections, one after another, that have found nothing before others are put off.
pub const VAIN_MIN: u32 = 8;

/// As many are put off before one is made at a moment at which few objects are alive: a quarter of the most since the last.
pub const PUT_OFF_MIN: u32 = 16;

/// As many are put off at most.
pub const PUT_OFF_MAX: u32 = 32;

/// Of the usual number of objects, by so large a part what is due may be wrong before it is said anew.
const TOLERANCE: u32 = 4;

/// Where the collections of a process stand.
#[derive(Debug)]
pub struct Sparing {
    usual: u32,
    vain: u32,
    /// Of this generation, or an older one, a collection has to find nothing first.
    suspect: Option<u8>,
    /// Objects at the last look; the most since the last collection; and those made since then, or since the last that was
    /// put off.
    count: u32,
    most: u32,
    since: u32,
    put_off: u32,
    /// What was said last.
    due: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is as it was said.
    Same,
    /// A collection is due when there are so many objects.
    At(u32),
    /// One of the second generation is due now.
    Now,
}

impl Sparing {
    pub fn new(usual: u32) -> Sparing {
        Sparing { usual, vain: 0, suspect: Some(1), count: 0, most: 0, since: 0, put_off: 0, due: None }
    }

    /// A collection has ended, of this generation and all that are younger. Returns whether those after it may be put off.
    pub fn ended(&mut self, generation: u8, has_found: bool) -> bool {
        (self.count, self.most, self.since, self.due) = (0, 0, 0, None);
        if generation > 0 {
            self.put_off = 0;
        }
        if has_found {
            (self.vain, self.suspect) = (0, self.suspect.max(Some(generation.max(1))));
            return false;
        }
        self.vain = self.vain.saturating_add(1);
        self.suspect = self.suspect.filter(|suspect| generation < *suspect);
        self.vain >= VAIN_MIN && self.suspect.is_none()
    }

    /// Code of a request is about to run, or is over: whatever it makes, it has about as many objects as it always had.
    pub fn moved(&mut self, count: u32) -> Next {
        self.since = self.since.saturating_add(count).saturating_sub(self.count);
        (self.count, self.most) = (count, self.most.max(count));
        self.put_off = self.put_off.saturating_add(self.since / self.usual.max(1));
        self.since %= self.usual.max(1);
        let is_quiet = count <= self.most / 4;
        match self.put_off {
            PUT_OFF_MAX.. => Next::Now,
            PUT_OFF_MIN.. if is_quiet => Next::Now,
            _ => self.due_at(count.saturating_add(self.usual)),
        }
    }
}

impl Sparing {
    fn due_at(&mut self, due: u32) -> Next {
        if self.due.is_some_and(|said| said.abs_diff(due) <= self.usual / TOLERANCE) {
            return Next::Same;
        }
        self.due = Some(due);
        Next::At(due)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USUAL: u32 = 700;

    fn spared() -> Sparing {
        let mut sparing = Sparing::new(USUAL);
        for _ in 0..VAIN_MIN {
            sparing.ended(1, false);
        }
        sparing
    }

    #[test]
    fn what_was_found_in_a_generation_is_looked_for_there_again() {
        for found_in in 0..3 {
            let mut sparing = spared();
            assert!(sparing.ended(0, false));
            assert!(!sparing.ended(found_in, true));
            let looked_in = found_in.max(1);
            for _ in 0..2 * VAIN_MIN {
                assert!(!sparing.ended(looked_in - 1, false));
            }
            assert!(sparing.ended(looked_in, false));
            assert!(sparing.ended(0, false));
        }
    }

    proptest! {
        #[test]
        fn some_are_put_off_after_several_in_a_row_that_found_nothing(ended in prop::collection::vec((0_u8..3, 0_u8..20), 0..200)) {
            let (mut sparing, mut vain, mut has_seen) = (Sparing::new(USUAL), 0, false);
            for (generation, found) in ended {
                let has_found = found == 0;
                (vain, has_seen) = if has_found { (0, false) } else { (vain + 1, has_seen || generation > 0) };
                if sparing.ended(generation, has_found) {
                    prop_assert!(vain >= VAIN_MIN && has_seen);
                }
            }
        }

        #[test]
        fn code_has_as_many_objects_as_ever_and_all_of_it_a_multiple(
            steps in prop::collection::vec(-3_000_i64..3_000, 1..500),
        ) {
            let (mut sparing, mut count, mut due) = (spared(), 0_u32, USUAL);
            for step in steps {
                count = u32::try_from((i64::from(count) + step.min(i64::from(USUAL))).max(0)).unwrap_or(0);
                match sparing.moved(count) {
                    Next::Same => {}
                    Next::At(at) => due = at,
                    Next::Now => {
                        sparing.ended(1, false);
                        (count, due) = (0, USUAL);
                    }
                }
                prop_assert!(due.abs_diff(count + USUAL) <= USUAL / TOLERANCE, "{due} where there are {count}");
                prop_assert!(count <= (PUT_OFF_MAX + 1) * USUAL, "{count} objects");
            }
        }
    }
}
