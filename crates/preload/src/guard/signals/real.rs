//! The C library's functions behind the exports about signals. Without direct delivery each export does nothing but
//! call its function.

use super::actions::Sigaction;
use super::alternate::Sigaltstack;
use super::given::{GetAttributes, GetMask, SetMask};
use super::locale::{NewLocale, SetLocale};
use super::masks::Change;
use super::older::{OfNone, OfOne, OfTwo, Pause, PauseEither, Signal};
use super::waits::{EpollPwait, EpollPwait2, Ppoll, PpollChk, Pselect, Suspend};
use crate::guard::real::{Find, Real};

macro_rules! functions {
    ($($place:ident: $type:ty = $name:literal),* $(,)?) => {
        $(
            // SAFETY: the C library's function of this name has this type.
            pub static $place: Real<$type> = unsafe { Real::named($name) };
        )*
        pub const FUNCTIONS: &[&dyn Find] = &[$(&$place),*];
    };
}

functions! {
    SIGACTION: Sigaction = c"sigaction",
    SIGNAL: Signal = c"signal",
    SYSV_SIGNAL: Signal = c"__sysv_signal",
    SIGSET: Signal = c"sigset",
    SIGHOLD: OfOne = c"sighold",
    SIGRELSE: OfOne = c"sigrelse",
    SIGIGNORE: OfOne = c"sigignore",
    SIGINTERRUPT: OfTwo = c"siginterrupt",
    PTHREAD_SIGMASK: Change = c"pthread_sigmask",
    SIGPROCMASK: Change = c"sigprocmask",
    SIGBLOCK: OfOne = c"sigblock",
    SIGSETMASK: OfOne = c"sigsetmask",
    SIGGETMASK: OfNone = c"siggetmask",
    SIGPAUSE: Pause = c"sigpause",
    XPG_SIGPAUSE: Pause = c"__xpg_sigpause",
    PRIVATE_SIGPAUSE: PauseEither = c"__sigpause",
    SIGSUSPEND: Suspend = c"sigsuspend",
    PPOLL: Ppoll = c"ppoll",
    PPOLL_CHK: PpollChk = c"__ppoll_chk",
    PSELECT: Pselect = c"pselect",
    EPOLL_PWAIT: EpollPwait = c"epoll_pwait",
    EPOLL_PWAIT2: EpollPwait2 = c"epoll_pwait2",
    SIGALTSTACK: Sigaltstack = c"sigaltstack",
    GETATTR: GetAttributes = c"pthread_getattr_np",
    SETLOCALE: SetLocale = c"setlocale",
    NEWLOCALE: NewLocale = c"newlocale",
    ATTR_GETSIGMASK: GetMask = c"pthread_attr_getsigmask_np",
    ATTR_SETSIGMASK: SetMask = c"pthread_attr_setsigmask_np",
}
