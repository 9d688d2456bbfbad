//! How a payload is encoded.

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
    /// One raw `bytes` object, the whole content of its payload.
    Bytes = 5,
    /// Pairs of index and item of a mapped batch (see docs/wire.md, "batch").
    Batch = 6,
    /// The head of a request or a response, and the body or its first part behind it.
    Http = 7,
    /// The last bytes of a body.
    Last = 8,
    /// A WebSocket message of text.
    Text = 9,
    /// A WebSocket closes: its code, two bytes, and the reason, as text.
    Close = 10,
    /// Header lines (see headers.rs), then JSON up to the end, or as all of the first region: a call of a network front.
    HeadedJson = 11,
    /// Header lines, then JSON in the same way: the arguments of a job, and what it is told beside them.
    Job = 12,
}

impl Codec {
    pub fn from_u8(value: u8) -> Option<Codec> {
        Some(match value {
            0 => Codec::Empty,
            1 => Codec::Plain,
            2 => Codec::Pickle,
            3 => Codec::Json,
            4 => Codec::Name,
            5 => Codec::Bytes,
            6 => Codec::Batch,
            7 => Codec::Http,
            8 => Codec::Last,
            9 => Codec::Text,
            10 => Codec::Close,
            11 => Codec::HeadedJson,
            12 => Codec::Job,
            _ => return None,
        })
    }
}
