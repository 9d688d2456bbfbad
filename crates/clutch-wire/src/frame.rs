//! Bytes to frames and back: the format that the dispatcher, the zygotes and the workers speak.
//!
//! A frame is a 16-byte head and a body, little-endian. docs/wire.md shows it field by field, and
//! tests/golden/wire.json fixes its bytes for every kind. This file knows no file descriptors and no I/O.

use thiserror::Error;

use crate::codec::{Codec, Form};

/// Raised when the meaning of any byte changes; both ends of a link must have the same.
pub const WIRE_VERSION: u32 = 10;

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 16;

/// Largest body of a frame; larger payloads travel in regions.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// Payload parts longer than this go into a region instead of the frame.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Largest piece of a chunk that goes in several.
pub const PIECE_BYTES: usize = 1 << 20;

/// Most regions that one frame refers to.
pub const REGIONS_MAX: usize = 255;

/// Chunks that the producer of a stream may send before it is given credit.
pub const STREAM_WINDOW: u32 = 16;

/// Value of the deadline field that means: no deadline.
pub const NO_DEADLINE: u64 = u64::MAX;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("unknown codec {0}")]
    Codec(u8),
    #[error("a frame of {given} bytes; at most {allowed} are allowed")]
    TooLong { given: usize, allowed: usize },
    #[error("a {kind:?} frame is {missing} bytes short")]
    Short { kind: Kind, missing: usize },
    #[error("region {0} was never announced, or is shorter than the frame says")]
    Region(u32),
    #[error("the shared memory of region {0} was not received: {1}")]
    Unreceived(u32, Shortage),
    #[error("text that is not UTF-8, or JSON that does not parse: {0}")]
    Text(String),
}

/// The resource that a reader lacked for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Shortage {
    #[error("no file descriptor was left: raise the limit (ulimit -n)")]
    Descriptors,
    #[error("it does not fit into memory: raise the limit (ulimit -v), or send less at once")]
    Memory,
}

/// The meaning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// First frame of a zygote and of a worker: versions, as JSON.
    Hello = 1,
    /// The worker takes work from now on; JSON.
    Ready = 2,
    /// id is a function id, the payload its name or its pickle; precedes the first call of it on a link.
    Define = 3,
    Call = 4,
    /// User code has started (sent only for calls that carry `WANT_BEGUN`).
    Begun = 5,
    /// A value of a stream, in either direction.
    Chunk = 6,
    /// Credit: how many more chunks the reader of a stream accepts.
    Credit = 7,
    /// Nobody waits for the answer any more.
    Cancel = 8,
    Result = 9,
    Failure = 10,
    /// Announces a region: id, size, and the descriptor beside it. Size 0: forget it.
    Descriptor = 11,
    /// Accept no more work, finish the rest, and end. From a worker: somebody else has sent it TERM.
    Drain = 12,
    /// Figures, as JSON, in either direction. With an id: of this work.
    Stats = 13,
    /// Announces, as a separate message, that the next message carries descriptors.
    Carrying = 14,
    /// On the alarm: show the Python stacks now; and the answer, as text. The id says for which work, or which question.
    Stacks = 15,
    /// The result of the next item of a mapped batch; the id is the batch's.
    Item = 16,
    /// The descriptor of the region with this id, announced by the reader of this frame, was lost on its way.
    Unreceived = 17,
    /// From a worker: a debugger asks at the terminal (id 1), or no longer does (id 0).
    Debugging = 18,
    /// To a worker: a socket of its own for whoever serves connections through it, beside the frame.
    Channel = 19,
    /// To the zygote: what to load; JSON.
    Launch = 32,
    /// From the zygote: loaded; JSON.
    Up = 33,
    /// From the zygote: loading failed; JSON.
    Failed = 34,
    /// To the zygote: fork one worker; JSON, with five descriptors.
    Fork = 35,
    /// From the zygote: id is the worker's key; JSON.
    Forked = 36,
    /// From the zygote: a worker ended, stopped or continued; JSON.
    Fate = 37,
    /// To the zygote: id is a worker's key; its group is sent the signal of the payload, or KILL.
    Kill = 38,
}

impl Kind {
    pub fn from_u8(value: u8) -> Result<Kind, WireError> {
        use Kind::*;
        const ALL: [Kind; 26] = [
            Hello, Ready, Define, Call, Begun, Chunk, Credit, Cancel, Result, Failure, Descriptor, Drain, Stats,
            Carrying, Stacks, Item, Unreceived, Debugging, Channel, Launch, Up, Failed, Fork, Forked, Fate, Kill,
        ];
        const BY_NUMBER: [Option<Kind>; 64] = {
            let (mut table, mut at) = ([None; 64], 0);
            while at < ALL.len() {
                table[ALL[at] as usize] = Some(ALL[at]);
                at += 1;
            }
            table
        };
        BY_NUMBER.get(value as usize).copied().flatten().ok_or(WireError::Kind(value))
    }

    /// Bytes between the region references and the payload.
    pub fn fixed_bytes(self) -> usize {
        match self {
            Kind::Call => 20,
            Kind::Credit => 4,
            Kind::Result | Kind::Failure | Kind::Descriptor => 8,
            _ => 0,
        }
    }
}

/// The descriptors of a new worker: link, board, alarm, standard output, standard error.
pub const FORK_DESCRIPTORS: usize = 5;

/// Bits of the head's flags. The upper four bits of a call's flags are the number of its [`WorkKind`](crate::WorkKind).
pub mod flag {
    pub const WANT_BEGUN: u8 = 1;
    pub const HAS_INPUT: u8 = 2;
    pub const ONE_VALUE: u8 = 4;
    /// A descriptor travels beside the call: the connection that it is about.
    pub const HAS_DESCRIPTOR: u8 = 8;
    /// In a `Stacks` frame: a question (and its answer) that is not about one piece of work.
    pub const ASKED: u8 = 1;
    /// In a `Chunk`: a piece of a value that goes on in the next chunk.
    pub const MORE: u8 = 1;
    /// In an `Item`: the item failed; the payload is the body of a failure.
    pub const FAILED: u8 = 1;
    /// In a `Cancel` frame: the deadline has passed and the caller waits for the stacks of what runs, where they are known.
    pub const WANT_STACKS: u8 = 1;
    pub const KIND_SHIFT: u8 = 4;
}

/// A reference to a region's first `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRef {
    pub id: u32,
    pub len: u64,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    pub form: Form,
    pub regions: u8,
    pub flags: u8,
    pub id: u64,
}

impl Head {
    /// A head of this kind about that id, without anything else.
    pub fn of(kind: Kind, id: u64) -> Head {
        Head { kind, form: Codec::Empty.into(), regions: 0, flags: 0, id }
    }

    /// The same for a payload of this form.
    pub fn with(kind: Kind, id: u64, form: impl Into<Form>) -> Head {
        Head { form: form.into(), ..Head::of(kind, id) }
    }
}

/// A frame as it lies in a read buffer.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub head: Head,
    regions: &'a [u8],
    fixed: &'a [u8],
    pub payload: &'a [u8],
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Length of the first frame in `bytes`, or none while its head is not whole.
pub fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    if bytes.len() < HEAD_BYTES {
        return Ok(None);
    }
    let body_bytes = u32_at(bytes, 0) as usize;
    if body_bytes > FRAME_BYTES_MAX {
        return Err(WireError::TooLong { given: body_bytes, allowed: FRAME_BYTES_MAX });
    }
    Ok(Some(HEAD_BYTES + body_bytes))
}

/// Length of the first frame in `bytes` where it is whole, a result of this batch, and refers to no region; and whether
/// that item failed.
pub fn item_bytes(bytes: &[u8], batch: u64) -> Option<(usize, bool)> {
    let len = frame_bytes(bytes).ok().flatten().filter(|len| *len <= bytes.len())?;
    let is_item = bytes[4] == Kind::Item as u8 && bytes[6] == 0 && u64_at(bytes, 8) == batch;
    is_item.then_some((len, bytes[7] & flag::FAILED != 0))
}

impl<'a> Frame<'a> {
    /// The first frame in `bytes` and its length, or none while it is not whole.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, WireError> {
        let Some(total) = frame_bytes(bytes)? else { return Ok(None) };
        let kind = Kind::from_u8(bytes[4])?;
        let form = Form::from_u8(bytes[5]).ok_or(WireError::Codec(bytes[5]))?;
        let head = Head { kind, form, regions: bytes[6], flags: bytes[7], id: u64_at(bytes, 8) };
        if bytes.len() < total {
            return Ok(None);
        }
        let body = &bytes[HEAD_BYTES..total];
        let region_bytes = head.regions as usize * 16;
        let needed = region_bytes + kind.fixed_bytes();
        if body.len() < needed {
            return Err(WireError::Short { kind, missing: needed - body.len() });
        }
        let (regions, rest) = body.split_at(region_bytes);
        let (fixed, payload) = rest.split_at(kind.fixed_bytes());
        Ok(Some((Frame { head, regions, fixed, payload }, total)))
    }

    pub fn regions(&self) -> impl Iterator<Item = RegionRef> + 'a {
        self.regions.chunks_exact(16).map(|part| RegionRef { id: u32_at(part, 0), len: u64_at(part, 8) })
    }

    /// Descriptors that travel beside the frame.
    pub fn descriptors(&self) -> usize {
        match self.head.kind {
            Kind::Descriptor if self.size() > 0 => 1,
            Kind::Call if self.head.flags & flag::HAS_DESCRIPTOR != 0 => 1,
            Kind::Fork => FORK_DESCRIPTORS,
            // Of a launch its payload, of any size, in a memfd.
            Kind::Launch | Kind::Channel => 1,
            _ => 0,
        }
    }

    /// Returns the index of a call's word on the board.
    pub fn word(&self) -> u32 {
        u32_at(self.fixed, 0)
    }

    /// Returns the function that a call runs.
    pub fn function(&self) -> u32 {
        u32_at(self.fixed, 4)
    }

    /// Returns the deadline of a call in nanoseconds of CLOCK_MONOTONIC, or [`NO_DEADLINE`].
    pub fn deadline_ns(&self) -> u64 {
        u64_at(self.fixed, 8)
    }

    /// Returns the number of the first items of a mapped batch that are skipped, because they have already run.
    pub fn skip(&self) -> u32 {
        u32_at(self.fixed, 16)
    }

    /// Returns the credit of a credit frame.
    pub fn credit(&self) -> u32 {
        u32_at(self.fixed, 0)
    }

    /// Returns the run time of user code that a result or failure tells, in nanoseconds.
    pub fn run_ns(&self) -> u64 {
        u64_at(self.fixed, 0)
    }

    /// Returns the bytes of the region of a descriptor frame.
    pub fn size(&self) -> u64 {
        u64_at(self.fixed, 0)
    }
}

/// Appends a frame: head, region references, fixed fields, payload. One that its reader would refuse is refused here, and
/// nothing is appended: no writer breaks its own link.
pub fn put(
    out: &mut Vec<u8>,
    head: Head,
    regions: &[RegionRef],
    fixed: &[u8],
    payload: &[u8],
) -> Result<(), WireError> {
    let given = regions.len() * 16 + fixed.len() + payload.len();
    if given > FRAME_BYTES_MAX || regions.len() > REGIONS_MAX {
        return Err(WireError::TooLong { given, allowed: FRAME_BYTES_MAX });
    }
    append(out, head, regions, fixed, payload);
    Ok(())
}

/// Appends a frame whose payload `write` appends; when that fails, or the frame is too long, nothing is appended.
pub fn put_written<E: From<WireError>>(
    out: &mut Vec<u8>,
    head: Head,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let at = out.len();
    append(out, head, &[], &[], &[]);
    let written = write(out);
    let given = out.len() - at - HEAD_BYTES;
    let fits = given <= FRAME_BYTES_MAX;
    if written.is_ok() && fits {
        out[at..at + 4].copy_from_slice(&(given as u32).to_le_bytes());
        return Ok(());
    }
    out.truncate(at);
    written.and(Err(WireError::TooLong { given, allowed: FRAME_BYTES_MAX }.into()))
}

fn append(out: &mut Vec<u8>, head: Head, regions: &[RegionRef], fixed: &[u8], payload: &[u8]) {
    debug_assert_eq!(fixed.len(), head.kind.fixed_bytes());
    let body_bytes = regions.len() * 16 + fixed.len() + payload.len();
    out.reserve(HEAD_BYTES + body_bytes);
    out.extend_from_slice(&(body_bytes as u32).to_le_bytes());
    out.extend_from_slice(&[head.kind as u8, head.form.to_u8(), regions.len() as u8, head.flags]);
    out.extend_from_slice(&head.id.to_le_bytes());
    for region in regions {
        out.extend_from_slice(&region.id.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&region.len.to_le_bytes());
    }
    out.extend_from_slice(fixed);
    out.extend_from_slice(payload);
}

/// Fixed fields of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallFields {
    pub word: u32,
    pub function: u32,
    pub deadline_ns: u64,
    pub skip: u32,
}

impl CallFields {
    pub fn bytes(&self) -> [u8; 20] {
        let mut fixed = [0; 20];
        fixed[0..4].copy_from_slice(&self.word.to_le_bytes());
        fixed[4..8].copy_from_slice(&self.function.to_le_bytes());
        fixed[8..16].copy_from_slice(&self.deadline_ns.to_le_bytes());
        fixed[16..20].copy_from_slice(&self.skip.to_le_bytes());
        fixed
    }
}

/// Appends a frame that is only a head and a payload.
pub fn put_simple(out: &mut Vec<u8>, kind: Kind, id: u64, codec: Codec, payload: &[u8]) -> Result<(), WireError> {
    put(out, Head::with(kind, id, codec), &[], &[], payload)
}

/// Appends a frame that is only a head.
pub fn put_head(out: &mut Vec<u8>, kind: Kind, id: u64, flags: u8) {
    append(out, Head { flags, ..Head::of(kind, id) }, &[], &[], &[]);
}

/// Appends text, cut to what fits into a frame: for people, who can do with less.
pub fn put_text(out: &mut Vec<u8>, mut head: Head, text: &[u8]) {
    head.regions = 0;
    append(out, head, &[], &[], &text[..text.len().min(FRAME_BYTES_MAX)]);
}

/// A chunk in pieces that fit into frames: all but the last say that more comes.
pub fn put_pieces(out: &mut Vec<u8>, id: u64, form: Form, payload: &[u8]) {
    let mut head = Head { flags: flag::MORE, ..Head::with(Kind::Chunk, id, form) };
    let mut rest = payload;
    while rest.len() > PIECE_BYTES {
        let (piece, after) = rest.split_at(PIECE_BYTES);
        append(out, head, &[], &[], piece);
        rest = after;
    }
    head.flags = 0;
    append(out, head, &[], &[], rest);
}

/// Asks for the stacks, not because of one piece of work.
pub fn put_question(out: &mut Vec<u8>, question: u64) {
    put_head(out, Kind::Stacks, question, flag::ASKED);
}

/// Appends a credit frame.
pub fn put_credit(out: &mut Vec<u8>, id: u64, credit: u32) {
    append(out, Head::of(Kind::Credit, id), &[], &credit.to_le_bytes(), &[]);
}

/// Appends the announcement of a region (`size` 0: it is gone).
pub fn put_descriptor(out: &mut Vec<u8>, region: u32, size: u64) {
    append(out, Head::of(Kind::Descriptor, u64::from(region)), &[], &size.to_le_bytes(), &[]);
}
