//! Connections are accepted up to a limit, and served until they are told to end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use clutch_host::{Address, Warnings};
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::listen::Listener;
use super::stream::{Begun, ConnectionLimit, ConnectionPermit, Io, Stream};
use crate::account::figures::Figures;

/// Pause in accepting connections when the process has no file descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Most connections of a front that are being refused; more wait in the backlog.
const REFUSED_MAX: usize = 64;

/// Time that a client which is refused has for its request, and for each further step.
pub(crate) const REFUSED_PATIENCE: Duration = Duration::from_secs(1);

/// Maximum time of all that: some clients read nothing before they have sent a large request.
const REFUSAL_MAX: Duration = Duration::from_secs(10);

/// Bytes that are read to see whether a client has something to say.
const FIRST_BYTES: usize = 4096;

/// Most bytes that are read of a client that was answered before it said anything.
const UNREAD_BYTES_MAX: u64 = 8192;

/// Descriptors that a front keeps so that it can still refuse a connection when the process has no other left.
const SPARE_DESCRIPTORS: usize = 4;

/// Time in which a connection that waits is accepted once a descriptor was let go for it; another may have been quicker.
const ACCEPT_MAX: Duration = Duration::from_millis(10);

/// Why there is no place for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The front has as many as it may have.
    Connections,
    /// The process, or the system, has as many descriptors as it may have.
    Descriptors,
}

impl Shortage {
    /// A word for the figures.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Shortage::Connections => "connections",
            Shortage::Descriptors => "descriptors",
        }
    }

    /// For the log.
    pub(crate) fn words(self, front: &str) -> String {
        match self {
            Shortage::Connections => format!("fronts.{front}.connections_max: a connection was refused with 503"),
            Shortage::Descriptors => format!(
                "fronts.{front}: a connection was refused with 503: no descriptor is left for it; raise the limit of \
                 the process (ulimit -n, LimitNOFILE=) or of the system (fs.file-max)"
            ),
        }
    }
}

/// Serves the connections of a listener.
pub(crate) trait Service: Send + Sync + 'static {
    /// Serves one connection to its end. `permit` tells when to take no further request from it, and whether its requests
    /// are to be refused.
    fn serve(self: Arc<Self>, stream: Stream, permit: ConnectionPermit) -> impl Future<Output = ()> + Send;

    fn figures(&self) -> &Arc<Figures>;

    fn warnings(&self) -> &Warnings;

    /// Returns whether a client understands words of HTTP from the first byte on.
    fn is_plain(&self) -> bool {
        true
    }

    /// The response for a client that is refused before it has said anything.
    fn refusal(&self, shortage: Shortage) -> Vec<u8>;

    /// A connection was refused before its client had said anything.
    fn turned_away(&self, _client: Option<SocketAddr>, _shortage: Shortage) {}

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
        if timeout(grace, &mut self.done).await.is_err() {
            self.figures.iter().for_each(|figures| figures.cut());
            self.done.abort();
        }
    }
}

/// Accepts until told to stop, then waits for the connections to end. Dropped, it cuts them off.
async fn serve<S: Service>(listener: Listener, front: Arc<S>, limit: ConnectionLimit, mut stop: oneshot::Receiver<()>) {
    let (leave, stays) = watch::channel(());
    let mut open = JoinSet::new();
    let refusals = Arc::new(Refusals { places: ConnectionLimit::new(REFUSED_MAX), pressed: Notify::new() });
    let spare = Spare::default();
    loop {
        spare.fill();
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, is_short) = match accepted {
            Ok(stream) => (stream, false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                if !is_for_descriptors(&error) || !spare.let_go() {
                    front.warnings().tell("accept", || not_accepted(&error));
                    refusals.pressed.notify_one();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                // The kernel may have failed without any connection.
                let Ok(Ok(stream)) = timeout(ACCEPT_MAX, listener.accept()).await else { continue };
                (stream, !spare.fill())
            }
        };
        let place = tokio::select! {
            biased;
            _ = &mut stop => break,
            place = limit.wait(), if !is_short => place.map(|place| (place, None)),
            place = refusals.place() => {
                let shortage = if is_short { Shortage::Descriptors } else { Shortage::Connections };
                place.map(|place| (place, Some(shortage)))
            }
        };
        // Nobody closes a limit.
        let Ok((place, shortage)) = place else { break };
        let permit = ConnectionPermit::new(stays.clone(), place, front.figures(), shortage);
        match shortage {
            None => drop(open.spawn(front.clone().serve(stream, permit))),
            Some(shortage) => {
                let (refusal, spare) =
                    (refuse(front.clone(), stream, permit, shortage, refusals.clone()), spare.clone());
                open.spawn(async move {
                    refusal.await;
                    spare.fill();
                });
            }
        }
        while open.try_join_next().is_some() {}
    }
    drop(listener);
    front.stopping();
    drop(stays);
    // Nobody listens any more is as good.
    let _ = leave.send(());
    leave.closed().await;
}

/// Descriptors that are kept for connections which can only be refused.
#[derive(Clone, Default)]
struct Spare(Arc<Mutex<Vec<OwnedFd>>>);

impl Spare {
    /// Takes as many as there are. Returns whether these are all that are to be kept.
    fn fill(&self) -> bool {
        let mut kept = self.0.lock();
        while kept.len() < SPARE_DESCRIPTORS {
            let Ok(descriptor) = sys::event_fd() else { return false };
            kept.push(descriptor);
        }
        true
    }

    /// Returns whether there was one.
    fn let_go(&self) -> bool {
        self.0.lock().pop().is_some()
    }
}

/// Places for connections that are being refused.
struct Refusals {
    places: ConnectionLimit,
    /// Another one waits: one of a client that has said nothing is given up. Each word of it frees one place.
    pressed: Notify,
}

impl Refusals {
    async fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        if self.places.is_full() {
            self.pressed.notify_one();
        }
        self.places.wait().await
    }
}

/// Tells a client why there is no place for its connection: in answer to its request, since some take an answer that comes
/// before for one of nobody's, and others are to hear it by TLS or HTTP/2. Only one that says nothing for a while, or while
/// others wait, is told all the same.
async fn refuse<S: Service>(
    front: Arc<S>,
    mut stream: Stream,
    mut permit: ConnectionPermit,
    shortage: Shortage,
    refusals: Arc<Refusals>,
) {
    let mut first = vec![0; FIRST_BYTES];
    let mut is_pressed = false;
    let came = tokio::select! {
        biased;
        came = stream.io.read(&mut first) => Some(came),
        () = permit.leave_asked() => return,
        () = refusals.pressed.notified() => {
            is_pressed = true;
            None
        }
        () = tokio::time::sleep(REFUSED_PATIENCE) => None,
    };
    match came {
        Some(Ok(count @ 1..)) => {
            first.truncate(count);
            let io = Box::new(Begun::new(first, stream.io));
            // Whether the client heard it changes nothing here.
            let _ = timeout(REFUSAL_MAX, front.serve(Stream { io, ..stream }, permit)).await;
        }
        came => {
            front.turned_away(stream.client, shortage);
            if came.is_none() && front.is_plain() {
                let refusal = front.refusal(shortage);
                let given_up = async {
                    if !is_pressed {
                        refusals.pressed.notified().await;
                    }
                };
                tokio::select! {
                    biased;
                    // Its first step tells the client.
                    () = turn_away(stream.io, &refusal) => {}
                    () = given_up => {}
                }
            }
        }
    }
}

fn is_for_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
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
pub(crate) async fn turn_away(mut io: impl Io, words: &[u8]) {
    let told = async {
        io.write_all(words).await?;
        io.shutdown().await?;
        let mut unread = (&mut io).take(UNREAD_BYTES_MAX);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    // Whether the client heard it changes nothing here.
    let _ = timeout(REFUSED_PATIENCE, told).await;
}
