//! The links of a pool's workers, as all threads share them: who watches them, and what is written to them.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;

use clutch_wire::sync::Mutex;
use clutch_wire::sys::Poller;

use super::notices::Notices;
use super::peer::Peer;
use super::state::WorkerKey;
use super::{Link, Notice, WAKE};
use crate::link::Flushed;

/// Is given each link that it has to read: see [`super::LinkReader`].
pub type Reader = Box<dyn Fn(Arc<Link>) + Send + Sync>;

/// See the file's head. The links themselves are behind the core's lock.
pub(super) struct Links {
    pub(super) poller: Poller,
    pub(super) notices: Notices,
    /// The reader of the links instead of the driver.
    pub(super) reader: Mutex<Option<Reader>>,
    /// Links that the kernel was too short to write to: the driver tries again.
    short: Mutex<Vec<Arc<Link>>>,
}

impl Links {
    pub(super) fn new() -> io::Result<Links> {
        let (poller, notices) = (Poller::new()?, Notices::new()?);
        poller.add(notices.readable(), WAKE, false)?;
        Ok(Links { poller, notices, reader: Mutex::default(), short: Mutex::default() })
    }

    /// A link that cannot be watched is as good as ended: its worker is replaced.
    pub(super) fn must_be_watched(&self, worker: WorkerKey, watched: io::Result<()>) {
        if let Err(error) = watched {
            self.notices.tell(Notice::LinkEnded(worker, format!("it cannot be watched: {error}")));
        }
    }

    /// Has the driver read a link on which something runs, unless somebody else does.
    pub(super) fn watch(&self, peer: &mut Peer) {
        if !peer.armed && !peer.leased {
            self.must_be_watched(peer.link.key, peer.arm(&self.poller));
        }
    }

    pub(super) fn flush(&self, link: &Arc<Link>) {
        match link.outbox.flush(link.socket.as_fd(), false) {
            Ok(Flushed::All) => {}
            Ok(Flushed::Blocked) => self.notices.tell(Notice::WantWrite(link.key)),
            Ok(Flushed::Short) => {
                self.short.lock().push(link.clone());
                self.notices.wake();
            }
            // The reading side learns of the end.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => self.notices.tell(Notice::LinkEnded(link.key, error.to_string())),
        }
    }

    /// Tries again what the kernel had no memory for; whether it still has none.
    pub(super) fn flush_short(&self) -> bool {
        let links = std::mem::take(&mut *self.short.lock());
        links.iter().for_each(|link| self.flush(link));
        !self.short.lock().is_empty()
    }
}
