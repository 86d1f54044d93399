//! In-thread delivery: userfaultfd raises SIGBUS, and the handler resolves the fault where it happened.
//!
//! No other thread is involved, so there is no hand-off to pay for. The price is that the fault must be a signal: the
//! kernel's own accesses (system calls on absent memory) fail instead, and a thread that blocks SIGBUS is killed.
//!
//! A process has one handler for SIGBUS and may have several arenas, and other code may also use SIGBUS. So the
//! handler looks the address up in a fixed table, and passes a signal that is not ours on to the previous handler
//! (`chain.rs`). Without userfaultfd the signal of a missing page is SIGSEGV (`segv.rs`), and the table is the same.
//!
//! *The code.* userfaultfd only raises BUS_ADRERR. Broken memory (BUS_MCEERR_AR) may also lie at one of our
//! addresses, but there is nothing to bring in: the page is mapped, so the handler would tell the thread to try
//! again, for ever. So a signal with any other code is passed on, as is a signal that a process sent, whose code is
//! zero or negative.
//!
//! *The table.* Readers are signal handlers: they take no lock and do not allocate. A reader finds an entry by its
//! range, then *enters* it by incrementing `running`, then checks it again. Removal clears the range and waits until
//! the count is zero. Each side writes one variable and then reads the other's (sequentially consistent), so either
//! the reader sees that the entry is gone or the remover sees the reader.
//!
//! *The stack.* The handler runs on the faulting thread's own stack (no `SA_ONSTACK`): alternate stacks are commonly
//! 8 KiB, made for printing a message, and resolving a fault can mean decompressing. Stack use depends on the sink;
//! we measured 42 KiB, signal frame included, and a test bounds it by 48 (`millpond/tests/small_stack.rs`, on a stack
//! of 64 KiB with optimisation; we promise nothing for processors with larger signal frames). All other signals are
//! blocked meanwhile, so that no handler of the program runs, and faults, inside a resolution.
//!
//! `errno` belongs to the interrupted program and is restored.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;

use millpond_core::{PAGE_SHIFT, PageIndex};

use super::chain::Chain;
use super::{FaultSink, Resolution, segv};
use crate::common::skip;
use crate::error::MmuError;
use crate::orphans;
use crate::panics::Ours;
use crate::protection::Protection;
use crate::report;
use crate::touch;

/// The maximum number of arenas with in-thread delivery in one process.
const ARENAS: usize = 64;

/// The memory whose faults are delivered, and the sink that resolves them.
pub(super) struct Target {
    pub(super) base: usize,
    pub(super) sink: Arc<dyn FaultSink>,
    /// The protections that watch the arena if there is no userfaultfd.
    pub(super) protection: Option<Arc<Protection>>,
}

impl Target {
    /// Asks the sink to resolve a fault.
    pub(super) fn fault(&self, addr: usize) -> Resolution {
        self.sink.fault(page_of(addr - self.base))
    }
}

fn page_of(offset: usize) -> PageIndex {
    PageIndex((offset >> PAGE_SHIFT) as u32)
}

struct Slot {
    base: AtomicUsize,
    len: AtomicUsize,
    target: AtomicPtr<Target>,
    running: AtomicU32,
}

static TABLE: [Slot; ARENAS] = [const {
    Slot {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        target: AtomicPtr::new(core::ptr::null_mut()),
        running: AtomicU32::new(0),
    }
}; ARENAS];

static CHAIN: Chain = Chain::new(libc::SIGBUS, libc::BUS_OBJERR, 0);

/// One arena's entry in the table.
pub(super) struct Entry(&'static Slot);

impl Entry {
    pub(super) fn add(target: Target, len: usize) -> Result<Self, MmuError> {
        CHAIN.install(on_sigbus)?;
        if target.protection.is_some() {
            segv::install_handler()?;
        }
        let base = target.base;
        let target = Box::into_raw(Box::new(target));
        let is_claimed = |slot: &&Slot| {
            let free = core::ptr::null_mut();
            slot.target
                .compare_exchange(free, target, SeqCst, SeqCst)
                .is_ok()
        };
        let Some(slot) = TABLE.iter().find(is_claimed) else {
            // SAFETY: the pointer comes from `Box::into_raw`, and nobody else has it.
            drop(unsafe { Box::from_raw(target) });
            return Err(MmuError::TooManyArenas { limit: ARENAS });
        };
        slot.len.store(len, SeqCst);
        // The base is stored last: a nonzero base says that the other values are valid.
        slot.base.store(base, SeqCst);
        Ok(Self(slot))
    }

    /// Removes the arena from the table and waits until no thread resolves a fault in it.
    pub(super) fn remove(self) {
        let slot = self.0;
        slot.base.store(0, SeqCst);
        while slot.running.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        let target = slot.target.swap(core::ptr::null_mut(), SeqCst);
        // SAFETY: the pointer comes from `Box::into_raw` in `add`, and no reader is left: the base was cleared before
        // the count was seen to be zero.
        drop(unsafe { Box::from_raw(target) });
    }

    /// In a new child, forgets the entry. The child adds it again if it serves the arena.
    pub(super) fn forget(self) {
        self.0.forget();
    }
}

impl Slot {
    /// In a new child, clears the slot: the threads that were counted do not exist there. The target is not dropped,
    /// because what it owns is the parent's.
    fn forget(&self) {
        self.base.store(0, SeqCst);
        self.running.store(0, SeqCst);
        self.target.store(core::ptr::null_mut(), SeqCst);
    }
}

/// In a new child, empties the table.
pub(super) fn forget_all() {
    TABLE.iter().for_each(Slot::forget);
}

/// Calls `work` with the memory whose arena contains the address, and the page. Returns `None` if no arena does.
pub(super) fn with_target<R>(addr: usize, work: impl FnOnce(&Target, PageIndex) -> R) -> Option<R> {
    for slot in &TABLE {
        let base = slot.base.load(SeqCst);
        if base == 0 || addr < base || addr - base >= slot.len.load(SeqCst) {
            continue;
        }
        slot.running.fetch_add(1, SeqCst);
        if slot.base.load(SeqCst) == base {
            // SAFETY: `running` was incremented and the base was still there afterwards, so `remove` waits for us
            // before it frees the target.
            let answer = work(unsafe { &*slot.target.load(SeqCst) }, page_of(addr - base));
            slot.running.fetch_sub(1, SeqCst);
            return Some(answer);
        }
        slot.running.fetch_sub(1, SeqCst);
    }
    None
}

extern "C" fn on_sigbus(_: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo and the interrupted context to a SA_SIGINFO handler.
    if !unsafe { serve_sigbus(info, context) } {
        CHAIN.pass_on(info, context);
    }
}

/// Serves a SIGBUS. Returns false for a signal that is not ours and belongs to another handler or the default action.
/// A program that has its own handler calls this function first, on a stack with 48 KiB of room and with all signals
/// blocked, and says so once with [`sigbus_is_served`].
///
/// # Safety
/// The arguments are those of a handler with `SA_SIGINFO`.
#[must_use]
pub unsafe fn serve_sigbus(info: *const libc::siginfo_t, context: *mut libc::c_void) -> bool {
    // SAFETY: this gets the C library's errno of this thread, which exists in every thread that can take a signal.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer refers to this thread's errno.
    let saved = unsafe { *errno };
    // SAFETY: the caller passes a valid siginfo, which has bytes for an address with every code.
    let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code != libc::BUS_ADRERR {
        return false;
    }
    // SAFETY: the caller passes the interrupted context, which nobody else refers to.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let is_served = skip::skip(context) || resolved(addr, context);
    // SAFETY: the pointer refers to this thread's errno.
    unsafe { *errno = saved };
    is_served
}

/// Resolves a fault. Returns false if the thread must not continue.
fn resolved(addr: usize, context: &mut libc::ucontext_t) -> bool {
    let resolution = {
        let _ours = Ours::enter();
        with_target(addr, |target, _| target.fault(addr))
    };
    match resolution {
        Some(Resolution::Installed | Resolution::Retry | Resolution::Asleep) => true,
        Some(Resolution::Foreign) if !comes_again(addr) => true,
        _ if touch::give_up(context) => true,
        Some(Resolution::Foreign) => false,
        Some(Resolution::Lost) => {
            report::line(format_args!(
                "the contents of the page at {addr:#x} are lost: the program gets SIGBUS"
            ));
            false
        }
        None => {
            orphans::end_at(addr);
            false
        }
    }
}

/// The threads whose last faults were at foreign mappings, indexed by a few bits of the thread pointer. Each entry
/// has the thread, and the page's address with a count in its lowest bits.
static FOREIGN: [(AtomicUsize, AtomicUsize); 64] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 64];
/// After this many consecutive signals at the same page, they belong to another mapping: of a file that ends before
/// it.
const IN_A_ROW: usize = 4;

/// Notes a signal at a foreign mapping. Returns whether it has come [`IN_A_ROW`] times in a row. (If our own mapping
/// was replaced between the touch and the look, there is only one signal.)
pub(super) fn comes_again(addr: usize) -> bool {
    // SAFETY: the call reads the thread pointer.
    let me = unsafe { libc::pthread_self() as usize };
    let page = addr & !(millpond_core::PAGE_SIZE - 1);
    let (thread, last) = &FOREIGN[(me >> 12 ^ me >> 7) % FOREIGN.len()];
    let before = last.load(SeqCst);
    let is_same = thread.swap(me, SeqCst) == me && before & !(millpond_core::PAGE_SIZE - 1) == page;
    let count = if is_same { before - page + 1 } else { 1 };
    last.store(page + count % IN_A_ROW, SeqCst);
    count >= IN_A_ROW
}

/// Notes that a handler that calls [`serve_sigbus`] is or will be installed, so that ours is not.
pub fn sigbus_is_served() {
    CHAIN.is_served();
}

/// Installs the handler in a new child that has orphaned memory.
pub(crate) fn handle_orphans() {
    let _ = CHAIN.install(on_sigbus);
}
