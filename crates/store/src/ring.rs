//! An `io_uring` ring, for reads and writes that continue while the thread that requested them does something else.
//!
//! This file has all the `unsafe` code that a ring needs. There are two uses: asynchronous [writes](crate::file) of
//! saved data, and [reads](crate::mapped) of a stream over a file, with several in flight. Calls go through rustix,
//! which makes them without the C library: under `millpond run` the library's `syscall` and `mmap` are Millpond's own,
//! which refuse programs a ring, and a store may neither allocate nor set `errno`. That is why the `io-uring` crate
//! cannot be used here.
//!
//! ```text
//!   entries   │ write │ write │       │  ...     requests, which the kernel reads in `io_uring_enter` alone
//!   rings     │ head, tail of the entries │ head, tail of the answers │ answers │        shared with the kernel
//! ```
//!
//! - *No descriptor.* The kernel keeps the ring for the thread that made it, by an index
//!   (`IORING_REGISTER_RING_FDS`, Linux 5.18), and the descriptor is closed at once. So nothing of it is in any table:
//!   no program closes it, counts it, or hands it to a child, and service threads need not keep it. That thread alone
//!   can hand requests over, and the index ends with it. The mappings hold the ring until they are dropped, so
//!   the answers to all requests come even then.
//! - *Answers* are read from shared memory, by any thread. The kernel puts them there when the thread that made the
//!   ring next enters or leaves the kernel, and wakes it for that if it sleeps. A program's thread would have its own
//!   calls interrupted by this (`epoll_wait` ends with `EINTR`), so only threads of Millpond's make rings.
//! - *A child of a fork* has the mappings, too, and would take its parent's answers. Every call asks for the process.
//! - *Under a filter of system calls no ring is tried.* Some filters answer with an error, others end the process, and
//!   there is no way to ask which. Those of containers refuse rings anyway.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp,
    IoringRegisterFlags, IoringRegisterOp, addr_or_splice_off_in_union, io_uring_cqe,
    io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_params, io_uring_ptr,
    io_uring_register, io_uring_register_with, io_uring_rsrc_update, io_uring_setup, io_uring_sqe,
    io_uring_user_data, len_union, off_or_addr2_union,
};
use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::Pid;
use rustix::thread::{SecureComputingMode, Timespec, secure_computing_mode};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// The maximum number of requests in flight.
pub(crate) const ENTRIES: u32 = 8;
/// The most threads that the kernel has in the process for requests that it cannot begin without waiting, as writes
/// that make a file longer. They are among the process's threads, as `iou-wrk-…`. One file is written by one at a time.
const WORKERS: u32 = 2;
/// Bytes that a ring takes: a page of entries, and one of rings.
pub(crate) const RAM_BYTES: u64 = 2 * 4096;

/// A mapping that the kernel shares.
struct Shared {
    base: NonNull<u8>,
    len: usize,
}

/// A ring of [`ENTRIES`] requests. See the [module](self).
pub(crate) struct Ring {
    index: i32,
    thread: Pid,
    process: Pid,
    rings: Shared,
    entries: Shared,
    /// Where in `rings` the words are.
    at: Places,
}

/// Byte offsets in the shared mapping.
struct Places {
    /// How far the kernel has read requests.
    asked_head: usize,
    /// How far requests are written.
    asked_tail: usize,
    /// Which entry each request is in.
    asked: usize,
    /// How far answers are read.
    answered_head: usize,
    /// How far the kernel has written answers.
    answered_tail: usize,
    answers: usize,
    asked_mask: u32,
    answers_mask: u32,
}

// SAFETY: the mappings belong to the process, and the owner's exclusive reference orders all uses of them here. The
// kernel's side is ordered by the atomic words.
unsafe impl Send for Ring {}

/// An answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// The number that the request had.
    pub(crate) number: u64,
    /// The bytes read or written, or the negated error.
    pub(crate) result: i32,
}

impl Shared {
    fn map(fd: &OwnedFd, len: usize, offset: u64) -> Result<Self, Errno> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe { mm::mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, fd, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len })
    }

    /// The word at `at` bytes.
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: the offsets are the kernel's for this mapping, aligned, and both sides access the word atomically.
        unsafe { &*self.base.as_ptr().add(at).cast() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, in this process or its copy in a child.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Ring {
    /// Makes a ring for the calling thread, unless its system calls are filtered.
    ///
    /// # Errors
    /// They are, or those of [`new`](Self::new).
    pub(crate) fn open() -> Result<Self, Errno> {
        match secure_computing_mode() {
            Ok(SecureComputingMode::Filter | SecureComputingMode::Strict) => Err(Errno::PERM),
            // Without the call there are no filters.
            Ok(_) | Err(_) => Self::new(),
        }
    }

    /// Makes a ring for the calling thread.
    ///
    /// # Errors
    /// The kernel, its settings or a sandbox refuse it, or the kernel is older than 5.18.
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut params = io_uring_params::default();
        // SAFETY: the kernel reads and writes the parameters alone.
        let fd = unsafe { io_uring_setup(ENTRIES, &mut params) }?;
        let needs = IoringFeatureFlags::SINGLE_MMAP | IoringFeatureFlags::EXT_ARG;
        if !params.features.contains(needs) {
            return Err(Errno::NOSYS);
        }
        limit_workers(&fd);
        let (asks, answers) = (params.sq_off, params.cq_off);
        let end_of_asks = asks.array as usize + params.sq_entries as usize * size_of::<u32>();
        let end_of_answers =
            answers.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let rings = Shared::map(&fd, end_of_asks.max(end_of_answers), IORING_OFF_SQ_RING)?;
        let len = params.sq_entries as usize * size_of::<io_uring_sqe>();
        let entries = Shared::map(&fd, len, IORING_OFF_SQES)?;
        let at = Places {
            asked_head: asks.head as usize,
            asked_tail: asks.tail as usize,
            asked: asks.array as usize,
            answered_head: answers.head as usize,
            answered_tail: answers.tail as usize,
            answers: answers.cqes as usize,
            asked_mask: params.sq_entries - 1,
            answers_mask: params.cq_entries - 1,
        };
        Ok(Self {
            index: register(&fd)?,
            thread: rustix::thread::gettid(),
            process: rustix::process::getpid(),
            rings,
            entries,
            at,
        })
    }

    /// Whether the calling thread may hand requests over.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        rustix::thread::gettid() == self.thread
    }

    /// Whether the ring is the calling process's, and not its parent's.
    pub(crate) fn is_of_this_process(&self) -> bool {
        rustix::process::getpid() == self.process
    }

    /// Submits a write to the kernel. Its answer will have this number. Returns whether the kernel has accepted it: if
    /// not, nothing is in flight. Only for the thread that made the ring.
    ///
    /// # Safety
    /// The bytes stay where they are, and nobody writes to them, until the answer has been [taken](Self::take).
    /// No more than [`ENTRIES`] requests are without an answer.
    pub(crate) unsafe fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        (bytes, len): (*const u8, usize),
        offset: u64,
        number: u64,
    ) -> bool {
        let bytes = (bytes.cast_mut(), len);
        // SAFETY: the caller promises what the called function demands: the kernel only reads the bytes.
        unsafe { self.hand_over(IoringOp::Write, fd, bytes, offset, number) }
    }

    /// Submits a read to the kernel, as [`write`](Self::write) does a write.
    ///
    /// # Safety
    /// The bytes stay where they are, and nobody uses them, until the answer has been [taken](Self::take).
    /// No more than [`ENTRIES`] requests are without an answer.
    pub(crate) unsafe fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        bytes: (*mut u8, usize),
        offset: u64,
        number: u64,
    ) -> bool {
        // SAFETY: the caller promises what the called function demands.
        unsafe { self.hand_over(IoringOp::Read, fd, bytes, offset, number) }
    }

    /// Submits the request of [`read`](Self::read) or [`write`](Self::write).
    ///
    /// # Safety
    /// As there.
    unsafe fn hand_over(
        &mut self,
        opcode: IoringOp,
        fd: BorrowedFd<'_>,
        (bytes, len): (*mut u8, usize),
        offset: u64,
        number: u64,
    ) -> bool {
        debug_assert!(self.is_of_this_thread());
        let addr = io_uring_ptr::new(bytes.cast());
        let entry = io_uring_sqe {
            opcode,
            fd: fd.as_raw_fd(),
            off_or_addr2: off_or_addr2_union { off: offset },
            addr_or_splice_off_in: addr_or_splice_off_in_union { addr },
            len: len_union { len: len as u32 },
            user_data: io_uring_user_data::from_u64(number),
            ..io_uring_sqe::default()
        };
        let tail = self.rings.word(self.at.asked_tail).load(Relaxed);
        let place = tail & self.at.asked_mask;
        // SAFETY: the place is one of the entries, aligned, and the kernel reads it in the call below alone.
        unsafe {
            self.entries
                .base
                .cast::<io_uring_sqe>()
                .add(place as usize)
                .write(entry)
        };
        let names = self
            .rings
            .word(self.at.asked + place as usize * size_of::<u32>());
        names.store(place, Relaxed);
        self.rings
            .word(self.at.asked_tail)
            .store(tail.wrapping_add(1), Release);
        // SAFETY: the caller vouches for the bytes of the only request that is new.
        let _ = unsafe { io_uring_enter(self.by_index(), 1, 0, IoringEnterFlags::REGISTERED_RING) };
        // Whatever the call has answered: the head says whether the request was read.
        let taken = self.rings.word(self.at.asked_head).load(Acquire) != tail;
        if !taken {
            self.rings.word(self.at.asked_tail).store(tail, Release);
        }
        taken
    }

    /// The next answer, if there is one.
    pub(crate) fn take(&mut self) -> Option<Answer> {
        if !self.is_of_this_process() {
            return None;
        }
        let head = self.rings.word(self.at.answered_head).load(Relaxed);
        if head == self.rings.word(self.at.answered_tail).load(Acquire) {
            return None;
        }
        let place = (head & self.at.answers_mask) as usize * size_of::<io_uring_cqe>();
        // SAFETY: the place is one of the answers, aligned, and the kernel wrote it before it moved the tail. It does
        // not write there again before the head has moved.
        let (number, result) = unsafe {
            let answer = self
                .rings
                .base
                .add(self.at.answers + place)
                .cast::<io_uring_cqe>();
            let answer = answer.as_ptr();
            ((*answer).user_data.u64_(), (*answer).res)
        };
        self.rings
            .word(self.at.answered_head)
            .store(head.wrapping_add(1), Release);
        Some(Answer { number, result })
    }

    /// A handle by which the thread that made the ring waits, without the ring itself.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter(self.index)
    }

    fn by_index(&self) -> BorrowedFd<'_> {
        self.waiter().by_index()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.is_of_this_process() || !self.is_of_this_thread() {
            // The index ends with its thread, and a child has another.
            return;
        }
        let mut update = io_uring_rsrc_update::default();
        update.offset = self.index as u32;
        let what = IoringRegisterOp::UnregisterRingFds;
        let flags = IoringRegisterFlags::USE_REGISTERED_RING;
        // A thread has sixteen indices. Kernels before 6.3 keep this one until the thread ends.
        // SAFETY: the kernel reads one update, and the index is not used after this.
        let _ = unsafe {
            io_uring_register_with(self.by_index(), what, flags, (&raw const update).cast(), 1)
        };
    }
}

/// The index by which the thread that made a ring waits for an answer.
pub(crate) struct Waiter(i32);

impl Waiter {
    fn by_index<'a>(&self) -> BorrowedFd<'a> {
        // SAFETY: the number is used in calls that take it for an index of the thread's, and for no descriptor.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// Waits until an answer arrives, for a limited number of nanoseconds: another thread may have taken it.
    pub(crate) fn wait(&self, nanos: i64) {
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: nanos,
        };
        let limit = io_uring_getevents_arg {
            ts: io_uring_ptr::new((&raw const time).cast_mut().cast()),
            ..io_uring_getevents_arg::default()
        };
        let flags = IoringEnterFlags::REGISTERED_RING
            | IoringEnterFlags::GETEVENTS
            | IoringEnterFlags::EXT_ARG;
        // SAFETY: no request is handed over, and the time is read only while the call lasts.
        let _ = unsafe { io_uring_enter_arg(self.by_index(), 0, 1, flags, Some(&limit)) };
    }
}

/// Limits the kernel's threads for the ring to [`WORKERS`]. Kernels before 5.15 create a few more.
fn limit_workers(fd: &OwnedFd) {
    // Of the second kind are those that wait without an end, as for a pipe.
    let mut most = [WORKERS, 1];
    let what = IoringRegisterOp::RegisterIowqMaxWorkers;
    // SAFETY: the kernel reads two numbers, and writes the limits before into them.
    let _ = unsafe { io_uring_register(fd, what, most.as_mut_ptr().cast_const().cast(), 2) };
}

/// Registers the ring with the kernel for the calling thread, and returns the ring's index there.
fn register(fd: &OwnedFd) -> Result<i32, Errno> {
    let mut update = io_uring_rsrc_update::default();
    // The kernel chooses the index.
    update.offset = u32::MAX;
    update.data = io_uring_ptr::new(ptr::without_provenance_mut(fd.as_raw_fd() as usize));
    let what = IoringRegisterOp::RegisterRingFds;
    // SAFETY: the kernel reads one update, and writes the index into it.
    let count = unsafe { io_uring_register(fd, what, (&raw mut update).cast_const().cast(), 1) }?;
    match count {
        1 => Ok(update.offset as i32),
        _ => Err(Errno::NOSYS),
    }
}
