//! Jobs on Redis or Valkey, from version 6.2.
//!
//! All keys begin with the prefix of the URL in braces, so that they are on one node of a cluster; `{p}` is `{clutch}`.
//! Each method is one script, and one round trip. The server undoes nothing of a script that fails, so whatever can fail is
//! asked for before the first write (`guard.lua`), and what a user may do at the connect (`probe.lua`); beyond that, what
//! goes from one place to another is in the second before it leaves the first. Many jobs at a time come in several scripts
//! ([`Redis::enqueue_batch`]), which are committed as one. How durable a job is when
//! [`Store::enqueue`] returns is the server's configuration: `appendonly yes` with `appendfsync always` survives a power
//! failure, `everysec` loses up to a second.
//!
//! A plain job (see `record.rs`) is one text that goes from the line of its queue to who runs it, and to those that are
//! done: it costs one command each time, for many jobs at once. All others have a record, and an index for each state.
//!
//! | key | type | content |
//! |---|---|---|
//! | `{p}:inbox:QUEUE`, `{p}:inboxes` | list, set | plain jobs that wait, the newest first; queues that have some |
//! | `{p}:done` | hash | plain jobs that have completed, by id: what was kept while they ran |
//! | `{p}:body:ID` | string | the job as it was enqueued, JSON |
//! | `{p}:job:ID` | hash | what changes, and what scripts look at: see `record.rs` |
//! | `{p}:errors:ID` | list | its errors, JSON |
//! | `{p}:all` | sorted set | all ids but those of plain jobs that wait or run |
//! | `{p}:ready:QUEUE` | sorted set | ids that can be claimed, by priority, then age |
//! | `{p}:scheduled` | sorted set | ids by the time when they are due |
//! | `{p}:running:RUNNER` | hash | by id, what a runner has claimed: the number of the round, when, its name, the queue, and a plain job's entry |
//! | `{p}:cancelling` | set | running ids that are to stop |
//! | `{p}:delete:STATE`, `{p}:ended:STATE` | sorted sets | ended ids by when they are deleted; by when they ended, until whoever leads has decided that |
//! | `{p}:key:KEY` | sorted set | waiting and running ids with this key; those with −∞ may run |
//! | `{p}:holding` | set | keys with jobs that wait for others |
//! | `{p}:coming:ID`, `{p}:arrivals` | list, sorted set | jobs of a large batch; the batches that are committed and not all there, by when some came last |
//! | `{p}:rate:RATE:SCOPE` | sorted set | what began lately under a rate, by the server's clock, of a queue or a key |
//! | `{p}:unique` | hash | the id of each key of unique jobs |
//! | `{p}:next:ID`, `{p}:parents` | sorted set, set | links to jobs that come after one, `ID:NR` with what each is (flow.rs); ids of those that have some |
//! | `{p}:after:ID`, `{p}:results:ID` | list, hash | ids that a job comes after; by their places, the results of those that have completed |
//! | `{p}:passing` | sorted set | ids of jobs whose end is to be passed on, with what it makes of the links behind them |
//! | `{p}:renewals`, `{p}:orphaned` | hash, set | by runner, the counter of its lease and how long it may stand; those without, to be rescued from |
//! | `{p}:counts`, `{p}:settings` | hashes | `STATE:QUEUE` → jobs; `paused:QUEUE`, `max:QUEUE`, `rate:QUEUE` |
//! | `{p}:leader`, `{p}:schema` | hash, string | who looks after it, the version |
//! | `{p}:cron` | hash | the last tick of each entry of periodic jobs |
//! | `{p}:schedules`, `{p}:schedules:paused` | hash, set | entries of periodic jobs that are kept here, as JSON; names of those that are paused |
//! | `{p}:broken` | set | ids whose record somebody has damaged: left alone |
//! | `{p}:news` | stream | one entry, new when a queue that had nothing has something |

mod ids;
pub(super) mod link;
mod location;
mod news;
mod reasons;
pub(super) mod record;
mod room;
mod tls;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, Script, Value};

use self::link::Link;
pub use self::location::{Location, is_scheme};
use self::news::News;
use self::record::{Plain, list, parsed, text, texts};
use self::room::Room;
use crate::cron::{AHEAD_MAX, REFUSED};
use crate::flow;
use crate::job::{self, AfterFailure, Job, JobId, LINKS_TOLD, Millis, NewJob, Rate, Settled, State, millis};
use crate::leases::{Lapsed, Lease};
use crate::store::{
    self, Change, Enqueued, Filter, Holder, Keep, Led, QueueChange, QueueStats, RESCUES_MAX, Renewed, Report, Result,
    Round, Runner, SCHEDULES_MAX, Schedule, ScheduleChange, Store, StoreError, Tick, Upkeep, Want, Watch, skipped,
    too_many_schedules,
};

/// Schema that this version reads and writes.
const SCHEMA_VERSION: u32 = 2; // as in common.lua

/// Most jobs that one script enqueues: the server does nothing else meanwhile. More come in a batch of several scripts, of
/// which nobody sees anything before it is committed.
const SCRIPT_JOBS_MAX: usize = 1000;
const SCRIPT_PLAIN_JOBS_MAX: usize = 10_000;

/// Jobs of a batch that one script adds to those that were enqueued.
const ARRIVE_STEP: usize = 500;

/// Most parts of a batch that one look of a leader adds.
const ARRIVE_STEPS_MAX: usize = 10;

/// Most jobs that one step of a list looks at.
const LIST_STEP: usize = 500;

/// Number of searches for a job that moves meanwhile.
const LOOKS: usize = 3;

scripts! {
    "redis/common.lua":
    PUSH: "redis/push.lua";
    ENQUEUE: "redis/flow.lua", "redis/plain.lua", "redis/inbox.lua", "redis/parents.lua", "redis/new.lua",
        "redis/enqueue.lua", "redis/told.lua";
    STAGE: "redis/stage.lua";
    COMMIT: "redis/flow.lua", "redis/plain.lua", "redis/inbox.lua", "redis/parents.lua", "redis/commit.lua",
        "redis/new.lua", "redis/committed.lua", "redis/enqueue.lua", "redis/told.lua";
    ARRIVE: "redis/always.lua", "redis/flow.lua", "redis/plain.lua", "redis/inbox.lua", "redis/parents.lua",
        "redis/arrive.lua", "redis/new.lua", "redis/enqueue.lua", "redis/arrived.lua";
    ROUND: "redis/always.lua", "redis/flow.lua", "redis/ending.lua", "redis/round.lua";
    RENEW: "redis/always.lua", "redis/flow.lua", "redis/ending.lua", "redis/renew.lua";
    LOOK_AFTER: "redis/always.lua", "redis/flow.lua", "redis/ending.lua", "redis/look_after.lua";
    LEAVE: "redis/always.lua", "redis/leave.lua";
    LEAD: "redis/always.lua", "redis/lead.lua";
    CHANGE: "redis/always.lua", "redis/flow.lua", "redis/ending.lua", "redis/plain.lua", "redis/change.lua";
    GET: "redis/plain.lua", "redis/get.lua";
    LIST: "redis/plain.lua", "redis/list.lua";
    RUNNING: "redis/plain.lua", "redis/running.lua";
    WAITING: "redis/waiting.lua";
    FIND: "redis/inbox.lua", "redis/find.lua";
    QUEUES: "redis/queues.lua";
    HOLDERS: "redis/running_of.lua", "redis/holders.lua";
    SET_QUEUE: "redis/always.lua", "redis/set_queue.lua";
    SET_SCHEDULE: "redis/set_schedule.lua";
    SCHEDULES: "redis/schedules.lua";
    TICK: "redis/tick.lua", "redis/flow.lua", "redis/plain.lua", "redis/inbox.lua", "redis/parents.lua", "redis/new.lua",
         "redis/ticked.lua", "redis/enqueue.lua", "redis/told.lua";
}

pub struct Redis {
    link: Link,
    /// Plain jobs were waiting where the last one was put.
    has_backlog: AtomicBool,
    room: Room,
}

pub(super) fn add_runner(cmd: &mut Cmd, runner: &Runner) {
    cmd.arg(&runner.name).arg(runner.round).arg(millis(runner.lease));
}

pub(super) fn add_lapsed(cmd: &mut Cmd, lapsed: &[Lapsed]) {
    cmd.arg(lapsed.len());
    for one in lapsed {
        cmd.arg(&one.holder).arg(one.renewals);
    }
}

/// The answer of holders.lua. `renewal`: how often a lease of this length is renewed.
pub(super) fn holders(answer: Value, renewal: impl Fn(Duration) -> Duration) -> Vec<Holder> {
    let mut values = list(answer).into_iter();
    let leader = values.next().and_then(text);
    let leases = leases(values.next().unwrap_or(Value::Nil));
    let running = list(values.next().unwrap_or(Value::Nil)).into_iter().map(|count| parsed(count).unwrap_or_default());
    let holder = |(lease, running): (Lease, u64)| {
        let renewal = renewal(lease.length);
        Holder { running, ..Holder::new(lease, leader.as_deref(), renewal) }
    };
    let mut holders: Vec<_> = leases.into_iter().zip(running).map(holder).collect();
    holders.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    holders
}

pub(super) fn leases(answer: Value) -> Vec<Lease> {
    let lease = |(holder, value): (String, Value)| {
        let value = text(value)?;
        let (renewals, length) = value.split_once(' ')?;
        Some(Lease { holder, renewals: renewals.parse().ok()?, length: Duration::from_millis(length.parse().ok()?) })
    };
    record::pairs(answer).filter_map(lease).collect()
}

/// Leads, or tries to.
pub(super) fn lead(link: &Link, script: &Script, runner: &Runner, lapsed: &[Lapsed]) -> Result<Led> {
    let answer = link.run(script, |cmd| {
        cmd.arg(&runner.name).arg(millis(runner.lease));
        add_lapsed(cmd, lapsed);
    })?;
    let mut values = list(answer).into_iter();
    let leads = values.next().and_then(parsed) == Some(1);
    Ok(Led { leads, leases: leases(values.next().unwrap_or(Value::Nil)) })
}

/// Whether one of these jobs cannot be without this one, which it comes after.
fn is_needed(jobs: &[NewJob], id: &str) -> bool {
    let needs = |job: &NewJob| job.after_failure == AfterFailure::Cancel && job.after.iter().any(|known| known == id);
    jobs.iter().any(needs)
}

impl Redis {
    /// Fails when the server can never be used as it is. One that cannot be reached for now is no failure: it is tried again
    /// with each use.
    pub fn open(url: &str) -> Result<Redis> {
        let location = Location::parse(url)?;
        // In braces, so that all keys are on one node of a cluster.
        let root = format!("{{{}}}", location.prefix);
        let link = Link::new(&location, location.name(), root, Some(SCHEMA_VERSION), SOURCES).checked()?;
        Ok(Redis { link, has_backlog: AtomicBool::new(false), room: Room::default() })
    }

    /// When the last tick of its entry was. One trip for each: ticks that are due at the same time are few.
    fn tick(&self, tick: &Tick, now: Millis) -> Result<(Millis, bool)> {
        let ids = ids::new_ids(1, now);
        let answer = self.link.run(&TICK, |cmd| {
            cmd.arg(&tick.name).arg(tick.kept.as_deref().unwrap_or_default());
            cmd.arg(tick.at).arg(now - Store::now(self)).arg(AHEAD_MAX);
            if let Some(job) = &tick.job {
                cmd.arg(now).arg("").arg(1).arg(record::arguments(job, &ids[0], &[], now));
            }
        })?;
        // Otherwise what an enqueue answers: the tick is new, and of its job whether there is another one already.
        Ok(match answer {
            Value::Array(others) => (tick.at, !others.is_empty()),
            last => match text(last).as_deref() {
                Some("ahead") => (REFUSED, false),
                last => (last.and_then(|last| last.parse().ok()).unwrap_or(tick.at), false),
            },
        })
    }

    /// Stages, rescues and prunes at most so many each.
    fn look(&self, keep: &Keep, limit: usize, lapsed: &[Lapsed], now: Millis) -> Result<Upkeep> {
        // Its parts, between which the script puts the name of the runner.
        let error = store::lapsed(0, "\0", now);
        let (message, message_end) = error.message.split_once('\0').unwrap_or((&error.message, ""));
        let is_short = self.room.is_short(&self.link);
        let answer = self.link.run(&LOOK_AFTER, |cmd| {
            cmd.arg(now).arg(limit);
            self.room.add_to(cmd, is_short, now);
            for kept in [keep.completed, keep.cancelled, keep.dead] {
                cmd.arg(store::kept_ms(kept));
            }
            cmd.arg(RESCUES_MAX).arg(&error.kind).arg(message).arg(message_end);
            add_lapsed(cmd, lapsed);
        })?;
        let mut values = list(answer).into_iter();
        let mut count = || values.next().and_then(parsed).unwrap_or_default();
        let (staged, rescued, buried, pruned, passed) = (count(), count(), count(), count(), count());
        let pruned_early = count();
        self.room.looked(count());
        let next_due = values.next().and_then(parsed);
        let leases = leases(values.next().unwrap_or(Value::Nil));
        let damaged = values.next().map(texts).unwrap_or_default();
        for batch in values.next().map(texts).unwrap_or_default() {
            let mut left = 1;
            for _ in 0..ARRIVE_STEPS_MAX {
                if left > 0 {
                    (left, _) = self.arrive(&batch, now)?;
                }
            }
        }
        Ok(Upkeep {
            staged,
            rescued,
            buried,
            pruned,
            pruned_early,
            passed,
            next_due,
            leases,
            damaged,
            ..Upkeep::default()
        })
    }

    /// Plain jobs, all in one queue: one command where others wait there, so that nobody has to be told.
    fn put(&self, jobs: &[NewJob], ids: &[JobId], now: Millis) -> Result<()> {
        let queue = &jobs[0].queue;
        let entries: Vec<_> = jobs.iter().zip(ids).map(|(job, id)| record::entry(job, id, now)).collect();
        if self.has_backlog.load(Ordering::Relaxed) {
            let mut cmd = redis::cmd("LPUSHX");
            cmd.arg(format!("{}:inbox:{queue}", self.link.root)).arg(&entries);
            if self.link.query(&cmd)? != Value::Int(0) {
                return Ok(());
            }
        }
        let was_empty = self.link.run(&PUSH, |cmd| {
            cmd.arg(queue).arg(&entries);
        })?;
        self.has_backlog.store(was_empty == Value::Int(0), Ordering::Relaxed);
        Ok(())
    }

    /// Of many jobs all or none: they are staged where nobody looks, committed at once, and then come in parts, so that
    /// the server is never busy for long. Where this program ends meanwhile, the leader brings them in. Those that come after
    /// others of the batch are enqueued by the commit.
    fn enqueue_batch(&self, jobs: &[NewJob], ids: Vec<JobId>, now: Millis) -> Result<Vec<Enqueued>> {
        let batch = ids[0].clone();
        let (following, staged): (Vec<_>, Vec<_>) = (0..jobs.len()).partition(|nr| jobs[*nr].after_previous > 0);
        for part in staged.chunks(ARRIVE_STEP) {
            self.link.run(&STAGE, |cmd| {
                cmd.arg(&batch);
                for nr in part {
                    let arguments = record::arguments(&jobs[*nr], &ids[*nr], &[], now);
                    cmd.arg(serde_json::to_string(&arguments).unwrap_or_default());
                }
            })?;
        }
        let queues = jobs.iter().map(|job| (format!("inbox:{}", job.queue), "list"));
        let ready = jobs.iter().map(|job| (format!("ready:{}", job.queue), "zset"));
        let keys = jobs.iter().filter_map(|job| Some((format!("key:{}", job.key.as_ref()?), "zset")));
        let needed: BTreeSet<_> = queues.chain(ready).chain(keys).collect();
        let outside: BTreeSet<_> = jobs.iter().flat_map(|job| &job.after).map(String::as_str).collect();
        let outside = outside.into_iter().collect::<Vec<_>>().join(" ");
        let commit = |cmd: &mut Cmd, gone: &str| {
            cmd.arg(&batch).arg(staged.len()).arg(needed.len());
            for (key, kind) in &needed {
                cmd.arg(key).arg(kind);
            }
            cmd.arg(&outside).arg(gone).arg(now).arg(gone).arg(following.len());
            for nr in &following {
                let inside = &ids[*nr - jobs[*nr].after_previous..*nr];
                cmd.arg(record::arguments(&jobs[*nr], &ids[*nr], inside, now));
            }
        };
        let told = self.run_after(&COMMIT, |id| is_needed(jobs, id), commit, now)?;
        let mut enqueued = vec![Enqueued { id: String::new(), is_new: true }; ids.len()];
        let mut put = |part: &[usize], told: Value| {
            let part_ids = part.iter().map(|nr| ids[*nr].clone()).collect();
            part.iter().zip(record::enqueued(told, part_ids)).for_each(|(nr, one)| enqueued[*nr] = one);
        };
        put(&following, told);
        for part in staged.chunks(ARRIVE_STEP) {
            // All are enqueued: where this fails, the leader brings in what has not come.
            put(part, self.arrive(&batch, now).map_or(Value::Nil, |(_, told)| told));
        }
        Ok(enqueued)
    }

    /// Brings in the next part of a batch. Returns how many are left, and which there were already.
    fn arrive(&self, batch: &str, now: Millis) -> Result<(usize, Value)> {
        // It is committed: what has been deleted since does not complete.
        let arrive = |cmd: &mut Cmd, gone: &str| {
            cmd.arg(now).arg(batch).arg(ARRIVE_STEP).arg(gone);
        };
        let answer = self.run_after(&ARRIVE, |_| false, arrive, now)?;
        let mut values = list(answer).into_iter();
        Ok((values.next().and_then(parsed).unwrap_or_default(), values.next().unwrap_or(Value::Nil)))
    }

    /// Calls `look` with entries that wait in a queue, the newest first, or with the one of an id, until it says no. `step`:
    /// how many are read at first; then more, since who looks for few may find them far behind.
    fn each_waiting(
        &self,
        queue: &str,
        step: usize,
        id: Option<&str>,
        mut look: impl FnMut(&str) -> bool,
    ) -> Result<()> {
        let (mut step, mut from) = (step, -1i64);
        loop {
            step = step.min(LIST_STEP);
            let answer = self.link.run(&WAITING, |cmd| {
                cmd.arg(queue).arg(from).arg(step).arg(id.unwrap_or_default());
            })?;
            let mut values = list(answer).into_iter();
            from = values.next().and_then(parsed).unwrap_or_default();
            for entry in values.filter_map(text) {
                if !look(&entry) {
                    return Ok(());
                }
            }
            if from <= 0 {
                return Ok(());
            }
            step *= 2;
        }
    }

    fn inboxes(&self) -> Result<Vec<String>> {
        self.link
            .run(&WAITING, |cmd| {
                cmd.arg("").arg(0).arg(0).arg("");
            })
            .map(texts)
    }

    /// The entry of a plain job that waits: where its id belongs, or else, since there is no index, among all.
    fn find_waiting(&self, id: &str) -> Result<Option<String>> {
        let queues = self.inboxes()?;
        for queue in &queues {
            let found = self.link.run(&FIND, |cmd| {
                cmd.arg(queue).arg(id);
            })?;
            if let Some(entry) = text(found) {
                return Ok(Some(entry));
            }
        }
        let mut found = None;
        for queue in queues {
            self.each_waiting(&queue, LIST_STEP, Some(id), |entry| {
                found = Some(entry.to_owned());
                false
            })?;
            if found.is_some() {
                break;
            }
        }
        Ok(found)
    }

    /// With its links, which also one that waits in a line may have.
    fn find_kept(&self, id: &str) -> Result<(Option<Job>, [Vec<JobId>; 2])> {
        let answer = self.link.run(&GET, |cmd| {
            cmd.arg(id).arg(LINKS_TOLD);
        })?;
        let mut values = list(answer).into_iter();
        let mut next = || values.next().unwrap_or(Value::Nil);
        let links = [next(), next()].map(texts);
        Ok((record::found(id.to_owned(), next(), next(), next(), self.now()), links))
    }

    fn try_change(&self, id: &str, change: Change<'_>, entry: &str, now: Millis) -> Result<Option<bool>> {
        let (change, body) = match change {
            Change::Cancel => ("cancel", String::new()),
            Change::Retry => ("retry", String::new()),
            Change::RetryWith(arguments) => match self.body_with(id, arguments)? {
                Some(body) => ("retry", body),
                None => return Ok(Some(false)),
            },
            Change::Delete => ("delete", String::new()),
        };
        self.change_by_name(id, change, entry, &body, now)
    }

    fn change_by_name(&self, id: &str, change: &str, entry: &str, body: &str, now: Millis) -> Result<Option<bool>> {
        loop {
            let answer = self.link.run(&CHANGE, |cmd| {
                cmd.arg(id).arg(change).arg(now).arg(entry).arg(body);
            })?;
            // Between parts of what its end is passed on to, others have their turn.
            if answer != Value::Int(-2) {
                return Ok((answer != Value::Int(-1)).then_some(answer == Value::Int(1)));
            }
        }
    }

    /// The body of a job that does not run, with other arguments. It changes in no other way, so nothing is lost.
    fn body_with(&self, id: &str, arguments: &str) -> Result<Option<String>> {
        let answer = self.link.run(&GET, |cmd| {
            cmd.arg(id).arg(1);
        })?;
        let mut values = list(answer).into_iter().skip(2);
        let mut next = || values.next().unwrap_or(Value::Nil);
        Ok(record::body_with(&next(), next(), arguments))
    }

    /// Whether a job that the script did not find is there all the same: where the clocks of programs differ, only whoever looks
    /// at all of a line finds it. From then on it has a record, which is found at once.
    fn is_there(&self, id: &str, now: Millis) -> Result<bool> {
        for _ in 0..LOOKS {
            let Some(entry) = self.find_waiting(id)? else { break };
            if self.change_by_name(id, "record", &entry, "", now)?.is_some() {
                return Ok(true);
            }
        }
        Ok(self.find_kept(id)?.0.is_some())
    }

    /// Runs a script that enqueues jobs. Before that it looks for those that they come after where the script does not, and
    /// tells it which are there no more. `needs`: whether one has to be there.
    fn run_after(
        &self,
        script: &Script,
        needs: impl Fn(&str) -> bool,
        arguments: impl Fn(&mut Cmd, &str),
        now: Millis,
    ) -> Result<Value> {
        let mut gone = Vec::new();
        for _ in 0..LOOKS {
            let answer = self.link.run(script, |cmd| arguments(cmd, &gone.join(" ")))?;
            match record::refused(&answer) {
                None => return Ok(answer),
                Some(("missing", missing)) => {
                    for id in missing {
                        match self.is_there(&id, now)? {
                            true => {}
                            false if needs(&id) => {
                                return Err(StoreError::Refused(flow::no_such_job(&id, self.name())));
                            }
                            false => gone.push(id),
                        }
                    }
                }
                Some((_, other)) => return Err(StoreError::Refused(flow::itself(&other.concat()))),
            }
        }
        let reason = "the jobs that others are to come after move all the time: try again".to_owned();
        Err(StoreError::Unavailable { store: self.name().to_owned(), reason })
    }

    /// A step of a list: those that match, and the id below which to go on.
    fn list_step(&self, filter: &Filter, below: &str, left: usize) -> Result<(Vec<Job>, Option<String>)> {
        let tag = filter.tag.as_ref().map(|tag| serde_json::to_string(tag).unwrap_or_default());
        let answer = self.link.run(&LIST, |cmd| {
            cmd.arg(below).arg(LIST_STEP).arg(left);
            record::optional(cmd, filter.state.map(|state| state.number().to_string()).as_deref());
            record::optional(cmd, filter.queue.as_deref());
            record::optional(cmd, filter.tool.as_deref());
            record::optional(cmd, tag.as_deref());
        })?;
        // The script was answered: the clock was heard of.
        let now = self.now();
        let mut values = list(answer).into_iter();
        let last = values.next().and_then(text);
        let mut found = Vec::new();
        while let (Some(id), Some(first), Some(second), Some(third)) =
            (values.next().and_then(text), values.next(), values.next(), values.next())
        {
            found.extend(record::found(id, first, second, third, now));
        }
        found.retain(|job| filter.takes(job));
        Ok((found, last))
    }

    fn list_kept(&self, filter: &Filter) -> Result<Vec<Job>> {
        let mut below = filter.before.clone().unwrap_or_default();
        let mut found = Vec::new();
        while found.len() < filter.limit {
            let (jobs, last) = self.list_step(filter, &below, filter.limit - found.len())?;
            found.extend(jobs);
            let Some(last) = last else { break };
            below = last;
        }
        Ok(found)
    }

    fn list_running(&self, filter: &Filter) -> Result<Vec<Job>> {
        let claims = texts(self.link.run(&RUNNING, |_| ())?);
        Ok(claims.iter().filter_map(|claim| record::running(claim)).filter(|job| filter.takes(job)).collect())
    }

    fn list_waiting(&self, filter: &Filter) -> Result<Vec<Job>> {
        let mut found = Vec::new();
        for queue in self.inboxes()? {
            if filter.queue.as_ref().is_some_and(|wanted| *wanted != queue) {
                continue;
            }
            let mut left = filter.limit;
            self.each_waiting(&queue, left, None, |entry| {
                let job = Plain::parse(entry).map(|entry| entry.job()).filter(|job| filter.takes(job));
                left -= usize::from(job.is_some());
                found.extend(job);
                left > 0
            })?;
        }
        Ok(found)
    }

    /// Jobs whose record cannot be read are dead, with the reason: nobody can run them.
    fn bury(&self, runner: &Runner, broken: Vec<record::Broken>, now: Millis) -> Result<()> {
        let dead = |one: record::Broken| Settled::malformed(one.id, one.attempt, one.why, now);
        let report = Report { settled: broken.into_iter().map(dead).collect(), ..Report::default() };
        self.round(runner, &report, &Want::default(), now).map(drop)
    }
}

impl Store for Redis {
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

    fn enqueue(&self, jobs: &[NewJob], now: Millis) -> Result<Vec<Enqueued>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids::new_ids(jobs.len(), now);
        let are_plain = jobs.iter().all(|job| record::is_plain(job, now) && job.queue == jobs[0].queue);
        if let Some(id) = jobs.iter().flat_map(|job| &job.after).find(|id| !ids::is_id(id)) {
            return Err(StoreError::Refused(flow::no_such_job(id, self.name())));
        }
        if let Some((nr, job)) = jobs.iter().enumerate().find(|(nr, job)| job.after_previous > *nr) {
            return Err(StoreError::Refused(format!(
                "after the {} jobs before it: there are {nr}",
                job.after_previous
            )));
        }
        flow::check_batch(jobs).map_err(StoreError::Refused)?;
        if jobs.len() > if are_plain { SCRIPT_PLAIN_JOBS_MAX } else { SCRIPT_JOBS_MAX } {
            return self.enqueue_batch(jobs, ids, now);
        }
        if are_plain {
            self.put(jobs, &ids, now)?;
            return Ok(record::enqueued(Value::Nil, ids));
        }
        let enqueue = |cmd: &mut Cmd, gone: &str| {
            cmd.arg(now).arg(gone).arg(jobs.len());
            for (nr, job) in jobs.iter().enumerate() {
                cmd.arg(record::arguments(job, &ids[nr], &ids[nr - job.after_previous..nr], now));
            }
        };
        let answer = self.run_after(&ENQUEUE, |id| is_needed(jobs, id), enqueue, now)?;
        Ok(record::enqueued(answer, ids))
    }

    fn round(&self, runner: &Runner, report: &Report, want: &Want, now: Millis) -> Result<Round> {
        let answer = self.link.run(&ROUND, |cmd| {
            add_runner(cmd, runner);
            cmd.arg(now).arg(want.limit);
            cmd.arg(want.queues.len()).arg(&want.queues);
            cmd.arg(report.noted.len());
            report.noted.iter().for_each(|noted| record::note(cmd, noted));
            let (simple, others): (Vec<_>, Vec<_>) =
                report.settled.iter().partition(|settled| record::is_simple(settled));
            for settled in [&simple, &others] {
                cmd.arg(settled.len()).arg(settled.iter().map(|one| &one.id).collect::<Vec<_>>());
            }
            for state in [State::Completed, State::Cancelled, State::Dead] {
                let kept =
                    report.keep.and_then(|keep| keep.of(state)).map(|kept| now.saturating_add(store::kept_ms(kept)));
                cmd.arg(kept.map_or_else(String::new, |at| at.to_string()));
            }
            cmd.arg(simple.iter().map(|one| one.attempt).collect::<Vec<_>>());
            others.into_iter().for_each(|settled| record::settle(cmd, settled));
        })?;
        let mut values = list(answer).into_iter();
        let lost = values.next().map(texts).unwrap_or_default();
        let has_no_lease = values.next().and_then(parsed) == Some(0);
        let again_in = values.next().and_then(parsed).map(Duration::from_millis);
        let claimed = list(values.next().unwrap_or(Value::Nil));
        let damaged = values.next().map(texts).unwrap_or_default();
        let mut round = Round { lost, has_no_lease, again_in, claimed: Vec::new(), damaged };
        let mut broken = Vec::new();
        for claimed in claimed.into_iter().filter_map(record::claimed) {
            match claimed {
                Ok(job) => round.claimed.push(job),
                Err(one) => broken.push(one),
            }
        }
        if !broken.is_empty() {
            // There may be others behind them.
            round.again_in = Some(Duration::ZERO);
            // Where that fails, a renewal frees them, and they come again.
            let _ = self.bury(runner, broken, now);
        }
        Ok(round)
    }

    fn renew(&self, runner: &Runner, held: &[JobId], now: Millis) -> Result<Option<Renewed>> {
        let answer = self.link.run(&RENEW, |cmd| {
            add_runner(cmd, runner);
            cmd.arg(now).arg(held);
        })?;
        let Value::Array(lists) = answer else { return Ok(None) };
        let mut lists = lists.into_iter().map(texts);
        let (cancelled, lost) = (lists.next().unwrap_or_default(), lists.next().unwrap_or_default());
        Ok(Some(Renewed { cancelled, lost }))
    }

    fn leave(&self, runner: &Runner) -> Result<()> {
        self.link
            .run(&LEAVE, |cmd| {
                cmd.arg(&runner.name);
            })
            .map(drop)
    }

    fn lead(&self, runner: &Runner, lapsed: &[Lapsed]) -> Result<Led> {
        lead(&self.link, &LEAD, runner, lapsed)
    }

    fn look_after(&self, keep: &Keep, limit: usize, ticks: &[Tick], lapsed: &[Lapsed], now: Millis) -> Result<Upkeep> {
        // First what makes room: where the memory is full, no tick can be written.
        let upkeep = if limit > 0 { self.look(keep, limit, lapsed, now)? } else { Upkeep::default() };
        let ticked = ticks.iter().map(|tick| self.tick(tick, now)).collect::<Result<Vec<_>>>()?;
        let last_ticks = ticked.iter().map(|(last, _)| *last).collect();
        let skipped = skipped(ticks, ticked.iter().map(|(_, is_skipped)| *is_skipped));
        Ok(Upkeep { last_ticks, skipped, ..upkeep })
    }

    fn set_schedule(&self, name: &str, change: ScheduleChange<'_>, now: Millis) -> Result<bool> {
        let (what, entry) = match change {
            ScheduleChange::Put(entry) => ("put", entry),
            ScheduleChange::Pause(true) => ("pause", ""),
            ScheduleChange::Pause(false) => ("resume", ""),
            ScheduleChange::Remove => ("remove", ""),
        };
        let answer = self.link.run(&SET_SCHEDULE, |cmd| {
            cmd.arg(name).arg(what).arg(entry).arg(now).arg(SCHEDULES_MAX);
        })?;
        match parsed(answer) {
            Some(-1) => Err(StoreError::Refused(too_many_schedules())),
            changed => Ok(changed == Some(1)),
        }
    }

    fn schedules(&self) -> Result<Vec<Schedule>> {
        let mut values = texts(self.link.run(&SCHEDULES, |_| ())?).into_iter();
        let mut found = Vec::new();
        while let (Some(name), Some(entry), Some(is_paused), Some(at)) =
            (values.next(), values.next(), values.next(), values.next())
        {
            let ticked_at = at.parse().unwrap_or_default();
            found.push(Schedule { name, entry, is_paused: is_paused == "1", ticked_at });
        }
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn change(&self, id: &str, change: Change<'_>, now: Millis) -> Result<bool> {
        if !ids::is_id(id) {
            return Ok(false);
        }
        // What waits may be claimed while it is looked for: then it is where the second look finds it.
        for _ in 0..LOOKS {
            if let Some(changed) = self.try_change(id, change, "", now)? {
                return Ok(changed);
            }
            let Some(entry) = self.find_waiting(id)? else { break };
            if matches!(change, Change::Retry | Change::RetryWith(_)) {
                return Ok(false);
            }
            if let Some(changed) = self.try_change(id, change, &entry, now)? {
                return Ok(changed);
            }
        }
        Ok(self.try_change(id, change, "", now)?.unwrap_or_default())
    }

    fn get(&self, id: &str) -> Result<Option<Job>> {
        if !ids::is_id(id) {
            return Ok(None);
        }
        let mut found = self.find_kept(id)?;
        if found.0.is_none() {
            match self.find_waiting(id)? {
                Some(entry) => found.0 = Plain::parse(&entry).map(|entry| entry.job()),
                // It may have begun meanwhile.
                None => found = self.find_kept(id)?,
            }
        }
        let (job, links) = found;
        let [after, dependents] = links.map(|ids| Some(flow::told(ids)));
        Ok(job.map(|job| Job { after, dependents, ..job }))
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Job>> {
        if filter.before.as_ref().is_some_and(|id| !ids::is_id(id)) {
            return Ok(Vec::new());
        }
        // In the order in which jobs go, so that none is missed that goes on meanwhile; what is seen twice is further on.
        let mut found = Vec::new();
        if filter.state.is_none_or(|state| state == State::Available) {
            found.extend(self.list_waiting(filter)?);
        }
        if filter.state.is_none_or(|state| state == State::Running) {
            found.extend(self.list_running(filter)?);
        }
        found.extend(self.list_kept(filter)?);
        let mut seen = HashSet::new();
        found.reverse();
        found.retain(|job| seen.insert(job.id.clone()));
        found.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        found.truncate(filter.limit);
        Ok(found)
    }

    fn queues(&self) -> Result<Vec<QueueStats>> {
        let mut values = list(self.link.run(&QUEUES, |_| ())?).into_iter();
        let mut next = || record::pairs(values.next().unwrap_or(Value::Nil));
        let mut found = BTreeMap::new();
        for (field, value) in next() {
            let Some((state, queue)) = field.split_once(':') else { continue };
            let state = state.parse().ok().and_then(State::numbered);
            if let (Some(state), Some(count)) = (state, parsed(value)) {
                *QueueStats::entry(&mut found, queue).count_mut(state) = count;
            }
        }
        for (field, value) in next() {
            match field.split_once(':') {
                Some(("paused", queue)) => QueueStats::entry(&mut found, queue).is_paused = parsed(value) == Some(1),
                Some(("max", queue)) => QueueStats::entry(&mut found, queue).running_max = parsed(value),
                Some(("rate", queue)) => {
                    QueueStats::entry(&mut found, queue).rate = text(value).and_then(|rate| Rate::parse(&rate));
                }
                _ => {}
            }
        }
        for (queue, value) in next() {
            QueueStats::entry(&mut found, &queue).available += parsed::<u64>(value).unwrap_or_default();
        }
        for (queue, value) in next() {
            QueueStats::entry(&mut found, &queue).oldest_at = parsed(value);
        }
        Ok(found.into_values().collect())
    }

    fn holders(&self) -> Result<Vec<Holder>> {
        Ok(holders(self.link.run(&HOLDERS, |_| ())?, |lease| self.renewal(lease)))
    }

    fn set_queue(&self, queue: &str, change: QueueChange) -> Result<()> {
        job::check_queue(queue).map_err(StoreError::Refused)?;
        let (name, value) = match change {
            QueueChange::Pause(is_paused) => ("paused", is_paused.then(|| "1".to_owned())),
            QueueChange::RunningMax(most) => ("max", most.map(|most| most.to_string())),
            QueueChange::Rate(rate) => ("rate", rate.map(|rate| rate.to_string())),
        };
        self.link
            .run(&SET_QUEUE, |cmd| {
                cmd.arg(format!("{name}:{queue}")).arg(value.unwrap_or_default());
            })
            .map(drop)
    }

    fn watch(&self) -> Result<Box<dyn Watch>> {
        Ok(Box::new(News::new(self.link.connect()?, &self.link.root)))
    }

    fn warnings(&self) -> Vec<String> {
        self.link.warnings()
    }
}
