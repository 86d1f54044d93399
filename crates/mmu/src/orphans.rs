//! Memory that a forked child has not inherited, and a line for a child that touches it.
//!
//! An arena is not inherited: a child has nothing that would bring absent pages back. A touch there would be SIGSEGV
//! without a word, and what people see is a pool of processes that hangs, because its workers die as fast as they are
//! made. So where an arena was, a new child gets a mapping of an empty file. A thread that touches it gets SIGBUS,
//! and our handler for that says which memory it was and what to do, and ends the child. The mapping also keeps the
//! place: a manager that the child builds itself lies elsewhere, so that its memory is not taken for the parent's.
//!
//! A child of a `fork` that was set up again has its arena, and the empty file goes only where nothing is mapped. A
//! child made by the bare system call runs no fork handlers: it gets SIGSEGV.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::delivery::handle_orphans;
use crate::report;

/// The most arenas that are known. A child that touches an arena for which there was no room gets SIGSEGV.
const ARENAS: usize = 64;

#[derive(Debug)]
struct KnownArena {
    base: AtomicUsize,
    len: AtomicUsize,
    /// Whether an empty file lies there.
    orphaned: AtomicBool,
}

static KNOWN: [KnownArena; ARENAS] = [const {
    KnownArena {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        orphaned: AtomicBool::new(false),
    }
}; ARENAS];

/// Keeps an arena known while this value lives.
#[derive(Debug)]
pub(crate) struct Known(Option<&'static KnownArena>);

impl Known {
    /// Notes an arena of this process.
    pub(crate) fn new(base: usize, len: usize) -> Self {
        let claim = |place: &&KnownArena| {
            // A length that is not 0 says that the place is taken; a base that is not 0, that it can be used.
            let taken = place.len.compare_exchange(0, len, SeqCst, SeqCst).is_ok();
            if taken {
                place.base.store(base, SeqCst);
            }
            taken
        };
        Self(KNOWN.iter().find(claim))
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        // A child does not let go of an arena of which it has only the place.
        if let Some(place) = self.0
            && !place.orphaned.load(SeqCst)
        {
            place.base.store(0, SeqCst);
            place.len.store(0, SeqCst);
        }
    }
}

/// Maps an empty file, in a new child, for each arena that it did not inherit. It only makes system calls and stores
/// a few words.
pub(crate) fn begin_in_child() {
    let known = |place: &&KnownArena| place.base.load(SeqCst) != 0 && !place.orphaned.load(SeqCst);
    if KNOWN.iter().find(known).is_none() {
        return;
    }
    let Ok(empty) = memfd_create(c"millpond-orphan", MemfdFlags::CLOEXEC) else {
        return;
    };
    let mut any = false;
    for place in KNOWN.iter().filter(known) {
        let (base, len) = (place.base.load(SeqCst), place.len.load(SeqCst));
        // SAFETY: the mapping goes where nothing is mapped, or nowhere.
        let mapped = unsafe {
            mmap(
                base as *mut c_void,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE,
                empty.as_fd(),
                0,
            )
        };
        place.orphaned.store(mapped.is_ok(), SeqCst);
        any |= mapped.is_ok();
    }
    if any {
        handle_orphans();
    }
}

/// Ends the process if it should not touch the address. This is for the handler of SIGBUS.
pub(crate) fn end_at(addr: usize) {
    let is_there = |place: &KnownArena| {
        place.orphaned.load(SeqCst)
            && addr.wrapping_sub(place.base.load(SeqCst)) < place.len.load(SeqCst)
    };
    if KNOWN.iter().any(is_there) {
        report::stop(format_args!(
            "this process, forked from one that has a manager, touched memory of it at {addr:#x}, which is not \
             inherited: copy what the child needs before the fork, or start workers by spawn and build a manager there"
        ));
    }
}
