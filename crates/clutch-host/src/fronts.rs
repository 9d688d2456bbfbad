//! The fronts of one dispatcher: how they start, what they tell, and in which order they stop.

use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use clutch_wire::forked::Moment;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;

use crate::address::Address;
use crate::front::{Context, Front, Reread, Result, Start, StopOrder};
use crate::plane::{Member, Plane};
use crate::runtime::AsyncRuntime;
use crate::stalls::Stalls;
use crate::warnings::Warnings;

/// Time that the fronts that stop last wait for requests that are being answered.
const LAST_GRACE: Duration = Duration::from_secs(1);

/// Descriptors that are kept for all but connections: a quarter of those that there may be, in these bounds.
const RESERVE_MIN: u64 = 128;
const RESERVE_MAX: u64 = 4096;

/// A front with its name.
type NamedFront = (Arc<str>, Arc<dyn Front>);

/// The fronts of one dispatcher. A forked copy of the process has them for nothing, and leaves them alone.
pub struct Fronts {
    /// The addresses of each front, also after its stop.
    addresses: Vec<(Arc<str>, Vec<Address>)>,
    plane: Arc<Plane>,
    warnings: Arc<Warnings>,
    stalls: Arc<Stalls>,
    runtime: Arc<AsyncRuntime>,
    /// Fronts that have not stopped, in the order of the configuration.
    running: Mutex<Vec<NamedFront>>,
    made: Moment,
}

impl Fronts {
    /// Starts what is configured, by name. All serve when this returns; where one cannot, the others are stopped.
    pub fn start(plane: &Arc<Plane>, starts: Vec<(String, Box<dyn Start>)>) -> Result<Fronts> {
        let mut starts: Vec<(Arc<str>, Box<dyn Start>)> =
            starts.into_iter().map(|(name, start)| (name.into(), start)).collect();
        let warnings = Arc::default();
        let mut fronts = Fronts {
            addresses: Vec::new(),
            plane: plane.clone(),
            stalls: Stalls::new(&warnings),
            warnings,
            runtime: Arc::default(),
            running: Mutex::default(),
            made: Moment::now(),
        };
        if !starts.is_empty() {
            make_room(&mut starts, &fronts.warnings);
        }
        for (name, start) in starts {
            let front = start.start(&fronts.context(&name)).inspect_err(|_| fronts.stop(Duration::ZERO))?;
            fronts.addresses.push((name.clone(), front.addresses().to_vec()));
            fronts.running.get_mut().push((name, front));
        }
        fronts.runtime.running().iter().for_each(|runtime| fronts.stalls.watch(runtime));
        let member: Arc<dyn Member> = fronts.stalls.clone();
        plane.add(&member);
        Ok(fronts)
    }

    fn context(&self, name: &Arc<str>) -> Context {
        Context {
            name: name.clone(),
            pools: self.plane.pools.clone(),
            warnings: self.warnings.clone(),
            plane: self.plane.clone(),
            stalls: self.stalls.clone(),
            runtime: self.runtime.clone(),
        }
    }

    /// Returns the addresses of a front, each `host:port` or `unix:path`.
    pub fn addresses(&self, front: &str) -> Vec<String> {
        let of_front = self.addresses.iter().filter(|(name, _)| &**name == front);
        of_front.flat_map(|(_, addresses)| addresses).map(Address::to_string).collect()
    }

    /// Returns the address by which a client of this machine reaches a front: its first address of TCP, else its first.
    pub fn address(&self, front: &str) -> Option<String> {
        let (_, addresses) = self.addresses.iter().find(|(name, _)| &**name == front)?;
        let tcp = addresses.iter().find(|address| matches!(address, Address::Tcp(_)));
        tcp.or(addresses.first()).map(Address::to_string)
    }

    /// Returns a token that a front takes; none if it needs none.
    pub fn token(&self, front: &str) -> Option<String> {
        self.running.lock().iter().find(|(name, _)| &**name == front)?.1.token()
    }

    /// Begins the stop: nothing takes in more. Lets requests that are being answered end within `grace`, then cuts them
    /// off. Blocks as long. Fronts that stop after the pools go on with what they have begun.
    pub fn stop_work(&self, grace: Duration) {
        self.plane.stops();
        self.all().iter().for_each(|(_, front)| front.quiet());
        self.end(StopOrder::BeforePools, grace);
    }

    /// Stops, when the pools have ended, the fronts that settle what came of their work; each waits for at most so long.
    pub fn settle(&self, at_most: Duration) {
        self.end(StopOrder::AfterPools, at_most);
    }

    /// Stops all fronts that have not stopped yet, in order, then the async runtime.
    pub fn stop(&self, grace: Duration) {
        self.stop_work(grace);
        self.settle(grace);
        self.end(StopOrder::Last, grace.min(LAST_GRACE));
        self.warnings.close();
        self.runtime.stop();
    }

    /// Leaves to others what the fronts hold, right before the end of the process, also in the midst of a stop.
    pub fn leave(&self) {
        self.all().iter().for_each(|(_, front)| front.leave());
    }

    /// Returns the next warning for the log; blocks until there is one. None: all has been stopped.
    pub fn next_warning(&self) -> Option<String> {
        self.warnings.next()
    }

    /// Reopens log files: the old ones were moved away.
    pub fn reopen_logs(&self) {
        self.all().iter().for_each(|(_, front)| front.reopen_logs());
    }

    /// Reads certificates and tokens anew, those of an app only where its pool is among these. Where the new ones are
    /// wrong, the old ones go on.
    pub fn reload_files(&self, pools: &[String]) -> Vec<Reread> {
        self.all().iter().flat_map(|(_, front)| front.reload(pools)).collect()
    }

    fn all(&self) -> Vec<NamedFront> {
        self.running.lock().clone()
    }

    /// Stops those of this order side by side; until they have stopped, [`Fronts::leave`] finds them.
    fn end(&self, order: StopOrder, grace: Duration) {
        let ending: Vec<_> = self.all().into_iter().filter(|(_, front)| front.stop_order() == order).collect();
        thread::scope(|scope| {
            let (mut beside, mut here) = (Vec::new(), Vec::new());
            for (nr, (_, front)) in ending.iter().enumerate() {
                let is_last = nr + 1 == ending.len();
                match if is_last { None } else { stop_beside(scope, front, grace) } {
                    Some(thread) => beside.push(thread),
                    None => here.push(front),
                }
            }
            here.iter().for_each(|front| front.stop(grace));
            for thread in beside {
                // A panic of it was told when it happened.
                let _ = thread.join();
            }
        });
        self.running.lock().retain(|(_, front)| front.stop_order() != order);
    }
}

impl Drop for Fronts {
    fn drop(&mut self) {
        if self.made.is_in_copy() {
            // Their threads, files and connections are the original's.
            std::mem::forget(std::mem::take(self.running.get_mut()));
            std::mem::forget(self.runtime.clone());
        }
    }
}

/// Stops a front in a thread of its own. None: there is no thread, at the interpreter's end or at a limit of the system.
fn stop_beside<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    front: &Arc<dyn Front>,
    grace: Duration,
) -> Option<ScopedJoinHandle<'scope, ()>> {
    let front = front.clone();
    let stop = move || {
        sys::block_signals();
        front.stop(grace);
    };
    thread::Builder::new().name("clutch-stop".to_owned()).spawn_scoped(scope, stop).ok()
}

/// Raises the limit of descriptors: each connection is one, and workers, large values and those that are turned away need
/// some, too. Where the hard limit is too low for all, there are fewer connections.
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
