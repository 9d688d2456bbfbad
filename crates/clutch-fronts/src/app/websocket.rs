//! A WebSocket of an app: how far its conversation has come. A pure machine.
//!
//! The machine is told what the app sends, what comes by the link, and that the worker is to end, from any thread.

use clutch_wire::Payload;

use crate::codec::http::{credit_of, put_response, response_flag};
use crate::codec::websocket::{self, GIVE_BACK, code};
use crate::codec::{CLOSE, HEAD};

/// Why a conversation is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    code: u16,
    reason: String,
    /// The app has closed it itself: what it sends now is a mistake of its own.
    by_app: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum WebSocketPhase {
    /// The app has not decided yet.
    #[default]
    Asked,
    Open,
    /// The app answers with a response in place of the conversation.
    Denied,
    Over(Over),
}

impl WebSocketPhase {
    /// Returns the events that the app may send now, for the text of the error.
    fn allowed(&self) -> &'static str {
        match self {
            WebSocketPhase::Asked => "websocket.accept, websocket.close, websocket.http.response.start",
            WebSocketPhase::Open => "websocket.send, websocket.close",
            WebSocketPhase::Denied => "websocket.http.response.body",
            WebSocketPhase::Over(_) => "nothing: the WebSocket is closed",
        }
    }
}

/// Event that an app sends.
pub enum AppEvent {
    /// The head that opens the conversation.
    Accept(Payload),
    Message(Payload),
    Close {
        code: u16,
        reason: String,
    },
    /// Start and body of a response that denies it.
    Start,
    Body,
}

/// Action that the caller has to take.
pub enum Action {
    Nothing,
    /// Opens the conversation.
    Open(Payload),
    Send(Payload),
    Start,
    Body,
}

/// Why an app may not send it.
pub enum Wrong {
    Gone,
    NotNow { allowed: &'static str },
}

/// Event that an app receives.
pub enum ClientEvent {
    Connect,
    Message(Payload),
    Disconnect { code: u16, reason: String },
}

/// State of one WebSocket in a worker.
#[derive(Debug, Default)]
pub struct WebSocket {
    phase: WebSocketPhase,
    /// The app has received `websocket.connect`.
    is_told: bool,
    /// Credit of messages that the app has received: not given back yet.
    owed: u32,
}

impl WebSocket {
    pub fn is_over(&self) -> bool {
        matches!(self.phase, WebSocketPhase::Over(_))
    }

    pub fn is_open(&self) -> bool {
        self.phase == WebSocketPhase::Open
    }

    /// Whether `receive` has something although nothing comes.
    pub fn has_message(&self) -> bool {
        !self.is_told || self.is_over()
    }

    /// Returns the next event for the app; `next` returns the next message that has come. None: the app has to wait.
    pub fn receive(&mut self, next: impl FnOnce() -> Option<Payload>, is_gone: bool) -> Option<ClientEvent> {
        if !std::mem::replace(&mut self.is_told, true) {
            return Some(ClientEvent::Connect);
        }
        match next() {
            Some(payload) if payload.form == CLOSE => {
                let (code, reason) = websocket::read_close(payload.body());
                self.lose(code, reason);
            }
            Some(payload) => {
                self.owed += credit_of(payload.bytes_total());
                return Some(ClientEvent::Message(payload));
            }
            None if is_gone => self.lose(code::LOST, ""),
            None => {}
        }
        match &self.phase {
            WebSocketPhase::Over(over) => {
                Some(ClientEvent::Disconnect { code: over.code, reason: over.reason.clone() })
            }
            _ => None,
        }
    }

    /// Credit that is to be given back now.
    pub fn due(&mut self) -> Option<u32> {
        (self.owed >= GIVE_BACK).then(|| std::mem::take(&mut self.owed))
    }

    /// The conversation has ended, and not by the app.
    fn lose(&mut self, code: u16, reason: &str) {
        if !self.is_over() {
            self.phase = WebSocketPhase::Over(Over { code, reason: reason.to_owned(), by_app: false });
        }
    }

    /// The worker is to end, and so is the conversation. What its client is told.
    pub fn restart(&mut self) -> Option<Payload> {
        if !self.is_open() {
            return None;
        }
        self.lose(code::RESTART, "restart");
        Some(Payload::new(CLOSE, websocket::close(code::RESTART, "restart")))
    }

    /// Takes an event that the app sends. `is_gone`: the client has gone.
    pub fn send(&mut self, said: AppEvent, is_gone: bool) -> Result<Action, Wrong> {
        let is_lost = is_gone || matches!(&self.phase, WebSocketPhase::Over(over) if !over.by_app);
        match (said, &self.phase) {
            // Whoever tidies up, or denies, need not know whether the client was faster.
            (AppEvent::Close { .. } | AppEvent::Start | AppEvent::Body, _) if is_lost => Ok(Action::Nothing),
            (AppEvent::Accept(_) | AppEvent::Message(_), _) if is_lost => Err(Wrong::Gone),
            (AppEvent::Accept(head), WebSocketPhase::Asked) => {
                self.phase = WebSocketPhase::Open;
                Ok(Action::Open(head))
            }
            (AppEvent::Message(payload), WebSocketPhase::Open) => Ok(Action::Send(payload)),
            (AppEvent::Close { code, reason }, WebSocketPhase::Asked | WebSocketPhase::Open) => {
                Ok(Action::Send(self.close(code, reason)))
            }
            (AppEvent::Start, WebSocketPhase::Asked) => {
                self.phase = WebSocketPhase::Denied;
                Ok(Action::Start)
            }
            (AppEvent::Body, WebSocketPhase::Denied) => Ok(Action::Body),
            (_, phase) => Err(Wrong::NotNow { allowed: phase.allowed() }),
        }
    }

    fn close(&mut self, code: u16, reason: String) -> Payload {
        let payload = match self.phase {
            WebSocketPhase::Open => Payload::new(CLOSE, websocket::close(code, &reason)),
            _ => refusal(),
        };
        self.phase = WebSocketPhase::Over(Over { code, reason, by_app: true });
        payload
    }
}

/// The answer to a handshake that the app closes.
fn refusal() -> Payload {
    let mut head = Vec::new();
    put_response(&mut head, response_flag::WHOLE, 403).put(b"content-length", b"0");
    Payload::new(HEAD, head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::TEXT;

    fn text(text: &str) -> Payload {
        Payload::new(TEXT, text.as_bytes().to_vec())
    }

    fn end(code: u16) -> Payload {
        Payload::new(CLOSE, websocket::close(code, ""))
    }

    fn opened() -> WebSocket {
        let mut socket = WebSocket::default();
        assert!(matches!(socket.receive(|| None, false), Some(ClientEvent::Connect)));
        assert!(matches!(socket.send(AppEvent::Accept(text("head")), false), Ok(Action::Open(_))));
        socket
    }

    fn close(code: u16) -> AppEvent {
        AppEvent::Close { code, reason: String::new() }
    }

    #[test]
    fn a_conversation_that_the_client_ends() {
        let mut socket = opened();
        assert!(socket.receive(|| None, false).is_none(), "it waits");
        assert!(matches!(socket.receive(|| Some(text("a")), false), Some(ClientEvent::Message(_))));
        assert!(matches!(socket.send(AppEvent::Message(text("b")), false), Ok(Action::Send(_))));
        for _ in 0..2 {
            let heard = socket.receive(|| Some(end(4001)), false);
            assert!(matches!(heard, Some(ClientEvent::Disconnect { code: 4001, .. })));
        }
        assert!(matches!(socket.send(AppEvent::Message(text("c")), false), Err(Wrong::Gone)));
        assert!(matches!(socket.send(close(1000), false), Ok(Action::Nothing)), "tidying up is no mistake");
    }

    #[test]
    fn a_handshake_is_answered_once() {
        let mut socket = WebSocket::default();
        assert!(matches!(socket.send(AppEvent::Message(text("a")), false), Err(Wrong::NotNow { .. })));
        assert!(matches!(socket.send(AppEvent::Start, false), Ok(Action::Start)));
        assert!(matches!(socket.send(AppEvent::Body, false), Ok(Action::Body)));
        assert!(matches!(socket.send(AppEvent::Accept(text("head")), false), Err(Wrong::NotNow { .. })));
        let mut socket = WebSocket::default();
        let Ok(Action::Send(refusal)) = socket.send(close(1000), false) else { panic!("it is refused") };
        assert_eq!(refusal.form, HEAD, "by a response, for nothing is open");
        let mut socket = opened();
        let Ok(Action::Send(last)) = socket.send(close(4000), false) else { panic!("it is closed") };
        assert_eq!(websocket::read_close(last.body()), (4000, ""));
        assert!(matches!(socket.send(close(4000), false), Err(Wrong::NotNow { .. })), "a mistake of its own");
    }

    #[test]
    fn a_worker_that_is_to_end_says_so_to_both_sides() {
        let mut socket = WebSocket::default();
        assert!(socket.restart().is_none(), "nothing is open");
        let mut socket = opened();
        let last = socket.restart().expect("the client is told");
        assert_eq!(websocket::read_close(last.body()), (code::RESTART, "restart"));
        assert!(matches!(socket.receive(|| None, false), Some(ClientEvent::Disconnect { code: code::RESTART, .. })));
        assert!(socket.restart().is_none(), "once");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Accept,
        Message,
        Close(u16),
        Start,
        Body,
        Receive(Option<usize>),
        End(u16),
        Restart,
        Gone,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Accept),
            Just(Step::Message),
            (3000_u16..5000).prop_map(Step::Close),
            Just(Step::Start),
            Just(Step::Body),
            prop::option::of(0_usize..300_000).prop_map(Step::Receive),
            (3000_u16..5000).prop_map(Step::End),
            Just(Step::Restart),
            Just(Step::Gone),
        ]
    }

    proptest! {
        /// Whatever comes in whatever order: one answer to the handshake, one end, and no credit that is lost.
        #[test]
        fn one_beginning_and_one_end(steps in prop::collection::vec(step(), 0..40)) {
            let mut socket = WebSocket::default();
            let (mut answers, mut lasts, mut is_gone) = (0, 0, false);
            let (mut taken, mut given) = (0, 0);
            let mut disconnected = None;
            for step in steps {
                let was_open = socket.is_open();
                let said = match step {
                    Step::Accept => Some(AppEvent::Accept(text("head"))),
                    Step::Message => Some(AppEvent::Message(text("m"))),
                    Step::Close(code) => Some(close(code)),
                    Step::Start => Some(AppEvent::Start),
                    Step::Body => Some(AppEvent::Body),
                    _ => None,
                };
                if let Some(said) = said {
                    match socket.send(said, is_gone) {
                        Ok(Action::Open(_) | Action::Start) => answers += 1,
                        Ok(Action::Send(payload)) if payload.form == HEAD => answers += 1,
                        Ok(Action::Send(payload)) if payload.form == CLOSE => lasts += 1,
                        Ok(Action::Send(_)) => prop_assert!(was_open, "messages are of a conversation"),
                        Ok(Action::Nothing) => prop_assert!(is_gone || socket.is_over()),
                        Ok(Action::Body) | Err(_) => {}
                    }
                    continue;
                }
                let heard = match step {
                    Step::Receive(size) => socket.receive(|| size.map(|size| text(&"x".repeat(size))), is_gone),
                    Step::End(code) => socket.receive(|| Some(end(code)), is_gone),
                    Step::Restart => {
                        lasts += i32::from(socket.restart().is_some());
                        None
                    }
                    _ => {
                        is_gone = true;
                        None
                    }
                };
                match heard {
                    Some(ClientEvent::Message(payload)) => taken += credit_of(payload.bytes_total()),
                    Some(ClientEvent::Disconnect { code, .. }) => {
                        prop_assert!(socket.is_over());
                        prop_assert_eq!(*disconnected.get_or_insert(code), code, "the first end stays");
                    }
                    Some(ClientEvent::Connect) | None => {}
                }
                given += socket.due().unwrap_or(0);
                prop_assert!(given <= taken && taken - given < GIVE_BACK);
            }
            prop_assert!(answers <= 1 && lasts <= 1);
        }
    }
}
