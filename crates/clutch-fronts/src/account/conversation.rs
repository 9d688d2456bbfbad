//! The record of a request that begins a conversation, such as a WebSocket. It is written when both are over: the request,
//! which ends with its 101, and the conversation on its connection.

use std::sync::Arc;

use clutch_pool::pool::QueueTime;
use clutch_wire::sync::Mutex;

use super::Note;
use super::figures::{End, Figures};

/// End of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConversationEnd {
    pub(crate) end: End,
    /// Of the messages that the client was sent.
    pub(crate) bytes: u64,
    /// None: it is no WebSocket that is spoken here.
    pub(crate) close_code: Option<u16>,
}

/// The request, of which the record tells.
struct PastRequest {
    note: Box<dyn Note>,
    queued: Option<QueueTime>,
}

/// Shared by the account of the request and by whoever carries the conversation. The last of them has the record written.
pub(crate) struct Conversation {
    figures: Arc<Figures>,
    request: Mutex<Option<PastRequest>>,
    end: Mutex<ConversationEnd>,
}

impl Conversation {
    pub(super) fn new(figures: Arc<Figures>) -> Arc<Conversation> {
        // Unless its carrier says otherwise, it was dropped on the way.
        let end = ConversationEnd { end: End::ClientGone, bytes: 0, close_code: None };
        Arc::new(Conversation { figures, request: Mutex::new(None), end: Mutex::new(end) })
    }

    /// The request is over, and the conversation has its record now.
    pub(super) fn takes(&self, note: Box<dyn Note>, queued: Option<QueueTime>) {
        *self.request.lock() = Some(PastRequest { note, queued });
    }

    pub(crate) fn ends_as(&self, end: ConversationEnd) {
        *self.end.lock() = end;
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Without it the request has ended without a conversation, and its record is written.
        let Some(PastRequest { mut note, queued: times }) = self.request.get_mut().take() else { return };
        let ConversationEnd { end, bytes, close_code } = *self.end.get_mut();
        let end = if end == End::ClientGone && self.figures.is_cut() { End::Stopped } else { end };
        close_code.into_iter().for_each(|code| note.closed(code));
        let (queued, cpu) = (times.as_ref().and_then(QueueTime::get), times.as_ref().and_then(QueueTime::cpu));
        note.ended(end, bytes, queued, cpu);
    }
}
