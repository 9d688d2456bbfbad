//! A worker's side of the channel by which it gets connections, in the hands of a test.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use clutch_fronts::held::Ledger;
use clutch_fronts::held::ledger::{Adoption, Ended, Turn};
use clutch_fronts::held::message::{MESSAGE_BYTES_MAX, Settings, ToFront, ToWorker, Told};
use clutch_wire::sys;

use super::{PATIENCE, Worker};

/// A connection that was passed.
pub struct Passed {
    pub place: u32,
    /// Address and port of the client.
    pub client: (String, u16),
    pub bytes: Vec<u8>,
}

impl Passed {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).expect("text")
    }
}

/// What the front says next.
pub enum Heard {
    Pass(Passed),
    Taken(u32),
}

/// See the file's head.
pub struct Holding {
    pub settings: Settings,
    pub ledger: Ledger,
    channel: OwnedFd,
    sockets: HashMap<u32, TcpStream>,
    /// Of what runs on each connection, or comes next.
    turns: HashMap<u32, Turn>,
}

impl Holding {
    /// Takes the channel that the worker is sent, and the front's first message.
    pub fn of(worker: &mut Worker) -> Holding {
        let channel = worker.expect_channel();
        let (bytes, descriptor) = receive(&channel);
        let ledger = Ledger::open(descriptor.expect("a ledger")).expect("a ledger");
        match ToWorker::read(&bytes) {
            Ok(ToWorker::Settings(settings)) => {
                Holding { settings, ledger, channel, sockets: HashMap::new(), turns: HashMap::new() }
            }
            other => panic!("settings were expected, not {other:?}"),
        }
    }

    pub fn hear(&mut self) -> Heard {
        let (bytes, descriptor) = receive(&self.channel);
        match ToWorker::read(&bytes).expect("a message") {
            ToWorker::Pass { place, client, bytes, .. } => {
                self.sockets.insert(place, TcpStream::from(descriptor.expect("a connection")));
                let client = (client.address.to_owned(), client.port);
                Heard::Pass(Passed { place, client, bytes: bytes.to_vec() })
            }
            ToWorker::Taken { place } => {
                self.sockets.remove(&place).expect("a connection that it holds");
                Heard::Taken(place)
            }
            other => panic!("not expected: {other:?}"),
        }
    }

    pub fn next_pass(&mut self) -> Passed {
        match self.hear() {
            Heard::Pass(passed) => passed,
            Heard::Taken(place) => panic!("{place} was taken, and a connection expected"),
        }
    }

    /// Waits until a connection is taken back, and frees its place.
    pub fn next_taken(&mut self) -> u32 {
        match self.hear() {
            Heard::Taken(place) => {
                self.ledger.free(place);
                place
            }
            Heard::Pass(passed) => panic!("{} was passed, and another expected to be taken", passed.place),
        }
    }

    /// Claims a connection for its request.
    pub fn begin(&mut self, place: u32) {
        assert!(self.try_begin(place), "it was taken: {:?}", self.ledger.state(place));
    }

    /// The same; false: the front has it.
    fn try_begin(&mut self, place: u32) -> bool {
        let begun = self.ledger.begin(place);
        self.turns.extend(begun.map(|turn| (place, turn)));
        begun.is_some()
    }

    /// Notes what runs, so that the front may adopt it. `word`: of the board.
    pub fn note(&self, place: u32, word: u32, request: &[u8]) {
        self.ledger.note(self.turn(place), word, request);
    }

    pub fn turn(&self, place: u32) -> Turn {
        self.turns[&place]
    }

    /// The next request, of so many bytes, on a connection that it holds: it begins with it. One that is slow to come by may
    /// have lost the connection meanwhile, and gets it again. Returns its place.
    pub fn next_request(&mut self, place: u32, request: &[u8]) -> u32 {
        if self.try_begin(place) {
            assert_eq!(self.read(place, request.len()), request);
            return place;
        }
        self.next_taken();
        let passed = self.next_pass();
        assert_eq!(passed.bytes, request);
        self.begin(passed.place);
        passed.place
    }

    /// Reads so many bytes of a connection that it has begun to read.
    pub fn read(&mut self, place: u32, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let mut socket = &self.sockets[&place];
        let mut read = 0;
        while read < count {
            assert!(sys::wait_readable(socket.as_fd(), Some(Instant::now() + PATIENCE)).expect("poll"), "nothing came");
            read += socket.read(&mut bytes[read..]).expect("bytes");
        }
        bytes
    }

    /// Writes (a part of) a response.
    pub fn write(&mut self, place: u32, text: &str) {
        assert!(self.ledger.answers(self.turn(place)));
        (&self.sockets[&place]).write_all(text.as_bytes()).expect("room for a response");
    }

    /// Answers a request that has begun, and rests. Returns by what the pool knows it, which is to be ended by its link.
    pub fn answer(&mut self, place: u32, body: &str) -> Option<Adoption> {
        self.write(place, &response(body));
        let adoption = self.over(place);
        let (adopted, bytes) = (adoption.is_some(), body.len() as u64);
        self.tell(Told { place, status: 200, method: "GET", bytes, adopted, ..Told::default() });
        self.ledger.rest(self.turn(place));
        adoption
    }

    /// The response is over.
    pub fn over(&mut self, place: u32) -> Option<Adoption> {
        match self.ledger.over(self.turn(place)) {
            Ended::Done { next, adoption } => {
                self.turns.insert(place, next);
                adoption
            }
            Ended::Taken => panic!("the front has taken it"),
        }
    }

    pub fn tell(&self, told: Told<'_>) {
        self.send(&ToFront::Told(told));
    }

    pub fn send(&self, message: &ToFront<'_>) {
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        sys::send(self.channel.as_fd(), &bytes, &[], true).expect("the channel");
    }

    /// Hands back a connection that it has, or that rests.
    pub fn hand_back(&mut self, place: u32, bytes: &[u8]) {
        drop(self.sockets.remove(&place));
        self.send(&ToFront::Back { place, bytes });
    }

    /// Ends a connection that it has.
    pub fn close(&mut self, place: u32) {
        drop(self.sockets.remove(&place));
        self.send(&ToFront::Gone { place });
    }
}

pub fn response(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn receive(channel: &OwnedFd) -> (Vec<u8>, Option<OwnedFd>) {
    let (mut bytes, mut descriptors) = (vec![0; MESSAGE_BYTES_MAX], Vec::new());
    let readable = sys::wait_readable(channel.as_fd(), Some(Instant::now() + PATIENCE)).expect("poll");
    assert!(readable, "the front sent nothing");
    let count = sys::receive_with_descriptors(channel.as_fd(), &mut bytes, &mut descriptors, false);
    bytes.truncate(count.expect("the channel"));
    assert!(!bytes.is_empty(), "the front has closed the channel");
    (bytes, descriptors.pop())
}
