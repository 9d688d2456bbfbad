//! Locks that a fork leaves to the original: a thread that waits for one waits at the lock itself. Those of parking_lot have
//! one table in the process for all that wait, and a copy would find threads in it that it does not have.
//!
//! A panic poisons none of them.

pub use std::sync::MutexGuard;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{self, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// [`std::sync::Mutex`], which cannot be poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::Condvar`] for these locks. To notify nobody costs no system call. Whoever notifies has held the lock since
/// it changed what the others wait for.
#[derive(Debug, Default)]
pub struct Condvar {
    condvar: sync::Condvar,
    /// Changed under the lock.
    waiting: AtomicUsize,
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar { condvar: sync::Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    pub fn notify_one(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.condvar.notify_one();
        }
    }

    pub fn notify_all(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.condvar.notify_all();
        }
    }

    fn counted<T>(&self, wait: impl FnOnce(&sync::Condvar) -> T) -> T {
        self.waiting.fetch_add(1, SeqCst);
        let waited = wait(&self.condvar);
        self.waiting.fetch_sub(1, SeqCst);
        waited
    }

    /// Waits until the condition holds.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, holds: impl Fn(&T) -> bool) -> MutexGuard<'a, T> {
        let waited = self.counted(|condvar| condvar.wait_while(guard, |value| !holds(value)));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the condition holds or the deadline passes; returns whether it holds.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
        holds: impl Fn(&T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.counted(|condvar| condvar.wait_timeout_while(guard, left, |value| !holds(value)));
        let (guard, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (guard, !waited.timed_out())
    }

    /// Waits for a notification, up to this long. Wakes spuriously.
    pub fn wait_for<T>(&self, guard: MutexGuard<'_, T>, time: Duration) {
        drop(self.counted(|condvar| condvar.wait_timeout(guard, time)));
    }
}

/// [`std::sync::RwLock`], which cannot be poisoned.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
