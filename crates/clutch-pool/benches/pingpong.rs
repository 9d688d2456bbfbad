//! The floor under a call: two processes that send 64 bytes back and forth over a socketpair, blocking.
//!
//! `pingpong [--calls N]` starts itself once more as the other side, with one end of the pair as its standard input,
//! and prints `{"calls": N, "p50_ns": …}`. Both sides run on the CPUs that this process may use.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

const MESSAGE_BYTES: usize = 64;
const CALLS_DEFAULT: usize = 20_000;
const WARM_UP_CALLS: usize = 200;
const OTHER_SIDE: &str = "--other-side";

fn main() -> io::Result<()> {
    if std::env::args().any(|argument| argument == OTHER_SIDE) {
        return echo_until_closed();
    }
    let calls = calls_asked_for();
    let p50_ns = measure(calls)?;
    writeln!(io::stdout(), "{{\"calls\": {calls}, \"p50_ns\": {p50_ns}}}")
}

fn calls_asked_for() -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--calls").skip(1);
    arguments.next().and_then(|count| count.parse().ok()).unwrap_or(CALLS_DEFAULT)
}

/// Median of `calls` round trips, in nanoseconds.
fn measure(calls: usize) -> io::Result<u128> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut other_side =
        Command::new(std::env::current_exe()?).arg(OTHER_SIDE).stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
    for _ in 0..WARM_UP_CALLS {
        round_trip(&mut ours)?;
    }
    let mut spent_ns = (0..calls).map(|_| round_trip(&mut ours)).collect::<io::Result<Vec<u128>>>()?;
    drop(ours);
    other_side.wait()?;
    spent_ns.sort_unstable();
    Ok(spent_ns.get(calls / 2).copied().unwrap_or_default())
}

fn round_trip(stream: &mut UnixStream) -> io::Result<u128> {
    let mut message = [7u8; MESSAGE_BYTES];
    let began = Instant::now();
    stream.write_all(&message)?;
    stream.read_exact(&mut message)?;
    Ok(began.elapsed().as_nanos())
}

fn echo_until_closed() -> io::Result<()> {
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut message = [0u8; MESSAGE_BYTES];
    while stream.read_exact(&mut message).is_ok() {
        stream.write_all(&message)?;
    }
    Ok(())
}
