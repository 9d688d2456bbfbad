//! Drives a server and measures what its clients see: in a closed loop, or at a rate that the server cannot slow down.
//!
//! A [`Plan`] goes in and a [`Report`] comes out; both are plain data. Each thread owns its connections, its schedule
//! and its figures, which are merged at the end. A thread with one connection and no rate blocks in it, as a simple
//! client does; any other waits in a poller.

mod answer;
mod client;
mod figures;
mod plan;
mod schedule;

use std::io;
use std::time::{Duration, Instant};

use answer::Answer;
use client::Client;
use clutch_wire::sys::{self, Poller};
use figures::Figures;
pub use figures::Report;
pub use plan::{Plan, Protocol};
use schedule::{Arrivals, Schedule};

/// Maximum wait for answers after the last request was due.
const GRACE: Duration = Duration::from_secs(2);
/// Interval at which a loop without a rate looks at the clock while nothing arrives.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Carries the plan out. Fails when it cannot be carried out at all; what fails on the way is counted in the report.
pub fn run(plan: &Plan) -> io::Result<Report> {
    check(plan)?;
    let mut clients = clients(plan)?;
    let began = Instant::now();
    let figures = std::thread::scope(|scope| {
        let shares = shares(plan);
        let drivers: Vec<_> = shares
            .into_iter()
            .map(|count| clients.split_off(clients.len() - count))
            .map(|share| scope.spawn(move || drive(plan, share, began)))
            .collect();
        drivers.into_iter().map(joined).collect::<io::Result<Vec<Figures>>>()
    })?;
    let merged = Figures::merged(figures).ok_or_else(|| io::Error::other("no thread ran"))?;
    Ok(merged.report(plan.seconds))
}

fn check(plan: &Plan) -> io::Result<()> {
    let rate_is_possible = plan.per_second.is_none_or(|rate| rate.is_finite() && rate > 0.0);
    let duration_is_possible = plan.seconds.is_finite() && plan.seconds > 0.0;
    if plan.threads == 0 || plan.threads > plan.connections || !rate_is_possible || !duration_is_possible {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a plan needs 1 ≤ threads ≤ connections, seconds > 0 and no rate or one > 0, not {plan:?}"),
        ));
    }
    Ok(())
}

fn clients(plan: &Plan) -> io::Result<Vec<Client>> {
    (0..plan.connections).map(|nr| Client::connect(plan).map(|client| client.numbered(nr))).collect()
}

/// Returns the number of connections of each thread, divided as evenly as possible.
fn shares(plan: &Plan) -> Vec<usize> {
    (0..plan.threads).map(|nr| (plan.connections + nr) / plan.threads).collect()
}

fn joined(driver: std::thread::ScopedJoinHandle<'_, io::Result<Figures>>) -> io::Result<Figures> {
    driver.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the load panicked")))
}

fn drive(plan: &Plan, clients: Vec<Client>, began: Instant) -> io::Result<Figures> {
    let schedule = Schedule::new(arrivals(plan, clients.len()), clients.len(), Duration::from_secs_f64(plan.seconds));
    let mut figures = Figures::new()?;
    clients.iter().for_each(|client| figures.connected(client.nr()));
    let clients: Vec<_> = clients.into_iter().map(Some).collect();
    let mut driver = Driver { clients, schedule, figures, began };
    if driver.clients.len() == 1 && plan.per_second.is_none() {
        driver.block()?
    } else {
        driver.poll()?
    }
    Ok(driver.figures)
}

/// A thread's part of the rate is as large as its part of the connections.
fn arrivals(plan: &Plan, connections: usize) -> Arrivals {
    match plan.per_second {
        Some(rate) => Arrivals::open(rate * connections as f64 / plan.connections as f64),
        None => Arrivals::Closed,
    }
}

/// Loop of one thread.
struct Driver {
    /// None: the connection failed and is closed, so that no poller speaks of it again.
    clients: Vec<Option<Client>>,
    schedule: Schedule,
    figures: Figures,
    began: Instant,
}

impl Driver {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn block(&mut self) -> io::Result<()> {
        self.clients.iter().flatten().try_for_each(|client| client.block_for(GRACE))?;
        while let Some(connection) = self.schedule.next(self.now()) {
            self.send(connection);
            while self.schedule.is_under_way(connection) {
                self.receive(connection);
            }
        }
        self.end();
        Ok(())
    }

    fn poll(&mut self) -> io::Result<()> {
        let poller = Poller::new()?;
        for (connection, client) in self.clients.iter().flatten().enumerate() {
            client.poll_with(&poller, connection as u64)?;
        }
        let mut ready = Vec::new();
        while !self.schedule.is_over(self.now(), GRACE) {
            while let Some(connection) = self.schedule.next(self.now()) {
                self.send(connection);
            }
            self.wait(&poller, &mut ready)?;
            ready.iter().for_each(|connection| self.receive(*connection as usize));
        }
        self.end();
        Ok(())
    }

    /// Until something came, or the next request is due. The poller counts in milliseconds; poll in nanoseconds.
    fn wait(&self, poller: &Poller, ready: &mut Vec<u64>) -> io::Result<()> {
        let wake = self.schedule.wake().unwrap_or_else(|| self.now() + LOOK_UP);
        if sys::wait_readable(poller.as_fd(), Some(self.began + wake))? {
            return poller.wait(ready, Some(self.began));
        }
        ready.clear();
        Ok(())
    }

    fn send(&mut self, connection: usize) {
        let sent = self.clients[connection].as_mut().map_or(Ok(()), Client::send);
        sent.unwrap_or_else(|error| self.lose(connection, &error));
    }

    fn receive(&mut self, connection: usize) {
        let Some(client) = &mut self.clients[connection] else { return };
        match client.receive() {
            Ok(Answer::Partial) => {}
            Ok(answer) => {
                let latency = self.schedule.answered(connection, self.began.elapsed());
                self.figures.answered(client.nr(), latency, answer == Answer::Whole);
            }
            Err(error) => self.lose(connection, &error),
        }
    }

    /// A connection that failed carries nothing any more; what it carried counts as failed.
    fn lose(&mut self, connection: usize, error: &io::Error) {
        self.clients[connection] = None;
        self.schedule.lost(connection);
        self.figures.failed(error);
    }

    /// Ends the plan: requests under way have taken at least so long.
    fn end(&mut self) {
        for latency in self.schedule.unanswered(self.now()) {
            self.figures.unanswered(latency);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers each `request` bytes with `answer` on every connection, until the client closes it.
    fn server(request: usize, answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut message = vec![0; request];
                    while stream.read_exact(&mut message).is_ok() && stream.write_all(answer.as_bytes()).is_ok() {}
                });
            }
        });
        address
    }

    fn plan(address: SocketAddr, connections: usize, threads: usize, per_second: Option<f64>) -> Plan {
        let protocol = Protocol::Tcp { message: "ping".into(), answer: "hello world\n".into() };
        Plan { address, protocol, connections, threads, seconds: 0.2, per_second }
    }

    #[test]
    fn every_client_of_a_closed_loop_is_served() {
        for threads in [1, 3] {
            let report = run(&plan(server(4, "hello world\n"), 3, threads, None)).unwrap();
            assert_eq!((report.failed, report.unanswered), (0, 0));
            assert_eq!(report.by_connection.len(), 3);
            assert!(report.by_connection.iter().all(|count| *count > 0), "{report:?}");
            assert_eq!(report.by_connection.iter().sum::<u64>(), report.answers);
        }
    }

    #[test]
    fn an_open_loop_sends_what_was_asked_for_and_no_more() {
        let report = run(&plan(server(4, "hello world\n"), 2, 1, Some(500.0))).unwrap();
        assert_eq!((report.answers, report.failed, report.unanswered), (100, 0, 0));
        assert!(report.p50_us > 1.0 && report.p50_us <= report.p99_us, "no round trip is so short: {report:?}");
    }

    #[test]
    fn a_wrong_answer_is_a_failure_not_a_figure() {
        let report = run(&plan(server(4, "hello there\n"), 1, 1, None)).unwrap();
        assert_eq!((report.answers, report.failed), (0, 1));
        assert!(report.first_failure.unwrap().contains("hello there"));
    }

    #[test]
    fn a_plan_that_cannot_be_carried_out_says_what_one_needs() {
        let error = run(&plan(server(4, ""), 1, 2, None)).unwrap_err();
        assert!(error.to_string().contains("1 ≤ threads ≤ connections"), "{error}");
    }
}
