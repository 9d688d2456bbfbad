//! The ways in from the network: what they share, and how they start and stop.
//!
//! A front turns what arrives into `Work` and what comes of it into an answer; it decides nothing about workers. All of
//! them share one small runtime, which exists only when a network front is configured. Assumes that signals belong to
//! another thread: the runtime's threads block them all.

mod admin;
mod body;
mod catalog;
mod door;
mod http;
mod listen;
mod metrics;
mod pending;
mod problem;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper_util::server::graceful::Watcher;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::admin::AdminFront;
use self::http::HttpFront;
use self::listen::{Listener, Stream};
use crate::config::{AdminConfig, HttpConfig};
use crate::pool::Pool;
use crate::sys;

/// Threads that serve all fronts.
const THREADS: usize = 2;

/// How long the admin front, which stops last, waits for requests that are being answered.
const ADMIN_GRACE: Duration = Duration::from_secs(1);

/// How long an end waits for tasks that were cut off to let go of what they hold.
const CUT: Duration = Duration::from_secs(1);

/// Most connections of the admin front at a time.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// A way in.
trait Front: Send + Sync + 'static {
    /// Serves one connection to its end. `watcher` tells when to take no further request from it.
    fn serve(self: Arc<Self>, stream: Stream, watcher: Watcher) -> impl Future<Output = ()> + Send;
}

/// The pools that can be reached, by name.
#[derive(Clone, Default)]
pub struct Pools(Arc<BTreeMap<String, Arc<Pool>>>);

impl Pools {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.0.values()
    }
}

impl FromIterator<Arc<Pool>> for Pools {
    fn from_iter<I: IntoIterator<Item = Arc<Pool>>>(pools: I) -> Pools {
        Pools(Arc::new(pools.into_iter().map(|pool| (pool.config.name.clone(), pool)).collect()))
    }
}

/// One front that accepts connections.
struct Served {
    stop: oneshot::Sender<()>,
    /// Ends when the last of its connections has.
    done: JoinHandle<()>,
}

struct Running {
    runtime: Runtime,
    http: Option<Served>,
    admin: Option<Served>,
}

/// The network fronts of one dispatcher.
pub struct Fronts {
    http_address: Option<String>,
    admin_address: Option<String>,
    /// Set when the stop begins; /readyz tells it.
    stopping: Arc<AtomicBool>,
    /// None: stopped, or nothing was to be served.
    running: Mutex<Option<Running>>,
}

impl Fronts {
    /// Binds and serves what is configured. Listening has begun when this returns; it fails when an address cannot be had.
    pub fn start(pools: Pools, http: Option<HttpConfig>, admin: Option<AdminConfig>) -> io::Result<Fronts> {
        let stopping = Arc::new(AtomicBool::new(false));
        let mut fronts = Fronts { http_address: None, admin_address: None, stopping, running: Mutex::new(None) };
        if http.is_none() && admin.is_none() {
            return Ok(fronts);
        }
        let runtime = runtime()?;
        let entered = runtime.enter();
        let http = http.map(|config| fronts.start_http(&pools, config)).transpose()?;
        let admin = admin.map(|config| fronts.start_admin(&pools, config)).transpose()?;
        drop(entered);
        fronts.running = Mutex::new(Some(Running { runtime, http, admin }));
        Ok(fronts)
    }

    /// Where the http front listens: `host:port` or `unix:path`.
    pub fn http_address(&self) -> Option<&str> {
        self.http_address.as_deref()
    }

    /// Where the admin front listens.
    pub fn admin_address(&self) -> Option<&str> {
        self.admin_address.as_deref()
    }

    /// Stops accepting, lets requests that are being answered end within `grace`, then cuts them off. Blocks as long. The
    /// admin front goes last, so that the stop can be watched.
    pub fn stop(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Release);
        let Some(Running { runtime, http, admin }) = self.running.lock().take() else {
            return;
        };
        runtime.block_on(async {
            end(http, grace).await;
            end(admin, grace.min(ADMIN_GRACE)).await;
        });
        runtime.shutdown_timeout(CUT);
    }

    fn start_http(&mut self, pools: &Pools, config: HttpConfig) -> io::Result<Served> {
        let listener = Listener::bind(&config.bind).map_err(|error| not_bound("fronts.http", &config.bind, &error))?;
        self.http_address = Some(listener.address().to_string());
        let connections_max = config.connections_max;
        let front = HttpFront::new(pools, &config, listener.address());
        Ok(serve(listener, front, connections_max))
    }

    fn start_admin(&mut self, pools: &Pools, config: AdminConfig) -> io::Result<Served> {
        let listener = Listener::bind(&config.bind).map_err(|error| not_bound("fronts.admin", &config.bind, &error))?;
        self.admin_address = Some(listener.address().to_string());
        let front = AdminFront::new(pools.clone(), &config, listener.address(), self.stopping.clone());
        Ok(serve(listener, front, ADMIN_CONNECTIONS_MAX))
    }
}

impl Drop for Fronts {
    /// Cuts everything off without waiting: a forked copy has no threads that could be waited for.
    fn drop(&mut self) {
        if let Some(running) = self.running.lock().take() {
            running.runtime.shutdown_background();
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("clutch-front")
        .on_thread_start(sys::block_signals)
        .enable_all()
        .build()
}

fn serve<F: Front>(listener: Listener, front: F, connections_max: usize) -> Served {
    let (stop, stopped) = oneshot::channel();
    let done = tokio::spawn(listen::serve(listener, Arc::new(front), connections_max, stopped));
    Served { stop, done }
}

async fn end(served: Option<Served>, grace: Duration) {
    let Some(Served { stop, mut done }) = served else {
        return;
    };
    // A front that has ended already needs no telling.
    let _ = stop.send(());
    if tokio::time::timeout(grace, &mut done).await.is_err() {
        done.abort();
    }
}

fn not_bound(front: &str, bind: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{front} cannot listen on {bind}: {error}"))
}
