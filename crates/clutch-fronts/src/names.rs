//! Names of pools and tools as they come in paths, and as they are told to whoever got one wrong.

use percent_encoding::percent_decode_str;

/// Longer names are compared with nothing and quoted in part.
const NAME_CHARS_MAX: usize = 80;

/// Names that are listed; of more, as many are given as examples.
const LISTED_MAX: usize = 10;

/// A name out of a path: no slash, and percent signs only as escapes of UTF-8.
pub(crate) fn decode(name: &str) -> Option<String> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let bytes: Vec<u8> = percent_decode_str(name).collect();
    let escapes = name.matches('%').count();
    // Each escape is three bytes for one.
    (name.len() - bytes.len() == 2 * escapes).then(|| String::from_utf8(bytes).ok()).flatten()
}

pub(crate) fn quoted(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

/// Half a sentence with the name most like the one given, or all names where they are few.
pub(crate) fn suggestion<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match nearest(given, &names) {
        Some(near) => format!("; did you mean '{near}'?"),
        None if names.is_empty() => "; there are none".to_owned(),
        None if names.len() <= LISTED_MAX => format!("; there are: {}", names.join(", ")),
        None => format!("; there are {}, such as: {}", names.len(), names[..LISTED_MAX].join(", ")),
    }
}

/// The name that takes the fewest edits to reach, when that is a third of it at most.
fn nearest<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    if given.len() > NAME_CHARS_MAX {
        return None;
    }
    let scored = names.iter().map(|name| (strsim::levenshtein(given, name), *name));
    let (edits, name) = scored.min()?;
    (edits <= 1 + given.chars().count() / 3).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_far_one_is_not() {
        let names = ["echo", "countdown", "fetch"];
        assert_eq!(nearest("ecko", &names), Some("echo"));
        assert_eq!(nearest("cuntdown", &names), Some("countdown"));
        assert_eq!(nearest("matmul", &names), None);
        assert_eq!(nearest(&"x".repeat(10_000), &names), None);
    }

    #[test]
    fn names_are_decoded_and_never_hold_a_slash_of_the_path() {
        assert_eq!(decode("echo").as_deref(), Some("echo"));
        assert_eq!(decode("%C3%A9cho").as_deref(), Some("écho"));
        for wrong in ["", "a/b", "%", "%4", "%zz", "%+1", "%ff"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
