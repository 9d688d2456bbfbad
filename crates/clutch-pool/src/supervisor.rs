//! The supervisor: the thin loop that moves events into its machine of who lives, and carries out the actions.
//!
//! Each pool has one such thread, the driver. It also reads the links that no caller reads. It never sleeps but in the
//! poller, and lives as long as the pool (the zygote's parent-death signal counts on that).

mod descriptors;
mod ending;
pub mod facts;
mod leave;
pub mod memory;
pub mod process;
pub mod recycle;
mod report;
pub mod scale;
pub mod state;
pub mod zygote;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use clutch_wire::Failure;
use clutch_wire::sys::{self, EndSignal, Fate};
use clutch_wire::terminal;

pub use self::descriptors::{descriptors_of, make_room};
use self::facts::{
    PoolClosed, PoolFailing, PoolRecovered, PoolScaled, PoolShort, ReloadFailed, ReloadFinished, ReloadStarted,
    WorkerContinued, WorkerDebugged, WorkerDraining, WorkerGone, WorkerReady, WorkerStarting, WorkerStopped,
    ZygoteLost, ZygoteReady, ZygoteStarted,
};
use self::process::Process;
use self::scale::{Rules, Scaling};
use self::state::{Action, ENDLESS_LEAVE, Event, Leave, State, Supervisor, Worker, WorkerRecord};
pub use self::zygote::Identity;
use self::zygote::{Ended, Said, Zygote, generation_of};
use crate::link::board::Board;
use crate::output::Output;
use crate::pool::state::{Hold, WorkerKey};
use crate::pool::{Carried, Command, Denied, END_OF_FILE, Health, Link, Notice, PoolDriver, Ticket, WAKE};
use crate::telemetry::{Fact, KeptRecord};

/// The loop of one pool.
pub struct Driver {
    pool: PoolDriver,
    identity: Identity,
    machine: Supervisor,
    scaling: Scaling,
    /// By generation.
    zygotes: BTreeMap<u32, Zygote>,
    outputs: HashMap<WorkerKey, Output>,
    processes: HashMap<WorkerKey, Process>,
    /// The last signal that was sent to each of them.
    signalled: HashMap<WorkerKey, EndSignal>,
    was_failing: bool,
    /// The machine was told something in this turn of the loop.
    told: bool,
    /// Events of the turn under way: told once the status says the same.
    untold: RefCell<Vec<KeptRecord>>,
    /// Workers that ended in the turn under way: their work is answered once the status says the same.
    ended: Vec<Lost>,
    /// Outcomes of orders in the turn under way.
    carried: Vec<(Ticket, Carried)>,
}

/// A worker that ended, and what its work is answered.
struct Lost {
    worker: WorkerKey,
    failure: Failure,
    record: WorkerRecord,
}

/// Starts the driver of a pool on a thread of its own.
pub fn start(pool: PoolDriver, identity: Identity) -> io::Result<()> {
    let config = pool.config();
    // For a budget, the private memory of every worker is wanted.
    let floor = if config.memory_max_bytes.is_some() { Some(0) } else { recycle::memory_floor(config) };
    if let Some(floor) = floor {
        memory::start(Arc::clone(pool.pool()), floor)?;
    }
    if config.development {
        terminal::remember();
    }
    let machine = Supervisor::new(config.clone());
    let rules = Rules::of(config);
    pool.watch_waiting((machine.bounds().min < machine.bounds().max).then_some(rules.delay));
    let name = format!("clutch-{}", pool.config().name);
    let driver = Driver {
        pool,
        identity,
        machine,
        scaling: Scaling::new(rules),
        zygotes: BTreeMap::new(),
        outputs: HashMap::new(),
        processes: HashMap::new(),
        signalled: HashMap::new(),
        was_failing: false,
        told: false,
        untold: RefCell::default(),
        ended: Vec::new(),
        carried: Vec::new(),
    };
    let started = std::thread::Builder::new().name(name.chars().take(15).collect()).spawn(move || driver.run());
    // The thread beside it ends with the pool.
    started.map(drop)
}

impl Driver {
    fn run(mut self) {
        sys::block_signals();
        if let Err(error) = self.serve() {
            self.give_up(&format!("the pool cannot watch its workers any more: {error}"));
        }
        self.pool.close_orders();
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut tokens = Vec::new();
        self.tell(Event::Tick);
        self.settle();
        while !self.machine.is_closed() && !self.pool.pool().is_forked() {
            let mut look_at = None;
            let wake = self.pool.tick(self.machine.next_wake(), |waits_since| {
                look_at = self.scaling.next_look(self.machine.bounds(), waits_since);
                look_at
            });
            self.pool.poller().wait(&mut tokens, wake)?;
            tokens.drain(..).for_each(|token| self.on_ready(token));
            if self.machine.next_wake().is_some_and(|at| at <= Instant::now()) {
                self.tell(Event::Tick);
            }
            if look_at.is_some_and(|at| at <= Instant::now()) {
                self.scale();
            }
            self.settle();
        }
        Ok(())
    }

    fn on_ready(&mut self, token: u64) {
        if token == WAKE {
            self.take_notices();
        } else if let Some(generation) = generation_of(token) {
            self.read_zygote(generation);
        } else if let Some(worker) = process::worker_of(token) {
            self.process_ended(worker);
        } else {
            self.pool.on_ready(token);
        }
    }

    /// Looks whether another number of workers would be better.
    fn scale(&mut self) {
        let now = Instant::now();
        let sample = report::sample(&self.machine, self.pool.take_demand(), now);
        let Some(decision) = self.scaling.decide(&sample, now).filter(|_| !self.machine.is_stopping()) else { return };
        let (from, to, reason) = (self.machine.bounds().target, decision.target, decision.reason);
        self.tell(Event::Resize { target: to, idlest: self.pool.by_load() });
        self.emit(|| PoolScaled { from, to, reason });
    }

    // ---- events in

    fn take_notices(&mut self) {
        for notice in self.pool.drain_notices() {
            match notice {
                Notice::Worn(worker) => self.tell(Event::Worn { worker, why: Leave::Calls }),
                Notice::Expiring(worker) => self.tell(Event::Worn { worker, why: Leave::Deadlines }),
                Notice::SentTerm(worker) => self.tell(Event::Worn { worker, why: Leave::Term }),
                Notice::Drained { worker, stuck } => self.tell(Event::Drained { worker, stuck }),
                Notice::Stuck { worker, cause } => self.tell(Event::Stuck { worker, cause }),
                Notice::Debugging { worker, on } => self.debugging(worker, on),
                Notice::Memory(figures) => self.tell(Event::Memory(figures)),
                Notice::LinkEnded(worker, reason) => {
                    let reason = (reason != END_OF_FILE).then(|| format!("its link broke: {reason}"));
                    self.tell(Event::LinkEnded { worker, reason });
                }
                Notice::Ready(worker, _) => self.tell(Event::WorkerReady { worker }),
                Notice::StartFailed(worker, json) => {
                    let reason = report::reason_of(&json);
                    self.tell(Event::StartFailed { worker, reason });
                }
                Notice::WantWrite(worker) => self.pool.want_write(worker, true),
                Notice::Empty => self.tell(Event::Empty),
                Notice::Order { ticket, command } => self.take_order(ticket, command),
                Notice::Stop { grace, term, spares_idle } => {
                    let idle = if spares_idle { self.idle_or_starting() } else { Vec::new() };
                    if grace.is_zero() {
                        self.pool.limit_endless(&idle, Instant::now() + ENDLESS_LEAVE);
                    }
                    self.tell(Event::Stop { grace, term, idle });
                }
            }
        }
    }

    /// Workers that can end in order at once.
    fn idle_or_starting(&self) -> Vec<WorkerKey> {
        let workers = self.machine.fleet().workers().iter();
        let starting = workers.filter(|(_, worker)| worker.state() == State::Starting).map(|(key, _)| *key);
        self.pool.workers_without_ends().into_iter().chain(starting).collect()
    }

    fn debugging(&mut self, worker: WorkerKey, on: bool) {
        if let Some(pid) = self.machine.fleet().workers().get(&worker).and_then(Worker::pid) {
            match on {
                true => terminal::lend(pid),
                false => terminal::take_back(pid),
            }
        }
        self.tell(Event::Debugging { worker, on });
    }

    fn take_order(&mut self, ticket: Ticket, command: Command) {
        if let Command::Scale { max, .. } = command {
            let more = descriptors_of(max).saturating_sub(descriptors_of(self.pool.pool().status().max));
            if let Err(why) = make_room(&self.pool.config().name, max, more) {
                return self.pool.order_done(ticket, Err(Denied::Failed(why)));
            }
        }
        self.tell(match command {
            Command::Reload => Event::Reload { ticket },
            Command::Recycle { nr } => Event::Recycle { ticket, nr },
            Command::Kill { nr } => Event::Kill { ticket, nr },
            Command::Scale { min, max } => Event::Scale { ticket, min, max, idle: self.pool.idle_workers() },
        });
    }

    fn read_zygote(&mut self, generation: u32) {
        let Some(zygote) = self.zygotes.get_mut(&generation) else { return };
        zygote.flush(self.pool.poller());
        let said = match zygote.is_ending() {
            false => zygote.read(),
            true => (!zygote.has_ended()).then(Vec::new),
        };
        match said {
            Some(said) => said.into_iter().for_each(|one| self.hear(generation, one)),
            None => self.lose_zygote(generation),
        }
    }

    fn hear(&mut self, generation: u32, said: Said) {
        match said {
            Said::Hello(hello) => self.greet(generation, hello),
            Said::Up(up) => self.take_image(generation, *up),
            Said::Failed(reason) => self.tell(Event::ZygoteFailed { generation, reason }),
            Said::Forked { worker, error: Some(reason), .. } => {
                self.outputs.remove(&worker);
                self.tell(Event::ForkFailed { worker, reason });
            }
            Said::Forked { worker, pid, error: None } => {
                let watched = self.watch(worker, pid, generation);
                self.tell(Event::Forked { worker, pid, watched });
                if let Some(Worker { nr, generation, .. }) = self.machine.fleet().workers().get(&worker).cloned() {
                    self.emit(|| WorkerStarting { nr, generation, pid });
                }
            }
            Said::Fate { worker, fate, cpu } => {
                cpu.into_iter().for_each(|cpu| self.pool.worker_used(worker, cpu));
                if matches!(fate, Fate::Exited(_) | Fate::Signaled(_)) {
                    self.hear_out(worker);
                }
                self.tell(Event::Fate { worker, fate });
            }
        }
    }

    fn watch(&mut self, worker: WorkerKey, pid: i32, generation: u32) -> bool {
        let zygote = self.zygotes.get(&generation).filter(|_| self.machine.fleet().workers().contains_key(&worker));
        let process = zygote.and_then(|zygote| Process::watch(worker, pid, zygote.pid, self.pool.poller()));
        let watched = process.is_some();
        self.processes.extend(process.map(|process| (worker, process)));
        watched
    }

    /// Nothing but how it ended is left to learn.
    fn process_ended(&mut self, worker: WorkerKey) {
        if let Some(process) = self.processes.get(&worker) {
            process.bury(self.pool.poller());
        }
        self.hear_out(worker);
        self.tell(Event::Died { worker });
    }

    /// Takes in what a dead worker had still written, before its end is judged: it may have said why.
    fn hear_out(&mut self, worker: WorkerKey) {
        let Some(State::Starting) = self.machine.fleet().workers().get(&worker).map(Worker::state) else { return };
        self.pool.hear_out(worker);
        self.take_notices();
        let text = self.outputs.get(&worker).map(Output::last).unwrap_or_default();
        if !text.trim().is_empty() {
            self.tell(Event::LastOutput { worker, text: text.trim_end().to_owned() });
        }
    }

    fn take_image(&mut self, generation: u32, up: zygote::Up) {
        let Some(zygote) = self.zygotes.get_mut(&generation) else { return };
        let (shape, warnings) = (up.shape, up.warnings.clone());
        zygote.set_image(up);
        let python = zygote.hello.as_ref().map(|hello| (hello.tag.clone(), hello.python.clone()));
        let foreign = python.filter(|(tag, _)| *tag != self.identity.tag).map(|(_, version)| version);
        self.pool.set_foreign(foreign);
        self.emit(|| ZygoteReady { generation, warnings });
        self.tell(Event::ZygoteUp { generation, shape });
    }

    /// Versions must fit, or nothing that follows means anything.
    fn greet(&mut self, generation: u32, hello: zygote::Hello) {
        if let Some(reason) = report::misfit(self.pool.config(), &hello) {
            self.tell(Event::ZygoteFailed { generation, reason });
        } else if let Some(zygote) = self.zygotes.get_mut(&generation) {
            zygote.hello = Some(hello);
        }
    }

    fn lose_zygote(&mut self, generation: u32) {
        let Some(zygote) = self.zygotes.remove(&generation) else { return };
        zygote.unwatch(self.pool.poller());
        let (greeted, told_to) = (zygote.hello.is_some(), zygote.is_ending());
        let Ended { text: end, signal } = zygote.end();
        let (name, python) = (&self.pool.config().name, &self.pool.config().python);
        let reason = match greeted {
            true => format!("the zygote of pool '{name}' ended: {end}"),
            false => format!("{python} could not run the zygote of pool '{name}': {end}"),
        };
        if !told_to {
            self.emit(|| ZygoteLost { generation, reason: reason.clone() });
        }
        let workers = self.machine.fleet().workers().iter().filter(|(_, worker)| worker.generation == generation);
        self.pool.orphaned(&workers.map(|(key, _)| *key).collect::<Vec<_>>());
        self.tell(Event::ZygoteGone { generation, reason, signal });
    }

    // ---- actions out

    fn tell(&mut self, event: Event) {
        self.told = true;
        let mut actions = Vec::new();
        self.machine.take(event, Instant::now(), &mut actions);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Some(event) = self.act(action) {
                self.tell(event);
            }
        }
    }

    /// The end of a turn: what follows from all that the machine was told in it, and what others are to know of it.
    fn settle(&mut self) {
        if !std::mem::take(&mut self.told) {
            return;
        }
        self.answer_lost();
        loop {
            let mut actions = Vec::new();
            self.machine.settle(Instant::now(), &mut actions);
            if actions.is_empty() {
                break;
            }
            self.carry_out(actions);
        }
        self.answer_lost();
        self.publish();
        for event in std::mem::take(self.untold.get_mut()) {
            self.pool.pool().telemetry().tell(&event);
        }
        // Whoever waited finds it in the stats and among the events.
        for (ticket, carried) in self.carried.drain(..) {
            self.pool.order_done(ticket, carried);
        }
    }

    /// Answers what dead workers had begun. Whoever learns of it finds the death in the stats too.
    fn answer_lost(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        self.publish();
        for Lost { worker, failure, record } in std::mem::take(&mut self.ended) {
            let (nr, pid, cause) = (record.nr, record.pid, failure.to_string());
            let (left, ended, served) = (record.left.map(str::to_owned), record.cause.is_some(), record.served);
            let held = self.pool.requests_held_by(worker);
            let running = self.pool.worker_gone(worker, failure, ended);
            self.emit(|| WorkerGone { nr, pid, cause, left, ended, served, running, held });
        }
    }

    /// Carries out one action; what came of it at once, if anything.
    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::StartZygote { generation } => return self.start_zygote(generation).err(),
            Action::EndZygote { generation, at_once } => return self.end_zygote(generation, at_once),
            Action::Fork { worker, nr, generation } => return self.fork(worker, nr, generation).err(),
            Action::Admit { worker, calls } => {
                let known = self.machine.fleet().workers().get(&worker);
                let slots = known.map_or(0, |worker| worker.slots);
                let who = known.map_or((0, 0), |worker| (worker.nr, worker.pid().unwrap_or(0)));
                self.pool.worker_ready(worker, who, slots, calls);
                self.about(worker, |nr, generation, pid| WorkerReady { nr, generation, pid });
            }
            Action::Hold { worker, held } => self.hold(worker, held),
            Action::ServeOn => self.pool.release_all(Hold::Memory),
            Action::Drain { worker, reason } => {
                let reason = reason.to_owned();
                self.about(worker, |nr, _, pid| WorkerDraining { nr, pid, reason });
                self.pool.worker_draining(worker);
            }
            Action::Short { worker } => self.short(worker),
            Action::Spare { worker } => {
                self.about(worker, |nr, _, pid| WorkerDebugged { nr, pid });
            }
            Action::End { worker } => self.pool.send_drain(worker),
            Action::Kill { worker, signal } => {
                self.tell_kill(worker, signal);
                self.signal(worker, signal);
            }
            Action::ShowWorker { worker } => return self.show_worker(worker),
            Action::ShowZygote { generation } => {
                self.zygotes.get(&generation).into_iter().for_each(Zygote::show_stacks);
            }
            Action::Gone { worker, fate, record } => self.gone(worker, fate, *record),
            Action::Failing { reason, by_code } => self.failing(reason, by_code),
            Action::RefuseWaiting => {
                self.answer_lost();
                self.pool.refuse_waiting();
            }
            Action::Hope => {
                self.was_failing = false;
                self.pool.set_failing(None);
            }
            Action::ReloadStarted { generation } => {
                self.emit(|| ReloadStarted { generation });
            }
            Action::ReloadFinished { generation } => {
                self.emit(|| ReloadFinished { generation });
            }
            Action::ReloadFailed { generation, reason } => {
                self.emit(|| ReloadFailed { generation, reason });
            }
            Action::Done { ticket, outcome } => self.carried.push((ticket, outcome)),
            Action::Closed => {
                self.outputs.clear();
                // Before anybody is told that the pool is closed.
                self.pool.pool().regions().close();
                self.emit(|| PoolClosed {});
            }
        }
        None
    }

    fn start_zygote(&mut self, generation: u32) -> Result<(), Event> {
        let failed = |error: io::Error| Event::ZygoteFailed {
            generation,
            reason: format!(
                "cannot start {} for pool '{}': {error}",
                self.pool.config().python,
                self.pool.config().name
            ),
        };
        let mut zygote = Zygote::start(self.pool.config(), &self.identity.environ, generation).map_err(failed)?;
        let pid = zygote.pid;
        let watched = zygote.watch(self.pool.poller()).map_err(failed);
        self.zygotes.insert(generation, zygote);
        self.emit(|| ZygoteStarted { generation, pid });
        watched
    }

    fn end_zygote(&mut self, generation: u32, at_once: bool) -> Option<Event> {
        let waited_for = |zygote: &mut Zygote| zygote.tell_end(at_once, self.pool.poller());
        if self.zygotes.get_mut(&generation).is_some_and(waited_for) {
            return None;
        }
        // It was never started, or its end cannot be watched: so it is waited for here, briefly.
        let ended = self.zygotes.remove(&generation).map(Zygote::end);
        let (reason, signal) = ended.map_or_else(Default::default, |ended| (ended.text, ended.signal));
        Some(Event::ZygoteGone { generation, reason, signal })
    }

    fn fork(&mut self, worker: WorkerKey, nr: u32, generation: u32) -> Result<(), Event> {
        let failed = |error: io::Error| Event::ForkFailed {
            worker,
            reason: report::cannot_start(&self.pool.config().name, self.machine.bounds().max, &error),
        };
        let slots = self.machine.fleet().workers().get(&worker).map_or(1, |worker| worker.slots) as u32;
        let (ours, theirs) = sys::socket_pair().map_err(failed)?;
        let (alarm, their_alarm) = sys::socket_pair().map_err(failed)?;
        let (board, board_fd) = Board::create(Board::words_for(slots)).map_err(failed)?;
        let prefix = format!("{}/{nr}", self.pool.config().name);
        let (output, out, err) = Output::open(&prefix, self.pool.config().output_kept_bytes).map_err(failed)?;
        self.outputs.insert(worker, output);
        self.pool.attach(Link::new(worker, ours, board, alarm));
        if let Some(zygote) = self.zygotes.get_mut(&generation) {
            zygote.fork(worker, nr, vec![theirs, board_fd, their_alarm, out, err], self.pool.poller());
        }
        Ok(())
    }

    fn short(&self, worker: WorkerKey) {
        let most = self.pool.config().memory_max_bytes.unwrap_or(u64::MAX);
        let reason = format!("memory_max ({most} bytes) has no room for a worker and its replacement at the same time");
        self.about(worker, |nr, _, _| PoolShort { nr, reason });
    }

    fn hold(&mut self, worker: WorkerKey, held: bool) {
        self.pool.hold(worker, Hold::Stopped, held);
        match held {
            true => self.about(worker, |nr, _, pid| WorkerStopped { nr, pid }),
            false => self.about(worker, |nr, _, pid| WorkerContinued { nr, pid }),
        }
    }

    fn gone(&mut self, worker: WorkerKey, fate: Option<Fate>, record: WorkerRecord) {
        match self.processes.remove(&worker) {
            Some(process) => process.release(self.pool.poller()),
            // Its zygote is gone and cannot do it.
            None if fate.is_none() && record.pid > 0 => sys::end_group(record.pid, EndSignal::Kill),
            None => {}
        }
        let output = self.outputs.remove(&worker).map(|output| output.last()).unwrap_or_default();
        let failure = report::lost(&self.pool.config().name, fate, &record, output);
        self.signalled.remove(&worker);
        terminal::recover(record.pid);
        self.ended.push(Lost { worker, failure, record });
    }

    fn failing(&mut self, reason: String, by_code: bool) {
        self.answer_lost();
        if !self.was_failing {
            self.emit(|| PoolFailing { reason: reason.clone() });
        }
        self.pool.set_failing(Some(report::failing(reason, by_code)));
        self.was_failing = true;
    }

    /// Nothing can be watched any more: what runs is lost, and what waits is refused.
    fn give_up(&mut self, reason: &str) {
        let failure = report::failing(reason.to_owned(), false);
        self.pool.pool().close();
        self.pool.set_failing(Some(failure.clone()));
        for worker in self.machine.fleet().workers().keys().copied().collect::<Vec<_>>() {
            self.signal(worker, EndSignal::Kill);
            self.pool.worker_gone(worker, failure.clone(), true);
        }
        for (_, mut zygote) in std::mem::take(&mut self.zygotes) {
            zygote.tell_end(true, self.pool.poller());
            zygote.end();
        }
        self.outputs.clear();
        self.pool.pool().regions().close();
        self.pool.update_status(|status| {
            status.set_health(Health::Closed);
            status.reason = Some(reason.to_owned());
            (status.ready, status.workers, status.zygote_pid) = (0, Vec::new(), None);
        });
        self.pool.pool().telemetry().emit(|| PoolClosed {});
    }

    fn about<F: Fact>(&self, worker: WorkerKey, make: impl FnOnce(u32, u32, i32) -> F) {
        if let Some(known) = self.machine.fleet().workers().get(&worker) {
            let (nr, generation, pid) = (known.nr, known.generation, known.pid().unwrap_or(0));
            self.emit(|| make(nr, generation, pid));
        }
    }

    /// Emits a fact at the end of this turn, with the present time.
    fn emit<F: Fact>(&self, make: impl FnOnce() -> F) {
        self.untold.borrow_mut().extend(self.pool.pool().telemetry().stamp(make));
    }

    /// Brings the public status up to date.
    fn publish(&mut self) {
        let health = report::health(&self.machine);
        let recovered = health == Health::Ready && std::mem::take(&mut self.was_failing);
        let machine = &self.machine;
        let zygote = self.zygotes.get(&machine.generation());
        self.pool.update_status(|status| {
            report::fill(status, machine);
            status.zygote_pid = zygote.map(|zygote| zygote.pid);
            zygote.into_iter().for_each(|zygote| zygote.show_image(status));
        });
        if recovered {
            self.emit(|| PoolRecovered {});
        }
    }
}
