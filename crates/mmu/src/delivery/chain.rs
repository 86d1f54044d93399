//! A signal that is ours and other people's: our handler comes first, and passes on what is not ours.
//!
//! A process has one handler for a signal. Rust's standard library looks for stack overflows with SIGSEGV and SIGBUS, a
//! database maps files that can shrink, a collector protects its pages. So the action that was there before is kept,
//! and a signal that is not ours gets what it would have got without us: the same handler, under the mask that it asked
//! for, on the stack that it asked for, or the default action.

use core::ffi::{c_int, c_void};
use millpond_sync::{ForkOnce, OnceBox, Rank};

use super::own_stack;
use crate::error::MmuError;

/// A handler with `SA_SIGINFO`.
pub(super) type Action = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// A signal that our handler takes first.
pub(super) struct Chain {
    signal: c_int,
    /// The highest code by which the kernel says that an instruction faulted, and which comes again with it.
    faults: c_int,
    /// The flags of our action, beside `SA_SIGINFO`.
    flags: c_int,
    /// The installation, which no handler waits for.
    installed: ForkOnce,
    /// The action before ours.
    previous: OnceBox<libc::sigaction>,
}

impl Chain {
    pub(super) const fn new(signal: c_int, faults: c_int, flags: c_int) -> Self {
        Self {
            signal,
            faults,
            flags,
            installed: ForkOnce::new(Rank::OncePerProcess),
            previous: OnceBox::new(),
        }
    }

    /// Says that somebody else's handler is, or will be, installed that calls ours.
    pub(super) fn is_served(&self) {
        self.installed.set_done();
    }

    /// Installs the handler, unless the process has it.
    pub(super) fn install(&self, handler: Action) -> Result<(), MmuError> {
        self.installed.try_call(|| self.put_first(handler))
    }

    fn put_first(&self, handler: Action) -> Result<(), MmuError> {
        // SAFETY: zeros are a valid start for both actions; every field that matters is set below. The handler is
        // async-signal-safe: it does not allocate, and takes no lock that a thread holds while it faults.
        unsafe {
            let mut previous: libc::sigaction = core::mem::zeroed();
            if libc::sigaction(self.signal, core::ptr::null(), &mut previous) != 0 {
                return Err(MmuError::Signal {
                    errno: *libc::__errno_location(),
                });
            }
            // The previous action is noted before our handler can run. A child that was forked in between finds the
            // note, and perhaps our own handler.
            self.previous.get_or_init(|| Box::new(previous));
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | self.flags;
            libc::sigfillset(&mut action.sa_mask);
            if libc::sigaction(self.signal, &action, core::ptr::null_mut()) != 0 {
                return Err(MmuError::Signal {
                    errno: *libc::__errno_location(),
                });
            }
        }
        Ok(())
    }

    /// Gives the signal to the handler that would have had it without us.
    pub(super) fn pass_on(&self, info: *mut libc::siginfo_t, context: *mut c_void) {
        let previous = self.previous.get();
        let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
        // SAFETY: the kernel passes a valid siginfo.
        let code = unsafe { (*info).si_code };
        // Signals with these codes come again when the instruction is run again. The signal for broken memory that no
        // thread has touched yet is like a sent one, and either can be ignored.
        let comes_again = (1..=self.faults).contains(&code);
        let is_early = self.signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO;
        match (previous, handler) {
            (_, libc::SIG_IGN) if code <= 0 || is_early => {}
            (None, _) | (_, libc::SIG_DFL | libc::SIG_IGN) => self.default(comes_again),
            (Some(action), _) => {
                self.set_mask_of(action, context);
                let wants_own_stack = action.sa_flags & libc::SA_ONSTACK == 0;
                own_stack::run_if(wants_own_stack, context, || {
                    self.call(action, info, context)
                });
            }
        }
    }

    /// Takes the default action. A fault comes again when the handler returns; any other signal is sent again.
    fn default(&self, comes_again: bool) {
        // SAFETY: `default` is a valid action, made of zeros but for the handler.
        unsafe {
            let mut default: libc::sigaction = core::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            let is_set = libc::sigaction(self.signal, &default, core::ptr::null_mut()) == 0;
            if comes_again && !is_set {
                // A filter of the program's forbids it, and the fault would come again for ever.
                libc::syscall(libc::SYS_exit_group, 128 + self.signal);
            }
            if !comes_again {
                libc::raise(self.signal);
            }
        }
    }

    /// Sets the mask under which an action wants to run, so that a handler which never returns leaves nothing blocked.
    fn set_mask_of(&self, action: &libc::sigaction, context: *mut c_void) {
        // SAFETY: the interrupted mask and the action's own are valid sets.
        unsafe {
            let mut mask = (*context.cast::<libc::ucontext_t>()).uc_sigmask;
            for other in 1..=64 {
                if libc::sigismember(&action.sa_mask, other) == 1 {
                    libc::sigaddset(&mut mask, other);
                }
            }
            if action.sa_flags & libc::SA_NODEFER == 0 {
                libc::sigaddset(&mut mask, self.signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut());
        }
    }

    fn call(&self, action: &libc::sigaction, info: *mut libc::siginfo_t, context: *mut c_void) {
        let handler = action.sa_sigaction;
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            // SAFETY: an action with SA_SIGINFO holds a function of three arguments.
            let call: Action = unsafe { core::mem::transmute(handler) };
            call(self.signal, info, context);
        } else {
            // SAFETY: an action without SA_SIGINFO that is neither default nor ignore holds a function of one argument.
            let call: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            call(self.signal);
        }
    }
}
