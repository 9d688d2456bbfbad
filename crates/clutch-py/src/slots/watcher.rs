//! The native thread of a worker: net (a) against orphans, the alarm, the end of waiting for results that wait for
//! company, and shared memory that is not used again.
//!
//! The thread needs neither Python nor the GIL. When the link or the dispatcher ends, it kills the worker's own process
//! group.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clutch_pool::link::board::Board;
use clutch_pool::link::{Filled, Inbox};
use clutch_wire::forked::Tracked;
use clutch_wire::frame::{self, HEAD_BYTES, Head, Kind};
use clutch_wire::region::RegionPool;
use clutch_wire::sys::{self, EndSignal};
use rustix::event::{PollFd, PollFlags, poll};

use super::drain::Drain;
use super::interrupt::SlotThreads;
use super::stacks::Stacks;
use crate::link::writer::Writer;

/// Delay before the first check whether an interrupt was heard; doubles each time.
const LOOK_AGAIN: Duration = Duration::from_millis(3);

/// Number of checks after which TERM has to end the work.
const AGAIN_MAX: u32 = 30;

/// Alarm, by which the dispatcher asks this worker, beside its link, to interrupt code, to show stacks, or to end
/// endless work.
pub struct Alarm {
    pub socket: Tracked,
    pub threads: Arc<SlotThreads>,
    pub board: Arc<Board>,
    pub stacks: Arc<OnceLock<Stacks>>,
    pub drain: Arc<Drain>,
    /// An eventfd: others have sent TERM to this process.
    pub terms: Tracked,
    pub interrupt_signal: i32,
}

impl Alarm {
    /// Returns whether code is to be interrupted.
    fn hear(&self, inbox: &mut Inbox) -> bool {
        let mut interrupts = false;
        while matches!(inbox.fill(self.socket.as_fd(), false), Ok(Filled::Bytes)) {
            while let Ok(Some(received)) = inbox.next_frame() {
                match received.frame.head.kind {
                    Kind::Stacks => self.show_stacks(received.frame.head),
                    Kind::Drain => self.drain.tell(),
                    Kind::Cancel => {
                        self.interrupt();
                        interrupts = true;
                    }
                    _ => {}
                }
            }
        }
        interrupts
    }

    /// The handler runs in the main thread, and finds out what is to stop.
    fn interrupt(&self) {
        self.threads.expect();
        sys::signal_thread(main_thread(), self.interrupt_signal);
    }

    fn look_again(&self, times: Option<u32>) -> Option<u32> {
        let times = times.map_or(0, |times| times + 1);
        let has_lost = self.threads.has_lost();
        let wanted = has_lost || times < AGAIN_MAX && self.threads.is_waiting();
        wanted.then(|| {
            self.interrupt();
            // What finalizes much of its time is rarely met elsewhere.
            if has_lost { 0 } else { times }
        })
    }

    fn is_waiting(&self) -> bool {
        self.threads.has_lost() || self.threads.is_waiting()
    }

    fn show_stacks(&self, question: Head) {
        let take = |stacks: &Stacks| stacks.take(&self.threads, &self.threads.busy_threads(&self.board));
        let text = self.stacks.get().map(take).unwrap_or_default();
        let mut answer = Vec::with_capacity(text.len() + HEAD_BYTES);
        frame::put_text(&mut answer, question, &text);
        // A dispatcher that does not listen has other worries.
        let _ = sys::send(self.socket.as_fd(), &answer, &[], false);
    }
}

fn main_thread() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Starts the thread. `dispatcher` is a pidfd of the dispatcher's process.
pub fn start(writer: Arc<Writer>, dispatcher: Tracked, alarm: Alarm, regions: Arc<RegionPool>) -> io::Result<()> {
    let body = move || watch(&writer, &dispatcher, &alarm, &regions);
    std::thread::Builder::new().name("clutch-watcher".to_owned()).stack_size(128 << 10).spawn(body)?;
    Ok(())
}

fn watch(writer: &Writer, dispatcher: &Tracked, alarm: &Alarm, regions: &RegionPool) {
    sys::block_signals();
    let mut inbox = Inbox::default();
    // How often the signal was sent again.
    let mut again: Option<u32> = None;
    loop {
        let mut fds = [
            PollFd::new(&writer.socket, PollFlags::empty()),
            PollFd::new(dispatcher, PollFlags::IN),
            PollFd::new(&writer.timer, PollFlags::IN),
            PollFd::new(&alarm.socket, PollFlags::IN),
            PollFd::new(&alarm.terms, PollFlags::IN),
        ];
        let now = Instant::now();
        let sweep = regions.sweep_when_due(now).map(|at| at.saturating_duration_since(now));
        let look_again = again.map(|times| LOOK_AGAIN.saturating_mul(1 << times.min(4)));
        let timeout = look_again.into_iter().chain(sweep).min().map(sys::timespec);
        match poll(&mut fds, timeout.as_ref()) {
            Err(_) => continue,
            Ok(0) if again.is_some() => again = alarm.look_again(again),
            Ok(_) => {}
        }
        let [link, dispatcher, timer, alarmed, terms] = fds.map(|fd| fd.revents());
        if !link.is_empty() || !dispatcher.is_empty() {
            let own = rustix::process::getpid().as_raw_nonzero().get();
            sys::end_group(own, EndSignal::Kill);
            // Code may have taken this process out of its group.
            sys::kill_one(own);
        }
        if !timer.is_empty() {
            writer.on_timer();
            again = again.or_else(|| alarm.is_waiting().then_some(0));
        }
        if !alarmed.is_empty() {
            // Of a batch that is to stop: results that wait for company are not to be taken for missing.
            writer.write_now();
            again = if alarm.hear(&mut inbox) { Some(0) } else { again };
        }
        if !terms.is_empty() {
            sys::clear_event(alarm.terms.as_fd());
            writer.outbox.push(|out| frame::put_head(&mut out.bytes, Kind::Drain, 0, 0));
            writer.write_now();
        }
    }
}
