//! Connections are accepted up to a limit, and served until they are told to end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clutch_host::{Address, Warnings};
use clutch_wire::sync::Mutex;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::listen::Listener;
use super::stream::{ConnectionLimit, ConnectionPermit, Stream};
use crate::account::figures::Figures;

/// Pause in accepting connections when the process has no file descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time that a connection beyond the limit stays open so that its client can read why.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// Most connections that are being turned away politely; more are just closed.
const TURNED_AWAY_MAX: usize = 64;

/// Most bytes that are read of a client that is turned away.
const UNREAD_BYTES_MAX: u64 = 8192;

/// Serves the connections of a listener.
pub(crate) trait Service: Send + Sync + 'static {
    /// Serves one connection to its end. `permit` tells when to take no further request from it.
    fn serve(self: Arc<Self>, stream: Stream, permit: ConnectionPermit) -> impl Future<Output = ()> + Send;

    fn figures(&self) -> &Arc<Figures>;

    fn warnings(&self) -> &Warnings;

    /// Returns whether a client understands words of HTTP from the first byte on.
    fn is_plain(&self) -> bool {
        true
    }

    /// The response for a client for whose connection there is no place.
    fn refusal(&self) -> Vec<u8>;

    /// There was no place for a connection.
    fn turned_away(&self, _client: Option<SocketAddr>) {}

    /// Tells what has no end of its own that no more connections are taken.
    fn stopping(&self) {}
}

/// All that a front accepts from. Dropped, it takes no more connections.
pub(crate) struct Accepting {
    limit: ConnectionLimit,
    addresses: Vec<Address>,
    /// Until the stop.
    loops: Mutex<Vec<AcceptLoop>>,
    /// The runtime that was entered when this was made.
    runtime: Handle,
}

impl Accepting {
    /// `connections_max`: of all listeners together. Needs the runtime entered.
    pub(crate) fn new(connections_max: usize) -> Accepting {
        let (limit, runtime) = (ConnectionLimit::new(connections_max), Handle::current());
        Accepting { limit, addresses: Vec::new(), loops: Mutex::default(), runtime }
    }

    /// Serves what connects to `listener`, in the runtime that is entered.
    pub(crate) fn add<S: Service>(&mut self, listener: Listener, service: Arc<S>) {
        let (figures, limit) = (service.figures().clone(), self.limit.clone());
        self.add_address(listener.address());
        self.loops.get_mut().push(AcceptLoop::start(Some(figures), |stop| serve(listener, service, limit, stop)));
    }

    /// The same for what accepts by itself, up to the limit and until it is told to stop.
    pub(crate) fn run<F>(
        connections_max: usize,
        listeners: Vec<Listener>,
        serve: impl FnOnce(Vec<Listener>, ConnectionLimit, oneshot::Receiver<()>) -> F,
    ) -> Accepting
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut accepting = Accepting::new(connections_max);
        listeners.iter().for_each(|listener| accepting.add_address(listener.address()));
        let limit = accepting.limit.clone();
        accepting.loops.get_mut().push(AcceptLoop::start(None, |stop| serve(listeners, limit, stop)));
        accepting
    }

    /// Returns what the front was configured with as its `bind`, with real ports.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Accepts no more, lets connections end within `grace`, then cuts off what is left. Blocks as long, outside of the
    /// runtime.
    pub(crate) fn stop(&self, grace: Duration) {
        self.runtime.block_on(self.end(grace));
    }

    /// The same for whoever runs the runtime.
    pub(crate) async fn end(&self, grace: Duration) {
        let loops = std::mem::take(&mut *self.loops.lock());
        let ends: Vec<_> = loops.into_iter().map(|accept_loop| tokio::spawn(accept_loop.end(grace))).collect();
        for end in ends {
            // It ends by itself, or is cut off.
            let _ = end.await;
        }
    }

    /// A socket that several threads listen on is one address.
    fn add_address(&mut self, address: &Address) {
        if self.addresses.last() != Some(address) {
            self.addresses.push(address.clone());
        }
    }
}

/// A task that accepts connections and serves them.
struct AcceptLoop {
    stop: oneshot::Sender<()>,
    /// Ends when the last of its connections has.
    done: JoinHandle<()>,
    /// Figures of a front that speaks HTTP.
    figures: Option<Arc<Figures>>,
}

impl AcceptLoop {
    fn start<F>(figures: Option<Arc<Figures>>, serve: impl FnOnce(oneshot::Receiver<()>) -> F) -> AcceptLoop
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        AcceptLoop { stop, done: tokio::spawn(serve(stopped)), figures }
    }

    async fn end(mut self, grace: Duration) {
        // What has ended already needs no telling.
        let _ = self.stop.send(());
        if tokio::time::timeout(grace, &mut self.done).await.is_err() {
            self.figures.iter().for_each(|figures| figures.cut());
            self.done.abort();
        }
    }
}

/// Accepts until told to stop, then waits for the connections to end. Dropped, it cuts them off.
async fn serve<S: Service>(listener: Listener, front: Arc<S>, limit: ConnectionLimit, mut stop: oneshot::Receiver<()>) {
    let (leave, stays) = watch::channel(());
    let mut open = JoinSet::new();
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => match limit.take() {
                Some(place) => {
                    let permit = ConnectionPermit::new(stays.clone(), place, front.figures().connection());
                    open.spawn(front.clone().serve(stream, permit));
                    while open.try_join_next().is_some() {}
                }
                None => {
                    front.turned_away(stream.client);
                    if let Some(place) = turned_away.clone().try_acquire_owned().ok().filter(|_| front.is_plain()) {
                        let words = front.refusal();
                        tokio::spawn(async move {
                            turn_away(stream, &words).await;
                            drop(place);
                        });
                    }
                }
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                front.warnings().tell("accept", || not_accepted(&error));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    front.stopping();
    drop(stays);
    // Nobody listens any more is as good.
    let _ = leave.send(());
    leave.closed().await;
}

pub(crate) fn not_accepted(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            "no connection can be accepted: this process has all the descriptors that it may have (ulimit -n)"
                .to_owned()
        }
        Some(Errno::NFILE) => {
            "no connection can be accepted: the system has all the files open that it may have (fs.file-max)".to_owned()
        }
        _ => format!("no connection can be accepted: {error}"),
    }
}

/// Says why, then reads on for a while: closing on unread bytes would take the answer away from the client.
async fn turn_away(mut stream: Stream, words: &[u8]) {
    let told = async {
        stream.io.write_all(words).await?;
        stream.io.shutdown().await?;
        let mut unread = (&mut stream.io).take(UNREAD_BYTES_MAX);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    // Whether the client heard it changes nothing here.
    let _ = tokio::time::timeout(TURN_AWAY, told).await;
}
