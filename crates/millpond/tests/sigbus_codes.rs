//! The only SIGBUS that is a fault of ours is the one that userfaultfd raises.

use millpond::{Delivery, Manager};
use std::ffi::c_int;

/// Exit status of a child whose own handler was reached; the signal's code is added to it.
const SEEN: c_int = 64;
/// Exit status of a child in which nothing reached its handler.
const SWALLOWED: c_int = 1;

extern "C" fn theirs(_: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo, and a child that leaves needs nothing else.
    unsafe { libc::_exit(SEEN + (*info).si_code) }
}

/// Queues a SIGBUS of that code at `address` for this thread.
fn raise(code: c_int, address: usize) {
    // SAFETY: zeros are a valid siginfo; the address is the first field behind the three numbers.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (info.si_signo, info.si_code) = (libc::SIGBUS, code);
        (&raw mut info).cast::<usize>().add(2).write(address);
        let sent = libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            libc::getpid(),
            libc::gettid(),
            libc::SIGBUS,
            &raw const info,
        );
        assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
    }
}

/// The wait status of a child in whose managed memory a SIGBUS of that code is said to have been.
fn ends(code: c_int, handler: libc::sighandler_t) -> c_int {
    // SAFETY: the child of this thread uses nothing that another thread may have held, except the C library's
    // allocator, which is made usable in it.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the action is valid: zeros but for the handler and its kind.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
            }
            let builder = Manager::builder().ram(16 << 20);
            let manager = builder.delivery(Delivery::InThread).build().unwrap();
            let mut region = manager.region(1 << 20).unwrap();
            region.as_mut_slice().fill(7);
            raise(code, region.as_ptr() as usize);
            // SAFETY: the call ends the child at once.
            unsafe { libc::_exit(SWALLOWED) }
        }
        child => {
            let mut status = 0;
            // SAFETY: it is a child of this process, and its status has a variable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status
        }
    }
}

/// The handler used to take every code above zero for a fault of ours. Broken memory (BUS_MCEERR_AR) is mapped, so the
/// answer was "try again", and the thread touched it forever instead of the program being told. A code of zero or below
/// comes from a `kill`, `tgkill` or `sigqueue`, whatever address accompanies it.
#[test]
fn only_a_sigbus_at_an_unmapped_address_is_handled() {
    let others = [
        libc::BUS_MCEERR_AR,
        libc::BUS_MCEERR_AO,
        libc::BUS_ADRALN,
        libc::BUS_OBJERR,
        libc::SI_USER,
        libc::SI_TKILL,
        libc::SI_QUEUE,
    ];
    for code in others {
        let status = ends(code, theirs as *const () as usize);
        assert!(libc::WIFEXITED(status), "code {code}: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), SEEN + code, "code {code}");
    }
    let ours = ends(libc::BUS_ADRERR, theirs as *const () as usize);
    assert_eq!(libc::WEXITSTATUS(ours), SWALLOWED);
}

/// Where the program has no handler it ends by the signal, also where no instruction raises the signal again.
#[test]
fn without_a_handler_the_signal_ends_the_program() {
    for code in [libc::BUS_MCEERR_AR, libc::BUS_MCEERR_AO, libc::SI_QUEUE] {
        let status = ends(code, libc::SIG_DFL);
        assert!(libc::WIFSIGNALED(status), "code {code}: {status:#x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGBUS, "code {code}");
    }
}
