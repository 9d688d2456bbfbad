//! Paths with placeholders, such as `/pools/{pool}/drain`: how they are matched, and told to whoever asked for another.
//!
//! `{pool}` stands for one segment, `{nr:u32}` and `{call:u64}` for one that is such a number, and `{action..}`, at the
//! end, for all segments that are left: one or more.

use std::collections::BTreeMap;

/// Segments that the placeholders of a pattern stand for in one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    named: Vec<(&'static str, String)>,
    rest: Vec<String>,
}

impl Names {
    /// Returns what a placeholder stands for, if the pattern has it.
    pub fn get(&self, placeholder: &str) -> Option<&str> {
        self.named.iter().find(|(known, _)| *known == placeholder).map(|(_, name)| name.as_str())
    }

    /// Returns the number that a placeholder stands for, if the pattern has it.
    pub fn number<T: std::str::FromStr>(&self, placeholder: &str) -> Option<T> {
        self.get(placeholder)?.parse().ok()
    }

    /// Returns the segments that `{…..}` stands for.
    pub fn rest(&self) -> &[String] {
        &self.rest
    }
}

/// Matches the segments of a path with a pattern. None: it is another path.
pub fn matched(pattern: &'static str, path: &[String]) -> Option<Names> {
    let mut names = Names::default();
    let mut given = path.iter();
    for segment in pattern.trim_start_matches('/').split('/') {
        let Some(placeholder) = placeholder_of(segment) else {
            if given.next()? != segment {
                return None;
            }
            continue;
        };
        if placeholder.ends_with("..") {
            names.rest = given.by_ref().cloned().collect();
            return (!names.rest.is_empty()).then_some(names);
        }
        let (placeholder, kind) = placeholder.split_once(':').unwrap_or((placeholder, ""));
        let given = given.next().filter(|given| is_allowed(kind, given))?;
        names.named.push((placeholder, given.clone()));
    }
    given.next().is_none().then_some(names)
}

fn placeholder_of(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn is_allowed(kind: &str, given: &str) -> bool {
    match kind {
        "u32" => given.parse::<u32>().is_ok(),
        "u64" => given.parse::<u64>().is_ok(),
        _ => true,
    }
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
    shown.collect::<Vec<_>>().join(", ").replace(":u32}", "}").replace(":u64}", "}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn placeholders_stand_for_one_segment_and_some_for_numbers() {
        let names = matched("/pools/{pool}/workers/{nr:u32}/kill", &path("pools/a b/workers/3/kill")).expect("a match");
        assert_eq!((names.get("pool"), names.number::<u32>("nr"), names.get("front")), (Some("a b"), Some(3), None));
        for other in [
            "pools/a/workers/x/kill",
            "pools/a/workers/-1/kill",
            "pools/a/workers/3",
            "pools/a/workers/3/killed",
            "pools/a/workers/4294967296/kill",
        ] {
            assert_eq!(matched("/pools/{pool}/workers/{nr:u32}/kill", &path(other)), None, "{other}");
        }
        assert!(matched("jobs/{job}/cancel", &path("jobs/01J/cancel")).is_some());
    }

    #[test]
    fn the_last_placeholder_may_stand_for_all_that_is_left() {
        let pattern = "/fronts/{front}/{action..}";
        for rest in ["flush", "queues/mail/pause", "a/b/c/d"] {
            let names = matched(pattern, &path(&format!("fronts/jobs/{rest}"))).expect("a match");
            assert_eq!((names.get("front"), names.rest()), (Some("jobs"), &path(rest)[..]));
        }
        assert_eq!(matched(pattern, &path("fronts/jobs")), None);
    }

    #[test]
    fn patterns_are_listed_by_folder() {
        let patterns = ["/stop", "/pools/{pool}/drain", "/pools/{pool}/resume", "/calls/{call:u64}/cancel"];
        assert_eq!(listed(patterns), "/stop, /calls/{call}/cancel, /pools/{pool}/{drain,resume}");
    }
}
