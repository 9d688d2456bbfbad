//! Orders of operators to a pool's workers, and their results.

use std::collections::BTreeMap;
use std::time::Instant;

use clutch_wire::sync::{Condvar, Mutex};

/// Names one order within its pool.
pub type Ticket = u64;

/// Something to do with the workers of a running pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Load the code anew; all workers are to run it.
    Reload,
    /// Replace one worker, or all of them in turn.
    Recycle { nr: Option<u32> },
    /// End one worker at once, whatever it runs.
    Kill { nr: u32 },
    /// Have this minimum and maximum number of workers.
    Scale { min: usize, max: usize },
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    Closed,
    /// There is no worker of that number; the text names those that there are.
    NoSuchWorker(String),
    /// No pool can have that many workers.
    NotAllowed(String),
    Failed(String),
}

pub type Carried = Result<(), Denied>;

/// Orders under way, and what came of those that somebody still waits for.
#[derive(Default)]
pub(super) struct Orders {
    book: Mutex<Book>,
    changed: Condvar,
}

#[derive(Default)]
struct Book {
    last: Ticket,
    waiting: BTreeMap<Ticket, Option<Carried>>,
    closed: bool,
}

impl Orders {
    /// Fails when the pool is closed.
    pub(super) fn open(&self) -> Result<Ticket, Denied> {
        let mut book = self.book.lock();
        if book.closed {
            return Err(Denied::Closed);
        }
        book.last += 1;
        let ticket = book.last;
        book.waiting.insert(ticket, None);
        Ok(ticket)
    }

    pub(super) fn done(&self, ticket: Ticket, carried: Carried) {
        if let Some(place) = self.book.lock().waiting.get_mut(&ticket) {
            *place = Some(carried);
        }
        self.changed.notify_all();
    }

    /// No order is carried out any more.
    pub(super) fn close(&self) {
        let mut book = self.book.lock();
        book.closed = true;
        for place in book.waiting.values_mut().filter(|place| place.is_none()) {
            *place = Some(Err(Denied::Closed));
        }
        drop(book);
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, ticket: Ticket, deadline: Instant) -> Option<Carried> {
        let known = |book: &Book| book.waiting.get(&ticket).cloned().flatten();
        let (book, _) = self.changed.wait_until(self.book.lock(), deadline, |book| known(book).is_some());
        known(&book)
    }

    pub(super) fn forget(&self, ticket: Ticket) {
        self.book.lock().waiting.remove(&ticket);
    }
}

/// Order, held by whoever gave it; if it is dropped, nobody waits for the order and it goes on.
pub struct Order<'a> {
    pub(super) orders: &'a Orders,
    pub(super) ticket: Ticket,
}

impl Order<'_> {
    /// Returns the result of the order, or none when the deadline passes first.
    pub fn wait(&self, deadline: Instant) -> Option<Carried> {
        self.orders.wait(self.ticket, deadline)
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        self.orders.forget(self.ticket);
    }
}
