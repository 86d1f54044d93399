//! Whether the program has a single thread, and that is the one that asks.
//!
//! Such a thread may see a half-written page, because it is the one writing it, and nobody writes to a page while it
//! copies it. So pages can come and go with fewer calls ([`guards`](super::guards)). The answer remains valid until
//! that thread resumes the program's work, because only it could create another thread. A signal handler could too,
//! so the caller has signals blocked.
//!
//! The kernel reports the number of threads as the number of links of `/proc/self/task`: 0.2 µs through a descriptor.
//! Millpond's own threads do not count ([`OwnThreads`]): they only touch managed memory where a folio is in flight on
//! their behalf. A child made by `clone` with `CLONE_VM` runs concurrently with the program's thread without being a
//! thread of the process; the child of a `vfork` runs in its parent's place. Code that makes any other kind of child
//! announces it with [`shares_memory`].

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as nr;
use millpond_sync::{OwnThreads, forget_inherited_threads, is_own_thread};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::OFlags;

use crate::sys::{FdCell, gate, pagemap};

/// Whether a process that is not a thread of this one may use this memory.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Notes that memory is shared from now on with a child that runs concurrently with this process (`CLONE_VM` without
/// `CLONE_VFORK` and `CLONE_THREAD`). The kernel does not count it as a thread.
pub fn shares_memory() {
    SHARED.store(true, Relaxed);
}

/// Links of a directory of threads in addition to those of the threads.
const LINKS: usize = 2;
/// How many times it is not [worth asking](Alone::is_worth_asking) after a program was found to have several threads:
/// it will most likely keep them.
const REST: u32 = 256;

/// The directory of this process's threads, and when to look at it next.
pub(super) struct Alone {
    tasks: FdCell,
    /// The device and the inode of the directory. A program may close the descriptor, and open something else with
    /// that number.
    device: AtomicU64,
    inode: AtomicU64,
    rest: AtomicU32,
}

impl Alone {
    /// Opens the directory if `wanted` is set. If that fails, no thread ever counts as the only one.
    pub(super) fn new(wanted: bool) -> Self {
        let alone = Self {
            tasks: FdCell::new(None),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            rest: AtomicU32::new(0),
        };
        if wanted {
            alone.open();
        }
        alone
    }

    fn open(&self) {
        forget_inherited_threads();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let tasks = pagemap::open_own(c"/proc/self/task", flags).ok();
        let seen = tasks.as_ref().and_then(|tasks| look(tasks.as_fd()));
        if let Some(seen) = seen {
            self.device.store(seen.st_dev, Relaxed);
            self.inode.store(seen.st_ino, Relaxed);
        }
        self.tasks.replace(tasks.filter(|_| seen.is_some()));
    }

    /// Makes a new child look at its own threads. It has one.
    pub(super) fn after_fork_in_child(&self) {
        if self.tasks.get().is_some() {
            self.open();
        }
    }

    pub(super) fn descriptor(&self) -> Option<i32> {
        self.tasks.get().map(|tasks| tasks.as_raw_fd())
    }

    /// Whether the program may have a single thread. Returns false for a while after several were seen.
    pub(super) fn is_worth_asking(&self) -> bool {
        let rest = self.rest.load(Relaxed);
        if rest > 0 {
            self.rest.store(rest - 1, Relaxed);
        }
        rest == 0 && self.tasks.get().is_some()
    }

    /// Whether the calling thread, whose signals are blocked, is the program's only one.
    pub(super) fn is_alone(&self) -> bool {
        let Some(tasks) = self.tasks.get() else {
            return false;
        };
        if is_own_thread() || SHARED.load(Relaxed) {
            return false;
        }
        // One of our own threads that starts or ends between the two looks could hide one of the program's.
        let own = OwnThreads::now();
        let is_alone =
            look(tasks).is_some_and(|seen| self.counts(&seen, own.count)) && own.are_the_same();
        if !is_alone {
            self.rest.store(REST, Relaxed);
        }
        is_alone
    }

    /// Whether this is the directory, and has exactly one thread in addition to `own` threads of ours.
    fn counts(&self, seen: &libc::stat, own: usize) -> bool {
        seen.st_dev == self.device.load(Relaxed)
            && seen.st_ino == self.inode.load(Relaxed)
            && seen.st_nlink as usize == LINKS + 1 + own
    }
}

/// Returns what the kernel says about a descriptor.
fn look(of: BorrowedFd<'_>) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let (of, into) = (of.as_raw_fd() as usize, stat.as_mut_ptr() as usize);
    // SAFETY: the kernel writes a structure that lives here.
    let answer = unsafe { gate::syscall(nr::__NR_fstat as usize, [of, into, 0, 0, 0, 0]) };
    // SAFETY: if the kernel does not refuse, it has written the structure.
    (answer == 0).then(|| unsafe { stat.assume_init() })
}
