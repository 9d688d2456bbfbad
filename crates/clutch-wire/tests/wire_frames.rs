//! Frames of every kind there and back, what no writer may write, and what no reader takes.

use std::time::Duration;

use clutch_wire::frame::{self, CallFields, Frame, Head, Kind, RegionRef, WireError, flag};
use clutch_wire::frame::{FRAME_BYTES_MAX, HEAD_BYTES, PIECE_BYTES, REGIONS_MAX};
use clutch_wire::{Codec, Expired, Failure, Form, Where};
use proptest::prelude::*;

fn kinds() -> Vec<Kind> {
    (0..=u8::MAX).filter_map(|number| Kind::from_u8(number).ok()).collect()
}

fn forms() -> Vec<Form> {
    (0..=u8::MAX).filter_map(Form::from_u8).collect()
}

fn head() -> impl Strategy<Value = Head> {
    let (kind, form) = (prop::sample::select(kinds()), prop::sample::select(forms()));
    (kind, form, any::<u8>(), any::<u64>())
        .prop_map(|(kind, form, flags, id)| Head { flags, ..Head::with(kind, id, form) })
}

fn region() -> impl Strategy<Value = RegionRef> {
    (any::<u32>(), any::<u64>()).prop_map(|(id, len)| RegionRef { id, len })
}

/// One frame, whatever it says.
#[derive(Clone, Debug)]
struct Given {
    head: Head,
    regions: Vec<RegionRef>,
    fixed: Vec<u8>,
    payload: Vec<u8>,
}

fn given() -> impl Strategy<Value = Given> {
    let regions = prop::collection::vec(region(), 0..4);
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    (head(), regions, prop::array::uniform20(any::<u8>()), bytes()).prop_map(|(head, regions, fixed, payload)| Given {
        head: Head { regions: regions.len() as u8, ..head },
        regions,
        fixed: fixed[..head.kind.fixed_bytes()].to_vec(),
        payload,
    })
}

impl Given {
    fn put(&self, out: &mut Vec<u8>) {
        frame::put(out, self.head, &self.regions, &self.fixed, &self.payload).expect("it fits");
    }

    fn check(&self, frame: &Frame<'_>) {
        assert_eq!(frame.head, self.head);
        assert_eq!(frame.regions().collect::<Vec<_>>(), self.regions);
        assert_eq!(frame.payload, self.payload);
        let number = |at: usize, bytes: usize| {
            self.fixed[at..at + bytes].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let beside = match self.head.kind {
            Kind::Call => {
                assert_eq!(u64::from(frame.word()), number(0, 4));
                assert_eq!(u64::from(frame.function()), number(4, 4));
                assert_eq!(frame.deadline_ns(), number(8, 8));
                assert_eq!(u64::from(frame.skip()), number(16, 4));
                let (word, function, skip) = (frame.word(), frame.function(), frame.skip());
                let fields = CallFields { word, function, deadline_ns: frame.deadline_ns(), skip };
                assert_eq!(fields.bytes().as_slice(), self.fixed);
                usize::from(self.head.flags & flag::HAS_DESCRIPTOR != 0)
            }
            Kind::Credit => {
                assert_eq!(u64::from(frame.credit()), number(0, 4));
                0
            }
            Kind::Result | Kind::Failure => {
                assert_eq!(frame.run_ns(), number(0, 8));
                0
            }
            Kind::Descriptor => {
                assert_eq!(frame.size(), number(0, 8));
                usize::from(frame.size() > 0)
            }
            Kind::Fork => frame::FORK_DESCRIPTORS,
            Kind::Launch | Kind::Channel => 1,
            _ => 0,
        };
        assert_eq!(frame.descriptors(), beside, "descriptors beside a {:?} frame", self.head.kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_put_is_read_one_after_the_other(frames in prop::collection::vec(given(), 1..4)) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|given| given.put(&mut bytes));
        let mut rest = &bytes[..];
        for given in &frames {
            let length = frame::frame_bytes(rest).expect("a frame").expect("a whole head");
            let body = given.regions.len() * 16 + given.fixed.len() + given.payload.len();
            prop_assert_eq!(length, HEAD_BYTES + body);
            prop_assert!(Frame::parse(&rest[..length - 1]).expect("a part of one").is_none());
            let (frame, taken) = Frame::parse(rest).expect("a frame").expect("a whole one");
            prop_assert_eq!(taken, length);
            given.check(&frame);
            rest = &rest[length..];
        }
        prop_assert!(rest.is_empty());
    }

    /// A body that is too short says how many bytes are missing.
    #[test]
    fn what_is_missing_in_a_frame_is_said(given in given(), cut in any::<usize>()) {
        let needed = given.regions.len() * 16 + given.fixed.len();
        let mut bytes = Vec::new();
        Given { payload: Vec::new(), ..given.clone() }.put(&mut bytes);
        prop_assert!(Frame::parse(&bytes).expect("a frame").is_some(), "one without a payload");
        let left = if needed == 0 { 0 } else { cut % needed };
        bytes.truncate(HEAD_BYTES + left);
        bytes[..4].copy_from_slice(&(left as u32).to_le_bytes());
        match Frame::parse(&bytes) {
            Ok(frame) => prop_assert!(frame.is_some() && needed == 0),
            Err(error) => {
                prop_assert_eq!(error, WireError::Short { kind: given.head.kind, missing: needed - left });
            }
        }
    }

    #[test]
    fn only_whole_results_of_the_batch_without_regions_are_items(given in given(), batch in 0u64..2) {
        let given = Given { head: Head { id: given.head.id % 2, ..given.head }, ..given };
        for kind in [given.head.kind, Kind::Item] {
            let head = Head { kind, ..given.head };
            let fixed = given.fixed.iter().copied().chain([0; 20]).take(kind.fixed_bytes()).collect();
            let (mut bytes, given) = (Vec::new(), Given { head, fixed, ..given.clone() });
            given.put(&mut bytes);
            let is_item = kind == Kind::Item && given.regions.is_empty() && head.id == batch;
            let failed = head.flags & frame::flag::FAILED != 0;
            prop_assert_eq!(frame::item_bytes(&bytes, batch), is_item.then_some((bytes.len(), failed)));
            prop_assert_eq!(frame::item_bytes(&bytes[..bytes.len() - 1], batch), None, "not whole");
            let whole = bytes.len();
            bytes.push(0);
            prop_assert_eq!(frame::item_bytes(&bytes, batch), is_item.then_some((whole, failed)), "with more behind it");
        }
    }
}

/// All frames in these bytes: their heads and payloads.
fn read(mut bytes: &[u8]) -> Vec<(Head, &[u8])> {
    let mut found = Vec::new();
    while let Some((frame, length)) = Frame::parse(bytes).expect("frames") {
        found.push((frame.head, frame.payload));
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "a part of a frame is left");
    found
}

fn too_long(given: usize) -> WireError {
    WireError::TooLong { given, allowed: FRAME_BYTES_MAX }
}

#[test]
fn failure_58_all_parts_of_a_body_count_towards_its_limit() {
    let head = Head { regions: 2, ..Head::of(Kind::Call, 1) };
    let (regions, fixed) = ([RegionRef { id: 1, len: 2 }; 2], [0; 20]);
    let room = FRAME_BYTES_MAX - 2 * 16 - fixed.len();
    let mut bytes = b"before".to_vec();
    let refused = frame::put(&mut bytes, head, &regions, &fixed, &vec![0; room + 1]);
    assert_eq!((refused, bytes.as_slice()), (Err(too_long(FRAME_BYTES_MAX + 1)), b"before".as_slice()));
    frame::put(&mut bytes, head, &regions, &fixed, &vec![0; room]).expect("it fits");
    let length = frame::frame_bytes(&bytes[6..]).expect("a frame");
    assert_eq!(length, Some(HEAD_BYTES + FRAME_BYTES_MAX));
    bytes[6..10].copy_from_slice(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
    assert_eq!(frame::frame_bytes(&bytes[6..]), Err(too_long(FRAME_BYTES_MAX + 1)));
}

#[test]
fn failure_58_a_frame_refers_to_no_more_regions_than_its_head_can_count() {
    let region = RegionRef { id: 1, len: 2 };
    let mut bytes = Vec::new();
    let many = vec![region; REGIONS_MAX + 1];
    let refused = frame::put(&mut bytes, Head::of(Kind::Chunk, 1), &many, &[], b"x");
    assert_eq!((refused, bytes.len()), (Err(too_long(16 * many.len() + 1)), 0));
    frame::put(&mut bytes, Head::of(Kind::Chunk, 1), &many[1..], &[], b"x").expect("it fits");
    let (frame, _) = Frame::parse(&bytes).expect("a frame").expect("a whole one");
    assert_eq!((frame.regions().count(), frame.payload), (REGIONS_MAX, b"x".as_slice()));
}

#[test]
fn a_payload_that_is_written_in_place_makes_the_same_frame() {
    let head = Head { flags: 3, ..Head::with(Kind::Item, 7, Codec::Pickle) };
    for length in [0, 1, 1000, FRAME_BYTES_MAX] {
        let payload = vec![5; length];
        let (mut put, mut written) = (b"before".to_vec(), b"before".to_vec());
        frame::put(&mut put, head, &[], &[], &payload).expect("it fits");
        let write = |out: &mut Vec<u8>| -> Result<(), WireError> {
            out.extend_from_slice(&payload);
            Ok(())
        };
        frame::put_written(&mut written, head, write).expect("it fits");
        assert!(put == written, "{length} bytes");
    }
}

#[test]
fn failure_58_nothing_is_left_of_a_payload_that_is_not_written_whole() {
    let failed = WireError::Text("half of it".to_owned());
    for (length, says, expected) in [
        (10, Err(failed.clone()), failed.clone()),
        (FRAME_BYTES_MAX + 1, Ok(()), too_long(FRAME_BYTES_MAX + 1)),
        (FRAME_BYTES_MAX + 1, Err(failed.clone()), failed.clone()),
    ] {
        let mut bytes = b"before".to_vec();
        let write = |out: &mut Vec<u8>| {
            out.resize(out.len() + length, 0);
            says
        };
        let written = frame::put_written(&mut bytes, Head::of(Kind::Item, 7), write);
        assert_eq!((written, bytes.as_slice()), (Err(expected), b"before".as_slice()));
    }
}

#[test]
fn frames_that_are_little_more_than_a_head_say_what_they_are_told() {
    let mut bytes = Vec::new();
    frame::put_head(&mut bytes, Kind::Cancel, 9, flag::WANT_STACKS);
    frame::put_question(&mut bytes, 10);
    frame::put_simple(&mut bytes, Kind::Define, 11, Codec::Name, b"echo").expect("it fits");
    let text = Head { regions: 3, flags: 5, ..Head::with(Kind::Stats, 12, Codec::Json) };
    frame::put_text(&mut bytes, text, b"{}");
    let cancel = Head { flags: 1, ..Head::of(Kind::Cancel, 9) };
    let question = Head { flags: 1, ..Head::of(Kind::Stacks, 10) };
    let define = Head::with(Kind::Define, 11, Codec::Name);
    let none = b"".as_slice();
    let text = (Head { regions: 0, ..text }, b"{}".as_slice());
    assert_eq!(read(&bytes), [(cancel, none), (question, none), (define, b"echo".as_slice()), text]);
    bytes.clear();
    frame::put_credit(&mut bytes, 13, 70_000);
    let (credit, length) = Frame::parse(&bytes).expect("a frame").expect("a whole one");
    assert_eq!((credit.head, credit.credit(), length), (Head::of(Kind::Credit, 13), 70_000, HEAD_BYTES + 4));
    bytes.clear();
    frame::put_descriptor(&mut bytes, 14, 1 << 40);
    let (descriptor, length) = Frame::parse(&bytes).expect("a frame").expect("a whole one");
    assert_eq!((descriptor.head, length), (Head::of(Kind::Descriptor, 14), HEAD_BYTES + 8));
    assert_eq!((descriptor.size(), descriptor.descriptors()), (1 << 40, 1));
}

#[test]
fn text_for_people_is_cut_where_a_frame_is_full() {
    let text: Vec<u8> = (0..=FRAME_BYTES_MAX).map(|at| at as u8).collect();
    for length in [FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1] {
        let mut bytes = Vec::new();
        frame::put_text(&mut bytes, Head::of(Kind::Failed, 0), &text[..length]);
        let frames = read(&bytes);
        assert!(frames.len() == 1 && frames[0].1 == &text[..length.min(FRAME_BYTES_MAX)], "{length} bytes");
    }
}

#[test]
fn a_chunk_goes_in_pieces_of_which_only_the_last_says_that_it_is() {
    let text = Form::new(Codec::Bytes, 3);
    let payload: Vec<u8> = (0..=2 * PIECE_BYTES).map(|at| (at / 1000) as u8).collect();
    for (length, pieces) in [
        (0, vec![0]),
        (1, vec![1]),
        (PIECE_BYTES - 1, vec![PIECE_BYTES - 1]),
        (PIECE_BYTES, vec![PIECE_BYTES]),
        (PIECE_BYTES + 1, vec![PIECE_BYTES, 1]),
        (2 * PIECE_BYTES, vec![PIECE_BYTES, PIECE_BYTES]),
        (2 * PIECE_BYTES + 1, vec![PIECE_BYTES, PIECE_BYTES, 1]),
    ] {
        let mut bytes = Vec::new();
        frame::put_pieces(&mut bytes, 9, text, &payload[..length]);
        let frames = read(&bytes);
        assert_eq!(frames.iter().map(|(_, piece)| piece.len()).collect::<Vec<_>>(), pieces);
        for (at, (head, _)) in frames.iter().enumerate() {
            let flags = if at + 1 < pieces.len() { flag::MORE } else { 0 };
            assert_eq!(*head, Head { flags, ..Head::with(Kind::Chunk, 9, text) });
        }
        assert!(frames.iter().flat_map(|(_, piece)| *piece).eq(&payload[..length]), "{length} bytes");
    }
}

#[test]
fn sizes_are_those_that_docs_wire_tells() {
    assert_eq!((HEAD_BYTES, FRAME_BYTES_MAX), (16, 4 * 1024 * 1024));
    assert_eq!((frame::INLINE_BYTES_MAX, PIECE_BYTES), (64 * 1024, 1024 * 1024));
}

// ---- failures

fn lost(cause: Option<&str>, signal: Option<i32>, exit_code: Option<i32>) -> Failure {
    let (message, output) = ("lost".to_owned(), "the last words".to_owned());
    Failure::WorkerLost { message, worker_pid: 43, signal, exit_code, output, cause: cause.map(str::to_owned) }
}

#[test]
fn failures_come_back_as_they_went() {
    let expired = |worker: Option<&str>| {
        let (what, after) = ("total".to_owned(), Duration::from_nanos(1_000_000_001));
        let (worker, stacks) = (worker.map(str::to_owned), "a stack".to_owned());
        Failure::Expired(Box::new(Expired { at: Where::Running, what, after, worker, stacks }))
    };
    let lost = [lost(None, Some(9), None), lost(Some(""), None, Some(-1)), lost(Some("late"), None, None)];
    for failure in lost.into_iter().chain([expired(None), expired(Some("api/0"))]) {
        assert_eq!(Failure::decode(&Failure::encode(&failure)), Ok(failure));
    }
}

#[test]
fn a_failure_that_was_cut_says_how_much_is_missing() {
    let short = |missing| Err(WireError::Short { kind: Kind::Failure, missing });
    let whole = Failure::encode(&Failure::NoSuchTool { message: "echo".to_owned() });
    assert_eq!(Failure::decode(&whole[..0]), short(1));
    for bytes_of_length in 0..4 {
        assert_eq!(Failure::decode(&whole[..1 + bytes_of_length]), short(4 - bytes_of_length));
    }
    for bytes_of_text in 0..4 {
        assert_eq!(Failure::decode(&whole[..5 + bytes_of_text]), short(4));
    }
    assert!(Failure::decode(&whole).is_ok());
    let empty = Failure::NoSuchTool { message: String::new() };
    assert_eq!(Failure::decode(&[4, 0, 0, 0, 0]), Ok(empty));
    assert_eq!(Failure::decode(&[9, 0, 0, 0, 0]), Err(WireError::Kind(9)));
}
