//! Loads on real servers, which do what servers do: frame answers in their way, close connections, restart, freeze.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clutch_load::{Load, Measure, Report};

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// Gives each connection to `handle`, in a thread of its own, with its number.
fn server(handle: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for (nr, stream) in listener.incoming().enumerate() {
            let handle = handle.clone();
            thread::spawn(move || handle(nr, stream.unwrap()));
        }
    });
    address
}

/// Answers each request over HTTP as `answer` tells for its first line and its body; none ends the connection.
fn http_server(answer: impl Fn(&str, Vec<u8>) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    server(move |_, stream| serve(stream, &answer))
}

fn serve(stream: impl Read + Write, answer: &dyn Fn(&str, Vec<u8>) -> Option<String>) {
    let mut stream = BufReader::new(stream);
    while let Some((line, body)) = request(&mut stream) {
        let Some(answer) = answer(&line, body) else { return };
        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The first line and the body.
fn request(stream: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut first, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            text if first.is_empty() => first = text.into(),
            text => {
                let length_of = text.to_ascii_lowercase();
                length = length_of.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
            }
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((first, body))
}

fn load(address: impl ToString, connections: usize, threads: usize, protocol: &str, bodies: &[Vec<&[u8]>]) -> Load {
    let address = address.to_string();
    let plan = format!(
        r#"{{"address": "{address}", "protocol": {protocol}, "connections": {connections}, "threads": {threads}}}"#
    );
    Load::connect(&serde_json::from_str(&plan).unwrap(), bodies).unwrap()
}

fn http_load(address: SocketAddr, connections: usize) -> Load {
    load(address, connections, 1, r#"{"http": {"requests": [{"path": "/"}]}}"#, &[])
}

fn measure(load: &mut Load, measure: &str) -> Report {
    load.measure(&serde_json::from_str::<Measure>(measure).unwrap()).unwrap()
}

/// As fast as it goes, for a fifth of a second.
fn closed(load: &mut Load) -> Report {
    measure(load, r#"{"seconds": 0.2}"#)
}

/// Ten requests in 50 ms.
fn ten(load: &mut Load) -> Report {
    measure(load, r#"{"seconds": 0.05, "grace_seconds": 20, "arrivals": {"even": {"per_second": 200}}}"#)
}

fn wait_until(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_connection_of_a_closed_loop_is_served() {
    for threads in [1, 3] {
        let address = http_server(|_, _| Some(FINE.into()));
        let mut load = load(address, 3, threads, r#"{"http": {"requests": [{"path": "/"}]}}"#, &[]);
        for _ in 0..2 {
            let report = closed(&mut load);
            assert!(report.errors.is_empty() && report.reconnects == 0, "{report:?}");
            assert!(report.by_connection.len() == 3 && report.by_connection.iter().all(|count| *count > 0));
            assert_eq!(report.by_connection.iter().sum::<u64>(), report.answers);
            assert_eq!(report.series.answers.iter().sum::<u64>(), report.answers);
            assert_eq!(report.received_bytes, report.answers * FINE.len() as u64);
            assert!(report.cpu_s > 0.0 && report.busiest > 0.0 && report.latencies.min_us > 1.0, "{report:?}");
        }
    }
}

#[test]
fn an_open_loop_sends_what_was_asked_for_and_no_more() {
    let mut load = load(http_server(|_, _| Some(FINE.into())), 4, 2, r#"{"http": {"requests": [{"path": "/"}]}}"#, &[]);
    let even = r#"{"seconds": 0.2, "grace_seconds": 20, "arrivals": {"even": {"per_second": 500}}}"#;
    let report = measure(&mut load, even);
    assert_eq!((report.offered, report.answers, report.errors.len()), (100, 100, 0), "{report:?}");
    let poisson = r#"{"seconds": 0.2, "grace_seconds": 20, "arrivals": {"poisson": {"per_second": 500}}}"#;
    let reports = [0, 1].map(|_| measure(&mut load, poisson));
    assert!(reports.iter().all(|report| report.offered == report.answers), "{reports:?}");
    let counts = reports.map(|report| report.answers);
    assert!(counts[0] == counts[1] && (50..150).contains(&counts[0]), "the same at each time: {counts:?}");
}

#[test]
fn what_is_offered_does_not_depend_on_the_answers() {
    let address = server(|nr, stream| {
        let mut stream = BufReader::new(stream);
        while request(&mut stream).is_some() {
            if nr == 0 {
                stream.get_mut().write_all(FINE.as_bytes()).unwrap();
            }
        }
    });
    let plan = r#"{"seconds": 0.1, "grace_seconds": 1, "arrivals": {"even": {"per_second": 100}}}"#;
    let report = measure(&mut http_load(address, 2), plan);
    assert_eq!((report.offered, report.answers, report.errors["timeout"]), (10, 9, 1), "{report:?}");
}

#[test]
fn requests_come_as_their_weights_say_with_their_bodies_in_turn() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let address = http_server({
        let seen = seen.clone();
        move |line, body| {
            seen.lock().unwrap().push(format!("{line} {}", String::from_utf8(body).unwrap()));
            Some(if line.starts_with("HEAD") { FINE[..FINE.len() - 5].into() } else { FINE.into() })
        }
    });
    let requests = r#"{"http": {"requests": [
        {"path": "/a", "method": "HEAD", "weight": 1}, {"path": "/b", "method": "POST", "weight": 3}]}}"#;
    let mut load = load(address, 1, 1, requests, &[vec![], vec![b"one", b"two"]]);
    let report = closed(&mut load);
    let seen = seen.lock().unwrap();
    assert!(report.errors.is_empty() && report.by_request.iter().all(|count| *count > 0), "{report:?}");
    let posts: Vec<_> = seen.iter().filter(|line| line.starts_with("POST /b")).collect();
    assert!(posts.iter().step_by(2).all(|line| line.ends_with(" one")));
    assert!(posts.iter().skip(1).step_by(2).all(|line| line.ends_with(" two")));
}

#[test]
fn answers_of_any_framing_are_read_and_announced_closes_are_no_errors() {
    let count = AtomicUsize::new(0);
    let address = http_server(move |_, _| {
        let head = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n";
        Some(match count.fetch_add(1, SeqCst) % 3 {
            0 => format!("{head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\netag: x\r\n\r\n"),
            1 => format!("{head}connection: close\r\ncontent-length: 2\r\n\r\nok"),
            _ => FINE.into(),
        })
    });
    let report = ten(&mut http_load(address, 1));
    assert_eq!((report.answers, report.errors.len(), report.reconnects), (10, 0, 3), "{report:?}");
    let by_its_end = server(|_, stream| {
        let mut stream = BufReader::new(stream);
        request(&mut stream).unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\nup to the end").unwrap();
    });
    let report = ten(&mut http_load(by_its_end, 2));
    assert_eq!((report.answers, report.errors.len()), (10, 0), "{report:?}");
    assert!(report.reconnects >= 8, "{report:?}");
}

#[test]
fn connections_that_the_server_closed_while_they_were_idle_are_opened_again() {
    let streams = Arc::new(Mutex::new(Vec::new()));
    let address = server({
        let streams = streams.clone();
        move |_, stream| {
            streams.lock().unwrap().push(stream.try_clone().unwrap());
            serve(stream, &|_, _| Some(FINE.into()));
        }
    });
    let mut load = http_load(address, 3);
    assert_eq!(ten(&mut load).answers, 10);
    streams.lock().unwrap().drain(..).for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    let report = ten(&mut load);
    assert_eq!((report.answers, report.errors.len(), report.reconnects), (10, 0, 3), "{report:?}");
}

/// A server over HTTP, each of whose connections does with each of its requests as `told` by both their numbers.
fn scripted(told: impl Fn(usize, usize) -> Does + Send + Sync + 'static) -> SocketAddr {
    server(move |connection, stream| {
        let mut stream = BufReader::new(stream);
        for nr in 0.. {
            // A request whose bytes are never read makes the close a reset.
            if stream.get_ref().peek(&mut [0]).unwrap_or(0) == 0 {
                return;
            }
            let does = told(connection, nr);
            if does == Does::Reset || request(&mut stream).is_none() {
                return;
            }
            match does {
                Does::Answer => stream.get_mut().write_all(FINE.as_bytes()).unwrap(),
                Does::AnswerAndClose => return stream.get_mut().write_all(FINE.as_bytes()).unwrap(),
                Does::Begin => return stream.get_mut().write_all(&FINE.as_bytes()[..1]).unwrap(),
                Does::Close | Does::Reset => return,
            }
        }
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Answer,
    AnswerAndClose,
    Close,
    Reset,
    /// One byte of the answer, and the end.
    Begin,
}

fn sending(method: &str, address: SocketAddr) -> Report {
    let protocol = format!(r#"{{"http": {{"requests": [{{"path": "/", "method": "{method}"}}]}}}}"#);
    ten(&mut load(address, 1, 1, &protocol, &[vec![b"body"]]))
}

#[test]
fn a_request_that_a_kept_connection_costs_is_sent_once_more() {
    for end in [Does::Close, Does::Reset] {
        for method in ["GET", "OPTIONS", "TRACE", "PUT", "DELETE"] {
            // The fourth request, as the first of the next connection, and so the seventh and the tenth.
            let report = sending(method, scripted(move |_, nr| if nr < 3 { Does::Answer } else { end }));
            assert_eq!((report.answers, report.offered, report.errors.len()), (10, 10, 0), "{method}: {report:?}");
            assert_eq!((report.retried, report.reconnects), (3, 3), "{method}, {end:?}: {report:?}");
        }
    }
}

/// The client sees the end before its next request, or as it sends it, or after that.
#[test]
fn a_server_that_closes_after_some_answers_costs_no_request() {
    let address = scripted(|_, nr| if nr < 2 { Does::Answer } else { Does::AnswerAndClose });
    let report = closed(&mut http_load(address, 4));
    assert!(report.errors.is_empty() && report.answers == report.offered, "{report:?}");
    assert!(report.reconnects + 4 >= report.answers / 3 && report.retried <= report.reconnects, "{report:?}");
}

#[test]
fn a_request_that_may_do_harm_twice_is_not_sent_again() {
    for method in ["POST", "PATCH"] {
        let report = sending(method, scripted(|_, nr| if nr < 3 { Does::Answer } else { Does::Close }));
        assert_eq!((report.answers, report.errors["closed"], report.retried), (8, 2, 0), "{method}: {report:?}");
    }
    let address = server(|_, mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"pong").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
    });
    let report = ten(&mut load(address, 1, 1, r#"{"tcp": {"message": "ping", "answer": {"length": 4}}}"#, &[]));
    assert_eq!((report.answers, report.errors["closed"], report.retried), (5, 5, 0), "{report:?}");
}

#[test]
fn a_request_is_not_sent_again_when_its_answer_has_begun_or_its_connection_was_new() {
    let report = sending("GET", scripted(|_, nr| if nr == 0 { Does::Answer } else { Does::Begin }));
    assert_eq!((report.answers, report.errors["closed"], report.retried), (5, 5, 0), "{report:?}");
    let report = sending("GET", scripted(|_, _| Does::Close));
    assert_eq!((report.answers, report.errors["closed"], report.retried), (0, 10, 0), "{report:?}");
}

#[test]
fn a_request_that_is_lost_twice_is_an_error() {
    let report = sending(
        "GET",
        scripted(|connection, nr| match (connection, nr) {
            (0, 1) | (1, 0) => Does::Close,
            _ => Does::Answer,
        }),
    );
    assert_eq!((report.answers, report.errors["closed"], report.retried), (9, 1, 1), "{report:?}");
    assert_eq!((report.reconnects, report.errors.len()), (2, 1), "{report:?}");
}

#[test]
fn a_request_that_cannot_be_sent_again_fails_as_its_connection_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        request(&mut stream).unwrap();
        stream.get_mut().write_all(FINE.as_bytes()).unwrap();
        request(&mut stream).unwrap();
        drop(listener);
    });
    let how = r#"{"seconds": 0.05, "grace_seconds": 1, "arrivals": {"even": {"per_second": 200}}}"#;
    let report = measure(&mut http_load(address, 1), how);
    assert_eq!((report.offered, report.answers, report.retried), (10, 1, 0), "{report:?}");
    assert!(report.errors["refused"] >= 1 && !report.errors.contains_key("closed"), "{report:?}");
    assert_eq!(report.errors["timeout"], 8, "neither the first nor the second: {report:?}");
}

#[test]
fn the_latency_of_a_retried_request_counts_from_its_first_time() {
    const HELD: Duration = Duration::from_millis(100);
    let report = sending(
        "GET",
        scripted(|connection, nr| match (connection, nr) {
            (0, 1) => {
                thread::sleep(HELD);
                Does::Close
            }
            _ => Does::Answer,
        }),
    );
    assert_eq!((report.answers, report.retried, report.errors.len()), (10, 1, 0), "{report:?}");
    assert!(report.latencies.max_us >= HELD.as_micros() as f64 * 0.99, "{report:?}");
}

#[test]
fn connections_that_the_server_reset_while_they_were_idle_are_opened_again() {
    let streams = Arc::new(Mutex::new(Vec::new()));
    let (reset, resets) = mpsc::channel();
    let address = server({
        let streams = streams.clone();
        move |_, stream| {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            streams.lock().unwrap().push(stream.try_clone().unwrap());
            serve(stream, &|_, _| Some(FINE.into()));
            let _ = reset.send(());
        }
    });
    let mut load = http_load(address, 3);
    assert_eq!(ten(&mut load).answers, 10);
    streams.lock().unwrap().drain(..).for_each(|stream| stream.shutdown(Shutdown::Read).unwrap());
    (0..3).for_each(|_| resets.recv().unwrap());
    let report = ten(&mut load);
    assert_eq!((report.answers, report.errors.len(), report.reconnects), (10, 0, 3), "{report:?}");
}

#[test]
fn what_goes_wrong_is_counted_by_its_kind() {
    let status = closed(&mut http_load(http_server(|_, _| Some(FINE.replace("200", "503"))), 1));
    assert!(status.answers == 0 && status.errors["status 503"] > 0 && status.errors.len() == 1, "{status:?}");
    assert_eq!(status.first_error.as_deref(), Some("GET /: status 503"));
    let cut = server(|_, stream| {
        let mut stream = BufReader::new(stream);
        request(&mut stream).unwrap();
        stream.get_mut().write_all(&FINE.as_bytes()[..FINE.len() - 1]).unwrap();
    });
    let closed_early = closed(&mut http_load(cut, 1));
    assert!(closed_early.answers == 0 && closed_early.errors["closed"] > 0, "{closed_early:?}");
    let tcp = r#"{"tcp": {"message": "ping", "answer": {"exact": "hello"}}}"#;
    let wrong = closed(&mut load(http_server(|_, _| None), 1, 1, r#"{"http": {"requests": [{"path": "/"}]}}"#, &[]));
    assert!(wrong.errors.contains_key("closed"), "{wrong:?}");
    let pong = server(|_, mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"hexxo").unwrap();
        let _ = stream.read(&mut [0]);
    });
    let wrong = closed(&mut load(pong, 1, 1, tcp, &[]));
    assert!(wrong.errors["wrong answer"] > 0 && wrong.first_error.unwrap().contains("hexxo"));
}

#[test]
fn what_is_never_answered_counts_and_does_not_disturb_the_next_measurement() {
    let is_silent = Arc::new(AtomicBool::new(true));
    let address = http_server({
        let is_silent = is_silent.clone();
        move |_, _| Some(if is_silent.load(SeqCst) { String::new() } else { FINE.into() })
    });
    let mut load = http_load(address, 2);
    let report = measure(&mut load, r#"{"seconds": 0.1, "grace_seconds": 0.2}"#);
    assert_eq!((report.answers, report.errors["timeout"]), (0, 2), "{report:?}");
    assert!(report.latencies.max_us >= 290_000.0, "{report:?}");
    is_silent.store(false, SeqCst);
    let report = ten(&mut load);
    assert_eq!((report.answers, report.errors.len(), report.reconnects), (10, 0, 2), "{report:?}");
}

#[test]
fn a_load_survives_the_restart_of_its_server() {
    let served = Arc::new(AtomicUsize::new(0));
    let stopped = Arc::new(AtomicBool::new(false));
    let start = |address: &str| {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (served, stopped) = (served.clone(), stopped.clone());
        let accepting = thread::spawn(move || {
            let mut streams = Vec::new();
            while let (Ok((stream, _)), false) = (listener.accept(), stopped.load(SeqCst)) {
                streams.push(stream.try_clone().unwrap());
                let served = served.clone();
                let answer = move |_: &str, _| {
                    served.fetch_add(1, SeqCst);
                    Some(FINE.into())
                };
                thread::spawn(move || serve(stream, &answer));
            }
            streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        });
        (address, accepting)
    };
    let (address, accepting) = start("127.0.0.1:0");
    let mut load = http_load(address, 4);
    let (reports, reported) = mpsc::channel();
    thread::spawn(move || reports.send(Box::new(measure(&mut load, r#"{"seconds": 3}"#))));
    wait_until(|| served.load(SeqCst) > 10);
    stopped.store(true, SeqCst);
    drop(TcpStream::connect(address));
    accepting.join().unwrap();
    thread::sleep(Duration::from_millis(300));
    let before = served.load(SeqCst);
    stopped.store(false, SeqCst);
    start(&address.to_string());
    wait_until(|| served.load(SeqCst) > before + 10);
    let report = reported.recv().unwrap();
    assert!(report.errors["refused"] >= 4 && report.reconnects >= 4, "{report:?}");
    assert!(report.answers >= before as u64 - 4, "{report:?}");
}

#[test]
fn requests_and_answers_of_megabytes_do_not_block_each_other() {
    const BYTES: usize = 8 << 20;
    // It answers while it reads: who only wrote would wait for it, as it waits for a reader.
    let address = server(|_, stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        loop {
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
            }
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n").unwrap();
            if std::io::copy(&mut (&mut reader).take(BYTES as u64), &mut writer).is_err() {
                return;
            }
        }
    });
    let body = vec![b'a'; BYTES];
    let protocol = r#"{"http": {"requests": [{"method": "POST", "path": "/"}]}}"#;
    let mut load = load(address, 2, 1, protocol, &[vec![&body]]);
    let report = measure(&mut load, r#"{"seconds": 0.2, "grace_seconds": 60}"#);
    assert!(report.answers >= 2 && report.errors.is_empty(), "{:?}", report.errors);
    assert!(report.received_bytes > report.answers * BYTES as u64);
}

#[test]
fn a_server_may_answer_a_request_before_it_has_read_it() {
    let address = server(|_, stream| {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
        }
        stream.get_mut().write_all(FINE.as_bytes()).unwrap();
        // Until the client leaves, which it does without sending the rest.
        let _ = stream.get_mut().set_read_timeout(Some(Duration::from_secs(60)));
        thread::sleep(Duration::from_millis(200));
    });
    let body = vec![b'a'; 64 << 20];
    let protocol = r#"{"http": {"requests": [{"method": "POST", "path": "/"}]}}"#;
    let mut load = load(address, 1, 1, protocol, &[vec![&body]]);
    let report = measure(&mut load, r#"{"seconds": 0.05, "grace_seconds": 20}"#);
    assert!(report.answers > 0 && report.errors.is_empty() && report.reconnects > 0, "{report:?}");
}

#[test]
fn bytes_over_tcp_end_as_told() {
    for answer in [r#"{"exact": [255, 10, 0]}"#, r#"{"length": 3}"#, r#"{"until": [10, 0]}"#] {
        let address =
            server(
                |_, mut stream| {
                    while stream.read_exact(&mut [0; 2]).is_ok() && stream.write_all(&[255, 10, 0]).is_ok() {}
                },
            );
        let protocol = format!(r#"{{"tcp": {{"message": [0, 254], "answer": {answer}}}}}"#);
        let report = ten(&mut load(address, 2, 1, &protocol, &[]));
        assert_eq!((report.answers, report.errors.len()), (10, 0), "{answer}: {report:?}");
    }
}

#[test]
fn messages_of_web_sockets_come_back() {
    let address = server(|_, stream| {
        let mut stream = BufReader::new(stream);
        request(&mut stream).unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n").unwrap();
        let mut frame = [0; 2 + 4 + 5];
        while stream.read_exact(&mut frame).is_ok() {
            let unmasked = [&[frame[0], frame[1] & 0x7f], &frame[6..]].concat();
            stream.get_mut().write_all(&unmasked).unwrap();
        }
    });
    let report = ten(&mut load(address, 2, 1, r#"{"web_socket": {"path": "/", "message": "hello"}}"#, &[]));
    assert_eq!((report.answers, report.errors.len()), (10, 0), "{report:?}");
}

/// As servers do every 20 s or so: among the answers, and while nothing is asked.
#[test]
fn pings_of_web_sockets_are_answered() {
    let pongs = Arc::new(AtomicUsize::new(0));
    let counted = pongs.clone();
    let address = server(move |_, stream| {
        let mut stream = BufReader::new(stream);
        request(&mut stream).unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
        let mut head = [0; 2 + 4];
        while stream.read_exact(&mut head).is_ok() {
            let mut payload = vec![0; usize::from(head[1] & 0x7f)];
            stream.read_exact(&mut payload).unwrap();
            match head[0] {
                0x8a => drop(counted.fetch_add(1, SeqCst)),
                _ => stream.get_mut().write_all(b"\x89\x02hi\x81\x05hello\x89\x02hi").unwrap(),
            }
        }
    });
    let mut load = load(address, 2, 1, r#"{"web_socket": {"path": "/", "message": "hello"}}"#, &[]);
    for _ in 0..2 {
        let report = ten(&mut load);
        assert_eq!((report.answers, report.errors.len()), (10, 0), "{report:?}");
    }
    wait_until(|| pongs.load(SeqCst) >= 36);
}

#[test]
fn a_server_may_listen_at_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap(), &|_, _| Some(FINE.into())));
        }
    });
    let protocol = r#"{"http": {"requests": [{"path": "/"}]}}"#;
    let report = ten(&mut load(format!("unix:{}", path.display()), 3, 1, protocol, &[]));
    assert_eq!((report.answers, report.errors.len()), (10, 0), "{report:?}");
}

#[test]
fn a_load_that_cannot_begin_says_why() {
    let connect = |plan: String| Load::connect::<&[u8]>(&serde_json::from_str(&plan).unwrap(), &[]).unwrap_err();
    let plan = |address: SocketAddr, rest: &str| {
        format!(r#"{{"address": "{address}", "protocol": {{"http": {{"requests": [{{"path": "/"}}]}}}}, {rest}}}"#)
    };
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = connect(plan(nobody, r#""connections": 1"#));
    assert!(error.to_string().contains(&nobody.to_string()), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let error = connect(plan(nobody, r#""connections": 1, "threads": 2"#));
    assert!(error.to_string().contains("1 ≤ threads ≤ connections"), "{error}");
}

/// The closed form is in src/truth.rs: p99 = freeze - a hundredth of the measurement.
#[test]
fn a_freeze_shows_in_an_open_loop_and_is_hidden_in_a_closed_one() {
    let (served, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(RwLock::new(())));
    let address = http_server({
        let (served, gate) = (served.clone(), gate.clone());
        move |_, _| {
            let _open = gate.read().unwrap();
            served.fetch_add(1, SeqCst);
            Some(FINE.into())
        }
    });
    let frozen = |connections: usize, how: &'static str| {
        let mut load = http_load(address, connections);
        let before = served.load(SeqCst);
        let measuring = thread::spawn(move || measure(&mut load, how));
        wait_until(|| served.load(SeqCst) > before + 20);
        let began = Instant::now();
        let shut = gate.write().unwrap();
        thread::sleep(Duration::from_secs(1));
        drop(shut);
        let freeze = began.elapsed().as_secs_f64();
        (measuring.join().unwrap(), freeze)
    };
    let open = r#"{"seconds": 2, "grace_seconds": 20, "arrivals": {"even": {"per_second": 200}}}"#;
    let (open, freeze) = frozen(50, open);
    let (p99, expected) = (open.latencies.p99_us / 1e6, freeze - 2.0 / 100.0);
    assert!(open.answers == 400 && p99 > 0.9 * expected, "{p99} s, {expected} s expected");
    let (closed, _) = frozen(2, r#"{"seconds": 3, "grace_seconds": 20}"#);
    assert!(closed.latencies.p99_us < 100_000.0 && closed.latencies.max_us > 900_000.0, "{:?}", closed.latencies);
}
