//! A connection that never waits: it is opened, greets, carries one request after the other, and is opened again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use clutch_wire::sys::Poller;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::answer::{Answer, Reader};
use super::pings::Pings;
use super::plan::Address;
use super::requests::{Place, Requests};
use super::reuse::Reuse;

/// How long a connection may take until it can carry a request.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a connection that was refused is tried again.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Connection {
    token: u64,
    socket: Option<OwnedFd>,
    state: State,
    /// What it carries, and how much of that is sent.
    place: Place,
    sent: usize,
    reader: Reader,
    reuse: Reuse,
    /// Once it is a WebSocket: its server's, and the answers that are to be sent between two messages.
    pings: Option<Pings>,
    pongs: Vec<u8>,
    /// Whether the poller also tells when it takes bytes.
    is_told_of_room: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not before then is it tried again.
    Down {
        until: Instant,
    },
    Connecting {
        since: Instant,
    },
    Greeting {
        since: Instant,
    },
    Idle,
    UnderWay,
}

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Nothing,
    /// It can carry its first request.
    Opened,
    Answered(Answer),
    /// The server closed it while it was idle.
    Left,
}

/// Why a request or a connection failed.
#[derive(Debug)]
pub enum Failed {
    /// The server closed the connection in the middle.
    Closed,
    Wrong(String),
    Io(io::Error),
}

impl Failed {
    /// The server has ended the connection, in one way or another.
    pub fn is_close(&self) -> bool {
        match self {
            Failed::Closed => true,
            Failed::Wrong(_) => false,
            Failed::Io(error) => matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe),
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Io(error)
    }
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed::Io(errno.into())
    }
}

/// What all connections of a thread use.
pub struct Shared<'a> {
    pub address: &'a Address,
    pub requests: &'a Requests,
    pub poller: &'a Poller,
    pub buffer: &'a mut [u8],
    pub received: &'a mut u64,
}

impl Connection {
    pub fn new(nr: usize, requests: &Requests, now: Instant) -> Connection {
        let (state, reader) = (State::Down { until: now }, requests.reader.clone());
        let token = nr as u64;
        let (place, reuse) = (Place::default(), Reuse::default());
        let (socket, pings, pongs) = (None, None, Vec::new());
        Connection { token, socket, state, place, sent: 0, reader, reuse, pings, pongs, is_told_of_room: false }
    }

    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down { .. })
    }

    /// The request that it carries, or carried last.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Whether what it carries, which has failed so, is to be sent again once it is open again.
    pub fn is_retried(&self, requests: &Requests, failed: &Failed) -> bool {
        let is_idempotent = requests.kinds[self.place.kind].is_idempotent;
        self.state == State::UnderWay && self.reuse.is_retried(is_idempotent, failed)
    }

    /// Closes what is open, and begins to connect.
    pub fn open(&mut self, shared: &mut Shared<'_>, now: Instant) -> Result<(), Failed> {
        // Closed first: the poller forgets it, and the server may need its place.
        self.socket = None;
        self.pings = None;
        self.pongs.clear();
        self.state = State::Down { until: now + PAUSE };
        let Some(socket) = connecting(shared.address)? else { return Ok(()) };
        shared.poller.add(socket.as_fd(), self.token, true)?;
        self.is_told_of_room = true;
        self.socket = Some(socket);
        self.state = State::Connecting { since: now };
        Ok(())
    }

    /// Opens it when its pause is over; fails when it takes too long.
    pub fn look_after(&mut self, shared: &mut Shared<'_>, now: Instant) -> Result<(), Failed> {
        match self.state {
            State::Down { until } if until <= now => self.open(shared, now),
            State::Connecting { since } | State::Greeting { since } if since + OPEN_TIMEOUT <= now => {
                self.pause(now);
                Err(Failed::Io(io::ErrorKind::TimedOut.into()))
            }
            _ => Ok(()),
        }
    }

    /// Closes it for a while.
    fn pause(&mut self, now: Instant) {
        self.socket = None;
        self.state = State::Down { until: now + PAUSE };
    }

    pub fn send(&mut self, shared: &mut Shared<'_>, place: Place) -> Result<(), Failed> {
        self.place = place;
        self.sent = 0;
        self.state = State::UnderWay;
        self.reuse.sends();
        self.reader.begin(shared.requests.kinds[place.kind].is_head);
        let sent = self.flush(shared.requests.message(place))?;
        self.watch(shared.poller, !sent)
    }

    /// Does what can be done now. After a failure to open it is down, after another it is to be opened.
    pub fn progress(&mut self, shared: &mut Shared<'_>, now: Instant) -> Result<Progress, Failed> {
        match self.state {
            State::Down { .. } => Ok(Progress::Nothing),
            State::Connecting { .. } | State::Greeting { .. } => {
                let progress = self.opening(shared);
                if progress.is_err() {
                    self.pause(now);
                }
                progress
            }
            State::Idle => match self.receive(shared) {
                Ok(None) => {
                    let answered = self.flush(&[])?;
                    self.watch(shared.poller, !answered)?;
                    Ok(Progress::Nothing)
                }
                Ok(Some(0)) => Ok(Progress::Left),
                Ok(Some(count)) => Err(Failed::Wrong(format!("{count} bytes came that nobody had asked for"))),
                Err(failed) if self.reuse.is_left(&failed) => Ok(Progress::Left),
                Err(failed) => Err(failed),
            },
            State::UnderWay => {
                let requests = shared.requests;
                let kind = &requests.kinds[self.place.kind];
                let Some(mut answer) = self.exchange(shared, requests.message(self.place))? else {
                    return Ok(Progress::Nothing);
                };
                answer.closes |= kind.closes || self.sent < requests.message(self.place).len();
                self.state = State::Idle;
                self.reuse.answered();
                Ok(Progress::Answered(answer))
            }
        }
    }

    fn opening(&mut self, shared: &mut Shared<'_>) -> Result<Progress, Failed> {
        let requests = shared.requests;
        if let (State::Connecting { since }, Some(socket)) = (self.state, &self.socket) {
            sockopt::socket_error(socket)??;
            let Some(greeting) = &requests.greeting else { return self.opened(shared) };
            (self.state, self.sent, self.reader) = (State::Greeting { since }, 0, Reader::Http(Default::default()));
            let sent = self.flush(greeting)?;
            self.watch(shared.poller, !sent)?;
            return Ok(Progress::Nothing);
        }
        let greeting = requests.greeting.as_deref().unwrap_or_default();
        match self.exchange(shared, greeting)? {
            None => Ok(Progress::Nothing),
            Some(Answer { status: Some(101), .. }) => self.opened(shared),
            Some(answer) => Err(Failed::Wrong(format!("status {} where 101 opens one", answer.status.unwrap_or(0)))),
        }
    }

    fn opened(&mut self, shared: &mut Shared<'_>) -> Result<Progress, Failed> {
        self.state = State::Idle;
        self.reuse = Reuse::default();
        self.pings = shared.requests.greeting.is_some().then(Pings::default);
        self.reader = shared.requests.reader.clone();
        self.watch(shared.poller, false)?;
        Ok(Progress::Opened)
    }

    /// Sends what is left of the message and reads what there is of its answer. A server may answer, and close, before
    /// it has read all: its answer counts, then.
    fn exchange(&mut self, shared: &mut Shared<'_>, message: &[u8]) -> Result<Option<Answer>, Failed> {
        let sent = self.flush(message);
        let answer = match self.receive(shared)? {
            None => None,
            Some(0) => Some(self.reader.end().ok_or(Failed::Closed)?),
            Some(count) => {
                self.reuse.hears();
                self.reader.take(&shared.buffer[..count]).map_err(|wrong| Failed::Wrong(wrong.0))?
            }
        };
        let sent = if self.pongs.is_empty() { sent } else { self.flush(message) };
        if answer.is_none() {
            self.watch(shared.poller, !sent?)?;
        }
        Ok(answer)
    }

    /// Sends as much of the message as there is room for, and of pongs before or behind it; whether that is all.
    fn flush(&mut self, message: &[u8]) -> Result<bool, Failed> {
        let Some(socket) = &self.socket else { return Err(Failed::Closed) };
        if self.sent == 0 || self.sent >= message.len() {
            let count = send_some(socket, &self.pongs)?;
            self.pongs.drain(..count);
            if !self.pongs.is_empty() {
                return Ok(false);
            }
        }
        self.sent += send_some(socket, message.get(self.sent..).unwrap_or_default())?;
        Ok(self.sent >= message.len())
    }

    /// How many bytes came into the buffer; none if there is nothing to read now.
    fn receive(&mut self, shared: &mut Shared<'_>) -> Result<Option<usize>, Failed> {
        let Some(socket) = &self.socket else { return Err(Failed::Closed) };
        match rustix::io::read(socket, &mut *shared.buffer) {
            Ok(count) => {
                *shared.received += count as u64;
                let Some(pings) = self.pings.as_mut().filter(|_| count > 0) else { return Ok(Some(count)) };
                let others = pings.take_out(&mut shared.buffer[..count], &mut self.pongs);
                Ok((others > 0).then_some(others))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Lets the poller tell when there is room, or no longer.
    fn watch(&mut self, poller: &Poller, for_room: bool) -> Result<(), Failed> {
        if let (Some(socket), true) = (&self.socket, self.is_told_of_room != for_room) {
            poller.modify(socket.as_fd(), self.token, for_room)?;
            self.is_told_of_room = for_room;
        }
        Ok(())
    }
}

/// Sends what there is room for, and says how much that was.
fn send_some(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Failed> {
    let mut count = 0;
    while count < bytes.len() {
        match rustix::net::send(socket, &bytes[count..], SendFlags::NOSIGNAL) {
            Ok(more) => count += more,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(count)
}

/// A socket that connects; none if the server has no room for another one yet, which only Unix sockets tell.
fn connecting(address: &Address) -> Result<Option<OwnedFd>, Failed> {
    let (socket, connected) = match address {
        Address::Tcp(address) => {
            let socket = socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            let connected = rustix::net::connect(&socket, address);
            (socket, connected)
        }
        Address::Unix(path) => {
            let socket = socket(AddressFamily::UNIX)?;
            let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_path())?);
            (socket, connected)
        }
    };
    match connected {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(Some(socket)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}
