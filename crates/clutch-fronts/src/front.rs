//! What a front is, and the pools that it can reach.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use clutch_pool::pool::Pool;

use crate::figures::Figures;
use crate::net::stream::{Stay, Stream};
use crate::net::warnings::Warnings;

/// A way in.
pub(crate) trait Front: Send + Sync + 'static {
    /// Serves one connection to its end. `stay` tells when to take no further request from it.
    fn serve(self: Arc<Self>, stream: Stream, stay: Stay) -> impl Future<Output = ()> + Send;

    fn figures(&self) -> &Arc<Figures>;

    fn warnings(&self) -> &Warnings;

    /// Whether a client understands words of HTTP from the first byte on.
    fn is_plain(&self) -> bool {
        true
    }

    /// There was no place for a connection.
    fn turned_away(&self, _client: Option<SocketAddr>) {}

    /// It takes no more connections: what has no end of its own is told.
    fn stopping(&self) {}
}

/// The pools that can be reached, by name.
#[derive(Clone, Default)]
pub struct Pools(Arc<BTreeMap<String, Arc<Pool>>>);

impl Pools {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.0.values()
    }

    pub(crate) fn named(&self, name: &str) -> io::Result<Arc<Pool>> {
        self.0.get(name).cloned().ok_or_else(|| io::Error::other(format!("there is no pool '{name}'")))
    }
}

impl FromIterator<Arc<Pool>> for Pools {
    fn from_iter<I: IntoIterator<Item = Arc<Pool>>>(pools: I) -> Pools {
        Pools(Arc::new(pools.into_iter().map(|pool| (pool.config.name.clone(), pool)).collect()))
    }
}
