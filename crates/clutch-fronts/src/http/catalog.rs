//! Which tools a pool has, by the names that callers use.
//!
//! Promises that what strangers ask for does not fill the pool's table of functions: only names that the target has get
//! a number; while they are not known yet, a limited count of others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use clutch_pool::pool::{Batch, Health, Pool, Status};
use clutch_pool::work::FunctionId;
use clutch_wire::Codec;
use clutch_wire::sync::RwLock;

use crate::front::Pools;
use crate::problem::Problem;

/// Names that are passed on to a pool whose tools are not known yet.
const UNVERIFIED_MAX: usize = 1000;

/// Longer names are compared with nothing and quoted in part.
const NAME_CHARS_MAX: usize = 80;

/// One pool and the tools that were asked for.
pub(crate) struct Entry {
    pub(crate) pool: Arc<Pool>,
    pub(crate) batch: Arc<Batch>,
    functions: RwLock<HashMap<String, FunctionId>>,
}

/// All pools with their tools.
pub(crate) struct Catalog(BTreeMap<String, Entry>);

impl Catalog {
    pub(crate) fn new(pools: &Pools) -> Catalog {
        let entry =
            |pool: &Arc<Pool>| Entry { pool: pool.clone(), batch: Batch::new(pool), functions: RwLock::default() };
        Catalog(pools.iter().map(|pool| (pool.config.name.clone(), entry(pool))).collect())
    }

    /// In the order of their names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    pub(crate) fn pool(&self, name: &str) -> Result<&Entry, Box<Problem>> {
        self.0.get(name).ok_or_else(|| {
            let names = self.0.keys().map(String::as_str);
            Problem::no_such_pool(format!("no pool '{}'{}", quoted(name), suggestion(name, names)))
        })
    }
}

impl Entry {
    pub(crate) fn function(&self, tool: &str) -> Result<FunctionId, Box<Problem>> {
        if let Some(function) = self.functions.read().get(tool) {
            return Ok(*function);
        }
        self.look_up(tool)
    }

    fn look_up(&self, tool: &str) -> Result<FunctionId, Box<Problem>> {
        let status = self.pool.status();
        match tools(&status) {
            Some(names) if !names.contains(&tool) => Err(self.no_such_tool(tool, &names)),
            None if self.functions.read().len() >= UNVERIFIED_MAX => Err(self.not_up(&status)),
            _ => {
                let function = self.pool.function(Codec::Name, tool.as_bytes(), tool);
                self.functions.write().insert(tool.to_owned(), function);
                Ok(function)
            }
        }
    }

    fn no_such_tool(&self, tool: &str, names: &[&str]) -> Box<Problem> {
        let (pool, near) = (&self.pool.config.name, suggestion(tool, names.iter().copied()));
        Problem::no_such_tool(format!("no tool '{}' in pool '{pool}'{near}", quoted(tool)))
    }

    pub(crate) fn not_up(&self, status: &Status) -> Box<Problem> {
        let state = if status.health == Health::Failing { "failing" } else { "starting" };
        Problem::not_ready(format!("pool '{}' is {state}: its tools are not known yet", self.pool.config.name))
    }
}

/// The tools of the target, once the zygote has told them.
pub(crate) fn tools(status: &Status) -> Option<Vec<&str>> {
    let tools = status.image.get("tools")?.as_array()?;
    Some(tools.iter().filter_map(serde_json::Value::as_str).collect())
}

/// A name out of a path: no slash, and percent signs only as escapes of UTF-8.
pub(crate) fn decode(name: &str) -> Option<String> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    if !name.contains('%') {
        return Some(name.to_owned());
    }
    let mut parts = name.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.as_bytes().split_at_checked(2)?;
        let digits =
            std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest);
    }
    String::from_utf8(bytes).ok()
}

fn quoted(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

/// Half a sentence with the names most like the one given, or all of them where they are few.
fn suggestion<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match nearest(given, &names) {
        Some(near) => format!("; did you mean '{near}'?"),
        None if names.is_empty() => "; there are none".to_owned(),
        None if names.len() <= 10 => format!("; there are: {}", names.join(", ")),
        None => format!("; there are {}, such as: {}", names.len(), names[..10].join(", ")),
    }
}

/// The name that takes the fewest edits to reach, when that is a third of it at most.
fn nearest<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    if given.len() > NAME_CHARS_MAX {
        return None;
    }
    let scored = names.iter().map(|name| (edits(given, name), *name));
    let (edits, name) = scored.min()?;
    (edits <= 1 + given.chars().count() / 3).then_some(name)
}

/// Insertions, deletions and replacements that make one name into the other.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, left) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, right) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
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
