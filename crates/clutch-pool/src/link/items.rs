//! Results of a mapped batch, one by one: each is its own as soon as its item has run, whatever becomes of the others.
//!
//! Kept as the frames that they came in, one after the other: so they are the payload of one answer, which is read by
//! whoever waits for it. How long all ran, in nanoseconds, is the first 8 bytes.

use std::sync::Arc;

use clutch_wire::frame::{self, Frame, Head, Kind, WireError, flag};
use clutch_wire::region::Lease;
use clutch_wire::{Codec, Failure, Form, Payload};

const RUN_BYTES: usize = 8;
/// Place of the flags in a frame's head.
const FLAGS_AT: usize = 7;

/// The form of the answer to a batch. No link carries it.
pub const ITEMS: Form = Form::new(Codec::Bytes, 1);

#[derive(Debug, Default)]
pub struct Items {
    packed: Vec<u8>,
    leases: Vec<Arc<Lease>>,
    count: u32,
    failed: u32,
}

impl Items {
    /// Returns the number of items so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of those that have failed.
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// The result in an item's frame, with what it has in shared memory.
    pub fn push(&mut self, frame: &[u8], leases: Vec<Arc<Lease>>) {
        let failed = frame.get(FLAGS_AT).is_some_and(|flags| flags & flag::FAILED != 0);
        self.push_all(1, u32::from(failed), frame);
        self.leases.extend(leases);
    }

    /// So many results that have nothing there, `failed` of them failures.
    pub fn push_all(&mut self, count: u32, failed: u32, frames: &[u8]) {
        self.begin();
        self.packed.extend_from_slice(frames);
        self.count += count;
        self.failed += failed;
    }

    pub fn push_failure(&mut self, failure: &Failure) {
        self.begin();
        let head = Head { flags: flag::FAILED, ..Head::with(Kind::Item, 0, Codec::Plain) };
        frame::put_text(&mut self.packed, head, &Failure::encode(failure));
        (self.count, self.failed) = (self.count + 1, self.failed + 1);
    }

    fn begin(&mut self) {
        if self.packed.is_empty() {
            self.packed.resize(RUN_BYTES, 0);
        }
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
        self.failed += later.failed;
    }

    /// The answer for all of them.
    pub fn into_payload(mut self, run_ns: u64) -> Payload {
        self.begin();
        self.packed[..RUN_BYTES].copy_from_slice(&run_ns.to_le_bytes());
        Payload { form: ITEMS, inline: self.packed, leases: self.leases }
    }
}

/// The result of an item.
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
        if item.is_err() {
            rest = &[];
        }
        Some(item)
    });
    (run.try_into().map_or(0, u64::from_le_bytes), items)
}

fn take<'a>(rest: &mut &'a [u8], leases: &mut &'a [Arc<Lease>]) -> Result<Item<'a>, WireError> {
    let short = || WireError::Text("the results of a batch end too early".to_owned());
    let (frame, len) = Frame::parse(rest)?.ok_or_else(short)?;
    let (own, others) = leases.split_at_checked(frame.head.regions as usize).ok_or_else(short)?;
    (*rest, *leases) = (&rest[len..], others);
    let failed = frame.head.flags & flag::FAILED != 0;
    Ok(Item { codec: frame.head.form.codec, failed, bytes: frame.payload, leases: own })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(items: &mut Items, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::put_simple(&mut bytes, Kind::Item, 1, Codec::Plain, payload).expect("fits");
        items.push(&bytes, Vec::new());
    }

    #[test]
    fn results_come_in_order_whatever_parts_they_came_in() {
        let (mut items, mut later) = (Items::default(), Items::default());
        pushed(&mut items, b"one");
        pushed(&mut later, b"");
        later.push_failure(&Failure::NoSuchTool { message: "x".to_owned() });
        items.append(later);
        assert_eq!((items.count(), items.failed()), (3, 1));
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
