//! What the node of a Celery app tells those who claim its tasks: what remote control has changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;

use crate::job::Millis;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Told {
    /// In place of the queues that it was started with.
    queues: Option<Vec<String>>,
    /// Least time between two starts of a task on this node, in milliseconds.
    intervals: BTreeMap<String, f64>,
    /// Tasks that are acknowledged late.
    late: BTreeSet<String>,
}

#[derive(Default)]
pub(super) struct Settings {
    text: String,
    /// The text without what is meant for the store alone.
    for_workers: String,
    told: Told,
    /// When the next of a task may begin.
    next: HashMap<String, f64>,
    /// Tasks whose rate has changed, of which some wait for times of the rate before.
    changed: BTreeSet<String>,
}

impl Settings {
    /// Returns whether it names other queues than before.
    pub fn hear(&mut self, text: String) -> bool {
        if text == self.text {
            return false;
        }
        let is_first = self.text.is_empty();
        let Told { queues, intervals: before, .. } =
            std::mem::replace(&mut self.told, serde_json::from_str(&text).unwrap_or_default());
        let intervals = &self.told.intervals;
        let is_changed = |task: &&String| before.get(*task) != intervals.get(*task);
        let changed: BTreeSet<String> = before.keys().chain(intervals.keys()).filter(is_changed).cloned().collect();
        self.next.retain(|task, _| !changed.contains(task));
        if !is_first {
            self.changed.extend(changed);
        }
        self.for_workers = for_workers(&text).unwrap_or_default();
        self.text = text;
        self.told.queues != queues
    }

    /// Tasks whose rate has changed, and which are to be given times anew; `set_times_anew` once they were.
    pub fn changed(&self) -> BTreeSet<String> {
        self.changed.clone()
    }

    pub fn set_times_anew(&mut self) {
        self.changed.clear();
    }

    /// What the node has written for workers, as JSON. Empty: nothing.
    pub fn for_workers(&self) -> &str {
        &self.for_workers
    }

    /// Whether a task may begin again once it has begun.
    pub fn is_late(&self, task: &str) -> bool {
        self.told.late.contains(task)
    }

    /// The queues that are asked for, of those that the runner wants.
    pub fn queues(&self, wanted: &[String]) -> Vec<String> {
        match &self.told.queues {
            Some(queues) if !wanted.is_empty() => {
                let known = wanted.iter().filter(|queue| queues.contains(queue));
                let others = queues.iter().filter(|queue| !wanted.contains(queue));
                known.chain(others).cloned().collect()
            }
            _ => wanted.to_vec(),
        }
    }

    /// Takes the next start of a task that has a rate, not before this time. None: at once.
    pub fn start(&mut self, task: &str, not_before: Option<Millis>, now: Millis) -> Option<Millis> {
        let earliest = not_before.map_or(now, |at| at.max(now));
        let Some(interval) = self.told.intervals.get(task) else { return not_before.filter(|at| *at > now) };
        let next = self.next.entry(task.to_owned()).or_insert(0.0);
        let at = next.max(earliest as f64);
        *next = at + interval;
        Some(at.ceil() as Millis).filter(|at| *at > now)
    }
}

fn for_workers(text: &str) -> Option<String> {
    let mut told: Value = serde_json::from_str(text).ok()?;
    told.as_object_mut()?.remove("late");
    Some(told.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spreads_the_starts_of_a_task() {
        let mut settings = Settings::default();
        assert_eq!(settings.start("a", None, 1000), None);
        assert_eq!(settings.start("a", Some(2000), 1000), Some(2000));
        settings.hear(r#"{"intervals": {"a": 500.0}}"#.to_owned());
        assert_eq!(settings.start("b", None, 1000), None);
        assert_eq!(settings.start("a", None, 1000), None);
        assert_eq!(settings.start("a", None, 1200), Some(1500));
        assert_eq!(settings.start("a", None, 1200), Some(2000), "each has a time of its own");
        assert_eq!(settings.start("a", None, 9000), None, "nothing is saved up");
        assert_eq!(settings.start("a", Some(12_000), 9100), Some(12_000));
    }

    #[test]
    fn a_rate_that_changes_holds_from_now_on() {
        let mut settings = Settings::default();
        settings.hear(r#"{"intervals": {"a": 60000.0, "b": 60000.0}}"#.to_owned());
        assert!(settings.changed().is_empty(), "nothing has waited for another");
        assert_eq!(["a", "a", "b"].map(|task| settings.start(task, None, 1000)), [None, Some(61_000), None]);
        settings.hear(r#"{"intervals": {"a": 10.0, "b": 60000.0}}"#.to_owned());
        assert_eq!(settings.changed(), BTreeSet::from(["a".to_owned()]));
        assert_eq!(settings.start("a", None, 1000), None);
        assert_eq!(settings.start("b", None, 1000), Some(61_000), "as before");
        settings.set_times_anew();
        assert!(settings.changed().is_empty());
    }

    #[test]
    fn queues_that_the_node_names_replace_the_others() {
        let mut settings = Settings::default();
        let wanted = ["b".to_owned(), "a".to_owned()];
        assert_eq!(settings.queues(&wanted), wanted);
        assert!(settings.hear(r#"{"queues": ["a", "c"]}"#.to_owned()), "others than before");
        assert!(!settings.hear(r#"{"queues": ["a", "c"], "events": true}"#.to_owned()));
        assert_eq!(settings.queues(&wanted), ["a", "c"]);
        assert!(settings.queues(&[]).is_empty(), "a runner that wants nothing is asked for nothing");
        settings.hear("damaged".to_owned());
        assert_eq!(settings.queues(&wanted), wanted);
    }

    #[test]
    fn workers_are_not_told_which_tasks_are_late() {
        let mut settings = Settings::default();
        settings.hear(r#"{"events": true, "late": ["a"]}"#.to_owned());
        assert_eq!(settings.for_workers(), r#"{"events":true}"#);
        assert!(settings.is_late("a") && !settings.is_late("b"));
        settings.hear("7".to_owned());
        assert_eq!((settings.for_workers(), settings.is_late("a")), ("", false));
    }
}
