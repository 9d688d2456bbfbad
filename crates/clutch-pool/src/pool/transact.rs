//! The way of every thread into a pool: one transaction under the core's lock, then, without it, all that follows.
//!
//! Frames that come are taken in the same way, whoever reads them.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clutch_wire::Form;
use clutch_wire::frame::{self, Kind, WireError};
use smallvec::SmallVec;

use super::core::Core;
use super::effects::{Effects, Told};
use super::entry::Entry;
use super::peer::incoming::Incoming;
use super::reader::Read;
use super::state::{Action, WorkerKey};
use super::{Answer, END_OF_FILE, Link, Memory, Notice, Pool};
use crate::link::{Filled, Inbox, Received};
use crate::work::WorkId;

/// The source of frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadFrom {
    Link,
    /// The journal of a dead worker, without the descriptors that went with them: what names those was never said.
    Journal,
}

impl Pool {
    /// Runs a transaction: an event under the lock, then all that follows. In a copy of the process it is none.
    pub(super) fn transact<R: Default>(
        &self,
        event: impl FnOnce(&mut Core, Instant, &mut Vec<Action<Box<Entry>>>) -> R,
    ) -> R {
        self.transact_with(|core, now, actions, _| event(core, now, actions))
    }

    /// The same for an event that has effects of its own.
    pub(super) fn transact_with<R: Default>(
        &self,
        event: impl FnOnce(&mut Core, Instant, &mut Vec<Action<Box<Entry>>>, &mut Effects) -> R,
    ) -> R {
        let (result, effects) = self.transact_only(event);
        self.carry_out(effects);
        result
    }

    /// The same, the effects being the caller's to carry out.
    pub(super) fn transact_only<R: Default>(
        &self,
        event: impl FnOnce(&mut Core, Instant, &mut Vec<Action<Box<Entry>>>, &mut Effects) -> R,
    ) -> (R, Effects) {
        let mut effects = Effects::default();
        if self.is_forked() {
            return (R::default(), effects);
        }
        let now = Instant::now();
        let (result, waits) = {
            let mut core = self.core.lock();
            let mut actions = std::mem::take(&mut core.spare);
            let result = event(&mut core, now, &mut actions, &mut effects);
            core.run(self, now, &mut actions, &mut effects);
            core.spare = actions;
            if core.machine.tells_room() {
                effects.rooms.extend(core.fetchers.values().cloned());
            }
            (result, core.machine.has_waiting())
        };
        if waits {
            self.wake_for(self.clock.watch_delay().map(|delay| now + delay));
        }
        (result, effects)
    }

    /// Does all that follows from a transaction. How long work has waited is told before it is written to its worker.
    pub(super) fn carry_out(&self, effects: Effects) {
        for (reply, queued) in effects.sent {
            reply.sent(queued);
        }
        for link in &effects.flush {
            self.links.flush(link);
        }
        for (link, id, stacks) in effects.interrupts {
            link.alarm.interrupt(id, stacks);
        }
        for (reply, told) in effects.replies {
            match told {
                Told::Chunk(payload) => reply.chunk(payload),
                Told::Finish { outcome, queued } => reply.finish(outcome, queued),
                Told::Credit(count) => reply.credit(count),
                Told::Begun => reply.begun(),
                Told::Used(cpu) => reply.used(cpu),
                Told::Ran(time) => reply.ran(time),
                Told::Admitted => reply.admitted(),
            }
        }
        for notice in effects.notices {
            self.links.notices.tell(notice);
        }
        for (question, text) in effects.stacks {
            self.questions.answer(question, text, false);
        }
        effects.rooms.iter().for_each(|tell| tell());
        self.wake_for(effects.look_at);
    }

    /// Wakes the driver when it would sleep beyond this deadline.
    pub(super) fn wake_for(&self, deadline: Option<Instant>) {
        if deadline.is_some_and(|at| self.clock.sleeps_beyond(at)) {
            self.links.notices.wake();
        }
    }

    /// Judges the memory of workers, and tells the supervisor.
    pub(crate) fn weigh(&self, figures: &[(WorkerKey, Memory)]) {
        self.transact_with(|core, now, actions, effects| core.weigh(figures, now, actions, effects));
    }

    // ---- for exchanges

    /// Removes work that has not begun; false: it has.
    pub(super) fn withdraw(&self, id: WorkId) -> bool {
        self.transact(|core, now, actions| core.withdraw(id, now, actions))
    }

    /// The same, unless a worker has died of it: what is known of that stays here.
    pub fn put_back(&self, id: WorkId) -> bool {
        self.transact(|core, now, actions| !core.machine.was_fatal(id) && core.withdraw(id, now, actions))
    }

    /// Returns whether the work has no deadline because a debugger has been open while it was here.
    pub fn is_untimed(&self, id: WorkId) -> bool {
        !self.is_forked() && self.core.lock().machine.is_untimed(id)
    }

    /// Ends the work as if its deadline had passed now.
    pub fn expire(&self, id: WorkId) {
        self.set_deadline(id, Instant::now());
    }

    /// Lifts the deadline of the work.
    pub(super) fn lift_deadline(&self, id: WorkId) {
        if self.is_forked() {
            return;
        }
        self.core.lock().machine.lift_deadline(id);
    }

    /// Moves the deadline of the work.
    pub(super) fn set_deadline(&self, id: WorkId, at: Instant) {
        if self.is_forked() {
            return;
        }
        self.core.lock().machine.set_deadline(id, at);
        self.wake_for(Some(at));
    }

    /// Marks work that turned out to be endless: it is told when its worker is to end, and cut off at the grace.
    pub fn mark_endless(&self, id: WorkId) {
        if self.is_forked() {
            return;
        }
        let cut_at = self.core.lock().machine.mark_endless(id);
        self.wake_for(cut_at);
    }

    /// Sends a chunk of an inbound stream, in pieces where it is large; `Codec::Empty` ends it.
    pub(super) fn feed(&self, id: WorkId, form: impl Into<Form>, bytes: &[u8]) {
        self.post(id, |out| frame::put_pieces(out, id, form.into(), bytes));
    }

    // ---- frames for workers

    /// Frames about one piece of work, to the worker that has it.
    pub(super) fn post(&self, id: WorkId, put: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = self.put(id, put) {
            self.links.flush(&link);
        }
    }

    pub(super) fn put(&self, id: WorkId, put: impl FnOnce(&mut Vec<u8>)) -> Option<Arc<Link>> {
        if self.is_forked() {
            return None;
        }
        let link = {
            let core = self.core.lock();
            let peer = core.machine.worker_of(id).and_then(|worker| core.peers.get(&worker));
            peer.map(|peer| peer.link.clone())?
        };
        link.outbox.push(|out| put(&mut out.bytes));
        Some(link)
    }

    /// The worker is to use these regions no more: no descriptor was left here to receive theirs.
    fn tell_unreceived(&self, link: &Arc<Link>, regions: Vec<u32>) {
        for region in regions {
            link.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Unreceived, u64::from(region), 0));
            self.links.flush(link);
        }
    }

    /// Workers that run nothing let go of regions that are no more, as those do that get work.
    pub(super) fn tell_dropped(&self) {
        let dropped = self.regions.dropped().load(Ordering::Relaxed);
        if self.told_dropped.swap(dropped, Ordering::Relaxed) != dropped {
            self.tell_over(None);
        }
    }

    /// Workers keep nothing for the next batch of this map: there is none.
    pub fn forget_map(&self, number: u64) {
        self.tell_over(Some(number));
    }

    fn tell_over(&self, map: Option<u64>) {
        let links: Vec<_> = self.core.lock().peers.values_mut().map(|peer| peer.tell_over(map)).collect();
        links.iter().for_each(|link| self.links.flush(link));
    }

    // ---- frames of workers

    /// Takes in all whole frames of an inbox. An error breaks the link.
    pub(super) fn absorb(&self, link: &Arc<Link>, inbox: &mut Inbox, read_from: ReadFrom) -> Result<(), String> {
        let mut incoming = SmallVec::<[Incoming; 2]>::new();
        let broken = |error: WireError| error.to_string();
        let mut unsaid = SmallVec::<[u64; 2]>::new();
        while let Some(received) = inbox.next_frame().map_err(broken)? {
            if read_from == ReadFrom::Journal && is_unsaid(&received, &mut unsaid) {
                continue;
            }
            let is_more = incoming.last_mut().map_or(Ok(false), |last| last.add(&received)).map_err(broken)?;
            if !is_more {
                incoming.push(Incoming::of(&received).map_err(broken)?);
            }
            incoming.last_mut().into_iter().for_each(|last| last.add_more(inbox));
        }
        self.tell_unreceived(link, inbox.take_unreceived());
        if incoming.is_empty() {
            return Ok(());
        }
        let wrong = self.transact_with(|core, now, actions, effects| {
            // What comes of a worker that is gone, by who still reads its link, is about work that has moved on.
            if !core.peers.contains_key(&link.key) {
                return None;
            }
            let taken = incoming.into_iter().try_for_each(|one| core.take_in(link.key, one, now, actions, effects));
            if let Some(stuck) = core.machine.drained(link.key) {
                effects.notices.push(Notice::Drained { worker: link.key, stuck });
            }
            taken.err()
        });
        wrong.map_or(Ok(()), Err)
    }

    /// As [`super::LinkReader::read`].
    pub(super) fn read_link(&self, link: &Arc<Link>) -> Read {
        let Some(mut inbox) = link.inbox.try_lock() else { return Read::Elsewhere };
        let ended = match inbox.fill(link.socket.as_fd(), false) {
            Ok(Filled::Nothing) => return Read::Nothing,
            Ok(Filled::Bytes) => self.absorb(link, &mut inbox, ReadFrom::Link).err(),
            Ok(Filled::End) => Some(END_OF_FILE.to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let Some(reason) = ended else { return Read::Some };
        if let Some(peer) = self.core.lock().peers.get_mut(&link.key) {
            peer.disarm(&self.links.poller);
        }
        self.links.notices.tell(Notice::LinkEnded(link.key, reason));
        Read::End
    }

    /// Reads a link in the caller's thread until its answer is there, for a short while: it may come from elsewhere, too.
    /// Returns whether a signal came: its handler runs when the link is free, whatever it does.
    pub(super) fn read_for(&self, link: &Arc<Link>, answer: &Answer) -> bool {
        let mut inbox = link.inbox.lock();
        let (mut ended, mut has_signal) = (None, false);
        while !answer.is_done() && ended.is_none() {
            match inbox.fill(link.socket.as_fd(), true) {
                Ok(Filled::Bytes) => ended = self.absorb(link, &mut inbox, ReadFrom::Link).err(),
                Ok(Filled::Nothing) => break,
                Ok(Filled::End) => ended = Some(END_OF_FILE.to_owned()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    has_signal = true;
                    break;
                }
                Err(error) => ended = Some(error.to_string()),
            }
        }
        self.end_lease(link, ended.is_some());
        drop(inbox);
        if let Some(reason) = ended {
            self.links.notices.tell(Notice::LinkEnded(link.key, reason));
        }
        has_signal
    }

    fn end_lease(&self, link: &Arc<Link>, broken: bool) {
        if self.is_forked() {
            return;
        }
        let mut core = self.core.lock();
        let busy = core.machine.worker(link.key).is_some_and(|(sent, _)| sent > 0);
        if let Some(peer) = core.peers.get_mut(&link.key) {
            peer.leased = false;
            if busy || broken || peer.orphaned {
                let armed = peer.arm(&self.links.poller);
                self.links.must_be_watched(link.key, armed);
            }
        }
    }
}

/// Returns whether a frame in a journal names memory that did not come with it, or follows such a frame of its work.
fn is_unsaid(received: &Received<'_>, unsaid: &mut SmallVec<[u64; 2]>) -> bool {
    let id = received.frame.head.id;
    if matches!(received.leases(), Err(WireError::Unreceived(..))) {
        unsaid.push(id);
    }
    unsaid.contains(&id)
}
