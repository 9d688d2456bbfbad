//! A WebSocket of an ASGI app: how far its conversation has come, and its messages as Python has them.
//!
//! The machine is pure, and no Python runs while it is asked: it is also told by the thread that hears of a drain.

use clutch_core::wire::http::{credit_of, put_response, response_flag};
use clutch_core::wire::websocket::{self, GIVE_BACK, REASON_BYTES_MAX, code};
use clutch_core::work::{Codec, Payload};
use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::asgi::header_lines;
use super::awaiting::misuse;
use super::response::Head;

/// Why a conversation is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    code: u16,
    reason: String,
    /// The app has closed it itself: what it sends now is a mistake of its own.
    by_app: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The app has not decided yet.
    #[default]
    Asked,
    Open,
    /// The app answers with a response in place of the conversation.
    Denied,
    Over(Over),
}

impl Phase {
    /// What the app may send, for the text of its mistakes.
    fn allowed(&self) -> &'static str {
        match self {
            Phase::Asked => "websocket.accept, websocket.close, websocket.http.response.start",
            Phase::Open => "websocket.send, websocket.close",
            Phase::Denied => "websocket.http.response.body",
            Phase::Over(_) => "nothing, for the WebSocket is closed",
        }
    }
}

/// What an app sends.
pub enum Said {
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

/// What is to be done with it.
pub enum Deed {
    Nothing,
    /// It is open from now on.
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

/// What an app receives.
pub enum Heard {
    Connect,
    Message(Payload),
    Disconnect { code: u16, reason: String },
}

/// One WebSocket in a worker.
#[derive(Debug, Default)]
pub struct WebSocket {
    phase: Phase,
    /// The app has received `websocket.connect`.
    is_told: bool,
    /// Credit of messages that the app has received: not given back yet.
    owed: u32,
}

impl WebSocket {
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether `receive` has something although nothing comes.
    pub fn has_message(&self) -> bool {
        !self.is_told || self.is_over()
    }

    /// What the app receives now, `next` being what has come; none: it has to wait.
    pub fn receive(&mut self, next: impl FnOnce() -> Option<Payload>, is_gone: bool) -> Option<Heard> {
        if !std::mem::replace(&mut self.is_told, true) {
            return Some(Heard::Connect);
        }
        match next() {
            Some(payload) if payload.codec == Codec::Close => {
                let (code, reason) = websocket::read_close(payload.body());
                self.lose(code, reason);
            }
            Some(payload) => {
                self.owed += credit_of(payload.bytes_total());
                return Some(Heard::Message(payload));
            }
            None if is_gone => self.lose(code::LOST, ""),
            None => {}
        }
        match &self.phase {
            Phase::Over(over) => Some(Heard::Disconnect { code: over.code, reason: over.reason.clone() }),
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
            self.phase = Phase::Over(Over { code, reason: reason.to_owned(), by_app: false });
        }
    }

    /// The worker is to end, and so is the conversation. What its client is told.
    pub fn restart(&mut self) -> Option<Payload> {
        if !self.is_open() {
            return None;
        }
        self.lose(code::RESTART, "restart");
        Some(Payload::new(Codec::Close, websocket::close(code::RESTART, "restart")))
    }

    /// What the app sends. `is_gone`: the client is.
    pub fn send(&mut self, said: Said, is_gone: bool) -> Result<Deed, Wrong> {
        let is_lost = is_gone || matches!(&self.phase, Phase::Over(over) if !over.by_app);
        match (said, &self.phase) {
            // Whoever tidies up, or denies, need not know whether the client was faster.
            (Said::Close { .. } | Said::Start | Said::Body, _) if is_lost => Ok(Deed::Nothing),
            (Said::Accept(_) | Said::Message(_), _) if is_lost => Err(Wrong::Gone),
            (Said::Accept(head), Phase::Asked) => {
                self.phase = Phase::Open;
                Ok(Deed::Open(head))
            }
            (Said::Message(payload), Phase::Open) => Ok(Deed::Send(payload)),
            (Said::Close { code, reason }, Phase::Asked | Phase::Open) => Ok(Deed::Send(self.close(code, reason))),
            (Said::Start, Phase::Asked) => {
                self.phase = Phase::Denied;
                Ok(Deed::Start)
            }
            (Said::Body, Phase::Denied) => Ok(Deed::Body),
            (_, phase) => Err(Wrong::NotNow { allowed: phase.allowed() }),
        }
    }

    fn close(&mut self, code: u16, reason: String) -> Payload {
        let payload = match self.phase {
            Phase::Open => Payload::new(Codec::Close, websocket::close(code, &reason)),
            _ => refusal(),
        };
        self.phase = Phase::Over(Over { code, reason, by_app: true });
        payload
    }
}

/// The answer to a handshake that the app closes.
fn refusal() -> Payload {
    let mut head = Vec::new();
    put_response(&mut head, response_flag::WHOLE, 403).put(b"content-length", b"0");
    Payload::new(Codec::Http, head)
}

// ---- as Python has it

impl Heard {
    /// The message that `receive` returns.
    pub fn message(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let message = PyDict::new(py);
        let kind = intern!(py, "type");
        match self {
            Heard::Connect => message.set_item(kind, intern!(py, "websocket.connect"))?,
            Heard::Message(payload) => {
                message.set_item(kind, intern!(py, "websocket.receive"))?;
                match payload.codec {
                    Codec::Text => message.set_item(intern!(py, "text"), text(py, payload.body()))?,
                    _ => message.set_item(intern!(py, "bytes"), PyBytes::new(py, payload.body()))?,
                }
            }
            Heard::Disconnect { code, reason } => {
                message.set_item(kind, intern!(py, "websocket.disconnect"))?;
                message.set_item(intern!(py, "code"), code)?;
                message.set_item(intern!(py, "reason"), reason)?;
            }
        }
        Ok(message.into_any().unbind())
    }
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    PyString::new(py, &String::from_utf8_lossy(bytes))
}

impl Wrong {
    pub fn raised(self, kind: &str) -> PyErr {
        match self {
            Wrong::Gone => PyOSError::new_err("the client has gone"),
            Wrong::NotNow { allowed } => misuse(format!("{kind} is not for now; allowed: {allowed}")),
        }
    }
}

impl Said {
    /// What a message of this kind says; `payload` makes one of a message's content. None: it is not for a WebSocket.
    pub fn of(
        kind: &str,
        message: &Bound<'_, PyDict>,
        payload: impl Fn(Codec, &[u8]) -> PyResult<Payload>,
    ) -> PyResult<Option<Said>> {
        Ok(Some(match kind {
            "websocket.send" => Said::Message(content(message, payload)?),
            "websocket.accept" => Said::Accept(accept(message)?),
            "websocket.close" => close(message)?,
            "websocket.http.response.start" => Said::Start,
            "websocket.http.response.body" => Said::Body,
            _ => return Ok(None),
        }))
    }
}

fn content(message: &Bound<'_, PyDict>, payload: impl Fn(Codec, &[u8]) -> PyResult<Payload>) -> PyResult<Payload> {
    let py = message.py();
    if let Some(bytes) = given(message, intern!(py, "bytes"))? {
        return crate::buffer::bytes_of(&bytes, |bytes| payload(Codec::Bytes, bytes))?;
    }
    match given(message, intern!(py, "text"))? {
        Some(text) => payload(Codec::Text, text.cast::<PyString>()?.to_str()?.as_bytes()),
        None => Err(misuse("websocket.send has neither bytes nor text")),
    }
}

fn accept(message: &Bound<'_, PyDict>) -> PyResult<Payload> {
    let py = message.py();
    let given_headers = header_lines(message)?;
    let subprotocol = given(message, intern!(py, "subprotocol"))?;
    let subprotocol: Option<String> = subprotocol.map(|name| name.extract()).transpose()?;
    let headers = given_headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let chosen = subprotocol.iter().map(|name| (&b"sec-websocket-protocol"[..], name.as_bytes()));
    let head = Head::accepting(headers.chain(chosen)).map_err(super::misused)?;
    Ok(Payload::new(Codec::Http, head))
}

fn close(message: &Bound<'_, PyDict>) -> PyResult<Said> {
    let py = message.py();
    let code = given(message, intern!(py, "code"))?.map_or(Ok(code::NORMAL), |code| code.extract())?;
    let reason: Option<String> = given(message, intern!(py, "reason"))?.map(|reason| reason.extract()).transpose()?;
    let reason = reason.unwrap_or_default();
    if !websocket::may_be_sent(code) {
        return Err(misuse(format!(
            "a WebSocket cannot be closed with the code {code}; allowed: 1000-1003, 1007-1014, 3000-4999"
        )));
    }
    if reason.len() > REASON_BYTES_MAX {
        return Err(misuse(format!("a reason of {} bytes; {REASON_BYTES_MAX} are allowed", reason.len())));
    }
    Ok(Said::Close { code, reason })
}

/// An item of a message; none where it is missing or None.
fn given<'py>(message: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(message.get_item(name)?.filter(|value| !value.is_none()))
}
