//! Jobs that Rails' ActiveJob has put into Sidekiq: the class and its arguments are in a wrapper, which stays as it is.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Classes of the wrapper, of Sidekiq's own adapter and of that of Rails before it.
const WRAPPERS: [&str; 2] = ["Sidekiq::ActiveJob::Wrapper", "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"];

/// Begins all names that ActiveJob adds to hashes.
const MARKER: &str = "_aj_";
/// Marks of hashes that mean nothing here: which keys were symbols, and the like.
const MARKS: [&str; 3] = ["_aj_symbol_keys", "_aj_ruby2_keywords", "_aj_hash_with_indifferent_access"];
/// Marks a last hash that is keyword arguments.
const KEYWORDS: &str = "_aj_ruby2_keywords";
/// Names the serializer of a value that JSON has not: a time, a symbol.
const SERIALIZED: &str = "_aj_serialized";

/// A job in its wrapper.
pub struct Wrapped {
    pub class: String,
    /// `{"args": […], "kwargs": {…}}`.
    pub arguments: String,
}

#[derive(Deserialize)]
struct Inner<'a> {
    job_class: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl Wrapped {
    /// None: it is no wrapper, or not one that can be read.
    pub fn of(class: &str, args: &RawValue) -> Option<Wrapped> {
        if !WRAPPERS.contains(&class) {
            return None;
        }
        let [inner] = serde_json::from_str::<[Inner<'_>; 1]>(args.get()).ok()?;
        let arguments = arguments_of(inner.arguments.get())?;
        Some(Wrapped { class: inner.job_class, arguments })
    }
}

fn arguments_of(list: &str) -> Option<String> {
    if !list.contains(MARKER) {
        return list.starts_with('[').then(|| format!(r#"{{"args":{list},"kwargs":{{}}}}"#));
    }
    let mut args = serde_json::from_str::<Vec<Value>>(list).ok()?;
    let is_keywords = |last: &Value| last.as_object().is_some_and(|last| last.contains_key(KEYWORDS));
    let keywords = args.pop_if(|last| is_keywords(last)).map_or_else(|| Value::Object(Map::new()), plain);
    let args: Vec<Value> = args.into_iter().map(plain).collect();
    serde_json::to_string(&serde_json::json!({ "args": args, "kwargs": keywords })).ok()
}

/// Without marks; a value with a serializer is its text. A GlobalID stays what it is: only Rails finds its record.
fn plain(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(plain).collect(),
        Value::Object(mut fields) if fields.contains_key(SERIALIZED) => match fields.remove("value") {
            Some(text @ Value::String(_)) => text,
            Some(other) => {
                fields.insert("value".to_owned(), other);
                Value::Object(fields)
            }
            None => Value::Object(fields),
        },
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| !MARKS.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name, plain(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(list: &str) -> Value {
        let args = format!(r#"[{{"job_class":"Mail::WelcomeJob","job_id":"x","arguments":{list}}}]"#);
        let wrapped = Wrapped::of(WRAPPERS[0], &RawValue::from_string(args).unwrap()).unwrap();
        assert_eq!(wrapped.class, "Mail::WelcomeJob");
        serde_json::from_str(&wrapped.arguments).unwrap()
    }

    #[test]
    fn marks_are_taken_off_and_keywords_are_keywords() {
        let told = arguments(
            r#"[1.50, {"a": {"b": 2, "_aj_symbol_keys": ["b"]}, "_aj_hash_with_indifferent_access": true},
                {"_aj_serialized": "ActiveJob::Serializers::TimeSerializer", "value": "2026-01-02T03:04:05Z"},
                {"_aj_serialized": "ActiveJob::Serializers::DurationSerializer", "value": 5, "parts": []},
                {"_aj_globalid": "gid://shop/User/7"},
                {"language": "de", "_aj_ruby2_keywords": ["language"]}]"#,
        );
        let expected = serde_json::json!({
            "args": [1.5, {"a": {"b": 2}}, "2026-01-02T03:04:05Z",
                {"_aj_serialized": "ActiveJob::Serializers::DurationSerializer", "value": 5, "parts": []},
                {"_aj_globalid": "gid://shop/User/7"}],
            "kwargs": {"language": "de"},
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn what_has_no_marks_stays_to_the_byte() {
        let list = "[1.50,  12345678901234567890123]";
        let args = RawValue::from_string(format!(r#"[{{"job_class":"A","arguments":{list}}}]"#)).unwrap();
        let wrapped = Wrapped::of(WRAPPERS[1], &args).unwrap();
        assert_eq!(wrapped.arguments, format!(r#"{{"args":{list},"kwargs":{{}}}}"#));
        assert!(Wrapped::of("HardJob", &args).is_none());
        for odd in ["[]", "[1]", r#"[{"job_class":"A"}]"#, r#"[{"job_class":"A","arguments":{}}]"#] {
            assert!(Wrapped::of(WRAPPERS[0], &RawValue::from_string(odd.to_owned()).unwrap()).is_none());
        }
    }
}
