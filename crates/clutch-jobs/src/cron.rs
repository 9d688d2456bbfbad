//! Periodic jobs: which ticks are due, and the job of each: a pure machine.
//!
//! The store decides whether a tick is new ([`Store::look_after`](crate::store::Store::look_after)): of each entry it
//! remembers the last tick, and takes none that is not later. So any number of programs may have the same entries, whether
//! they lead or not, and may start again, or have clocks that differ or jump: a tick makes one job at most. What is known
//! here of the last tick may be old, and each answer of the store mends it.
//!
//! Of the ticks that nobody could run in time, the last one makes a job; an entry that is new to its store begins with its
//! next tick.

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
use crate::store::Tick;

/// How late a tick may be before it counts as missed.
const MISSED_AFTER: Millis = 60_000;

/// Shortest time between two ticks of a plain interval.
const EVERY_MIN: Millis = 1000;

/// How much the clocks may leave out for the parser to find what comes after, in seconds.
const GAP_SEARCHED_S: i32 = 2 * 3600;

/// Most fixed times of one day, one for each minute; a schedule with more of them is none of fixed times.
const FIXED_TIMES_MAX: usize = 24 * 60;

/// What becomes of ticks that nobody could run in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Misfire {
    /// The last one makes a job.
    Last,
    /// None does.
    Skip,
}

/// What becomes of a tick while the job of an earlier one has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// It makes no job.
    Skip,
    /// Its job begins when no other one of the entry runs.
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
enum Schedule {
    Pattern {
        /// It ticks when any of them does.
        patterns: Vec<Pattern>,
        zone: TimeZone,
    },
    /// At the multiples of this time since 1970.
    Every(Millis),
}

impl Schedule {
    fn parse(options: &EntryOptions) -> Result<Schedule, WrongEntry> {
        let wrong = |option, why: String| WrongEntry { option, why };
        match (&options.schedule, options.every_ms) {
            (None, Some(every)) if every >= EVERY_MIN => Ok(Schedule::Every(every)),
            (None, Some(every)) => Err(wrong("every", format!("{every} ms is less than 1 s"))),
            (Some(text), None) => {
                let patterns = patterns(text).map_err(|error| wrong("schedule", unreadable(error)))?;
                let zone =
                    TimeZone::get(&options.zone).map_err(|_| wrong("zone", "there is no such time zone".to_owned()))?;
                Ok(Schedule::Pattern { patterns, zone })
            }
            _ => Err(wrong("schedule", "one of schedule and every must be given".to_owned())),
        }
    }

    /// The first tick after this time.
    fn next(&self, after: Millis) -> Option<Millis> {
        match self {
            Schedule::Every(every) => after.div_euclid(*every).checked_add(1)?.checked_mul(*every),
            Schedule::Pattern { patterns, zone } => {
                let after = second_of(after, zone)?;
                let found = patterns.iter().map_while(|pattern| next_of(pattern, &after));
                found.map(|time| time.timestamp().as_millisecond()).min()
            }
        }
    }

    /// The last tick that is not after this time.
    fn last(&self, now: Millis) -> Option<Millis> {
        match self {
            Schedule::Every(every) => Some(now - now.rem_euclid(*every)),
            Schedule::Pattern { patterns, zone } => {
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
pub struct Entry {
    options: EntryOptions,
    schedule: Schedule,
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(formatter)
    }
}

impl Entry {
    /// `now`: an entry that never ticks after it is none.
    pub fn new(options: EntryOptions, now: Millis) -> Result<Entry, WrongEntry> {
        let schedule = Schedule::parse(&options)?;
        let entry = Entry { options, schedule };
        entry.job(now, now).check().map_err(|why| WrongEntry { option: "", why })?;
        match entry.next(now) {
            Some(_) => Ok(entry),
            None => Err(WrongEntry { option: "schedule", why: "there is no such time".to_owned() }),
        }
    }

    /// Its first tick after this time.
    pub fn next(&self, after: Millis) -> Option<Millis> {
        self.schedule.next(after)
    }

    /// The same for people: as clocks in its zone show it, in ISO 8601. Empty: there is none.
    pub fn next_shown(&self, after: Millis) -> String {
        let zone = match &self.schedule {
            Schedule::Pattern { zone, .. } => zone.clone(),
            Schedule::Every(_) => TimeZone::UTC,
        };
        let next = self.next(after).and_then(|next| second_of(next, &zone));
        next.map(|next| next.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()).unwrap_or_default()
    }

    /// The job of the tick at this time, which is enqueued now.
    fn job(&self, at: Millis, now: Millis) -> NewJob {
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

/// An entry with what is known of its ticks.
#[derive(Debug)]
struct Timer {
    entry: Entry,
    /// Its store has told when the last tick was.
    is_known: bool,
    /// The first tick after that. None: there is none any more.
    due_at: Option<Millis>,
}

impl Timer {
    fn tick(&mut self, now: Millis) -> Option<Tick> {
        let due_at = self.due_at.filter(|due_at| *due_at <= now)?;
        let name = self.entry.options.name.clone();
        if !self.is_known {
            return Some(Tick { name, at: now, job: None });
        }
        let at = self.entry.schedule.last(now).unwrap_or(due_at).max(due_at);
        if self.entry.options.misfire == Misfire::Skip && now - at > MISSED_AFTER {
            self.due_at = self.entry.next(at);
            return None;
        }
        Some(Tick { name, at, job: Some(self.entry.job(at, now)) })
    }
}

/// The entries of one store.
#[derive(Debug, Default)]
pub struct Cron {
    timers: Vec<Timer>,
}

impl Cron {
    pub fn new(entries: Vec<Entry>) -> Cron {
        let timer = |entry| Timer { entry, is_known: false, due_at: Some(Millis::MIN) };
        Cron { timers: entries.into_iter().map(timer).collect() }
    }

    /// When there is something to tell the store.
    pub fn due_at(&self) -> Option<Millis> {
        self.timers.iter().filter_map(|timer| timer.due_at).min()
    }

    /// What the store is to be told now. It may be told again: only [`Cron::ticked`] ends that.
    pub fn ticks(&mut self, now: Millis) -> Vec<Tick> {
        self.timers.iter_mut().filter_map(|timer| timer.tick(now)).collect()
    }

    /// What the store has answered: for each of the ticks, when the last one of its entry was.
    pub fn ticked(&mut self, ticks: &[Tick], lasts: &[Millis]) {
        for (tick, last) in ticks.iter().zip(lasts) {
            for timer in self.timers.iter_mut().filter(|timer| timer.entry.options.name == tick.name) {
                timer.is_known = true;
                timer.due_at = timer.entry.next(*last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const ZONES: [&str; 5] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"];
    const SCHEDULES: [&str; 11] = [
        "30 2 * * *",
        "0,30 1-3 * * *",
        "15 */2 * * *",
        "*/10 * * * *",
        "*/15 2 * * *",
        "0 0 * * SUN",
        "0 3 1 * *",
        "@daily",
        "@hourly",
        "20,40 30 1,2 * * *",
        "0 2,3,14 * * *",
    ];
    const HOUR: Millis = 3_600_000;

    fn options(schedule: &str, zone: &str) -> EntryOptions {
        EntryOptions {
            name: "nightly".to_owned(),
            schedule: Some(schedule.to_owned()),
            every_ms: None,
            zone: zone.to_owned(),
            misfire: Misfire::Last,
            overlap: Overlap::Skip,
            deadline_ms: None,
            job: NewJob::new("default", "report", to_raw_value(&json!({})).unwrap()),
        }
    }

    fn entry(schedule: &str, zone: &str) -> Entry {
        Entry::new(options(schedule, zone), 0).unwrap()
    }

    fn at(text: &str) -> Millis {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn shown(time: Millis) -> String {
        Timestamp::from_millisecond(time).unwrap().to_string()
    }

    /// All ticks after one time up to another.
    fn ticks_between(entry: &Entry, from: &str, to: &str) -> Vec<String> {
        let mut times = std::iter::successors(entry.next(at(from)), |time| entry.next(*time));
        std::iter::from_fn(|| times.next().filter(|time| *time <= at(to))).map(shown).collect()
    }

    // ---- schedules

    #[test]
    fn a_time_that_the_clocks_leave_out_comes_right_after() {
        let ticks =
            ticks_between(&entry("30 2 * * *", "Europe/Berlin"), "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z");
        assert_eq!(ticks, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    }

    #[test]
    fn a_fixed_time_that_the_clocks_show_twice_comes_once() {
        let ticks =
            ticks_between(&entry("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z");
        assert_eq!(ticks, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn so_does_each_of_several_fixed_times() {
        for schedule in ["0 2,14 * * *", "0 2-2,14 * * *", "0 0 2,14 * * *"] {
            let twice = entry(schedule, "Europe/Berlin");
            let spring = ticks_between(&twice, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
            assert_eq!(spring, ["2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"], "{schedule}");
            let autumn = ticks_between(&twice, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
            assert_eq!(autumn, ["2026-10-25T00:00:00Z", "2026-10-25T13:00:00Z"], "{schedule}");
        }
        // Two that the clocks leave out are one, and one that falls upon another is none of its own.
        let several = entry("0,30 2,3 * * *", "Europe/Berlin");
        let spring = ticks_between(&several, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
        assert_eq!(spring, ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
    }

    #[test]
    fn a_day_that_a_zone_leaves_out_ends_no_entry() {
        for schedule in
            ["30 2 * * *", "0 12 * * *", "0 0,12 * * *", "@daily", "*/10 * * * *", "0 12 30 * *", "0 12 * * FRI"]
        {
            let skipping = entry(schedule, "Pacific/Apia");
            for hour in 0..96 {
                let now = at("2011-12-28T00:00:00Z") + hour * HOUR;
                let next = skipping.next(now);
                assert!(
                    next.is_some_and(|next| next > now && next < now + 40 * 24 * HOUR),
                    "{schedule} {} {next:?}",
                    shown(now)
                );
                assert!(skipping.schedule.last(now).is_some_and(|last| last <= now), "{schedule} {}", shown(now));
            }
        }
        let noon = ticks_between(&entry("0 12 * * *", "Pacific/Apia"), "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z");
        assert_eq!(noon, ["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"]);
    }

    #[test]
    fn a_schedule_with_very_many_times_is_none_of_fixed_times() {
        let Schedule::Pattern { patterns, .. } = entry("0-59 0-59 1-2 * * *", "UTC").schedule else { unreachable!() };
        assert_eq!(patterns.len(), 1);
    }

    #[test]
    fn what_comes_every_half_hour_goes_on_when_the_clocks_change() {
        let every = entry("*/30 * * * *", "Europe/Berlin");
        for (from, to) in
            [("2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"), ("2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z")]
        {
            assert_eq!(ticks_between(&every, from, to).len(), 6);
        }
    }

    #[test]
    fn a_plain_interval_comes_at_its_multiples() {
        let every = EntryOptions { schedule: None, every_ms: Some(300_000), ..options("", "UTC") };
        let every = Entry::new(every, 0).unwrap();
        assert_eq!((every.next(299_999), every.next(300_000)), (Some(300_000), Some(600_000)));
        assert_eq!((every.schedule.last(299_999), every.schedule.last(300_000)), (Some(0), Some(300_000)));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_option() {
        let wrong = |options| Entry::new(options, 0).map(|_| ()).unwrap_err().option;
        for text in ["", "* * * *", "61 * * * *", "0 0 1 1 * 2030 7 8", "0 0 30 2 *", "@never", "0 0 * * FOO"] {
            assert_eq!(wrong(options(text, "UTC")), "schedule", "{text:?}");
        }
        assert_eq!(wrong(options("@daily", "Europe/Nowhere")), "zone");
        assert_eq!(wrong(EntryOptions { every_ms: Some(5000), ..options("@daily", "UTC") }), "schedule");
        assert_eq!(wrong(EntryOptions { schedule: None, every_ms: Some(999), ..options("", "UTC") }), "every");
        let job = NewJob { priority: 50, ..options("", "UTC").job };
        assert_eq!(wrong(EntryOptions { job, ..options("@daily", "UTC") }), "");
    }

    /// An entry and a time, mostly within a day of a change of the clocks.
    fn cases() -> impl Strategy<Value = (Entry, Millis)> {
        let times = at("2025-01-01T00:00:00Z")..at("2028-01-01T00:00:00Z");
        let beside = prop_oneof![1 => Just(None), 3 => (-26 * HOUR..26 * HOUR).prop_map(Some)];
        let names = (proptest::sample::select(&SCHEDULES[..]), proptest::sample::select(&ZONES[..]));
        (names, times, beside).prop_map(|((schedule, zone), time, beside)| {
            let rules = TimeZone::get(zone).unwrap();
            let change = rules.following(Timestamp::from_millisecond(time).unwrap()).next();
            let near = change.zip(beside).map(|(change, beside)| change.timestamp().as_millisecond() + beside);
            (entry(schedule, zone), near.unwrap_or(time))
        })
    }

    proptest! {
        #[test]
        fn next_and_last_agree((entry, time) in cases()) {
            let schedule = entry.schedule;
            let next = schedule.next(time).unwrap();
            prop_assert!(next > time);
            prop_assert_eq!(schedule.last(next), Some(next));
            let last = schedule.last(time).unwrap();
            prop_assert!(last <= time);
            prop_assert_eq!(schedule.next(last), Some(next), "last {}, time {}", shown(last), shown(time));
        }
    }

    // ---- ticks

    /// What stores promise of ticks.
    #[derive(Default)]
    struct House {
        lasts: BTreeMap<String, Millis>,
        made: Vec<Millis>,
    }

    impl House {
        fn tick(&mut self, tick: &Tick) -> Millis {
            match self.lasts.get(&tick.name) {
                Some(last) if tick.job.is_none() || tick.at <= *last => return *last,
                _ => {}
            }
            self.made.extend(tick.job.as_ref().map(|_| tick.at));
            self.lasts.insert(tick.name.clone(), tick.at);
            tick.at
        }

        /// As the loop of a runner does it, until there is nothing to do. Fails when that has no end.
        fn look(&mut self, cron: &mut Cron, now: Millis) {
            for _ in 0..4 {
                if cron.due_at().is_none_or(|due_at| due_at > now) {
                    return;
                }
                let ticks = cron.ticks(now);
                let lasts: Vec<_> = ticks.iter().map(|tick| self.tick(tick)).collect();
                cron.ticked(&ticks, &lasts);
            }
            panic!("it spins at {}", shown(now));
        }
    }

    #[test]
    fn a_new_entry_begins_with_its_next_tick() {
        let (mut house, mut cron) = (House::default(), Cron::new(vec![entry("0 3 * * *", "UTC")]));
        house.look(&mut cron, at("2026-05-01T12:00:00Z"));
        assert!(house.made.is_empty());
        assert_eq!(cron.due_at(), Some(at("2026-05-02T03:00:00Z")));
        house.look(&mut cron, at("2026-05-02T03:00:00.250Z"));
        assert_eq!(house.made, [at("2026-05-02T03:00:00Z")]);
    }

    #[test]
    fn of_missed_ticks_the_last_one_is_made_up_for_or_none() {
        for (misfire, made) in [(Misfire::Last, 1), (Misfire::Skip, 0)] {
            let missing = Entry::new(EntryOptions { misfire, ..options("0 * * * *", "UTC") }, 0).unwrap();
            let mut house = House::default();
            house.look(&mut Cron::new(vec![missing.clone()]), at("2026-05-01T00:30:00Z"));
            let mut cron = Cron::new(vec![missing]);
            house.look(&mut cron, at("2026-05-01T09:30:00Z"));
            assert_eq!(house.made, vec![at("2026-05-01T09:00:00Z"); made]);
            house.look(&mut cron, at("2026-05-01T10:00:01Z"));
            assert_eq!(house.made.last(), Some(&at("2026-05-01T10:00:00Z")));
        }
    }

    #[test]
    fn what_the_store_was_not_told_is_told_again() {
        let (mut house, mut cron) = (House::default(), Cron::new(vec![entry("0 * * * *", "UTC")]));
        house.look(&mut cron, at("2026-05-01T00:30:00Z"));
        let lost = cron.ticks(at("2026-05-01T01:00:00Z"));
        assert_eq!(lost.len(), 1);
        house.look(&mut cron, at("2026-05-01T01:00:05Z"));
        assert_eq!(house.made, [at("2026-05-01T01:00:00Z")]);
    }

    #[test]
    fn a_job_is_marked_with_its_tick() {
        let of = |overlap| {
            let entry = Entry::new(EntryOptions { overlap, deadline_ms: Some(7), ..options("@daily", "UTC") }, 0);
            entry.unwrap().job(at("2026-05-01T00:00:00Z"), 5)
        };
        let job = of(Overlap::Skip);
        assert_eq!(job.meta.unwrap().get(), r#"{"cron":"nightly","tick":"2026-05-01T00:00:00Z"}"#);
        assert_eq!((job.tags, job.deadline_at), (vec!["cron:nightly".to_owned()], Some(12)));
        assert_eq!((job.unique.as_deref(), job.key), (Some("cron:nightly"), None));
        assert_eq!(of(Overlap::Wait).key.as_deref(), Some("cron:nightly"));
        let job = of(Overlap::Allow);
        assert_eq!((job.unique, job.key), (None, None));
    }

    /// What happens to two programs with the same entries: which of them looks, how its clock has moved, and whether it was
    /// started anew before.
    fn histories() -> impl Strategy<Value = Vec<(usize, Millis, bool)>> {
        let moves = prop_oneof![4 => 0..HOUR / 2, 1 => -3 * HOUR..0i64, 1 => 0..80 * HOUR];
        prop::collection::vec((0..2usize, moves, prop::bool::weighted(0.1)), 1..60)
    }

    proptest! {
        #[test]
        fn each_tick_makes_one_job_at_most_and_none_is_lost_but_missed_ones(
            (entry, start) in cases(), history in histories()
        ) {
            let fresh = || Cron::new(vec![entry.clone()]);
            let (mut house, mut programs, mut clocks) = (House::default(), [fresh(), fresh()], [start; 2]);
            for (which, moved, starts_anew) in history {
                clocks[which] += moved;
                if starts_anew {
                    programs[which] = fresh();
                }
                let before = house.made.len();
                house.look(&mut programs[which], clocks[which]);
                // Whatever came before: the last tick of now is made, unless it was before the entry was known.
                prop_assert!(house.lasts["nightly"] >= entry.schedule.last(clocks[which]).unwrap());
                prop_assert!(house.made.len() <= before + 1, "of missed ones only the last");
            }
            prop_assert!(house.made.is_sorted_by(|one, next| one < next), "none twice");
            for made in house.made {
                prop_assert_eq!(entry.schedule.last(made), Some(made), "each is one of the schedule's");
            }
        }

        #[test]
        fn who_looks_in_time_misses_nothing((entry, start) in cases(), late in 0..50i64, ticks in 1..40usize) {
            let (mut house, mut cron) = (House::default(), Cron::new(vec![entry.clone()]));
            house.look(&mut cron, start);
            for _ in 0..ticks {
                let due_at = cron.due_at().unwrap();
                house.look(&mut cron, due_at + late);
            }
            let all = std::iter::successors(entry.next(start), |time| entry.next(*time));
            prop_assert_eq!(house.made, all.take(ticks).collect::<Vec<_>>());
        }
    }
}
