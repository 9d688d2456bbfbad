//! The terminal of a development server, lent to the worker whose debugger asks there.
//!
//! The worker makes its own group that of the foreground, and undoes it when the prompt is left. Meanwhile the output of
//! workers and the access log wait, so that nobody's line breaks the one that is being typed. Of a worker that dies at the
//! prompt the terminal is taken back here, as it was before.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::sync::{Condvar, Mutex};

/// Pid of a worker.
type Pid = i32;

struct State {
    /// Workers that have it. Others that ask for it wait in their processes.
    lent: Vec<Pid>,
    /// Settings of the terminal before the first owner.
    modes: Option<Termios>,
}

static STATE: Mutex<State> = Mutex::new(State { lent: Vec::new(), modes: None });
static RETURNED: Condvar = Condvar::new();

fn open() -> Option<File> {
    let flags = OFlags::NOCTTY.bits() as i32;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty").ok()
}

/// Remembers the settings of the terminal before the first prompt.
pub fn remember() {
    let modes = open().and_then(|terminal| tcgetattr(terminal).ok());
    STATE.lock().modes = modes;
}

/// Called when a worker has taken the terminal.
pub fn lend(to: Pid) {
    STATE.lock().lent.push(to);
}

/// Called when a worker has given it back.
pub fn take_back(from: Pid) {
    STATE.lock().lent.retain(|pid| *pid != from);
    RETURNED.notify_all();
}

/// Takes the terminal back from a worker that is gone and may not have returned it. To be called by a thread that takes
/// no signals: a thread that is not in the foreground gets one for it.
pub fn recover(from: Pid) {
    let mut state = STATE.lock();
    if !state.lent.contains(&from) {
        return;
    }
    state.restore();
    state.lent.retain(|pid| *pid != from);
    drop(state);
    RETURNED.notify_all();
}

/// This process ends now, and whoever has it with it. To be called as [`recover`].
pub fn recover_at_end() {
    let state = STATE.lock();
    if !state.lent.is_empty() {
        state.restore();
    }
}

impl State {
    fn restore(&self) {
        if let Some(terminal) = open()
            && tcgetpgrp(&terminal).is_ok_and(|foreground| foreground != getpgrp())
        {
            let _ = tcsetpgrp(&terminal, getpgrp());
            let _ = self.modes.as_ref().map(|modes| tcsetattr(&terminal, OptionalActions::Now, modes));
        }
    }
}

/// Function to call before a line is written: output that workers have printed before comes first.
static FIRST: Mutex<Option<fn()>> = Mutex::new(None);

pub fn write_first(what: fn()) {
    *FIRST.lock() = Some(what);
}

/// Waits until a line may be written.
pub fn wait_turn() {
    wait_free();
    let first = *FIRST.lock();
    first.into_iter().for_each(|first| first());
}

/// Waits while a debugger's prompt is open.
pub fn wait_free() {
    drop(RETURNED.wait(STATE.lock(), |state| state.lent.is_empty()));
}
