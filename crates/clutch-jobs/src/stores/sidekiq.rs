//! The jobs of Sidekiq and Exq on Redis: programs of theirs and of Clutch's share one server, and each runs what the others
//! enqueue.
//!
//! What is fetched moves to a backup list of its runner, named as Exq does it, and leaves it when it is settled; so a crash
//! loses nothing. Keys of the format are as Sidekiq documents them; `clutch:renewals`, `clutch:orphaned`, `clutch:queues`,
//! `clutch:cancelling` and `clutch:leader`, after the namespace, are read by Clutch only.
//!
//! A checkpoint goes into the job when its attempt ends, so a crash loses it; progress is kept nowhere.
//!
//! The format keeps no completed or cancelled jobs and no results, and it has no priorities, unique jobs, concurrency keys,
//! keyword arguments, or limits of queues: what asks for one is refused. There is no index of jobs, so whoever looks for one
//! goes through all. A pause of a queue is Sidekiq Pro's set `paused`.

mod active_job;
mod address;
mod heads;
mod payload;
mod places;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use clutch_wire::sync::Mutex;
use jiff::Timestamp;
use redis::{Cmd, Value};
use serde_json::json;

use self::address::Address;
pub use self::address::{check, is_scheme};
use self::heads::Heads;
use self::payload::{Payload, Times};
use self::places::{Places, backup_of, scored};
use super::redis::link::Link;
use super::redis::record::{list, parsed, text, texts};
use super::redis::{self as ours, Location, add_lapsed, add_runner, leases};
use crate::job::{self, Claimed, Job, JobId, Millis, NewJob, Settled, State};
use crate::leases::Lapsed;
use crate::random;
use crate::store::{
    Change, Enqueued, Filter, Holder, Keep, Led, NO_TICKS, QueueChange, QueueStats, RENEWALS, RESCUES_MAX, Renewed,
    Report, Result, Round, Runner, Store, StoreError, Tick, Upkeep, Want, Watch, lapsed,
};

/// Longest time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Most jobs of one kind that are counted by queue.
const COUNTED_MAX: usize = 10_000;

scripts! {
    "sidekiq/common.lua":
    ENQUEUE: "sidekiq/enqueue.lua";
    ROUND: "redis/always.lua", "sidekiq/round.lua";
    MOVE: "redis/always.lua", "sidekiq/move.lua";
    RENEW: "redis/always.lua", "sidekiq/renew.lua";
    LEAVE: "redis/always.lua", "sidekiq/leave.lua";
    ORPHANS: "redis/always.lua", "sidekiq/orphans.lua";
    HEADS: "sidekiq/heads.lua";
    LEAD: "redis/always.lua", "redis/lead.lua";
    HOLDERS: "sidekiq/running_of.lua", "redis/holders.lua";
}

pub struct Sidekiq {
    link: Link,
    /// With its colon, or empty.
    namespace: String,
    times: Times,
    work: &'static str,
    /// Jobs that runners of this program have fetched, by runner and id: settled by their very bytes.
    held: Mutex<HashMap<String, HashMap<JobId, Held>>>,
    /// Queues that they have asked for.
    queues: Arc<Mutex<BTreeSet<String>>>,
    opened_at: Millis,
}

struct Held {
    queue: String,
    text: String,
    payload: Payload,
    at: Millis,
    checkpoint: Option<String>,
}

/// Destination of a job.
struct Target {
    place: &'static str,
    queue: String,
    at: Millis,
    text: String,
}

impl Target {
    fn nowhere() -> Target {
        Target { place: "nowhere", queue: String::new(), at: 0, text: String::new() }
    }

    fn new(place: &'static str, queue: &str, at: Millis, payload: &Payload) -> Target {
        Target { place, queue: queue.to_owned(), at, text: payload.text_of() }
    }

    fn add_to(&self, cmd: &mut Cmd) {
        cmd.arg(self.place).arg(&self.queue).arg(seconds(self.at)).arg(&self.text);
    }
}

/// Move of a job, if it is still where it was found.
struct Move {
    key: String,
    kind: &'static str,
    text: String,
    target: Target,
}

fn seconds(at: Millis) -> String {
    format!("{:.3}", at as f64 / 1000.0)
}

/// Returns the day that statistics are filed under.
fn day(now: Millis) -> String {
    Timestamp::from_millisecond(now).unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y-%m-%d").to_string()
}

fn new_jid() -> String {
    random::bytes::<12>().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Sidekiq {
    /// As [`super::redis::Redis::open`].
    pub fn open(url: &str) -> Result<Sidekiq> {
        let Address { namespace, times, work, url } = Address::parse(url)?;
        let location = Location::parse(&url)?;
        let name = location.name().replacen("rediss", "sidekiqs", 1).replacen("redis", "sidekiq", 1);
        let name = if namespace.is_empty() { name } else { format!("{name} ({})", namespace.trim_end_matches(':')) };
        let link = Link::new(&location, name, format!("{namespace}clutch"), None, SOURCES).checked()?;
        let (held, queues) = (Mutex::default(), Arc::default());
        Ok(Sidekiq { link, namespace, times, work, held, queues, opened_at: crate::job::now() })
    }

    fn places(&self) -> Places<'_> {
        Places { link: &self.link, namespace: &self.namespace }
    }

    fn make_moves(&self, steps: &[Move]) -> Result<usize> {
        if steps.is_empty() {
            return Ok(0);
        }
        let moved = self.link.run(&MOVE, |cmd| {
            for step in steps {
                cmd.arg(&step.key).arg(step.kind).arg(&step.text);
                step.target.add_to(cmd);
            }
        })?;
        Ok(parsed(moved).unwrap_or_default())
    }

    // ---- the parts of a round

    fn target(&self, held: &Held, settled: &Settled, now: Millis) -> Target {
        let mut payload = held.payload.clone();
        payload.set_queue(&held.queue);
        payload.forget_rescues();
        if let Some(checkpoint) = &held.checkpoint {
            payload.set_checkpoint(checkpoint);
        }
        if let Some(error) = &settled.error {
            payload.fail(error, settled.attempt, now, self.times);
        }
        let at = settled.scheduled_at.unwrap_or(now);
        match settled.state {
            State::Completed | State::Cancelled => Target::nowhere(),
            State::Scheduled if settled.error.is_some() => Target::new("retry", &held.queue, at, &payload),
            State::Scheduled => Target::new("schedule", &held.queue, at, &payload),
            State::Dead if payload.is_dropped_at_last() => Target::nowhere(),
            State::Dead => Target::new("dead", &held.queue, now, &payload),
            State::Waiting | State::Available | State::Running => Target::new("front", &held.queue, now, &payload),
        }
    }

    fn note(&self, runner: &Runner, report: &Report) {
        let mut held = self.held.lock();
        for noted in &report.noted {
            let known = held.get_mut(&runner.name).and_then(|own| own.get_mut(&noted.id));
            if let Some(known) = known.filter(|known| known.payload.attempt() == noted.attempt)
                && noted.checkpoint.is_some()
            {
                known.checkpoint.clone_from(&noted.checkpoint);
            }
        }
    }

    /// Returns the jobs that this runner may settle, with their destinations, and those that it may not.
    fn endings<'a>(&self, runner: &Runner, report: &'a Report, now: Millis) -> (Vec<Ended<'a>>, Vec<JobId>) {
        let held = self.held.lock();
        let (mut ended, mut lost) = (Vec::new(), Vec::new());
        for settled in &report.settled {
            let known = held.get(&runner.name).and_then(|own| own.get(&settled.id));
            match known.filter(|known| known.payload.attempt() == settled.attempt) {
                Some(known) => ended.push(Ended {
                    settled,
                    queue: known.queue.clone(),
                    text: known.text.clone(),
                    target: self.target(known, settled, now),
                }),
                None => lost.push(settled.id.clone()),
            }
        }
        (ended, lost)
    }

    /// Keeps what was fetched. What is no job goes to the dead ones as it is.
    fn fetched(&self, runner: &Runner, values: Value, now: Millis) -> Result<Vec<Claimed>> {
        let (mut claimed, mut broken) = (Vec::new(), Vec::new());
        let mut held = self.held.lock();
        let own = held.entry(runner.name.clone()).or_default();
        let mut values = list(values).into_iter().filter_map(text);
        while let (Some(queue), Some(text)) = (values.next(), values.next()) {
            let Some(payload) = Payload::parse(&text) else {
                let target = Target { place: "dead", queue: String::new(), at: now, text: text.clone() };
                broken.push(Move { key: backup_of(&runner.name, &queue), kind: "list", text, target });
                continue;
            };
            let mut job = payload.claimed(queue.clone());
            // A client may give an id twice: each is a job, and is settled by itself.
            let mut nr = 1;
            while own.contains_key(&job.id) {
                nr += 1;
                job.id = format!("{}#{nr}", payload.jid());
            }
            let one = Held { queue, text, payload, at: now, checkpoint: None };
            own.insert(job.id.clone(), one);
            claimed.push(job);
        }
        drop(held);
        self.make_moves(&broken)?;
        Ok(claimed)
    }

    // ---- upkeep

    /// Returns how many were rescued and buried, all leases, and what is damaged.
    fn rescue(&self, limit: usize, over: &[Lapsed], now: Millis) -> Result<Upkeep> {
        let answer = self.link.run(&ORPHANS, |cmd| {
            cmd.arg(limit);
            add_lapsed(cmd, over);
        })?;
        let mut answer = list(answer).into_iter();
        let leases = leases(answer.next().unwrap_or(Value::Nil));
        let damaged = answer.next().map(texts).unwrap_or_default();
        let (mut steps, mut buried) = (Vec::new(), 0);
        let mut values = answer.filter_map(text);
        while let (Some(runner), Some(queue), Some(text)) = (values.next(), values.next(), values.next()) {
            let (key, kind) = (backup_of(&runner, &queue), "list");
            let target = match Payload::parse(&text) {
                None => Target { place: "dead", queue, at: now, text: text.clone() },
                Some(mut payload) if payload.rescues() >= RESCUES_MAX => {
                    buried += 1;
                    let attempt = payload.attempt();
                    payload.fail(&lapsed(attempt, &runner, now), attempt, now, self.times);
                    Target::new("dead", &queue, now, &payload)
                }
                Some(mut payload) => {
                    payload.rescue(&lapsed(payload.attempt(), &runner, now));
                    Target::new("front", &queue, now, &payload)
                }
            };
            steps.push(Move { key, kind, text, target });
        }
        Ok(Upkeep { rescued: self.make_moves(&steps)?, buried, leases, damaged, ..Upkeep::default() })
    }

    fn stage(&self, key: &'static str, limit: usize, now: Millis) -> Result<usize> {
        let mut cmd = redis::cmd("ZRANGEBYSCORE");
        cmd.arg(self.places().key(key)).arg("-inf").arg(seconds(now)).arg("LIMIT").arg(0).arg(limit);
        let due = texts(self.link.query(&cmd)?).into_iter().map(|text| {
            let target = match Payload::parse(&text) {
                Some(mut payload) => {
                    payload.enqueue(now, self.times);
                    Target::new("queue", &payload.queue(), now, &payload)
                }
                None => Target { place: "dead", queue: String::new(), at: now, text: text.clone() },
            };
            Move { key: key.to_owned(), kind: "zset", text, target }
        });
        self.make_moves(&due.collect::<Vec<_>>())
    }

    fn next_due(&self) -> Result<Option<Millis>> {
        let mut due = Vec::new();
        for key in ["schedule", "retry"] {
            let mut cmd = redis::cmd("ZRANGE");
            cmd.arg(self.places().key(key)).arg(0).arg(0).arg("WITHSCORES");
            due.extend(scored(self.link.query(&cmd)?).into_iter().filter_map(|(_, at)| at));
        }
        Ok(due.into_iter().min())
    }

    fn heartbeat(&self, runner: &Runner, busy: usize, now: Millis) -> [(&'static str, String); 7] {
        let mut parts = runner.name.splitn(3, ':');
        let (host, pid) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let queues: Vec<_> = self.queues.lock().iter().cloned().collect();
        let info = json!({
            "hostname": host, "started_at": self.opened_at as f64 / 1000.0, "pid": pid.parse::<u32>().unwrap_or(0),
            "tag": "clutch", "concurrency": busy, "queues": queues, "labels": [], "identity": runner.name,
            "version": env!("CARGO_PKG_VERSION"),
        });
        [
            ("info", info.to_string()),
            ("concurrency", busy.to_string()),
            ("busy", busy.to_string()),
            ("beat", seconds(now)),
            ("quiet", "false".to_owned()),
            ("rtt_us", "0".to_owned()),
            ("rss", "0".to_owned()),
        ]
    }

    /// Returns the running jobs of a runner by id, as Sidekiq shows them.
    fn work_of(&self, runner: &Runner) -> Vec<(JobId, String)> {
        let held = self.held.lock();
        let own = held.get(&runner.name).into_iter().flatten();
        own.map(|(id, one)| {
            let work = json!({"queue": one.queue, "payload": one.text, "run_at": one.at / 1000});
            (id.clone(), work.to_string())
        })
        .collect()
    }

    fn count_filed(&self, found: &mut BTreeMap<String, QueueStats>) -> Result<()> {
        for state in [State::Scheduled, State::Dead] {
            let mut left = COUNTED_MAX;
            for place in self.places().of(Some(state))? {
                let _ = self.places().each(&place, |one| {
                    let stats = QueueStats::entry(found, &one.payload.queue());
                    *(if state == State::Dead { &mut stats.dead } else { &mut stats.scheduled }) += 1;
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                if left == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// An attempt that this program knows of.
struct Ended<'a> {
    settled: &'a Settled,
    queue: String,
    text: String,
    target: Target,
}

impl Store for Sidekiq {
    /// The payload is needed, which its runner alone has.
    fn settles_for_others(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        &self.link.name
    }

    fn now(&self) -> Millis {
        self.link.now()
    }

    fn read_clock(&self) -> Result<Millis> {
        self.link.read_clock()
    }

    fn clock_ahead(&self) -> Millis {
        self.link.clock_ahead()
    }

    fn check(&self, job: &NewJob) -> Result<()> {
        payload::check(job)
    }

    fn enqueue(&self, jobs: &[NewJob], now: Millis) -> Result<Vec<Enqueued>> {
        let mut targets = Vec::with_capacity(jobs.len());
        let mut enqueued = Vec::with_capacity(jobs.len());
        for job in jobs {
            let jid = new_jid();
            let mut payload = Payload::new(job, &jid, now, self.times)?;
            targets.push(match job.scheduled_at.filter(|at| *at > now) {
                Some(at) => Target::new("schedule", &job.queue, at, &payload),
                None => {
                    payload.enqueue(now, self.times);
                    Target::new("queue", &job.queue, now, &payload)
                }
            });
            enqueued.push(Enqueued { id: jid, is_new: true });
        }
        self.link.run(&ENQUEUE, |cmd| targets.iter().for_each(|target| target.add_to(cmd)))?;
        Ok(enqueued)
    }

    fn round(&self, runner: &Runner, report: &Report, want: &Want, now: Millis) -> Result<Round> {
        self.queues.lock().extend(want.queues.iter().cloned());
        self.note(runner, report);
        let (ended, mut lost) = self.endings(runner, report, now);
        let answer = self.link.run(&ROUND, |cmd| {
            add_runner(cmd, runner);
            cmd.arg(day(now)).arg(want.limit);
            cmd.arg(want.queues.len()).arg(&want.queues);
            for one in &ended {
                cmd.arg(u8::from(one.settled.error.is_some())).arg(&one.queue).arg(&one.text);
                one.target.add_to(cmd);
                cmd.arg(&one.settled.id);
            }
        })?;
        let mut values = list(answer).into_iter();
        let late = values.next().map(list).unwrap_or_default().into_iter().filter_map(parsed::<usize>);
        lost.extend(late.filter_map(|at| ended.get(at)).map(|one| one.settled.id.clone()));
        if let Some(own) = self.held.lock().get_mut(&runner.name) {
            ended.iter().for_each(|one| drop(own.remove(&one.settled.id)));
        }
        let claimed = self.fetched(runner, values.next().unwrap_or(Value::Nil), now)?;
        let has_no_lease = values.next().and_then(parsed) == Some(0);
        let damaged = values.next().map(texts).unwrap_or_default();
        Ok(Round { claimed, lost, has_no_lease, again_in: None, damaged })
    }

    fn renew(&self, runner: &Runner, held: &[JobId], now: Millis) -> Result<Option<Renewed>> {
        let (fields, work) = (self.heartbeat(runner, held.len(), now), self.work_of(runner));
        let answer = self.link.run(&RENEW, |cmd| {
            add_runner(cmd, runner);
            cmd.arg(seconds(now)).arg(self.work).arg(2 * fields.len());
            for (name, value) in &fields {
                cmd.arg(name).arg(value);
            }
            for (id, text) in &work {
                cmd.arg(id).arg(text);
            }
        })?;
        if answer == Value::Nil {
            self.held.lock().remove(&runner.name);
            return Ok(None);
        }
        let mut values = list(answer).into_iter();
        let cancelling: BTreeSet<_> = values.next().map(texts).unwrap_or_default().into_iter().collect();
        let held: BTreeSet<&str> = held.iter().map(String::as_str).collect();
        let mut own_texts = HashMap::<(String, String), Vec<JobId>>::new();
        if let Some(known) = self.held.lock().get_mut(&runner.name) {
            known.retain(|id, _| held.contains(id.as_str()));
            for (id, one) in known {
                own_texts.entry((one.queue.clone(), one.text.clone())).or_default().push(id.clone());
            }
        }
        let (mut surplus, mut own) = (Vec::new(), BTreeSet::new());
        let mut values = values.filter_map(text);
        while let (Some(queue), Some(text)) = (values.next(), values.next()) {
            let key = (queue, text);
            if let Some(id) = own_texts.get_mut(&key).and_then(Vec::pop) {
                own.insert(id);
                continue;
            }
            let (queue, text) = key;
            let id = Payload::parse(&text).map(|payload| payload.jid());
            let target = match id.is_some_and(|id| cancelling.contains(&id)) {
                true => Target::nowhere(),
                false => Target { place: "front", queue: queue.clone(), at: now, text: text.clone() },
            };
            surplus.push(Move { key: backup_of(&runner.name, &queue), kind: "list", text, target });
        }
        self.make_moves(&surplus)?;
        let lost = held.iter().filter(|id| !own.contains(**id)).map(|id| (*id).to_owned()).collect();
        let cancelled = cancelling.into_iter().filter(|id| held.contains(id.as_str())).collect();
        Ok(Some(Renewed { cancelled, lost }))
    }

    fn leave(&self, runner: &Runner) -> Result<()> {
        self.held.lock().remove(&runner.name);
        self.link.run(&LEAVE, |cmd| {
            cmd.arg(&runner.name).arg(self.work);
        })?;
        Ok(())
    }

    fn lead(&self, runner: &Runner, lapsed: &[Lapsed]) -> Result<Led> {
        ours::lead(&self.link, &LEAD, runner, lapsed)
    }

    fn look_after(&self, _keep: &Keep, limit: usize, ticks: &[Tick], lapsed: &[Lapsed], now: Millis) -> Result<Upkeep> {
        if !ticks.is_empty() {
            return Err(StoreError::Refused(NO_TICKS.to_owned()));
        }
        let rescued = self.rescue(limit, lapsed, now)?;
        let staged = self.stage("schedule", limit, now)? + self.stage("retry", limit, now)?;
        // Nothing else ends up somewhere; the dead set is cut as others of the format do, whenever a job is added.
        Ok(Upkeep { staged, next_due: self.next_due()?, ..rescued })
    }

    fn change(&self, id: &str, change: Change<'_>, now: Millis) -> Result<bool> {
        let Some((place, found)) = self.places().find(id)? else { return Ok(false) };
        let target = match (change, place.state) {
            (Change::Cancel, State::Running) => {
                self.link.query(redis::cmd("SADD").arg(self.places().key("clutch:cancelling")).arg(id))?;
                return Ok(true);
            }
            (Change::Cancel, State::Available | State::Scheduled) => Target::nowhere(),
            (Change::Delete, state) if state != State::Running => Target::nowhere(),
            (Change::Retry | Change::RetryWith(_), State::Scheduled | State::Dead) => {
                let mut payload = found.payload.clone();
                if let Change::RetryWith(arguments) = change {
                    payload.set_arguments(arguments)?;
                }
                payload.retry();
                payload.enqueue(now, self.times);
                Target::new("queue", &payload.queue(), now, &payload)
            }
            _ => return Ok(false),
        };
        let step = Move { kind: place.kind(), key: place.key, text: found.text, target };
        Ok(self.make_moves(&[step])? > 0)
    }

    fn get(&self, id: &str) -> Result<Option<Job>> {
        Ok(self.places().find(id)?.map(|(place, found)| found.job(&place)))
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        let mut is_before = filter.before.is_none();
        for place in self.places().of(filter.state)? {
            let _ = self.places().each(&place, |found| {
                let job = found.job(&place);
                let is_wanted = filter.queue.as_ref().is_none_or(|queue| *queue == job.queue)
                    && filter.tool.as_ref().is_none_or(|tool| *tool == job.tool)
                    && filter.tag.as_ref().is_none_or(|tag| job.tags.contains(tag));
                if !is_before {
                    is_before = filter.before.as_ref() == Some(&job.id);
                } else if is_wanted && jobs.len() < filter.limit {
                    jobs.push(job);
                }
                if jobs.len() < filter.limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if jobs.len() >= filter.limit {
                break;
            }
        }
        Ok(jobs)
    }

    fn queues(&self) -> Result<Vec<QueueStats>> {
        let (places, mut found) = (self.places(), BTreeMap::new());
        let paused: BTreeSet<_> = places.members("paused")?.into_iter().collect();
        for place in places.of(Some(State::Available))?.into_iter().chain(places.of(Some(State::Running))?) {
            let queue = place.queue.unwrap_or_default();
            let length = parsed(self.link.query(redis::cmd("LLEN").arg(places.key(&place.key)))?).unwrap_or_default();
            let stats = QueueStats::entry(&mut found, &queue);
            stats.is_paused = paused.contains(&queue);
            if place.state == State::Running {
                stats.running += length;
                continue;
            }
            stats.available = length;
            let oldest = text(self.link.query(redis::cmd("LINDEX").arg(places.key(&place.key)).arg(-1))?);
            stats.oldest_at = oldest.and_then(|text| Payload::parse(&text)?.enqueued_at());
        }
        self.count_filed(&mut found)?;
        Ok(found.into_values().collect())
    }

    fn holders(&self) -> Result<Vec<Holder>> {
        Ok(ours::holders(self.link.run(&HOLDERS, |_| ())?, |lease| self.renewal(lease)))
    }

    fn set_queue(&self, queue: &str, change: QueueChange) -> Result<()> {
        job::check_queue(queue).map_err(StoreError::Refused)?;
        let command = match change {
            QueueChange::Pause(true) => "SADD",
            QueueChange::Pause(false) => "SREM",
            QueueChange::RunningMax(_) | QueueChange::Rate(_) => {
                return Err(StoreError::Refused("the format of Sidekiq has no limits of queues".to_owned()));
            }
        };
        self.link.query(redis::cmd(command).arg(self.places().key("paused")).arg(queue)).map(drop)
    }

    fn watch(&self) -> Result<Box<dyn Watch>> {
        let (connection, root, queues) = (self.link.connect()?, self.link.root.clone(), self.queues.clone());
        Ok(Box::new(Heads::new(connection, root, queues)))
    }

    /// Others look at the time of it, too: Exq's monitors, and Sidekiq's pages.
    fn renewal(&self, lease: Duration) -> Duration {
        (lease / RENEWALS).min(HEARTBEAT)
    }

    fn warnings(&self) -> Vec<String> {
        self.link.warnings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_filed_by_day() {
        assert_eq!(day(1_800_000_000_000), "2027-01-15");
    }
}
