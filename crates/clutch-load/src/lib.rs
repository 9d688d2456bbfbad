//! Drives a server and measures what its clients see: in a closed loop, or at a rate that the server cannot slow down.
//!
//! A [`Plan`] makes a [`Load`], and each [`Measure`] over its connections a [`Report`]; all but the load are plain data.
//! Each thread owns its connections, its schedule and its figures, which are merged at the end, and waits in a poller
//! alone. A connection that the server closes is opened again, and a request over HTTP that was lost with it is sent once
//! more where HTTP clients do that.

mod answer;
mod chunked;
mod connection;
mod driver;
mod figures;
mod latencies;
mod pings;
mod plan;
mod random;
mod requests;
mod reuse;
mod schedule;
#[cfg(test)]
mod truth;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use driver::Driver;
use figures::Figures;
pub use figures::{Report, Series};
pub use latencies::{Latencies, Percentiles};
pub use plan::{Address, Arrivals, Bytes, Measure, Plan, Protocol, Request, TcpAnswer};
use requests::Requests;

/// Time in which all threads start, so that no request is late for that.
const START: Duration = Duration::from_millis(5);
/// Interval at which is asked whether a measurement goes on.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Connections to a server, open between measurements too.
#[derive(Debug)]
pub struct Load {
    drivers: Vec<Driver>,
}

impl Load {
    /// Opens all connections. The bodies are those of each HTTP request, used in turn; none for one without.
    pub fn connect<B: AsRef<[u8]>>(plan: &Plan, bodies: &[Vec<B>]) -> io::Result<Load> {
        plan.check()?;
        let requests = Arc::new(Requests::new(plan, bodies)?);
        let drivers = shares(plan)
            .enumerate()
            .map(|(thread, connections)| Driver::connect(plan, requests.clone(), thread, connections));
        Ok(Load { drivers: drivers.collect::<io::Result<_>>()? })
    }

    /// Takes a measurement. What fails in it is counted in the report; afterwards nothing is under way.
    pub fn measure(&mut self, measure: &Measure) -> io::Result<Report> {
        self.measure_while(measure, || true)
    }

    /// The same, but it ends early when `goes_on`, which is asked now and then, says no.
    pub fn measure_while(&mut self, measure: &Measure, mut goes_on: impl FnMut() -> bool) -> io::Result<Report> {
        measure.check()?;
        for driver in &mut self.drivers {
            // A server that is away may come back: the connections try again, and what fails then is counted.
            let _ = driver.settle();
        }
        let (began, is_stopped) = (Instant::now() + START, &AtomicBool::new(false));
        let figures = thread::scope(|scope| {
            let (running, all) = mpsc::channel::<()>();
            let start = |driver| {
                let running = running.clone();
                scope.spawn(move || measured(driver, measure, began, is_stopped, running))
            };
            let threads: Vec<_> = self.drivers.iter_mut().map(start).collect();
            drop(running);
            while all.recv_timeout(LOOK_UP) == Err(RecvTimeoutError::Timeout) {
                if !goes_on() {
                    is_stopped.store(true, Relaxed);
                }
            }
            threads.into_iter().map(joined).collect::<io::Result<Vec<Figures>>>()
        })?;
        let merged = Figures::merged(figures).ok_or_else(|| io::Error::other("no thread ran"))?;
        Ok(merged.report(Duration::from_secs_f64(measure.seconds)))
    }
}

/// What one thread does; the last to end `running` ends the measurement.
fn measured(
    driver: &mut Driver,
    measure: &Measure,
    began: Instant,
    is_stopped: &AtomicBool,
    running: Sender<()>,
) -> io::Result<Figures> {
    let figures = driver.measure(measure, began, is_stopped);
    drop(running);
    figures
}

/// Returns the number of connections of each thread, divided as evenly as possible.
fn shares(plan: &Plan) -> impl Iterator<Item = usize> {
    (0..plan.threads).map(|nr| (plan.connections + nr) / plan.threads)
}

fn joined(thread: ScopedJoinHandle<'_, io::Result<Figures>>) -> io::Result<Figures> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the load panicked")))
}
