//! The messages of a WebSocket as Python has them.

use clutch_fronts::app::response::Head;
use clutch_fronts::app::websocket::{AppEvent, ClientEvent, Wrong};
use clutch_fronts::codec::websocket::{self, REASON_BYTES_MAX, code};
use clutch_fronts::codec::{HEAD, TEXT};
use clutch_wire::{Codec, Form, Payload};
use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::messages::{given, header_lines};
use crate::handlers::http::{misuse, misused};

/// The message that `receive` returns.
pub fn message_of(py: Python<'_>, heard: ClientEvent) -> PyResult<Py<PyAny>> {
    let message = PyDict::new(py);
    let kind = intern!(py, "type");
    match heard {
        ClientEvent::Connect => message.set_item(kind, intern!(py, "websocket.connect"))?,
        ClientEvent::Message(payload) => {
            message.set_item(kind, intern!(py, "websocket.receive"))?;
            match payload.form {
                TEXT => message.set_item(intern!(py, "text"), text(py, payload.body()))?,
                _ => message.set_item(intern!(py, "bytes"), PyBytes::new(py, payload.body()))?,
            }
        }
        ClientEvent::Disconnect { code, reason } => {
            message.set_item(kind, intern!(py, "websocket.disconnect"))?;
            message.set_item(intern!(py, "code"), code)?;
            message.set_item(intern!(py, "reason"), reason)?;
        }
    }
    Ok(message.into_any().unbind())
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    PyString::new(py, &String::from_utf8_lossy(bytes))
}

/// Returns the error that is raised in the app.
pub fn raised(wrong: Wrong, kind: &str) -> PyErr {
    match wrong {
        Wrong::Gone => PyOSError::new_err("the client has gone"),
        Wrong::NotNow { allowed } => misuse(format!("{kind} is not allowed now; allowed: {allowed}")),
    }
}

/// Reads a message of this kind; `payload` makes one of a message's content. `is_open`: the client would be told how a
/// conversation is closed. None: the message is not for a WebSocket.
pub fn said_by(
    kind: &str,
    message: &Bound<'_, PyDict>,
    is_open: bool,
    payload: impl Fn(Form, &[u8]) -> PyResult<Payload>,
) -> PyResult<Option<AppEvent>> {
    Ok(Some(match kind {
        "websocket.send" => AppEvent::Message(content(message, payload)?),
        "websocket.accept" => AppEvent::Accept(accept(message)?),
        "websocket.close" if !is_open => AppEvent::Close { code: code::NORMAL, reason: String::new() },
        "websocket.close" => close(message)?,
        "websocket.http.response.start" => AppEvent::Start,
        "websocket.http.response.body" => AppEvent::Body,
        _ => return Ok(None),
    }))
}

fn content(message: &Bound<'_, PyDict>, payload: impl Fn(Form, &[u8]) -> PyResult<Payload>) -> PyResult<Payload> {
    let py = message.py();
    if let Some(bytes) = given(message, intern!(py, "bytes"))? {
        return crate::buffer::bytes_of(&bytes, |bytes| payload(Codec::Bytes.into(), bytes))?;
    }
    match given(message, intern!(py, "text"))? {
        Some(text) => payload(TEXT, text.cast::<PyString>()?.to_str()?.as_bytes()),
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
    let head = Head::accepting(headers.chain(chosen)).map_err(misused)?;
    Ok(Payload::new(HEAD, head))
}

/// Only of an open conversation are code and reason sent, and so checked: apps that refuse a handshake give what they
/// have, as FastAPI does, whose reason is a list of errors.
fn close(message: &Bound<'_, PyDict>) -> PyResult<AppEvent> {
    let py = message.py();
    let code = given(message, intern!(py, "code"))?.map_or(Ok(code::NORMAL), |code| code.extract())?;
    let reason = given(message, intern!(py, "reason"))?.map_or(Ok(String::new()), |reason| {
        reason.extract().map_err(|_| {
            let kind = reason.get_type().name().map_or_else(|_| "an unknown type".to_owned(), |name| name.to_string());
            misuse(format!("the reason of a websocket.close is a str, not {kind}"))
        })
    })?;
    if !websocket::may_be_sent(code) {
        return Err(misuse(format!(
            "a WebSocket cannot be closed with the code {code}; allowed: 1000-1003, 1007-1014, 3000-4999"
        )));
    }
    if reason.len() > REASON_BYTES_MAX {
        return Err(misuse(format!("a reason of {} bytes; {REASON_BYTES_MAX} are allowed", reason.len())));
    }
    Ok(AppEvent::Close { code, reason })
}
