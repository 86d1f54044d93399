//! The C library's functions behind the exports about signals, looked up when the process starts.
//!
//! Without direct delivery each export does nothing but call its function. A program may do so in a signal handler,
//! where nothing may be looked up any more.

use crate::dlopen;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One function.
pub struct Real {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        let at = AtomicUsize::new(0);
        Self { name, at }
    }

    /// The function. It ends the process where there is none: the program has found ours, and asks for something that
    /// cannot be done.
    ///
    /// # Safety
    /// `F` is the type of a pointer to this function.
    #[inline]
    pub unsafe fn get<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let mut at = self.at.load(Relaxed);
        if at == 0 {
            at = self.found();
        }
        // SAFETY: the caller guarantees the type, and the address is that of a function of the C library.
        unsafe { core::mem::transmute_copy(&at) }
    }

    /// Whether the C library has this function. It must have been looked up.
    pub fn is_there(&self) -> bool {
        self.at.load(Relaxed) != 0
    }

    #[cold]
    fn found(&self) -> usize {
        let at = dlopen::next(self.name)
            .unwrap_or_else(|error| crate::exit::fail(&format!("millpond: {error}")));
        self.at.store(at, Relaxed);
        at
    }
}

macro_rules! functions {
    ($($place:ident $name:literal),* $(,)?) => {
        $(pub static $place: Real = Real::new($name);)*
        const ALL: &[&Real] = &[$(&$place),*];
    };
}

functions! {
    SIGACTION c"sigaction",
    SIGNAL c"signal",
    SYSV_SIGNAL c"__sysv_signal",
    SIGSET c"sigset",
    SIGHOLD c"sighold",
    SIGRELSE c"sigrelse",
    SIGIGNORE c"sigignore",
    SIGINTERRUPT c"siginterrupt",
    PTHREAD_SIGMASK c"pthread_sigmask",
    SIGPROCMASK c"sigprocmask",
    SIGBLOCK c"sigblock",
    SIGSETMASK c"sigsetmask",
    SIGGETMASK c"siggetmask",
    SIGPAUSE c"sigpause",
    XPG_SIGPAUSE c"__xpg_sigpause",
    PRIVATE_SIGPAUSE c"__sigpause",
    SIGSUSPEND c"sigsuspend",
    PPOLL c"ppoll",
    PPOLL_CHK c"__ppoll_chk",
    PSELECT c"pselect",
    EPOLL_PWAIT c"epoll_pwait",
    EPOLL_PWAIT2 c"epoll_pwait2",
    SIGALTSTACK c"sigaltstack",
    GETATTR c"pthread_getattr_np",
    SETLOCALE c"setlocale",
    NEWLOCALE c"newlocale",
    ATTR_GETSIGMASK c"pthread_attr_getsigmask_np",
    ATTR_SETSIGMASK c"pthread_attr_setsigmask_np",
}

/// Looks all functions up. What an older C library lacks stays unknown: no program that runs there calls it.
pub fn find() {
    for function in ALL {
        if let Some(at) = dlopen::find_next(function.name) {
            function.at.store(at, Relaxed);
        }
    }
}
