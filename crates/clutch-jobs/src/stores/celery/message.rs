//! A message of a task, as far as a store has to know it. All else in it is the business of the app in a worker, which is
//! given its very text.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::job::Millis;

/// Name of a task that its message does not tell.
const UNKNOWN: &str = "unknown";

/// What is read of a message. Whatever is wrong with it is told by who runs it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    /// The task's id: several messages may have one.
    pub id: Option<String>,
    /// The task's name.
    pub task: String,
    /// How often it was tried before.
    pub retries: u32,
    /// When it may run, as text of ISO 8601.
    pub eta: Option<String>,
    pub priority: i64,
}

impl Message {
    /// None: it is not JSON, or no message. What is not read may be a number of many digits, or as deep as it likes.
    pub fn parse(text: &str) -> Option<Message> {
        let message: Fields = read(text)?;
        let (headers, properties) = (fields(&message, "headers"), fields(&message, "properties"));
        let retries = field(&headers, "retries").unwrap_or(0_u64);
        Some(Message {
            id: field(&headers, "id"),
            task: field(&headers, "task").unwrap_or_else(|| UNKNOWN.to_owned()),
            retries: u32::try_from(retries).unwrap_or(u32::MAX - 1),
            eta: field(&headers, "eta"),
            priority: field(&properties, "priority").unwrap_or(0),
        })
    }

    /// The first is 1.
    pub fn attempt(&self) -> u32 {
        self.retries.saturating_add(1)
    }

    /// None: at once, or what it says is no time.
    pub fn due_at(&self, timezone: &TimeZone) -> Option<Millis> {
        let eta = self.eta.as_deref()?;
        if let Ok(time) = eta.parse::<Timestamp>() {
            return Some(time.as_millisecond());
        }
        let naive: DateTime = eta.parse().ok()?;
        Some(timezone.to_zoned(naive).ok()?.timestamp().as_millisecond())
    }
}

type Fields = BTreeMap<String, Box<RawValue>>;

/// What only Python takes for JSON, each with a number that nobody writes, which stands for it while the rest is read.
const CONSTANTS: [(&str, &str); 3] =
    [("-Infinity", "-0e-2718281828459045"), ("Infinity", "-0e-2718281828459044"), ("NaN", "-0e-2718281828459043")];

/// None: it is not JSON, not even to Python.
fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok().or_else(|| serde_json::from_str(&without_constants(text)?).ok())
}

/// None: it has none.
fn without_constants(text: &str) -> Option<String> {
    let (mut rest, mut made, mut is_in_text) = (text, String::new(), false);
    while let Some(at) = rest.find(if is_in_text { &['"', '\\'][..] } else { &['"', '-', 'I', 'N'] }) {
        let constant = CONSTANTS.iter().find(|(name, _)| !is_in_text && rest[at..].starts_with(name));
        let length = match (constant, rest.as_bytes()[at]) {
            (Some((name, _)), _) => name.len(),
            // What is escaped may be longer: then it is none of these.
            (None, b'\\') => 1 + rest[at + 1..].chars().next().map_or(0, char::len_utf8),
            (None, byte) => {
                is_in_text ^= byte == b'"';
                1
            }
        };
        made.push_str(&rest[..at]);
        made.push_str(constant.map_or(&rest[at..at + length], |(_, number)| number));
        rest = &rest[at + length..];
    }
    made.push_str(rest);
    (made != text).then_some(made)
}

fn with_constants(text: String) -> String {
    CONSTANTS
        .iter()
        .fold(text, |text, (name, number)| if text.contains(number) { text.replace(number, name) } else { text })
}

/// The same message, which says that it may have run before. Nothing else in it changes, be it a number of many digits.
pub(super) fn redelivered(text: &str) -> Option<String> {
    let mut message: Fields = read(text)?;
    let flag = || RawValue::from_string("true".to_owned()).ok();
    let mut headers = fields(&message, "headers");
    headers.insert("redelivered".to_owned(), flag()?);
    let mut properties = fields(&message, "properties");
    let mut delivery = fields(&properties, "delivery_info");
    delivery.insert("redelivered".to_owned(), flag()?);
    put(&mut properties, "delivery_info", &delivery)?;
    put(&mut message, "headers", &headers)?;
    put(&mut message, "properties", &properties)?;
    Some(with_constants(serde_json::to_string(&message).ok()?))
}

/// The fields of a part; none of one that is missing, or something else.
fn fields(of: &Fields, name: &str) -> Fields {
    of.get(name).and_then(|part| serde_json::from_str(part.get()).ok()).unwrap_or_default()
}

/// A field, if it is one of this type.
fn field<T: DeserializeOwned>(of: &Fields, name: &str) -> Option<T> {
    serde_json::from_str(of.get(name)?.get()).ok()
}

fn put(into: &mut Fields, name: &str, part: &Fields) -> Option<()> {
    into.insert(name.to_owned(), serde_json::value::to_raw_value(part).ok()?);
    Some(())
}

/// What `unacked` has of a message: its text, and the exchange and routing key that it came by.
pub(super) fn unpacked(kept: &str) -> Option<(String, String, String)> {
    let (text, exchange, key): (Box<RawValue>, Option<String>, Option<String>) = read(kept)?;
    Some((with_constants(text.get().to_owned()), exchange.unwrap_or_default(), key.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const TEXT: &str = r#"{"body":"W10=","headers":{"id":"7","task":"a.b","retries":2,"eta":"2027-01-15T09:00:00+01:00",
        "n":12345678901234567890123,"redelivered":false},"properties":{"delivery_tag":"t","priority":4,
        "delivery_info":{"routing_key":"q"}}}"#;

    #[test]
    fn what_a_store_has_to_know_is_read() {
        let message = Message::parse(TEXT).unwrap();
        assert_eq!(
            (message.id.as_deref(), message.task.as_str(), message.retries, message.priority),
            (Some("7"), "a.b", 2, 4)
        );
        assert_eq!(message.due_at(&TimeZone::UTC), Some(1_800_000_000_000));
        assert_eq!(Message::parse("[1]").map(|message| message.task), None);
        assert_eq!(Message::parse("{}").unwrap().task, UNKNOWN);
    }

    #[test]
    fn what_is_not_read_does_not_matter() {
        let deep = format!("{}{}", "[".repeat(900), "]".repeat(900));
        for other in ["1e999", &"9".repeat(5000), r#""\udcff""#, &deep] {
            let text = TEXT.replace("12345678901234567890123", other);
            assert_eq!(Message::parse(&text), Message::parse(TEXT), "{other}");
            assert_eq!(Message::parse(&redelivered(&text).unwrap()), Message::parse(TEXT), "{other}");
        }
        let odd = Message::parse(r#"{"headers": {"id": [1], "task": 7, "retries": -1}, "properties": 7}"#).unwrap();
        assert_eq!(odd, Message::parse("{}").unwrap());
    }

    #[test]
    fn what_is_json_to_python_alone_is_read_and_kept() {
        let odd = r#"[NaN, -Infinity, {"NaN": [Infinity, "a \"NaN\\", -7, "NaN"]}]"#;
        let text = TEXT.replace("12345678901234567890123", odd);
        assert_eq!(Message::parse(&text), Message::parse(TEXT));
        let again = redelivered(&text).unwrap();
        assert!(again.contains(odd), "{again}");
        assert_eq!(unpacked(&format!(r#"[{text},"","q"]"#)).unwrap().0, text);
        let nan = text.replace("\"retries\":2", "\"retries\":NaN");
        assert_eq!(Message::parse(&nan).unwrap().retries, 0);
        assert_eq!(["NaN", "[NaN", r#"{"a": Nan}"#, r#"{"a": "NaN"#].map(Message::parse), [None, None, None, None]);
    }

    #[test]
    fn a_time_without_an_offset_is_one_of_the_apps_timezone() {
        let message = |eta: &str| Message { eta: Some(eta.to_owned()), ..Message::parse("{}").unwrap() };
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(message("2027-01-15T09:00:00").due_at(&berlin), Some(1_800_000_000_000));
        assert_eq!(message("2027-01-15T08:00:00Z").due_at(&berlin), Some(1_800_000_000_000));
        assert_eq!(message("2027-01-15").due_at(&TimeZone::UTC), Some(1_799_971_200_000));
        assert_eq!(message("tomorrow").due_at(&berlin), None);
    }

    #[test]
    fn only_the_flags_of_a_redelivered_message_change() {
        let text = redelivered(TEXT).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["headers"]["redelivered"], true);
        assert_eq!(found["properties"]["delivery_info"]["redelivered"], true);
        assert_eq!(found["properties"]["delivery_info"]["routing_key"], "q");
        assert!(text.contains("12345678901234567890123"), "{text}");
        let kept = format!(r#"[{TEXT},"","q"]"#);
        assert_eq!(unpacked(&kept).unwrap(), (TEXT.to_owned(), String::new(), "q".to_owned()));
    }
}
