//! Style in which lines of workers are passed on: with a name, as JSON, or as they are.

use std::time::SystemTime;

use clutch_wire::stdio::Stream;
use serde_json::{Map, Value};

use crate::date::Date;

/// Style in which lines are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With their worker's name.
    Named,
    /// As JSON objects, one each, with the keys of a log.
    Json,
    /// As they are: there is one worker, and somebody reads it at a terminal.
    Plain,
}

/// The origin of lines, and how they are passed on.
pub(super) struct Label {
    pub(super) stream: Stream,
    /// `pool/0`.
    pub(super) worker: String,
    pub(super) style: Style,
}

impl Label {
    /// Appends a line without its end, or a part of one; `goes_on`: what comes before it has been passed on.
    pub(super) fn put(&self, out: &mut Vec<u8>, line: &[u8], goes_on: bool) {
        match self.style {
            Style::Json => out.extend_from_slice(self.json(line).to_string().as_bytes()),
            Style::Plain => out.extend_from_slice(line),
            Style::Named => self.put_named(out, line, goes_on),
        }
    }

    /// A carriage return goes back to the beginning: what is written over it has the name again.
    fn put_named(&self, out: &mut Vec<u8>, line: &[u8], goes_on: bool) {
        let name = format!("[{}] ", self.worker);
        let is_redrawn = line.first() == Some(&b'\r') && line.len() > 1;
        if !goes_on && !is_redrawn {
            out.extend_from_slice(name.as_bytes());
        }
        let last = line.len().saturating_sub(1);
        for (at, byte) in line.iter().enumerate() {
            out.push(*byte);
            if *byte == b'\r' && at != last && line[at + 1] != b'\r' {
                out.extend_from_slice(name.as_bytes());
            }
        }
    }

    /// A line that is an object already, as workers write tracebacks and logging libraries their records, keeps what it says.
    fn json(&self, line: &[u8]) -> Value {
        let object = serde_json::from_slice::<Map<String, Value>>(line);
        self.named(object.unwrap_or_else(|_| logged(level_of(line), String::from_utf8_lossy(line).into_owned())))
    }

    fn named(&self, mut object: Map<String, Value>) -> Value {
        let stream = if self.stream == Stream::Out { "stdout" } else { "stderr" };
        let pool = self.worker.rsplit_once('/').map_or(self.worker.as_str(), |(pool, _)| pool);
        for (key, value) in [("pool", pool), ("worker", self.worker.as_str()), ("stream", stream)] {
            object.entry(key).or_insert_with(|| value.into());
        }
        Value::Object(object)
    }
}

/// The level of a line that begins with its name, as those of `logging.basicConfig()` do; else "info": logs of all levels go
/// to standard error.
fn level_of(line: &[u8]) -> &'static str {
    const LEVELS: [(&str, &str); 5] =
        [("DEBUG", "debug"), ("INFO", "info"), ("WARNING", "warning"), ("ERROR", "error"), ("CRITICAL", "critical")];
    let after = |name: &str| line.strip_prefix(name.as_bytes()).and_then(<[u8]>::first);
    let named = LEVELS.iter().find(|(name, _)| matches!(after(name), Some(b':' | b' ')));
    named.map_or("info", |(_, level)| level)
}

/// The keys that each line of a log has.
fn logged(level: &str, message: String) -> Map<String, Value> {
    let time = Date::of(SystemTime::now()).iso();
    [("time", time.into()), ("level", level.into()), ("message", message.into())]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(line: &[u8]) -> Value {
        let label = Label { stream: Stream::Err, worker: "a/0".to_owned(), style: Style::Json };
        let mut out = Vec::new();
        label.put(&mut out, line, false);
        serde_json::from_slice(&out).expect("one line of JSON")
    }

    #[test]
    fn as_json_each_line_is_an_object_that_names_its_worker() {
        let text = json(b"caf\xe9 \"x\"");
        assert_eq!(text["message"], "caf\u{fffd} \"x\"");
        assert_eq!((&text["level"], &text["stream"]), (&"info".into(), &"stderr".into()));
        assert_eq!((&text["pool"], &text["worker"]), (&"a".into(), &"a/0".into()));
        let object = json(b"{\"level\": \"error\", \"worker\": 7}");
        assert_eq!((&object["level"], &object["worker"]), (&"error".into(), &7.into()), "it keeps what it says");
        assert_eq!(object.get("message"), None);
        assert_eq!((&json(b"[1]")["message"], &json(b"")["message"]), (&"[1]".into(), &"".into()));
        let level = |line: &[u8]| json(line)["level"].clone();
        assert_eq!((level(b"WARNING:shop:no stock"), level(b"ERRORS")), ("warning".into(), "info".into()));
    }
}
