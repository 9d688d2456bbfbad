//! What a log is told of ticks that make no job: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{AHEAD_MAX, REFUSED};
use crate::job::Millis;
use crate::store::Tick;

/// Ticks that are skipped in a row before somebody is told.
const SKIPS_TOLD: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The job of an earlier tick has not ended, for the second tick in a row.
    Skipped,
    /// The last tick is so far in the future, in milliseconds.
    Ahead(Millis),
    /// The store refuses the ticks of this machine: its clock is ahead.
    Refused,
}

/// What was told already.
#[derive(Debug, Default)]
pub struct Watch {
    skips: BTreeMap<String, u32>,
    ahead: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl Watch {
    /// Takes the store's answer to these ticks. Returns the entries of which the log is to be told.
    pub fn on(&mut self, ticks: &[Tick], lasts: &[Millis], skipped: &[String], now: Millis) -> Vec<(String, Silence)> {
        let mut told = Vec::new();
        for (tick, last) in ticks.iter().zip(lasts) {
            let name = &tick.name;
            if *last == REFUSED {
                if self.refused.insert(name.clone()) {
                    told.push((name.clone(), Silence::Refused));
                }
                continue;
            }
            self.refused.remove(name);
            let ahead = last.saturating_sub(now);
            if ahead <= AHEAD_MAX {
                self.ahead.remove(name);
            } else if self.ahead.insert(name.clone()) {
                told.push((name.clone(), Silence::Ahead(ahead)));
            }
            if skipped.contains(name) {
                let skips = self.skips.entry(name.clone()).or_default();
                *skips += 1;
                if *skips == SKIPS_TOLD {
                    told.push((name.clone(), Silence::Skipped));
                }
            } else if tick.job.is_some() && *last == tick.at {
                self.skips.remove(name);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::job::NewJob;

    fn tick(at: Millis) -> [Tick; 1] {
        let job = NewJob::new("default", "x", RawValue::NULL.to_owned());
        [Tick { name: "a".to_owned(), at, job: Some(job), kept: None }]
    }

    #[test]
    fn the_second_skip_in_a_row_is_told_once() {
        let (mut watch, name) = (Watch::default(), ["a".to_owned()]);
        let mut skip = |at: Millis, skipped: &[String]| watch.on(&tick(at), &[at], skipped, at);
        assert_eq!(skip(1, &name), []);
        assert_eq!(skip(2, &[]), [], "one began");
        assert_eq!(skip(3, &name), []);
        assert_eq!(skip(4, &name), [("a".to_owned(), Silence::Skipped)]);
        assert_eq!(skip(5, &name), []);
        assert_eq!(skip(6, &[]), []);
        assert_eq!([skip(7, &name), skip(8, &name)].concat(), [("a".to_owned(), Silence::Skipped)], "again");
    }

    #[test]
    fn clocks_that_are_ahead_are_told_once() {
        let mut watch = Watch::default();
        assert_eq!(watch.on(&tick(5), &[REFUSED], &[], 5), [("a".to_owned(), Silence::Refused)]);
        assert_eq!(watch.on(&tick(6), &[REFUSED], &[], 6), []);
        assert_eq!(watch.on(&tick(7), &[AHEAD_MAX + 8], &[], 7), [("a".to_owned(), Silence::Ahead(AHEAD_MAX + 1))]);
        assert_eq!(watch.on(&tick(8), &[AHEAD_MAX + 9], &[], 8), []);
        assert_eq!(watch.on(&tick(9), &[9], &[], 9), []);
    }
}
