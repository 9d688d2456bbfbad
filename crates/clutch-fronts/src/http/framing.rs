//! How the values of a stream, its failure and its end are told apart: as the client asks by `Accept`.

use hyper::header::{ACCEPT, CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};

const LINES: &str = "application/x-ndjson";
const TAGGED: &str = "application/x-ndjson;tagged=true";
const EVENTS: &str = "text/event-stream";

/// Tells nginx to pass events on as they come.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A line is a value. That of a failure looks like one.
    #[default]
    Lines,
    /// A line is an object with one member: `value`, `error` or `end`.
    Tagged,
    /// Server-sent events: those without a name are values, `error` and `end` are the other two.
    Events,
}

impl Framing {
    /// What the client likes best of those that it names; of several that it likes as much, the first.
    pub(crate) fn asked(headers: &HeaderMap) -> Framing {
        let texts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges = texts.flat_map(|text| text.split(',')).filter_map(Framing::of_range);
        let best = ranges.filter(|(_, weight)| *weight > 0.0).reduce(|best, other| match other.1 > best.1 {
            true => other,
            false => best,
        });
        best.map_or_else(Framing::default, |(framing, _)| framing)
    }

    /// None: it is of another type.
    fn of_range(range: &str) -> Option<(Framing, f32)> {
        let mut parts = range.split(';').map(str::trim);
        let mut framing = match parts.next()? {
            name if name.eq_ignore_ascii_case(LINES) => Framing::Lines,
            name if name.eq_ignore_ascii_case(EVENTS) => Framing::Events,
            _ => return None,
        };
        let mut weight = 1.0;
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "tagged" if framing == Framing::Lines && value.trim().trim_matches('"') == "true" => {
                    framing = Framing::Tagged;
                }
                "q" | "Q" => weight = value.trim().parse().unwrap_or(0.0),
                _ => {}
            }
        }
        Some((framing, weight))
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Framing::Lines => LINES,
            Framing::Tagged => TAGGED,
            Framing::Events => EVENTS,
        }
    }

    /// Adds what keeps events from being held back on their way.
    pub(crate) fn mark(self, headers: &mut HeaderMap) {
        if self == Framing::Events {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
        }
    }

    pub(crate) fn write_value(self, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Framing::Lines => put(out, b"", value, b"\n"),
            Framing::Tagged => put(out, b"{\"value\":", value, b"}\n"),
            Framing::Events => put(out, b"data: ", value, b"\n\n"),
        }
    }

    /// `problem`: a document.
    pub(crate) fn write_error(self, problem: &[u8], out: &mut Vec<u8>) {
        match self {
            Framing::Lines | Framing::Tagged => put(out, b"{\"error\":", problem, b"}\n"),
            Framing::Events => put(out, b"event: error\ndata: ", problem, b"\n\n"),
        }
    }

    /// The last value has been written.
    pub(crate) fn write_end(self, out: &mut Vec<u8>) {
        match self {
            Framing::Lines => {}
            Framing::Tagged => put(out, b"{\"end\":", b"true", b"}\n"),
            Framing::Events => put(out, b"event: end\ndata: ", b"{}", b"\n\n"),
        }
    }
}

fn put(out: &mut Vec<u8>, before: &[u8], body: &[u8], after: &[u8]) {
    [before, body, after].iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_framing_that_it_likes_best() {
        let asked = |given: &[&str]| {
            let values = given.iter().map(|text| (ACCEPT, HeaderValue::from_str(text).expect("a value")));
            let mut headers = HeaderMap::new();
            values.for_each(|(name, value)| {
                headers.append(name, value);
            });
            Framing::asked(&headers)
        };
        for (given, framing) in [
            (&[][..], Framing::Lines),
            (&["*/*"], Framing::Lines),
            (&["application/json"], Framing::Lines),
            (&["text/*"], Framing::Lines),
            (&["text/event-stream"], Framing::Events),
            (&["Text/Event-Stream; charset=utf-8, */*"], Framing::Events),
            (&["application/json, text/event-stream"], Framing::Events),
            (&["application/json", "text/event-stream;q=0.5"], Framing::Events),
            (&["application/x-ndjson, text/event-stream"], Framing::Lines),
            (&["application/x-ndjson;q=0.5, text/event-stream;q=0.6"], Framing::Events),
            (&["text/event-stream;q=0"], Framing::Lines),
            (&["text/event-stream;q=much"], Framing::Lines),
            (&["application/x-ndjson;tagged=true"], Framing::Tagged),
            (&["application/x-ndjson; tagged=\"true\";q=0.9, text/event-stream;q=0.8"], Framing::Tagged),
            (&["application/x-ndjson;tagged=false"], Framing::Lines),
        ] {
            assert_eq!(asked(given), framing, "{given:?}");
        }
    }

    #[test]
    fn a_value_is_no_error_in_tagged_lines_and_events() {
        let written = |framing: Framing| {
            let mut out = Vec::new();
            framing.write_value(br#"{"error":{}}"#, &mut out);
            framing.write_error(b"{}", &mut out);
            framing.write_end(&mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(written(Framing::Lines), "{\"error\":{}}\n{\"error\":{}}\n");
        assert_eq!(written(Framing::Tagged), "{\"value\":{\"error\":{}}}\n{\"error\":{}}\n{\"end\":true}\n");
        assert_eq!(
            written(Framing::Events),
            "data: {\"error\":{}}\n\nevent: error\ndata: {}\n\nevent: end\ndata: {}\n\n"
        );
    }
}
