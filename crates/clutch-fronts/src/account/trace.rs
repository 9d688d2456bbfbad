//! The trace that a request is part of, as W3C's Trace Context has it.

use std::sync::Arc;

use clutch_pool::pool::Pool;
use clutch_pool::telemetry::Scope;
use hyper::header::{HeaderMap, HeaderName};

pub(crate) const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Longest `traceparent`, of any version.
pub(crate) const TRACE_PARENT_BYTES_MAX: usize = 128;

/// `version-trace-parent-flags`, of version 00.
const TRACE_PARENT_PARTS: [usize; 4] = [2, 32, 16, 2];
const TRACE_PARENT_BYTES: usize = 55;

/// The trace that a request is part of, where somebody hears of what comes of it.
pub(crate) fn trace_of(headers: &HeaderMap, pool: &Pool) -> Option<Arc<str>> {
    let parent = trace_parent(headers).filter(|_| pool.telemetry().hears(Scope::BEGUN))?;
    std::str::from_utf8(parent).ok().map(Arc::from)
}

/// None: it is not there, or no standard has it.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(TRACE_PARENT).iter();
    let parent = given.next().filter(|_| given.next().is_none())?.as_bytes();
    (is_fit(parent, TRACE_PARENT_BYTES_MAX) && is_trace_parent(parent)).then_some(parent)
}

/// A later version may have more behind a dash.
fn is_trace_parent(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| *byte == b'-');
    let is_part = |(part, digits): (Option<&[u8]>, usize)| {
        part.is_some_and(|part| {
            part.len() == digits && part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let are_parts = TRACE_PARENT_PARTS.iter().all(|digits| is_part((parts.next(), *digits)));
    let is_zero = |from: usize, to: usize| value[from..to].iter().all(|byte| *byte == b'0');
    let fits_version = match &value[..value.len().min(2)] {
        b"00" => value.len() == TRACE_PARENT_BYTES,
        version => version != b"ff",
    };
    are_parts && fits_version && !is_zero(3, 35) && !is_zero(36, 52)
}

/// Whether a header's value may stand in a log.
pub(crate) fn is_fit(value: &[u8], bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}
