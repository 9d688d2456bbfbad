//! Paths with placeholders, such as `/pools/{pool}/drain`: how they are matched, and told to whoever asked for another.

use std::collections::BTreeMap;

/// Placeholders that stand for a number, and the largest one that there can be.
const NUMBERS: [(&str, u64); 2] = [("nr", u32::MAX as u64), ("call", u64::MAX)];

/// Names that the placeholders of a pattern stand for in one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<(&'static str, String)>);

impl Names {
    /// Returns what a placeholder stands for, if the pattern has it.
    pub fn get(&self, placeholder: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == placeholder).map(|(_, name)| name.as_str())
    }

    /// Returns the number that a placeholder stands for, if the pattern has it.
    pub fn number<T: std::str::FromStr>(&self, placeholder: &str) -> Option<T> {
        self.get(placeholder)?.parse().ok()
    }
}

/// Matches the segments of a path with a pattern. `{nr}` and `{call}` stand for numbers, others for any name. None: it is
/// another path.
pub fn matched(pattern: &'static str, path: &[String]) -> Option<Names> {
    let segments: Vec<&'static str> = pattern.trim_start_matches('/').split('/').collect();
    if segments.len() != path.len() {
        return None;
    }
    let mut names = Names::default();
    for (segment, given) in segments.into_iter().zip(path) {
        match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(placeholder) if !is_allowed(placeholder, given) => return None,
            Some(placeholder) => names.0.push((placeholder, given.clone())),
            None if segment == given => {}
            None => return None,
        }
    }
    Some(names)
}

/// Returns whether a placeholder may stand for this.
fn is_allowed(placeholder: &str, given: &str) -> bool {
    let most = NUMBERS.iter().find(|(known, _)| *known == placeholder).map(|(_, most)| *most);
    most.is_none_or(|most| given.parse::<u64>().is_ok_and(|number| number <= most))
}

/// Lists patterns, those that differ in their last segment together: `/pools/{pool}/{drain,resume}`.
pub fn listed(patterns: impl IntoIterator<Item = &'static str>) -> String {
    let mut by_folder = BTreeMap::<&str, Vec<&str>>::new();
    for pattern in patterns {
        let (folder, last) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        by_folder.entry(folder).or_default().push(last);
    }
    let shown = by_folder.into_iter().map(|(folder, lasts)| match &lasts[..] {
        [last] => format!("{folder}/{last}"),
        _ => format!("{folder}/{{{}}}", lasts.join(",")),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn placeholders_stand_for_one_segment_and_some_for_numbers() {
        let names = matched("/pools/{pool}/workers/{nr}/kill", &path("pools/a b/workers/3/kill")).expect("a match");
        assert_eq!((names.get("pool"), names.number::<u32>("nr"), names.get("front")), (Some("a b"), Some(3), None));
        for other in [
            "pools/a/workers/x/kill",
            "pools/a/workers/-1/kill",
            "pools/a/workers/3",
            "pools/a/workers/3/killed",
            "pools/a/workers/4294967296/kill",
        ] {
            assert_eq!(matched("/pools/{pool}/workers/{nr}/kill", &path(other)), None, "{other}");
        }
        assert!(matched("jobs/{job}/cancel", &path("jobs/01J/cancel")).is_some());
    }

    #[test]
    fn patterns_are_listed_by_folder() {
        let patterns = ["/stop", "/pools/{pool}/drain", "/pools/{pool}/resume", "/calls/{call}/cancel"];
        assert_eq!(listed(patterns), "/stop, /calls/{call}/cancel, /pools/{pool}/{drain,resume}");
    }
}
