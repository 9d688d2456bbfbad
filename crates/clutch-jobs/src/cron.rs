//! Periodic jobs: which ticks are due, and the job of each: a pure machine.
//!
//! The store decides whether a tick is new ([`Store::look_after`](crate::store::Store::look_after)): of each entry it
//! remembers the last tick, and takes none that is not later. So any number of programs may have the same entries, whether
//! they lead or not, and may start again, or have clocks that differ or jump: a tick makes one job at most. What is known
//! here of the last tick may be old, and each answer of the store mends it.
//!
//! Entries are those of a configuration, and those that are kept in the store, which come and go. A tick that is far ahead
//! of the store's clock is refused there: it would silence the entry until then.
//!
//! Of the ticks that nobody could run in time, the last one makes a job; an entry that is new to its store begins with its
//! next tick.

pub mod watch;

use std::fmt;

use croner::Cron as Pattern;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::to_raw_value;

use crate::job::{Millis, NewJob};
use crate::store::{Schedule, Tick};

/// Lateness at which a tick counts as missed.
const MISSED_AFTER: Millis = 60_000;

/// Most missed ticks that are counted.
pub const MISSED_MAX: usize = 1000;

/// How far a tick may be ahead of the store's clock.
pub const AHEAD_MAX: Millis = 60_000;

/// In place of a last tick: this one was refused, since it is ahead of the store's clock.
pub const REFUSED: Millis = Millis::MIN;

/// Shortest time between two ticks of a plain interval.
const EVERY_MIN: Millis = 1000;

/// Longest gap of the clocks across which the parser finds the next time, in seconds.
const GAP_SEARCHED_S: i32 = 2 * 3600;

/// Most fixed times of one day, one for each minute; a schedule with more of them is none of fixed times.
const FIXED_TIMES_MAX: usize = 24 * 60;

/// Treatment of ticks that nobody could run in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Misfire {
    /// The last one makes a job.
    Last,
    /// None does.
    Skip,
}

/// Treatment of a tick while the job of an earlier one has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// Makes no job.
    Skip,
    /// Lets the job begin when no other one of the entry runs.
    Wait,
    Allow,
}

/// An entry as it is configured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryOptions {
    name: String,
    schedule: Option<String>,
    every_ms: Option<Millis>,
    zone: String,
    misfire: Misfire,
    overlap: Overlap,
    /// From when its job is enqueued.
    deadline_ms: Option<Millis>,
    job: NewJob,
}

/// Why an entry can never be used, and the option that is to blame, if it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongEntry {
    pub option: &'static str,
    pub why: String,
}

/// When an entry ticks.
#[derive(Clone, Debug)]
enum TickTimes {
    Pattern {
        /// Alternatives: the entry ticks when any of them does.
        patterns: Vec<Pattern>,
        zone: TimeZone,
    },
    /// At the multiples of this time since 1970.
    Every(Millis),
}

impl TickTimes {
    fn parse(options: &EntryOptions) -> Result<TickTimes, WrongEntry> {
        let wrong = |option, why: String| WrongEntry { option, why };
        match (&options.schedule, options.every_ms) {
            (None, Some(every)) if every >= EVERY_MIN => Ok(TickTimes::Every(every)),
            (None, Some(every)) => Err(wrong("every", format!("{every} ms is less than 1 s"))),
            (Some(text), None) => {
                let patterns = patterns(text).map_err(|error| wrong("schedule", unreadable(error)))?;
                let zone =
                    TimeZone::get(&options.zone).map_err(|_| wrong("zone", "there is no such time zone".to_owned()))?;
                Ok(TickTimes::Pattern { patterns, zone })
            }
            _ => Err(wrong("schedule", "one of schedule and every must be given".to_owned())),
        }
    }

    /// The first tick after this time.
    fn next(&self, after: Millis) -> Option<Millis> {
        match self {
            TickTimes::Every(every) => after.div_euclid(*every).checked_add(1)?.checked_mul(*every),
            TickTimes::Pattern { patterns, zone } => {
                let after = second_of(after, zone)?;
                let found = patterns.iter().map_while(|pattern| next_of(pattern, &after));
                found.map(|time| time.timestamp().as_millisecond()).min()
            }
        }
    }

    /// The last tick that is not after this time.
    fn last(&self, now: Millis) -> Option<Millis> {
        match self {
            TickTimes::Every(every) => Some(now - now.rem_euclid(*every)),
            TickTimes::Pattern { patterns, zone } => {
                let now = second_of(now, zone)?;
                let found = patterns.iter().map_while(|pattern| last_of(pattern, &now));
                found.map(|time| time.timestamp().as_millisecond()).max()
            }
        }
    }
}

/// The parser's search ends at clocks that leave out more than it looks for. Then it goes on behind these: a day that there
/// is not has no ticks.
fn next_of(pattern: &Pattern, after: &Zoned) -> Option<Zoned> {
    let beyond = || {
        let zone = after.time_zone();
        let edge =
            zone.following(after.timestamp()).map(|change| change.timestamp()).find(|at| is_long_gap(zone, *at))?;
        pattern.find_next_occurrence(&edge.to_zoned(zone.clone()), true).ok()
    };
    pattern.find_next_occurrence(after, false).ok().or_else(beyond)
}

fn last_of(pattern: &Pattern, now: &Zoned) -> Option<Zoned> {
    let beyond = || {
        let zone = now.time_zone();
        // With a change of this very second.
        let soon = Timestamp::from_second(now.timestamp().as_second() + 1).ok()?;
        let edge = zone.preceding(soon).map(|change| change.timestamp()).find(|at| is_long_gap(zone, *at))?;
        pattern.find_previous_occurrence(&second_before(edge)?.to_zoned(zone.clone()), true).ok()
    };
    pattern.find_previous_occurrence(now, true).ok().or_else(beyond)
}

/// Whether the clocks of a zone go forward then, by more than the parser looks for.
fn is_long_gap(zone: &TimeZone, at: Timestamp) -> bool {
    let before = second_before(at).map(|before| zone.to_offset(before).seconds());
    before.is_some_and(|before| zone.to_offset(at).seconds() - before > GAP_SEARCHED_S)
}

fn second_before(at: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(at.as_second() - 1).ok()
}

/// The parser takes only a schedule with one time of day for one of fixed times, which summer time neither loses nor
/// doubles. Here it is any without wildcards and steps in its time: as a pattern for each time of day. Of patterns with the
/// same days, all have a next time, or none.
fn patterns(text: &str) -> Result<Vec<Pattern>, CronError> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let whole = parser.parse(text)?;
    let fields = [&whole.pattern.hours, &whole.pattern.minutes, &whole.pattern.seconds];
    let [hours, minutes, seconds] = fields.map(|field| field.values());
    let is_fixed = fields.iter().all(|field| field.step == 1 && !field.from_wildcard);
    let count = hours.len() * minutes.len() * seconds.len();
    if !is_fixed || !(2..=FIXED_TIMES_MAX).contains(&count) {
        return Ok(vec![whole]);
    }
    let words: Vec<_> = text.split_whitespace().collect();
    let days = words[words.len() - 3..].join(" ");
    let mut times = Vec::with_capacity(count);
    for hour in &hours {
        for minute in &minutes {
            times.extend(seconds.iter().map(|second| format!("{second} {minute} {hour} {days}")));
        }
    }
    times.iter().map(|time| parser.parse(time)).collect()
}

fn unreadable(error: CronError) -> String {
    let why = match error {
        CronError::InvalidPattern(why) | CronError::IllegalCharacters(why) | CronError::ComponentError(why) => why,
        other => other.to_string(),
    };
    format!("cannot be read: {}", why.trim_end_matches('.'))
}

/// The beginning of its second, as clocks in the zone show it.
fn second_of(time: Millis, zone: &TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_second(time.div_euclid(1000)).ok()?.to_zoned(zone.clone()))
}

/// A job that is enqueued again and again.
#[derive(Clone)]
pub struct CronEntry {
    options: EntryOptions,
    schedule: TickTimes,
}

impl fmt::Debug for CronEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(formatter)
    }
}

impl CronEntry {
    /// From its JSON.
    pub fn read(text: &str, now: Millis) -> Result<CronEntry, WrongEntry> {
        let wrong = |error: serde_json::Error| WrongEntry { option: "", why: error.to_string() };
        CronEntry::new(serde_json::from_str(text).map_err(wrong)?, now)
    }

    /// `now`: an entry that never ticks after it is none.
    pub fn new(options: EntryOptions, now: Millis) -> Result<CronEntry, WrongEntry> {
        let schedule = TickTimes::parse(&options)?;
        let entry = CronEntry { options, schedule };
        entry.job(now, now).check().map_err(|why| WrongEntry { option: "", why })?;
        match entry.next(now) {
            Some(_) => Ok(entry),
            None => Err(WrongEntry { option: "schedule", why: "there is no such time".to_owned() }),
        }
    }

    /// Returns the first tick after this time.
    pub fn next(&self, after: Millis) -> Option<Millis> {
        self.schedule.next(after)
    }

    /// The same for people: as clocks in its zone show it, in ISO 8601. Empty: there is none.
    pub fn next_shown(&self, after: Millis) -> String {
        let zone = match &self.schedule {
            TickTimes::Pattern { zone, .. } => zone.clone(),
            TickTimes::Every(_) => TimeZone::UTC,
        };
        let next = self.next(after).and_then(|next| second_of(next, &zone));
        next.map(|next| next.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()).unwrap_or_default()
    }

    /// Returns how many ticks after the last one nobody has run in time.
    pub fn missed(&self, last: Millis, now: Millis) -> usize {
        let ticks = std::iter::successors(self.next(last), |tick| self.next(*tick));
        ticks.take_while(|tick| *tick <= now - MISSED_AFTER).take(MISSED_MAX).count()
    }

    /// The job of the tick at this time, which is enqueued now.
    pub fn job(&self, at: Millis, now: Millis) -> NewJob {
        let EntryOptions { name, overlap, deadline_ms, job, .. } = &self.options;
        let key = format!("cron:{name}");
        let tick = Timestamp::from_millisecond(at).map(|time| time.to_string()).unwrap_or_default();
        let mut job = job.clone();
        job.deadline_at = deadline_ms.map(|ms| now.saturating_add(ms));
        job.tags.push(key.clone());
        job.meta = to_raw_value(&json!({ "cron": name, "tick": tick })).ok();
        match overlap {
            Overlap::Skip => job.unique = Some(key),
            Overlap::Wait => job.key = Some(key),
            Overlap::Allow => {}
        }
        job
    }
}

/// Ticks of an entry that nobody has run in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    pub entry: String,
    /// At most [`MISSED_MAX`].
    pub ticks: usize,
    /// The last of them makes a job all the same.
    pub is_made_up: bool,
}

/// An entry with what is known of its ticks.
#[derive(Debug)]
struct Timer {
    entry: CronEntry,
    /// As the store keeps it. None: it is of the configuration.
    kept: Option<String>,
    /// True once the store has told when the last tick was.
    is_known: bool,
    /// The first tick after that. None: there is none any more.
    due_at: Option<Millis>,
    /// The store has refused its tick.
    is_refused: bool,
    /// How many were missed up to the tick that is reported to the store, which is one of them if it is late.
    missed: usize,
    is_late: bool,
}

impl Timer {
    fn new(entry: CronEntry, kept: Option<String>) -> Timer {
        Timer { entry, kept, is_known: false, due_at: Some(Millis::MIN), is_refused: false, missed: 0, is_late: false }
    }

    /// Returns the tick to report to the store, unless those that were missed are only to be told of.
    fn tick(&mut self, now: Millis, missed: &mut Vec<Missed>) -> Option<Tick> {
        let due_at = self.due_at.filter(|due_at| *due_at <= now)?;
        let name = self.entry.options.name.clone();
        if !self.is_known {
            return Some(Tick { name, at: now, job: None, kept: self.kept.clone() });
        }
        let at = self.entry.schedule.last(now).unwrap_or(due_at).max(due_at);
        (self.missed, self.is_late) = (self.entry.missed(due_at - 1, now), now - at > MISSED_AFTER);
        if self.entry.options.misfire == Misfire::Skip && self.is_late {
            self.due_at = self.entry.next(at);
            missed.push(Missed { entry: name, ticks: self.missed, is_made_up: false });
            return None;
        }
        Some(Tick { name, at, job: Some(self.entry.job(at, now)), kept: self.kept.clone() })
    }
}

/// The entries of one store.
#[derive(Debug, Default)]
pub struct Cron {
    timers: Vec<Timer>,
    /// Not told yet.
    missed: Vec<Missed>,
}

impl Cron {
    pub fn new(entries: Vec<CronEntry>) -> Cron {
        let timers = entries.into_iter().map(|entry| Timer::new(entry, None)).collect();
        Cron { timers, missed: Vec::new() }
    }

    /// Takes the entries that the store keeps. One of the configuration goes before one of the same name; those that a newer
    /// version has written are left to it.
    pub fn keep(&mut self, schedules: &[Schedule], now: Millis) {
        let runs = |schedule: &&Schedule| !schedule.is_paused;
        self.timers.retain(|timer| match &timer.kept {
            None => true,
            Some(kept) => schedules.iter().filter(runs).any(|schedule| schedule.entry == *kept),
        });
        for schedule in schedules.iter().filter(runs) {
            if self.timers.iter().all(|timer| timer.entry.options.name != schedule.name)
                && let Ok(entry) = CronEntry::read(&schedule.entry, now)
            {
                self.timers.push(Timer::new(entry, Some(schedule.entry.clone())));
            }
        }
    }

    /// Asks the store once more about entries whose last tick is in the future: a clock that was ahead has gone back, and
    /// they are silent until then.
    pub fn ask_of_future(&mut self, now: Millis) {
        for timer in &mut self.timers {
            let next = timer.entry.next(now.saturating_add(AHEAD_MAX));
            if timer.due_at.zip(next).is_some_and(|(due_at, next)| due_at > next) {
                *timer = Timer::new(timer.entry.clone(), timer.kept.take());
            }
        }
    }

    /// Returns what was missed since it was asked last.
    pub fn take_missed(&mut self) -> Vec<Missed> {
        std::mem::take(&mut self.missed)
    }

    /// Asks the store once more about entries whose ticks it has refused: a clock may be right again.
    pub fn ask_again(&mut self) {
        for timer in self.timers.iter_mut().filter(|timer| timer.is_refused) {
            *timer = Timer::new(timer.entry.clone(), timer.kept.take());
        }
    }

    /// When there is something to tell the store.
    pub fn due_at(&self) -> Option<Millis> {
        self.timers.iter().filter_map(|timer| timer.due_at).min()
    }

    /// Returns the ticks to report to the store. The same ticks may be returned again: only [`Cron::ticked`] ends that.
    pub fn ticks(&mut self, now: Millis) -> Vec<Tick> {
        let Cron { timers, missed } = self;
        timers.iter_mut().filter_map(|timer| timer.tick(now, missed)).collect()
    }

    /// Takes the store's answer: for each of the ticks, the time of the last one of its entry.
    pub fn ticked(&mut self, ticks: &[Tick], lasts: &[Millis]) {
        for (tick, last) in ticks.iter().zip(lasts) {
            for timer in self.timers.iter_mut().filter(|timer| timer.entry.options.name == tick.name) {
                timer.is_known = true;
                if tick.job.is_some() && *last == tick.at && timer.missed > 0 {
                    let (ticks, is_made_up) = (std::mem::take(&mut timer.missed), timer.is_late);
                    self.missed.push(Missed { entry: tick.name.clone(), ticks, is_made_up });
                }
                timer.is_refused = *last == REFUSED;
                timer.due_at = if timer.is_refused { None } else { timer.entry.next(*last) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
