//! A signal that we share with others: our handler comes first, and passes on what is not ours.
//!
//! A process has only one handler for a signal. Rust's standard library detects stack overflows with SIGSEGV and
//! SIGBUS, a database maps files that can shrink, a collector protects its pages. So the previous action is kept, and
//! a signal that is not ours is treated as it would have been without us: it gets the same handler, with the mask and
//! the stack that it requested, or the default action.

use core::ffi::{c_int, c_void};
use millpond_sync::{ForkOnce, OnceBox, Rank};

use super::own_stack;
use crate::error::MmuError;

/// A handler with `SA_SIGINFO`.
pub(super) type Action = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// A signal that our handler takes first.
pub(super) struct Chain {
    signal: c_int,
    /// The highest code with which the kernel says that an instruction faulted; such a signal recurs with the
    /// instruction.
    faults: c_int,
    /// The flags of our action, in addition to `SA_SIGINFO`.
    flags: c_int,
    /// The installation. No handler waits for it.
    installed: ForkOnce,
    /// The action that was set before ours.
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

    /// Notes that somebody else's handler, which calls ours, is or will be installed.
    pub(super) fn is_served(&self) {
        self.installed.set_done();
    }

    /// Installs the handler, unless the process already has it.
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
            // The previous action is recorded before our handler can run. A child forked in between finds the record,
            // and perhaps our own handler.
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

    /// Passes the signal to the handler that would have received it without us.
    pub(super) fn pass_on(&self, info: *mut libc::siginfo_t, context: *mut c_void) {
        let previous = self.previous.get();
        let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
        // SAFETY: the kernel passes a valid siginfo.
        let code = unsafe { (*info).si_code };
        // Signals with these codes recur when the instruction is executed again. The signal for broken memory that no
        // thread has touched yet is like one that a process sent: both can be ignored.
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

    /// Takes the default action. A fault recurs when the handler returns; any other signal is sent again.
    fn default(&self, comes_again: bool) {
        // SAFETY: `default` is a valid action: zeros, except for the handler.
        unsafe {
            let mut default: libc::sigaction = core::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            let is_set = libc::sigaction(self.signal, &default, core::ptr::null_mut()) == 0;
            if comes_again && !is_set {
                // A seccomp filter of the program forbids it, and the fault would recur for ever.
                libc::syscall(libc::SYS_exit_group, 128 + self.signal);
            }
            if !comes_again {
                libc::raise(self.signal);
            }
        }
    }

    /// Sets the mask that an action requests, so that a handler that never returns leaves nothing blocked.
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
