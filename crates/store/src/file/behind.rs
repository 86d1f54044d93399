//! Asynchronous writes: the background thread encodes the next folio while the device writes the last one.
//!
//! Reclaim that waits for each write leaves the device idle while it compresses, and the processor idle while the
//! device writes. So the thread that saves in the background, and says so (`Upkeep::write_behind`), hands its writes
//! over to the kernel by a [`Ring`]. What is under way is in a [batch](super::pending), which is read until the write
//! is done, and written again if it fails: a slot that was taken is never lost.
//!
//! - *The fallback* is a synchronous write. It is used by all other threads, by a thread to which the kernel refuses a
//!   ring (`kernel.io_uring_disabled`, a container's profile, memory limits), and when the kernel does not accept a
//!   request.
//! - *An answer other than "all bytes written"*, an error or a short write, is not examined. The thread that finds it
//!   writes the whole batch again synchronously, and that write reports the error.
//! - *Nobody waits for the thread that made the ring.* Answers arrive without its help, and any thread takes them: at a
//!   fork, at the end of the store, or when a saver needs a batch. A waiting thread polls, since it may not wait in the
//!   kernel on another thread's ring.
//! - *A child* forgets the ring before it does anything else, and its own background thread makes a new one.

use crate::ring::{Answer, ENTRIES, RAM_BYTES, Ring};
use millpond_sync::{Rank, Ranked};
use rustix::fd::BorrowedFd;
use rustix::thread::Timespec;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};

/// How long the thread that made the ring waits for an answer before it checks whether another thread has taken it.
const LOOK: i64 = 1_000_000;
/// How long another thread sleeps between two polls, in nanoseconds: about as long as the device takes to write a
/// batch.
const NAP: i64 = 50_000;

/// Whether the kernel provides a ring.
enum State {
    /// No ring has been requested yet.
    None,
    Refused,
    Open(Ring),
}

/// The writes in flight. The module's documentation describes them.
pub(super) struct Behind {
    /// The thread whose writes are asynchronous, 0 if there is none.
    thread: AtomicI32,
    state: Ranked<State>,
    /// Number of writes whose answer has not arrived, or has not been taken.
    under_way: AtomicU32,
}

impl Behind {
    /// Makes a state with nothing in flight. If asynchronous writes are not `allowed`, no ring is ever made.
    pub(super) const fn new(allowed: bool) -> Self {
        let state = match allowed {
            true => State::None,
            false => State::Refused,
        };
        Self {
            thread: AtomicI32::new(0),
            state: Ranked::new(Rank::FileRing, state),
            under_way: AtomicU32::new(0),
        }
    }

    /// Makes the writes of the calling thread asynchronous from now on, if possible.
    pub(super) fn adopt_thread(&self) {
        let mut state = self.state.lock();
        let this = rustix::thread::gettid().as_raw_nonzero().get();
        // Another thread's ring stays in use until its writes are done.
        if matches!(&*state, State::Open(ring) if !ring.is_of_this_thread()) {
            if self.under_way() > 0 {
                return;
            }
            *state = State::None;
        }
        self.thread.store(this, Relaxed);
    }

    /// Whether the calling thread's writes are asynchronous, as far as is known.
    pub(super) fn is_for_this_thread(&self) -> bool {
        let thread = self.thread.load(Relaxed);
        thread != 0
            && thread == rustix::thread::gettid().as_raw_nonzero().get()
            && !matches!(*self.state.lock(), State::Refused)
    }

    /// Number of writes whose answers have not been taken yet.
    pub(super) fn under_way(&self) -> u32 {
        self.under_way.load(Acquire)
    }

    /// Submits a write of `len` bytes. Returns whether it is now in flight; its answer will have this number.
    ///
    /// # Safety
    /// If it is, the bytes stay where they are, and nobody writes to them, until the answer has been
    /// [taken](Self::take).
    pub(super) unsafe fn write(
        &self,
        fd: BorrowedFd<'_>,
        bytes: (*const u8, usize),
        offset: u64,
        number: u64,
    ) -> bool {
        if !self.is_for_this_thread() || self.under_way() >= ENTRIES {
            return false;
        }
        let mut state = self.state.lock();
        if let State::None = *state {
            *state = Ring::open().map_or(State::Refused, State::Open);
        }
        let State::Open(ring) = &mut *state else {
            return false;
        };
        if !ring.is_of_this_thread() {
            return false;
        }
        self.under_way.fetch_add(1, AcqRel);
        // SAFETY: the caller vouches for the bytes. Fewer requests than the ring has entries were in flight, and only
        // this thread adds to them.
        let taken = unsafe { ring.write(fd, bytes, offset, number) };
        if !taken {
            self.under_way.fetch_sub(1, AcqRel);
        }
        taken
    }

    /// The next answer that has arrived, if any.
    pub(super) fn take(&self) -> Option<Answer> {
        if self.under_way() == 0 {
            return None;
        }
        let State::Open(ring) = &mut *self.state.lock() else {
            return None;
        };
        let answer = ring.take()?;
        self.under_way.fetch_sub(1, AcqRel);
        Some(answer)
    }

    /// Waits for a moment, or until an answer arrives. Only for threads that hold none of the file's locks.
    pub(super) fn wait(&self) {
        let waiter = match &*self.state.lock() {
            State::Open(ring) if ring.is_of_this_thread() => Some(ring.waiter()),
            _ => None,
        };
        match waiter {
            Some(waiter) => waiter.wait(LOOK),
            None => {
                let time = Timespec {
                    tv_sec: 0,
                    tv_nsec: NAP,
                };
                // A nap cut short by a signal is long enough.
                let _ = rustix::thread::nanosleep(&time);
            }
        }
    }

    /// Forgets the parent's ring in a child, which has no writes in flight.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Open(_)) {
            *state = State::None;
        }
        drop(state);
        self.thread.store(0, Relaxed);
        self.under_way.store(0, Release);
    }

    /// Waits until nothing is in flight, without examining the answers: for the end of a store. A child that did not
    /// call [`forget`](Self::forget) has nothing in flight either, whatever its parent had.
    pub(super) fn settle(&self) {
        while self.under_way() > 0 && self.is_of_this_process() {
            if self.take().is_none() {
                self.wait();
            }
        }
    }

    fn is_of_this_process(&self) -> bool {
        matches!(&*self.state.lock(), State::Open(ring) if ring.is_of_this_process())
    }

    /// The RAM that the ring takes.
    pub(super) fn ram_bytes(&self) -> u64 {
        match *self.state.lock() {
            State::Open(_) => RAM_BYTES,
            State::None | State::Refused => 0,
        }
    }
}
