//! The bytes that a plan sends, made once and shared by all connections.

use std::io;

use super::answer::{Http, Reader};
use super::plan::{Address, Bytes, Plan, Protocol, Request, TcpAnswer, invalid};
use super::random::{Choice, Purpose, Random};

/// Any sixteen bytes do: the server only hashes them.
const WEB_SOCKET_KEY: &str = "Y2x1dGNoIGxvYWQgcGxhbg==";
/// A message as long as this needs a longer head, which this client does not write.
const MESSAGE_BYTES_LIMIT: usize = 126;
/// FIN and the opcode of a text.
const TEXT_FRAME: u8 = 0x81;
const MASKED: u8 = 0x80;
/// A mask of zeros leaves the text as it is; that a mask is there is what servers check.
const MASK: [u8; 4] = [0; 4];
/// Methods whose requests tell that they have no body.
const WITH_BODIES: [&str; 3] = ["POST", "PUT", "PATCH"];
/// Methods whose requests do the same when they come twice (RFC 9110, 9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

/// All that is sent, and how it is answered.
#[derive(Debug)]
pub struct Requests {
    /// What a connection sends before its first request; the answer is 101.
    pub greeting: Option<Vec<u8>>,
    pub kinds: Vec<Kind>,
    /// Reads the answers to all kinds.
    pub reader: Reader,
}

/// Messages that are one request but for their bodies.
#[derive(Debug)]
pub struct Kind {
    pub weight: u32,
    pub name: String,
    /// Used in turn.
    pub messages: Vec<Vec<u8>>,
    pub is_head: bool,
    /// A server may get it twice without harm.
    pub is_idempotent: bool,
    /// It asks for the end of the connection.
    pub closes: bool,
}

/// Place of a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub kind: usize,
    pub message: usize,
}

/// What is sent next, of one thread.
#[derive(Debug)]
pub struct Order {
    choice: Choice,
    /// For each kind: its next message.
    turns: Vec<usize>,
}

impl Requests {
    /// The bodies are those of each request, none for a request that has none.
    pub fn new<B: AsRef<[u8]>>(plan: &Plan, bodies: &[Vec<B>]) -> io::Result<Requests> {
        match &plan.protocol {
            Protocol::Http { requests } => http(&plan.address, requests, bodies),
            _ if bodies.iter().any(|bodies| !bodies.is_empty()) => Err(invalid("only HTTP has bodies".into())),
            Protocol::WebSocket { path, message } => {
                let asks = [
                    ("Upgrade", "websocket"),
                    ("Connection", "Upgrade"),
                    ("Sec-WebSocket-Version", "13"),
                    ("Sec-WebSocket-Key", WEB_SOCKET_KEY),
                ];
                let headers = asks.map(|(name, value)| (name.into(), value.into())).to_vec();
                let upgrade = Request { weight: 1, method: "GET".into(), path: path.clone(), headers };
                let greeting = rendered(&plan.address, &upgrade, None);
                let reader = exact(text_frame(message, false)?)?;
                Ok(Requests { greeting: Some(greeting), kinds: vec![Kind::only(text_frame(message, true)?)?], reader })
            }
            Protocol::Tcp { message, answer } => {
                let kinds = vec![Kind::only(message.as_slice().to_vec())?];
                Ok(Requests { greeting: None, kinds, reader: tcp_reader(answer)? })
            }
        }
    }

    pub fn message(&self, place: Place) -> &[u8] {
        &self.kinds[place.kind].messages[place.message]
    }

    pub fn order(&self, seed: u64, thread: usize) -> Order {
        let choice = Choice::new(self.kinds.iter().map(|kind| kind.weight), Random::new(seed, Purpose::Choice, thread));
        Order { choice, turns: vec![thread; self.kinds.len()] }
    }
}

impl Order {
    pub fn next(&mut self, requests: &Requests) -> Place {
        let kind = self.choice.next();
        let message = self.turns[kind] % requests.kinds[kind].messages.len();
        self.turns[kind] = message + 1;
        Place { kind, message }
    }
}

impl Kind {
    fn only(message: Vec<u8>) -> io::Result<Kind> {
        if message.is_empty() {
            return Err(invalid("an empty message is no request".into()));
        }
        let (name, messages) = ("a message".into(), vec![message]);
        Ok(Kind { weight: 1, name, messages, is_head: false, is_idempotent: false, closes: false })
    }
}

fn http<B: AsRef<[u8]>>(address: &Address, requests: &[Request], bodies: &[Vec<B>]) -> io::Result<Requests> {
    if bodies.len() > requests.len() {
        return Err(invalid(format!("bodies of {} requests, but {} requests", bodies.len(), requests.len())));
    }
    if requests.iter().all(|request| request.weight == 0) {
        return Err(invalid("a plan needs a request with a weight".into()));
    }
    let bodies = bodies.iter().map(Vec::as_slice).chain(std::iter::repeat(&[][..]));
    let kinds = requests.iter().zip(bodies).map(|(request, bodies)| http_kind(address, request, bodies));
    let kinds = kinds.collect::<io::Result<Vec<Kind>>>()?;
    Ok(Requests { greeting: None, kinds, reader: Reader::Http(Http::default()) })
}

fn http_kind<B: AsRef<[u8]>>(address: &Address, request: &Request, bodies: &[B]) -> io::Result<Kind> {
    let Request { weight, method, path, headers } = request;
    let headers = headers.iter().flat_map(|(name, value)| [name, value]);
    let in_a_word = |text: &String| !text.is_empty() && !text.bytes().any(|byte| byte <= b' ');
    if !in_a_word(method) || !in_a_word(path) || headers.into_iter().any(|text| text.contains(['\r', '\n'])) {
        return Err(invalid(format!("a request cannot be written so: {request:?}")));
    }
    let mut messages: Vec<_> = bodies.iter().map(|body| rendered(address, request, Some(body.as_ref()))).collect();
    if messages.is_empty() {
        messages.push(rendered(address, request, None));
    }
    let closes = header(request, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let (is_head, is_idempotent) = (method == "HEAD", IDEMPOTENT.contains(&method.as_str()));
    Ok(Kind { weight: *weight, name: format!("{method} {path}"), messages, is_head, is_idempotent, closes })
}

fn header<'a>(request: &'a Request, wanted: &str) -> Option<&'a str> {
    let found = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    found.map(|(_, value)| value.as_str())
}

/// The whole message.
fn rendered(address: &Address, request: &Request, body: Option<&[u8]>) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.path);
    if header(request, "host").is_none() {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in &request.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let tells_length = body.is_some() || WITH_BODIES.contains(&request.method.as_str());
    let is_framed = header(request, "content-length").or(header(request, "transfer-encoding")).is_some();
    let body = body.unwrap_or_default();
    if tells_length && !is_framed {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

fn tcp_reader(answer: &TcpAnswer) -> io::Result<Reader> {
    match answer {
        TcpAnswer::Exact(expected) => exact(expected.as_slice().to_vec()),
        TcpAnswer::Length(length) => {
            not_empty(*length)?;
            Ok(Reader::Length { length: *length, seen: 0 })
        }
        TcpAnswer::Until(end) => {
            not_empty(end.as_slice().len())?;
            Ok(Reader::Until { end: Bytes::as_slice(end).to_vec(), last: Vec::new() })
        }
    }
}

fn exact(expected: Vec<u8>) -> io::Result<Reader> {
    not_empty(expected.len())?;
    Ok(Reader::Exact { expected, seen: 0 })
}

fn not_empty(length: usize) -> io::Result<()> {
    if length == 0 { Err(invalid("an empty answer cannot be waited for".into())) } else { Ok(()) }
}

/// A text message in one frame, as clients (masked) or servers (not) send it.
fn text_frame(message: &str, masked: bool) -> io::Result<Vec<u8>> {
    if message.len() >= MESSAGE_BYTES_LIMIT {
        let given = message.len();
        return Err(invalid(format!("a message of {given} bytes; fewer than {MESSAGE_BYTES_LIMIT} are possible")));
    }
    let length = message.len() as u8;
    let head: &[u8] =
        if masked { &[&[TEXT_FRAME, length | MASKED][..], &MASK].concat() } else { &[TEXT_FRAME, length] };
    Ok([head, message.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(protocol: &str, bodies: &[Vec<&str>]) -> io::Result<Requests> {
        let plan = format!(r#"{{"address": "127.0.0.1:80", "protocol": {protocol}, "connections": 1}}"#);
        Requests::new(&serde_json::from_str(&plan).unwrap(), bodies)
    }

    fn sent(request: &str, bodies: Vec<&str>) -> Vec<String> {
        let requests = requests(&format!(r#"{{"http": {{"requests": [{request}]}}}}"#), &[bodies]).unwrap();
        requests.kinds[0].messages.iter().map(|message| String::from_utf8(message.clone()).unwrap()).collect()
    }

    #[test]
    fn host_and_length_are_added_where_they_are_missing() {
        assert_eq!(sent(r#"{"path": "/a"}"#, vec![]), ["GET /a HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n"]);
        let own = r#"{"method": "PUT", "path": "/", "headers": [["host", "x"], ["content-length", "1"]]}"#;
        assert_eq!(sent(own, vec!["a"]), ["PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na"]);
        let post = sent(r#"{"method": "POST", "path": "/"}"#, vec!["ab", ""]);
        assert!(post[0].ends_with("Content-Length: 2\r\n\r\nab") && post[1].ends_with("Content-Length: 0\r\n\r\n"));
    }

    #[test]
    fn methods_are_idempotent_as_the_rfc_has_them() {
        let is_idempotent = |method: &str| {
            let protocol = format!(r#"{{"http": {{"requests": [{{"path": "/", "method": "{method}"}}]}}}}"#);
            requests(&protocol, &[]).unwrap().kinds[0].is_idempotent
        };
        assert!(["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"].into_iter().all(is_idempotent));
        assert!(!["POST", "PATCH", "CONNECT", "get", "LOCK"].into_iter().any(is_idempotent));
        let tcp = requests(r#"{"tcp": {"message": "a", "answer": {"length": 1}}}"#, &[]).unwrap();
        assert!(!tcp.kinds[0].is_idempotent, "nobody knows");
    }

    #[test]
    fn bodies_take_turns() {
        let protocol = r#"{"http": {"requests": [{"path": "/", "weight": 3}, {"path": "/b", "weight": 0}]}}"#;
        let requests = requests(protocol, &[vec!["a", "b", "c"]]).unwrap();
        let mut order = requests.order(1, 1);
        let used: Vec<_> = (0..4).map(|_| order.next(&requests)).map(|place| (place.kind, place.message)).collect();
        assert_eq!(used, [(0, 1), (0, 2), (0, 0), (0, 1)]);
    }

    #[test]
    fn what_cannot_be_sent_is_told() {
        let error = |protocol: &str, bodies: &[Vec<&str>]| requests(protocol, bodies).unwrap_err().to_string();
        let tcp = |answer: &str| format!(r#"{{"tcp": {{"message": "a", "answer": {answer}}}}}"#);
        let http = |request: &str| format!(r#"{{"http": {{"requests": [{request}]}}}}"#);
        assert!(error(&tcp(r#"{"exact": ""}"#), &[]).contains("empty answer"));
        assert!(error(&tcp(r#"{"length": 1}"#), &[vec!["a"]]).contains("only HTTP has bodies"));
        assert!(error(&http(r#"{"path": "/", "weight": 0}"#), &[]).contains("with a weight"));
        assert!(error(&http(r#"{"path": "/a b"}"#), &[]).contains("/a b"));
        assert!(error(&http(r#"{"path": "/"}"#), &[vec![], vec![]]).contains("bodies of 2 requests"));
    }
}
