//! Ids that programs make by themselves: ULIDs (github.com/ulid/spec). Whatever is enqueued later, by one program, is greater.

use clutch_wire::forked::PerProcess;
use clutch_wire::sync::Mutex;

use crate::job::{JobId, Millis};
use crate::random;

/// Crockford's digits.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const LENGTH: usize = 26;
const RANDOM_BITS: u32 = 80;

/// Bits of the step from one id to the next: no less than a million have room in a millisecond.
const STEP_BITS: u32 = 60;

/// The last one of this process: a time of 48 bits, then a random number.
static LAST: PerProcess<Mutex<u128>> = PerProcess::new();

/// So many new ones, one after the other.
pub(super) fn new_ids(count: usize, now: Millis) -> Vec<JobId> {
    let fresh =
        |random: u64| (u128::from(now.clamp(0, (1 << 48) - 1) as u64) << RANDOM_BITS) | (u128::from(random) << 15);
    let numbers = random::numbers(count);
    let last = LAST.get(|| Ok(Mutex::new(0)));
    let mut last = last.as_ref().map(|(last, _)| last.lock());
    let mut next = last.as_ref().map_or(0, |last| **last);
    let ids = numbers.into_iter().map(|number| {
        let is_later = now > (next >> RANDOM_BITS) as Millis;
        let step = 1 + u128::from(number >> (u64::BITS - STEP_BITS));
        next = if is_later { fresh(number) } else { next.wrapping_add(step) };
        text(next)
    });
    let ids = ids.collect();
    if let Ok(last) = &mut last {
        **last = next;
    }
    ids
}

/// Whether it may be one, in the letters in which it is written here.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|letter| DIGITS.contains(&letter))
}

fn text(id: u128) -> JobId {
    let digit = |place: usize| DIGITS[(id >> (5 * (LENGTH - 1 - place))) as usize & 31];
    (0..LENGTH).map(|place| char::from(digit(place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_grow_and_tell_their_time() {
        let (early, late) = (new_ids(1000, 1_469_922_850_259), new_ids(2, 1_469_922_850_260));
        assert!(early.iter().chain(&late).collect::<Vec<_>>().is_sorted_by(|one, other| one < other));
        // The example of the specification.
        assert!(early[0].starts_with("01ARZ3NDEK") && is_id(&early[0]), "{}", early[0]);
        let back = new_ids(1, 5);
        assert!(back[0] > late[1], "a clock that goes back makes no smaller ones");
        assert!(!is_id("7") && !is_id("01arz3ndektsv4rrffq69g5fav"));
    }
}
