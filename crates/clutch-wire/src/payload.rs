//! Payloads: encoded values within a frame and in shared memory beside it.

use std::sync::Arc;

use crate::codec::{Codec, Form};
use crate::frame::WireError;
use crate::headers::{Headers, read_headers};
use crate::region::Lease;

/// Encoded values: bytes within the frame, and parts that lie in shared memory.
#[derive(Clone, Debug)]
pub struct Payload {
    pub form: Form,
    pub inline: Vec<u8>,
    /// Large parts in order. With `inline` empty and one lease, the lease is the body.
    pub leases: Vec<Arc<Lease>>,
}

impl Payload {
    pub fn new(form: impl Into<Form>, inline: Vec<u8>) -> Payload {
        Payload { form: form.into(), inline, leases: Vec::new() }
    }

    pub fn empty() -> Payload {
        Payload::new(Codec::Empty, Vec::new())
    }

    /// The body as one slice: the inline bytes, or the first region when the body itself was too large for a frame.
    pub fn body(&self) -> &[u8] {
        match self.leases.first() {
            Some(lease) if self.inline.is_empty() => lease.bytes(),
            _ => &self.inline,
        }
    }

    /// The header lines of a payload of `Codec::Headed`, and its content.
    pub fn headed(&self) -> Result<(Headers<'_>, &[u8]), WireError> {
        let (headers, rest) = read_headers(&self.inline)?;
        Ok((headers, self.leases.first().map_or(rest, |lease| lease.bytes())))
    }

    pub fn bytes_total(&self) -> u64 {
        self.inline.len() as u64 + self.leases.iter().map(|lease| lease.len() as u64).sum::<u64>()
    }
}
