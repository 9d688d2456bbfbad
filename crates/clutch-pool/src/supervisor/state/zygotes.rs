//! The images of a pool, each in its zygote: the one that workers are forked from, one that a reload loads, older ones that
//! still have workers. Which of them takes over, and which is of no use any more, is decided here; whose workers there are
//! is told with each question.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Action;
use crate::config::Shape;
use crate::pool::{Denied, Ticket};

/// Maximum time for a zygote that was told to end before it is killed.
const END_WAIT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZygotePhase {
    Loading {
        since: Instant,
    },
    Up,
    /// Told to end; killed at that time, or already.
    Ending {
        kill_at: Option<Instant>,
    },
}

#[derive(Clone, Copy, Debug)]
struct ZygoteRecord {
    phase: ZygotePhase,
    /// A worker of it was ready.
    proven: bool,
    /// When it did what it was told for the last time.
    answered: Option<Instant>,
    shape: Shape,
}

impl ZygoteRecord {
    fn has_loaded(&self) -> bool {
        !matches!(self.phase, ZygotePhase::Loading { .. })
    }

    fn next_wake(&self, limit: Option<Duration>) -> Option<Instant> {
        match self.phase {
            ZygotePhase::Loading { since } => limit.map(|limit| since + limit),
            ZygotePhase::Up => None,
            ZygotePhase::Ending { kill_at } => kill_at,
        }
    }
}

/// A reload: the generation that is loaded or takes over, and who waits for it.
#[derive(Debug)]
struct Reload {
    generation: u32,
    tickets: Vec<Ticket>,
}

/// The meaning of a zygote's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZygoteLoss {
    /// The zygote was told to end.
    Expected,
    /// The zygote had workers that were ready, and its successor will, too.
    Proven,
    /// Nobody was ready yet of the image that workers are forked from.
    Unproven,
    /// Another image has taken over, or this one has not yet.
    Aside,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Zygotes {
    /// By generation.
    zygotes: BTreeMap<u32, ZygoteRecord>,
    /// The one that workers are forked from, loaded or not.
    current: Option<u32>,
    /// The last number given.
    last: u32,
    reload: Option<Reload>,
    /// The reload whose workers are taking over.
    roll: Option<Reload>,
    /// Generations that were taken back, while they have workers.
    rejected: BTreeSet<u32>,
    start_timeout: Duration,
    /// Until a worker has been ready, a start may take as long as it likes.
    is_first_free: bool,
    /// The shape of images that bring none of their own.
    shape: Shape,
}

impl Zygotes {
    /// `is_first_free`: the limit holds only once a worker has been ready.
    pub(super) fn new(start_timeout: Duration, is_first_free: bool, shape: Shape) -> Zygotes {
        Zygotes {
            zygotes: BTreeMap::new(),
            current: None,
            last: 0,
            reload: None,
            roll: None,
            rejected: BTreeSet::new(),
            start_timeout,
            is_first_free,
            shape,
        }
    }

    /// The limit of a start, if there is one now.
    pub(super) fn start_limit(&self) -> Option<Duration> {
        (!self.is_first_free).then_some(self.start_timeout)
    }

    /// The image that workers are forked from; before there is one, the number of the last try.
    pub(super) fn generation(&self) -> u32 {
        self.current.unwrap_or(self.last)
    }

    /// The image that workers can be forked from now.
    pub(super) fn up_now(&self) -> Option<u32> {
        self.current.filter(|generation| self.is_up(*generation))
    }

    /// Returns whether an image is there or on its way.
    pub(super) fn has_successor(&self) -> bool {
        self.current.is_some() || self.reload.is_some()
    }

    pub(super) fn has_current(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zygotes.is_empty()
    }

    fn is_up(&self, generation: u32) -> bool {
        self.zygotes.get(&generation).is_some_and(|zygote| zygote.phase == ZygotePhase::Up)
    }

    fn is_reload(&self, generation: u32) -> bool {
        self.reload.as_ref().is_some_and(|reload| reload.generation == generation)
    }

    /// Returns whether the zygote is there and tells of its workers' ends.
    pub(super) fn tells(&self, generation: u32) -> bool {
        self.zygotes.get(&generation).is_some_and(ZygoteRecord::has_loaded)
    }

    /// When it did what it was told for the last time.
    pub(super) fn answered_at(&self, generation: u32) -> Option<Instant> {
        self.zygotes.get(&generation).and_then(|zygote| zygote.answered)
    }

    /// Returns whether workers of this image are to be replaced by others.
    pub(super) fn is_outdated(&self, generation: u32) -> bool {
        let rolled = self.roll.as_ref().is_some_and(|roll| generation < roll.generation);
        rolled || self.rejected.contains(&generation)
    }

    /// Returns whether this image is taking over by a reload.
    pub(super) fn takes_over(&self, generation: u32) -> bool {
        self.roll.as_ref().is_some_and(|roll| roll.generation == generation)
    }

    // ---- from their start to their end

    /// Starts the image that workers are to be forked from.
    pub(super) fn start(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.current = Some(self.load(now, out));
    }

    fn load(&mut self, now: Instant, out: &mut Vec<Action>) -> u32 {
        self.last += 1;
        let phase = ZygotePhase::Loading { since: now };
        self.zygotes.insert(self.last, ZygoteRecord { phase, proven: false, answered: None, shape: self.shape });
        out.push(Action::StartZygote { generation: self.last });
        self.last
    }

    /// Tells a zygote to end. One that loads is killed: it hears nothing.
    pub(super) fn end(&mut self, generation: u32, now: Instant, out: &mut Vec<Action>) {
        let Some(zygote) = self.zygotes.get_mut(&generation) else { return };
        let at_once = !zygote.has_loaded();
        if !matches!(zygote.phase, ZygotePhase::Ending { .. }) {
            zygote.phase = ZygotePhase::Ending { kill_at: (!at_once).then(|| now + END_WAIT) };
            out.push(Action::EndZygote { generation, at_once });
        }
    }

    /// Kills a zygote, whatever it does.
    pub(super) fn kill(&mut self, generation: u32, out: &mut Vec<Action>) {
        let Some(zygote) = self.zygotes.get_mut(&generation) else { return };
        zygote.phase = ZygotePhase::Ending { kill_at: None };
        out.push(Action::EndZygote { generation, at_once: true });
    }

    /// An image has loaded; `shape`: where its policy changed that of the config. Returns the shape of its workers, where
    /// these are forked from it from now on. Of a reload: [`Zygotes::takes_over`].
    pub(super) fn up(
        &mut self,
        generation: u32,
        shape: Option<Shape>,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Option<Shape> {
        let zygote = self.zygotes.get_mut(&generation).filter(|zygote| !zygote.has_loaded())?;
        (zygote.phase, zygote.shape) = (ZygotePhase::Up, shape.unwrap_or(zygote.shape));
        if let Some(mut reload) = self.reload.take_if(|reload| reload.generation == generation) {
            reload.tickets.extend(self.roll.take().into_iter().flat_map(|overtaken| overtaken.tickets));
            self.end_loading(now, out);
            self.roll = Some(reload);
        } else if self.current != Some(generation) {
            self.end(generation, now, out);
            return None;
        }
        self.fork_from(generation)
    }

    fn fork_from(&mut self, generation: u32) -> Option<Shape> {
        self.current = Some(generation);
        self.zygotes.get(&generation).map(|zygote| zygote.shape)
    }

    /// The image that was loading to be forked from is not wanted any more.
    fn end_loading(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(generation) = self.current.take().filter(|generation| !self.is_up(*generation)) {
            self.end(generation, now, out);
        }
    }

    pub(super) fn gone(&mut self, generation: u32) -> Option<ZygoteLoss> {
        let zygote = self.zygotes.remove(&generation)?;
        Some(self.loss(generation, &zygote))
    }

    /// Kills a zygote that does not do what it is told, where one is up.
    pub(super) fn kill_deaf(&mut self, generation: u32, out: &mut Vec<Action>) -> Option<ZygoteLoss> {
        let zygote = self.zygotes.get(&generation).filter(|zygote| zygote.phase == ZygotePhase::Up)?;
        let loss = self.loss(generation, zygote);
        out.push(Action::ShowZygote { generation });
        self.kill(generation, out);
        Some(loss)
    }

    fn loss(&self, generation: u32, zygote: &ZygoteRecord) -> ZygoteLoss {
        match (zygote.phase, self.current == Some(generation)) {
            (ZygotePhase::Ending { .. }, _) => ZygoteLoss::Expected,
            (_, true) if zygote.proven => ZygoteLoss::Proven,
            (_, true) => ZygoteLoss::Unproven,
            (_, false) => ZygoteLoss::Aside,
        }
    }

    /// Workers cannot be forked from this image any more. Returns whether it was the one they were forked from.
    pub(super) fn give_up(&mut self, generation: u32) -> bool {
        self.current.take_if(|current| *current == generation).is_some()
    }

    pub(super) fn answered(&mut self, generation: u32, now: Instant) {
        if let Some(zygote) = self.zygotes.get_mut(&generation) {
            zygote.answered = Some(now);
        }
    }

    /// A worker of it is ready.
    pub(super) fn prove(&mut self, generation: u32) {
        if let Some(zygote) = self.zygotes.get_mut(&generation) {
            zygote.proven = true;
            self.is_first_free = false;
        }
    }

    // ---- reload

    /// Loads the code anew beside what runs. One that was still loading is overtaken.
    pub(super) fn reload(&mut self, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        let mut tickets = vec![ticket];
        if let Some(overtaken) = self.reload.take() {
            self.end(overtaken.generation, now, out);
            tickets.extend(overtaken.tickets);
        }
        let generation = self.load(now, out);
        self.reload = Some(Reload { generation, tickets });
        out.push(Action::ReloadStarted { generation });
    }

    /// Loads the code anew in place of what runs.
    pub(super) fn start_over(&mut self, ticket: Ticket, now: Instant, out: &mut Vec<Action>) {
        let mut tickets = vec![ticket];
        tickets.extend(self.roll.take().into_iter().flat_map(|overtaken| overtaken.tickets));
        self.end_loading(now, out);
        self.start(now, out);
        self.roll = Some(Reload { generation: self.last, tickets });
        out.push(Action::ReloadStarted { generation: self.last });
    }

    /// All workers run the new image: those who asked for it are told. `oldest`: of the generations that have to have left.
    pub(super) fn finish_roll(&mut self, oldest: Option<u32>, out: &mut Vec<Action>) {
        if let Some(roll) = self.roll.take_if(|roll| oldest.is_none_or(|oldest| oldest >= roll.generation)) {
            out.push(Action::ReloadFinished { generation: roll.generation });
            out.extend(roll.tickets.into_iter().map(|ticket| Action::Done { ticket, outcome: Ok(()) }));
        }
    }

    /// The code of a reload does not load. Returns whether it was one that loads.
    pub(super) fn fail_reload(&mut self, generation: u32, reason: &str, out: &mut Vec<Action>) -> bool {
        let failed = self.reload.take_if(|reload| reload.generation == generation);
        failed.map(|reload| tell_failed(reload, reason, out)).is_some()
    }

    /// Workers of this generation do not start. Returns the image that was taking over, where it is that, or one since.
    pub(super) fn fail_roll(&mut self, generation: u32, reason: &str, out: &mut Vec<Action>) -> Option<u32> {
        let roll = self.roll.take_if(|roll| generation >= roll.generation)?;
        let generation = roll.generation;
        tell_failed(roll, reason, out);
        Some(generation)
    }

    /// Takes back an image that has failed, and all after it: workers are forked from the one before again. Returns their
    /// shape; none: that image is not there any more. `of_workers`: the generations that have some.
    pub(super) fn go_back(&mut self, failed: u32, of_workers: &BTreeSet<u32>) -> Option<Shape> {
        let older = self.zygotes.range(..failed);
        let usable = older.filter(|(at, zygote)| zygote.phase == ZygotePhase::Up && !self.rejected.contains(at));
        let before = usable.max_by_key(|(at, zygote)| (zygote.proven, **at)).map(|(at, _)| *at)?;
        self.rejected.extend(of_workers.range(failed..));
        self.rejected.insert(failed);
        self.fork_from(before)
    }

    /// The pool stops: nobody has to wait for a reload that does not come any more.
    pub(super) fn deny_reloads(&mut self, out: &mut Vec<Action>) {
        let tickets = self.reload.take().into_iter().chain(self.roll.take()).flat_map(|reload| reload.tickets);
        out.extend(tickets.map(|ticket| Action::Done { ticket, outcome: Err(Denied::Closed) }));
    }

    // ---- time

    /// Images that have taken too long to load.
    pub(super) fn overdue(&self, now: Instant) -> Vec<u32> {
        let Some(limit) = self.start_limit() else { return Vec::new() };
        let is_late = |phase| matches!(phase, ZygotePhase::Loading { since } if now >= since + limit);
        self.zygotes.iter().filter(|(_, zygote)| is_late(zygote.phase)).map(|(generation, _)| *generation).collect()
    }

    /// Ends those of no use any more, and kills what does not end. `of_workers`: the generations that have some. Of a pool
    /// that stops the zygotes are needed only for the ends of their workers.
    pub(super) fn keep(&mut self, of_workers: &BTreeSet<u32>, stopping: bool, now: Instant, out: &mut Vec<Action>) {
        for generation in self.zygotes.keys().copied().collect::<Vec<_>>() {
            let wanted = self.current == Some(generation) || self.is_reload(generation) || self.roll.is_some();
            if !of_workers.contains(&generation) && (stopping || !wanted) {
                self.end(generation, now, out);
            }
            if let Some(ZygoteRecord { phase: ZygotePhase::Ending { kill_at }, .. }) = self.zygotes.get_mut(&generation)
                && kill_at.take_if(|at| *at <= now).is_some()
            {
                out.push(Action::EndZygote { generation, at_once: true });
            }
        }
        let zygotes = &self.zygotes;
        self.rejected.retain(|at| zygotes.contains_key(at) || of_workers.contains(at));
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.zygotes.values().filter_map(|zygote| zygote.next_wake(self.start_limit())).min()
    }
}

fn tell_failed(reload: Reload, reason: &str, out: &mut Vec<Action>) {
    out.push(Action::ReloadFailed { generation: reload.generation, reason: reason.to_owned() });
    let failed = |ticket| Action::Done { ticket, outcome: Err(Denied::Failed(reason.to_owned())) };
    out.extend(reload.tickets.into_iter().map(failed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Profile;

    const LIMIT: Duration = Duration::from_secs(5);

    fn shape(workers: u32) -> Shape {
        Shape { profile: Profile::Process, workers, threads: 1, tasks: 1 }
    }

    /// Zygotes with an image that is up and has had workers.
    fn proven(now: Instant) -> Zygotes {
        let mut zygotes = Zygotes::new(LIMIT, false, shape(3));
        zygotes.start(now, &mut Vec::new());
        assert_eq!(zygotes.up(1, None, now, &mut Vec::new()), Some(shape(3)));
        zygotes.prove(1);
        zygotes
    }

    #[test]
    fn without_a_limit_that_is_set_the_first_start_has_none() {
        let now = Instant::now();
        let mut zygotes = Zygotes::new(LIMIT, true, shape(3));
        zygotes.start(now, &mut Vec::new());
        assert_eq!((zygotes.overdue(now + 99 * LIMIT), zygotes.next_wake()), (vec![], None));
        zygotes.up(1, None, now, &mut Vec::new());
        zygotes.prove(1);
        zygotes.reload(1, now, &mut Vec::new());
        assert_eq!((zygotes.overdue(now + LIMIT), zygotes.next_wake()), (vec![2], Some(now + LIMIT)));
    }

    #[test]
    fn an_image_that_nobody_waits_for_is_ended_when_it_has_loaded() {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut zygotes = Zygotes::new(LIMIT, false, shape(3));
        zygotes.start(now, &mut out);
        assert!(zygotes.give_up(1) && !zygotes.give_up(1) && zygotes.up_now().is_none());
        assert_eq!(zygotes.up(1, None, now, &mut out), None);
        assert_eq!(out[1..], [Action::EndZygote { generation: 1, at_once: false }]);
        zygotes.keep(&BTreeSet::new(), false, now + END_WAIT, &mut out);
        zygotes.keep(&BTreeSet::new(), false, now + 2 * END_WAIT, &mut out);
        assert_eq!(out[2..], [Action::EndZygote { generation: 1, at_once: true }], "killed once");
        assert_eq!((zygotes.gone(1), zygotes.gone(1)), (Some(ZygoteLoss::Expected), None));
    }

    #[test]
    fn a_reload_takes_over_and_is_finished_when_its_predecessors_are_gone() {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut zygotes = proven(now);
        zygotes.reload(7, now, &mut out);
        assert_eq!((zygotes.generation(), zygotes.is_outdated(1)), (1, false));
        assert_eq!(zygotes.up(2, Some(shape(5)), now, &mut out), Some(shape(5)));
        assert!(zygotes.is_outdated(1) && zygotes.takes_over(2) && zygotes.up_now() == Some(2));
        out.clear();
        zygotes.finish_roll(Some(1), &mut out);
        assert!(out.is_empty());
        zygotes.keep(&BTreeSet::from([2]), false, now, &mut out);
        assert!(out.is_empty(), "the old image may be needed again");
        zygotes.finish_roll(Some(2), &mut out);
        assert_eq!(out, [Action::ReloadFinished { generation: 2 }, Action::Done { ticket: 7, outcome: Ok(()) }]);
        zygotes.keep(&BTreeSet::from([2]), false, now, &mut out);
        assert_eq!(out[2..], [Action::EndZygote { generation: 1, at_once: false }]);
    }

    #[test]
    fn an_image_that_was_taken_back_is_outdated_and_never_gone_back_to() {
        let (now, mut out) = (Instant::now(), Vec::new());
        let mut zygotes = proven(now);
        let of_workers = BTreeSet::from([1, 2]);
        for generation in [2, 3] {
            zygotes.reload(1, now, &mut out);
            zygotes.up(generation, None, now, &mut out);
            assert_eq!(zygotes.fail_roll(generation, "no database", &mut out), Some(generation));
            assert_eq!(zygotes.go_back(generation, &of_workers), Some(shape(3)));
            assert_eq!((zygotes.up_now(), zygotes.is_outdated(generation)), (Some(1), true));
        }
        zygotes.gone(1);
        assert_eq!(zygotes.go_back(2, &of_workers), None, "nothing is left to go back to");
    }

    #[test]
    fn an_image_that_loads_has_its_limit() {
        let now = Instant::now();
        let mut zygotes = Zygotes::new(LIMIT, false, shape(3));
        zygotes.start(now, &mut Vec::new());
        assert_eq!(zygotes.next_wake(), Some(now + LIMIT));
        assert_eq!((zygotes.overdue(now), zygotes.overdue(now + LIMIT)), (vec![], vec![1]));
        zygotes.up(1, None, now, &mut Vec::new());
        assert!(zygotes.overdue(now + LIMIT).is_empty());
    }

    #[test]
    fn the_end_of_an_image_is_judged_by_what_came_of_it() {
        let now = Instant::now();
        assert_eq!(proven(now).gone(1), Some(ZygoteLoss::Proven));
        let mut zygotes = Zygotes::new(LIMIT, false, shape(3));
        zygotes.start(now, &mut Vec::new());
        assert_eq!(zygotes.kill_deaf(1, &mut Vec::new()), None, "while it loads it has nothing to do");
        zygotes.up(1, None, now, &mut Vec::new());
        assert_eq!(zygotes.kill_deaf(1, &mut Vec::new()), Some(ZygoteLoss::Unproven));
        assert_eq!(zygotes.gone(1), Some(ZygoteLoss::Expected));
        let mut zygotes = proven(now);
        zygotes.reload(1, now, &mut Vec::new());
        assert_eq!(zygotes.gone(2), Some(ZygoteLoss::Aside));
        let mut out = Vec::new();
        assert!(zygotes.fail_reload(2, "gone", &mut out) && !zygotes.fail_reload(2, "gone", &mut out));
        assert!(out.contains(&Action::Done { ticket: 1, outcome: Err(Denied::Failed("gone".to_owned())) }));
    }
}
