//! Form of a payload, one byte of a frame's head: its encoding, and how its handler takes it.

/// The encoding of a payload's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// No value at all: the end of a stream, an empty control frame.
    Empty = 0,
    /// Tagged scalars and tuples of them, see docs/wire.md.
    Plain = 1,
    /// Python pickle, protocol 5; its buffers may lie in regions.
    Pickle = 2,
    /// UTF-8 JSON, as a network front brought it. Never unpickled.
    Json = 3,
    /// The name of a function in the target.
    Name = 4,
    /// Raw bytes, the whole content of their payload.
    Bytes = 5,
    /// Header lines (see headers.rs), then the content up to the end, or as all of the first region. Never unpickled.
    Headed = 6,
    /// A function by value, and its arguments in an encoding of their own, see code.rs.
    Code = 7,
}

impl Codec {
    const ALL: [Codec; 8] =
        [Codec::Empty, Codec::Plain, Codec::Pickle, Codec::Json, Codec::Name, Codec::Bytes, Codec::Headed, Codec::Code];

    pub fn from_u8(value: u8) -> Option<Codec> {
        Codec::ALL.get(usize::from(value)).copied()
    }
}

/// A payload's encoding, and a number of four bits by which the handler of its work tells apart what has the same encoding
/// (the head of a response and a part of its body). Handlers choose the numbers themselves; 0 means nothing in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub codec: Codec,
    pub content: u8,
}

/// Bit of [`Form::content`] in a stream: its sender says nothing after it, and takes nothing more.
pub const FAREWELL: u8 = 8;

impl Form {
    /// Numbers of contents are below this.
    pub const CONTENTS: u8 = 16;

    pub const fn new(codec: Codec, content: u8) -> Form {
        assert!(content < Form::CONTENTS, "the content has four bits");
        Form { codec, content }
    }

    /// Tells whether its sender has gone with it.
    pub fn is_farewell(self) -> bool {
        self.codec == Codec::Empty || self.content & FAREWELL != 0
    }

    pub fn to_u8(self) -> u8 {
        self.codec as u8 | self.content << 4
    }

    pub fn from_u8(value: u8) -> Option<Form> {
        Some(Form { codec: Codec::from_u8(value & 15)?, content: value >> 4 })
    }
}

impl From<Codec> for Form {
    fn from(codec: Codec) -> Form {
        Form { codec, content: 0 }
    }
}

/// The kind of a piece of work: which handler in the worker runs it, and the name of that in metrics and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkKind {
    number: u8,
    name: &'static str,
}

/// All kinds. The number, of four bits, is part of a call's flags; a worker's table of handlers is sorted by it.
impl WorkKind {
    pub const CALL: WorkKind = WorkKind::new(0, "call");
    pub const REQUEST: WorkKind = WorkKind::new(1, "request");
    pub const CONNECTION: WorkKind = WorkKind::new(2, "connection");
    pub const JOB: WorkKind = WorkKind::new(3, "job");
    /// Many items of a `map` in one call, with a result for each.
    pub const BATCH: WorkKind = WorkKind::new(4, "batch");
}

impl WorkKind {
    /// Numbers are below this.
    pub const NUMBERS: usize = 16;

    const fn new(number: u8, name: &'static str) -> WorkKind {
        assert!((number as usize) < WorkKind::NUMBERS, "the number has four bits");
        WorkKind { number, name }
    }

    pub const fn number(self) -> u8 {
        self.number
    }

    pub fn name(self) -> &'static str {
        self.name
    }
}
