//! A connection: the request that it repeats, and the answer that it reads.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use clutch_wire::sys::Poller;

use super::answer::{Answer, Reader};
use super::plan::{Plan, Protocol};

const READ_BYTES: usize = 64 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Any sixteen bytes do: the server only hashes them.
const WEB_SOCKET_KEY: &str = "Y2x1dGNoIGxvYWQgcGxhbg==";
/// A message as long as this needs a longer head, which this client does not write.
const MESSAGE_BYTES_LIMIT: usize = 126;
/// FIN and the opcode of a text.
const TEXT_FRAME: u8 = 0x81;
const MASKED: u8 = 0x80;
/// A mask of zeros leaves the text as it is; that a mask is there is what servers check.
const MASK: [u8; 4] = [0; 4];

#[derive(Debug)]
pub struct Client {
    nr: usize,
    stream: TcpStream,
    request: Vec<u8>,
    reader: Reader,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects, and speaks until the first request can be sent.
    pub fn connect(plan: &Plan) -> io::Result<Client> {
        let mut stream = TcpStream::connect_timeout(&plan.address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        let (request, reader) = match &plan.protocol {
            Protocol::Http { path } => (get(plan, path, ""), Reader::http()),
            Protocol::Tcp { message, answer } => (message.clone().into_bytes(), exact(answer.as_bytes().to_vec())?),
            Protocol::WebSocket { path, message } => {
                upgrade(&mut stream, plan, path)?;
                (text_frame(message, true)?, exact(text_frame(message, false)?)?)
            }
        };
        Ok(Client { nr: 0, stream, request, reader, buffer: vec![0; READ_BYTES] })
    }

    /// Returns its number among all of the plan.
    pub fn nr(&self) -> usize {
        self.nr
    }

    pub fn numbered(self, nr: usize) -> Client {
        Client { nr, ..self }
    }

    /// Reads wait, for so long at most.
    pub fn block_for(&self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))
    }

    /// Reads do not wait; the poller says when something came.
    pub fn poll_with(&self, poller: &Poller, token: u64) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        poller.add(self.stream.as_fd(), token, false)
    }

    /// A request is smaller than an empty socket's buffer, so this does not wait.
    pub fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request)
    }

    pub fn receive(&mut self) -> io::Result<Answer> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(count) => self.reader.take(&self.buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Answer::Partial),
            Err(error) => Err(error),
        }
    }
}

fn get(plan: &Plan, path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{more}\r\n", plan.address).into_bytes()
}

fn exact(expected: Vec<u8>) -> io::Result<Reader> {
    if expected.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty answer cannot be waited for"));
    }
    Ok(Reader::exact(expected))
}

fn upgrade(stream: &mut TcpStream, plan: &Plan, path: &str) -> io::Result<()> {
    let asks = format!(
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {WEB_SOCKET_KEY}\r\n"
    );
    stream.write_all(&get(plan, path, &asks))?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Ok(());
    }
    Err(io::Error::other(format!("no WebSocket at {path}: {}", String::from_utf8_lossy(&head))))
}

/// A text message in one frame, as clients (masked) or servers (not) send it.
fn text_frame(message: &str, masked: bool) -> io::Result<Vec<u8>> {
    if message.len() >= MESSAGE_BYTES_LIMIT {
        let given = message.len();
        let error = format!("a message of {given} bytes; fewer than {MESSAGE_BYTES_LIMIT} are possible");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    }
    let length = message.len() as u8;
    let head: &[u8] =
        if masked { &[&[TEXT_FRAME, length | MASKED][..], &MASK].concat() } else { &[TEXT_FRAME, length] };
    Ok([head, message.as_bytes()].concat())
}
