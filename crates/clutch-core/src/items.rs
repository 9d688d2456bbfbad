//! Results of a mapped batch, one by one: each is its own as soon as its item has run, whatever becomes of the others.
//!
//! Packed into the payload of one answer: how long all ran in nanoseconds (8 bytes), then of each item its codec (1),
//! whether it failed (1), how many of the payload's regions are its (1), 0 (1), the length of its bytes (4), its bytes.

use std::sync::Arc;

use crate::region::Lease;
use crate::wire::{self, Frame, WireError, flag};
use crate::work::{Codec, Failure, Payload};

const RUN_BYTES: usize = 8;
const HEAD_BYTES: usize = 8;

#[derive(Debug, Default)]
pub struct Items {
    packed: Vec<u8>,
    leases: Vec<Arc<Lease>>,
    count: u32,
}

impl Items {
    /// How many there are so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The result in an item's frame, with what it has in shared memory.
    pub fn push(&mut self, frame: &Frame<'_>, leases: Vec<Arc<Lease>>) {
        self.put(frame.head.codec, frame.head.flags & flag::FAILED != 0, leases.len() as u8, frame.payload);
        self.leases.extend(leases);
    }

    pub fn push_failure(&mut self, failure: &Failure) {
        self.put(Codec::Plain, true, 0, &wire::encode_failure(failure));
    }

    /// Others that came after these.
    pub fn append(&mut self, mut later: Items) {
        if self.count == 0 {
            *self = later;
            return;
        }
        self.packed.extend_from_slice(later.packed.get(RUN_BYTES..).unwrap_or_default());
        self.leases.append(&mut later.leases);
        self.count += later.count;
    }

    fn put(&mut self, codec: Codec, failed: bool, leases: u8, bytes: &[u8]) {
        if self.count == 0 {
            self.packed = vec![0; RUN_BYTES];
        }
        self.packed.extend_from_slice(&[codec as u8, u8::from(failed), leases, 0]);
        self.packed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.packed.extend_from_slice(bytes);
        self.count += 1;
    }

    /// The answer for all of them.
    pub fn into_payload(mut self, run_ns: u64) -> Payload {
        self.packed.resize(self.packed.len().max(RUN_BYTES), 0);
        self.packed[..RUN_BYTES].copy_from_slice(&run_ns.to_le_bytes());
        Payload { codec: Codec::Batch, inline: self.packed, leases: self.leases }
    }
}

/// One result.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pub codec: Codec,
    pub failed: bool,
    pub bytes: &'a [u8],
    pub leases: &'a [Arc<Lease>],
}

/// The results in an answer, in order, and how long all ran in nanoseconds. An error ends them.
pub fn read(payload: &Payload) -> (u64, impl Iterator<Item = Result<Item<'_>, WireError>>) {
    let (run, mut rest) = payload.inline.split_at_checked(RUN_BYTES).unwrap_or((&[0; RUN_BYTES], &[]));
    let mut leases = &payload.leases[..];
    let items = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let item = take(&mut rest, &mut leases);
        if item.is_none() {
            rest = &[];
        }
        Some(item.ok_or_else(|| WireError::Text("the results of a batch end too early".to_owned())))
    });
    (run.try_into().map_or(0, u64::from_le_bytes), items)
}

fn take<'a>(rest: &mut &'a [u8], leases: &mut &'a [Arc<Lease>]) -> Option<Item<'a>> {
    let (head, after) = rest.split_at_checked(HEAD_BYTES)?;
    let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let (bytes, after) = after.split_at_checked(len)?;
    let (own, others) = leases.split_at_checked(head[2] as usize)?;
    (*rest, *leases) = (after, others);
    Some(Item { codec: Codec::from_u8(head[0])?, failed: head[1] != 0, bytes, leases: own })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    fn pushed(items: &mut Items, payload: &[u8]) {
        let mut bytes = Vec::new();
        wire::put_simple(&mut bytes, Kind::Item, 1, Codec::Plain, payload).expect("fits");
        let (frame, _) = Frame::parse(&bytes).expect("a frame").expect("whole");
        items.push(&frame, Vec::new());
    }

    #[test]
    fn results_come_in_order_whatever_parts_they_came_in() {
        let (mut items, mut later) = (Items::default(), Items::default());
        pushed(&mut items, b"one");
        pushed(&mut later, b"");
        later.push_failure(&Failure::NoSuchTool { message: "x".to_owned() });
        items.append(later);
        assert_eq!(items.count(), 3);
        let payload = items.into_payload(17);
        let (run_ns, items) = read(&payload);
        let read: Vec<(bool, &[u8])> =
            items.map(|item| item.map(|item| (item.failed, item.bytes)).expect("an item")).collect();
        assert_eq!(run_ns, 17);
        assert_eq!(read[..2], [(false, &b"one"[..]), (false, b"")]);
        assert!(read[2].0);
    }

    #[test]
    fn an_answer_that_is_cut_is_an_error_at_its_end() {
        let mut items = Items::default();
        pushed(&mut items, b"one");
        let mut payload = items.into_payload(1);
        payload.inline.pop();
        assert!(read(&payload).1.last().expect("an item").is_err());
        assert_eq!(read(&Payload::empty()).1.count(), 0);
    }
}
