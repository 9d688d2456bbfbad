//! The fronts of one dispatcher: how they start, what they tell, how they stop.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use tokio::runtime::{Handle, Runtime};

use crate::config::FrontConfig;
use crate::front::{Context, Front, Reread, Start};
use crate::net::listen::Address;
use crate::net::warnings::Warnings;
use crate::plane::Plane;

/// Threads of the runtime: they serve all fronts but those that have threads of their own.
const THREADS: usize = 2;

/// How long the fronts that stop last wait for requests that are being answered.
const LAST_GRACE: Duration = Duration::from_secs(1);

/// Descriptors that are kept for all but connections: a quarter of those that there may be, in these bounds.
const RESERVE_MIN: u64 = 128;
const RESERVE_MAX: u64 = 4096;

/// A front with its name.
type NamedFront = (Arc<str>, Box<dyn Front>);

struct Running {
    runtime: Handle,
    fronts: Vec<NamedFront>,
}

/// The async runtime of a dispatcher: for its fronts, and for whatever else waits for many things at once. Its threads take
/// no signals.
pub fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("clutch-async")
        .on_thread_start(sys::block_signals)
        .enable_all()
        .build()
}

/// Each connection is a descriptor, and workers, large values and those that are turned away need some, too. Where the hard
/// limit is too low for all, there are fewer connections.
fn make_room(starts: &mut [(Arc<str>, Box<dyn Start>)], warnings: &Warnings) {
    let wanted: u64 = starts.iter_mut().filter_map(|(_, start)| start.connections_max()).map(|most| *most as u64).sum();
    let left = sys::descriptors_left();
    let reserve = (left / 4).clamp(RESERVE_MIN.min(left / 2), RESERVE_MAX);
    let room = left.saturating_sub(reserve);
    let mut shortened = Vec::new();
    for (name, limit) in starts.iter_mut().filter_map(|(name, start)| Some((name, start.connections_max()?))) {
        let share = (room as u128 * *limit as u128 / u128::from(wanted.max(room).max(1))) as usize;
        if share < *limit {
            let given = std::mem::replace(limit, share.max(1));
            shortened.push(format!(
                "fronts.{name}.connections_max is {given}, and this process may have {left} descriptors more: {limit} \
                 connections at most"
            ));
        }
    }
    if !shortened.is_empty() {
        warnings.tell("connections_max", || {
            format!("{}; raise the hard limit (ulimit -Hn, LimitNOFILE=)", shortened.join("; "))
        });
    }
    // As far as it goes: there is no more to be had.
    let _ = sys::make_room_for_descriptors(wanted.min(room), reserve);
}

/// The network fronts of one dispatcher.
#[derive(Default)]
pub struct Fronts {
    /// Of each front, where it listens.
    addresses: Vec<(Arc<str>, Vec<Address>)>,
    plane: Option<Arc<Plane>>,
    warnings: Arc<Warnings>,
    /// None: stopped, or nothing was to be served.
    running: Mutex<Option<Running>>,
}

impl Fronts {
    /// Binds and serves what is configured, by name. Listening has begun when this returns; it fails when an address cannot
    /// be had.
    pub fn start(runtime: &Handle, plane: &Arc<Plane>, configs: Vec<(String, FrontConfig)>) -> io::Result<Fronts> {
        let mut fronts = Fronts { plane: Some(plane.clone()), ..Fronts::default() };
        if configs.is_empty() {
            return Ok(fronts);
        }
        let mut starts: Vec<(Arc<str>, Box<dyn Start>)> =
            configs.into_iter().map(|(name, config)| (name.into(), config.start())).collect();
        make_room(&mut starts, &fronts.warnings);
        let mut running = Vec::new();
        let entered = runtime.enter();
        for (name, start) in starts {
            let (pools, plane, warnings) = (plane.pools.clone(), plane.clone(), fronts.warnings.clone());
            let context = Context { name, pools, warnings, plane };
            let mut front = start.start(&context)?;
            fronts.addresses.push((context.name.clone(), front.accepting().addresses().to_vec()));
            running.push((context.name, front));
        }
        drop(entered);
        fronts.running = Mutex::new(Some(Running { runtime: runtime.clone(), fronts: running }));
        Ok(fronts)
    }

    /// Where a front listens, each `host:port` or `unix:path`.
    pub fn addresses(&self, front: &str) -> Vec<String> {
        let of_front = self.addresses.iter().filter(|(name, _)| &**name == front);
        of_front.flat_map(|(_, addresses)| addresses).map(Address::to_string).collect()
    }

    /// Where a client of this machine reaches a front: its first address of TCP, else its first.
    pub fn address(&self, front: &str) -> Option<String> {
        let (_, addresses) = self.addresses.iter().find(|(name, _)| &**name == front)?;
        let tcp = addresses.iter().find(|address| matches!(address, Address::Tcp(_)));
        tcp.or(addresses.first()).map(Address::to_string)
    }

    /// A token that a front takes. None: it needs none.
    pub fn token(&self, front: &str) -> Option<String> {
        let running = self.running.lock();
        let (_, front) = running.as_ref()?.fronts.iter().find(|(name, _)| &**name == front)?;
        front.token()
    }

    /// Stops accepting, lets requests that are being answered end within `grace`, then cuts them off. Blocks as long. The
    /// admin front goes on, so that what else stops can be watched.
    pub fn stop_work(&self, grace: Duration) {
        self.plane.iter().for_each(|plane| plane.stops());
        self.end(grace, |front| !front.is_last());
    }

    /// The same with all fronts, the admin front last.
    pub fn stop(&self, grace: Duration) {
        self.stop_work(grace);
        self.end(grace.min(LAST_GRACE), |_| true);
        self.warnings.close();
    }

    /// The next warning for the log; blocks until there is one. None: all has been stopped.
    pub fn next_warning(&self) -> Option<String> {
        self.warnings.next()
    }

    /// Log files were moved away: new ones are begun.
    pub fn reopen_logs(&self) {
        self.running.lock().iter().flat_map(|running| &running.fronts).for_each(|(_, front)| front.reopen_logs());
    }

    /// Certificates and tokens are read anew, those of an app only where its pool is among these. What is wrong with them
    /// is told, and the old ones go on.
    pub fn reload_files(&self, pools: &[String]) -> Vec<Reread> {
        self.running
            .lock()
            .iter()
            .flat_map(|running| &running.fronts)
            .flat_map(|(_, front)| front.reload(pools))
            .collect()
    }

    fn end(&self, grace: Duration, ends: impl Fn(&dyn Front) -> bool) {
        let mut running = self.running.lock();
        let Some(Running { runtime, fronts }) = running.take() else {
            return;
        };
        let (ended, left): (Vec<_>, Vec<_>) = fronts.into_iter().partition(|(_, front)| ends(&**front));
        if !left.is_empty() {
            *running = Some(Running { runtime: runtime.clone(), fronts: left });
        }
        drop(running);
        runtime.block_on(stop_all(ended, grace));
    }
}

/// Side by side.
async fn stop_all(fronts: Vec<NamedFront>, grace: Duration) {
    let stops: Vec<_> = fronts.into_iter().map(|(_, front)| tokio::spawn(front.stop(grace))).collect();
    for stop in stops {
        // A panic of it was told when it happened.
        let _ = stop.await;
    }
}
