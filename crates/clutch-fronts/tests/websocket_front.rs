//! WebSockets over real sockets and a scripted worker: what each side is told, and how far it may go ahead.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use clutch_fronts::codec;
use clutch_fronts::codec::http::{RequestHead, put_response, request_flag, response_flag};
use clutch_fronts::codec::websocket::{self, Back, CUT_SHORT, Lent, WHOLE_AGAIN, WINDOW};
use clutch_fronts::config::{ConnectionConfig, ServeConfig};
use clutch_host::Fronts;
use clutch_pool::config::{Disconnect, PoolConfig, Profile, Shape};
use clutch_pool::pool::facts::WorkDrained;
use clutch_wire::{Codec, Failure};
use support::client::Client;
use support::house::connection;
use support::{Call, Stage, Worker, config, house};

const MESSAGE_BYTES_MAX: usize = 3 << 20;

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

fn serve() -> ServeConfig {
    ServeConfig { message_bytes_max: MESSAGE_BYTES_MAX, ..house::serve() }
}

struct House {
    stage: Stage,
    fronts: Fronts,
}

impl House {
    fn new() -> House {
        House::with(config("app"), serve())
    }

    fn with(pool: PoolConfig, serve: ServeConfig) -> House {
        let shape = Shape { profile: Profile::Async, workers: 1, threads: 1, tasks: 8 };
        let stage = Stage::new(PoolConfig { shape, ..pool });
        let image = serde_json::json!({ "interface": "asgi" });
        stage.driver.update_status(|status| status.image = image);
        let fronts = support::serve(&[&stage], "serve", Box::new(serve)).expect("fronts");
        House { stage, fronts }
    }

    /// A client that has asked.
    fn asking(&self, more: &str) -> Client {
        let mut client = Client::new(&self.fronts.addresses("serve")[0]);
        let host = client.host.clone();
        client.send(format!("GET /chat HTTP/1.1\r\nHost: {host}\r\n{HANDSHAKE}{more}\r\n").as_bytes());
        client
    }

    /// A conversation that has begun.
    fn opened(&self, worker: &mut Worker) -> (Client, Call) {
        let mut client = self.asking("");
        let call = worker.next_call();
        accept(worker, &call, &[]);
        assert_eq!(client.head().status, 101);
        (client, call)
    }
}

fn head(flags: u8, status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = put_response(&mut bytes, flags, status);
    headers.iter().for_each(|(name, value)| writer.put(name.as_bytes(), value.as_bytes()));
    bytes
}

fn accept(worker: &mut Worker, call: &Call, headers: &[(&str, &str)]) {
    worker.give_credit(call, WINDOW);
    worker.say(call, codec::HEAD, &head(0, 101, headers));
}

/// A frame as clients send it, with a mask that changes nothing.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        short @ 0..=125 => bytes.push(0x80 | short as u8),
        long => {
            bytes.push(0xff);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}

/// The next frame of the server: its opcode and payload.
fn heard(client: &mut Client) -> (u8, Vec<u8>) {
    let head = client.take(2);
    assert_eq!(head[1] & 0x80, 0, "servers do not mask");
    let length = match head[1] {
        126 => u64::from(u16::from_be_bytes(client.take(2).try_into().expect("two bytes"))),
        127 => u64::from_be_bytes(client.take(8).try_into().expect("eight bytes")),
        short => u64::from(short),
    };
    (head[0] & 0x0f, client.take(length as usize))
}

fn closing(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes()[..], reason.as_bytes()].concat()
}

#[test]
fn a_handshake_is_answered_when_the_app_accepts_and_not_before() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let mut client = house.asking("Sec-WebSocket-Protocol: chat, superchat\r\n");
    let call = worker.next_call();
    let (request, _) = RequestHead::read(&call.body).expect("a head");
    let line = request.line;
    let flags = request_flag::WEBSOCKET | request_flag::LENDS;
    assert_eq!((line.flags, line.path, line.method), (flags, &b"/chat"[..], "GET"));
    accept(&mut worker, &call, &[("sec-websocket-protocol", "chat"), ("x-more", "yes"), ("connection", "close")]);
    let answer = client.head();
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(answer.header("sec-websocket-protocol"), Some("chat"));
    assert_eq!((answer.header("connection"), answer.header("upgrade")), (Some("Upgrade"), Some("websocket")));
    assert_eq!(answer.header("x-more"), Some("yes"));
}

#[test]
fn any_other_head_denies_and_ends_the_connection() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let mut client = house.asking("");
    let call = worker.next_call();
    worker.say(&call, codec::HEAD, &head(response_flag::WHOLE, 403, &[("content-length", "0")]));
    worker.end(&call);
    assert_eq!(client.response().status, 403);
    assert!(client.rest().is_empty(), "frames may have been sent behind the handshake");
    house.stage.wait_stats(|stats| (stats.done, stats.failed, stats.sent) == (1, 0, 0));
}

#[test]
fn messages_go_both_ways_whole() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    let large = vec![b'x'; MESSAGE_BYTES_MAX - 1];
    client.send(&[frame(TEXT, "späť".as_bytes()), frame(BINARY, &[0, 255]), frame(TEXT, &large)].concat());
    assert_eq!(worker.next_chunk(&call), (codec::TEXT, "späť".into()));
    assert_eq!(worker.next_chunk(&call), (Codec::Bytes.into(), vec![0, 255]));
    assert_eq!(worker.next_chunk(&call), (codec::TEXT, large.clone()));
    worker.say(&call, codec::TEXT, b"hello");
    worker.say(&call, Codec::Bytes.into(), &large);
    assert_eq!(heard(&mut client), (TEXT, b"hello".to_vec()));
    assert_eq!(heard(&mut client), (BINARY, large));
}

#[test]
fn fragments_and_pings_between_them_are_one_message() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    client.send(b"\x01\x83\0\0\0\0one");
    client.send(&frame(PING, b"?"));
    assert_eq!(heard(&mut client), (PONG, b"?".to_vec()));
    client.send(b"\x80\x83\0\0\0\0two");
    assert_eq!(worker.next_chunk(&call), (codec::TEXT, b"onetwo".to_vec()));
}

#[test]
fn a_client_whose_app_takes_nothing_is_not_read() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    let messages = WINDOW as usize + 5;
    client.send(&(0..messages).flat_map(|nr| frame(BINARY, &[nr as u8])).collect::<Vec<_>>());
    for nr in 0..WINDOW {
        assert_eq!(worker.next_chunk(&call), (Codec::Bytes.into(), vec![nr as u8]));
    }
    assert_eq!(worker.credit_within(&call, Duration::from_millis(100)), None, "nothing is to come");
    worker.give_credit(&call, 2);
    assert_eq!(worker.next_chunk(&call), (Codec::Bytes.into(), vec![WINDOW as u8]));
    assert_eq!(worker.next_chunk(&call), (Codec::Bytes.into(), vec![WINDOW as u8 + 1]));
    assert_eq!(worker.credit_within(&call, Duration::from_millis(100)), None, "nothing is to come");
}

#[test]
fn a_client_that_reads_nothing_gives_its_app_no_credit() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    // More than the sockets between take.
    let large = vec![b'x'; 32 << 20];
    worker.say(&call, Codec::Bytes.into(), &large);
    assert_eq!(worker.credit_within(&call, Duration::from_millis(100)), None);
    assert_eq!(heard(&mut client), (BINARY, large));
    assert_eq!(worker.expect_credit(&call), (32 << 20) / (64 << 10));
}

#[test]
fn a_client_is_asked_whether_it_is_there_and_cut_off_when_it_says_nothing() {
    let pinged = ServeConfig { ping_interval_ms: Some(50), ping_timeout_ms: 2_000, ..serve() };
    let house = House::with(config("app"), pinged);
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    for answer in [frame(PONG, b""), frame(TEXT, b"here"), frame(PONG, b"")] {
        assert_eq!(heard(&mut client).0, PING);
        client.send(&answer);
    }
    assert_eq!(worker.next_chunk(&call), (codec::TEXT, b"here".to_vec()));
    assert_eq!(heard(&mut client).0, PING);
    assert_eq!(
        worker.next_chunk(&call),
        (codec::CLOSE, websocket::close(websocket::code::LOST, "")),
        "it says nothing"
    );
    assert!(client.rest().is_empty());
}

/// A conversation whose worker reads and writes the socket itself. `ahead`: what the client sends with its wish.
fn lent(house: &House, worker: &mut Worker, ahead: &[u8]) -> (Client, Call, TcpStream) {
    let mut client = house.asking("");
    client.send(ahead);
    let mut call = worker.next_call();
    worker.give_credit(&call, WINDOW);
    worker.say(&call, codec::HEAD, &head(response_flag::SPEAKS, 101, &[]));
    assert_eq!(client.head().status, 101);
    let (form, told) = worker.next_chunk(&call);
    assert_eq!(form, codec::SOCKET);
    let (terms, read) = Lent::read(&told).expect("its terms");
    assert_eq!((terms.message_bytes_max, read), (MESSAGE_BYTES_MAX as u64, ahead));
    let socket = TcpStream::from(call.descriptor.take().expect("the socket"));
    (client, call, socket)
}

fn give_back(worker: &mut Worker, call: &Call, socket: TcpStream, back: Back<'_>) {
    drop(socket);
    worker.say(call, codec::SOCKET, &back.put());
}

const BACK: Back<'_> = Back { is_lost: false, is_unused: false, sent: 0, unsent: b"", unread: b"" };

#[test]
fn a_worker_speaks_with_the_client_itself_and_the_front_goes_on_where_it_stopped() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call, mut socket) = lent(&house, &mut worker, b"");
    client.send(&frame(TEXT, b"to the worker"));
    let mut read = [0; 64];
    let count = socket.read(&mut read).expect("what the client has sent");
    assert_eq!(read[..count], frame(TEXT, b"to the worker"));
    let said = [&[0x81, 5][..], b"hello"].concat();
    socket.write_all(&said[..3]).expect("a part of a frame");
    client.send(&frame(TEXT, b"cut")[..7]);
    let count = socket.read(&mut read).expect("a part of a frame");
    give_back(&mut worker, &call, socket, Back { unsent: &said[3..], unread: &read[..count], ..BACK });
    assert_eq!(heard(&mut client), (TEXT, b"hello".to_vec()));
    client.send(&frame(TEXT, b"cut")[7..]);
    assert_eq!(worker.next_chunk(&call), (codec::TEXT, b"cut".to_vec()));
    worker.say(&call, codec::TEXT, b"as ever");
    assert_eq!(heard(&mut client), (TEXT, b"as ever".to_vec()));
    client.send(&frame(CLOSE, &closing(4000, "enough")));
    assert_eq!(worker.next_chunk(&call), (codec::CLOSE, websocket::close(4000, "enough")));
}

#[test]
fn what_came_ahead_of_a_socket_that_was_not_used_is_heard() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (_client, call, socket) = lent(&house, &mut worker, &frame(TEXT, b"ahead"));
    give_back(&mut worker, &call, socket, Back { is_unused: true, ..BACK });
    assert_eq!(worker.next_chunk(&call), (codec::TEXT, b"ahead".to_vec()));
}

#[test]
fn a_client_that_the_worker_has_lost_is_cut_off() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call, socket) = lent(&house, &mut worker, b"");
    give_back(&mut worker, &call, socket, Back { is_lost: true, ..BACK });
    assert_eq!(worker.next_chunk(&call), (codec::CLOSE, websocket::close(websocket::code::LOST, "")));
    assert!(client.rest().is_empty());
}

#[test]
fn a_worker_that_dies_with_a_socket_leaves_its_client_an_end_unless_it_was_in_the_middle_of_a_frame() {
    for notes in [&[][..], &[CUT_SHORT, WHOLE_AGAIN], &[CUT_SHORT]] {
        let house = House::new();
        let mut worker = house.stage.worker(8);
        let (mut client, call, socket) = lent(&house, &mut worker, b"");
        notes.iter().for_each(|note| worker.say(&call, codec::SOCKET, note));
        drop((socket, worker));
        match notes {
            [CUT_SHORT] => assert!(client.rest().is_empty()),
            _ => assert_eq!(heard(&mut client), (CLOSE, closing(1011, "worker lost"))),
        }
    }
}

#[test]
fn the_client_of_a_worker_that_may_be_writing_is_cut_off() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call, _socket) = lent(&house, &mut worker, b"");
    worker.end(&call);
    assert!(client.rest().is_empty());
}

#[test]
fn the_end_is_told_to_the_other_side() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    client.send(&frame(CLOSE, &closing(4001, "home")));
    assert_eq!(worker.next_chunk(&call), (codec::CLOSE, websocket::close(4001, "home")));
    assert_eq!(heard(&mut client), (CLOSE, closing(4001, "home")));
    assert!(client.rest().is_empty());
    worker.end(&call);
    let (mut client, call) = house.opened(&mut worker);
    worker.say(&call, codec::CLOSE, &websocket::close(4002, "enough"));
    assert_eq!(heard(&mut client), (CLOSE, closing(4002, "enough")));
    client.send(&frame(CLOSE, &closing(4002, "enough")));
    assert!(client.rest().is_empty());
    worker.end(&call);
    house.stage.wait_stats(|stats| (stats.done, stats.failed, stats.sent) == (2, 0, 0));
}

#[test]
fn how_the_work_ends_is_how_the_conversation_does() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    worker.end(&call);
    assert_eq!(heard(&mut client), (CLOSE, closing(1000, "")));
    let (mut client, call) = house.opened(&mut worker);
    let raised = Failure::Encode { type_name: String::new(), message: String::new(), traceback: String::new() };
    worker.failure(&call, &raised);
    assert_eq!(heard(&mut client), (CLOSE, closing(1011, "")));
    let (mut client, _) = house.opened(&mut worker);
    drop(worker);
    assert_eq!(heard(&mut client), (CLOSE, closing(1011, "worker lost")));
}

#[test]
fn a_client_that_breaks_away_is_told_to_the_app() {
    let house = House::new();
    let mut worker = house.stage.worker(8);
    let (client, call) = house.opened(&mut worker);
    drop(client);
    assert_eq!(worker.next_chunk(&call), (codec::CLOSE, websocket::close(1006, "")));
}

#[test]
fn one_that_breaks_away_cancels_where_that_is_wished_for() {
    let house = House::with(config("app"), ServeConfig { disconnect: Disconnect::Cancel, ..serve() });
    let mut worker = house.stage.worker(8);
    let (client, call) = house.opened(&mut worker);
    drop(client);
    assert_eq!(worker.next_chunk(&call), (codec::CLOSE, websocket::close(1006, "")));
    worker.expect_cancel(&call);
}

#[test]
fn endless_work_of_a_worker_that_is_to_end_is_told_and_cut_off_at_the_grace() {
    let house = House::with(PoolConfig { grace_ms: 50, ..config("app") }, serve());
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    house.stage.driver.worker_draining(worker.key);
    house.stage.driver.wake();
    worker.expect_end_of_endless();
    worker.expect_cancel(&call);
    assert_eq!(heard(&mut client), (CLOSE, closing(1012, "restart")));
    house.stage.wait_event::<WorkDrained>();
    worker.end(&call);
    house.stage.wait_stats(|stats| (stats.drained, stats.failed, stats.sent) == (1, 0, 0));
}

#[test]
fn an_event_stream_is_endless_too_also_when_it_begins_late_and_no_other_stream_is() {
    let house = House::with(PoolConfig { grace_ms: 50, ..config("app") }, serve());
    let mut worker = house.stage.worker(8);
    let mut clients =
        [Client::new(&house.fronts.addresses("serve")[0]), Client::new(&house.fronts.addresses("serve")[0])];
    let calls = clients.each_mut().map(|client| {
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        worker.next_call()
    });
    house.stage.driver.worker_draining(worker.key);
    worker.expect_end_of_endless();
    worker.say(&calls[0], codec::HEAD, &head(0, 200, &[("content-type", "text/plain")]));
    worker.say(&calls[1], codec::HEAD, &head(0, 200, &[("content-type", "text/event-stream")]));
    worker.expect_cancel(&calls[1]);
    worker.end(&calls[1]);
    worker.say(&calls[0], codec::LAST, b"whole");
    worker.end(&calls[0]);
    assert_eq!(clients[0].response().body, b"whole");
    house.stage.wait_stats(|stats| (stats.drained, stats.failed, stats.sent) == (1, 0, 0));
}

#[test]
fn a_stop_tells_and_waits_and_a_conversation_keeps_its_place() {
    let house = House::with(
        config("app"),
        ServeConfig { connection: ConnectionConfig { connections_max: 1, ..connection() }, ..serve() },
    );
    let mut worker = house.stage.worker(8);
    let (mut client, call) = house.opened(&mut worker);
    let turned_away = Client::new(&house.fronts.addresses("serve")[0]).response();
    assert_eq!(turned_away.status, 503);
    let House { stage, fronts } = house;
    let stopping = std::thread::spawn(move || fronts.stop(support::PATIENCE));
    worker.expect_end_of_endless();
    assert!(!stopping.is_finished(), "a conversation goes on");
    worker.say(&call, codec::CLOSE, &websocket::close(1012, "restart"));
    worker.end(&call);
    assert_eq!(heard(&mut client), (CLOSE, closing(1012, "restart")));
    client.send(&frame(CLOSE, &closing(1012, "restart")));
    stopping.join().expect("a stop");
    stage.wait_stats(|stats| (stats.done, stats.failed, stats.sent) == (1, 0, 0));
}
