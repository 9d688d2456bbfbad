//! A store of each kind, and what the tests do with it.

use std::sync::Arc;
use std::time::Duration;

use clutch_jobs::job::{Backoff, Claimed, Ending, JobError, Millis, NewJob, Settled, State, settle};
use clutch_jobs::leases::{Lapsed, Lease};
use clutch_jobs::store::{Keep, Report, Round, Runner, Store, Tick, Upkeep, Want};
use clutch_jobs::stores;
use serde_json::value::RawValue;

pub const HOUR: Millis = 3_600_000;
/// Of the store's clock, in these tests: nobody's real time.
pub const NOW: Millis = 1_800_000_000_000;
pub const LEASE: Duration = Duration::from_secs(30);
pub const KEEP: Keep =
    Keep { completed: Duration::from_secs(60), cancelled: Duration::from_secs(120), dead: Duration::from_secs(180) };

/// A store that is empty, which several programs have open.
pub struct House {
    pub store: Arc<dyn Store>,
    pub open: Box<dyn Fn() -> Arc<dyn Store>>,
    _kept: Box<dyn std::any::Any>,
}

pub fn house(url: String, kept: impl std::any::Any) -> House {
    let open = move || stores::open(&url).unwrap();
    House { store: open(), open: Box::new(open), _kept: Box::new(kept) }
}

pub fn sqlite() -> Option<House> {
    let folder = tempfile::tempdir().unwrap();
    Some(house(format!("sqlite:///{}", folder.path().join("jobs.db").display()), folder))
}

/// None where no server is installed.
pub fn redis() -> Option<House> {
    Some(house(super::server::shared()?.new_url(), ()))
}

/// None where no server is installed.
pub fn sidekiq() -> Option<House> {
    Some(house(super::server::shared()?.new_url_of("sidekiq", "namespace"), ()))
}

pub fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

pub fn job(queue: &str) -> NewJob {
    NewJob {
        attempts_max: 3,
        backoff: Backoff::Constant { ms: 1000 },
        ..NewJob::new(queue, "send", raw(r#"{"args":[1],"kwargs":{}}"#))
    }
}

pub fn runner(name: &str) -> Runner {
    Runner::new(name.to_owned(), LEASE)
}

pub fn want(limit: usize, queues: &[&str]) -> Want {
    Want { limit, queues: queues.iter().map(|name| (*name).to_owned()).collect() }
}

impl House {
    pub fn enqueue(&self, jobs: &[NewJob]) -> Vec<String> {
        self.store.enqueue(jobs, NOW).unwrap().into_iter().map(|one| one.id).collect()
    }

    pub fn claim_at(&self, name: &str, limit: usize, queues: &[&str], now: Millis) -> Vec<Claimed> {
        self.store.round(&runner(name), &Report::default(), &want(limit, queues), now).unwrap().claimed
    }

    pub fn claim(&self, name: &str, limit: usize) -> Vec<Claimed> {
        self.claim_at(name, limit, &["default"], NOW)
    }

    pub fn settle(&self, name: &str, settled: Vec<Settled>, now: Millis) -> Round {
        let report = Report { settled, ..Report::default() };
        self.store.round(&runner(name), &report, &Want::default(), now).unwrap()
    }

    pub fn end(&self, name: &str, job: &Claimed, ending: Ending, now: Millis) -> Round {
        self.settle(name, vec![settle(job, ending, now, 0.5)], now)
    }

    pub fn look(&self, now: Millis) -> Upkeep {
        self.store.look_after(&KEEP, 1000, &[], &[], now).unwrap()
    }

    /// The lease of this holder as it is now.
    pub fn lease(&self, holder: &str) -> Option<Lease> {
        // Long before any job was due, or had ended.
        let found = self.store.look_after(&KEEP, 1, &[], &[], 0).unwrap().leases;
        found.into_iter().find(|lease| lease.holder == holder)
    }

    /// What an observer says of this lease if it never changes again.
    pub fn seen(&self, holder: &str) -> Lapsed {
        Lapsed { holder: holder.to_owned(), renewals: self.lease(holder).unwrap().renewals }
    }

    /// A look of one that has seen these.
    pub fn look_lapsed(&self, lapsed: &[Lapsed], now: Millis) -> Upkeep {
        self.store.look_after(&KEEP, 1000, &[], lapsed, now).unwrap()
    }

    pub fn tick(&self, ticks: &[Tick]) -> Vec<Millis> {
        self.store.look_after(&KEEP, 0, ticks, &[], NOW).unwrap().last_ticks
    }

    pub fn state(&self, id: &str) -> Option<State> {
        self.store.get(id).unwrap().map(|job| job.state)
    }
}

pub fn tick(name: &str, at: Millis) -> Tick {
    Tick { name: name.to_owned(), at, job: Some(job("default")), kept: None }
}

pub fn done() -> Ending {
    Ending::Returned("null".to_owned())
}

pub fn failure() -> Ending {
    let kind = "raised".to_owned();
    let message = "ValueError: no".to_owned();
    Ending::Failed(JobError { at: NOW, attempt: 1, kind, message, traceback: "Traceback …".to_owned() })
}

pub fn ids(jobs: &[Claimed]) -> Vec<&str> {
    jobs.iter().map(|job| job.id.as_str()).collect()
}
