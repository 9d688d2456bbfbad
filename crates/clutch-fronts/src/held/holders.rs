//! All workers that hold connections of one front: who gets the next one, and the task of each.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use clutch_host::{Figure, FigureValue, Member};
use clutch_pool::pool::state::WorkerKey;
use clutch_pool::pool::{ChannelOwner, Pool, Served};
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::holder::{Channel, Heard, Holder, Passed, Passing, UNREAD_MAX};
use super::message::{MESSAGE_BYTES_MAX, Settings, ToldEnd};
use super::terms::Terms;
use super::words::words_of;
use crate::account::told::Records;

/// See the file's head.
pub(crate) struct Holders {
    me: Weak<Holders>,
    pool: Weak<Pool>,
    settings: Settings,
    records: Records,
    terms: Weak<dyn Terms>,
    /// Of the thread that reads the channels.
    runtime: Handle,
    holders: Mutex<Vec<Arc<Holder>>>,
    /// For messages, used by one thread.
    buffer: Mutex<Vec<u8>>,
    is_stopping: AtomicBool,
    is_quiet: AtomicBool,
}

impl ChannelOwner for Holders {
    fn opened(&self, worker: WorkerKey, nr: u32, channel: OwnedFd) {
        let (Some(pool), Some(terms)) = (self.pool.upgrade(), self.terms.upgrade()) else { return };
        let words = pool.reserve_words(worker, words_of(pool.config.shape, terms.is_wsgi()));
        let settings = Settings { words, ..self.settings.clone() };
        // A worker without a ledger holds nothing; its requests go by the link.
        let Ok(holder) = Holder::open(worker, nr, channel, settings, self.terms.clone()) else { return };
        let Some(me) = self.me.upgrade() else { return };
        let holder = Arc::new(holder);
        self.holders.lock().push(holder.clone());
        if self.is_stopping.load(Ordering::SeqCst) {
            holder.end();
        }
        if self.is_quiet.load(Ordering::SeqCst) {
            holder.quiet(true);
        }
        self.runtime.spawn(me.attend(holder));
    }

    fn requests_of(&self, worker: WorkerKey) -> Vec<String> {
        self.of(worker).map(|holder| holder.unknown()).unwrap_or_default()
    }

    fn waiting(&self) -> usize {
        self.holders.lock().iter().map(|holder| holder.waiting()).sum()
    }

    /// It is not told so by its link while what was adopted runs there.
    fn leaving(&self, worker: WorkerKey) {
        self.of(worker).iter().for_each(|holder| holder.leave());
    }

    /// Whoever asks meanwhile is told by the front, which has all connections then.
    fn quiet(&self, quiet: bool) {
        self.is_quiet.store(quiet, Ordering::SeqCst);
        self.holders.lock().iter().for_each(|holder| holder.quiet(quiet));
    }

    fn ended(&self, worker: WorkerKey) {
        self.of(worker).iter().for_each(|holder| holder.died());
    }
}

impl Holders {
    /// `runtime`: of the thread that is to read what workers say.
    pub(crate) fn new(
        pool: &Arc<Pool>,
        settings: Settings,
        runtime: Handle,
        records: Records,
        terms: Weak<dyn Terms>,
    ) -> Arc<Holders> {
        Arc::new_cyclic(|me| Holders {
            me: me.clone(),
            pool: Arc::downgrade(pool),
            settings,
            records,
            terms,
            runtime,
            holders: Mutex::default(),
            buffer: Mutex::new(vec![0; MESSAGE_BYTES_MAX]),
            is_stopping: AtomicBool::new(false),
            is_quiet: AtomicBool::new(false),
        })
    }

    fn of(&self, worker: WorkerKey) -> Option<Arc<Holder>> {
        self.holders.lock().iter().find(|holder| holder.worker == worker).cloned()
    }

    /// What workers are told first.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// For requests that end without a response of their worker.
    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// Passes a connection to the worker with the fewest on which it has something to do, or that it holds. The socket comes
    /// back at once when none takes it.
    pub(crate) fn pass(&self, mut socket: OwnedFd, passing: &Passing<'_>) -> Result<Passed, OwnedFd> {
        let holders = self.holders.lock().clone();
        let mut by_load: Vec<_> =
            holders.iter().filter_map(|holder| holder.load().map(|load| (load, holder))).collect();
        by_load.sort_by_key(|(load, _)| *load);
        for (_, holder) in by_load {
            match holder.pass(socket, passing) {
                Ok(passed) => return Ok(passed),
                Err(unpassed) => socket = unpassed,
            }
        }
        Err(socket)
    }

    /// Nothing is passed any more, and what workers hold is to come back as soon as nothing runs on it.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.holders.lock().iter().for_each(|holder| holder.end());
    }

    /// Number of connections that each worker holds, with its number in the pool.
    fn held(&self) -> Vec<(u32, usize)> {
        self.holders.lock().iter().map(|holder| (holder.nr, holder.held())).collect()
    }

    /// Whether a worker other than this one would read what is passed to it.
    fn has_quicker_than(&self, slow: &Arc<Holder>) -> bool {
        let holders = self.holders.lock();
        holders.iter().any(|holder| !Arc::ptr_eq(holder, slow) && holder.load().is_some_and(|load| !load.stands_still))
    }

    /// Reads what a worker says, and looks at what it does not say, until it is dead.
    async fn attend(self: Arc<Holders>, holder: Arc<Holder>) {
        let Ok(channel) = sys::readable(holder.clone()) else { return self.forget(&holder) };
        let (mut is_open, mut look_at) = (true, Instant::now() + UNREAD_MAX);
        while !holder.is_dead() {
            let state = tokio::select! {
                ready = channel.readable(), if is_open => match (self.read(&holder), ready) {
                    (Channel::Empty, Ok(mut ready)) => {
                        ready.clear_ready();
                        Channel::Empty
                    }
                    (Channel::Full, Ok(_)) => Channel::Full,
                    _ => Channel::Ended,
                },
                () = sleep_until(look_at), if is_open && holder.holds_some() => {
                    holder.look(self.has_quicker_than(&holder));
                    look_at = match self.pool.upgrade() {
                        Some(pool) => holder.look_at_running(&pool).into(),
                        None => Instant::now() + UNREAD_MAX,
                    };
                    Channel::Empty
                }
                () = holder.woken.notified() => {
                    look_at = Instant::now() + UNREAD_MAX;
                    Channel::Empty
                }
            };
            match state {
                Channel::Empty => {}
                Channel::Full => tokio::task::yield_now().await,
                Channel::Ended => {
                    is_open = false;
                    holder.channel_ended();
                }
            }
        }
        while is_open && self.read(&holder) == Channel::Full {}
        let served = Served { lost: holder.settle(), ..Served::default() };
        self.count(&holder, served);
        self.forget(&holder);
    }

    fn read(&self, holder: &Holder) -> Channel {
        let (mut served, pool) = (Served::default(), self.pool.upgrade());
        let state = holder.read(&mut self.buffer.lock(), pool.as_deref(), &mut |heard| match heard {
            Heard::One(told, whose) => {
                // The pool hears of its end by the link.
                if !told.adopted {
                    served.calls += 1;
                    served.failed += u64::from(matches!(told.end, ToldEnd::BrokenOff | ToldEnd::Failed));
                    served.run += Duration::from_micros(told.after_us);
                }
                self.records.hear(told, whose.peer.as_ref(), whose.cut);
            }
            Heard::All(sum) => {
                served.calls += sum.times.count();
                served.run += sum.times.total();
                self.records.hear_sum(sum);
            }
        });
        self.count(holder, served);
        state
    }

    /// The pool counts what its worker has done by itself.
    fn count(&self, holder: &Holder, served: Served) {
        self.pool.upgrade().into_iter().for_each(|pool| pool.served(holder.worker, served));
    }

    fn forget(&self, gone: &Arc<Holder>) {
        self.holders.lock().retain(|holder| !Arc::ptr_eq(holder, gone));
    }
}

/// Figures of the workers that hold connections of a front.
pub(crate) struct HeldFigures {
    pub(crate) front: Arc<str>,
    pub(crate) holders: Weak<Holders>,
}

impl Member for HeldFigures {
    fn figures(&self) -> Vec<Figure> {
        let mut by_nr = BTreeMap::new();
        // A worker that leaves may have the number of the one that comes.
        for (nr, count) in self.holders.upgrade().map(|holders| holders.held()).unwrap_or_default() {
            *by_nr.entry(nr).or_insert(0) += count;
        }
        by_nr
            .into_iter()
            .map(|(nr, count)| Figure {
                name: "http_connections_held",
                help: "Connections that a worker holds",
                labels: vec![("front", self.front.to_string()), ("nr", nr.to_string())],
                value: FigureValue::Gauge(count as u64),
            })
            .collect()
    }
}
