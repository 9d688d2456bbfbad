//! How fast the load generator is itself: `cargo bench -p clutch-load --bench top_speed [-- CONNECTIONS]`.
//!
//! A hundred connections to the simplest server there is, in one thread that answers whatever comes with the same bytes.
//! The server has the first CPU and one thread of load the others; left to the kernel, both may share one. Two threads
//! share all CPUs with it: there, the CPU time for each request says more than the rate.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::thread;

use clutch_load::{Load, Report};
use clutch_wire::sys::Poller;
use rustix::thread::{CpuSet, sched_setaffinity};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nHello world\n";
const SECONDS: f64 = 3.0;

fn main() -> io::Result<()> {
    let connections = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(100);
    for threads in [1, 2] {
        let report = report(connections, threads)?;
        let (rate, cpu_us) = (report.answers as f64 / report.seconds, report.cpu_s * 1e6 / report.answers as f64);
        let (p50, p99, busiest) = (report.latencies.p50_us, report.latencies.p99_us, report.busiest);
        let shown = format!("{rate:.0} requests/s, {cpu_us:.2} µs CPU a request, busiest thread {busiest:.2} of a CPU");
        writeln!(io::stdout(), "{threads} threads: {shown}; p50 {p50:.0} µs, p99 {p99:.0} µs, {:?}", report.errors)?;
    }
    Ok(())
}

fn report(connections: usize, threads: usize) -> io::Result<Report> {
    let cpus = thread::available_parallelism()?.get();
    let address = server()?;
    pin(if threads == 1 { 1.min(cpus - 1)..cpus } else { 0..cpus })?;
    let http = r#"{"http": {"requests": [{"path": "/"}]}}"#;
    let plan = format!(
        r#"{{"address": "{address}", "protocol": {http}, "connections": {connections}, "threads": {threads}}}"#
    );
    let mut load = Load::connect::<&[u8]>(&serde_json::from_str(&plan)?, &[])?;
    load.measure(&serde_json::from_str(r#"{"seconds": 0.5}"#)?)?;
    load.measure(&serde_json::from_str(&format!(r#"{{"seconds": {SECONDS}}}"#))?)
}

fn server() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || pin(0..1).and_then(|()| serve(&listener)));
    Ok(address)
}

/// Keeps this thread, and those that it starts, on these CPUs.
fn pin(cpus: Range<usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Each read is a request: a client sends one at a time.
fn serve(listener: &TcpListener) -> io::Result<()> {
    let poller = Poller::new()?;
    poller.add(listener.as_fd(), 0, false)?;
    let mut streams: HashMap<u64, TcpStream> = HashMap::new();
    let (mut ready, mut buffer, mut last) = (Vec::new(), [0; 4096], 0);
    loop {
        poller.wait(&mut ready, None)?;
        for token in &ready {
            if *token == 0 {
                last += 1;
                let stream = listener.accept()?.0;
                poller.add(stream.as_fd(), last, false)?;
                streams.insert(last, stream);
            } else if let Some(mut stream) = streams.get(token)
                && (stream.read(&mut buffer)? == 0 || stream.write_all(ANSWER).is_err())
            {
                streams.remove(token);
            }
        }
    }
}
