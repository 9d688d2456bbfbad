//! One thread's connections, and the loop that carries out its part of a measurement.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clutch_wire::sys::{self, Poller};

use super::answer::Answer;
use super::connection::{Connection, Failed, OPEN_TIMEOUT, Progress, Shared};
use super::figures::Figures;
use super::plan::{Address, Measure, Plan};
use super::requests::{Order, Place, Requests};
use super::schedule::{Dues, Schedule, Share};

const BUFFER_BYTES: usize = 256 * 1024;
/// Interval at which connections are looked after that are not open.
const TICK: Duration = Duration::from_millis(20);

/// Connections of one thread; they stay open between measurements.
#[derive(Debug)]
pub struct Driver {
    share: Share,
    address: Address,
    requests: Arc<Requests>,
    order: Order,
    poller: Poller,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    /// Tokens of connections that something is to be done for.
    ready: Vec<u64>,
    /// Since these were asked for last.
    opened: u64,
    received: u64,
}

impl Driver {
    /// Connects all.
    pub fn connect(plan: &Plan, requests: Arc<Requests>, thread: usize, connections: usize) -> io::Result<Driver> {
        let part = connections as f64 / plan.connections as f64;
        let now = Instant::now();
        let mut driver = Driver {
            share: Share { thread, threads: plan.threads, part },
            address: plan.address.clone(),
            order: requests.order(plan.seed, thread),
            poller: Poller::new()?,
            connections: (0..connections).map(|nr| Connection::new(nr, &requests, now)).collect(),
            requests,
            buffer: vec![0; BUFFER_BYTES],
            ready: Vec::new(),
            opened: 0,
            received: 0,
        };
        driver.settle().map_err(|failed| match failed {
            Failed::Io(error) => {
                io::Error::new(error.kind(), format!("{}: {error}", String::from(plan.address.clone())))
            }
            Failed::Closed => io::Error::new(io::ErrorKind::ConnectionAborted, "the server closed a new connection"),
            Failed::Wrong(what) => io::Error::new(io::ErrorKind::InvalidData, what),
        })?;
        (driver.opened, driver.received) = (0, 0);
        Ok(driver)
    }

    /// Opens what is closed, until all are idle.
    pub fn settle(&mut self) -> Result<(), Failed> {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        loop {
            for connection in 0..self.connections.len() {
                self.with(connection, Connection::look_after)?;
            }
            let is_settled = self.connections.iter().all(Connection::is_idle);
            let now = Instant::now();
            self.poller.wait(&mut self.ready, Some(if is_settled { now } else { now + TICK }))?;
            if self.ready.is_empty() && is_settled {
                return Ok(());
            }
            if now > deadline {
                return Err(Failed::Io(io::ErrorKind::TimedOut.into()));
            }
            for token in std::mem::take(&mut self.ready) {
                match self.with(token as usize, Connection::progress)? {
                    Progress::Left => self.with(token as usize, Connection::open)?,
                    Progress::Opened => self.opened += 1,
                    Progress::Nothing | Progress::Answered(_) => {}
                }
            }
        }
    }

    fn with<T>(&mut self, nr: usize, act: impl FnOnce(&mut Connection, &mut Shared<'_>, Instant) -> T) -> T {
        let (connection, mut shared) = self.parts(nr);
        act(connection, &mut shared, Instant::now())
    }

    fn parts(&mut self, nr: usize) -> (&mut Connection, Shared<'_>) {
        let shared = Shared {
            address: &self.address,
            requests: &self.requests,
            poller: &self.poller,
            buffer: &mut self.buffer,
            received: &mut self.received,
        };
        (&mut self.connections[nr], shared)
    }

    /// Carries out this thread's part. Afterwards nothing is under way.
    pub fn measure(&mut self, measure: &Measure, began: Instant, is_stopped: &AtomicBool) -> io::Result<Figures> {
        let duration = Duration::from_secs_f64(measure.seconds);
        let dues = Dues::new(measure.arrivals, self.share);
        let mut schedule = Schedule::new(dues, self.connections.len(), duration);
        let idle = self.connections.iter().enumerate().filter(|(_, connection)| connection.is_idle());
        idle.for_each(|(nr, _)| schedule.idle(nr, Duration::ZERO));
        let figures = Figures::new(self.connections.len(), self.requests.kinds.len(), duration)?;
        let grace = Duration::from_secs_f64(measure.grace_seconds);
        let mut run = Run { driver: self, schedule, figures, began, grace, next_tick: TICK };
        be_punctual();
        std::thread::sleep(began.saturating_duration_since(Instant::now()));
        let cpu_before = sys::thread_cpu_time();
        run.poll(is_stopped)?;
        run.figures.ran(began.elapsed(), sys::thread_cpu_time().saturating_sub(cpu_before));
        run.end();
        let mut figures = run.figures;
        figures.reconnects = std::mem::take(&mut self.opened);
        figures.received_bytes = std::mem::take(&mut self.received);
        Ok(figures)
    }
}

/// A thread's waits end when they should, and not up to 50 µs later.
fn be_punctual() {
    // It is as punctual as threads are, then.
    let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
}

/// One measurement in one thread.
struct Run<'a> {
    driver: &'a mut Driver,
    schedule: Schedule,
    figures: Figures,
    began: Instant,
    grace: Duration,
    next_tick: Duration,
}

impl Run<'_> {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn poll(&mut self, is_stopped: &AtomicBool) -> io::Result<()> {
        let mut ready = Vec::new();
        while !self.schedule.is_over(self.now(), self.grace) && !is_stopped.load(Relaxed) {
            while let Some(start) = self.schedule.next(self.now()) {
                self.figures.sent(start.late);
                self.send_next(start.connection);
            }
            self.look_after();
            self.wait(&mut ready)?;
            ready.iter().for_each(|connection| self.progress(*connection as usize));
        }
        Ok(())
    }

    /// Until something came, or the next request is due. The poller counts in milliseconds; poll in nanoseconds.
    fn wait(&mut self, ready: &mut Vec<u64>) -> io::Result<()> {
        let due = self.schedule.wake();
        let wake = self.began + due.unwrap_or(self.next_tick).min(self.next_tick);
        let poller = &self.driver.poller;
        if due.is_none() || wake <= Instant::now() {
            return poller.wait(ready, Some(wake));
        }
        ready.clear();
        match sys::wait_readable(poller.as_fd(), Some(wake)) {
            Ok(true) => poller.wait(ready, Some(self.began)),
            Ok(false) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn send_next(&mut self, connection: usize) {
        let place = self.driver.order.next(&self.driver.requests);
        self.send(connection, place);
    }

    fn send(&mut self, connection: usize, place: Place) {
        let sent = self.driver.with(connection, |connection, shared, _| connection.send(shared, place));
        sent.unwrap_or_else(|failed| self.lose(connection, &failed));
    }

    fn progress(&mut self, connection: usize) {
        match self.driver.with(connection, Connection::progress) {
            Ok(Progress::Nothing) => {}
            Ok(Progress::Opened) => self.opened(connection),
            Ok(Progress::Answered(answer)) => self.answered(connection, answer),
            Ok(Progress::Left) => {
                self.schedule.lost(connection);
                self.open(connection);
            }
            Err(failed) => self.lose(connection, &failed),
        }
    }

    /// A request that the connection has cost before goes first.
    fn opened(&mut self, connection: usize) {
        self.driver.opened += 1;
        if self.schedule.carries(connection) {
            self.figures.sent_again();
            self.send(connection, self.driver.connections[connection].place());
        } else {
            self.schedule.idle(connection, self.now());
        }
    }

    fn answered(&mut self, connection: usize, answer: Answer) {
        let now = self.now();
        let latency = self.schedule.answered(connection, now);
        let kind = self.driver.connections[connection].place().kind;
        if answer.is_fine() {
            self.figures.answered(connection, kind, now, latency);
        } else {
            let name = &self.driver.requests.kinds[kind].name;
            self.figures.bad_status(name, answer.status.unwrap_or(0), now);
        }
        if answer.closes {
            self.open(connection);
        } else {
            self.schedule.idle(connection, now);
        }
    }

    /// What a connection carried that failed has failed, unless it is to be sent again; and it is opened again.
    fn lose(&mut self, connection: usize, failed: &Failed) {
        if self.driver.connections[connection].is_retried(&self.driver.requests, failed) {
            return self.open(connection);
        }
        self.schedule.lost(connection);
        self.figures.failed(failed, self.now());
        if !self.driver.connections[connection].is_down() {
            self.open(connection);
        }
    }

    fn open(&mut self, connection: usize) {
        if let Err(failed) = self.driver.with(connection, Connection::open) {
            self.lose(connection, &failed);
        }
    }

    fn look_after(&mut self) {
        let now = self.now();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        for connection in 0..self.driver.connections.len() {
            if let Err(failed) = self.driver.with(connection, Connection::look_after) {
                self.lose(connection, &failed);
            }
        }
    }

    /// Requests under way have taken at least so long. Their answers are not to be taken for those of later ones.
    fn end(&mut self) {
        let now = self.now();
        self.figures.offered = self.schedule.offered(now);
        for waited in self.schedule.unanswered(now) {
            self.figures.unanswered(now, waited);
        }
        for connection in self.schedule.carrying() {
            // The next measurement tries again, and tells.
            let _ = self.driver.with(connection, Connection::open);
        }
    }
}
