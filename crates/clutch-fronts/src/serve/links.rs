//! The links of the workers in the thread of the front: answers are read where they are needed, and requests that came
//! together are written together.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use clutch_pool::pool::{Batch, Link, LinkReader, Read};
use clutch_wire::sys;
use tokio::sync::Notify;

struct LinkSocket(Arc<Link>);

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

impl AsRawFd for LinkSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.socket.as_raw_fd()
    }
}

/// Reads a worker's link to its end.
pub(super) async fn read(reader: LinkReader, link: Arc<Link>) {
    let Ok(socket) = sys::readable(LinkSocket(link.clone())) else { return };
    while let Ok(mut ready) = socket.readable().await {
        match reader.read(&link) {
            Read::Some => {}
            Read::Nothing => ready.clear_ready(),
            // It may leave some: the driver reads, too, while it waits for room to write. Nobody would tell us again.
            Read::Elsewhere => tokio::task::yield_now().await,
            Read::End => return,
        }
    }
}

/// Writes what has come in one turn of the loop, once the turn is over.
pub(super) async fn flush(batch: Arc<Batch>, wanted: Arc<Notify>) {
    loop {
        wanted.notified().await;
        tokio::task::yield_now().await;
        batch.flush();
    }
}
