//! The bytes of every kind of frame, fixed: golden/wire.json is what both ends of any link agree on.
//!
//! A change of the format raises `WIRE_VERSION` and writes the file anew: `CLUTCH_WRITE_GOLDEN=1 cargo test --test
//! wire_golden`. tests/unit/test_wire.py reads the same file with nothing but `struct`.

use std::path::PathBuf;

use clutch_fronts::codec::http::{self, Place, RequestLine, request_flag, response_flag};
use clutch_fronts::codec::websocket;
use clutch_fronts::codec::{CLOSE, HEAD, LAST, TEXT};
use clutch_pool::work::WorkKind;
use clutch_wire::code::Code;
use clutch_wire::frame::{self, CallFields, Frame, Head, Kind, NO_DEADLINE, RegionRef, WIRE_VERSION, flag};
use clutch_wire::headers::put_headers;
use clutch_wire::{Codec, Failure, Form, Payload};
use serde_json::{Value, json};

/// A frame by name: its bytes, and what a reader must find in them.
struct Golden {
    name: &'static str,
    bytes: Vec<u8>,
    fields: Value,
}

impl Golden {
    fn entry(&self) -> Value {
        json!({ "name": self.name, "hex": hex(&self.bytes), "fields": self.fields })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("a byte");
    digits.chunks_exact(2).map(byte).collect()
}

/// A call of this kind of work.
fn call_head(kind: WorkKind, form: impl Into<Form>, id: u64) -> Head {
    Head { flags: kind.number() << flag::KIND_SHIFT, ..Head::with(Kind::Call, id, form) }
}

/// What every entry tells: the head, and the payload.
fn fields(head: Head, payload: &[u8]) -> Value {
    json!({
        "kind": format!("{:?}", head.kind),
        "kind_number": head.kind as u8,
        "codec": head.form.codec as u8,
        "content": head.form.content,
        "regions": [],
        "flags": head.flags,
        "id": head.id,
        "payload": hex(payload),
    })
}

fn with(mut fields: Value, name: &str, value: Value) -> Value {
    fields[name] = value;
    fields
}

/// A frame without regions and fixed fields.
fn simple(name: &'static str, kind: Kind, id: u64, form: impl Into<Form>, payload: &[u8]) -> Golden {
    let (mut bytes, head) = (Vec::new(), Head::with(kind, id, form));
    frame::put(&mut bytes, head, &[], &[], payload).expect("it fits");
    Golden { name, bytes, fields: fields(head, payload) }
}

fn told(name: &'static str, kind: Kind, id: u64, message: &Value) -> Golden {
    simple(name, kind, id, Codec::Json, message.to_string().as_bytes())
}

fn call(name: &'static str, mut head: Head, call: CallFields, regions: &[RegionRef], payload: &[u8]) -> Golden {
    head.regions = regions.len() as u8;
    let mut bytes = Vec::new();
    frame::put(&mut bytes, head, regions, &call.bytes(), payload).expect("it fits");
    let listed: Vec<Value> = regions.iter().map(|region| json!({ "id": region.id, "len": region.len })).collect();
    let fields = with(fields(head, payload), "regions", json!(listed));
    let fields = with(fields, "word", json!(call.word));
    let fields = with(fields, "function", json!(call.function));
    let fields = with(fields, "deadline_ns", json!(call.deadline_ns));
    Golden { name, bytes, fields: with(fields, "skip", json!(call.skip)) }
}

fn answer(name: &'static str, kind: Kind, form: impl Into<Form>, run_ns: u64, payload: &[u8]) -> Golden {
    let head = Head::with(kind, 0x0001_0000_0002, form);
    let mut bytes = Vec::new();
    frame::put(&mut bytes, head, &[], &run_ns.to_le_bytes(), payload).expect("it fits");
    Golden { name, bytes, fields: with(fields(head, payload), "run_ns", json!(run_ns)) }
}

fn failure(name: &'static str, failure: Failure, parts: &[&str]) -> Golden {
    let body = Failure::encode(&failure);
    assert_eq!(Failure::decode(&body), Ok(failure));
    let mut golden = answer(name, Kind::Failure, Codec::Plain, 5000, &body);
    golden.fields = with(golden.fields, "failure", json!({ "tag": body[0], "fields": parts }));
    golden
}

fn credit() -> Golden {
    let mut bytes = Vec::new();
    frame::put_credit(&mut bytes, 9, 8);
    Golden { name: "credit", bytes, fields: with(fields(Head::of(Kind::Credit, 9), &[]), "credit", json!(8)) }
}

/// The first piece of a message that needs two.
fn piece() -> Golden {
    let head = Head { flags: flag::MORE, ..Head::with(Kind::Chunk, 9, TEXT) };
    let mut bytes = Vec::new();
    frame::put(&mut bytes, head, &[], &[], b"to be ").expect("it fits");
    Golden { name: "chunk: a piece of a message", bytes, fields: fields(head, b"to be ") }
}

/// The head of a request, and its body.
fn request() -> Vec<u8> {
    let place = |address, port| Place { address, port };
    let line = RequestLine {
        version: 11,
        flags: request_flag::SECURE | request_flag::WEBSOCKET,
        method: "GET",
        path: b"/a%20b",
        query: b"c=d",
        client: place("10.0.0.1", 4711),
        server: place("::1", 443),
    };
    let mut bytes = Vec::new();
    http::put_request(&mut bytes, line).put(b"host", b"example");
    bytes.extend_from_slice(b"body");
    bytes
}

/// The headers of a call, and its arguments.
fn headed_call() -> Vec<u8> {
    let mut bytes = Vec::new();
    put_headers(&mut bytes).put(b"x-request-id", b"r1");
    bytes.extend_from_slice(b"{\"n\":1}");
    bytes
}

/// A function of map 7, and its arguments.
fn code_and(arguments: &[u8]) -> Vec<u8> {
    let pickle = Payload::new(Codec::Pickle, b"\x80\x05N.".to_vec());
    Code { number: 7, pickle }.with(Payload::new(Codec::Plain, arguments.to_vec())).inline
}

/// The head of a response, and its body.
fn response(flags: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    http::put_response(&mut bytes, flags, 200).put(b"content-type", b"text/plain");
    bytes.extend_from_slice(b"body");
    bytes
}

fn descriptor(name: &'static str, size: u64) -> Golden {
    let mut bytes = Vec::new();
    frame::put_descriptor(&mut bytes, 3, size);
    Golden { name, bytes, fields: with(fields(Head::of(Kind::Descriptor, 3), &[]), "size", json!(size)) }
}

fn calls() -> Vec<Golden> {
    let flagged = |flags, head: Head| Head { flags: head.flags | flags, ..head };
    let plain = call_head(WorkKind::CALL, Codec::Plain, 0x0001_0000_0002);
    let json = call_head(WorkKind::CALL, Codec::Json, 3);
    let headed = call_head(WorkKind::CALL, Codec::Headed, 8);
    let all = flag::WANT_BEGUN | flag::HAS_INPUT | flag::ONE_VALUE;
    let pickle = flagged(all, call_head(WorkKind::JOB, Codec::Pickle, 4));
    let connection = call_head(WorkKind::CONNECTION, Codec::Empty, 5);
    let connection = flagged(flag::WANT_BEGUN | flag::HAS_DESCRIPTOR, connection);
    let job = call_head(WorkKind::JOB, Codec::Headed, 9);
    let batch = call_head(WorkKind::BATCH, Codec::Pickle, 7);
    let by_value = call_head(WorkKind::CALL, Codec::Code, 10);
    let request_head = call_head(WorkKind::REQUEST, HEAD, 6);
    let first = CallFields { word: 7, function: 2, deadline_ns: 1_500_000, skip: 0 };
    let endless = CallFields { word: 1023, function: 3, deadline_ns: NO_DEADLINE, skip: 0 };
    let rest = CallFields { skip: 17, ..endless };
    let regions = [RegionRef { id: 3, len: 1 << 20 }, RegionRef { id: 4, len: 5_000_000_000 }];
    // The tuple ("hi", 1), no keywords.
    let arguments = [b"\x07\x02\0\0\0\x05\x02\0\0\0hi\x03\x01\0\0\0\0\0\0\0".as_slice(), b"\0\0\0\0"].concat();
    vec![
        call("call", plain, first, &[], &arguments),
        call("call of a network caller, in a region", json, endless, &regions[..1], &[]),
        call("call of a network caller with headers", headed, first, &[], &headed_call()),
        call("call with a connection beside it", connection, endless, &[], &[]),
        call("call: a request", request_head, first, &[], &request()),
        call("call with every flag and two regions", pickle, first, &regions, b"\x80\x05N."),
        call("call: a job", job, endless, &[], &headed_call()),
        call("call: the rest of a batch", batch, rest, &[], b"\x80\x05N."),
        call("call: a function by value", by_value, CallFields { function: 0, ..first }, &[], &code_and(&arguments)),
    ]
}

fn failures() -> Vec<Golden> {
    let text = str::to_owned;
    let (type_name, message, traceback) = (text("KeyError"), text("'é'"), text("line 1\n"));
    vec![
        failure(
            "failure: raised",
            Failure::Raised {
                type_name: type_name.clone(),
                message: message.clone(),
                traceback: traceback.clone(),
                pickled: vec![0x80, 0x05],
                problem: vec![],
            },
            &["4b65794572726f72", "27c3a927", "6c696e6520310a", "8005"],
        ),
        failure(
            "failure: encode",
            Failure::Encode { type_name, message, traceback },
            &["4b65794572726f72", "27c3a927", "6c696e6520310a"],
        ),
        failure(
            "failure: bad arguments",
            Failure::BadArguments { message: text("n"), detail: text("[]") },
            &["6e", "5b5d"],
        ),
        failure("failure: no such tool", Failure::NoSuchTool { message: text("x") }, &["78"]),
        failure("failure: poisoned", Failure::Poisoned { message: text("x"), deaths: 0 }, &["78"]),
        failure(
            "failure: worker lost",
            Failure::WorkerLost {
                message: text("x"),
                worker_pid: 43,
                signal: Some(9),
                exit_code: None,
                output: text("o"),
                cause: Some(text("c")),
            },
            &["78", "2b000000", "09000000", "", "6f", "63"],
        ),
        failure("failure: config", Failure::Config { message: String::new() }, &[""]),
    ]
}

/// What the zygote says and hears.
fn of_zygotes() -> Vec<Golden> {
    let hello = json!({ "clutch": "0.1.0", "wire": WIRE_VERSION, "python": "3.11.7", "tag": "cpython-311", "pid": 42 });
    vec![
        told("hello", Kind::Hello, 0, &hello),
        simple("launch: what to load is beside it", Kind::Launch, 0, Codec::Empty, &[]),
        told("up", Kind::Up, 0, &json!({ "tools": ["echo"], "warnings": [] })),
        told("failed", Kind::Failed, 0, &json!({ "reason": "no module named shop" })),
        told("fork", Kind::Fork, 5, &json!({ "nr": 0, "generation": 1 })),
        told("forked", Kind::Forked, 5, &json!({ "pid": 43, "error": null })),
        told("fate", Kind::Fate, 5, &json!({ "what": "signaled", "value": 9 })),
        simple("kill", Kind::Kill, 5, Codec::Empty, &[]),
        simple("kill: with TERM", Kind::Kill, 5, Codec::Bytes, &[15]),
    ]
}

fn of_workers() -> Vec<Golden> {
    vec![
        told("ready", Kind::Ready, 0, &json!({ "pid": 43 })),
        simple("define: the name of a tool", Kind::Define, 1, Codec::Name, b"countdown"),
        simple("define: a pickled function", Kind::Define, 2, Codec::Pickle, b"\x80\x05N."),
        simple("define: a map is over", Kind::Define, 0, Codec::Empty, &7u64.to_le_bytes()),
        simple("begun", Kind::Begun, 9, Codec::Empty, &[]),
        simple("chunk", Kind::Chunk, 9, Codec::Json, b"{\"n\":1}"),
        simple("chunk: the end of an inbound stream", Kind::Chunk, 9, Codec::Empty, &[]),
        simple("chunk: the last of a body", Kind::Chunk, 9, LAST, b"bye"),
        simple("chunk: a message of text", Kind::Chunk, 9, TEXT, "ž".as_bytes()),
        simple("chunk: a message of bytes", Kind::Chunk, 9, Codec::Bytes, &[0, 255]),
        simple("chunk: a WebSocket closes", Kind::Chunk, 9, CLOSE, &websocket::close(4001, "enough")),
        piece(),
        simple("chunk: the head of a response", Kind::Chunk, 9, HEAD, &response(0)),
        answer("result: a whole response", Kind::Result, HEAD, 1234, &response(response_flag::WHOLE)),
        credit(),
        simple("cancel", Kind::Cancel, 9, Codec::Empty, &[]),
        answer("result", Kind::Result, Codec::Plain, 1234, b"\x05\x02\0\0\0hi"),
        answer("result: of a batch", Kind::Result, Codec::Bytes, 1234, b"\x03\0\0\0\xd2\x04\0\0\0\0\0\0"),
        answer("result: JSON", Kind::Result, Codec::Json, 1234, b"[1,2]"),
        answer("result: the end of a stream", Kind::Result, Codec::Empty, u64::MAX, &[]),
        simple("item", Kind::Item, 9, Codec::Plain, b"\x03\x01\0\0\0\0\0\0\0"),
        simple("unreceived", Kind::Unreceived, 3, Codec::Empty, &[]),
        simple("debugging: the prompt is open", Kind::Debugging, 1, Codec::Empty, &[]),
        simple("channel", Kind::Channel, 0, Codec::Empty, &[]),
        descriptor("descriptor", 266_240),
        descriptor("descriptor: forget the region", 0),
        simple("drain", Kind::Drain, 0, Codec::Empty, &[]),
        told("stats", Kind::Stats, 0, &json!({ "calls": 7 })),
        simple("carrying", Kind::Carrying, 0, Codec::Empty, &[]),
        simple("stacks: the question", Kind::Stacks, 9, Codec::Empty, &[]),
        simple("stacks: the answer", Kind::Stacks, 9, Codec::Empty, b"Thread 0x1 (most recent call first):\n"),
    ]
}

fn all() -> Vec<Golden> {
    [calls(), failures(), of_workers(), of_zygotes()].into_iter().flatten().collect()
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/wire.json")
}

fn document() -> Value {
    serde_json::from_str(&std::fs::read_to_string(path()).expect("golden/wire.json")).expect("JSON")
}

#[test]
fn the_bytes_of_every_frame_are_those_of_the_golden_file() {
    let frames: Vec<Value> = all().iter().map(Golden::entry).collect();
    let made = json!({ "wire_version": WIRE_VERSION, "head_bytes": frame::HEAD_BYTES, "frames": frames });
    if std::env::var_os("CLUTCH_WRITE_GOLDEN").is_some() {
        let text = serde_json::to_string_pretty(&made).expect("JSON");
        std::fs::write(path(), text + "\n").expect("golden/wire.json");
    }
    let kept = document();
    for (made, kept) in frames.iter().zip(kept["frames"].as_array().expect("frames")) {
        assert_eq!(made, kept, "the format has changed: raise WIRE_VERSION and write the file anew");
    }
    assert_eq!(made, kept);
}

#[test]
fn every_kind_of_frame_is_in_the_golden_file() {
    let known = |number: &u8| Kind::from_u8(*number).is_ok();
    let kept: Vec<u8> = all().iter().map(|golden| golden.bytes[4]).collect();
    let missing: Vec<u8> = (0..=u8::MAX).filter(known).filter(|number| !kept.contains(number)).collect();
    assert!(missing.is_empty(), "no golden frame of kinds {missing:?}");
}

#[test]
fn golden_bytes_are_read_as_what_they_say() {
    for entry in document()["frames"].as_array().expect("frames") {
        let bytes = bytes_of(entry["hex"].as_str().expect("hex"));
        let (frame, length) = Frame::parse(&bytes).expect("a frame").expect("a whole one");
        let fields = &entry["fields"];
        assert_eq!(length, bytes.len());
        assert_eq!(fields["kind"], format!("{:?}", frame.head.kind));
        assert_eq!(fields["id"], frame.head.id);
        assert_eq!(fields["flags"], frame.head.flags);
        assert_eq!(fields["payload"], hex(frame.payload));
        let regions: Vec<Value> = frame.regions().map(|part| json!({ "id": part.id, "len": part.len })).collect();
        assert_eq!(fields["regions"], json!(regions));
        check_fixed(&frame, fields);
    }
}

fn check_fixed(frame: &Frame<'_>, fields: &Value) {
    match frame.head.kind {
        Kind::Call => {
            assert_eq!(fields["word"], frame.word());
            assert_eq!(fields["function"], frame.function());
            assert_eq!(fields["deadline_ns"], frame.deadline_ns());
            assert_eq!(fields["skip"], frame.skip());
        }
        Kind::Credit => assert_eq!(fields["credit"], frame.credit()),
        Kind::Descriptor => assert_eq!(fields["size"], frame.size()),
        Kind::Result => assert_eq!(fields["run_ns"], frame.run_ns()),
        Kind::Failure => {
            assert_eq!(fields["run_ns"], frame.run_ns());
            assert!(Failure::decode(frame.payload).is_ok());
        }
        _ => {}
    }
}

#[test]
fn failure_58_no_writer_puts_a_frame_that_its_reader_refuses() {
    let mut bytes = b"before".to_vec();
    for body in [frame::FRAME_BYTES_MAX - 1, frame::FRAME_BYTES_MAX, frame::FRAME_BYTES_MAX + 1] {
        let put = frame::put_simple(&mut bytes, Kind::Define, 1, Codec::Name, &vec![b'x'; body]);
        assert_eq!(put.is_ok(), body <= frame::FRAME_BYTES_MAX);
        match put {
            Ok(()) => assert!(Frame::parse(&bytes[6..]).expect("a frame").is_some()),
            Err(_) => assert_eq!(bytes, b"before", "nothing is left of it"),
        }
        bytes.truncate(6);
    }
}

#[test]
fn a_frame_in_pieces_is_not_taken_for_a_whole_one() {
    for golden in all() {
        for cut in 0..golden.bytes.len() {
            assert!(matches!(Frame::parse(&golden.bytes[..cut]), Ok(None)), "{} cut at {cut}", golden.name);
        }
    }
}

#[test]
fn hostile_bytes_are_errors_and_never_panics() {
    let good = &all()[0].bytes;
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            if let Ok(Some((frame, length))) = Frame::parse(&bytes) {
                assert!(length <= bytes.len());
                assert!(frame.regions().count() <= frame::REGIONS_MAX);
            }
        }
    }
    for body in [&b""[..], b"\x01", b"\x01\xff\xff\xff\xff", b"\x01\x02\0\0\0a", b"\x63", b"\x08\x01\0\0\0x"] {
        assert!(Failure::decode(body).is_err(), "{body:?}");
    }
    assert!(matches!(Frame::parse(&[0xff; 64]), Err(frame::WireError::TooLong { .. })));
    assert!(matches!(Frame::parse(&[0; 64]), Err(frame::WireError::Kind(0))));
}
