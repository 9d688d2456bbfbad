//! Errors as callers over HTTP see them: RFC 9457 problem documents, each with a type that programs can tell apart.
//!
//! docs/http.md lists the types. What only users of this machine may know (tracebacks, a worker's output, stacks) is in
//! the document when the front listens on loopback or on a unix socket, and left out elsewhere.

use std::borrow::Cow;
use std::fmt::Display;

use clutch_pool::work::{Expired, Refusal};
use clutch_wire::Failure;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::account::Fate;
use crate::account::figures::End;
use crate::body::Body;
use crate::net::accept::Shortage;
use crate::net::sessions::FAILURES_WITHIN;

/// Prefix of each type's name.
const TYPE_PREFIX: &str = "urn:clutch:";

/// Seconds that a client is told to wait which was refused for now.
pub(crate) const RETRY_AFTER_S: &str = "1";

/// A problem document and the header that goes with it.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: String,
    /// The same without its prefix, for the figures.
    #[serde(skip)]
    reason: &'static str,
    title: Cow<'static, str>,
    status: u16,
    detail: String,
    #[serde(flatten)]
    members: Map<String, Value>,
    #[serde(skip)]
    header: Option<(HeaderName, Cow<'static, str>)>,
    /// The document as a tool has written it, which is all of it. None: it has not.
    #[serde(skip)]
    own: Option<Vec<u8>>,
}

/// Members of a document that a tool has written; it may have others.
#[derive(Deserialize)]
struct OwnProblem {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    detail: String,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Display) -> Box<Problem> {
        Box::new(Problem {
            kind: format!("{TYPE_PREFIX}{kind}"),
            reason: kind,
            title: title.into(),
            status: status.as_u16(),
            detail: detail.to_string(),
            members: Map::new(),
            header: None,
            own: None,
        })
    }

    fn with(mut self: Box<Self>, name: &str, value: impl Into<Value>) -> Box<Self> {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// A member that is left out where it is empty, or where callers are not of this machine.
    fn with_local(self: Box<Self>, local: bool, name: &str, text: &str) -> Box<Self> {
        if local && !text.is_empty() { self.with(name, text) } else { self }
    }

    fn and_header(mut self: Box<Self>, name: HeaderName, value: impl Into<Cow<'static, str>>) -> Box<Self> {
        self.header = Some((name, value.into()));
        self
    }

    fn and_retry(self: Box<Self>) -> Box<Self> {
        self.and_header(RETRY_AFTER, RETRY_AFTER_S)
    }

    // ---- the request

    pub(crate) fn bad_request(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::BAD_REQUEST, "bad-request", "The request cannot be read", detail)
    }

    pub(crate) fn unauthorized() -> Box<Problem> {
        let detail = "this server requires the header Authorization: Bearer with a valid token";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "No valid token", detail)
            .and_header(WWW_AUTHENTICATE, "Bearer")
    }

    /// `remedy`: what allows it, where anything does.
    pub(crate) fn foreign_origin(remedy: &str) -> Box<Problem> {
        let detail = format!("pages of another origin may not call this server{remedy}");
        Problem::new(StatusCode::FORBIDDEN, "foreign-origin", "Not for web pages", detail)
    }

    pub(crate) fn wrong_host(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong-host", "The Host is not this server's", detail)
    }

    pub(crate) fn no_such_path(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::NOT_FOUND, "no-such-path", "No such path", detail)
    }

    pub(crate) fn no_such_pool(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::NOT_FOUND, "no-such-pool", "No such pool", detail)
    }

    pub(crate) fn no_such_tool(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::NOT_FOUND, "no-such-tool", "No such tool", detail)
    }

    pub(crate) fn method_not_allowed(allowed: impl Into<Cow<'static, str>>) -> Box<Problem> {
        let allowed = allowed.into();
        let detail = format!("this path takes {allowed}");
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
            .and_header(ALLOW, allowed)
    }

    pub(crate) fn unsupported_media_type(detail: impl Display) -> Box<Problem> {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Problem::new(status, "unsupported-media-type", "The body must be JSON", detail)
    }

    pub(crate) fn head_too_large(bytes_max: usize, headers_max: usize) -> Box<Problem> {
        let detail = format!("a head has {headers_max} lines and {bytes_max} bytes at most (head_max)");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Problem::new(status, "head-too-large", "The head is too large", detail)
    }

    /// A header that is passed on to tools.
    pub(crate) fn header_too_large(name: &str, bytes_max: usize) -> Box<Problem> {
        let detail = format!("the header {name} is longer than {bytes_max} bytes");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Problem::new(status, "head-too-large", "The head is too large", detail)
    }

    /// The token is limited to other pools.
    pub(crate) fn other_pools_only(pool: &str) -> Box<Problem> {
        let detail = format!("the token is not for pool '{pool}'");
        Problem::new(StatusCode::FORBIDDEN, "pool-not-allowed", "Not with this token", detail)
    }

    pub(crate) fn body_too_large(bytes_max: u64) -> Box<Problem> {
        let detail = format!("the body is longer than {bytes_max} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large", detail)
            .with("bytes_max", bytes_max)
    }

    pub(crate) fn body_too_slow(seconds: f64) -> Box<Problem> {
        let detail = format!("the body was not complete after {seconds} s");
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow", "The body took too long", detail)
    }

    // ---- operators

    pub(crate) fn not_an_operator() -> Box<Problem> {
        let detail = "this is for operators: come by a unix socket as the same user, or bring the token of a front that \
                      has one (token, token_file)";
        Problem::new(StatusCode::FORBIDDEN, "not-an-operator", "For operators only", detail)
    }

    pub(crate) fn too_many_sign_ins() -> Box<Problem> {
        let seconds = FAILURES_WITHIN.as_secs();
        let detail = format!(
            "too many sign-ins with a wrong token within {seconds} s, this one too; a valid token still signs in"
        );
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-sign-ins", "Too many failed sign-ins", detail)
            .and_header(RETRY_AFTER, seconds.to_string())
    }

    /// `kind`: as `no-such-job`.
    pub(crate) fn not_found(kind: &'static str, detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::NOT_FOUND, kind, "Not found", detail)
    }

    pub(crate) fn no_such_worker(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::NOT_FOUND, "no-such-worker", "No such worker", detail)
    }

    pub(crate) fn no_such_call(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::NOT_FOUND, "no-such-call", "No such call", detail)
    }

    /// An action that is understood and cannot be done.
    pub(crate) fn refused(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::CONFLICT, "refused", "It cannot be done", detail)
    }

    pub(crate) fn too_many_actions(most: usize) -> Box<Problem> {
        let detail = format!("{most} actions are under way, as many as may be; try again");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Too many actions at a time", detail).and_retry()
    }

    /// For a connection for which there is no place.
    pub(crate) fn no_place(shortage: Shortage) -> Box<Problem> {
        let detail = match shortage {
            Shortage::Connections => "the server has reached its limit of connections (connections_max)",
            Shortage::Descriptors => "the server has no descriptor left for the connection",
        };
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-connections", "Too many connections", detail)
            .and_retry()
    }

    // ---- the pool

    pub(crate) fn not_ready(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "The pool is not ready", detail).and_retry()
    }

    pub(crate) fn no_room(detail: impl Display) -> Box<Problem> {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-memory", "No shared memory for the body", detail).and_retry()
    }

    /// A worker's answer that a network front cannot pass on: a bug of this software.
    pub(crate) fn not_json() -> Box<Problem> {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "encode", "The result cannot be encoded", "it is not JSON")
    }

    /// The problem that a tool has described itself (`clutch.HttpProblem`), passed on as it is written: to read it would
    /// round large numbers, and bound how deep its members are. None: it has not.
    fn own(document: &[u8]) -> Option<Box<Problem>> {
        let OwnProblem { kind, title, status, detail } = serde_json::from_slice(document).ok()?;
        let (reason, title, own) = ("raised", title.into(), Some(document.to_vec()));
        let problem = Problem { kind, reason, title, status, detail, members: Map::new(), header: None, own };
        (400..600).contains(&status).then(|| Box::new(problem))
    }

    /// Describes a failure of the work to its caller.
    pub(crate) fn of_failure(failure: &Failure, local: bool) -> Box<Problem> {
        use StatusCode as Status;
        if let Failure::Raised { problem, .. } = failure
            && let Some(own) = Problem::own(problem)
        {
            return own;
        }
        match failure {
            Failure::Raised { type_name, message, traceback, .. } => {
                Problem::new(Status::INTERNAL_SERVER_ERROR, "raised", "The tool raised an exception", failure)
                    .with("type_name", type_name.as_str())
                    .with("message", message.as_str())
                    .with_local(local, "traceback", traceback)
            }
            Failure::Encode { type_name, message, traceback } => {
                Problem::new(Status::INTERNAL_SERVER_ERROR, "encode", "The result cannot be encoded", failure)
                    .with("type_name", type_name.as_str())
                    .with("message", message.as_str())
                    .with_local(local, "traceback", traceback)
            }
            Failure::BadArguments { message, detail } => {
                Problem::new(Status::UNPROCESSABLE_ENTITY, "bad-arguments", "The arguments do not fit", message)
                    .with("problems", problems(detail))
            }
            Failure::NoSuchTool { message } => Problem::no_such_tool(message),
            Failure::Config { message } | Failure::WorkerLost { message, worker_pid: 0, .. } => {
                Problem::failing(message).and_retry()
            }
            Failure::WorkerLost { message, worker_pid, signal, exit_code, output, cause } => {
                Problem::new(Status::BAD_GATEWAY, "worker-lost", "The worker died", message)
                    .with("pid", *worker_pid)
                    .with("signal", *signal)
                    .with("exit_code", *exit_code)
                    .with("cause", cause.as_deref())
                    .with_local(local, "output", output)
            }
            Failure::Poisoned { message, deaths } => {
                Problem::new(Status::INTERNAL_SERVER_ERROR, "poisoned", "The call has killed its workers", message)
                    .with("deaths", *deaths)
            }
            Failure::Expired(expired) => Problem::expired(expired, local),
        }
    }

    /// Describes why work was not taken, or not run to its end.
    pub(crate) fn of_refusal(refusal: &Refusal, local: bool) -> Box<Problem> {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        match refusal {
            Refusal::Overloaded { .. } => {
                Problem::new(unavailable, "overloaded", "The pool is full", refusal).and_retry()
            }
            Refusal::Draining { .. } | Refusal::Closed { .. } => {
                Problem::new(unavailable, "draining", "The pool takes no more work", refusal).and_retry()
            }
            Refusal::Cancelled => Problem::new(unavailable, "cancelled", "The call was cancelled", refusal),
            Refusal::Failing { reason, .. } => Problem::failing(reason).and_retry(),
            Refusal::Expired(expired) => Problem::expired(expired, local),
        }
    }

    fn expired(expired: &Expired, local: bool) -> Box<Problem> {
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "deadline-exceeded", "The deadline passed", expired)
            .with("where", expired.at.as_str())
            .with_local(local, "stacks", &expired.stacks)
    }

    fn failing(reason: &str) -> Box<Problem> {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "config-error", "The pool cannot start its workers", reason)
    }

    // ---- out

    /// Returns the end of a request with this answer. An error of the tool itself counts as a whole answer.
    fn end(&self) -> End {
        match self.reason {
            "raised" | "encode" | "bad-arguments" => End::Whole,
            "worker-lost" => End::WorkerLost,
            "deadline-exceeded" => End::Timeout,
            _ => End::Refused,
        }
    }

    /// Returns the end of a stream whose last line this is, and why. An error that a tool raised in the middle broke it
    /// off.
    pub(crate) fn end_of_stream(&self) -> (End, &'static str) {
        let end = self.end();
        (if end == End::Whole { End::BrokenOff } else { end }, self.reason)
    }

    /// Whether the fault is the caller's, by the word of the tool itself.
    pub(crate) fn is_of_caller(&self) -> bool {
        self.status < 500
    }

    pub(crate) fn document(&self) -> Vec<u8> {
        // Strings and JSON values always serialise.
        self.own.clone().unwrap_or_else(|| serde_json::to_vec(self).unwrap_or_default())
    }

    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.document()));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = &self.header {
            // All of them are visible ASCII.
            headers.extend(HeaderValue::from_str(value).ok().map(|value| (name.clone(), value)));
        }
        let (end, reason) = (self.end(), self.reason);
        if end != End::Whole {
            response.extensions_mut().insert(Fate { end, reason, warning: None });
        }
        response
    }

    /// The whole response, for a connection that HTTP is not spoken on any further.
    pub(crate) fn last_words(&self) -> Vec<u8> {
        let document = self.document();
        let title = StatusCode::from_u16(self.status).ok().and_then(|status| status.canonical_reason());
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, title.unwrap_or("Error"));
        if let Some((name, value)) = &self.header {
            head += &format!("{name}: {value}\r\n");
        }
        let length = document.len();
        head +=
            &format!("content-type: application/problem+json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        [head.into_bytes(), document].concat()
    }
}

/// Returns what the worker says of each argument; nothing, where only the message says it.
fn problems(detail: &str) -> Value {
    serde_json::from_str(detail).unwrap_or_else(|_| Value::Array(Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(problem: &Problem) -> Value {
        serde_json::from_slice(&problem.document()).expect("JSON")
    }

    #[test]
    fn a_traceback_is_for_this_machine_only() {
        let failure = Failure::Raised {
            type_name: "ValueError".to_owned(),
            message: "no".to_owned(),
            traceback: "Traceback …".to_owned(),
            pickled: Vec::new(),
            problem: Vec::new(),
        };
        let here = parsed(&Problem::of_failure(&failure, true));
        assert_eq!(here["type"], "urn:clutch:raised");
        assert_eq!(here["detail"], "ValueError: no");
        assert_eq!(here["traceback"], "Traceback …");
        assert!(parsed(&Problem::of_failure(&failure, false)).get("traceback").is_none());
    }

    #[test]
    fn a_problem_of_a_tools_own_is_passed_on_as_it_is_written() {
        let deep = ["[".repeat(1000), "]".repeat(1000)].concat();
        let members = format!(r#""nr":1180591620717411303424,"deep":{deep},"a":1"#);
        let given = format!(r#"{{"type":"urn:x","title":"T","status":404,"detail":"d",{members}}}"#);
        let problem = Problem::own(given.as_bytes()).expect("a problem");
        assert_eq!((problem.status, String::from_utf8_lossy(&problem.document()).as_ref()), (404, given.as_str()));
        for wrong in ["", "{}", &given.replace("404", "200"), &given.replace("404", "600"), &given[..given.len() - 1]] {
            assert!(Problem::own(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn problems_of_arguments_are_passed_on_as_json() {
        let detail = r#"[{"loc": ["size"], "msg": "missing"}]"#.to_owned();
        let failure = Failure::BadArguments { message: "size is missing".to_owned(), detail };
        let document = parsed(&Problem::of_failure(&failure, true));
        assert_eq!(document["status"], 422);
        assert_eq!(document["problems"][0]["loc"][0], "size");
    }

    #[test]
    fn last_words_are_a_whole_response() {
        let words = String::from_utf8(Problem::no_place(Shortage::Connections).last_words()).expect("text");
        let (head, body) = words.split_once("\r\n\r\n").expect("head and body");
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    }
}
