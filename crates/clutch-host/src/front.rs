//! The seam between a dispatcher and its fronts: how a front of any kind starts, reloads and stops.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use clutch_pool::pool::Pool;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

use crate::address::Address;
use crate::plane::Plane;
use crate::pools::Pools;
use crate::runtime::AsyncRuntime;
use crate::stalls::Stalls;
use crate::warnings::Warnings;

/// The outcome of a start. Each crate has errors of its own, which the bridge tells apart.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A kind of front, by the `kind` of its table in a configuration. A new kind is a file that implements [`Start`] and
/// [`Front`], and a row in the list of its crate.
#[derive(Clone, Copy)]
pub struct FrontKind {
    pub name: &'static str,
    /// Reads the options of one front of this kind: JSON, with every option decided.
    pub read: fn(&str) -> serde_json::Result<Box<dyn Start>>,
}

impl FrontKind {
    pub const fn of<Options: Start + DeserializeOwned + 'static>(name: &'static str) -> FrontKind {
        FrontKind { name, read: read::<Options> }
    }
}

fn read<Options: Start + DeserializeOwned + 'static>(text: &str) -> serde_json::Result<Box<dyn Start>> {
    serde_json::from_str::<Options>(text).map(|options| Box::new(options) as Box<dyn Start>)
}

/// The options of a front, which know how to start it.
pub trait Start: Send {
    /// Returns the limit of its concurrent connections, where it has one that is counted.
    fn connections_max(&mut self) -> Option<&mut usize> {
        None
    }

    /// Binds and serves: the front takes work in when this returns. Fails when an address, a file or a store is unavailable.
    fn start(self: Box<Self>, context: &Context) -> Result<Arc<dyn Front>>;
}

/// When a front stops, among those of its dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopOrder {
    /// Before the pools: what it has begun is their work.
    BeforePools,
    /// After the pools: it settles what they have finished or cut off.
    AfterPools,
    /// Last, so that the stop of all else can be watched.
    Last,
}

/// A running front.
pub trait Front: Send + Sync + 'static {
    /// Returns its addresses, with real ports.
    fn addresses(&self) -> &[Address] {
        &[]
    }

    fn stop_order(&self) -> StopOrder {
        StopOrder::BeforePools
    }

    /// Takes in no more, from the moment when the dispatcher begins to stop. For those that do not stop first.
    fn quiet(&self) {}

    /// Takes in no more, lets what has begun end within `grace`, then cuts it off. Blocks as long; a second stop can only
    /// hurry the first.
    fn stop(&self, grace: Duration);

    /// Leaves what it holds to others at once, right before the end of the process, also in the midst of a stop.
    fn leave(&self) {}

    /// Reopens its log files: the old ones were moved away.
    fn reopen_logs(&self) {}

    /// Reads certificates and tokens anew. `pools`: those whose code is loaded anew, too; files of a front that runs a
    /// pool's app are read with that pool's.
    fn reload(&self, _pools: &[String]) -> Vec<Reread> {
        Vec::new()
    }

    /// Returns a token that it takes; none if it needs none.
    fn token(&self) -> Option<String> {
        None
    }
}

/// A file, or files that belong together, read anew.
#[derive(Debug)]
pub struct Reread {
    /// As `fronts.api.tls`.
    pub option: String,
    /// After an error the old content stays in use.
    pub result: io::Result<()>,
}

/// Surroundings that a front is started in.
#[derive(Clone)]
pub struct Context {
    /// Name of the front: `[fronts.NAME]`.
    pub name: Arc<str>,
    pub pools: Pools,
    pub warnings: Arc<Warnings>,
    pub plane: Arc<Plane>,
    /// To watch event loops of its own.
    pub stalls: Arc<Stalls>,
    pub(crate) runtime: Arc<AsyncRuntime>,
}

impl Context {
    /// Returns its place in the configuration, such as `fronts.api`.
    pub fn place(&self) -> String {
        format!("fronts.{}", self.name)
    }

    /// Returns the pool that `fronts.NAME.pool` names.
    pub fn pool(&self, name: &str) -> io::Result<Arc<Pool>> {
        self.pools.named(name).ok_or_else(|| io::Error::other(format!("there is no pool '{name}'")))
    }

    /// Returns the async runtime of all fronts, which the first one that asks starts.
    pub fn runtime(&self) -> io::Result<Handle> {
        self.runtime.handle()
    }

    /// Returns outcomes of files that were read anew, by option; none stands for a file that is not configured.
    pub fn reread<'a>(&self, files: impl IntoIterator<Item = (&'a str, Option<io::Result<()>>)>) -> Vec<Reread> {
        let place = self.place();
        let reread = files
            .into_iter()
            .filter_map(|(option, result)| Some(Reread { option: format!("{place}.{option}"), result: result? }));
        reread.collect()
    }
}
