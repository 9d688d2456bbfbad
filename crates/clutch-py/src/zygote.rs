//! The zygote's end of its control socket: loads when told, forks when told, and ends its workers when the dispatcher is
//! gone: nets (b) and (c) against orphans.
//!
//! The waiting loop is native and holds no GIL, so that nothing that user code left behind can hold it up. Nor does it
//! wait for the dispatcher: what a full socket does not take is written when there is room.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_pool::link::{Filled, Flushed, Inbox, Outbox};
use clutch_pool::supervisor::zygote::FateNews;
use clutch_wire::Codec;
use clutch_wire::forked::Tracked;
use clutch_wire::frame::{self, FORK_DESCRIPTORS, Head, Kind};
use clutch_wire::sync::Mutex;
use clutch_wire::sys::{self, EndSignal, Fate};
use pyo3::exceptions::{PyConnectionError, PyOSError};
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal};

#[derive(Default)]
struct ZygoteState {
    inbox: Inbox,
    /// Keys of workers by pid, and back.
    workers: HashMap<i32, u32>,
    orders: std::collections::VecDeque<ForkOrder>,
}

/// A worker to be forked.
#[pyclass(frozen, module = "clutch._core")]
pub struct ForkOrder {
    key: u32,
    info: String,
    descriptors: Mutex<Vec<OwnedFd>>,
}

#[pymethods]
impl ForkOrder {
    #[getter]
    fn key(&self) -> u32 {
        self.key
    }

    /// JSON: nr, generation.
    #[getter]
    fn info(&self) -> &str {
        &self.info
    }

    /// Link, board, stdout, stderr, taken out: the caller owns the numbers.
    fn take(&self) -> Vec<i32> {
        std::mem::take(&mut *self.descriptors.lock()).into_iter().map(IntoRawFd::into_raw_fd).collect()
    }
}

/// The zygote's control socket.
#[pyclass(frozen, module = "clutch._core")]
pub struct ZygoteControl {
    socket: Tracked,
    dispatcher: OwnedFd,
    children: Tracked,
    outbox: Arc<Outbox>,
    state: Mutex<ZygoteState>,
}

#[pymethods]
impl ZygoteControl {
    /// `fd` is the control socket. Makes this process a group leader, a subreaper, and one that dies with the thread that
    /// started it, until `armed(False)`.
    #[new]
    fn new(fd: i32) -> PyResult<ZygoteControl> {
        let parent = rustix::process::getppid().ok_or_else(gone)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
        let dispatcher = sys::pidfd(parent.as_raw_nonzero().get())?;
        if rustix::process::getppid() != Some(parent) {
            return Err(gone());
        }
        // Already a leader when a terminal's shell made it one.
        let _ = rustix::process::setpgid(None, None);
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)?;
        // Whatever the program has made of it: a signal that is ignored is so in what it starts, too.
        sys::default_child_signal();
        sys::guard_from_signals();
        let (socket, children) = (Tracked::new(sys::adopt(fd)), Tracked::new(sys::child_signals()?));
        let outbox = Arc::new(Outbox::default());
        Ok(ZygoteControl { socket, dispatcher, children, outbox, state: Mutex::default() })
    }

    /// Loading is over: from here on the control socket and the pidfd tell of the dispatcher's end.
    fn disarm(&self) -> PyResult<()> {
        // The target may have ignored it.
        sys::default_child_signal();
        Ok(rustix::process::set_parent_process_death_signal(None).map_err(io::Error::from)?)
    }

    /// Waits for the launch message and returns its JSON.
    fn launch(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| {
            let mut state = self.state.lock();
            loop {
                if state.inbox.fill(self.socket.as_fd(), true)? == Filled::End {
                    return Err(gone());
                }
                let received = state.inbox.next_frame().map_err(|error| PyOSError::new_err(error.to_string()))?;
                let launch = received.filter(|received| received.frame.head.kind == Kind::Launch);
                if let Some(file) = launch.and_then(|mut received| received.descriptors.pop()) {
                    return Ok(io::read_to_string(File::from(file))?);
                }
            }
        })
    }

    /// Sends a message: "hello", "up" or "failed", with JSON.
    fn say(&self, what: &str, json: &str) -> PyResult<()> {
        let kind = match what {
            "hello" => Kind::Hello,
            "up" => Kind::Up,
            _ => Kind::Failed,
        };
        self.put(kind, 0, json.as_bytes());
        Ok(self.outbox.flush(self.socket.as_fd(), true).map(drop)?)
    }

    /// Reports, in the zygote, that a worker was forked.
    fn forked(&self, order: &ForkOrder, pid: i32) {
        // Also done by the child: whichever is first, the group is there before its first work.
        let child = Pid::from_raw(pid);
        let _ = rustix::process::setpgid(child, child);
        self.state.lock().workers.insert(pid, order.key);
        order.descriptors.lock().clear();
        let json = serde_json::json!({"pid": pid, "error": null}).to_string();
        self.put(Kind::Forked, u64::from(order.key), json.as_bytes());
    }

    /// Reports that a worker could not be forked.
    fn fork_failed(&self, order: &ForkOrder, reason: &str) {
        order.descriptors.lock().clear();
        let json = serde_json::json!({"pid": 0, "error": reason}).to_string();
        self.put(Kind::Forked, u64::from(order.key), json.as_bytes());
    }

    /// In the forked child, which has let go of the zygote's socket: a leader of its own group, without the zygote's signal
    /// mask, and without what its siblings are to have. Returns a pidfd of the dispatcher.
    fn in_child(&self) -> PyResult<i32> {
        // The zygote does the same: whichever is first.
        let _ = rustix::process::setpgid(None, None);
        self.state.lock().orders.clear();
        sys::guard_from_signals();
        sys::unblock_signals();
        let copy = self.dispatcher.try_clone()?;
        Ok(copy.into_raw_fd())
    }

    /// The pidfd of the dispatcher, to be duplicated.
    fn dispatcher_fd(&self) -> i32 {
        self.dispatcher.as_raw_fd()
    }

    /// Waits for an order to fork, reaping and telling of workers meanwhile. When the dispatcher is gone, this does not
    /// return: all workers are killed and the process exits.
    fn next_order(&self, py: Python<'_>) -> PyResult<ForkOrder> {
        py.detach(|| {
            let mut state = self.state.lock();
            loop {
                // Also while orders wait: one of them may be withdrawn, a worker may have ended.
                self.hear(&mut state);
                if let Some(order) = state.orders.pop_front() {
                    return Ok(order);
                }
            }
        })
    }
}

impl ZygoteControl {
    /// Written when the zygote listens next. Reasons are cut where they are made: all of it fits.
    fn put(&self, kind: Kind, id: u64, body: &[u8]) {
        let head = Head::with(kind, id, Codec::Json);
        self.outbox.push(|out| frame::put_text(&mut out.bytes, head, body));
    }

    /// Writes what waits, as far as there is room, and takes in what has come; waits for that unless there are orders.
    fn hear(&self, state: &mut ZygoteState) {
        // A dispatcher that is gone is seen by the end of its socket.
        let blocked = matches!(self.outbox.flush(self.socket.as_fd(), false), Ok(Flushed::Blocked));
        let room = if blocked { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(&self.socket, PollFlags::IN | room),
            PollFd::new(&self.dispatcher, PollFlags::IN),
            PollFd::new(&self.children, PollFlags::IN),
        ];
        let at_once = (!state.orders.is_empty()).then(|| sys::timespec(Duration::ZERO));
        if poll(&mut fds, at_once.as_ref()).is_err() {
            return;
        }
        let [control, dispatcher, children] = fds.map(|fd| !fd.revents().is_empty());
        if children {
            sys::clear_child_signals(self.children.as_fd());
            self.tell_fates(state);
        }
        if dispatcher || (control && !self.take_orders(state)) {
            doom(&state.workers);
        }
    }

    /// Reads all messages. False: the dispatcher has closed the socket.
    fn take_orders(&self, state: &mut ZygoteState) -> bool {
        loop {
            match state.inbox.fill(self.socket.as_fd(), false) {
                Ok(Filled::Bytes) if self.take_frames(state) => {}
                Ok(Filled::Nothing) => return true,
                Ok(_) | Err(_) => return false,
            }
        }
    }

    fn take_frames(&self, state: &mut ZygoteState) -> bool {
        loop {
            let Ok(next) = state.inbox.next_frame() else { return false };
            let Some(received) = next else { return true };
            let key = received.frame.head.id as u32;
            match received.frame.head.kind {
                Kind::Fork => {
                    let is_whole = received.descriptors.len() == FORK_DESCRIPTORS;
                    let info = String::from_utf8_lossy(received.frame.payload).into_owned();
                    let order = ForkOrder { key, info, descriptors: Mutex::new(received.descriptors) };
                    match is_whole {
                        true => state.orders.push_back(order),
                        false => self.fork_failed(&order, "no descriptor was left in the zygote (ulimit -n)"),
                    }
                }
                Kind::Kill => {
                    let number = received.frame.payload.first().copied().unwrap_or(EndSignal::Kill as u8);
                    self.end_worker(state, key, EndSignal::of_number(number));
                }
                _ => {}
            }
        }
    }

    /// Signals a worker's group; an order to fork it that still waits is withdrawn.
    fn end_worker(&self, state: &mut ZygoteState, key: u32, signal: EndSignal) {
        // Not reaped yet, so the pid is still this worker's.
        if let Some((pid, _)) = state.workers.iter().find(|(_, worker)| **worker == key) {
            sys::end_group(*pid, signal);
        }
        if let Some(at) = state.orders.iter().position(|order| order.key == key) {
            let order = state.orders.remove(at);
            order.iter().for_each(|order| self.fork_failed(order, "it was ended before it was forked"));
        }
    }

    /// Reaps, and tells of workers; what was re-parented to the zygote is only reaped.
    fn tell_fates(&self, state: &mut ZygoteState) {
        while let Some((pid, fate)) = sys::next_fate() {
            let ended = matches!(fate, Fate::Exited(_) | Fate::Signaled(_));
            let key = state.workers.get(&pid).copied();
            if ended && key.is_some() {
                // The group before its leader is reaped: until then the number cannot be another's.
                sys::end_group(pid, EndSignal::Kill);
                state.workers.remove(&pid);
            }
            let news = FateNews::of(pid, fate);
            sys::acknowledge(pid, fate);
            let json = serde_json::to_vec(&news).unwrap_or_default();
            key.into_iter().for_each(|key| self.put(Kind::Fate, u64::from(key), &json));
        }
    }
}

/// From here on the process, a worker, heeds the signals that end processes from its dispatcher alone.
#[pyfunction]
pub fn guard_from_signals() {
    sys::guard_from_signals();
}

/// The same for TERM, once another handler was set: the dispatcher's TERM reaches that one.
#[pyfunction]
pub fn guard_from_term() {
    sys::guard_from_term();
}

/// The real-time signal that stands for the dispatcher's TERM.
#[pyfunction]
pub fn own_term() -> i32 {
    sys::own_term()
}

/// Sets the title of this process in `ps` and `top`, if the system allows it.
#[pyfunction]
pub fn set_title(title: &str) {
    let _ = sys::set_title(title);
}

fn gone() -> PyErr {
    PyConnectionError::new_err("the dispatcher is gone")
}

/// Maximum time for processes that were re-parented to the zygote to end.
const DOOM: Duration = Duration::from_secs(1);

/// Kills every worker's group, stopped ones too, then whatever was re-parented here, at last its own group: threads that an
/// import has left behind may start processes until then.
fn doom(workers: &HashMap<i32, u32>) -> ! {
    for pid in workers.keys() {
        sys::end_group(*pid, EndSignal::Kill);
    }
    let deadline = Instant::now() + DOOM;
    while Instant::now() < deadline {
        let children = children();
        if children.is_empty() {
            break;
        }
        children.iter().for_each(|pid| sys::kill_one(*pid));
        while let Some((pid, fate)) = sys::next_fate() {
            sys::acknowledge(pid, fate);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if rustix::process::getpgrp() == rustix::process::getpid() {
        sys::end_group(rustix::process::getpid().as_raw_nonzero().get(), EndSignal::Kill);
    }
    sys::exit_now(0)
}

/// Children of this process, as the kernel lists them: for each of its threads.
fn children() -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
