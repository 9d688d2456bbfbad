//! Messages between a front and a worker that holds connections of it. docs/wire.md shows the bytes. Knows no I/O.

use std::borrow::Cow;

use clutch_wire::frame::WireError;
use clutch_wire::headers::{Reader, put_long, put_short};
use memchr::memrchr;
use serde::{Deserialize, Serialize};

use super::ledger::Adoption;
use crate::account::classes::{BUCKETS, Times};
use crate::codec::http::Place;

/// Most bytes of a client that go with the message that passes its connection.
pub const FIRST_BYTES_MAX: usize = 8 << 10;

/// Longest message. A connection that is handed back has at most a head and the body of a plain request behind it, a record
/// the head of a plain request and what is told of that of its response.
pub const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Most bytes of the head of a response that are told.
const TOLD_HEAD_BYTES_MAX: usize = 64 << 10;

/// What a worker has to know of the front whose connections it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Most bytes of a head and of a body that a worker takes by itself, and most header lines.
    pub head_bytes_max: usize,
    pub headers_max: usize,
    pub body_bytes_max: usize,
    /// Prefix that a proxy puts before the app's own paths.
    pub root_path: String,
    /// Time that a client has to take some of what waits for it, in milliseconds.
    pub write_timeout_ms: u64,
    /// Each record has the heads of its request and its response, for a line in a log.
    pub wants_heads: bool,
    /// Addresses and networks of proxies that are believed, for [`Trust`](crate::app::forwarded::Trust).
    #[serde(default)]
    pub forwarded_allow: Vec<String>,
    /// Words of the board for what the worker takes by itself: one for each of its slots or event loops.
    #[serde(default)]
    pub words: Vec<u32>,
}

/// Message of a front.
#[derive(Debug, PartialEq, Eq)]
pub enum ToWorker<'a> {
    /// The first one. The descriptor of the [`Ledger`](super::Ledger) goes with it.
    Settings(Settings),
    /// A connection, whose descriptor goes with it, and what its client has sent already.
    Pass { place: u32, client: Place<'a>, server: Place<'a>, bytes: &'a [u8] },
    /// The front has taken the connection back: the worker closes its descriptor and frees the place.
    Taken { place: u32 },
    /// By what the pool knows what goes on behind a response; none: it has not taken it.
    Known { number: u32, adoption: Option<Adoption> },
}

/// Message of a worker.
#[derive(Debug, PartialEq, Eq)]
pub enum ToFront<'a> {
    /// The worker holds the connection no longer; these bytes of its client were read and not answered. The place is the front's.
    Back { place: u32, bytes: &'a [u8] },
    /// The connection has ended. The place is the front's.
    Gone { place: u32 },
    /// A request has ended.
    Told(Told<'a>),
    /// Requests have ended that nobody wants to know one by one.
    Sum(Sum<'a>),
    /// The worker takes no further connection.
    Leaving,
    /// Code goes on behind a response that is over, as background tasks do. The answer is [`ToWorker::Known`].
    GoesOn(GoesOn<'a>),
}

/// Code that goes on behind a response which is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoesOn<'a> {
    /// The worker's own for it.
    pub number: u32,
    /// Since its request began, in microseconds.
    pub age_us: u64,
    /// First bytes of the request, as the ledger has them.
    pub beginning: &'a [u8],
}

/// Record of a request that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told<'a> {
    pub place: u32,
    /// 0: no response was begun.
    pub status: u16,
    pub end: ToldEnd,
    /// The pool knew it: the worker has ended it by its link, too.
    pub adopted: bool,
    pub method: &'a str,
    /// From its last byte until its client had the response, in microseconds; and until the response began.
    pub after_us: u64,
    pub head_after_us: u64,
    /// CPU time of the thread that ran it, in microseconds; 0: it is not known.
    pub cpu_us: u64,
    /// Of the response's body.
    pub bytes: u64,
    /// By which the app's framework found what answers; empty: it has told none.
    pub route: &'a [u8],
    /// The heads as they were on the wire; empty where they are not wanted. Of a long one of a response only the first lines
    /// arrive.
    pub request_head: &'a [u8],
    pub response_head: &'a [u8],
}

/// Requests with one status, method and route, which their clients had to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum<'a> {
    pub(crate) status: u16,
    pub(crate) method: &'a str,
    /// By which the app's framework found what answers; empty: it has told none.
    pub(crate) route: &'a [u8],
    /// Of the responses' bodies.
    pub(crate) bytes: u64,
    pub(crate) times: Times,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ToldEnd {
    #[default]
    Whole = 0,
    /// The app did not finish the response.
    BrokenOff = 1,
    /// The client left, or was too slow.
    ClientGone = 2,
    /// The app has made none, and its client had the words for that.
    Failed = 3,
}

mod kind {
    pub(super) const SETTINGS: u8 = 1;
    pub(super) const PASS: u8 = 2;
    pub(super) const TAKEN: u8 = 3;
    pub(super) const KNOWN: u8 = 4;
    pub(super) const BACK: u8 = 17;
    pub(super) const GONE: u8 = 18;
    pub(super) const TOLD: u8 = 19;
    pub(super) const LEAVING: u8 = 20;
    pub(super) const GOES_ON: u8 = 21;
    pub(super) const SUM: u8 = 22;
}

/// Set in the byte for the end of a request.
const ADOPTED: u8 = 0x80;

fn begin(out: &mut Vec<u8>, kind: u8, place: u32) {
    out.push(kind);
    out.extend_from_slice(&place.to_le_bytes());
}

fn put_place(out: &mut Vec<u8>, place: Place<'_>) {
    put_short(out, place.address.as_bytes());
    out.extend_from_slice(&place.port.to_le_bytes());
}

fn place<'a>(reader: &mut Reader<'a>) -> Result<Place<'a>, WireError> {
    Ok(Place { address: reader.text()?, port: reader.u16()? })
}

/// None: nothing is left.
fn adoption(reader: &mut Reader<'_>) -> Result<Option<Adoption>, WireError> {
    if reader.rest().is_empty() {
        return Ok(None);
    }
    Ok(Some(Adoption { id: reader.u64()?, word: reader.u32()?, next_word: reader.u32()? }))
}

fn unknown(kind: u8) -> WireError {
    WireError::Kind(kind)
}

impl<'a> ToWorker<'a> {
    /// Appends the message: one for each datagram.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            ToWorker::Settings(settings) => {
                begin(out, kind::SETTINGS, 0);
                // Numbers and truth values: nothing that could fail.
                out.extend(serde_json::to_vec(settings).unwrap_or_default());
            }
            ToWorker::Pass { place, client, server, bytes } => {
                begin(out, kind::PASS, *place);
                put_place(out, *client);
                put_place(out, *server);
                out.extend_from_slice(bytes);
            }
            ToWorker::Taken { place } => begin(out, kind::TAKEN, *place),
            ToWorker::Known { number, adoption } => {
                begin(out, kind::KNOWN, *number);
                if let Some(Adoption { id, word, next_word }) = adoption {
                    out.extend_from_slice(&id.to_le_bytes());
                    out.extend_from_slice(&word.to_le_bytes());
                    out.extend_from_slice(&next_word.to_le_bytes());
                }
            }
        }
    }

    pub fn read(message: &'a [u8]) -> Result<ToWorker<'a>, WireError> {
        let mut reader = Reader::new(message);
        let (kind, at) = (reader.u8()?, reader.u32()?);
        Ok(match kind {
            kind::SETTINGS => ToWorker::Settings(
                serde_json::from_slice(reader.rest()).map_err(|error| WireError::Text(error.to_string()))?,
            ),
            kind::PASS => ToWorker::Pass {
                place: at,
                client: place(&mut reader)?,
                server: place(&mut reader)?,
                bytes: reader.rest(),
            },
            kind::TAKEN => ToWorker::Taken { place: at },
            kind::KNOWN => ToWorker::Known { number: at, adoption: adoption(&mut reader)? },
            other => return Err(unknown(other)),
        })
    }

    /// Whether a descriptor goes with it.
    pub fn carries(&self) -> bool {
        matches!(self, ToWorker::Settings(_) | ToWorker::Pass { .. })
    }
}

impl<'a> ToFront<'a> {
    /// Appends the message. Records may follow each other in one datagram; any other message is alone in its own.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            ToFront::Back { place, bytes } => {
                begin(out, kind::BACK, *place);
                out.extend_from_slice(bytes);
            }
            ToFront::Gone { place } => begin(out, kind::GONE, *place),
            ToFront::Told(told) => {
                begin(out, kind::TOLD, told.place);
                told.put(out);
            }
            ToFront::Sum(sum) => {
                begin(out, kind::SUM, 0);
                sum.put(out);
            }
            ToFront::Leaving => begin(out, kind::LEAVING, 0),
            ToFront::GoesOn(GoesOn { number, age_us, beginning }) => {
                begin(out, kind::GOES_ON, *number);
                out.extend_from_slice(&age_us.to_le_bytes());
                out.extend_from_slice(beginning);
            }
        }
    }

    /// The first message of a datagram, and what follows it.
    pub fn read(datagram: &'a [u8]) -> Result<(ToFront<'a>, &'a [u8]), WireError> {
        let mut reader = Reader::new(datagram);
        let (kind, place) = (reader.u8()?, reader.u32()?);
        Ok(match kind {
            kind::BACK => (ToFront::Back { place, bytes: reader.rest() }, &[]),
            kind::GONE => (ToFront::Gone { place }, reader.rest()),
            kind::TOLD => (ToFront::Told(Told::read(place, &mut reader)?), reader.rest()),
            kind::SUM => (ToFront::Sum(Sum::read(&mut reader)?), reader.rest()),
            kind::LEAVING => (ToFront::Leaving, reader.rest()),
            kind::GOES_ON => {
                let (number, age_us) = (place, reader.u64()?);
                (ToFront::GoesOn(GoesOn { number, age_us, beginning: reader.rest() }), &[])
            }
            other => return Err(unknown(other)),
        })
    }
}

impl<'a> Told<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.status.to_le_bytes());
        out.push(self.end as u8 | if self.adopted { ADOPTED } else { 0 });
        put_short(out, self.method.as_bytes());
        for number in [self.after_us, self.head_after_us, self.cpu_us, self.bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_short(out, self.route);
        put_long(out, self.request_head);
        put_long(out, &told_of(self.response_head));
    }

    fn read(place: u32, reader: &mut Reader<'a>) -> Result<Told<'a>, WireError> {
        let (status, end) = (reader.u16()?, reader.u8()?);
        Ok(Told {
            place,
            status,
            adopted: end & ADOPTED != 0,
            end: match end & !ADOPTED {
                0 => ToldEnd::Whole,
                1 => ToldEnd::BrokenOff,
                3 => ToldEnd::Failed,
                _ => ToldEnd::ClientGone,
            },
            method: reader.text()?,
            after_us: reader.u64()?,
            head_after_us: reader.u64()?,
            cpu_us: reader.u64()?,
            bytes: reader.u64()?,
            route: reader.short()?,
            request_head: reader.long()?,
            response_head: reader.long()?,
        })
    }
}

impl<'a> Sum<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.status.to_le_bytes());
        put_short(out, self.method.as_bytes());
        put_short(out, self.route);
        for number in [self.bytes, self.times.total_us].into_iter().chain(self.times.counts) {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Sum<'a>, WireError> {
        let (status, method, route) = (reader.u16()?, reader.text()?, reader.short()?);
        let (bytes, total_us) = (reader.u64()?, reader.u64()?);
        let mut counts = [0; BUCKETS];
        for count in &mut counts {
            *count = reader.u64()?;
        }
        Ok(Sum { status, method, route, bytes, times: Times { counts, total_us } })
    }
}

/// What is told of a head: all of it, or a head of its first lines.
fn told_of(head: &[u8]) -> Cow<'_, [u8]> {
    if head.len() <= TOLD_HEAD_BYTES_MAX {
        return head.into();
    }
    let end = memrchr(b'\n', &head[..TOLD_HEAD_BYTES_MAX]).map_or(0, |at| at + 1);
    [&head[..end], b"\r\n"].concat().into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn messages_come_back_as_they_went() {
        let here = Place { address: "10.0.0.1", port: 4711 };
        let settings = Settings { head_bytes_max: 1, headers_max: 2, wants_heads: true, ..Settings::default() };
        for message in [
            ToWorker::Settings(settings),
            ToWorker::Pass { place: 3, client: here, server: Place::default(), bytes: b"GET" },
            ToWorker::Taken { place: 4 },
            ToWorker::Known { number: 5, adoption: None },
            ToWorker::Known { number: 5, adoption: Some(Adoption { id: 1 << 40, word: 2, next_word: 3 }) },
        ] {
            let mut bytes = Vec::new();
            message.put(&mut bytes);
            assert_eq!(ToWorker::read(&bytes), Ok(message));
        }
        let told = Told {
            place: 1,
            status: 200,
            end: ToldEnd::ClientGone,
            adopted: true,
            method: "GET",
            after_us: 1 << 40,
            head_after_us: 2,
            cpu_us: 4,
            bytes: 3,
            route: b"/items/{id}",
            request_head: b"GET",
            response_head: b"HTTP",
        };
        let (mut bytes, whole) = (Vec::new(), ToFront::Told(told.clone()));
        whole.put(&mut bytes);
        ToFront::Leaving.put(&mut bytes);
        let (first, rest) = ToFront::read(&bytes).expect("a record");
        assert_eq!((first, ToFront::read(rest)), (whole, Ok((ToFront::Leaving, &b""[..]))));
        for cut in 0..bytes.len() - 5 {
            assert!(ToFront::read(&bytes[..cut]).is_err(), "{cut}");
        }
        let goes_on = ToFront::GoesOn(GoesOn { number: 7, age_us: 1 << 40, beginning: b"GET / HTTP/1.1" });
        let mut times = Times::of(Duration::from_millis(20));
        times.note(Duration::from_secs(100));
        let sum = ToFront::Sum(Sum { status: 404, method: "GET", route: b"/items/{id}", bytes: 1 << 40, times });
        for message in [ToFront::Back { place: 9, bytes: b"more" }, ToFront::Gone { place: 8 }, goes_on, sum] {
            let mut bytes = Vec::new();
            message.put(&mut bytes);
            assert_eq!(ToFront::read(&bytes), Ok((message, &b""[..])));
        }
    }

    #[test]
    fn of_a_head_that_is_too_long_for_a_message_the_first_lines_are_told() {
        let line = format!("x: {}\r\n", "y".repeat(1000));
        let (head, request_head) = (format!("HTTP/1.1 200 OK\r\n{}\r\n", line.repeat(300)), vec![b'z'; 16 << 10]);
        let told = Told { response_head: head.as_bytes(), request_head: &request_head, ..Told::default() };
        let mut bytes = Vec::new();
        ToFront::Told(told).put(&mut bytes);
        assert!(bytes.len() < MESSAGE_BYTES_MAX);
        let Ok((ToFront::Told(read), &[])) = ToFront::read(&bytes) else { panic!("no record") };
        assert_eq!(read.request_head, request_head);
        let text = std::str::from_utf8(read.response_head).expect("text");
        let lines = text.strip_suffix("\r\n").expect("the end of a head");
        assert!(head.starts_with(lines) && lines.ends_with(&line) && lines.len() > 60_000);
    }
}
