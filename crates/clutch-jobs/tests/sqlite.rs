//! What a store on SQLite does with files of other versions, and with what others have written into its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clutch_jobs::job::{Ending, Millis, NewJob, Rate, State, settle};
use clutch_jobs::leases::Lapsed;
use clutch_jobs::store::{Change, Filter, Keep, Report, Runner, Store, Tick, Want};
use clutch_jobs::stores;
use rusqlite::Connection;
use serde_json::value::RawValue;

const NOW: Millis = 1_800_000_000_000;
const KEEP: Keep =
    Keep { completed: Duration::from_secs(60), cancelled: Duration::from_secs(60), dead: Duration::from_secs(60) };

/// A folder, the file in it, and how to open that.
fn file() -> (tempfile::TempDir, PathBuf, impl Fn() -> Arc<dyn Store>) {
    let folder = tempfile::tempdir().unwrap();
    // The first store changes how this process locks files: before any other connection.
    stores::open(&format!("sqlite:///{}", folder.path().join("first.db").display())).unwrap();
    let path = folder.path().join("jobs.db");
    let url = format!("sqlite:///{}", path.display());
    (folder, path, move || stores::open(&url).unwrap())
}

/// What ends the names of the file and of those beside it.
const ALL: [&str; 3] = ["", "-wal", "-shm"];

fn remove(path: &Path, ends: &[&str]) {
    ends.iter().for_each(|end| std::fs::remove_file(format!("{}{end}", path.display())).unwrap());
}

fn job() -> NewJob {
    NewJob::new("default", "t", RawValue::from_string("{}".to_owned()).unwrap())
}

fn runner() -> Runner {
    Runner::new("a".to_owned(), Duration::from_secs(30))
}

fn claim(store: &dyn Store, limit: usize) -> Vec<String> {
    let want = Want { limit, queues: vec!["default".to_owned()] };
    let round = store.round(&runner(), &Report::default(), &want, NOW).unwrap();
    round.claimed.into_iter().map(|job| job.id).collect()
}

#[test]
fn jobs_of_version_1_go_on() {
    let (_folder, path, open) = file();
    let old = Connection::open(&path).unwrap();
    old.execute_batch(include_str!("sqlite/version_1.sql")).unwrap();
    let mut insert = old
        .prepare(
            "INSERT INTO clutch_jobs (state, queue, rank, held, tool, arguments, attempts_max, created_at, due_at, key, \
             runner, attempt, options) VALUES (?1, 'default', 0, ?2, 't', '{}', 3, 1, ?3, ?4, ?5, ?6, '{}')",
        )
        .unwrap();
    let none = None::<&str>;
    insert.execute((2, 0, NOW, "k", Some("gone"), 1)).unwrap();
    insert.execute((1, 1, NOW, "k", none, 0)).unwrap();
    insert.execute((0, 0, NOW - 1, "k", none, 0)).unwrap();
    insert.execute((1, 0, NOW, none, none, 0)).unwrap();
    old.execute("INSERT INTO clutch_runners VALUES ('gone', ?1)", [NOW + 1_000_000]).unwrap();
    drop(insert);
    old.close().unwrap();
    let stores = [open(), open()];
    let [store, _] = &stores;
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW).unwrap().rescued, 1, "no version before keeps its lease");
    assert_eq!(claim(&**store, 9), ["1", "4"], "the first of its key, and who has none");
    assert_eq!(store.get("3").unwrap().unwrap().state, State::Available);
    let tick = Tick { name: "nightly".to_owned(), at: NOW, job: None, kept: None };
    assert_eq!(store.look_after(&KEEP, 0, &[tick], &[], NOW).unwrap().last_ticks, [NOW]);
}

/// In the application's own file: with views and keys of its own that name our tables, and with an SQLite that is older
/// than STRICT.
#[test]
fn a_file_of_version_3_becomes_one_that_older_programs_can_read() {
    let (_folder, path, open) = file();
    let old = Connection::open(&path).unwrap();
    old.execute_batch(include_str!("sqlite/version_3.sql")).unwrap();
    let insert = "INSERT INTO clutch_jobs (id, state, queue, rank, tool, arguments, attempts_max, created_at, due_at, \
                  finished_at, keep_until, options, runner, attempt) \
                  VALUES (?1, ?2, 'default', 0, 't', '{}', 3, 1, 1, ?3, ?4, '{}', 'gone', 1)";
    let none = None::<Millis>;
    for (id, state, finished_at, keep_until) in
        [(1, 2, none, none), (2, 1, none, none), (3, 3, Some(NOW), none), (4, 3, Some(NOW), Some(NOW + 90_000))]
    {
        old.execute(insert, (id, state, finished_at, keep_until)).unwrap();
    }
    old.execute_batch(
        "INSERT INTO clutch_jobs (id, state, queue, rank, tool, arguments, attempts_max, created_at, due_at, options) \
         VALUES (77, 1, 'default', 0, 't', '{}', 3, 1, 1, '{}'); DELETE FROM clutch_jobs WHERE id = 77; \
         INSERT INTO clutch_runners VALUES ('gone', 'boot', 1); INSERT INTO clutch_starts VALUES ('5/1000 queue:a', 7); \
         INSERT INTO clutch_queues VALUES ('default', 0, 3, NULL); INSERT INTO clutch_cron VALUES ('nightly', 5); \
         CREATE TRIGGER app_told AFTER INSERT ON clutch_jobs BEGIN SELECT new.id; END; \
         CREATE INDEX app_by_tool ON clutch_jobs (tool); CREATE VIEW app_waiting AS SELECT id FROM clutch_jobs WHERE state = 1; \
         CREATE TABLE app_orders (job INTEGER REFERENCES clutch_jobs (id)); INSERT INTO app_orders VALUES (3);",
    )
    .unwrap();
    old.execute("UPDATE clutch_jobs SET key = 'k', key_limit = 2 WHERE id IN (1, 2)", []).unwrap();
    old.close().unwrap();
    let store = open();
    let keyed = NewJob { key: Some("k".to_owned()), key_limit: 2, ..job() };
    let held = store.enqueue(std::slice::from_ref(&keyed), NOW).unwrap().remove(0).id;
    assert_eq!(claim(&*store, 9), ["2"], "two of its key run");
    assert!(store.change(&held, Change::Delete, NOW).unwrap());
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW).unwrap().rescued, 0, "a program of before may still run it");
    let lapsed = [Lapsed { holder: "gone".to_owned(), renewals: 0 }];
    assert_eq!(store.look_after(&KEEP, 100, &[], &lapsed, NOW).unwrap().rescued, 1);
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW + 61_000).unwrap().pruned, 1);
    assert_eq!(store.look_after(&KEEP, 100, &[], &[], NOW + 91_000).unwrap().pruned, 1, "its result was kept");
    assert_eq!(store.enqueue(&[job()], NOW).unwrap()[0].id, "79", "no id is given twice");
    assert_eq!(store.queues().unwrap()[0].running_max, Some(3));
    let tick = Tick { name: "nightly".to_owned(), at: 4, job: None, kept: None };
    assert_eq!(store.look_after(&KEEP, 0, &[tick], &[], NOW).unwrap().last_ticks, [5]);
    let other = Connection::open(&path).unwrap();
    let texts: Vec<String> = other
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for text in texts {
        assert!(!text.contains("STRICT") && !text.contains("_3"), "{text}");
    }
    let mine = "SELECT count(*) FROM sqlite_schema WHERE name IN ('app_told', 'app_by_tool')";
    assert_eq!(other.query_row(mine, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    let count = |of: &str| other.query_row(&format!("SELECT count(*) FROM {of}"), [], |row| row.get::<_, i64>(0));
    assert_eq!((count("app_waiting").unwrap(), count("clutch_starts").unwrap()), (2, 0));
}

/// Whatever version a file is from, its tables are those of a new one.
#[test]
fn tables_of_versions_before_become_those_of_this_one() {
    let tables = |old: &str| {
        let (_folder, path, open) = file();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(old).unwrap();
        drop(open());
        let all = "SELECT sql FROM sqlite_schema WHERE name LIKE 'clutch_%' AND sql IS NOT NULL ORDER BY name";
        let mut all = connection.prepare(all).unwrap();
        all.query_map([], |row| row.get(0)).unwrap().collect::<Result<Vec<String>, _>>().unwrap()
    };
    let new = tables("");
    assert!(new.len() > 15);
    assert_eq!(tables(include_str!("sqlite/version_1.sql")), new);
    assert_eq!(tables(include_str!("sqlite/version_3.sql")), new);
}

/// Whatever becomes of a job, and whoever changes its row.
#[test]
fn the_jobs_of_a_key_that_may_run_are_counted() {
    let (_folder, path, open) = file();
    let store = open();
    let keyed = |key: &str| NewJob { key: Some(key.to_owned()), key_limit: 2, unique: Some(key.to_owned()), ..job() };
    let other = Connection::open(&path).unwrap();
    let counts = || {
        let wrong = "SELECT count(*) FROM (SELECT key, count(*) AS n FROM clutch_jobs WHERE key IS NOT NULL AND held = 0 \
                     AND state < 3 GROUP BY key) FULL JOIN clutch_keys USING (key) WHERE n IS NOT active";
        assert_eq!(other.query_row(wrong, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
        other.query_row("SELECT coalesce(sum(active), 0) FROM clutch_keys", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    store.enqueue(&vec![NewJob { unique: None, ..keyed("a") }; 5], NOW).unwrap();
    let again = store.enqueue(&[keyed("b"), keyed("b")], NOW).unwrap().remove(0).id;
    assert_eq!(counts(), 3);
    let claimed = claim(&*store, 1).remove(0);
    assert!(store.change(&again, Change::Cancel, NOW).unwrap());
    assert!(store.change(&claimed, Change::Cancel, NOW).unwrap());
    assert_eq!(counts(), 2);
    store.enqueue(&[keyed("b")], NOW).unwrap();
    assert!(!store.change(&again, Change::Retry, NOW).unwrap(), "another of the same is there");
    assert_eq!(counts(), 3);
    other.execute("UPDATE clutch_jobs SET key = 'c' WHERE id = 2", []).unwrap();
    other.execute("UPDATE clutch_jobs SET key = NULL WHERE id = 1", []).unwrap();
    other.execute("DELETE FROM clutch_jobs WHERE key = 'b'", []).unwrap();
    counts();
    other.execute("DELETE FROM clutch_jobs", []).unwrap();
    assert_eq!(counts(), 0);
}

/// A program that has the file open while a newer version changes its tables writes nothing more.
#[test]
fn a_newer_version_stops_who_has_the_file_open() {
    let (_folder, path, open) = file();
    let store = open();
    store.enqueue(&[job()], NOW).unwrap();
    Connection::open(&path).unwrap().execute("UPDATE clutch_schema SET version = 99", []).unwrap();
    let want = Want { limit: 1, queues: vec!["default".to_owned()] };
    let told = [
        store.enqueue(&[job()], NOW).unwrap_err(),
        store.round(&runner(), &Report::default(), &want, NOW).unwrap_err(),
        store.change("1", Change::Cancel, NOW).unwrap_err(),
    ];
    for error in told {
        assert!(error.to_string().contains("version 99, and this Clutch knows them up to 4"), "{error}");
    }
}

#[test]
fn numbers_that_nobody_can_have_written_spoil_no_list() {
    let (_folder, path, open) = file();
    let store = open();
    let other = Connection::open(&path).unwrap();
    let insert = "INSERT INTO clutch_jobs (state, queue, rank, tool, arguments, attempts_max, created_at, due_at, options, \
                  attempt, errors) VALUES (?1, 'default', 0, 't', 'no json', ?2, -1, ?2, 'no json', ?2, 'no json')";
    for (state, number) in [(1, i64::MAX), (77, -1), (1, 3)] {
        other.execute(insert, (state, number)).unwrap();
    }
    assert_eq!(store.list(&Filter { limit: 9, ..Filter::default() }).unwrap().len(), 3);
    assert_eq!(store.queues().unwrap()[0].available, 2);
    assert_eq!(claim(&*store, 9).len(), 2);
}

/// One bit is wrong in one row, in whatever column: the others go on, and people find it by its id.
#[test]
fn a_damaged_row_is_dead_by_its_id_and_stops_nobody_else() {
    let (_folder, path, open) = file();
    let store = open();
    let other = Connection::open(&path).unwrap();
    let columns = ["arguments", "tool", "key", "checkpoint", "options", "errors", "reason", "progress", "unique_key"];
    store.enqueue(&vec![job(); columns.len() + 1], NOW).unwrap();
    for (id, column) in (1i64..).zip(columns) {
        other
            .execute(&format!("UPDATE clutch_jobs SET {column} = CAST(x'7bff7d' AS TEXT) WHERE id = ?1"), [id])
            .unwrap();
    }
    let claimed = claim(&*store, 99);
    assert_eq!(claimed, ["5", "6", "7", "8", "9", "10"], "what its run needs can be read");
    let dead = Filter { state: Some(State::Dead), limit: 99, ..Filter::default() };
    let dead = store.list(&dead).unwrap();
    let told: Vec<_> = dead.iter().map(|job| (&*job.id, &*job.errors.last().unwrap().kind)).collect();
    assert_eq!(told, ["4", "3", "2", "1"].map(|id| (id, "malformed")));
    assert!(dead[3].errors[0].message.contains("arguments are no UTF-8 from byte 1 on"), "{:?}", dead[3].errors);
    assert_eq!(store.queues().unwrap()[0].running, 6);
    let lapsed = [Lapsed { holder: "a".to_owned(), renewals: 0 }];
    assert_eq!(store.look_after(&KEEP, 99, &[], &lapsed, NOW).unwrap().rescued, 6);
}

/// Since the tables are not STRICT, a number may be anything; none of it stops others, or runs for ever.
#[test]
fn a_number_that_is_none_stops_nobody_else() {
    let (_folder, path, open) = file();
    let store = open();
    let other = Connection::open(&path).unwrap();
    let columns = ["rank", "attempts_max", "created_at", "due_at", "deadline_at", "result_ms", "attempt", "rescues"];
    let values = ["'text'", "x'ff'", "1.5", "-5", "NULL"];
    let mut damaged = 0;
    for nr in 0..columns.len() * values.len() * 4 {
        let (column, value, state) = (columns[nr / 20], values[nr / 4 % 5], nr % 4);
        store.enqueue(&[job()], NOW).unwrap();
        let id = other.query_row("SELECT max(id) FROM clutch_jobs", [], |row| row.get::<_, i64>(0)).unwrap();
        let set =
            format!("UPDATE clutch_jobs SET state = {state}, runner = 'gone', {column} = {value} WHERE id = {id}");
        // Some columns have to have a value.
        damaged += other.execute(&set, []).unwrap_or_default();
    }
    assert!(damaged > 100);
    let sound = store.enqueue(&[job()], NOW).unwrap()[0].id.clone();
    for value in ["'text'", "-7", "x'ff'", "2.5"] {
        other.execute(&format!("INSERT INTO clutch_runners VALUES ('c' || {value}, {value}, 1000)"), []).unwrap();
        other.execute(&format!("INSERT INTO clutch_runners VALUES ('l' || {value}, 1, {value})"), []).unwrap();
    }
    other.execute("INSERT INTO clutch_queues VALUES ('default', 'no', 'many', x'ff')", []).unwrap();
    let mut claimed = HashSet::new();
    let mut rounds = 0;
    loop {
        let upkeep = store.look_after(&KEEP, 500, &[], &[], NOW).unwrap();
        assert!(upkeep.leases.iter().all(|lease| lease.holder == "a"), "{:?}", upkeep.leases);
        let want = Want { limit: 500, queues: vec!["default".to_owned()] };
        let round = store.round(&runner(), &Report::default(), &want, NOW).unwrap().claimed;
        rounds += 1;
        if round.is_empty() {
            break;
        }
        let settled = round.iter().map(|job| settle(job, Ending::Returned("null".to_owned()), NOW, 0.5)).collect();
        let lost =
            store.round(&runner(), &Report { settled, ..Report::default() }, &Want::default(), NOW).unwrap().lost;
        assert_eq!(lost, Vec::<String>::new());
        claimed.extend(round.into_iter().map(|job| job.id));
        assert!(rounds < 20, "something runs again and again");
    }
    assert!(claimed.contains(&sound));
    let all = store.list(&Filter { limit: 999, ..Filter::default() }).unwrap();
    assert!(all.iter().all(|job| store.get(&job.id).unwrap().is_some()));
    assert!(store.queues().unwrap()[0].dead > 10);
}

/// What is kept of connections that are used no more belongs to the file that was there then.
#[test]
fn a_file_that_is_made_anew_is_another() {
    let (_folder, path, open) = file();
    let first = open();
    drop(first.watch().unwrap());
    remove(&path, &ALL);
    let second = open();
    let mut watch = second.watch().unwrap();
    assert!(watch.wait(Duration::ZERO).unwrap(), "at first there may always be something");
    let other = Connection::open(&path).unwrap();
    other.execute("INSERT INTO clutch_queues (name) VALUES ('a')", []).unwrap();
    assert!(watch.wait(Duration::from_secs(30)).unwrap(), "it watches the file that is there");
}

/// Whoever has the store open goes on with the file that everybody else has.
#[test]
fn a_file_that_is_removed_under_a_runner_is_followed() {
    let (_folder, path, open) = file();
    let store = open();
    let mut watch = store.watch().unwrap();
    store.enqueue(&[job(), job()], NOW).unwrap();
    assert_eq!(claim(&*store, 1), ["1"]);
    remove(&path, &ALL);
    open().enqueue(&[NewJob { tool: "new".to_owned(), ..job() }], NOW).unwrap();
    assert!(watch.wait(Duration::from_secs(30)).is_err(), "it watched the other");
    let told = store.renew(&runner(), &["1".to_owned()], NOW).unwrap_err();
    assert!(told.to_string().contains("removed or replaced"), "{told}");
    let later = Runner { round: 1, ..runner() };
    assert!(store.renew(&later, &["1".to_owned()], NOW).unwrap().is_none(), "what it had is gone");
    let jobs = store.list(&Filter { limit: 9, ..Filter::default() }).unwrap();
    assert_eq!(jobs.iter().map(|job| &*job.tool).collect::<Vec<_>>(), ["new"]);
    store.enqueue(&[job()], NOW).unwrap();
    assert_eq!(claim(&*store, 9), ["1", "2"]);
}

/// Those of files that are gone are let go, and with them the room on the disk.
#[test]
fn files_that_were_removed_are_closed() {
    let (_folder, path, open) = file();
    let store = open();
    let gone = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = descriptors.filter_map(|one| std::fs::read_link(one.path()).ok());
        targets.filter(|one| one.to_string_lossy().starts_with(&*path.to_string_lossy()) && !one.exists()).count()
    };
    for _ in 0..3 {
        drop(store.watch().unwrap());
        remove(&path, &ALL);
        assert_eq!(store.enqueue(&[job()], NOW).unwrap()[0].id, "1");
        store.lead(&runner(), &[]).unwrap_err();
        assert_eq!(store.queues().unwrap()[0].available, 1);
        assert_eq!(gone(), 0);
    }
}

/// A backup is put in the place of the file, and what belongs to the one before is forgotten there.
#[test]
fn a_log_that_was_left_is_not_taken_for_that_of_another_file() {
    let (_folder, path, open) = file();
    let store = open();
    store.enqueue(&[job()], NOW).unwrap();
    let backup = path.with_file_name("backup.db");
    let other = Connection::open(&backup).unwrap();
    other.execute_batch("CREATE TABLE kept (x); INSERT INTO kept VALUES (1)").unwrap();
    other.close().unwrap();
    std::fs::rename(&backup, &path).unwrap();
    let watched = store.watch().map(drop).unwrap_err();
    for told in [watched, store.enqueue(&[job()], NOW).unwrap_err(), store.lead(&runner(), &[]).unwrap_err()] {
        assert!(told.to_string().contains("jobs.db-wal is that of the one before"), "{told}");
    }
    remove(&path, &["-wal", "-shm"]);
    assert_eq!(store.enqueue(&[job()], NOW).unwrap()[0].id, "1");
    let other = Connection::open(&path).unwrap();
    assert_eq!(other.query_row("SELECT count(*) FROM kept", [], |row| row.get(0)), Ok(1));
}

/// What is left is the index at least, with which nothing could be read.
#[test]
fn what_is_left_of_a_file_that_was_removed_alone_is_named() {
    for left in [&["-wal", "-shm"][..], &["-shm"], &["-wal"]] {
        let (_folder, path, open) = file();
        let store = open();
        remove(&path, &ALL.into_iter().filter(|end| !left.contains(end)).collect::<Vec<_>>());
        let told = store.enqueue(&[job()], NOW).unwrap_err();
        assert!(told.to_string().contains("is that of the one before"), "{told}");
        remove(&path, left);
        assert_eq!(store.enqueue(&[job()], NOW).unwrap()[0].id, "1");
    }
}

/// Who has only looked so far knows the log, too, which another program fills meanwhile.
#[test]
fn who_has_written_nothing_yet_spoils_no_backup() {
    let (_folder, path, open) = file();
    drop(open());
    let other = Connection::open(&path).unwrap();
    let store = open();
    other.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    let backup = path.with_file_name("backup.db");
    Connection::open(&backup).unwrap().execute_batch("CREATE TABLE kept (x)").unwrap();
    std::fs::rename(&backup, &path).unwrap();
    let told = store.enqueue(&[job()], NOW).unwrap_err();
    assert!(told.to_string().contains("jobs.db-wal is that of the one before"), "{told}");
}

/// Keys come and go: what began under their rates is forgotten with its time.
#[test]
fn what_began_long_ago_is_forgotten() {
    let (_folder, path, open) = file();
    let store = open();
    let rate = Some(Rate { count: 9, per_ms: 60_000 });
    let keyed = |key: &str| NewJob { key: Some(key.to_owned()), key_rate: rate, ..job() };
    store.enqueue(&[keyed("a"), keyed("b/1")], NOW).unwrap();
    assert_eq!(claim(&*store, 9).len(), 2);
    let started = || -> i64 {
        let connection = Connection::open(&path).unwrap();
        connection.query_row("SELECT count(*) FROM clutch_starts", [], |row| row.get(0)).unwrap()
    };
    store.look_after(&KEEP, 9, &[], &[], NOW).unwrap();
    assert_eq!(started(), 2);
    store.look_after(&KEEP, 9, &[], &[], NOW + 100_000).unwrap();
    assert_eq!(started(), 0);
}

/// As a dispatcher that starts while a migration of the application's holds the file.
#[test]
fn a_new_file_that_is_locked_is_made_ready_when_it_is_used() {
    let (_folder, path, open) = file();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; CREATE TABLE app (id INTEGER)").unwrap();
    let store = open();
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(store.queues().unwrap(), []);
    assert_eq!(store.enqueue(&[job()], NOW).unwrap()[0].id, "1");
    assert_eq!(claim(&*store, 9), ["1"]);
}
