//! The seam between a dispatcher and its ways in: how a front of any kind starts, reloads and stops.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clutch_pool::pool::Pool;

use crate::account::figures::Figures;
use crate::net::accept::Accepting;
use crate::net::warnings::Warnings;
use crate::plane::Plane;
use crate::plane::pools::Pools;

/// The configuration of a front, which knows how to start it.
pub(crate) trait Start {
    /// Most connections that it may have at a time; none: few, which are not counted.
    fn connections_max(&mut self) -> Option<&mut usize> {
        None
    }

    /// Binds and serves: it listens when this returns. Fails when an address or a file cannot be had. Called with the
    /// runtime entered.
    fn start(self: Box<Self>, context: &Context) -> io::Result<Box<dyn Front>>;
}

/// A front that listens.
pub(crate) trait Front: Send + Sync + 'static {
    /// Where it listens, and what its stop ends.
    fn accepting(&mut self) -> &mut Accepting;

    /// Stops accepting, lets what is open end within `grace`, then cuts it off.
    fn stop(mut self: Box<Self>, grace: Duration) -> Stopped {
        Box::pin(async move { self.accepting().end(grace).await })
    }

    /// It stops after the others, so that their stop can be watched.
    fn is_last(&self) -> bool {
        false
    }

    /// Its log files were moved away: new ones are begun.
    fn reopen_logs(&self) {}

    /// Reads certificates and tokens anew. `pools`: those whose code is loaded anew, too; files of a front that runs a
    /// pool's app are read with that pool's.
    fn reload(&self, _pools: &[String]) -> Vec<Reread> {
        Vec::new()
    }

    /// A token that it takes; none: it needs none.
    fn token(&self) -> Option<String> {
        None
    }
}

/// Ends when nothing of the front is left.
pub(crate) type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A file, or files that belong together, read anew.
#[derive(Debug)]
pub struct Reread {
    /// As `fronts.api.tls`.
    pub option: String,
    /// Of an error: the old content goes on.
    pub result: io::Result<()>,
}

/// What a front is started with.
#[derive(Clone)]
pub(crate) struct Context {
    /// Its own: `[fronts.NAME]`.
    pub(crate) name: Arc<str>,
    pub(crate) pools: Pools,
    pub(crate) warnings: Arc<Warnings>,
    pub(crate) plane: Arc<Plane>,
}

impl Context {
    /// As `fronts.api`.
    pub(crate) fn place(&self) -> String {
        format!("fronts.{}", self.name)
    }

    /// Its own figures, among those of all.
    pub(crate) fn figures(&self) -> Arc<Figures> {
        let figures = Figures::new(&self.name);
        self.plane.count(figures.clone());
        figures
    }

    /// The pool that `fronts.NAME.pool` names.
    pub(crate) fn pool(&self, name: &str) -> io::Result<Arc<Pool>> {
        self.pools.named(name).ok_or_else(|| io::Error::other(format!("there is no pool '{name}'")))
    }

    /// Outcomes of files that were read anew, by option; none: there is no such file.
    pub(crate) fn reread<'a>(&self, files: impl IntoIterator<Item = (&'a str, Option<io::Result<()>>)>) -> Vec<Reread> {
        let place = self.place();
        let reread = files
            .into_iter()
            .filter_map(|(option, result)| Some(Reread { option: format!("{place}.{option}"), result: result? }));
        reread.collect()
    }
}
