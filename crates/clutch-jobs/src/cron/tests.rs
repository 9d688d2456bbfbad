//! Schedules around changes of clocks, and entries before a store that keeps what stores promise.

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

fn entry(schedule: &str, zone: &str) -> CronEntry {
    CronEntry::new(options(schedule, zone), 0).unwrap()
}

fn at(text: &str) -> Millis {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn shown(time: Millis) -> String {
    Timestamp::from_millisecond(time).unwrap().to_string()
}

/// All ticks after one time up to another.
fn ticks_between(entry: &CronEntry, from: &str, to: &str) -> Vec<String> {
    let mut times = std::iter::successors(entry.next(at(from)), |time| entry.next(*time));
    std::iter::from_fn(|| times.next().filter(|time| *time <= at(to))).map(shown).collect()
}

// ---- schedules

#[test]
fn a_time_that_the_clocks_leave_out_comes_right_after() {
    let ticks = ticks_between(&entry("30 2 * * *", "Europe/Berlin"), "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z");
    assert_eq!(ticks, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
}

#[test]
fn a_fixed_time_that_the_clocks_show_twice_comes_once() {
    let ticks = ticks_between(&entry("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z");
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
    let TickTimes::Pattern { patterns, .. } = entry("0-59 0-59 1-2 * * *", "UTC").schedule else { unreachable!() };
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
    let every = CronEntry::new(every, 0).unwrap();
    assert_eq!((every.next(299_999), every.next(300_000)), (Some(300_000), Some(600_000)));
    assert_eq!((every.schedule.last(299_999), every.schedule.last(300_000)), (Some(0), Some(300_000)));
}

#[test]
fn what_is_wrong_is_told_with_the_option() {
    let wrong = |options| CronEntry::new(options, 0).map(|_| ()).unwrap_err().option;
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
fn cases() -> impl Strategy<Value = (CronEntry, Millis)> {
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

/// Stands for a store, with its promises about ticks.
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
        let missing = CronEntry::new(EntryOptions { misfire, ..options("0 * * * *", "UTC") }, 0).unwrap();
        let mut house = House::default();
        house.look(&mut Cron::new(vec![missing.clone()]), at("2026-05-01T00:30:00Z"));
        let mut cron = Cron::new(vec![missing]);
        house.look(&mut cron, at("2026-05-01T09:30:00Z"));
        assert_eq!(house.made, vec![at("2026-05-01T09:00:00Z"); made]);
        let told = Missed { entry: "nightly".to_owned(), ticks: 9, is_made_up: made == 1 };
        assert_eq!((cron.take_missed(), cron.take_missed()), (vec![told], Vec::new()), "once");
        house.look(&mut cron, at("2026-05-01T10:00:01Z"));
        assert_eq!(house.made.last(), Some(&at("2026-05-01T10:00:00Z")));
        assert_eq!(cron.take_missed(), [], "it is in time");
    }
}

#[test]
fn an_entry_that_a_clock_has_silenced_is_asked_about_once_it_goes_back() {
    let (mut house, mut cron) = (House::default(), Cron::new(vec![entry("0 * * * *", "UTC")]));
    house.look(&mut cron, at("2026-05-01T00:30:00Z"));
    house.look(&mut cron, at("2026-05-01T09:00:00Z"));
    let now = at("2026-05-01T01:00:00Z");
    assert_eq!(cron.ticks(now).len(), 0, "the last one is in the future");
    cron.ask_of_future(now);
    assert!(matches!(&cron.ticks(now)[..], [Tick { job: None, .. }]));
    house.look(&mut cron, now);
    assert_eq!(cron.due_at(), Some(at("2026-05-01T10:00:00Z")));
    let later = at("2026-05-01T08:59:30Z");
    cron.ask_of_future(later);
    assert_eq!(cron.due_at(), Some(at("2026-05-01T10:00:00Z")), "clocks may differ a little");
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
        let entry = CronEntry::new(EntryOptions { overlap, deadline_ms: Some(7), ..options("@daily", "UTC") }, 0);
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

/// Histories of two programs with the same entries: the one that looks, how its clock has moved, and whether it was
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

fn kept(name: &str, every_ms: Millis) -> Schedule {
    let entry = format!(
        r#"{{"name": "{name}", "every_ms": {every_ms}, "zone": "UTC", "misfire": "last", "overlap": "allow",
            "job": {{"queue": "default", "tool": "x", "arguments": {{}}, "attempts_max": 1}}}}"#
    );
    Schedule { name: name.to_owned(), entry, is_paused: false, ticked_at: 0 }
}

fn names(ticks: &[Tick]) -> Vec<&str> {
    ticks.iter().map(|tick| tick.name.as_str()).collect()
}

#[test]
fn entries_of_the_store_come_and_go() {
    let mut cron = Cron::new(vec![entry("0 3 * * *", "UTC")]);
    let own = Schedule { name: "nightly".to_owned(), ..kept("nightly", 5000) };
    let newer = Schedule { entry: "{}".to_owned(), ..kept("newer", 5000) };
    cron.keep(&[own, kept("a", 5000), newer], 0);
    let first = cron.ticks(7000);
    assert_eq!(names(&first), ["nightly", "a"], "the one of the configuration, and what can be read");
    cron.ticked(&first, &[7000, 7000]);
    cron.keep(&[kept("a", 5000)], 7000);
    assert_eq!(cron.due_at(), Some(10_000), "it is as it was");
    cron.keep(&[kept("a", 8000)], 7000);
    assert_eq!(names(&cron.ticks(7000)), ["a"], "it is asked for, since it is another one");
    cron.keep(&[Schedule { is_paused: true, ..kept("a", 8000) }], 7000);
    assert_eq!(cron.due_at(), Some(3 * HOUR));
}

#[test]
fn a_tick_that_was_refused_is_asked_for_again() {
    let mut cron = Cron::new(vec![entry("0 3 * * *", "UTC")]);
    let ticks = cron.ticks(7000);
    cron.ticked(&ticks, &[REFUSED]);
    assert_eq!(cron.due_at(), None, "nobody spins");
    cron.ask_again();
    let ticks = cron.ticks(8000);
    cron.ticked(&ticks, &[8000]);
    cron.ask_again();
    assert_eq!(cron.due_at(), Some(3 * HOUR));
}

#[test]
fn missed_ticks_are_counted_once_they_are_late() {
    let hourly = entry("0 * * * *", "UTC");
    assert_eq!(hourly.missed(0, HOUR), 0, "there is time left");
    assert_eq!(hourly.missed(0, 3 * HOUR + 60_000), 3);
    assert_eq!(hourly.missed(0, HOUR * 24 * 365), MISSED_MAX);
}
