//! Describes how workers ended, in words.

use clutch_wire::sys::Fate;

use super::Worker;

/// Names of the signals from 1 up, as on Linux (not on alpha, mips, parisc and sparc, whose numbers differ).
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// In one word, of few: why it was told to leave, or how it ended without that.
pub(super) fn why_it_ended(worker: &Worker, fate: Option<Fate>) -> &'static str {
    match (worker.left(), worker.cause(), fate) {
        (Some(reason), ..) => reason,
        (None, Some(_), _) => "killed",
        (None, None, Some(Fate::Signaled(_))) => "signal",
        (None, None, Some(Fate::Exited(_))) => "exit",
        (None, None, _) => "unknown",
    }
}

/// Describes how a worker ended, in words.
pub fn fate_text(fate: Option<Fate>) -> String {
    match fate {
        Some(Fate::Signaled(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
        Some(Fate::Exited(code)) => format!("exited with code {code}"),
        _ => "ended, nobody could tell how".to_owned(),
    }
}

/// Returns the name of a signal in brackets, where it has one.
pub fn signal_name(signal: i32) -> String {
    let at = usize::try_from(signal - 1).unwrap_or(usize::MAX);
    SIGNALS.get(at).map(|name| format!(" (SIG{name})")).unwrap_or_default()
}
