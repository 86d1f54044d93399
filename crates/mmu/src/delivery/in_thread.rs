//! In-thread delivery: userfaultfd raises SIGBUS, and the handler resolves the fault where it happened.
//!
//! No other thread is involved, so no hand-off is paid. The price is that the fault must be a signal: the
//! kernel's own accesses (system calls on absent memory) fail instead, and a thread that blocks SIGBUS is killed.
//!
//! A process has one handler for SIGBUS and may have several arenas, and other code may use SIGBUS too: Rust's
//! standard library looks for stack overflows with it, a database maps files that can shrink. So the handler looks
//! the address up in a fixed table, and passes a signal that is not ours on to the handler that was there before.
//!
//! *The code.* userfaultfd raises BUS_ADRERR and nothing else. Broken memory (BUS_MCEERR_AR) may lie at one of our
//! addresses too, but there is nothing to bring in: the page is mapped, so the answer would be to try again, for
//! ever. So a signal with any other code is passed on, and so is a signal that a process sent, whose code is zero or
//! below.
//!
//! *The table.* Readers are signal handlers: they take no lock and do not allocate. An entry is found by its range,
//! then *entered* by counting up `running`, then checked again. Removal clears the range and waits until the count is
//! zero. Both sides write one variable and then read the other's (sequentially consistent), so either the reader sees
//! the entry gone or the remover sees the reader.
//!
//! *The stack.* The handler runs on the faulting thread's own stack (no `SA_ONSTACK`): alternate stacks are commonly
//! 8 KiB, made for printing a message, and resolving a fault can mean decompressing. The sink sets the need: 42 KiB
//! were measured, signal frame included, and a test bounds it by 48 (`millpond/tests/small_stack.rs`, on a stack of
//! 64 KiB with optimisation; more is not promised where a processor's signal frames are larger). All other signals
//! are blocked meanwhile, so that no handler of the program runs, and faults, inside a resolution.
//!
//! `errno` belongs to the interrupted program and is put back as it was.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst};
use millpond_sync::{Rank, Ranked};
use std::sync::{Arc, OnceLock};

use millpond_core::{PAGE_SHIFT, PageIndex};

use super::{FaultSink, Resolution};
use crate::error::MmuError;
use crate::orphans;
use crate::panics::Ours;
use crate::report;
use crate::uffd::skip;

/// Arenas with in-thread delivery that one process can have at once.
const ARENAS: usize = 64;

struct Slot {
    base: AtomicUsize,
    len: AtomicUsize,
    sink: AtomicPtr<Arc<dyn FaultSink>>,
    running: AtomicU32,
}

static TABLE: [Slot; ARENAS] = [const {
    Slot {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        sink: AtomicPtr::new(core::ptr::null_mut()),
        running: AtomicU32::new(0),
    }
}; ARENAS];

/// Serialises the installation of the handler. The lock is never taken by the handler, nor once the handler is
/// installed: a child of a fork may find the lock taken for good.
static INSTALLING: Ranked<()> = Ranked::new(Rank::SigbusHandler, ());
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The action for SIGBUS before ours.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// One arena's line in the table.
pub(super) struct Entry(&'static Slot);

impl Entry {
    pub(super) fn add(base: usize, len: usize, sink: Arc<dyn FaultSink>) -> Result<Self, MmuError> {
        install_handler()?;
        let sink = Box::into_raw(Box::new(sink));
        let is_claimed = |slot: &&Slot| {
            let free = core::ptr::null_mut();
            slot.sink
                .compare_exchange(free, sink, SeqCst, SeqCst)
                .is_ok()
        };
        let Some(slot) = TABLE.iter().find(is_claimed) else {
            // SAFETY: the pointer was made by `Box::into_raw`, and no one else has it.
            drop(unsafe { Box::from_raw(sink) });
            return Err(MmuError::TooManyArenas { limit: ARENAS });
        };
        slot.len.store(len, SeqCst);
        // The base is stored last: a base that is not 0 says that the other values are there.
        slot.base.store(base, SeqCst);
        Ok(Self(slot))
    }

    /// Takes the arena out of the table and waits until no thread resolves a fault in it.
    pub(super) fn remove(self) {
        let slot = self.0;
        slot.base.store(0, SeqCst);
        while slot.running.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        let sink = slot.sink.swap(core::ptr::null_mut(), SeqCst);
        // SAFETY: the pointer was made by `Box::into_raw` in `add`, and no reader is left: the base was cleared
        // before the count was seen to be zero.
        drop(unsafe { Box::from_raw(sink) });
    }

    /// Forgets the entry in a new child, which adds it again if it serves the arena.
    pub(super) fn forget(self) {
        self.0.forget();
    }
}

impl Slot {
    /// Clears the slot in a new child: the threads that were counted do not exist there. The sink is not dropped,
    /// because what it owns is the parent's.
    fn forget(&self) {
        self.base.store(0, SeqCst);
        self.running.store(0, SeqCst);
        self.sink.store(core::ptr::null_mut(), SeqCst);
    }
}

/// Empties the table in a new child.
pub(super) fn forget_all() {
    TABLE.iter().for_each(Slot::forget);
}

/// Asks the sink whose arena holds the address. The answer is `None` when no arena holds it.
fn resolve(addr: usize) -> Option<Resolution> {
    for slot in &TABLE {
        let base = slot.base.load(SeqCst);
        if base == 0 || addr < base || addr - base >= slot.len.load(SeqCst) {
            continue;
        }
        slot.running.fetch_add(1, SeqCst);
        let resolution = (slot.base.load(SeqCst) == base).then(|| {
            // SAFETY: `running` is counted up and the base was still there afterwards, so `remove` waits for us
            // before it frees the sink.
            let sink = unsafe { &*slot.sink.load(SeqCst) };
            sink.fault(PageIndex(((addr - base) >> PAGE_SHIFT) as u32))
        });
        slot.running.fetch_sub(1, SeqCst);
        if resolution.is_some() {
            return resolution;
        }
    }
    None
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: this asks for the C library's errno of this thread, which every thread that can take a signal has.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is to this thread's errno.
    let saved = unsafe { *errno };
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler, and bytes for an address with every code.
    let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // SAFETY: the kernel passes the interrupted context to a SA_SIGINFO handler, which nobody else refers to.
    if code == libc::BUS_ADRERR && skip::skip(unsafe { &mut *context.cast::<libc::ucontext_t>() }) {
        return;
    }
    let resolution = if code == libc::BUS_ADRERR {
        let _ours = Ours::enter();
        resolve(addr)
    } else {
        None
    };
    match resolution {
        Some(Resolution::Installed | Resolution::Retry | Resolution::Asleep) => {}
        Some(Resolution::Lost) => {
            report::line(format_args!(
                "the contents of the page at {addr:#x} are lost: the program gets SIGBUS"
            ));
            pass_on(signal, info, context);
        }
        None => {
            if code == libc::BUS_ADRERR {
                orphans::end_at(addr);
            }
            pass_on(signal, info, context);
        }
    }
    // SAFETY: the pointer is to this thread's errno.
    unsafe { *errno = saved };
}

/// Gives the signal to the handler that would have had it without us.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    // SAFETY: the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    // Signals with these codes come again when the instruction is run again. The signal for broken memory that no
    // thread has touched yet is like a sent one, and either can be ignored.
    let comes_again = (libc::BUS_ADRALN..=libc::BUS_OBJERR).contains(&code);
    match (previous, handler) {
        (_, libc::SIG_IGN) if code <= 0 || code == libc::BUS_MCEERR_AO => {}
        (None, _) | (_, libc::SIG_DFL | libc::SIG_IGN) => {
            // For the default action, a fault comes again when the handler returns; any other signal is sent again.
            // SAFETY: `default` is a valid action, made of zeros but for the handler.
            unsafe {
                let mut default: libc::sigaction = core::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, core::ptr::null_mut());
                if !comes_again {
                    libc::raise(signal);
                }
            }
        }
        (Some(action), handler) => {
            // SAFETY: the interrupted mask and the action's own are valid sets. The earlier handler runs under the
            // mask that it asked for, so that a handler which never returns leaves nothing blocked.
            unsafe {
                let mut mask = (*context.cast::<libc::ucontext_t>()).uc_sigmask;
                for other in 1..=64 {
                    if libc::sigismember(&action.sa_mask, other) == 1 {
                        libc::sigaddset(&mut mask, other);
                    }
                }
                if action.sa_flags & libc::SA_NODEFER == 0 {
                    libc::sigaddset(&mut mask, signal);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut());
            }
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: an action with SA_SIGINFO holds a function of three arguments.
                let call: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { core::mem::transmute(handler) };
                call(signal, info, context);
            } else {
                // SAFETY: an action without SA_SIGINFO that is neither default nor ignore holds a function of one
                // argument.
                let call: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
                call(signal);
            }
        }
    }
}

/// Installs the handler, once in the lifetime of the process.
fn install_handler() -> Result<(), MmuError> {
    if INSTALLED.load(SeqCst) {
        return Ok(());
    }
    let _installing = INSTALLING.lock();
    install_once()
}

/// Installs the handler in a new child, which has orphaned memory and one thread. It takes no lock: a thread that was
/// installing the handler in the parent does not exist in the child.
pub(crate) fn handle_orphans() {
    let _ = install_once();
}

fn install_once() -> Result<(), MmuError> {
    if INSTALLED.load(SeqCst) {
        return Ok(());
    }
    // SAFETY: zeros are a valid start for both actions; every field that matters is set below. The handler is
    // async-signal-safe: it takes no lock and does not allocate.
    unsafe {
        let mut previous: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, core::ptr::null(), &mut previous) != 0 {
            return Err(MmuError::Signal {
                errno: *libc::__errno_location(),
            });
        }
        // The previous action is noted before our handler can run.
        let _ = PREVIOUS.set(previous);
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigfillset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut()) != 0 {
            return Err(MmuError::Signal {
                errno: *libc::__errno_location(),
            });
        }
    }
    INSTALLED.store(true, SeqCst);
    Ok(())
}
