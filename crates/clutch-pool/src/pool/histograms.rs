//! A sink that counts how long work waited and ran, by pool and by kind of work, and how calls of each tool ended.
//!
//! There are as many histograms as pools times kinds, and as pools times tools, whatever callers send: names that a target
//! does not have are one, and beyond [`TOOLS_MAX`] all are.

use std::collections::BTreeMap;
use std::sync::Arc;

use clutch_wire::sync::Mutex;

use super::facts::{WorkExpired, WorkFinished, WorkLost};
use crate::telemetry::{Durations, EventRecord, Sink};

/// Most tools of a pool with figures of their own, and the name of all others.
const TOOLS_MAX: usize = 1000;
const OTHER_TOOLS: &str = "other";

/// The kind of the failure of a call whose name the target does not have.
const NO_SUCH_TOOL: &str = "no_such_tool";

/// Those of calls that no worker has answered.
const DEADLINE: &str = "deadline";
const WORKER_LOST: &str = "worker_lost";

/// Time in the queue, and in user code.
type Pair = (Durations, Durations);

/// Calls of one tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCalls {
    pub run: Durations,
    /// By the kind of the failure.
    pub failures: BTreeMap<&'static str, u64>,
}

/// Calls of a pool, by the name of their tool.
type CallsByTool = BTreeMap<Arc<str>, ToolCalls>;

/// A histogram of the time in the queue and one of the run time, for each pool and kind of work; of calls by name, one of
/// the run time and the failures for each pool and tool.
#[derive(Default)]
pub struct Histograms {
    kinds: Mutex<BTreeMap<(Arc<str>, &'static str), Pair>>,
    tools: Mutex<BTreeMap<Arc<str>, CallsByTool>>,
}

impl Histograms {
    /// By pool and kind: how long work waited until it was sent to its worker, and how long it ran there.
    pub fn read(&self) -> BTreeMap<(Arc<str>, &'static str), Pair> {
        self.kinds.lock().clone()
    }

    /// By pool and tool.
    pub fn tools(&self) -> BTreeMap<Arc<str>, CallsByTool> {
        self.tools.lock().clone()
    }

    /// `run_s`: None where its worker has not told.
    fn count_call(&self, pool: &Arc<str>, tool: &Arc<str>, run_s: Option<f64>, error: Option<&'static str>) {
        let mut pools = self.tools.lock();
        let tools = pools.entry(pool.clone()).or_default();
        let is_own = error != Some(NO_SUCH_TOOL) && (tools.len() < TOOLS_MAX || tools.contains_key(tool));
        let calls = tools.entry(if is_own { tool.clone() } else { OTHER_TOOLS.into() }).or_default();
        run_s.into_iter().for_each(|run_s| calls.run.add(run_s));
        if let Some(error) = error {
            *calls.failures.entry(error).or_default() += 1;
        }
    }
}

impl Sink for Histograms {
    fn event(&self, event: &EventRecord<'_>) {
        if let Some(WorkFinished { kind, tool, queued_s, run_s, error, .. }) = event.get() {
            if let Some(tool) = tool {
                self.count_call(event.pool, tool, Some(*run_s), *error);
            }
            let mut all = self.kinds.lock();
            let (queued, run) = all.entry((event.pool.clone(), kind)).or_default();
            queued.add(*queued_s);
            run.add(*run_s);
        } else if let Some(WorkExpired { tool: Some(tool), .. }) = event.get() {
            self.count_call(event.pool, tool, None, Some(DEADLINE));
        } else if let Some(WorkLost { tool: Some(tool), .. }) = event.get() {
            self.count_call(event.pool, tool, None, Some(WORKER_LOST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_tools_that_there_are() {
        let (histograms, pool) = (Histograms::default(), Arc::<str>::from("api"));
        histograms.count_call(&pool, &"add".into(), Some(0.5), None);
        histograms.count_call(&pool, &"add".into(), Some(0.25), Some("raised"));
        histograms.count_call(&pool, &"ad".into(), Some(0.0), Some(NO_SUCH_TOOL));
        let tools = &histograms.tools()[&pool];
        assert_eq!(tools.keys().map(|name| &**name).collect::<Vec<_>>(), ["add", OTHER_TOOLS]);
        assert_eq!((tools["add"].run.count(), tools["add"].run.sum), (2, 0.75));
        assert_eq!(tools["add"].failures, BTreeMap::from([("raised", 1)]));
    }

    #[test]
    fn there_are_no_more_figures_than_tools_max() {
        let (histograms, pool) = (Histograms::default(), Arc::<str>::from("api"));
        for nr in 0..TOOLS_MAX + 10 {
            histograms.count_call(&pool, &nr.to_string().into(), Some(0.1), None);
        }
        let tools = &histograms.tools()[&pool];
        assert_eq!((tools.len(), tools[OTHER_TOOLS].run.count()), (TOOLS_MAX + 1, 10));
    }
}
