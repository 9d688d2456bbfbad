//! Places of jobs in the format of Sidekiq, which has no index of them: a search goes through all.

use std::ops::ControlFlow;

use redis::Value;

use crate::job::{Job, Millis, State};
use crate::store::Result;
use crate::stores::redis::link::Link;
use crate::stores::redis::record::{list, text, texts};

use super::payload::Payload;

/// Number of jobs that are read at a time.
const PAGE: usize = 500;

/// Number of searches for a job that moves meanwhile.
const LOOKS: usize = 2;

/// A list or a sorted set of jobs.
pub struct Place {
    /// After the namespace.
    pub key: String,
    pub state: State,
    /// Queue of a list.
    pub queue: Option<String>,
    /// Runner of a list of running jobs.
    pub runner: Option<String>,
}

/// A job where it was found.
pub struct Found {
    pub text: String,
    pub payload: Payload,
    /// The time that it is filed under.
    pub at: Option<Millis>,
}

impl Found {
    pub fn job(&self, place: &Place) -> Job {
        let queue = place.queue.clone().unwrap_or_else(|| self.payload.queue());
        Job { runner: place.runner.clone(), ..self.payload.job(place.state, queue, self.at) }
    }
}

impl Place {
    pub fn kind(&self) -> &'static str {
        if self.queue.is_some() { "list" } else { "zset" }
    }

    fn filed(key: &str, state: State) -> Place {
        Place { key: key.to_owned(), state, queue: None, runner: None }
    }
}

pub fn backup_of(runner: &str, queue: &str) -> String {
    format!("queue:backup::{runner}::{queue}")
}

/// Keys of a link to a server with jobs of Sidekiq.
pub struct Places<'a> {
    pub link: &'a Link,
    pub namespace: &'a str,
}

impl Places<'_> {
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.namespace)
    }

    pub fn members(&self, name: &str) -> Result<Vec<String>> {
        Ok(texts(self.link.query(redis::cmd("SMEMBERS").arg(self.key(name)))?))
    }

    pub fn queues(&self) -> Result<Vec<String>> {
        let mut queues = self.members("queues")?;
        queues.sort_unstable();
        Ok(queues)
    }

    /// Returns the places of jobs in this state; None: in any.
    pub fn of(&self, state: Option<State>) -> Result<Vec<Place>> {
        let is_wanted = |one: State| state.is_none_or(|state| state == one);
        let mut places = Vec::new();
        if is_wanted(State::Running) {
            self.add_running(&mut places)?;
        }
        if is_wanted(State::Available) {
            places.extend(self.queues()?.into_iter().map(|queue| Place {
                key: format!("queue:{queue}"),
                state: State::Available,
                queue: Some(queue),
                runner: None,
            }));
        }
        for (key, of) in [("schedule", State::Scheduled), ("retry", State::Scheduled), ("dead", State::Dead)] {
            if is_wanted(of) {
                places.push(Place::filed(key, of));
            }
        }
        Ok(places)
    }

    fn add_running(&self, places: &mut Vec<Place>) -> Result<()> {
        let leases = self.link.query(redis::cmd("HKEYS").arg(self.key("clutch:renewals")))?;
        let mut runners = texts(leases);
        runners.extend(self.members("clutch:orphaned")?);
        let queues = self.members("clutch:queues")?;
        for runner in &runners {
            places.extend(queues.iter().map(|queue| Place {
                key: backup_of(runner, queue),
                state: State::Running,
                queue: Some(queue.clone()),
                runner: Some(runner.clone()),
            }));
        }
        Ok(())
    }

    /// Goes through a place, the newest first, until told to stop. What is no job is left out.
    pub fn each(&self, place: &Place, mut visit: impl FnMut(Found) -> ControlFlow<()>) -> Result<ControlFlow<()>> {
        for from in (0..).step_by(PAGE) {
            let page = self.page(place, from)?;
            let is_last = page.len() < PAGE;
            for (text, at) in page {
                let Some(payload) = Payload::parse(&text) else { continue };
                if visit(Found { text, payload, at }).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if is_last {
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn page(&self, place: &Place, from: usize) -> Result<Vec<(String, Option<Millis>)>> {
        let (key, last) = (self.key(&place.key), from + PAGE - 1);
        if place.queue.is_some() {
            let values = self.link.query(redis::cmd("LRANGE").arg(key).arg(from).arg(last))?;
            return Ok(texts(values).into_iter().map(|text| (text, None)).collect());
        }
        let mut cmd = redis::cmd("ZREVRANGE");
        Ok(scored(self.link.query(cmd.arg(key).arg(from).arg(last).arg("WITHSCORES"))?))
    }

    /// Until it is found: in the order in which jobs go, so that one that goes on meanwhile is met further on; and again,
    /// since one that fails goes back.
    pub fn find(&self, id: &str) -> Result<Option<(Place, Found)>> {
        for _ in 0..LOOKS {
            for state in [State::Scheduled, State::Available, State::Running, State::Dead] {
                for place in self.of(Some(state))? {
                    if let Some(found) = self.find_at(&place, id)? {
                        return Ok(Some((place, found)));
                    }
                }
            }
        }
        Ok(None)
    }

    fn find_at(&self, place: &Place, id: &str) -> Result<Option<Found>> {
        let mut found = None;
        let _ = self.each(place, |one| {
            if one.payload.jid() != id {
                return ControlFlow::Continue(());
            }
            found = Some(one);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}

/// Members of a sorted set with their scores, which are seconds.
pub fn scored(values: Value) -> Vec<(String, Option<Millis>)> {
    let mut values = list(values).into_iter();
    let next = || {
        let (member, score) = (text(values.next()?)?, text(values.next()?)?);
        Some((member, score.parse::<f64>().ok().map(|seconds| (seconds * 1000.0).round() as Millis)))
    };
    std::iter::from_fn(next).collect()
}
