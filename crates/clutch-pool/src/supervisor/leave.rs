//! Why workers leave.

/// Why a worker is replaced, or goes without a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    Age,
    Calls,
    Memory,
    /// Its work was past its deadline, again and again.
    Deadlines,
    /// By command.
    Recycle,
    /// Somebody else has sent it TERM.
    Term,
    /// Another image is to be run.
    Reload,
    /// The pool is to be smaller.
    Surplus,
    Stuck,
    Stopped,
}

impl Leave {
    pub fn as_str(self) -> &'static str {
        match self {
            Leave::Age => "age",
            Leave::Calls => "calls",
            Leave::Memory => "memory",
            Leave::Deadlines => "deadlines",
            Leave::Recycle => "recycle",
            Leave::Term => "term",
            Leave::Reload => "reload",
            Leave::Surplus => "surplus",
            Leave::Stuck => "stuck",
            Leave::Stopped => "stopped",
        }
    }

    /// Whether it could as well stay for a while: those leave in turn.
    pub(crate) fn by_policy(self) -> bool {
        !matches!(self, Leave::Surplus | Leave::Stuck | Leave::Stopped)
    }
}
