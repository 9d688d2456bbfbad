//! From what came of a request to what its client gets.

use bytes::Bytes;
use clutch_pool::pool::{Exchange, Part};
use clutch_pool::work::{Outcome, Refusal, Where};
use clutch_wire::{Codec, Failure, Payload};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::body::{AppBody, Pauses, Produced, Silence, bytes_of};
use crate::account::Fate;
use crate::account::figures::{End, Open};
use crate::app::http1::is_of_connection;
use crate::body::problem::RETRY_AFTER_S;
use crate::codec::HEAD;
use crate::codec::http::{self, ResponseHead, credit_of, response_flag};
use crate::held::news::Verdict;

/// The response that the first part of an answer makes. `front`: its name.
/// `occupy`: counts an event stream, which has a slot.
pub(super) fn of(
    first: Part,
    mut exchange: Exchange,
    silence: Option<Silence>,
    front: &str,
    occupy: impl FnOnce() -> Open,
) -> Response<AppBody> {
    match first {
        Part::End(Outcome::Value(payload)) if payload.form == HEAD => match read(payload) {
            Some((mut response, _, body)) => {
                *response.body_mut() = AppBody::from(body);
                response
            }
            None => plain(StatusCode::INTERNAL_SERVER_ERROR),
        },
        Part::Chunk(payload) if payload.form == HEAD => {
            exchange.head_came();
            let owed = credit_of(payload.bytes_total());
            match read(payload) {
                Some((mut response, is_whole, body)) => {
                    *response.body_mut() = if is_whole {
                        exchange.answered();
                        AppBody::from(body)
                    } else {
                        // Events come when there are some.
                        let open = is_event_stream(&response).then(|| {
                            exchange.mark_endless();
                            occupy()
                        });
                        let pauses = match open {
                            Some(open) => Pauses::Endless(open),
                            None => silence.map_or(Pauses::Finite, Pauses::Limited),
                        };
                        let length = response.headers().get(CONTENT_LENGTH).and_then(length);
                        AppBody::Produced(Box::new(Produced::new(exchange, body, length, owed, pauses)))
                    };
                    response
                }
                None => {
                    exchange.stop();
                    plain(StatusCode::INTERNAL_SERVER_ERROR)
                }
            }
        }
        Part::End(Outcome::Failure(failure)) => of_failure(&failure),
        Part::End(Outcome::Refused(refusal)) => of_refusal(&refusal, front),
        Part::End(Outcome::Value(_)) | Part::Chunk(_) => plain(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// The route by which the app's framework found what answers, where it has told it.
pub(super) fn route_of(first: &Part) -> Option<&[u8]> {
    let (Part::Chunk(payload) | Part::End(Outcome::Value(payload))) = first else { return None };
    if payload.form == HEAD { http::route_of(&payload.inline) } else { None }
}

/// The head by which an app accepts a WebSocket; none: it says anything else.
pub(super) fn accepted(first: &Part) -> Option<Response<AppBody>> {
    let Part::Chunk(payload) = first else { return None };
    let is_head = payload.form == HEAD && payload.leases.is_empty();
    let (answer, ..) = is_head.then(|| read(payload.clone())).flatten()?;
    (answer.status() == StatusCode::SWITCHING_PROTOCOLS).then_some(answer)
}

/// Whether the worker that accepts a WebSocket reads and writes its socket itself.
pub(super) fn is_spoken_by_worker(first: &Part) -> bool {
    let Part::Chunk(payload) = first else { return false };
    payload.form == HEAD && payload.body().first().is_some_and(|flags| flags & response_flag::SPEAKS != 0)
}

/// Head, whether the body is whole, and the body or its first part. None: the worker wrote what is no response.
fn read(payload: Payload) -> Option<(Response<AppBody>, bool, Bytes)> {
    let inline = Bytes::from(payload.inline);
    let (head, rest) = ResponseHead::read(&inline).ok()?;
    let mut response = Response::new(AppBody::Whole(None));
    *response.status_mut() = StatusCode::from_u16(head.status).ok()?;
    // Of HTTP/1: what is not the usual one, and nothing where there is none.
    if !head.reason.is_empty() || response.status().canonical_reason().is_none() {
        response.extensions_mut().insert(ReasonPhrase::try_from(inline.slice_ref(head.reason)).ok()?);
    }
    let headers = response.headers_mut();
    headers.try_reserve(head.headers.len()).ok()?;
    for (name, value) in head.headers.iter() {
        if is_of_connection(name, value) {
            continue;
        }
        // Spaces around a value are not part of it, and over HTTP/2 an error (RFC 9113, 8.2.1); Django's cookies begin with one.
        let value = HeaderValue::from_maybe_shared(inline.slice_ref(value.trim_ascii())).ok()?;
        headers.try_append(HeaderName::from_bytes(name).ok()?, value).ok()?;
    }
    let is_whole = head.flags & response_flag::WHOLE != 0;
    let body = match payload.leases.is_empty() {
        true => inline.slice_ref(rest),
        false => bytes_of(Payload { leases: payload.leases, ..Payload::new(Codec::Bytes, Vec::new()) }),
    };
    Some((response, is_whole, body))
}

fn length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// Events come for as long as somebody listens.
fn is_event_stream(response: &Response<AppBody>) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|value| http::is_event_stream(value.as_bytes()))
}

/// The body that says no more than the status.
pub(super) fn body_of(status: StatusCode) -> String {
    format!("{}\n", status.canonical_reason().unwrap_or("Error"))
}

pub(super) fn plain(status: StatusCode) -> Response<AppBody> {
    let mut response = Response::new(AppBody::from(Bytes::from(body_of(status))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

pub(super) fn later(status: StatusCode) -> Response<AppBody> {
    let mut response = plain(status);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
    response
}

/// Nobody hears it.
pub(super) fn gone(response: Response<AppBody>) -> Response<AppBody> {
    with_fate(response, End::ClientGone, "client-gone", None)
}

/// No app sees its request.
pub(super) fn refused(response: Response<AppBody>, reason: &'static str) -> Response<AppBody> {
    with_fate(response, End::Refused, reason, None)
}

pub(super) fn with_fate(
    mut response: Response<AppBody>,
    end: End,
    reason: &'static str,
    warning: Option<String>,
) -> Response<AppBody> {
    response.extensions_mut().insert(Fate { end, reason, warning });
    response
}

fn timed_out(words: Option<String>) -> Response<AppBody> {
    with_fate(plain(StatusCode::GATEWAY_TIMEOUT), End::Timeout, "timeout", words)
}

/// What the client of a request is told that has ended without a response. None: its time was over.
pub(super) fn verdict(outcome: Option<&Outcome>, front: &str) -> Verdict {
    let mut response = match outcome {
        None => timed_out(None),
        Some(Outcome::Failure(failure)) => of_failure(failure),
        Some(Outcome::Refused(refusal)) => of_refusal(refusal, front),
        Some(Outcome::Value(_)) => plain(StatusCode::INTERNAL_SERVER_ERROR),
    };
    Verdict { status: response.status(), fate: response.extensions_mut().remove() }
}

fn of_failure(failure: &Failure) -> Response<AppBody> {
    let words = || Some(failure.to_string());
    match failure {
        Failure::Config { .. } | Failure::WorkerLost { worker_pid: 0, .. } => {
            with_fate(later(StatusCode::SERVICE_UNAVAILABLE), End::Refused, "failing", words())
        }
        // The pool tells of each death itself, with what was running.
        Failure::WorkerLost { .. } => with_fate(plain(StatusCode::BAD_GATEWAY), End::WorkerLost, "worker-lost", None),
        Failure::Poisoned { .. } => {
            with_fate(plain(StatusCode::INTERNAL_SERVER_ERROR), End::Refused, "poisoned", words())
        }
        _ => plain(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn of_refusal(refusal: &Refusal, front: &str) -> Response<AppBody> {
    match refusal {
        Refusal::Expired(expired) if expired.at == Where::Running => {
            let stacks = &expired.stacks;
            let words =
                format!("{expired}, and had not begun its response (--timeout, fronts.{front}.timeout)\n{stacks}");
            timed_out(Some(words.trim_end().to_owned()))
        }
        Refusal::Expired(expired) => {
            let words = format!("{expired} (--timeout, fronts.{front}.timeout)");
            with_fate(later(StatusCode::SERVICE_UNAVAILABLE), End::Refused, "queue-timeout", Some(words))
        }
        // Not for now: whoever asks again gets another one that somebody may not want.
        Refusal::Cancelled => {
            let words = Some("a request was cancelled by command; its client got 500".to_owned());
            with_fate(plain(StatusCode::INTERNAL_SERVER_ERROR), End::Refused, "cancelled", words)
        }
        refusal => {
            let why = match refusal {
                // The words of a closed pool are for programs.
                Refusal::Closed { .. } => "the server was stopped before a worker had taken it".to_owned(),
                refusal => refusal.to_string(),
            };
            let words = format!("a request was refused with 503: {why}");
            with_fate(later(StatusCode::SERVICE_UNAVAILABLE), End::Refused, reason_of(refusal), Some(words))
        }
    }
}

fn reason_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Overloaded { .. } => "overloaded",
        Refusal::Draining { .. } | Refusal::Closed { .. } => "draining",
        Refusal::Failing { .. } => "failing",
        Refusal::Cancelled => "cancelled",
        Refusal::Expired(_) => "queue-timeout",
    }
}

/// Makes the refusal for a connection that has as many streams at work as it may have.
pub(super) fn too_many_streams(front: &str) -> Response<AppBody> {
    let words = format!(
        "fronts.{front}.streams_max: a request was refused with 503: its connection has as many at work, those that it \
         has reset among them"
    );
    with_fate(later(StatusCode::SERVICE_UNAVAILABLE), End::Refused, "streams", Some(words))
}

/// Makes the refusal for a request for which this process has no descriptor left.
pub(super) fn no_descriptor(front: &str) -> Response<AppBody> {
    let words = format!(
        "fronts.{front}: a request that asks for another protocol was refused with 503: this process has all the \
         descriptors that it may have (ulimit -n)"
    );
    with_fate(later(StatusCode::SERVICE_UNAVAILABLE), End::Refused, "descriptors", Some(words))
}

/// Makes the answer where an app has written something else than a response on its socket.
pub(super) fn wrong_words(front: &str, why: &str) -> Response<AppBody> {
    let words = format!("fronts.{front}: a client got 500: {why}");
    with_fate(plain(StatusCode::INTERNAL_SERVER_ERROR), End::BrokenOff, "socket", Some(words))
}

/// The whole response, for a connection on which HTTP is not spoken any further. `is_head`: in answer to HEAD, without its body.
pub(super) fn last_words(status: StatusCode, is_head: bool) -> Vec<u8> {
    let body = body_of(status);
    let reason = status.canonical_reason().unwrap_or("Error");
    let later = match status {
        StatusCode::SERVICE_UNAVAILABLE => format!("retry-after: {RETRY_AFTER_S}\r\n"),
        _ => String::new(),
    };
    format!(
        "HTTP/1.1 {} {reason}\r\n{later}content-type: text/plain; charset=utf-8\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{}",
        status.as_u16(),
        body.len(),
        if is_head { "" } else { &body },
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_when_the_server_stops_is_refused_for_that() {
        let closed = Refusal::Closed { pool: "web".to_owned() };
        let Verdict { status, fate } = verdict(Some(&Outcome::Refused(closed)), "serve");
        let warning = fate.and_then(|fate| fate.warning).expect("a warning");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(warning.contains("503: the server was stopped"), "{warning}");
    }
}
