//! A world around the pool's pure machine: model workers, a clock that is moved by hand, and the rules that always hold.
//!
//! The world does what the driver does with actions, and knows of each piece of work where it is and how often it was
//! answered. Every rule is checked as the actions come, and again when the machine has settled.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

mod deaths;
mod own_work;
mod rules;

use clutch_pool::pool::state::{Action, Event, Hold, Limits, Machine, Request, StopCause, Verdict, WorkerKey};
use clutch_pool::work::{Where, WorkId};

/// Words on a model worker's board.
const WORDS: usize = 1024;

/// A word of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Sent,
    Begun,
    /// Begun, and answered otherwise already: it should have stopped by then.
    Abandoned(Instant),
    /// The work was told to stop, and has not.
    Stuck,
}

/// How long abandoned work has to stop.
pub const STOPS_IN: Duration = Duration::from_millis(5);

/// How long endless work goes on in a worker that drains.
pub const CUT_IN: Duration = Duration::from_millis(3);

/// One worker as the machine cannot see it.
#[derive(Debug, Default)]
pub struct Worker {
    pub slots: usize,
    /// Frames in order, without those that were taken back or finished.
    pub frames: Vec<(WorkId, Word)>,
    pub holds: BTreeSet<Hold>,
    pub draining: bool,
    /// Time by which the worker is to end: endless work goes on until then.
    pub cut_at: Option<Instant>,
    pub calls: u64,
    pub calls_max: Option<u64>,
    /// The machine has said that nothing is left.
    pub drained: bool,
    /// The suspect that it runs, alone.
    pub alone: Option<WorkId>,
    /// How often it had most of its calls, and how often that was said.
    pub worn: u32,
    pub said_worn: u32,
}

impl Worker {
    pub fn takes(&self) -> bool {
        self.holds.is_empty() && !self.draining && !self.is_spent() && self.alone.is_none()
    }

    fn is_spent(&self) -> bool {
        self.calls_max.is_some_and(|most| self.calls >= most)
    }

    pub fn begun(&self) -> usize {
        self.frames.iter().filter(|(_, word)| *word != Word::Sent).count()
    }

    /// Nothing is left in it but what will not stop.
    fn is_empty(&self) -> bool {
        self.frames.iter().all(|(_, word)| *word == Word::Stuck)
    }

    fn free(&self) -> usize {
        if self.takes() { self.slots.saturating_sub(self.frames.len()) } else { 0 }
    }

    /// Starts the oldest frame that has not begun, when a slot is there for it.
    fn begin_next(&mut self) -> Option<WorkId> {
        if self.holds.contains(&Hold::Stopped) || self.begun() >= self.slots {
            return None;
        }
        let frame = self.frames.iter_mut().find(|(_, word)| *word == Word::Sent)?;
        frame.1 = Word::Begun;
        Some(frame.0)
    }

    /// Returns whether the worker has had four fifths of the calls that it may have, and is to be replaced.
    fn is_worn(&self) -> bool {
        self.calls_max.is_some_and(|most| self.calls >= (most - most / 5).max(1))
    }

    fn count(&mut self, calls: u64) {
        let was_worn = self.is_worn();
        self.calls += calls;
        self.worn += u32::from(self.is_worn() && !was_worn);
    }

    fn take(&mut self, id: WorkId, request: &Request, word: Word) {
        self.count(request.calls);
        self.frames.push((id, word));
    }

    fn word(&mut self, id: WorkId) -> Option<&mut Word> {
        self.frames.iter_mut().find(|(known, _)| *known == id).map(|(_, word)| word)
    }

    fn forget(&mut self, id: WorkId) {
        self.frames.retain(|(known, _)| *known != id);
        self.alone = self.alone.filter(|suspect| *suspect != id);
    }
}

/// What the world knows of one piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub request: Request,
    pub submitted: Instant,
    /// Its worker had begun it by itself.
    pub adopted: bool,
    pub answers: u32,
    pub sends: u32,
    /// Workers that died while they ran it.
    pub deaths: u32,
    /// Another that had begun in the same worker may have been the reason: it runs alone from then on.
    pub suspect: bool,
    /// Why it was answered without a result.
    pub verdict: Option<Verdict>,
}

/// The machine, its workers, and all that happened.
pub struct World {
    pub machine: Machine<u64>,
    pub now: Instant,
    pub workers: BTreeMap<WorkerKey, Worker>,
    pub works: BTreeMap<WorkId, Known>,
    pub limits: Limits,
    pub actions: usize,
    pub closed: bool,
    pub failing: bool,
    /// Whether a worker starts what it can just before an attempt to take it back.
    pub racy: bool,
    /// Words on a worker's board.
    pub words: usize,
    /// Answers of workers, late ones too, and how long those ran.
    finished: u64,
    run_ns: u64,
    /// By priority, what waits to be sent, in order.
    lines: BTreeMap<i8, VecDeque<WorkId>>,
    next_worker: WorkerKey,
    next_body: u64,
    bodies: HashMap<u64, WorkId>,
}

impl World {
    pub fn new(limits: Limits) -> World {
        World {
            machine: Machine::new(limits),
            now: Instant::now(),
            workers: BTreeMap::new(),
            works: BTreeMap::new(),
            limits,
            actions: 0,
            closed: false,
            failing: false,
            racy: false,
            words: WORDS,
            finished: 0,
            run_ns: 0,
            lines: BTreeMap::new(),
            next_worker: 0,
            next_body: 0,
            bodies: HashMap::new(),
        }
    }

    // ---- what happens

    pub fn submit(&mut self, request: Request) -> WorkId {
        let body = self.next_body;
        self.next_body += 1;
        let mut out = Vec::new();
        let crowded = self.free_slots() == 0 && self.limits.queue.is_some_and(|most| self.queued() >= most);
        let refused = self.refused_at_once(&request, crowded);
        let id = self.machine.submit(request, body, self.now, &mut out);
        self.bodies.insert(body, id);
        self.know(id, request, self.now, false);
        let admitted = self.admitted_at_once(id, request, &out);
        assert!(!(crowded && admitted), "admitted to a queue that is full");
        self.run(out);
        if refused.is_some() {
            assert_eq!(self.works[&id].verdict, refused, "at once");
        }
        id
    }

    fn know(&mut self, id: WorkId, request: Request, submitted: Instant, adopted: bool) {
        let known =
            Known { request, submitted, adopted, answers: 0, sends: 0, deaths: 0, suspect: false, verdict: None };
        assert!(self.works.insert(id, known).is_none(), "an id was given twice");
    }

    /// What is answered before it waits, and how. `crowded`: the queue is full, and no slot is free.
    fn refused_at_once(&self, request: &Request, crowded: bool) -> Option<Verdict> {
        let waits = self.limits.block || request.block;
        let late = request.deadline.is_some_and(|deadline| deadline <= self.now);
        let refusals = [
            (self.closed, Verdict::Closed),
            (self.failing, Verdict::Failing),
            (late, Verdict::Expired(Where::Queue)),
            (crowded && !waits, Verdict::Overloaded),
        ];
        refusals.into_iter().find(|(refused, _)| *refused).map(|(_, verdict)| verdict)
    }

    /// Only those who would wait for room are told that there was some.
    fn admitted_at_once(&mut self, id: WorkId, request: Request, out: &[Action<u64>]) -> bool {
        if self.limits.block || request.block {
            return out.iter().any(|action| matches!(action, Action::Admitted { .. }));
        }
        let admitted = self.machine.request(id).is_some();
        if admitted {
            self.lines.entry(request.priority).or_default().push_back(id);
        }
        admitted
    }

    pub fn worker(&mut self, slots: usize, calls_max: Option<u64>) -> WorkerKey {
        let worker = self.next_worker;
        self.next_worker += 1;
        self.workers.insert(worker, Worker { slots, calls_max, ..Worker::default() });
        self.failing = false;
        self.on(Event::WorkerReady { worker, slots, words: self.words, calls_max });
        worker
    }

    /// The worker starts the oldest that waits in it.
    pub fn begin(&mut self, worker: WorkerKey) -> Option<WorkId> {
        self.workers.get_mut(&worker)?.begin_next()
    }

    /// The worker answers what it has begun.
    pub fn finish(&mut self, worker: WorkerKey, id: WorkId, run: Duration) {
        let known = self.workers.get_mut(&worker).expect("a worker");
        let word = *known.word(id).expect("its work");
        assert_ne!(word, Word::Sent, "only what has begun can finish");
        known.forget(id);
        self.finished += 1;
        self.run_ns += run.as_nanos() as u64;
        let body = self.machine.finished(worker, id, run.as_nanos() as u64, self.now);
        assert_eq!(body.is_some(), word == Word::Begun, "a late reply reaches nobody, any other its caller");
        if let Some(body) = body {
            self.answered(id, body);
        }
        if let Some(stuck) = self.machine.drained(worker) {
            self.report_drained(worker, stuck);
        }
        self.run(Vec::new());
    }

    pub fn late_reply(&mut self, worker: WorkerKey, id: WorkId) {
        assert!(self.machine.finished(worker, id, 1000, self.now).is_none(), "answered twice");
    }

    /// Nobody waits for it any more: it is answered, wherever it is.
    pub fn abandon(&mut self, id: WorkId) {
        self.on(Event::Abandon { id });
        assert_eq!(self.works[&id].answers, 1, "given up, and not answered");
    }

    /// As `Pool::withdraw`.
    pub fn withdraw(&mut self, id: WorkId) {
        let mut out = self.machine.worker_of(id).map(|worker| Action::Take { worker, id }).into_iter().collect();
        self.claim_back(&mut out);
        if self.machine.worker_of(id).is_none() {
            self.machine.on(Event::Abandon { id }, self.now, &mut out);
        }
        self.run(out);
    }

    /// As `Pool::cancel_waiting`.
    pub fn cancel_waiting(&mut self) {
        let sent: Vec<(WorkerKey, WorkId)> =
            self.workers.keys().flat_map(|worker| self.machine.sent(*worker).map(|id| (*worker, id))).collect();
        let mut out = sent.into_iter().map(|(worker, id)| Action::Take { worker, id }).collect();
        self.claim_back(&mut out);
        self.machine.on(Event::CancelWaiting, self.now, &mut out);
        self.run(out);
        assert_eq!(self.queued() + self.machine.counts().blocked, 0, "something still waits");
    }

    pub fn hold(&mut self, worker: WorkerKey, why: Hold) {
        self.workers.get_mut(&worker).expect("a worker").holds.insert(why);
        self.on(Event::Hold { worker, why });
    }

    pub fn release(&mut self, worker: WorkerKey, why: Hold) {
        self.workers.get_mut(&worker).expect("a worker").holds.remove(&why);
        self.on(Event::Release { worker, why });
    }

    pub fn drain(&mut self, worker: WorkerKey) {
        let known = self.workers.get_mut(&worker).expect("a worker");
        known.draining = true;
        let by = *known.cut_at.get_or_insert(self.now + CUT_IN);
        let mut out = Vec::new();
        self.machine.on(Event::WorkerDraining { worker }, self.now, &mut out);
        self.machine.on(Event::EndEndless { worker, by }, self.now, &mut out);
        self.run(out);
    }

    /// Work that has begun turns out to have no end. In a worker that is to end, it is cut off when all such work is.
    pub fn mark_endless(&mut self, id: WorkId) {
        self.works.get_mut(&id).expect("known work").request.endless = true;
        let cut_at = self.machine.mark_endless(id);
        let worker = self.machine.worker_of(id).expect("it has begun");
        assert_eq!(cut_at, self.workers[&worker].cut_at, "cut off at another time than its neighbours");
        if cut_at.is_some_and(|at| at <= self.now) {
            // The driver wakes up at once.
            self.pass(Duration::ZERO);
        }
    }

    pub fn close(&mut self) {
        self.closed = true;
        self.on(Event::Close);
    }

    pub fn fail(&mut self, failing: bool) {
        self.failing = failing;
        self.on(if failing { Event::Failing } else { Event::Recovered });
    }

    pub fn pass(&mut self, time: Duration) {
        let due = self.machine.next_deadline();
        self.now += time;
        let mut out = Vec::new();
        self.machine.tick(self.now, &mut out);
        assert!(out.is_empty() || due.is_some_and(|at| at <= self.now), "the driver would have slept over {out:?}");
        self.run(out);
        let due = self.machine.next_deadline();
        assert!(due.is_none_or(|at| at > self.now), "what is due was left");
        self.check_cut();
    }

    pub fn on(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.on(event, self.now, &mut out);
        self.run(out);
    }

    // ---- what the driver does

    /// Settles until nothing more follows, then checks.
    fn run(&mut self, mut out: Vec<Action<u64>>) {
        for round in 0.. {
            assert!(round < 10_000, "the machine never settles");
            self.machine.settle(self.now, &mut out);
            if out.is_empty() {
                break;
            }
            for action in std::mem::take(&mut out) {
                self.actions += 1;
                self.act(action, &mut out);
            }
            if self.machine.is_closed() && self.machine.is_empty() {
                break;
            }
        }
        self.check();
    }

    fn act(&mut self, action: Action<u64>, out: &mut Vec<Action<u64>>) {
        match action {
            Action::Send { worker, id } => self.send(worker, id),
            Action::Take { worker, id } => {
                assert!(!self.works[&id].adopted, "what its worker had begun by itself cannot be taken back");
                let taken = self.take(worker, id);
                self.machine.on(Event::Taken { worker, id, taken }, self.now, out);
            }
            Action::Answer { id, verdict, body, .. } => self.tell(id, verdict, body),
            Action::Admitted { id } => {
                let priority =
                    self.works.get(&id).map_or_else(|| self.newest_priority(id), |known| known.request.priority);
                self.lines.entry(priority).or_default().push_back(id);
            }
            Action::Overdue { worker, id } => self.overdue(worker, id, out),
            Action::Abandon { worker, id } => self.abandoned(worker, id, out),
            Action::CutOff { worker, id } => self.cut_off(worker, id),
            Action::CutRest { worker } => assert!(self.workers.contains_key(&worker)),
            Action::Stuck { worker, id, .. } => self.stuck(worker, id),
            Action::Drained { worker, stuck } => self.report_drained(worker, stuck),
            Action::Worn { worker } => {
                let worn = self.workers.get_mut(&worker).expect("a worker");
                worn.said_worn += 1;
                assert!(worn.is_worn(), "said to be worn too early");
            }
            Action::Empty => assert!(self.closed && self.works.values().all(|known| known.answers == 1)),
        }
    }

    fn newest_priority(&self, id: WorkId) -> i8 {
        self.machine.request(id).expect("admitted work is known").priority
    }

    fn send(&mut self, worker: WorkerKey, id: WorkId) {
        let known = self.works.get_mut(&id).expect("known work");
        known.sends += 1;
        let request = known.request;
        assert!(known.answers == 0 && !known.adopted, "answered work was sent, or what its worker had begun");
        assert!(request.deadline.is_none_or(|deadline| deadline > self.now), "sent past its deadline");
        let suspect = known.suspect;
        let to = self.workers.get_mut(&worker).expect("sent to a worker that is gone");
        assert!(to.takes(), "sent to a worker that takes nothing: {to:?}");
        if suspect {
            assert!(to.frames.is_empty(), "a suspect was sent to where others are: {to:?}");
            to.alone = Some(id);
            let waits = |(other, known): (&WorkId, &Known)| *other < id && known.suspect && known.answers == 0;
            let older = self
                .works
                .iter()
                .find(|(other, known)| waits((other, known)) && self.machine.worker_of(**other).is_none());
            assert!(older.is_none(), "{older:?} has waited longer");
        }
        assert!(!request.endless || to.frames.len() < to.slots, "endless work was sent ahead: {to:?}");
        to.take(id, &request, Word::Sent);
        let most = (self.words - to.slots).max(to.slots);
        assert!(to.frames.len() <= most, "more frames than the board has words");
        if !suspect {
            self.leaves_line(id, request.priority);
        }
    }

    /// First in, first out among equal priorities, also for what came back; larger priorities before.
    fn leaves_line(&mut self, id: WorkId, priority: i8) {
        for (above, line) in self.lines.range(priority + 1..) {
            assert!(line.is_empty(), "priority {priority} went before {above}");
        }
        let line = self.lines.get_mut(&priority).expect("a line");
        assert_eq!(line.pop_front(), Some(id), "not first in, first out");
    }

    /// Work that came back from a worker waits where it did before.
    fn comes_back(&mut self, id: WorkId) {
        if self.works[&id].suspect {
            return;
        }
        let priority = self.works[&id].request.priority;
        let line = self.lines.entry(priority).or_default();
        let at = line.iter().take_while(|waiting| **waiting < id).count();
        line.insert(at, id);
    }

    /// An attempt to claim a word back.
    fn take(&mut self, worker: WorkerKey, id: WorkId) -> bool {
        let racy = self.racy;
        let Some(from) = self.workers.get_mut(&worker) else { return false };
        if racy {
            from.begin_next();
        }
        let taken = from.word(id).is_some_and(|word| *word == Word::Sent);
        if taken {
            from.forget(id);
            from.calls -= self.works[&id].request.calls;
            self.comes_back(id);
        }
        taken
    }

    fn claim_back(&mut self, out: &mut Vec<Action<u64>>) {
        for action in std::mem::take(out) {
            match action {
                Action::Take { worker, id } => {
                    let taken = self.take(worker, id);
                    self.machine.on(Event::Taken { worker, id, taken }, self.now, out);
                }
                other => out.push(other),
            }
        }
    }

    fn overdue(&mut self, worker: WorkerKey, id: WorkId, out: &mut Vec<Action<u64>>) {
        assert!(self.works[&id].request.deadline.is_some_and(|deadline| deadline <= self.now), "not overdue");
        if self.take(worker, id) {
            self.never_sent_again(id);
            self.machine.on(Event::Taken { worker, id, taken: true }, self.now, out);
            self.machine.expire(id, out);
        } else if let Some(body) = self.machine.answer_running(id, StopCause::Deadline, self.now + STOPS_IN) {
            self.answered(id, body);
            self.abandon_word(worker, id);
        }
    }

    fn abandoned(&mut self, worker: WorkerKey, id: WorkId, out: &mut Vec<Action<u64>>) {
        if self.take(worker, id) {
            self.never_sent_again(id);
            self.machine.on(Event::Taken { worker, id, taken: true }, self.now, out);
            self.machine.on(Event::Abandon { id }, self.now, out);
        } else if let Some(body) = self.machine.answer_running(id, StopCause::Cancelled, self.now + STOPS_IN) {
            self.answered(id, body);
            self.abandon_word(worker, id);
        }
    }

    fn cut_off(&mut self, worker: WorkerKey, id: WorkId) {
        assert!(self.works[&id].request.endless, "finite work was cut off");
        assert!(self.workers[&worker].cut_at.is_some_and(|at| at <= self.now), "cut off too early");
        if let Some(body) = self.machine.answer_running(id, StopCause::Drained, self.now + STOPS_IN) {
            self.answered(id, body);
            self.abandon_word(worker, id);
        }
    }

    /// Nothing endless goes on in a worker that should have ended.
    fn check_cut(&self) {
        for worker in self.workers.values().filter(|worker| worker.cut_at.is_some_and(|at| at <= self.now)) {
            let goes_on = |(id, word): &(WorkId, Word)| *word == Word::Begun && self.works[id].request.endless;
            assert!(!worker.frames.iter().any(goes_on), "endless work goes on: {worker:?}");
        }
    }

    fn abandon_word(&mut self, worker: WorkerKey, id: WorkId) {
        let by = self.now + STOPS_IN;
        if let Some(word) = self.workers.get_mut(&worker).and_then(|known| known.word(id)) {
            *word = Word::Abandoned(by);
        }
    }

    /// Said once, in time and not before, of work that still runs.
    fn stuck(&mut self, worker: WorkerKey, id: WorkId) {
        let word = self.workers.get_mut(&worker).and_then(|known| known.word(id)).expect("stuck where it is not");
        assert!(matches!(*word, Word::Abandoned(by) if by <= self.now), "called stuck too early, or twice: {word:?}");
        *word = Word::Stuck;
    }

    fn tell(&mut self, id: WorkId, verdict: Verdict, body: u64) {
        if verdict == Verdict::Expired(Where::Queue) {
            let request = self.works.get(&id).map(|known| known.request);
            assert!(
                request.is_none_or(|request| request.deadline.is_some_and(|deadline| deadline <= self.now)),
                "too early"
            );
        }
        let runs = self.workers.values_mut().filter_map(|worker| worker.word(id).copied()).next();
        assert_eq!(runs, None, "{verdict:?} was said of work that is on a link");
        self.works.get_mut(&id).expect("known work").verdict = Some(verdict);
        self.answered(id, body);
    }

    fn answered(&mut self, id: WorkId, body: u64) {
        assert_eq!(self.bodies.get(&body).copied().unwrap_or(id), id, "the answer of one went to another");
        // What is refused at once is answered before the submitter has the id.
        let known = self.works.get_mut(&id).expect("known work");
        known.answers += 1;
        assert_eq!(known.answers, 1, "answered twice");
        self.never_sent_again(id);
    }

    fn never_sent_again(&mut self, id: WorkId) {
        let priority = self.works[&id].request.priority;
        if let Some(line) = self.lines.get_mut(&priority) {
            line.retain(|waiting| *waiting != id);
        }
    }

    fn report_drained(&mut self, worker: WorkerKey, stuck: bool) {
        let known = self.workers.get_mut(&worker).expect("a worker");
        let waits_for = known.frames.iter().find(|(_, word)| *word != Word::Stuck);
        assert_eq!(waits_for, None, "said to be drained with work left");
        assert_eq!(stuck, !known.frames.is_empty(), "whether something is left that will not stop");
        known.drained = true;
    }

    /// Lets everything end, and checks that each submission was answered once.
    pub fn finish_all(&mut self) {
        self.racy = false;
        let holds = self.workers.iter().flat_map(|(key, worker)| worker.holds.iter().map(|why| (*key, *why)));
        holds.collect::<Vec<_>>().into_iter().for_each(|(worker, why)| self.release(worker, why));
        if self.queued() + self.machine.counts().blocked > 0 {
            self.worker(4, None);
        }
        while let Some(worker) = self.workers.iter().find(|(_, worker)| !worker.frames.is_empty()).map(|(key, _)| *key)
        {
            while self.begin(worker).is_some() {}
            let begun = self.workers[&worker].frames.iter().find(|(_, word)| *word != Word::Sent).map(|(id, _)| *id);
            self.finish(worker, begun.expect("a slot that runs"), Duration::from_micros(50));
        }
        let open: Vec<&Known> = self.works.values().filter(|known| known.answers != 1).collect();
        assert!(open.is_empty(), "never answered: {open:?}");
        assert!(self.machine.is_empty(), "the machine keeps what is answered");
    }
}

/// A request that nothing limits.
pub fn request(function: u32) -> Request {
    Request { function, priority: 0, deadline: None, block: false, retry: 0, endless: false, calls: 1, fetcher: None }
}
