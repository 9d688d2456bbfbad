//! Connections that this worker holds for a front: passed to it by a channel, read and answered here, handed back when they
//! are more than plain requests. See `clutch_fronts::held`.

mod adopted;
mod blocking;
mod channel;
mod connection;
mod front;
mod holder;
mod pace;
mod shared;

pub use self::blocking::hold_in_slots;
pub use self::holder::Holder;
