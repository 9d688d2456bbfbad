//! Workers that are gone, and what becomes of their work.

use clutch_pool::pool::state::{Event, Verdict, WorkerKey};
use clutch_pool::work::{Where, WorkId};

use super::{Word, World};

impl World {
    pub fn gone(&mut self, worker: WorkerKey) {
        self.leave(worker, false);
    }

    /// `ended`: by the pool itself, which counts against none of its work.
    pub fn leave(&mut self, worker: WorkerKey, ended: bool) {
        let known = self.workers.remove(&worker).expect("a worker");
        let begun: Vec<WorkId> =
            known.frames.iter().filter(|(_, word)| *word == Word::Begun).map(|(id, _)| *id).collect();
        let several = known.frames.iter().filter(|(_, word)| *word != Word::Sent).count() > 1;
        let mut expected = Vec::new();
        for (id, word) in known.frames {
            let verdict = match word {
                Word::Sent => self.failing.then_some(Verdict::Failing),
                Word::Begun => self.sentence(worker, id, several, ended),
                Word::Abandoned(_) | Word::Stuck => continue,
            };
            if verdict.is_none() {
                self.comes_back(id);
            }
            expected.push((id, verdict));
        }
        self.on(Event::WorkerGone { worker, begun, ended });
        // What came back may have expired, or have been sent elsewhere, meanwhile.
        for (id, verdict) in expected {
            let given = self.works[&id].verdict;
            let expired = verdict.is_none() && given == Some(Verdict::Expired(Where::Queue));
            assert!(given == verdict || expired, "{given:?}, where {verdict:?} is right");
        }
    }

    /// What its worker's end means for what had begun there; none: it runs again.
    fn sentence(&mut self, worker: WorkerKey, id: WorkId, several: bool, ended: bool) -> Option<Verdict> {
        let work = self.works.get_mut(&id).expect("known work");
        work.deaths += u32::from(!ended);
        let deaths = work.deaths;
        if !ended && deaths >= self.limits.deaths_max {
            return Some(Verdict::Poisoned { worker, deaths });
        }
        let may_again = if ended { deaths < work.request.retry } else { deaths <= work.request.retry };
        if !may_again || self.failing {
            return Some(Verdict::Lost(worker));
        }
        work.suspect |= !ended && several;
        None
    }
}
