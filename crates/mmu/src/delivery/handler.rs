//! Handler delivery: one thread reads faults from the userfaultfd and asks the sink.
//!
//! The faulting thread sleeps in the kernel, wherever it was: in its own code, or deep in a system call that reads
//! its memory. That is why everything works with this delivery. The price is the hand-off, which depends on where the
//! handler runs (see [`follow`](super::follow)).
//!
//! The loop allocates nothing, takes no lock and touches no managed memory: otherwise it would wait for itself. It
//! blocks all signals, so no handler of the program runs there.
//!
//! *Stopping the thread.* The thread sleeps in `read`. A second descriptor and `poll` could wake it, but would cost
//! one more system call for every fault. Instead the pool has one page that no frame covers, the *bell*. To stop the
//! thread, a caller touches that page; the thread sees a fault there, maps zeros so that the caller continues, and
//! ends.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use linux_raw_sys::general::{UFFD_EVENT_PAGEFAULT, uffd_msg};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use millpond_core::{PAGE_SHIFT, PAGE_SIZE, PageIndex};
use millpond_sync::OwnThread;

use super::follow::{Follower, SOON};
use super::{FaultSink, Resolution};
use crate::error::MmuError;
use crate::panics::Ours;
use crate::report;
use crate::sys::{advise, ioctl, poison};

/// The maximum number of messages that one `read` takes.
const BATCH: usize = 32;

pub(super) struct Handler {
    thread: OwnThread,
    stop: Arc<AtomicBool>,
    bell: usize,
    process: Pid,
}

/// What the thread needs to know about the memory that it serves. These are plain values, so the memory object may be
/// moved meanwhile. They remain valid until the thread is joined, by `detach` or at the latest when the memory is
/// dropped.
#[derive(Clone, Copy)]
pub(crate) struct Served {
    /// The userfaultfd.
    pub(crate) fd: BorrowedFd<'static>,
    /// The arena's first address.
    pub(crate) base: usize,
    /// The arena's length.
    pub(crate) len: usize,
    /// The address of the page that stops the thread.
    pub(crate) bell: usize,
    /// The address of a page of zeros.
    pub(crate) zeros: usize,
    /// Whether lost pages can be marked.
    pub(crate) can_poison: bool,
}

impl Handler {
    pub(super) fn start(served: Served, sink: Arc<dyn FaultSink>) -> Result<Self, MmuError> {
        let bell = served.bell;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // The starting thread continues once the new one no longer needs anything of the program, in particular its
        // descriptor table.
        let ready = Arc::new(Barrier::new(2));
        let thread_ready = Arc::clone(&ready);
        // A thread inherits the signal mask of its creator.
        let before = block_signals();
        let thread = OwnThread::start(c"millpond-fault", move || {
            let _ours = Ours::enter();
            sink.handler_started();
            thread_ready.wait();
            serve(served, &*sink, &stopped);
        });
        restore_signals(&before);
        let thread = thread?;
        ready.wait();
        Ok(Self {
            thread,
            stop,
            bell,
            process: getpid(),
        })
    }

    pub(super) fn stop(self) {
        if self.process != getpid() {
            // In a child that never set its memory up there is no thread, so nobody would answer the bell.
            return self.forget();
        }
        let bell = self.bell;
        self.stop.store(true, Ordering::Release);
        // SAFETY: the bell is a readable page of the pool; the touch ends when the handler maps it.
        unsafe { core::ptr::read_volatile(bell as *const u8) };
        self.thread.join();
        // SAFETY: the bell contains nothing, and must be empty for the next stop.
        unsafe {
            advise::discard(
                None,
                &[advise::Span {
                    start: bell,
                    len: PAGE_SIZE,
                }],
            )
        };
    }

    /// In a new child, forgets the thread: it does not exist there, and must be neither joined nor detached.
    pub(super) fn forget(self) {
        core::mem::forget(self.thread);
    }
}

fn serve(served: Served, sink: &dyn FaultSink, stopped: &AtomicBool) {
    let mut follower = Follower::new();
    let mut done = Instant::now();
    let mut bytes = [MaybeUninit::<u8>::uninit(); BATCH * size_of::<uffd_msg>()];
    loop {
        let (read, _) = match rustix::io::read(served.fd, &mut bytes) {
            Ok(halves) => halves,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(errno) => report::stop(format_args!(
                "faults cannot be read ({errno}): stopped; was the descriptor closed by the program?"
            )),
        };
        let soon = done.elapsed() < SOON;
        let mut last = false;
        let mut faulter = 0;
        for message in read.chunks_exact(size_of::<uffd_msg>()) {
            // SAFETY: the kernel writes whole messages, and any bytes are a valid `uffd_msg`.
            let message = unsafe { message.as_ptr().cast::<uffd_msg>().read_unaligned() };
            if u32::from(message.event) != UFFD_EVENT_PAGEFAULT {
                continue;
            }
            // SAFETY: the event says which member is valid.
            let fault = unsafe { message.arg.pagefault };
            // SAFETY: the thread id is the union's only used member; it is 0 if the kernel does not report it.
            faulter = unsafe { fault.feat.ptid };
            let addr = fault.address as usize;
            if addr & !(PAGE_SIZE - 1) == served.bell {
                last = stopped.load(Ordering::Acquire);
                // SAFETY: no frame covers the bell, and the zeros are mapped.
                let _ = unsafe { ioctl::copy(served.fd, served.bell, served.zeros, PAGE_SIZE) };
            } else {
                resolve(served, sink, addr);
            }
        }
        if last {
            return;
        }
        follower.note(faulter, soon);
        sink.handler_serves(follower.serves());
        done = Instant::now();
    }
}

fn resolve(served: Served, sink: &dyn FaultSink, addr: usize) {
    let page = addr & !(PAGE_SIZE - 1);
    let Some(offset) = page
        .checked_sub(served.base)
        .filter(|&offset| offset < served.len)
    else {
        report::stop(format_args!(
            "a hole in the frame pool was touched at {addr:#x}: stopped; this is a bug in millpond or a stray pointer"
        ));
    };
    match sink.fault(PageIndex((offset >> PAGE_SHIFT) as u32)) {
        Resolution::Installed | Resolution::Asleep => {}
        Resolution::Retry | Resolution::Foreign => {
            let _ = ioctl::wake(served.fd, page, PAGE_SIZE);
        }
        Resolution::Lost => lose(served, page),
    }
}

/// Marks a page as lost and wakes the threads that wait there. Stops the process if the kernel cannot mark pages:
/// otherwise a waiting thread would hang, or read zeros.
fn lose(served: Served, page: usize) {
    if !served.can_poison {
        report::stop(format_args!(
            "the contents of the page at {page:#x} are lost, and this kernel cannot tell the program \
             (UFFDIO_POISON, Linux 6.6): stopped"
        ));
    }
    report::line(format_args!(
        "the contents of the page at {page:#x} are lost: the program gets SIGBUS"
    ));
    poison::mark(served.fd, page, page + PAGE_SIZE);
    let _ = ioctl::wake(served.fd, page, PAGE_SIZE);
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are local; the mask is this thread's own.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set was filled by `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
}
