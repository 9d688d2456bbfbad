//! Who lives: the thin loop that moves events into the supervisor's machine and carries out its actions.
//!
//! One thread for each pool, the driver. It also reads the links that no caller reads. It never sleeps but in the poller,
//! and lives as long as the pool (the zygote's parent-death signal counts on that).

pub mod output;
pub mod recycle;
pub mod state;
pub mod zygote;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use self::output::Output;
use self::state::{Action, Event, State, Supervisor, Worker, WorkerRecord, fate_text};
use self::zygote::{CONTROL, Ended, Said, Zygote};
use crate::link::Board;
use crate::pool::state::WorkerKey;
use crate::pool::{Health, Link, Notice, Pool, WAKE, WorkerView};
use crate::sys::{self, EndSignal, Fate};
use crate::telemetry;
use crate::wire::WIRE_VERSION;
use crate::work::Failure;

/// What the dispatcher says of itself, to compare with a zygote's hello.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Like `cpython-311`: what code by value is bound to.
    pub tag: String,
}

/// The loop of one pool.
pub struct Driver {
    pool: Arc<Pool>,
    identity: Identity,
    machine: Supervisor,
    zygote: Option<Zygote>,
    outputs: HashMap<WorkerKey, Output>,
    image: serde_json::Value,
    was_failing: bool,
    /// Events of the step under way: told once the status says the same.
    untold: Option<RefCell<Vec<telemetry::Event>>>,
}

/// Starts the driver of a pool on a thread of its own.
pub fn start(pool: Arc<Pool>, identity: Identity) -> io::Result<()> {
    let machine = Supervisor::new(pool.config.clone());
    let name = format!("clutch-{}", pool.config.name);
    let outputs = HashMap::new();
    let image = serde_json::Value::Null;
    let driver = Driver { pool, identity, machine, zygote: None, outputs, image, was_failing: false, untold: None };
    std::thread::Builder::new().name(name.chars().take(15).collect()).spawn(move || driver.run())?;
    Ok(())
}

impl Driver {
    fn run(mut self) {
        sys::block_signals();
        let mut tokens = Vec::new();
        self.tell(Event::Tick);
        while !self.machine.is_closed() && !self.pool.is_forked() {
            let wake = self.pool.tick(self.machine.next_wake());
            if self.pool.poller.wait(&mut tokens, wake).is_err() {
                return;
            }
            for token in tokens.drain(..) {
                match token {
                    WAKE => self.take_notices(),
                    CONTROL => self.read_zygote(),
                    worker => self.pool.on_ready(worker as WorkerKey),
                }
            }
            if self.machine.next_wake().is_some_and(|at| at <= Instant::now()) {
                self.tell(Event::Tick);
            }
        }
    }

    // ---- events in

    fn take_notices(&mut self) {
        for notice in self.pool.drain_notices() {
            match notice {
                Notice::Worn(worker) => self.tell(Event::Worn { worker }),
                Notice::Drained(worker) => self.tell(Event::Drained { worker }),
                Notice::Stuck { worker, cause } => self.tell(Event::Stuck { worker, cause }),
                Notice::LinkEnded(worker, _) => self.tell(Event::LinkEnded { worker }),
                Notice::Ready(worker, json) => self.greet_worker(worker, &json),
                Notice::StartFailed(worker, json) => {
                    let reason = reason_of(&json);
                    self.tell(Event::StartFailed { worker, reason });
                }
                Notice::WantWrite(worker) => self.pool.want_write(worker, true),
                Notice::Empty => self.tell(Event::Empty),
                Notice::Stop { grace, term } => self.tell(Event::Stop { grace, term }),
            }
        }
    }

    fn read_zygote(&mut self) {
        let Some(zygote) = self.zygote.as_mut() else { return };
        match zygote.read() {
            Some(said) => said.into_iter().for_each(|one| self.hear(one)),
            None => self.lose_zygote(),
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Hello(hello) => self.greet(hello),
            Said::Up(up) => {
                let shape = up.shape;
                let mut image = up.rest;
                image.insert("warnings".to_owned(), up.warnings.clone().into());
                self.image = serde_json::Value::Object(image);
                let generation = self.machine.generation;
                let warnings = up.warnings;
                self.emit(|pool| telemetry::Event::ZygoteReady { pool, generation, warnings });
                self.tell(Event::ZygoteUp { shape });
            }
            Said::Failed(reason) => self.tell(Event::ZygoteFailed(reason)),
            Said::Forked { worker, error: Some(reason), .. } => {
                self.outputs.remove(&worker);
                self.tell(Event::ForkFailed { worker, reason });
            }
            Said::Forked { worker, pid, error: None } => {
                self.tell(Event::Forked { worker, pid });
                if let Some(Worker { nr, generation, .. }) = self.machine.workers.get(&worker).cloned() {
                    self.emit(|pool| telemetry::Event::WorkerStarting { pool, nr, generation, pid });
                }
            }
            Said::Fate { worker, fate } => self.tell(Event::Fate { worker, fate }),
        }
    }

    /// Versions must fit, or nothing that follows means anything.
    fn greet(&mut self, hello: zygote::Hello) {
        let ours = env!("CARGO_PKG_VERSION");
        let foreign = (hello.tag != self.identity.tag).then(|| hello.python.clone());
        if hello.wire != WIRE_VERSION || hello.clutch != ours {
            let python = &self.pool.config.python;
            let reason = format!(
                "pool '{}': {python} has clutch {} (wire {}), the dispatcher {ours} (wire {WIRE_VERSION}); mend it with: \
                 {python} -m pip install 'clutch=={ours}'",
                self.pool.config.name, hello.clutch, hello.wire
            );
            self.tell(Event::ZygoteFailed(reason));
            return;
        }
        self.pool.set_foreign(foreign);
        if let Some(zygote) = self.zygote.as_mut() {
            zygote.hello = Some(hello);
        }
    }

    /// A worker's ready may overtake the zygote's word that it was forked: it brings its pid, so that nobody sees it
    /// ready without one.
    fn greet_worker(&mut self, worker: WorkerKey, json: &str) {
        let ready: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
        if let Some(pid) = ready.get("pid").and_then(serde_json::Value::as_i64) {
            self.tell(Event::Forked { worker, pid: pid as i32 });
        }
        self.tell(Event::WorkerReady { worker });
    }

    fn lose_zygote(&mut self) {
        let Some(zygote) = self.zygote.take() else { return };
        self.pool.poller.remove(zygote.control().as_fd());
        let greeted = zygote.hello.is_some();
        let Ended { text: end, signaled } = zygote.end();
        let python = &self.pool.config.python;
        let reason = if greeted {
            format!("the zygote of pool '{}' ended: {end}", self.pool.config.name)
        } else {
            format!("{python} could not run the zygote of pool '{}': {end}", self.pool.config.name)
        };
        let generation = self.machine.generation;
        self.emit(|pool| telemetry::Event::ZygoteLost { pool, generation, reason: reason.clone() });
        self.pool.arm_all();
        self.tell(Event::ZygoteGone { reason, signaled });
    }

    // ---- actions out

    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.untold = Some(RefCell::default());
        self.machine.on(event, Instant::now(), &mut actions);
        let mut queue = std::collections::VecDeque::from(actions);
        while let Some(action) = queue.pop_front() {
            let mut follow = Vec::new();
            if let Some(event) = self.act(action) {
                self.machine.on(event, Instant::now(), &mut follow);
            }
            queue.extend(follow);
        }
        self.publish();
        for event in self.untold.take().into_iter().flat_map(RefCell::into_inner) {
            self.pool.telemetry.emit(|| event);
        }
    }

    /// Carries out one action; what came of it at once, if anything.
    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::StartZygote { generation } => return self.start_zygote(generation).err(),
            Action::KillZygote => return self.end_zygote(),
            Action::Fork { worker, nr } => return self.fork(worker, nr).err(),
            Action::Admit { worker, calls } => {
                self.pool.worker_ready(worker, self.machine.slots, calls);
                self.about(worker, |pool, nr, generation, pid| telemetry::Event::WorkerReady {
                    pool,
                    nr,
                    generation,
                    pid,
                });
            }
            Action::Hold { worker, held } => self.hold(worker, held),
            Action::Drain { worker, reason } => {
                let reason = reason.to_owned();
                self.about(worker, |pool, nr, _, pid| telemetry::Event::WorkerDraining { pool, nr, pid, reason });
                self.pool.worker_draining(worker);
            }
            Action::End { worker } => self.pool.send_drain(worker),
            Action::Kill { worker, signal } => self.signal(worker, signal),
            Action::Gone { worker, fate, record } => self.gone(worker, fate, &record),
            Action::Failing { reason, loaded } => self.failing(reason, loaded),
            Action::RefuseWaiting => self.pool.refuse_waiting(),
            Action::Closed => {
                self.outputs.clear();
                self.emit(|pool| telemetry::Event::PoolClosed { pool });
            }
        }
        None
    }

    fn start_zygote(&mut self, generation: u32) -> Result<(), Event> {
        if let Some(mut old) = self.zygote.take() {
            self.pool.poller.remove(old.control().as_fd());
            old.kill();
            old.end();
        }
        let failed = |error: io::Error| {
            Event::ZygoteFailed(format!(
                "cannot start {} for pool '{}': {error}",
                self.pool.config.python, self.pool.config.name
            ))
        };
        let zygote = Zygote::start(&self.pool.config, generation).map_err(failed)?;
        let pid = zygote.pid;
        self.pool.poller.add(zygote.control().as_fd(), CONTROL, false).map_err(failed)?;
        self.zygote = Some(zygote);
        self.emit(|pool| telemetry::Event::ZygoteStarted { pool, generation, pid });
        Ok(())
    }

    fn end_zygote(&mut self) -> Option<Event> {
        let mut zygote = self.zygote.take()?;
        self.pool.poller.remove(zygote.control().as_fd());
        if zygote.hello.is_none() || !self.machine.is_stopping() {
            zygote.kill();
        }
        let Ended { text: reason, signaled } = zygote.end();
        Some(Event::ZygoteGone { reason, signaled })
    }

    fn fork(&mut self, worker: WorkerKey, nr: u32) -> Result<(), Event> {
        let failed = |error: io::Error| Event::ForkFailed {
            worker,
            reason: format!(
                "cannot start a worker of pool '{}': {error}; a pool of {} workers needs about {} descriptors (ulimit -n)",
                self.pool.config.name,
                self.machine.target,
                self.machine.target * 8 + 64
            ),
        };
        let Some(zygote) = self.zygote.as_ref() else { return Ok(()) };
        let slots = self.machine.slots as u32;
        let (ours, theirs) = sys::socket_pair().map_err(failed)?;
        let (board, board_fd) = Board::create(Board::words_for(slots)).map_err(failed)?;
        let prefix = format!("{}/{nr}", self.pool.config.name);
        let (output, out, err) = Output::open(&prefix, self.pool.config.output_kept_bytes).map_err(failed)?;
        self.outputs.insert(worker, output);
        self.pool.attach(Link::new(worker, ours, board));
        zygote.fork(worker, nr, vec![theirs, board_fd, out, err]);
        Ok(())
    }

    fn hold(&mut self, worker: WorkerKey, held: bool) {
        self.pool.worker_held(worker, held);
        self.about(worker, |pool, nr, _, pid| match held {
            true => telemetry::Event::WorkerStopped { pool, nr, pid },
            false => telemetry::Event::WorkerContinued { pool, nr, pid },
        });
    }

    /// By its zygote, which is its parent; without one by its group, which the worker made itself leader of.
    fn signal(&mut self, worker: WorkerKey, signal: EndSignal) {
        let Some(known) = self.machine.workers.get(&worker) else { return };
        match (&self.zygote, known.pid) {
            (Some(zygote), _) if zygote.generation == known.generation => zygote.signal_worker(worker, signal),
            (_, Some(pid)) => sys::end_group(pid, signal),
            _ => {}
        }
    }

    fn gone(&mut self, worker: WorkerKey, fate: Option<Fate>, record: &WorkerRecord) {
        if fate.is_none() && record.pid > 0 {
            // Its zygote is gone and cannot do it.
            sys::end_group(record.pid, EndSignal::Kill);
        }
        let output = self.outputs.remove(&worker).map(|output| output.last()).unwrap_or_default();
        let failure = self.lost(fate, record, output);
        let cause = failure.to_string();
        // Whoever learns of the death finds it in the stats too.
        self.publish();
        self.pool.worker_gone(worker, failure);
        let (nr, pid) = (record.nr, record.pid);
        self.emit(|pool| telemetry::Event::WorkerGone { pool, nr, pid, cause });
    }

    fn lost(&self, fate: Option<Fate>, record: &WorkerRecord, output: String) -> Failure {
        let why =
            record.cause.as_ref().or(record.said.as_ref()).map(|reason| format!(" ({reason})")).unwrap_or_default();
        let (name, nr, pid) = (&self.pool.config.name, record.nr, record.pid);
        let message = format!("worker {name}/{nr} (pid {pid}) {}{why}", fate_text(fate));
        let (signal, exit_code) = match fate {
            Some(Fate::Signaled(signal)) => (Some(signal), None),
            Some(Fate::Exited(code)) => (None, Some(code)),
            _ => (None, None),
        };
        let cause = record.cause.clone();
        Failure::WorkerLost { message, worker_pid: pid, signal, exit_code, output, cause }
    }

    fn failing(&mut self, reason: String, loaded: bool) {
        if !self.was_failing {
            self.emit(|pool| telemetry::Event::PoolFailing { pool, reason: reason.clone() });
        }
        let message = reason;
        let failure = match loaded {
            true => {
                let output = String::new();
                Failure::WorkerLost { message, worker_pid: 0, signal: None, exit_code: None, output, cause: None }
            }
            false => Failure::Config { message },
        };
        self.pool.set_failing(Some(failure));
        self.was_failing = true;
    }

    fn about(&self, worker: WorkerKey, make: impl FnOnce(String, u32, u32, i32) -> telemetry::Event) {
        if let Some(known) = self.machine.workers.get(&worker) {
            let (nr, generation, pid) = (known.nr, known.generation, known.pid.unwrap_or(0));
            self.emit(|pool| make(pool, nr, generation, pid));
        }
    }

    fn emit(&self, make: impl FnOnce(String) -> telemetry::Event) {
        match &self.untold {
            Some(untold) if self.pool.telemetry.is_watched() => {
                untold.borrow_mut().push(make(self.pool.config.name.clone()));
            }
            Some(_) => {}
            None => self.pool.telemetry.emit(|| make(self.pool.config.name.clone())),
        }
    }

    /// Brings the public status up to date.
    fn publish(&mut self) {
        let health = match &self.machine {
            machine if machine.is_closed() => Health::Closed,
            machine if machine.is_stopping() => Health::Draining,
            machine if machine.failing().is_some() => Health::Failing,
            machine if machine.ready() > 0 => Health::Ready,
            _ => Health::Starting,
        };
        let recovered = health == Health::Ready && std::mem::take(&mut self.was_failing);
        let workers = self.machine.workers.iter().map(|(key, worker)| (*key, view(worker))).collect();
        let zygote_pid = self.zygote.as_ref().map(|zygote| zygote.pid);
        let (machine, image) = (&self.machine, &self.image);
        self.pool.update_status(|status| {
            status.health = health;
            status.reason = machine.failing().map(str::to_owned);
            status.ready = machine.ready();
            status.target = machine.target;
            status.workers = workers;
            status.zygote_pid = zygote_pid;
            status.generation = machine.generation;
            status.restarts = machine.restarts;
            if status.image != *image {
                status.image = image.clone();
            }
        });
        if recovered {
            self.emit(|pool| telemetry::Event::PoolRecovered { pool });
        }
    }
}

fn view(worker: &Worker) -> WorkerView {
    let state = if worker.state == State::Killed { "draining" } else { worker.state.as_str() };
    let pid = worker.pid.unwrap_or(0);
    WorkerView { nr: worker.nr, pid, generation: worker.generation, state, calls: 0, sent: 0 }
}

/// What a worker that could not start says.
fn reason_of(json: &str) -> String {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(json);
    let reason =
        parsed.ok().and_then(|value| value.get("reason").and_then(|reason| reason.as_str().map(str::to_owned)));
    reason.unwrap_or_else(|| json.to_owned())
}
