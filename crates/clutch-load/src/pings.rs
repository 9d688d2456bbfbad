//! Pings of a WebSocket server (RFC 6455, 5.5.2): taken out of what comes, and answered. Knows no I/O.

const PING: u8 = 0x89;
/// A pong of a client, whose key leaves the payload as it is.
const PONG: u8 = 0x8a;
const MASKED: u8 = 0x80;
const NO_MASK: [u8; 4] = [0; 4];
/// Longest payload of a frame of control.
const PAYLOAD_MAX: usize = 125;
/// Lengths that say how many bytes of the length follow.
const TWO: u8 = 126;
const EIGHT: u8 = 127;

/// Where the frames of one connection stand.
#[derive(Clone, Debug, Default)]
pub struct Pings {
    head: Vec<u8>,
    /// Bytes of the payload that are still to come.
    left: u64,
    ping: Option<Vec<u8>>,
}

impl Pings {
    /// Moves what is no ping to the beginning of `bytes` and returns how much that is. Adds an answer to each ping that is
    /// whole to `pongs`.
    pub fn take_out(&mut self, bytes: &mut [u8], pongs: &mut Vec<u8>) -> usize {
        let (mut at, mut kept) = (0, 0);
        while at < bytes.len() {
            let count = if self.left == 0 { 1 } else { bytes.len().min(at.saturating_add(self.left as usize)) - at };
            let is_over = match self.left {
                0 => self.take_head(bytes[at]),
                _ => self.take_payload(&bytes[at..at + count]),
            };
            if self.ping.is_none() {
                bytes.copy_within(at..at + count, kept);
                kept += count;
            }
            if let Some(payload) = self.ping.take_if(|_| is_over) {
                pongs.extend([PONG, MASKED | payload.len() as u8]);
                pongs.extend(NO_MASK);
                pongs.extend(payload);
            }
            at += count;
        }
        kept
    }

    /// Whether the frame is over with it.
    fn take_head(&mut self, byte: u8) -> bool {
        if self.head.is_empty() {
            self.ping = (byte == PING).then(Vec::new);
        }
        self.head.push(byte);
        let length = self.head.get(1).map(|length| length & !MASKED);
        let more: &[u8] = match (length, &self.head[..]) {
            (Some(TWO), [_, _, more @ ..]) if more.len() == 2 => more,
            (Some(EIGHT), [_, _, more @ ..]) if more.len() == 8 => more,
            (Some(length @ ..TWO), _) => &[length],
            _ => return false,
        };
        self.left = more.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        self.head.clear();
        self.left == 0
    }

    fn take_payload(&mut self, bytes: &[u8]) -> bool {
        if let Some(payload) = &mut self.ping {
            let room = PAYLOAD_MAX - payload.len();
            payload.extend(&bytes[..bytes.len().min(room)]);
        }
        self.left -= bytes.len() as u64;
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len();
        let mut made = vec![0x80 | opcode];
        match length {
            ..126 => made.push(length as u8),
            126..0x1_0000 => made.extend([&[TWO][..], &(length as u16).to_be_bytes()].concat()),
            _ => made.extend([&[EIGHT][..], &(length as u64).to_be_bytes()].concat()),
        }
        made.extend(payload);
        made
    }

    #[test]
    fn a_ping_is_answered_with_its_payload() {
        let (mut bytes, mut pongs) = (frame(9, b"now"), Vec::new());
        assert_eq!(Pings::default().take_out(&mut bytes, &mut pongs), 0);
        assert_eq!(pongs, [0x8a, 0x83, 0, 0, 0, 0, b'n', b'o', b'w']);
    }

    proptest! {
        #[test]
        fn what_is_no_ping_comes_as_it_was_sent(
            frames in prop::collection::vec((0_u8..4, 0_usize..126), 0..20),
            long in prop::sample::select(vec![126_usize, 300, 70_000]),
            pieces in prop::collection::vec(1_usize..200, 1..50),
        ) {
            let (mut sent, mut others, mut answers) = (Vec::<u8>::new(), Vec::<u8>::new(), Vec::<u8>::new());
            for (nr, (kind, length)) in frames.into_iter().enumerate() {
                let payload = vec![nr as u8; if kind == 0 { long } else { length }];
                let made = frame(if kind == 3 { 9 } else { kind }, &payload);
                if kind == 3 {
                    answers.extend([&[0x8a, 0x80 | length as u8, 0, 0, 0, 0][..], &payload].concat());
                } else {
                    others.extend(&made);
                }
                sent.extend(made);
            }
            let (mut pings, mut kept, mut pongs) = (Pings::default(), Vec::<u8>::new(), Vec::<u8>::new());
            let (mut rest, mut sizes) = (&sent[..], pieces.iter().cycle());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(rest.len().min(*sizes.next().expect("a cycle")));
                let mut piece = piece.to_vec();
                let count = pings.take_out(&mut piece, &mut pongs);
                kept.extend(&piece[..count]);
                rest = more;
            }
            prop_assert_eq!(kept, others);
            prop_assert_eq!(pongs, answers);
        }
    }
}
