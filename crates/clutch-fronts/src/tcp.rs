//! Connections for a handler: accepted here, then handed to a worker as they are. No byte of them passes by.
//!
//! An accepted connection is one piece of work. It waits in the pool's line, and this side keeps its copy of the socket
//! until user code has begun. What cannot have a place is not accepted: it waits in the kernel's backlog. To accept and
//! close it would look like a crash to its peer, for there is no word of its protocol that could say why.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use clutch_host::{Address, Front, Start, Warnings};
use clutch_pool::pool::{Batch, Exchange, Part, Terms};
use clutch_pool::work::{FunctionId, Work, WorkKind};
use clutch_wire::descriptor::Descriptor;
use clutch_wire::sys;
use clutch_wire::{Codec, Payload};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinSet;

use crate::config::TcpConfig;
use crate::net::accept::{ACCEPT_PAUSE, Accepting, not_accepted};
use crate::net::listen::{Access, Listener, bind_all};
use crate::net::stream::ConnectionLimit;

/// A connection that waits for longer is watched: its peer may give up.
const WATCHED_AFTER: Duration = Duration::from_millis(20);

impl Start for TcpConfig {
    fn connections_max(&mut self) -> Option<&mut usize> {
        Some(&mut self.connections_max)
    }

    fn start(self: Box<Self>, context: &clutch_host::Context) -> clutch_host::Result<Arc<dyn Front>> {
        let runtime = context.runtime()?;
        let _entered = runtime.enter();
        let pool = context.pool(&self.pool)?;
        let listeners = bind_all(&context.place(), &self.bind, Access::Everyone)?;
        let (function, batch) = (pool.function(Codec::Name, b"", "connection"), Batch::new(&pool));
        let warnings = context.warnings.clone();
        let accepting = Accepting::run(self.connections_max, listeners, |listeners, limit, stop| {
            Handler { batch, function, listeners, first: 0, limit, warnings }.serve(stop)
        });
        Ok(Arc::new(TcpFront { accepting }))
    }
}

/// A running front that hands connections to a handler.
struct TcpFront {
    accepting: Accepting,
}

impl Front for TcpFront {
    fn addresses(&self) -> &[Address] {
        self.accepting.addresses()
    }

    fn stop(&self, grace: Duration) {
        self.accepting.stop(grace);
    }
}

/// The user's handler, as the pool knows it, and the listeners whose connections it gets.
struct Handler {
    batch: Arc<Batch>,
    function: FunctionId,
    listeners: Vec<Listener>,
    /// Number of the listener that is asked first: each has its turn.
    first: usize,
    limit: ConnectionLimit,
    warnings: Arc<Warnings>,
}

impl Handler {
    /// Accepts until told to stop; then the handlers are told, and what is open may end. Dropped, it cuts that off.
    async fn serve(mut self, mut stop: oneshot::Receiver<()>) {
        let mut open = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut stop => break,
                accepted = self.accept() => accepted,
            };
            let (socket, place) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.warnings.tell("accept", || not_accepted(&error));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let connection = self.submit(socket, place);
            let input = connection.exchange.input();
            open.spawn(connection.run());
            tokio::select! {
                biased;
                _ = &mut stop => break,
                // A full pool takes it in when somebody leaves the line; so long nobody else is accepted.
                () = input.admitted() => {}
            }
            while open.try_join_next().is_some() {}
        }
        self.listeners.clear();
        self.batch.pool().end_endless();
        while open.join_next().await.is_some() {}
    }

    /// The next connection, when there is a place for it.
    async fn accept(&mut self) -> io::Result<(OwnedFd, OwnedSemaphorePermit)> {
        let place = self.limit.wait().await?;
        loop {
            match poll_fn(|context| self.poll_accept(context)).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                accepted => return Ok((accepted?, place)),
            }
        }
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<OwnedFd>> {
        let count = self.listeners.len();
        for at in (self.first..self.first + count).map(|at| at % count) {
            if let Poll::Ready(accepted) = self.listeners[at].poll_socket(context) {
                self.first = at + 1;
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    }

    fn submit(&self, socket: OwnedFd, place: OwnedSemaphorePermit) -> Connection {
        let descriptor = Arc::new(Descriptor::new(socket));
        let deadline = self.batch.pool().config.deadline().and_then(|time| Instant::now().checked_add(time));
        let terms = Terms { block: true, ..Terms::default() };
        let exchange = Exchange::submit(&self.batch, terms, |reply| Work {
            deadline,
            descriptor: Some(descriptor.clone()),
            one_value: true,
            ..Work::new(WorkKind::CONNECTION, self.function, Payload::empty(), reply)
        });
        self.batch.flush();
        Connection { exchange, descriptor, _place: place }
    }
}

/// A connection. Dropped before its end, its handler is stopped.
struct Connection {
    exchange: Exchange,
    descriptor: Arc<Descriptor>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(self) {
        // The place is another's only when the work is answered.
        let Connection { mut exchange, descriptor, _place } = self;
        tokio::select! {
            biased;
            () = exchange.begun() => {}
            // Unless it has begun this very moment: then its handler finds out.
            () = gone(descriptor) => exchange.withdraw(),
        }
        while let Part::Chunk(_) = exchange.part().await {}
    }
}

/// Returns when the peer of a connection that waits has left: it has broken it, or closed it without a word. A peer that
/// has said something and closed its side may still wait for an answer.
async fn gone(descriptor: Arc<Descriptor>) {
    tokio::time::sleep(WATCHED_AFTER).await;
    let Ok(watched) = sys::readable(descriptor) else {
        return std::future::pending().await;
    };
    while let Ok(mut guard) = watched.readable().await {
        if guard.ready().is_write_closed() || sys::is_at_end(watched.get_ref().as_fd()) {
            return;
        }
        guard.clear_ready();
    }
}
