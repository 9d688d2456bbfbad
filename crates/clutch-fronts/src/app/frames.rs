//! The messages in the bytes of a WebSocket's client: a pure machine, for a worker that reads these itself.
//!
//! It takes what ordinary clients send: messages, whole or in parts, pings and pongs. All else (the end, and whatever is
//! wrong) it leaves where it is, for the front, which judges it.

use std::io::Cursor;

use clutch_wire::{Codec, Form};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::codec::TEXT;

/// Longest payload of a ping (RFC 6455, 5.5).
const CONTROL_BYTES_MAX: u64 = 125;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// A message that came as one frame.
    Message(Form, &'a [u8]),
    /// One that came in parts.
    Joined(Form, Vec<u8>),
    /// A ping, which is answered with the same payload.
    Ping(&'a [u8]),
    /// A part of a message, or a pong.
    Nothing,
    /// A frame that is not whole.
    More,
    /// What is the front's to judge.
    Other,
}

/// See the file's head.
#[derive(Debug)]
pub struct Frames {
    message_bytes_max: usize,
    begun: Option<Begun>,
}

/// A message of which some parts have come.
#[derive(Debug)]
struct Begun {
    kind: Data,
    bytes: Vec<u8>,
    /// So many of them are whole characters, of text.
    checked: usize,
}

impl Begun {
    /// Adds a part. False: no text can begin so, or end.
    fn add(&mut self, part: &[u8], is_last: bool) -> bool {
        self.bytes.extend_from_slice(part);
        if self.kind != Data::Text {
            return true;
        }
        match std::str::from_utf8(&self.bytes[self.checked..]) {
            Ok(rest) => self.checked += rest.len(),
            Err(error) if error.error_len().is_some() || is_last => return false,
            Err(error) => self.checked += error.valid_up_to(),
        }
        true
    }
}

impl Frames {
    pub fn new(message_bytes_max: usize) -> Frames {
        Frames { message_bytes_max, begun: None }
    }

    /// Reads the frame with which these bytes begin, and how many of them it has. What is left to somebody else is as it came.
    pub fn read<'a>(&mut self, bytes: &'a mut [u8]) -> (Read<'a>, usize) {
        let mut cursor = Cursor::new(&*bytes);
        let Ok(head) = FrameHeader::parse(&mut cursor) else { return (Read::Other, 0) };
        let Some((head, length)) = head else { return (Read::More, 0) };
        let Some(mask) = head.mask.filter(|_| !head.rsv1 && !head.rsv2 && !head.rsv3) else { return (Read::Other, 0) };
        let begun = self.begun.as_ref().map_or(0, |begun| begun.bytes.len());
        let is_plain = match head.opcode {
            OpCode::Data(Data::Text | Data::Binary) => self.begun.is_none(),
            OpCode::Data(Data::Continue) => self.begun.is_some(),
            OpCode::Control(Control::Ping | Control::Pong) => head.is_final && length <= CONTROL_BYTES_MAX,
            _ => false,
        };
        let is_control = matches!(head.opcode, OpCode::Control(_));
        let room = self.message_bytes_max.saturating_sub(if is_control { 0 } else { begun }) as u64;
        if !is_plain || (length > room && !is_control) {
            return (Read::Other, 0);
        }
        let start = cursor.position() as usize;
        let end = start.saturating_add(length as usize);
        let Some(payload) = bytes.get_mut(start..end) else { return (Read::More, 0) };
        unmask(payload, mask);
        let read = match head.opcode {
            OpCode::Control(Control::Ping) => Read::Ping(payload),
            OpCode::Control(_) => Read::Nothing,
            OpCode::Data(Data::Continue) => return self.go_on(payload, mask, (head.is_final, end)),
            OpCode::Data(kind) if head.is_final => match is_message(kind, payload) {
                true => Read::Message(form_of(kind), payload),
                false => {
                    unmask(payload, mask);
                    return (Read::Other, 0);
                }
            },
            OpCode::Data(kind) => {
                self.begun = Some(Begun { kind, bytes: Vec::new(), checked: 0 });
                let (read, count) = self.go_on(payload, mask, (false, end));
                if count == 0 {
                    // It is left to somebody else as a whole.
                    self.begun = None;
                }
                return (read, count);
            }
        };
        (read, end)
    }

    /// Takes a part of a message, the last one or not, up to this `end` of the bytes.
    fn go_on<'a>(&mut self, part: &mut [u8], mask: [u8; 4], (is_last, end): (bool, usize)) -> (Read<'a>, usize) {
        let Some(mut begun) = self.begun.take() else { return (Read::Other, 0) };
        let before = begun.bytes.len();
        if !begun.add(part, is_last) {
            begun.bytes.truncate(before);
            self.begun = Some(begun);
            unmask(part, mask);
            return (Read::Other, 0);
        }
        if is_last {
            return (Read::Joined(form_of(begun.kind), begun.bytes), end);
        }
        self.begun = Some(begun);
        (Read::Nothing, end)
    }

    /// The parts of a message that has not come to its end, as one frame: who reads on begins with it.
    pub fn into_begun(self) -> Vec<u8> {
        let Some(Begun { kind, bytes, .. }) = self.begun else { return Vec::new() };
        let head = FrameHeader { is_final: false, opcode: OpCode::Data(kind), mask: Some([0; 4]), ..head() };
        framed(head, &bytes)
    }
}

/// A message of the app's as a frame, without the content, which follows it.
pub fn put_head(out: &mut Vec<u8>, form: Form, length: usize) {
    let kind = if form == TEXT { Data::Text } else { Data::Binary };
    put(out, FrameHeader { opcode: OpCode::Data(kind), ..head() }, length);
}

/// A ping.
pub fn ping() -> Vec<u8> {
    framed(FrameHeader { opcode: OpCode::Control(Control::Ping), ..head() }, b"")
}

/// The answer to a ping.
pub fn pong(payload: &[u8]) -> Vec<u8> {
    framed(FrameHeader { opcode: OpCode::Control(Control::Pong), ..head() }, payload)
}

fn head() -> FrameHeader {
    FrameHeader {
        is_final: true,
        rsv1: false,
        rsv2: false,
        rsv3: false,
        opcode: OpCode::Data(Data::Binary),
        mask: None,
    }
}

fn framed(head: FrameHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + payload.len());
    put(&mut out, head, payload.len());
    out.extend_from_slice(payload);
    out
}

fn put(out: &mut Vec<u8>, head: FrameHeader, length: usize) {
    // Memory takes it all.
    let _ = head.format(length as u64, out);
}

fn form_of(kind: Data) -> Form {
    if kind == Data::Text { TEXT } else { Codec::Bytes.into() }
}

fn is_message(kind: Data, payload: &[u8]) -> bool {
    kind != Data::Text || std::str::from_utf8(payload).is_ok()
}

/// Masks, or unmasks.
fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let (chunks, rest) = bytes.as_chunks_mut::<4>();
    let word = u32::from_ne_bytes(mask);
    chunks.iter_mut().for_each(|chunk| *chunk = (u32::from_ne_bytes(*chunk) ^ word).to_ne_bytes());
    rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;
    use tungstenite::Message;
    use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};

    use super::*;

    const MAX: usize = 1000;

    fn masked(opcode: u8, is_last: bool, payload: &[u8]) -> Vec<u8> {
        let opcode = OpCode::from(opcode);
        let mut frame = framed(FrameHeader { is_final: is_last, opcode, mask: Some([1, 2, 3, 4]), ..head() }, payload);
        let start = frame.len() - payload.len();
        // `format` has written the mask before the content.
        unmask(&mut frame[start..], [1, 2, 3, 4]);
        frame
    }

    fn read_all(bytes: &mut [u8]) -> (Vec<String>, Vec<u8>) {
        let (mut frames, mut at, mut seen) = (Frames::new(MAX), 0, Vec::new());
        loop {
            let (read, count) = frames.read(&mut bytes[at..]);
            seen.push(format!("{read:?}"));
            if matches!(read, Read::More | Read::Other) {
                break;
            }
            at += count;
        }
        (seen, [frames.into_begun(), bytes[at..].to_vec()].concat())
    }

    #[test]
    fn what_ordinary_clients_send_is_read() {
        let text = [masked(1, true, "späť".as_bytes()), masked(9, true, b"?"), masked(10, true, b"")].concat();
        let mut bytes = [text, masked(2, false, b"ab"), masked(9, true, b""), masked(0, true, b"c")].concat();
        let (seen, left) = read_all(&mut bytes);
        let binary: Form = Codec::Bytes.into();
        let expected = [
            format!("{:?}", Read::Message(TEXT, "späť".as_bytes())),
            format!("{:?}", Read::Ping(b"?")),
            format!("{:?}", Read::Nothing),
            format!("{:?}", Read::Nothing),
            format!("{:?}", Read::Ping(b"")),
            format!("{:?}", Read::Joined(binary, b"abc".to_vec())),
            format!("{:?}", Read::More),
        ];
        assert_eq!((seen, left), (expected.to_vec(), Vec::new()));
    }

    #[test]
    fn what_is_the_fronts_to_judge_is_left_as_it_came() {
        let begun = masked(1, false, b"a");
        for (before, wrong) in [
            (&b""[..], masked(8, true, &[3, 232])),
            (b"", masked(1, true, &[255])),
            (b"", masked(0, true, b"a")),
            (b"", masked(2, true, &[0; MAX + 1])),
            (b"", masked(9, false, b"")),
            (b"", masked(3, true, b"")),
            (b"", vec![0x81, 0]),
            (b"", vec![0xc1, 0x80, 0, 0, 0, 0]),
            (&begun, masked(1, true, b"b")),
            (&begun, masked(0, true, &[255])),
            (&begun, masked(0, true, &[b'x'; MAX])),
            (&begun, masked(0, false, &[0xc3, b'a'])),
            (b"", masked(1, false, &[0xc3, b'a'])),
        ] {
            let mut bytes = [before, &wrong].concat();
            let (seen, left) = read_all(&mut bytes);
            assert_eq!(seen.last().map(String::as_str), Some("Other"), "{wrong:?}");
            let head = if before.is_empty() { Vec::new() } else { vec![1, 0x81, 0, 0, 0, 0, b'a'] };
            assert_eq!(left, [head, wrong].concat());
        }
    }

    /// A stream of whatever the client has sent, for the library.
    struct Sent(Cursor<Vec<u8>>);

    impl io::Read for Sent {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            match io::Read::read(&mut self.0, bytes)? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                count => Ok(count),
            }
        }
    }

    impl io::Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What the library finds in these bytes: messages, and how it goes on.
    fn judged(bytes: Vec<u8>) -> Vec<String> {
        let config = WebSocketConfig::default().max_message_size(Some(MAX)).max_frame_size(Some(MAX));
        let mut context = WebSocketContext::new(Role::Server, Some(config));
        let mut sent = Sent(Cursor::new(bytes));
        let mut seen = Vec::new();
        loop {
            match context.read(&mut sent) {
                Ok(Message::Text(text)) => seen.push(format!("{:?}", text.as_bytes())),
                Ok(Message::Binary(bytes)) => seen.push(format!("{:?}", &bytes[..])),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                end => {
                    seen.push(format!("{end:?}"));
                    return seen;
                }
            }
        }
    }

    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let opcode = prop_oneof![4 => Just(1u8), 3 => Just(2), 4 => Just(0), 1 => Just(9), 1 => Just(10), 1 => 0..16u8];
        let payload = prop_oneof![5 => "[a-zä]{0,40}".prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..600)];
        let frame = (opcode, prop::bool::weighted(0.6), payload)
            .prop_map(|(opcode, last, payload)| masked(opcode, last, &payload));
        prop::collection::vec(frame, 1..12).prop_map(|frames| frames.concat())
    }

    proptest! {
        /// However the bytes come, what is read here and what the front reads of the rest are what it would read of all.
        #[test]
        fn who_reads_first_changes_nothing(bytes in frames(), pieces in prop::collection::vec(1..50usize, 1..20), noise in any::<prop::sample::Index>(), flips in any::<bool>()) {
            let mut bytes = bytes;
            if flips {
                let at = noise.index(bytes.len());
                bytes[at] ^= 0x15;
            }
            let whole = judged(bytes.clone());
            let (mut frames, mut input, mut seen) = (Frames::new(MAX), Vec::new(), Vec::new());
            let mut left = bytes.as_slice();
            let mut pieces = pieces.into_iter().cycle();
            'all: while !left.is_empty() {
                let count = pieces.next().unwrap_or(1).min(left.len());
                input.extend_from_slice(&left[..count]);
                left = &left[count..];
                loop {
                    let (read, count) = frames.read(&mut input);
                    match read {
                        Read::Message(_, bytes) => seen.push(format!("{bytes:?}")),
                        Read::Joined(_, bytes) => seen.push(format!("{bytes:?}")),
                        Read::Ping(_) | Read::Nothing => {}
                        Read::More => break,
                        Read::Other => break 'all,
                    }
                    input.drain(..count);
                }
            }
            let rest = [frames.into_begun(), input, left.to_vec()].concat();
            seen.extend(judged(rest));
            prop_assert_eq!(seen, whole);
        }
    }
}
