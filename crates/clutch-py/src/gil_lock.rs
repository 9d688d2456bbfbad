//! A lock for what nobody touches who is not attached to the interpreter. Under the GIL it is a flag: to lock a mutex and to
//! unlock it takes as long as much of what is done in between.

#[cfg(not(Py_GIL_DISABLED))]
pub use flag::GilLock;
#[cfg(Py_GIL_DISABLED)]
pub use mutex::GilLock;

#[cfg(not(Py_GIL_DISABLED))]
mod flag {
    use std::cell::{Cell, UnsafeCell};
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};

    use pyo3::prelude::*;

    pub struct GilLock<T> {
        is_locked: Cell<bool>,
        value: UnsafeCell<T>,
    }

    // SAFETY: both cells are touched by whoever has the GIL alone: `lock` asks for it, and a guard lives no longer than that
    // and stays in its thread. One that outlives a pause of the GIL keeps the flag set.
    unsafe impl<T: Send> Sync for GilLock<T> {}

    /// Unlocks at its end.
    pub struct Guard<'a, T> {
        lock: &'a GilLock<T>,
        in_thread: PhantomData<*const ()>,
    }

    impl<T> GilLock<T> {
        pub fn new(value: T) -> GilLock<T> {
            GilLock { is_locked: Cell::new(false), value: UnsafeCell::new(value) }
        }

        #[inline]
        pub fn lock<'a>(&'a self, py: Python<'a>) -> Guard<'a, T> {
            while self.is_locked.replace(true) {
                // Whoever has it waits for the GIL.
                py.detach(std::thread::yield_now);
            }
            Guard { lock: self, in_thread: PhantomData }
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        #[inline]
        fn deref(&self) -> &T {
            // SAFETY: the flag is this guard's.
            unsafe { &*self.lock.value.get() }
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        #[inline]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the flag is this guard's.
            unsafe { &mut *self.lock.value.get() }
        }
    }

    impl<T> Drop for Guard<'_, T> {
        #[inline]
        fn drop(&mut self) {
            self.lock.is_locked.set(false);
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
mod mutex {
    use clutch_wire::sync::{Mutex, MutexGuard};
    use pyo3::prelude::*;

    pub struct GilLock<T>(Mutex<T>);

    impl<T> GilLock<T> {
        pub fn new(value: T) -> GilLock<T> {
            GilLock(Mutex::new(value))
        }

        pub fn lock<'a>(&'a self, _: Python<'a>) -> MutexGuard<'a, T> {
            self.0.lock()
        }
    }
}
