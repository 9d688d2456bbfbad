//! Tools of pools, by the names that callers use.
//!
//! Promises that what strangers ask for does not fill the pool's table of functions: only names that the target has get
//! a number; while they are not known yet, a limited count of others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use clutch_host::Pools;
use clutch_pool::pool::{Batch, Health, Pool, Status};
use clutch_pool::work::FunctionId;
use clutch_wire::Codec;
use clutch_wire::sync::RwLock;

use crate::body::problem::Problem;
use crate::names::{quoted, suggestion};
use crate::net::tokens::Holder;

/// Names that are passed on to a pool whose tools are not known yet.
const UNVERIFIED_MAX: usize = 1000;

/// A pool and the tools of it that were asked for.
pub(crate) struct Entry {
    pub(crate) pool: Arc<Pool>,
    pub(crate) batch: Arc<Batch>,
    functions: RwLock<HashMap<String, FunctionId>>,
}

/// The pools of the front with their tools.
pub(crate) struct Catalog(BTreeMap<String, Entry>);

/// The catalog as whoever has a token sees it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) holder: &'a Holder,
}

impl Catalog {
    /// `listed`: names of the pools that it has. None: all.
    pub(crate) fn new(pools: &Pools, listed: Option<&[String]>) -> Catalog {
        let entry = |pool: Arc<Pool>| Entry { batch: Batch::new(&pool), pool, functions: RwLock::default() };
        let is_listed = |name: &str| listed.is_none_or(|listed| listed.iter().any(|known| known == name));
        let pools = pools.all().into_iter().filter(|(name, _)| is_listed(name));
        Catalog(pools.map(|(name, pool)| (name.to_string(), entry(pool))).collect())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<'a> View<'a> {
    /// In the order of their names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &'a Entry> {
        let holder = self.holder;
        self.catalog.0.iter().filter(|(name, _)| holder.may_reach(name)).map(|(_, entry)| entry)
    }

    pub(crate) fn pool(&self, name: &str) -> Result<&'a Entry, Box<Problem>> {
        match self.catalog.0.get(name) {
            Some(entry) if self.holder.may_reach(name) => Ok(entry),
            Some(_) => Err(Problem::other_pools_only(name)),
            None => {
                let names = self.catalog.names().filter(|known| self.holder.may_reach(known));
                Err(Problem::no_such_pool(format!("no pool '{}'{}", quoted(name), suggestion(name, names))))
            }
        }
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
