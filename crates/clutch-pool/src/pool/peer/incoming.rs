//! Messages of a worker, read from its frames.

use std::sync::Arc;
use std::time::Duration;

use clutch_wire::frame::{self, Kind, WireError};
use clutch_wire::{Failure, Payload};
use serde::Deserialize;

use crate::link::items::Items;
use crate::link::{Inbox, Received};
use crate::pool::Memory;
use crate::work::{Outcome, WorkId};

/// What a worker tells of work.
#[derive(Deserialize)]
#[serde(untagged)]
enum OfWork {
    Used { cpu_ns: u64 },
    Limited { limit_ms: u64 },
}

/// Message of a worker.
pub(in crate::pool) enum Incoming {
    Finished {
        id: WorkId,
        run_ns: u64,
        outcome: Outcome,
    },
    Chunk {
        id: WorkId,
        payload: Payload,
    },
    Items {
        id: WorkId,
        items: Items,
    },
    /// A value of a stream that cannot be read here: it ends with this.
    Unreadable {
        id: WorkId,
        failure: Failure,
    },
    /// The worker could not take the descriptor of this region.
    Unreceived {
        region: u32,
    },
    Credit {
        id: WorkId,
        count: u32,
    },
    Begun {
        id: WorkId,
    },
    /// `asked`: an answer to a question that is not about one piece of work.
    Stacks {
        id: u64,
        asked: bool,
        text: String,
    },
    Ready(String),
    StartFailed(String),
    Memory(Memory),
    /// CPU time that work has used: before its end, where the pool asks for it.
    Used {
        id: WorkId,
        cpu: Duration,
    },
    /// Work that begins now may run for so long.
    Limited {
        id: WorkId,
        time: Duration,
    },
    /// Somebody else has sent the worker TERM.
    SentTerm,
    /// A debugger asks at the terminal, or no longer does.
    Debugging(bool),
    Other,
}

impl Incoming {
    pub(in crate::pool) fn of(received: &Received<'_>) -> Result<Incoming, WireError> {
        let frame = &received.frame;
        let id = frame.head.id;
        let text = || String::from_utf8_lossy(frame.payload).into_owned();
        Ok(match frame.head.kind {
            Kind::Result => Incoming::Finished {
                id,
                run_ns: frame.run_ns(),
                outcome: match readable(received.payload())? {
                    Ok(payload) => Outcome::Value(payload),
                    Err(failure) => Outcome::Failure(Arc::new(failure)),
                },
            },
            Kind::Failure => {
                let failure = match readable(received.payload())? {
                    // Of a copy: what lies in shared memory could change while it is read.
                    Ok(payload) => {
                        let body = payload.body().to_vec();
                        Failure::decode(&body)?
                    }
                    Err(failure) => failure,
                };
                Incoming::Finished { id, run_ns: frame.run_ns(), outcome: Outcome::Failure(Arc::new(failure)) }
            }
            Kind::Item => {
                let mut items = Items::default();
                add_item(&mut items, received)?;
                Incoming::Items { id, items }
            }
            Kind::Chunk => match readable(received.payload())? {
                Ok(payload) => Incoming::Chunk { id, payload },
                Err(failure) => Incoming::Unreadable { id, failure },
            },
            Kind::Begun => Incoming::Begun { id },
            Kind::Credit => Incoming::Credit { id, count: frame.credit() },
            Kind::Stacks => Incoming::Stacks { id, asked: frame.head.flags & frame::flag::ASKED != 0, text: text() },
            Kind::Unreceived => Incoming::Unreceived { region: id as u32 },
            Kind::Drain => Incoming::SentTerm,
            Kind::Debugging => Incoming::Debugging(id != 0),
            Kind::Ready => Incoming::Ready(text()),
            Kind::Failed => Incoming::StartFailed(text()),
            Kind::Stats if id != 0 => match serde_json::from_slice(frame.payload) {
                Ok(OfWork::Used { cpu_ns }) => Incoming::Used { id, cpu: Duration::from_nanos(cpu_ns) },
                Ok(OfWork::Limited { limit_ms }) => Incoming::Limited { id, time: Duration::from_millis(limit_ms) },
                Err(_) => Incoming::Other,
            },
            Kind::Stats => serde_json::from_slice(frame.payload).map_or(Incoming::Other, Incoming::Memory),
            _ => Incoming::Other,
        })
    }

    /// Takes in another result of the batch whose results these are; false: it is something else.
    pub(in crate::pool) fn add(&mut self, received: &Received<'_>) -> Result<bool, WireError> {
        let head = received.frame.head;
        match self {
            Incoming::Items { id, items } if head.kind == Kind::Item && *id == head.id => {
                add_item(items, received)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Takes in what else comes of that batch, all at once as far as it can be.
    pub(in crate::pool) fn add_more(&mut self, inbox: &mut Inbox) {
        if let Incoming::Items { id, items } = self {
            let (count, failed, frames) = inbox.next_items(*id);
            items.push_all(count, failed, frames);
        }
    }

    /// The work that it is about.
    pub(in crate::pool) fn work(&self) -> Option<WorkId> {
        match self {
            Incoming::Finished { id, .. }
            | Incoming::Chunk { id, .. }
            | Incoming::Items { id, .. }
            | Incoming::Unreadable { id, .. }
            | Incoming::Credit { id, .. }
            | Incoming::Begun { id }
            | Incoming::Used { id, .. }
            | Incoming::Limited { id, .. }
            | Incoming::Stacks { id, asked: false, .. } => Some(*id),
            _ => None,
        }
    }
}

fn add_item(items: &mut Items, received: &Received<'_>) -> Result<(), WireError> {
    match readable(received.leases())? {
        Ok(leases) => items.push(received.bytes, leases),
        Err(failure) => items.push_failure(&failure),
    }
    Ok(())
}

/// Makes a read that failed for want of a descriptor or memory here the failure of one answer; any other error is the
/// link's.
fn readable<T>(read: Result<T, WireError>) -> Result<Result<T, Failure>, WireError> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(error @ WireError::Unreceived(..)) => {
            let (type_name, traceback) = ("OSError".to_owned(), String::new());
            Ok(Err(Failure::Encode { type_name, message: error.to_string(), traceback }))
        }
        Err(error) => Err(error),
    }
}
