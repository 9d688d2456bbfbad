//! An HTTP/1 client that shows what is on the wire and can misbehave.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use super::PATIENCE;

trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// One connection.
pub struct Client {
    wire: Box<dyn Wire>,
    tcp: Option<TcpStream>,
    /// Read and not yet used.
    kept: Vec<u8>,
    pub host: String,
}

/// A response, its body put together.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The name of the problem that the body describes.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], self.status, "{document}");
        assert!(document["title"].is_string() && document["detail"].is_string(), "{document}");
        document["type"].as_str().and_then(|kind| kind.strip_prefix("urn:clutch:")).expect("a type").to_owned()
    }
}

impl Client {
    /// Connects to `host:port` or `unix:path`.
    pub fn new(address: &str) -> Client {
        if let Some(path) = address.strip_prefix("unix:") {
            let wire = UnixStream::connect(path).expect("a connection");
            wire.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            return Client { wire: Box::new(wire), tcp: None, kept: Vec::new(), host: "localhost".to_owned() };
        }
        let tcp = TcpStream::connect(address).expect("a connection");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        tcp.set_nodelay(true).expect("no delay");
        let wire = Box::new(tcp.try_clone().expect("a copy"));
        Client { wire, tcp: Some(tcp), kept: Vec::new(), host: address.to_owned() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).expect("the connection takes bytes");
    }

    /// Sends as much as the server takes; it may close at any time.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.wire.write_all(bytes).is_ok()
    }

    /// A request with a JSON body, and further headers as they stand.
    pub fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
        let (host, length) = (&self.host, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n");
        format!("{head}Content-Length: {length}\r\n{headers}\r\n{body}").into_bytes()
    }

    pub fn post(&mut self, path: &str, headers: &str, body: &str) -> Response {
        let request = self.request("POST", path, headers, body);
        self.send(&request);
        self.response()
    }

    pub fn get(&mut self, path: &str) -> Response {
        let host = self.host.clone();
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        self.response()
    }

    /// Says that nothing more will be sent. Who was cut off already has nobody to say it to.
    pub fn finish_sending(&self) {
        let said = self.tcp.as_ref().expect("TCP").shutdown(Shutdown::Write);
        assert!(said.is_ok() || self.is_cut_off(), "a shutdown");
    }

    fn is_cut_off(&self) -> bool {
        self.tcp.as_ref().expect("TCP").peer_addr().is_err()
    }

    // ---- what comes back

    pub fn response(&mut self) -> Response {
        let mut response = self.head();
        response.body = match response.header("transfer-encoding") {
            Some(_) => std::iter::from_fn(|| self.chunk()).flatten().collect(),
            None => {
                let length = response.header("content-length").map_or(0, |text| text.parse().expect("a length"));
                self.take(length)
            }
        };
        response
    }

    /// The head only: of a stream, whose chunks are read one by one.
    pub fn head(&mut self) -> Response {
        let head = self.until(b"\r\n\r\n");
        let head = String::from_utf8(head).expect("text");
        let status = head.get(9..12).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no status: {head}"));
        Response { status, head, body: Vec::new() }
    }

    /// The next chunk of a chunked body; none at its end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = String::from_utf8(self.until(b"\r\n")).expect("text");
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        let chunk = self.take(size);
        assert_eq!(self.take(2), b"\r\n");
        (size > 0).then_some(chunk)
    }

    /// The next line of a stream.
    pub fn line(&mut self, pieces: &mut Vec<u8>) -> Option<String> {
        loop {
            if let Some(at) = pieces.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pieces.drain(..=at).collect();
                return Some(String::from_utf8(line).expect("text").trim_end().to_owned());
            }
            pieces.extend(self.chunk()?);
        }
    }

    /// Whatever comes until the server closes; panics if it does not.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.kept)
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        while self.kept.len() < count {
            assert!(self.more(), "the server closed too early: {:?}", String::from_utf8_lossy(&self.kept));
        }
        self.kept.drain(..count).collect()
    }

    fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.kept.windows(end.len()).position(|window| window == end) {
                return self.kept.drain(..at + end.len()).collect();
            }
            assert!(self.more(), "the server closed too early: {:?}", String::from_utf8_lossy(&self.kept));
        }
    }

    /// Reads once; false when the server has closed.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        match self.wire.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.kept.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("the server is silent: {error}"),
        }
    }
}
