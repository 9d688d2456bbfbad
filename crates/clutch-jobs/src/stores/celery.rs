//! The queues of a Celery app on Redis, as kombu keeps them: Celery's clients and workers and Clutch's share one server.
//!
//! What is fetched is noted in `unacked` and `unacked_index` in the same step, as peers look for it there, and its time is
//! renewed while it runs: no peer takes it for abandoned, however long that is. Keys after `clutch.celery` are read by
//! Clutch only: who holds which message, and which of them wait outside of their queue: for their time (`scheduled`,
//! `due`), or for a worker that tells that they have failed outside of one (`failing`, `failures`).
//!
//! Results, retries, chains and chords are the app's own business, in a worker, by Celery's code. What is settled here is
//! what becomes of the message.

mod address;
mod message;
mod settings;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::WorkKind;
use clutch_wire::sync::Mutex;
use redis::Value;
use serde_json::json;
use serde_json::value::RawValue;

use self::address::Address;
pub use self::address::{check, is_scheme};
use self::message::{Message, redelivered, unpacked};
use self::settings::Settings;
use self::watch::{Keys, Tracked, Wanted};
use super::redis::link::Link;
use super::redis::record::{list, parsed, text, texts};
use super::redis::{Location, add_lapsed, add_runner, holders, lead, leases};
use crate::job::{self, Backoff, Claimed, Job, JobError, JobId, Millis, NewJob, Settled, State};
use crate::leases::Lapsed;
use crate::store::{
    Change, Enqueued, Filter, Holder, Keep, Led, NO_TICKS, QueueChange, QueueStats, RENEWALS, Renewed, Report, Result,
    Round, Runner, Store, StoreError, Tick, Upkeep, Want, Watch, lapsed,
};

/// Longest time between two renewals: peers and clients sweep by clocks and timeouts of their own.
const RENEWAL: Duration = Duration::from_secs(5);

/// Interval of sweeps for what peers have abandoned, as theirs (ten times `unacked_restore_interval`).
const SWEEP: Duration = Duration::from_secs(100);

/// Life of the lock that whoever sweeps takes, as kombu's.
const SWEEP_LOCK_MS: u64 = 300_000;

/// Longest time between two looks of its leader while nothing changes.
const QUIET: Duration = Duration::from_secs(3);

/// A retry waits for so long where the attempt before it has not ended.
const RETRY_PAUSE_MS: Millis = 50;

/// Most messages that are read at a time.
const PAGE: usize = 500;

scripts! {
    "celery/common.lua":
    ROUND: "redis/always.lua", "celery/round.lua";
    RENEW: "redis/always.lua", "celery/renew.lua";
    LEAVE: "redis/always.lua", "celery/leave.lua";
    LOOK_AFTER: "redis/always.lua", "celery/look_after.lua";
    RESTORE: "redis/always.lua", "celery/restore.lua";
    LEAD: "redis/always.lua", "redis/lead.lua";
    HOLDERS: "celery/running_of.lua", "redis/holders.lua";
}

pub struct Celery {
    link: Link,
    address: Address,
    /// Messages that runners of this program have, by runner and id.
    held: Mutex<HashMap<String, HashMap<JobId, Held>>>,
    /// Lists that they have asked for.
    keys: Arc<Keys>,
    /// What the node has told.
    settings: Mutex<Settings>,
    /// Name of the database as each runner knows it, which changes when it forgets everything.
    since: Mutex<HashMap<String, String>>,
    swept_at: Mutex<Option<Instant>>,
}

struct Held {
    tag: String,
    text: String,
    attempt: u32,
    /// The database knows nothing of it any more, nor anybody else.
    is_forgotten: bool,
}

/// A message that is settled: its task's id, its tag, and what becomes of it.
type Ended = (JobId, String, Fate);

/// What a message waits for that goes back into its queue.
enum Waiting {
    /// For its time.
    Scheduled,
    /// For somebody else, since nobody has renewed it since then: it may have run.
    Abandoned { since: Millis },
}

/// What becomes of a message.
enum Fate {
    Gone,
    /// Back into its list, next or last, and as this text.
    First(String),
    Last(String),
    /// Another worker tells that it failed, of which this is the JSON.
    Fails(String),
    /// It comes back at this time.
    Later(Millis),
    /// Set aside: nobody can run it.
    Aside,
}

impl Fate {
    fn named(&self) -> (&'static str, String) {
        match self {
            Fate::Gone => ("ack", String::new()),
            Fate::First(text) => ("first", text.clone()),
            Fate::Last(text) => ("last", text.clone()),
            Fate::Fails(why) => ("fail", why.clone()),
            Fate::Later(at) => ("later", seconds(*at)),
            Fate::Aside => ("aside", String::new()),
        }
    }
}

fn seconds(at: Millis) -> String {
    format!("{:.3}", at as f64 / 1000.0)
}

/// What a worker is told of a failure outside of the one that had the task.
fn failure(error: &JobError) -> String {
    json!({"kind": error.kind, "message": error.message, "traceback": error.traceback}).to_string()
}

fn refused<T>(why: &str) -> Result<T> {
    Err(StoreError::Refused(why.to_owned()))
}

impl Celery {
    /// As [`super::redis::Redis::open`].
    pub fn open(url: &str) -> Result<Celery> {
        let address = Address::parse(url)?;
        let location = Location::parse(&address.url)?;
        let name = location.name().replacen("redis", "celery", 1);
        let root = format!("{}clutch.celery", address.prefix);
        let link = Link::new(&location, name, root, None, SOURCES).checked()?;
        let (keys, settings, since, swept_at) = (Arc::default(), Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Celery { link, address, held: Mutex::default(), keys, settings, since, swept_at })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.address.prefix)
    }

    fn own_key(&self, name: &str) -> String {
        format!("{}:{name}", self.link.root)
    }

    /// The lists of these queues with their queues, in the order in which they are asked: urgent ones of all queues first.
    fn lists<'a>(&self, queues: &'a [String]) -> Vec<(String, &'a str)> {
        let of_step = |step: u8| queues.iter().map(move |queue| (self.address.key(queue, step), queue.as_str()));
        self.address.steps.iter().copied().flat_map(of_step).collect()
    }

    /// The queue of a list.
    fn queue_of(&self, key: &str) -> String {
        let name = key.strip_prefix(&self.address.prefix).unwrap_or(key);
        match name.rsplit_once(&self.address.separator) {
            Some((queue, step)) if step.parse::<u8>().is_ok_and(|step| step > 0) => queue.to_owned(),
            _ => name.to_owned(),
        }
    }

    // ---- the parts of a round

    fn is_late(&self, held: &Held) -> bool {
        Message::parse(&held.text).is_some_and(|message| self.settings.lock().is_late(&message.task))
    }

    fn fate(&self, held: &Held, settled: &Settled, now: Millis) -> Fate {
        let again = || redelivered(&held.text).unwrap_or_else(|| held.text.clone());
        let fails = |kind: &str| {
            let (kind, message) = (kind.to_owned(), settled.reason.clone().unwrap_or_default());
            Fate::Fails(failure(&JobError {
                at: now,
                attempt: settled.attempt,
                kind,
                message,
                traceback: String::new(),
            }))
        };
        match (settled.state, &settled.error) {
            // Its worker has told whoever waits: it was there, and said so.
            (State::Completed, _) => Fate::Gone,
            (State::Dead, Some(error)) if error.kind == MALFORMED => Fate::Aside,
            (State::Dead | State::Scheduled, Some(error)) if TOLD.contains(&error.kind.as_str()) => Fate::Gone,
            (State::Dead | State::Scheduled, Some(error)) => Fate::Fails(failure(error)),
            (State::Cancelled | State::Dead | State::Waiting, _) => fails("cancelled"),
            (State::Scheduled, None) => match settled.scheduled_at.filter(|at| *at > now) {
                Some(at) => Fate::Later(at),
                None => Fate::Last(again()),
            },
            (State::Available | State::Running, _) if !settled.has_begun => Fate::First(held.text.clone()),
            (State::Available | State::Running, _) if self.is_late(held) => Fate::First(again()),
            (State::Available | State::Running, _) => fails("cut_off"),
        }
    }

    /// Returns the messages that this runner may settle, with what becomes of them, and those that it may not.
    fn endings(&self, runner: &Runner, report: &Report, now: Millis) -> Result<(Vec<Ended>, Vec<JobId>)> {
        let (mut ended, mut lost) = (Vec::new(), Vec::new());
        if report.settled.is_empty() {
            return Ok((ended, lost));
        }
        let is_own = self.held.lock().contains_key(&runner.name);
        let others = if is_own { HashMap::new() } else { self.held_of(runner)? };
        let all = self.held.lock();
        let held = all.get(&runner.name).unwrap_or(&others);
        for settled in &report.settled {
            match held.get(&settled.id).filter(|known| known.attempt == settled.attempt) {
                Some(known) => ended.push((settled.id.clone(), known.tag.clone(), self.fate(known, settled, now))),
                None => lost.push(settled.id.clone()),
            }
        }
        Ok((ended, lost))
    }

    /// What a runner of another process has, which is gone. Of messages with one id it cannot be told which of them has
    /// ended: they are left out, and each is told, or runs again.
    fn held_of(&self, runner: &Runner) -> Result<HashMap<JobId, Held>> {
        let tags = texts(self.link.query(redis::cmd("HKEYS").arg(self.own_key(&format!("held:{}", runner.name))))?);
        let kept = self.kept_of(&tags)?;
        let read = tags.into_iter().zip(kept).filter_map(|(tag, kept)| {
            let text = unpacked(&kept?)?.0;
            let message = Message::parse(&text)?;
            let attempt = message.attempt();
            Some((message.id?, Held { tag, text, attempt, is_forgotten: false }))
        });
        let (mut held, mut twice) = (HashMap::new(), BTreeSet::new());
        for (id, one) in read {
            if held.insert(id.clone(), one).is_some() {
                twice.insert(id);
            }
        }
        held.retain(|id, _| !twice.contains(id));
        Ok(held)
    }

    /// What `unacked` has of these messages, in their order.
    fn kept_of(&self, tags: &[String]) -> Result<Vec<Option<String>>> {
        if tags.is_empty() {
            return Ok(Vec::new());
        }
        let kept = self.link.query(redis::cmd("HMGET").arg(self.key("unacked")).arg(tags))?;
        Ok(list(kept).into_iter().map(text).collect())
    }

    /// Keeps what was fetched. What is not due yet is put away. Returns how many are no messages, too.
    fn fetched(
        &self,
        runner: &Runner,
        values: Vec<Value>,
        has_revoked: bool,
        now: Millis,
    ) -> Result<(Vec<Claimed>, usize)> {
        let values: Vec<Fetched> = values.into_iter().filter_map(Fetched::read).collect();
        if values.is_empty() {
            return Ok((Vec::new(), 0)); // it may be another process's, of which nothing is known here
        }
        let revoked = if has_revoked { self.revoked_of(&values)? } else { BTreeSet::new() };
        let (mut claimed, mut others, mut malformed) = (Vec::new(), Vec::new(), 0);
        let mut held = self.held.lock();
        let mut settings = self.settings.lock();
        let own = held.entry(runner.name.clone()).or_default();
        for mut one in values {
            let Some((message, text)) = one.found.take() else {
                malformed += 1;
                others.push((one.tag, Fate::Aside));
                continue;
            };
            let due_at = message.due_at(&self.address.timezone);
            if one.is_new
                && let Some(at) = settings.start(&message.task, due_at, now)
            {
                others.push((one.tag, Fate::Later(at)));
                continue;
            }
            // Its task sends it before it stores that it is tried again: whoever stores last is believed, and who waits for
            // the result would wait for ever.
            if message.retries > 0 && message.id.as_ref().is_some_and(|id| own.contains_key(id)) {
                others.push((one.tag, Fate::Later(now + RETRY_PAUSE_MS)));
                continue;
            }
            // It was claimed, and the answer was lost before it was put away.
            if due_at.is_some_and(|at| at > now) {
                others.push((one.tag, Fate::First(text)));
                continue;
            }
            let queue = self.queue_of(&one.key);
            let is_revoked = message.id.as_ref().is_some_and(|id| revoked.contains(id));
            let meta = meta_of(&one, settings.for_workers(), is_revoked);
            let mut job = claimed_of(&message, &text, queue, meta, due_at.unwrap_or(now));
            // A client may give an id twice, and a peer may put a message back that is here.
            let (id, mut nr) = (job.id.clone(), 1);
            while own.contains_key(&job.id) {
                nr += 1;
                job.id = format!("{id}#{nr}");
            }
            own.insert(job.id.clone(), Held { tag: one.tag, text, attempt: job.attempt, is_forgotten: false });
            claimed.push(job);
        }
        drop(settings);
        drop(held);
        if !others.is_empty() {
            self.link.run(&ROUND, |cmd| {
                add_runner(cmd, runner);
                cmd.arg(&self.address.node).arg(seconds(now)).arg(0).arg(0);
                for (tag, fate) in &others {
                    let (what, text) = fate.named();
                    cmd.arg(tag).arg(what).arg(text);
                }
            })?;
        }
        Ok((claimed, malformed))
    }

    /// The ids of those among these tasks that somebody has revoked.
    fn revoked_of(&self, fetched: &[Fetched]) -> Result<BTreeSet<String>> {
        let ids: Vec<String> = fetched.iter().filter_map(|one| one.found.as_ref()?.0.id.clone()).collect();
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let scores = list(self.link.query(redis::cmd("ZMSCORE").arg(self.own_key("revoked")).arg(&ids))?);
        Ok(ids.into_iter().zip(scores).filter(|(_, score)| *score != Value::Nil).map(|(id, _)| id).collect())
    }

    /// Hears the name of the database, if there is one. After another one, what runs goes on: nobody else has it.
    fn hear_since(&self, runner: &Runner, name: Option<String>) {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return };
        let before = self.since.lock().insert(runner.name.clone(), name.clone());
        if before.is_some_and(|before| before != name)
            && let Some(own) = self.held.lock().get_mut(&runner.name)
        {
            own.values_mut().for_each(|one| one.is_forgotten = true);
        }
    }

    // ---- upkeep

    /// Puts back what a peer has abandoned: its time has not been renewed for as long as peers agree on. For what runners
    /// have, their leases tell.
    fn sweep(&self, limit: usize, now: Millis) -> Result<usize> {
        let mut swept_at = self.swept_at.lock();
        if swept_at.is_some_and(|at| at.elapsed() < SWEEP.min(self.address.visibility)) {
            return Ok(0);
        }
        *swept_at = Some(Instant::now());
        drop(swept_at);
        let lock = self.key("unacked_mutex");
        let token = format!("clutch-{}", std::process::id());
        let mut cmd = redis::cmd("SET");
        cmd.arg(&lock).arg(&token).arg("NX").arg("PX").arg(SWEEP_LOCK_MS);
        if self.link.query(&cmd)? == Value::Nil {
            return Ok(0);
        }
        let restored = self.restore_abandoned(limit, now);
        if text(self.link.query(redis::cmd("GET").arg(&lock))?).as_deref() == Some(&token) {
            self.link.query(redis::cmd("DEL").arg(&lock))?;
        }
        restored
    }

    fn restore_abandoned(&self, limit: usize, now: Millis) -> Result<usize> {
        let since = now - job::millis(self.address.visibility);
        let (mut left, mut restored) = (0, 0);
        while restored < limit {
            let mut cmd = redis::cmd("ZRANGEBYSCORE");
            cmd.arg(self.key("unacked_index")).arg(0).arg(seconds(since)).arg("LIMIT").arg(left).arg(PAGE);
            let tags = texts(self.link.query(&cmd)?);
            if tags.is_empty() {
                break;
            }
            let (seen, mut kept, mut gone) = (tags.len(), Vec::new(), 0);
            let found = self.kept_of(&tags)?;
            for (tag, found) in tags.into_iter().zip(found) {
                match found {
                    Some(text) => kept.push((tag, text)),
                    None => {
                        self.link.query(redis::cmd("ZREM").arg(self.key("unacked_index")).arg(tag))?;
                        gone += 1;
                    }
                }
            }
            let (back, renewed) = self.restore(&kept, &Waiting::Abandoned { since }, now)?;
            // Those that are as they were come again.
            (left, restored) = (left + seen.saturating_sub(gone + back + renewed), restored + back);
        }
        Ok(restored)
    }

    /// Puts back what waits for its time and is such a message, the last one first. Returns how many.
    fn restore_scheduled(&self, is_wanted: impl Fn(&Message) -> bool) -> Result<usize> {
        let (mut left, mut restored) = (0, 0);
        loop {
            let mut cmd = redis::cmd("ZREVRANGE");
            cmd.arg(self.own_key("scheduled")).arg(left).arg(left + PAGE - 1);
            let tags = texts(self.link.query(&cmd)?);
            if tags.is_empty() {
                return Ok(restored);
            }
            let seen = tags.len();
            let kept = tags.iter().cloned().zip(self.kept_of(&tags)?);
            let kept = kept.filter_map(|(tag, kept)| Some((tag, kept?)));
            let is_one = |kept: &str| Message::parse(&unpacked(kept)?.0);
            let wanted: Vec<_> = kept.filter(|(_, kept)| is_one(kept).is_some_and(|one| is_wanted(&one))).collect();
            let (back, _) = self.restore(&wanted, &Waiting::Scheduled, job::now())?;
            (left, restored) = (left + seen - back, restored + back);
        }
    }

    /// Gives the tasks whose rate has changed times anew: those that wait for one go through their queues again.
    fn set_times_anew(&self, now: Millis) -> Result<()> {
        let changed = self.settings.lock().changed();
        if changed.is_empty() {
            return Ok(());
        }
        let is_due = |message: &Message| message.due_at(&self.address.timezone).is_none_or(|at| at <= now);
        self.restore_scheduled(|message| changed.contains(&message.task) && is_due(message))?;
        self.settings.lock().set_times_anew();
        Ok(())
    }

    /// Puts messages, each a tag and what `unacked` has, back into their queues, where they are next. Returns how many, and
    /// how many were renewed, since a runner has them or they wait for one.
    fn restore(&self, messages: &[(String, String)], from: &Waiting, now: Millis) -> Result<(usize, usize)> {
        let mut steps = Vec::new();
        for (tag, kept) in messages {
            let Some((message, exchange, routing_key)) = unpacked(kept) else { continue };
            let priority = Message::parse(&message).map_or(0, |message| message.priority);
            let again = match from {
                Waiting::Scheduled => message,
                Waiting::Abandoned { .. } => redelivered(&message).unwrap_or(message),
            };
            for queue in self.routes(&exchange, &routing_key)? {
                steps.push((tag, kept.clone(), self.address.key(&queue, self.address.step(priority)), again.clone()));
            }
        }
        if steps.is_empty() {
            return Ok((0, 0));
        }
        let answer = self.link.run(&RESTORE, |cmd| {
            match from {
                Waiting::Scheduled => cmd.arg("scheduled"),
                Waiting::Abandoned { since } => cmd.arg(seconds(*since)),
            };
            cmd.arg(seconds(now));
            for (tag, kept, key, again) in &steps {
                cmd.arg(tag).arg(kept).arg(key).arg(again);
            }
        })?;
        let mut counts = list(answer).into_iter().map(|count| parsed(count).unwrap_or_default());
        Ok((counts.next().unwrap_or_default(), counts.next().unwrap_or_default()))
    }

    /// The queues of an exchange and a routing key. The exchange without a name has each queue by its own.
    fn routes(&self, exchange: &str, routing_key: &str) -> Result<Vec<String>> {
        if exchange.is_empty() {
            return Ok(vec![routing_key.to_owned()]);
        }
        let bindings = self.link.query(redis::cmd("SMEMBERS").arg(self.key(&format!("_kombu.binding.{exchange}"))))?;
        let parts = |binding: String| {
            let mut parts = binding.split(BINDING).map(str::to_owned);
            Some((parts.next()?, parts.nth(1)?))
        };
        let found = texts(bindings).into_iter().filter_map(parts);
        let mut queues: Vec<_> = found.filter(|(key, _)| key == routing_key).map(|(_, queue)| queue).collect();
        if queues.is_empty() {
            queues.push(routing_key.to_owned());
        }
        Ok(queues)
    }

    /// The queues with tasks that anybody has declared, for those who take from none of them.
    fn declared(&self) -> Result<Vec<String>> {
        let (bindings, mut found) = (self.key("_kombu.binding."), BTreeSet::new());
        self.scan("SCAN", &["MATCH", "*_kombu.binding.*"], |keys| {
            for key in keys.iter().filter(|key| key.starts_with(&bindings)) {
                let of_exchange = texts(self.link.query(redis::cmd("SMEMBERS").arg(key))?);
                found.extend(of_exchange.iter().filter_map(|one| one.split(BINDING).nth(2)).map(str::to_owned));
            }
            Ok(())
        })?;
        let has_tasks = |queue: &String| !queue.ends_with(".pidbox") && !queue.starts_with("celeryev.");
        Ok(found.into_iter().filter(has_tasks).collect())
    }

    /// Goes through what the server has without holding it up. `what`: a key for `HSCAN`, a pattern for `SCAN`.
    fn scan(&self, command: &str, what: &[&str], mut page: impl FnMut(Vec<String>) -> Result<()>) -> Result<()> {
        let (key, pattern) = what.split_at(usize::from(command != "SCAN"));
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd(command);
            scan.arg(key).arg(&cursor).arg(pattern).arg("COUNT").arg(SCANNED);
            let mut answer = list(self.link.query(&scan)?).into_iter();
            cursor = answer.next().and_then(parsed).unwrap_or_else(|| "0".to_owned());
            page(texts(answer.next().unwrap_or(Value::Nil)))?;
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    fn is_alone(&self) -> Result<bool> {
        let holders = parsed::<u64>(self.link.query(redis::cmd("HLEN").arg(self.own_key("renewals")))?);
        Ok(holders == Some(0))
    }
}

/// Between the parts of a binding: routing key, pattern and queue.
const BINDING: &str = "\u{6}\u{16}";

/// Keys that the server looks at in one step of a search.
const SCANNED: usize = 1000;

/// Kind of the error of a message that Celery's code in the worker could not read; whoever waits for it was told.
const MALFORMED: &str = "malformed";

/// Kinds of errors that the worker itself has told whoever waits: it was there to the end.
const TOLD: [&str; 2] = ["raised", "dead"];

/// A message as a round gives it.
struct Fetched {
    tag: String,
    key: String,
    /// It comes out of its queue, and not from where it waited for its time.
    is_new: bool,
    /// With its text. None: it cannot be read.
    found: Option<(Message, String)>,
    failure: String,
    rescues: u32,
}

impl Fetched {
    fn read(value: Value) -> Option<Fetched> {
        let mut values = list(value).into_iter();
        let tag = text(values.next()?)?;
        let key = text(values.next()?)?;
        let is_new = text(values.next()?)? == "new";
        let kept = text(values.next()?);
        let text_of = |kept: String| if is_new { Some(kept) } else { Some(unpacked(&kept)?.0) };
        let failure = text(values.next()?).unwrap_or_default();
        let rescues = values.next().and_then(parsed).unwrap_or_default();
        let found = kept.and_then(text_of).and_then(|text| Some((Message::parse(&text)?, text)));
        Some(Fetched { tag, key, is_new, found, failure, rescues })
    }
}

/// What the worker is told of a message beside its text.
fn meta_of(one: &Fetched, settings: &str, is_revoked: bool) -> String {
    let failure: Option<&RawValue> = serde_json::from_str(&one.failure).ok();
    let settings: Option<&RawValue> = serde_json::from_str(settings).ok();
    json!({"failure": failure, "rescues": one.rescues, "settings": settings, "revoked": is_revoked}).to_string()
}

fn claimed_of(message: &Message, text: &str, queue: String, meta: String, due_at: Millis) -> Claimed {
    let attempt = message.attempt();
    Claimed {
        id: message.id.clone().unwrap_or_default(),
        queue,
        tool: message.task.clone(),
        arguments: format!(r#"{{"args":[],"kwargs":{{"message":{text}}}}}"#),
        priority: 0,
        attempt,
        // Celery's own code decides what is tried again, and enqueues that.
        attempts_max: attempt,
        backoff: Backoff::Constant { ms: 0 },
        created_at: due_at,
        due_at,
        deadline_at: None,
        key: None,
        tags: Vec::new(),
        meta: Some(meta),
        checkpoint: None,
        result_ms: 0,
        results: None,
        kind: WorkKind::JOB,
        headers: Vec::new(),
    }
}

const SHOWN_BY_CELERY: &str =
    "single tasks of Celery are shown by Celery: celery -A APP inspect active, celery -A APP result ID, or Flower";
const BY_CLIENTS: &str = "tasks of Celery are sent by Celery: task.delay(…)";

impl Store for Celery {
    /// What is acknowledged early runs once at most.
    fn runs_any_tool(&self) -> bool {
        true
    }

    fn runs_once(&self) -> bool {
        true
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

    fn check(&self, _job: &NewJob) -> Result<()> {
        refused(BY_CLIENTS)
    }

    fn enqueue(&self, _jobs: &[NewJob], _now: Millis) -> Result<Vec<Enqueued>> {
        refused(BY_CLIENTS)
    }

    fn round(&self, runner: &Runner, report: &Report, want: &Want, now: Millis) -> Result<Round> {
        let (ended, mut lost) = self.endings(runner, report, now)?;
        let queues = self.settings.lock().queues(&want.queues);
        let lists = self.lists(&queues);
        if !lists.is_empty() {
            self.keys.ask_for(lists.iter().map(|(key, _)| key.clone()));
        }
        let answer = self.link.run(&ROUND, |cmd| {
            add_runner(cmd, runner);
            cmd.arg(&self.address.node).arg(seconds(now)).arg(want.limit).arg(lists.len());
            for (key, queue) in &lists {
                cmd.arg(key).arg(queue);
            }
            for (_, tag, fate) in &ended {
                let (what, text) = fate.named();
                cmd.arg(tag).arg(what).arg(text);
            }
        })?;
        let mut values = list(answer).into_iter();
        let late = values.next().map(list).unwrap_or_default().into_iter().filter_map(parsed::<usize>);
        lost.extend(late.filter_map(|at| ended.get(at)).map(|(id, ..)| id.clone()));
        if let Some(own) = self.held.lock().get_mut(&runner.name) {
            ended.iter().for_each(|(id, ..)| drop(own.remove(id)));
        }
        let fetched = list(values.next().unwrap_or(Value::Nil));
        let has_no_lease = values.next().and_then(parsed) == Some(0);
        let mut damaged = values.next().map(texts).unwrap_or_default();
        let unsplit = values.next().and_then(parsed::<usize>).unwrap_or_default();
        let settings = values.next().and_then(text).unwrap_or_default();
        let has_other_queues = self.settings.lock().hear(settings);
        let has_revoked = values.next().and_then(parsed) == Some(1);
        self.hear_since(runner, values.next().and_then(text));
        let (claimed, unreadable) = self.fetched(runner, fetched, has_revoked, now)?;
        let _ = self.set_times_anew(now); // otherwise in the next round
        let malformed = unsplit + unreadable;
        if malformed > 0 {
            damaged.push(format!(
                "{malformed} of its messages are none of Celery's, and are set aside in the list {}",
                self.own_key("malformed")
            ));
        }
        // These were asked for before it was heard which ones are wanted now.
        let again_in = has_other_queues.then_some(Duration::ZERO);
        Ok(Round { claimed, lost, has_no_lease, again_in, damaged })
    }

    fn renew(&self, runner: &Runner, held: &[JobId], now: Millis) -> Result<Option<Renewed>> {
        let wanted: BTreeSet<&str> = held.iter().map(String::as_str).collect();
        let since = self.since.lock().get(&runner.name).cloned().unwrap_or_default();
        let known: Vec<(JobId, String)> = {
            let mut all = self.held.lock();
            let own = all.entry(runner.name.clone()).or_default();
            own.retain(|id, _| wanted.contains(id.as_str()));
            own.iter().map(|(id, one)| (id.clone(), one.tag.clone())).collect()
        };
        let answer = self.link.run(&RENEW, |cmd| {
            add_runner(cmd, runner);
            cmd.arg(seconds(now)).arg(since);
            for (_, tag) in &known {
                cmd.arg(tag);
            }
        })?;
        if answer == Value::Nil {
            self.held.lock().remove(&runner.name);
            return Ok(None);
        }
        let mut values = list(answer).into_iter();
        let cancelling: BTreeSet<_> = values.next().map(texts).unwrap_or_default().into_iter().collect();
        let mine: BTreeSet<_> = values.next().map(texts).unwrap_or_default().into_iter().collect();
        self.hear_since(runner, values.next().and_then(text));
        let held = self.held.lock();
        let own = held.get(&runner.name);
        let is_forgotten = |id: &str| own.and_then(|own| own.get(id)).is_some_and(|one| one.is_forgotten);
        let ids = |is_it: &dyn Fn(&str, &str) -> bool| -> Vec<JobId> {
            known.iter().filter(|(id, tag)| is_it(id, tag)).map(|(id, _)| id.clone()).collect()
        };
        Ok(Some(Renewed {
            cancelled: ids(&|_, tag| cancelling.contains(tag)),
            lost: ids(&|id, tag| !mine.contains(tag) && !is_forgotten(id)),
        }))
    }

    fn leave(&self, runner: &Runner) -> Result<()> {
        self.held.lock().remove(&runner.name);
        self.since.lock().remove(&runner.name);
        self.link.run(&LEAVE, |cmd| {
            cmd.arg(&runner.name);
        })?;
        // Peers know nothing of what waits outside of its queue, where the last one is the next.
        if self.is_alone()? {
            self.restore_scheduled(|_| true)?;
        }
        Ok(())
    }

    fn lead(&self, runner: &Runner, lapsed: &[Lapsed]) -> Result<Led> {
        lead(&self.link, &LEAD, runner, lapsed)
    }

    fn look_after(&self, _keep: &Keep, limit: usize, ticks: &[Tick], over: &[Lapsed], now: Millis) -> Result<Upkeep> {
        if !ticks.is_empty() {
            return refused(NO_TICKS);
        }
        let why = failure(&lapsed(1, "of these", now));
        let answer = self.link.run(&LOOK_AFTER, |cmd| {
            cmd.arg(seconds(now)).arg(limit).arg(why);
            add_lapsed(cmd, over);
        })?;
        let mut values = list(answer).into_iter();
        let leases = leases(values.next().unwrap_or(Value::Nil));
        let staged = values.next().and_then(parsed).unwrap_or_default();
        let rescued = values.next().and_then(parsed::<usize>).unwrap_or_default();
        let next_due = values.next().and_then(parsed::<f64>).map(|at| (at * 1000.0).ceil() as Millis);
        let restored = if limit > 0 { self.sweep(limit, now)? } else { 0 };
        Ok(Upkeep { staged, rescued: rescued + restored, leases, next_due, ..Upkeep::default() })
    }

    fn change(&self, _id: &str, _change: Change<'_>, _now: Millis) -> Result<bool> {
        refused("tasks of Celery are revoked and sent again by Celery: celery -A APP control revoke ID")
    }

    fn get(&self, _id: &str) -> Result<Option<Job>> {
        refused(SHOWN_BY_CELERY)
    }

    fn list(&self, _filter: &Filter) -> Result<Vec<Job>> {
        refused(SHOWN_BY_CELERY)
    }

    fn queues(&self) -> Result<Vec<QueueStats>> {
        let (mut found, mut keys) = (BTreeMap::new(), self.keys.all());
        if keys.is_empty() {
            let declared = self.declared()?;
            keys.extend(self.lists(&declared).into_iter().map(|(key, _)| key));
        }
        for key in keys {
            let length = parsed::<u64>(self.link.query(redis::cmd("LLEN").arg(&key))?).unwrap_or_default();
            QueueStats::entry(&mut found, &self.queue_of(&key)).available += length;
        }
        for runner in texts(self.link.query(redis::cmd("HKEYS").arg(self.own_key("renewals")))?) {
            for key in texts(self.link.query(redis::cmd("HVALS").arg(self.own_key(&format!("held:{runner}"))))?) {
                QueueStats::entry(&mut found, &self.queue_of(&key)).running += 1;
            }
        }
        self.scan("HSCAN", &[&self.own_key("keys")], |waiting| {
            for key in waiting.iter().skip(1).step_by(2) {
                QueueStats::entry(&mut found, &self.queue_of(key)).scheduled += 1;
            }
            Ok(())
        })?;
        Ok(found.into_values().collect())
    }

    fn holders(&self) -> Result<Vec<Holder>> {
        Ok(holders(self.link.run(&HOLDERS, |_| ())?, |lease| self.renewal(lease)))
    }

    fn set_queue(&self, _queue: &str, _change: QueueChange) -> Result<()> {
        refused(
            "a queue of Celery has no pause and no limits: celery -A APP control cancel_consumer QUEUE stops its consumers",
        )
    }

    fn watch(&self) -> Result<Box<dyn Watch>> {
        let (asking, listening) = (self.link.connect()?, self.link.connect()?);
        let wanted = Wanted {
            always: ["due", "failing", "scheduled"].map(|name| self.own_key(name)),
            settings: self.own_key(&format!("settings:{}", self.address.node)),
            keys: self.keys.clone(),
        };
        let watch = Tracked::new(asking, listening, wanted);
        let watch = watch.map_err(|error| self.link.told(&error))?;
        Ok(Box::new(watch))
    }

    fn quiet_interval(&self) -> Duration {
        QUIET
    }

    fn renewal(&self, lease: Duration) -> Duration {
        (lease / RENEWALS).min(RENEWAL).min(self.address.visibility / RENEWALS)
    }

    fn warnings(&self) -> Vec<String> {
        self.link.warnings()
    }
}
