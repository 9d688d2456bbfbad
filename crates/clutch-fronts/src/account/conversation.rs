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

/// A request that is over, of which the record tells.
pub(super) struct PastRequest {
    pub(super) note: Box<dyn Note>,
    pub(super) queued: Option<QueueTime>,
}

impl PastRequest {
    pub(super) fn ended(self, end: End, bytes: u64) {
        let times = self.queued.as_ref();
        self.note.ended(end, bytes, times.and_then(QueueTime::get), times.and_then(QueueTime::cpu));
    }
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
    pub(super) fn takes(&self, request: PastRequest) {
        *self.request.lock() = Some(request);
    }

    pub(crate) fn ends_as(&self, end: ConversationEnd) {
        *self.end.lock() = end;
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Without it the request has ended without a conversation, and its record is written.
        let Some(mut request) = self.request.get_mut().take() else { return };
        let ConversationEnd { end, bytes, close_code } = *self.end.get_mut();
        close_code.into_iter().for_each(|code| request.note.closed(code));
        request.ended(self.figures.seen_as(end), bytes);
    }
}
