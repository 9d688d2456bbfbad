//! The tools that jobs of this runner have named, and their numbers in the pool: pure.
//!
//! Jobs come from outside and may name anything, while the pool and each of its workers keep what they know of a name for as
//! long as they live.

use std::collections::HashMap;

use clutch_pool::work::FunctionId;

/// Most names that get a number though the target is not known to have such a tool.
const UNKNOWN_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Functions {
    numbers: HashMap<String, FunctionId>,
    unknown: usize,
}

impl Functions {
    /// Returns its number, which `number` gives a new one; none where too many others were named that nobody has.
    pub(super) fn of(
        &mut self,
        tool: &str,
        is_known: impl FnOnce() -> bool,
        number: impl FnOnce() -> FunctionId,
    ) -> Option<FunctionId> {
        if let Some(known) = self.numbers.get(tool) {
            return Some(*known);
        }
        if !is_known() {
            if self.unknown >= UNKNOWN_MAX {
                return None;
            }
            self.unknown += 1;
        }
        Some(*self.numbers.entry(tool.to_owned()).or_insert(number()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_no_tool_get_so_many_numbers_and_tools_of_the_target_always_one() {
        let (mut functions, mut next) = (Functions::default(), 0);
        let mut of = |tool: &str, is_known: bool| {
            functions.of(
                tool,
                || is_known,
                || {
                    next += 1;
                    next
                },
            )
        };
        for nr in 0..3 * UNKNOWN_MAX {
            assert_eq!(of(&format!("nobody's {nr}"), false).is_some(), nr < UNKNOWN_MAX);
            assert!(of(&format!("tool {nr}"), true).is_some());
        }
        assert_eq!((of("nobody's 0", false), of("tool 0", true)), (Some(1), Some(2)), "it keeps its number");
    }
}
