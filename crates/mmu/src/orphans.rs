//! Memory that a forked child has not inherited, and an error message for a child that touches it.
//!
//! A child does not inherit an arena, because it has nothing that would bring absent pages back. Touching such memory
//! would raise SIGSEGV without a message, and what people see is a hanging pool of processes, because its workers die
//! as fast as they are created. So a new child gets a mapping of an empty file where the arena was. A thread that
//! touches it gets SIGBUS, and our SIGBUS handler says which memory it was and what to do, and ends the child. The
//! mapping also reserves the place: a manager that the child creates itself lies elsewhere, so its memory is not
//! mistaken for the parent's.
//!
//! After a `fork` that set the child up again, the child has its arena; the empty file is only mapped where nothing
//! else is. A child made by the bare system call runs no fork handlers, so it gets SIGSEGV.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::delivery::handle_orphans;
use crate::report;

/// The maximum number of known arenas. A child that touches an arena beyond these gets SIGSEGV.
const ARENAS: usize = 64;

#[derive(Debug)]
struct KnownArena {
    base: AtomicUsize,
    len: AtomicUsize,
    /// Whether an empty file is mapped there.
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
    /// Registers an arena of this process.
    pub(crate) fn new(base: usize, len: usize) -> Self {
        let claim = |place: &&KnownArena| {
            // A nonzero length says that the entry is taken; a nonzero base says that it can be used.
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
        // A child keeps the entry of an arena that it did not inherit.
        if let Some(place) = self.0
            && !place.orphaned.load(SeqCst)
        {
            place.base.store(0, SeqCst);
            place.len.store(0, SeqCst);
        }
    }
}

/// In a new child, maps an empty file for each arena that it did not inherit. Only makes system calls and stores a
/// few words.
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

/// Ends the process if it must not touch the address. Called by the SIGBUS handler.
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
