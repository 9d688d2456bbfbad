//! Headers that go along with a call into its worker: the id of the request, and the trace that it is part of.
//!
//! The id is the client's (`X-Request-Id`) where it is fit for a log, else it is made here; it stands in the head of the
//! request from then on, so that the access log sees what the client and the tool see. `traceparent` and `tracestate` are
//! passed on as W3C's Trace Context has them; one that is malformed is left out. The name of the token is told as
//! `clutch-caller`, which no client can set: of its own headers only those that the front lists are passed on, and that one
//! cannot be listed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use clutch_wire::headers::put_headers;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::account::access::REQUEST_ID;
use crate::account::trace::{TRACE_PARENT, is_fit, trace_parent};
use crate::body::problem::Problem;

const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// Longest id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Header with the name of the token that the request brought.
pub(crate) const CALLER: HeaderName = HeaderName::from_static("clutch-caller");

/// Longest header that is passed on, all its lines together.
const PASSED_BYTES_MAX: usize = 8 << 10;

/// Longest `tracestate`, all its lines together.
const TRACE_STATE_BYTES_MAX: usize = 1024;

/// Leaves one fit id in the head, and gives it.
pub(crate) fn settle_id(headers: &mut HeaderMap) -> HeaderValue {
    let mut given = headers.get_all(REQUEST_ID).iter();
    match (given.next(), given.next()) {
        (Some(id), None) if is_fit(id.as_bytes(), REQUEST_ID_BYTES_MAX) => id.clone(),
        _ => {
            let id = made_id();
            headers.insert(REQUEST_ID, id.clone());
            id
        }
    }
}

/// What the worker is told beside what it is told of every call.
#[derive(Debug, Default)]
pub(crate) struct Told<'a> {
    /// Name of the token that the request brought.
    pub(crate) caller: Option<&'a str>,
    /// Headers of the client that the front passes on.
    pub(crate) passed_on: &'a [HeaderName],
}

/// Appends those that the worker is told. Fails where one to pass on is too long.
pub(crate) fn put(headers: &HeaderMap, told: &Told<'_>, out: &mut Vec<u8>) -> Result<(), Box<Problem>> {
    let mut writer = put_headers(out);
    let mut put = |name: &HeaderName, value: &[u8]| writer.put(name.as_str().as_bytes(), value);
    if let Some(id) = headers.get(REQUEST_ID) {
        put(&REQUEST_ID, id.as_bytes());
    }
    if let Some(parent) = trace_parent(headers) {
        put(&TRACE_PARENT, parent);
        if let Some(state) = trace_state(headers) {
            put(&TRACE_STATE, &state);
        }
    }
    for name in told.passed_on.iter().filter(|name| headers.contains_key(*name)) {
        put(name, &passed_on(headers, name)?);
    }
    if let Some(caller) = told.caller {
        put(&CALLER, caller.as_bytes());
    }
    Ok(())
}

/// All lines of a header as one: as UTF-8, or else as Latin-1, which each byte is text in. Two values are never taken for one.
fn passed_on(headers: &HeaderMap, name: &HeaderName) -> Result<Vec<u8>, Box<Problem>> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    let value = lines.join(&b", "[..]);
    if value.len() > PASSED_BYTES_MAX {
        return Err(Problem::header_too_large(name.as_str(), PASSED_BYTES_MAX));
    }
    Ok(String::from_utf8(value)
        .unwrap_or_else(|error| error.as_bytes().iter().copied().map(char::from).collect())
        .into())
}

/// 32 hex digits that nobody had before, as far as chance goes.
fn made_id() -> HeaderValue {
    static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nr = COUNT.fetch_add(1, Ordering::Relaxed);
    let [first, second] = KEYS.each_ref().map(|keys| keys.hash_one(nr));
    let made = HeaderValue::from_str(&format!("{first:016x}{second:016x}"));
    made.unwrap_or(HeaderValue::from_static("-")) // hex digits are always a value
}

/// All lines as one.
fn trace_state(headers: &HeaderMap) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = headers.get_all(TRACE_STATE).iter().map(HeaderValue::as_bytes).collect();
    let state = lines.join(&b","[..]);
    let is_visible = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    let is_fit = (1..=TRACE_STATE_BYTES_MAX).contains(&state.len()) && state.iter().all(is_visible);
    is_fit.then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clutch_wire::headers::read_headers;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).expect("a value");
        let mut headers = HeaderMap::new();
        for (name, text) in given {
            headers.append(HeaderName::from_static(name), value(text));
        }
        headers
    }

    fn told(given: &[(&'static str, &str)]) -> Vec<(String, String)> {
        told_as(given, &Told::default())
    }

    fn told_as(given: &[(&'static str, &str)], told: &Told<'_>) -> Vec<(String, String)> {
        let mut bytes = Vec::new();
        put(&headers(given), told, &mut bytes).expect("not too long");
        let (told, rest) = read_headers(&bytes).expect("headers");
        assert!(rest.is_empty());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        told.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn an_id_is_the_clients_where_it_is_fit_for_a_log() {
        let settled = |given: &[(&'static str, &str)]| {
            let mut head = headers(given);
            let id = settle_id(&mut head);
            assert_eq!(head.get_all(REQUEST_ID).iter().collect::<Vec<_>>(), [&id]);
            id.to_str().expect("text").to_owned()
        };
        assert_eq!(settled(&[("x-request-id", "a-1/é".trim_end_matches('é'))]), "a-1/");
        let long = "x".repeat(REQUEST_ID_BYTES_MAX);
        assert_eq!(settled(&[("x-request-id", &long)]), long);
        let longer = format!("{long}x");
        for given in [
            &[][..],
            &[("x-request-id", "")],
            &[("x-request-id", "a b")],
            &[("x-request-id", "é")],
            &[("x-request-id", &longer)],
            &[("x-request-id", "one"), ("x-request-id", "two")],
        ] {
            let (one, other) = (settled(given), settled(given));
            assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_trace_is_passed_on_as_it_came() {
        let given = [("x-request-id", "r1"), ("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")];
        let expected = [("x-request-id", "r1"), ("traceparent", PARENT), ("tracestate", "a=1,b=2")];
        assert_eq!(told(&given), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let later = format!("cc{}-what-is-more", &PARENT[2..]);
        assert_eq!(told(&[("traceparent", &later)]), [("traceparent".to_owned(), later)]);
        assert_eq!(told(&[("traceparent", PARENT), ("tracestate", &"x".repeat(TRACE_STATE_BYTES_MAX + 1))]).len(), 1);
    }

    #[test]
    fn listed_headers_and_the_name_of_the_token_are_told() {
        let listed = ["x-user", "x-tenant"].map(HeaderName::from_static);
        let whole = Told { caller: Some("ann"), passed_on: &listed };
        let given = [("x-user", "7"), ("x-other", "1"), ("clutch-caller", "root"), ("x-user", "é")];
        let expected = [("x-user", "7, é"), ("clutch-caller", "ann")];
        assert_eq!(told_as(&given, &whole), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(told(&given).is_empty());
        let mut latin = HeaderMap::new();
        latin.insert("x-user", HeaderValue::from_bytes(b"J\xfcrg").expect("a value"));
        assert_eq!(passed_on(&latin, &listed[0]).ok(), Some("Jürg".as_bytes().to_vec()));
        let long = "x".repeat(PASSED_BYTES_MAX + 1);
        let refused = put(&headers(&[("x-user", &long)]), &whole, &mut Vec::new()).expect_err("too long");
        assert!(String::from_utf8_lossy(&refused.document()).contains("x-user"));
        assert!(put(&headers(&[("x-user", &long[1..])]), &whole, &mut Vec::new()).is_ok());
    }

    #[test]
    fn what_is_no_trace_is_left_out() {
        let zero = |from: usize, to: usize| format!("{}{}{}", &PARENT[..from], "0".repeat(to - from), &PARENT[to..]);
        let wrong = [
            String::new(),
            "00".to_owned(),
            PARENT.to_uppercase(),
            PARENT.replace('-', "_"),
            PARENT[..54].to_owned(),
            format!("{PARENT}-more"),
            format!("ff{}", &PARENT[2..]),
            format!("cc{}more", &PARENT[2..]),
            zero(3, 35),
            zero(36, 52),
            format!("cc{}-{}", &PARENT[2..], "x".repeat(crate::account::trace::TRACE_PARENT_BYTES_MAX)),
        ];
        for parent in &wrong {
            assert!(told(&[("traceparent", parent), ("tracestate", "a=1")]).is_empty(), "{parent}");
        }
        assert!(told(&[("traceparent", PARENT), ("traceparent", PARENT)]).is_empty());
        assert!(told(&[("tracestate", "a=1")]).is_empty());
    }
}
