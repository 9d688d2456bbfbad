//! Connections that this worker holds for a front: passed to it by a channel, read and answered here, handed back when they
//! are more than plain requests. See `clutch_fronts::held`.

mod adopted;
mod blocking;
mod channel;
mod connection;
mod early;
mod front;
mod holder;
mod line;
mod lines;
mod output;
mod pace;
mod shared;

pub use self::blocking::hold_in_slots;
pub use self::holder::Holder;
pub(crate) use self::line::Line;
pub(crate) use self::lines::Lines;
pub use self::lines::PyLines;
