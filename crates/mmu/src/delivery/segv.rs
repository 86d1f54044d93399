//! SIGSEGV: the fault of a page that is closed because its bytes are not there (`protection`).
//!
//! The handler is like that of SIGBUS (`in_thread.rs`), with three differences. It starts on the thread's alternate
//! stack, if there is one, so that a stack overflow is still reported as it would be without us; our own work
//! continues on the thread's own stack. The fault may be the program's own: a page that it closed, or made read-only.
//! And a page whose contents are lost must still be SIGBUS for the program, so the handler sends that signal to the
//! thread as the kernel would.

use core::ffi::{c_int, c_void};

use millpond_core::PAGE_SIZE;

use super::chain::Chain;
use super::in_thread::{Target, comes_again, with_target};
use super::{Resolution, own_stack};
use crate::common::skip;
use crate::error::MmuError;
use crate::interrupted::{Access, access};
use crate::panics::Ours;
use crate::protection::Touch;
use crate::sys::gate;
use crate::touch;

/// The code for touching memory that is mapped, but whose protection does not allow it.
const SEGV_ACCERR: c_int = 2;
/// The code for touching memory that is not mapped, or is marked (`protection/guards.rs`).
const SEGV_MAPERR: c_int = 1;
/// The highest of the kernel's codes, for a touch that has no code of its own (SI_KERNEL).
const SI_KERNEL: c_int = 0x80;

static CHAIN: Chain = Chain::new(libc::SIGSEGV, SI_KERNEL, libc::SA_ONSTACK);

/// Installs the handler, once per process.
pub(super) fn install_handler() -> Result<(), MmuError> {
    CHAIN.install(on_sigsegv)
}

/// Notes that a handler that calls [`serve_sigsegv`] is or will be installed, so that ours is not.
pub fn sigsegv_is_served() {
    CHAIN.is_served();
}

extern "C" fn on_sigsegv(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo and the interrupted context to a SA_SIGINFO handler.
    if !unsafe { serve_sigsegv(info, context) } {
        CHAIN.pass_on(info, context);
    }
}

/// Serves a SIGSEGV. Returns false for a signal that is not ours and belongs to another handler or the default
/// action. A program that has its own handler calls this function first, with all signals blocked, and says so once
/// with [`sigsegv_is_served`]. The handler may run on an alternate stack; the interrupted stack must have room for 48
/// KiB.
///
/// # Safety
/// The arguments are those of a handler with `SA_SIGINFO`.
#[must_use]
pub unsafe fn serve_sigsegv(info: *const libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the caller passes a valid siginfo, which has bytes for an address with every code.
    let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code != SEGV_ACCERR && code != SEGV_MAPERR {
        return false;
    }
    // SAFETY: this gets the C library's errno of this thread, which exists in every thread that can take a signal.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer refers to this thread's errno.
    let saved = unsafe { *errno };
    let is_served = with_target(addr, |target, page| {
        let protection = target.protection.as_ref()?;
        if code == SEGV_MAPERR && !protection.may_be_mark(page) {
            return None;
        }
        // SAFETY: the caller passes the interrupted context, which nobody else refers to.
        let interrupted = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        Some(
            skip::skip(interrupted)
                || match protection.touched(page, access(interrupted).unwrap_or(Access::Read)) {
                    Touch::Again => true,
                    Touch::Forbidden => touch::give_up(interrupted),
                    Touch::Absent => {
                        let resolve = || resolved(target, addr, context);
                        own_stack::run_if(true, context, resolve)
                    }
                },
        )
    });
    // SAFETY: the pointer refers to this thread's errno.
    unsafe { *errno = saved };
    is_served.flatten().unwrap_or(false)
}

/// Asks the sink to bring a page in.
fn resolved(target: &Target, addr: usize, context: *mut c_void) -> bool {
    let resolution = {
        let _ours = Ours::enter();
        target.fault(addr)
    };
    // SAFETY: the caller has the interrupted context, and does not use it meanwhile.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    match resolution {
        Resolution::Installed | Resolution::Retry | Resolution::Asleep => true,
        Resolution::Foreign => !comes_again(addr) || touch::give_up(context),
        Resolution::Lost => touch::give_up(context) || raise_sigbus(addr, context),
    }
}

/// Sends SIGBUS for the address to this thread, which gets it when the handler returns, at the faulting instruction.
/// The SIGBUS handler finds that the page is lost. As with a fault, no mask holds the signal back.
fn raise_sigbus(addr: usize, context: &mut libc::ucontext_t) -> bool {
    const NR: usize = linux_raw_sys::general::__NR_rt_tgsigqueueinfo as usize;
    // SAFETY: zeros are a valid siginfo; the address is written where the kernel writes that of a fault.
    let sent = unsafe {
        let mut info: libc::siginfo_t = core::mem::zeroed();
        info.si_signo = libc::SIGBUS;
        info.si_code = libc::BUS_ADRERR;
        (&raw mut info)
            .cast::<usize>()
            .add(2)
            .write(addr & !(PAGE_SIZE - 1));
        libc::sigdelset(&mut context.uc_sigmask, libc::SIGBUS);
        let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
        let ids = [process, thread].map(|id| id.as_raw_nonzero().get() as usize);
        gate::syscall(
            NR,
            [
                ids[0],
                ids[1],
                libc::SIGBUS as usize,
                (&raw const info) as usize,
                0,
                0,
            ],
        )
    };
    sent == 0
}
