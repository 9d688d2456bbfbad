//! Requests, responses and WebSocket messages as payloads: between a front and the worker's side of it.
//!
//! A part of a body, or a message of bytes, is a payload of `Codec::Bytes` without a content.

use clutch_wire::{Codec, FAREWELL, Form};

pub mod http;
pub mod websocket;

/// The head of a request or a response, and the body or its first part behind it.
pub const HEAD: Form = Form::new(Codec::Bytes, 1);

/// The last bytes of a body.
pub const LAST: Form = Form::new(Codec::Bytes, 2);

/// A WebSocket message of text.
pub const TEXT: Form = Form::new(Codec::Bytes, 3);

/// A WebSocket's socket changes hands: see [`Lent`](websocket::Lent) and [`Back`](websocket::Back).
pub const SOCKET: Form = Form::new(Codec::Bytes, 4);

/// A WebSocket closes: its code, two bytes, and the reason, as text.
pub const CLOSE: Form = Form::new(Codec::Bytes, FAREWELL | 1);
