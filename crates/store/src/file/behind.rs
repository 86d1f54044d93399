//! Writes behind the saver's back: the background thread encodes the next folio while the device writes the last one.
//!
//! Reclaim that waits for each write leaves the device idle while it compresses, and the processor idle while the
//! device writes. So the thread that saves in the background, and says so (`Upkeep::write_behind`), hands its writes
//! over to the kernel by a [`Ring`]. What is under way is in a [batch](super::pending), which is read until the write
//! is done, and written again if it fails: a slot that was taken is never lost.
//!
//! - *The fallback* is the write that waits. It is used by all other threads, by a thread to which the kernel does
//!   not give a ring (`kernel.io_uring_disabled`, a container's profile, memory limits), and where the kernel does not
//!   take a request.
//! - *Any other answer than all the bytes written*, an error or a part, is not looked at closely. The thread that finds
//!   it writes all of the batch again by the write that waits, which says what is wrong.
//! - *Nobody waits for the thread that made the ring.* Answers come without its doing, and any thread takes them: a
//!   fork, the end of the store, a saver that needs a batch. A thread that waits looks again and again, as it has no
//!   right to wait in the kernel by another thread's ring.
//! - *A child* forgets the ring before it does anything else, and its own background thread makes a new one.

use crate::ring::{Answer, ENTRIES, RAM_BYTES, Ring};
use millpond_sync::{Rank, Ranked};
use rustix::fd::BorrowedFd;
use rustix::thread::Timespec;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};

/// How long the thread that made the ring waits for an answer before it looks whether another thread has taken it.
const LOOK: i64 = 1_000_000;
/// How long another thread sleeps between two looks, in nanoseconds: about as long as the device writes a batch.
const NAP: i64 = 50_000;

/// What the kernel has said to a ring.
enum State {
    /// None was asked for yet.
    None,
    Refused,
    Open(Ring),
}

/// The writes under way. The module's documentation describes them.
pub(super) struct Behind {
    /// The thread whose writes are handed over, 0 when there is none.
    thread: AtomicI32,
    state: Ranked<State>,
    /// Number of writes that have no answer yet, or one that nobody has taken.
    under_way: AtomicU32,
}

impl Behind {
    /// Nothing is under way. If this is not `allowed`, no ring is ever made.
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

    /// Hands the writes of the calling thread over from now on, if that can be.
    pub(super) fn adopt_thread(&self) {
        let mut state = self.state.lock();
        let this = rustix::thread::gettid().as_raw_nonzero().get();
        // A ring that another thread made serves until its writes are done.
        if matches!(&*state, State::Open(ring) if !ring.is_of_this_thread()) {
            if self.under_way() > 0 {
                return;
            }
            *state = State::None;
        }
        self.thread.store(this, Relaxed);
    }

    /// Whether the calling thread's writes are handed over, as far as is known.
    pub(super) fn is_for_this_thread(&self) -> bool {
        let thread = self.thread.load(Relaxed);
        thread != 0
            && thread == rustix::thread::gettid().as_raw_nonzero().get()
            && !matches!(*self.state.lock(), State::Refused)
    }

    /// Number of writes whose answers were not taken yet.
    pub(super) fn under_way(&self) -> u32 {
        self.under_way.load(Acquire)
    }

    /// Hands a write of `len` bytes over. Returns whether it is under way now; its answer will have this number.
    ///
    /// # Safety
    /// If so, the bytes stay where they are, and nobody writes to them, until the answer has been [taken](Self::take).
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
        // SAFETY: the caller vouches for the bytes. Fewer requests than the ring has entries were under way, and only
        // this thread adds to them.
        let taken = unsafe { ring.write(fd, bytes, offset, number) };
        if !taken {
            self.under_way.fetch_sub(1, AcqRel);
        }
        taken
    }

    /// The next answer that has come, if there is one.
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

    /// Waits for a moment, or until an answer has come. For threads that hold no lock of the file's.
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
                // A nap that a signal ends was long enough.
                let _ = rustix::thread::nanosleep(&time);
            }
        }
    }

    /// Forgets the parent's ring in a child, which has no writes under way.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Open(_)) {
            *state = State::None;
        }
        drop(state);
        self.thread.store(0, Relaxed);
        self.under_way.store(0, Release);
    }

    /// Waits until nothing is under way, without looking at the answers: for the end of a store. A child that was not
    /// told so has nothing under way, whatever its parent had.
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
