//! Repeating a system call that was ended so that a thread could be parked.
//!
//! A thread's registers do not tell which call the kernel has ended: its answer is where the number was. But nearly
//! all code sets the number by the instruction before. For other code, the one that asks a thread notes the call that
//! the thread is in before, and the call is repeated if the thread was still in it (the same instruction, stack and
//! arguments). That alone would not do: a call that has been restarted once is `restart_syscall` by the kernel's
//! account, and one that began in between is not known. Such a call of such code fails with `EINTR`.

use crate::words::{self, Text};
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use millpond_mmu::interrupted::{self, Ended};

/// The calls that do the same when they are made again. Those that a signal handler is to end (`pause`, `sigsuspend`,
/// and waits under a mask) are not among them: a handler may have run meanwhile.
const REPEATED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_flock,
    libc::SYS_openat,
];
/// Of these, those that wait under a mask if they name one, by the place of its address.
const MASKED: &[(i64, usize)] = &[
    (libc::SYS_epoll_pwait, 4),
    (libc::SYS_epoll_pwait2, 4),
    (libc::SYS_ppoll, 3),
];

/// A call: its number, arguments, and where its thread's stack and next instruction are. All zeros for none.
#[derive(Default)]
pub struct Call([AtomicUsize; 9]);

impl Call {
    /// Notes the call that a thread is in.
    pub fn note(&self, thread: i32) {
        let mut path = Text::<48>::new();
        path.add(b"/proc/self/task/");
        path.add_number(thread as u64);
        path.add(b"/syscall\0");
        let mut text = [0; 256];
        let line = CStr::from_bytes_with_nul(path.bytes())
            .ok()
            .and_then(|path| words::read_path(path, &mut text));
        // A thread that is answering already is in a call of its handler's.
        let found = line
            .and_then(parsed)
            .filter(|call| !super::is_ours(call[8]));
        for (word, found) in self.0.iter().zip(found.iter().flatten()) {
            word.store(*found, Relaxed);
        }
    }

    /// Has the thread of this context repeat the call, if that was ended by a signal and may be repeated.
    pub fn repeat(&self, context: &mut libc::ucontext_t) {
        let Some(Ended {
            number: told,
            arguments: left,
        }) = interrupted::ended_call(context)
        else {
            return;
        };
        let [number, arguments @ .., stack, instruction] =
            self.0.each_ref().map(|word| word.load(Relaxed));
        let is_same = instruction == interrupted::instruction(context)
            && stack == interrupted::stack_pointer(context)
            && left[1..] == arguments[1..];
        let (number, arguments) = match told {
            Some(told) => (told, left),
            None if is_same => (number, arguments),
            None => return,
        };
        if may_be_repeated(number as i64, &arguments) {
            interrupted::make_again(context, number, arguments[0]);
        }
    }
}

fn may_be_repeated(number: i64, arguments: &[usize; 6]) -> bool {
    let is_masked = |&(masked, at): &(i64, usize)| masked == number && arguments[at] != 0;
    (REPEATED.contains(&number) || crate::arch::REPEATED.contains(&number))
        && !MASKED.iter().any(is_masked)
        && !waits_under_a_mask(number, arguments)
}

/// The last argument of `pselect6` is the address of the mask's address and length.
fn waits_under_a_mask(number: i64, arguments: &[usize; 6]) -> bool {
    if number != libc::SYS_pselect6 {
        return false;
    }
    let mut named = [0; size_of::<usize>()];
    arguments[5] != 0 && millpond_mmu::read(arguments[5], &mut named) && named != [0; 8]
}

/// Parses the kernel's line about a call: a decimal number, and eight others in hexadecimal form. A thread that is in
/// no call has another line.
fn parsed(line: &[u8]) -> Option<[usize; 9]> {
    let line = core::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let mut found = [0; 9];
    found[0] = words.next()?.parse().ok()?;
    for place in &mut found[1..] {
        let digits = words.next()?.strip_prefix("0x")?;
        *place = usize::from_str_radix(digits, 16).ok()?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_of_a_thread_is_read_from_the_kernels_line() {
        let line = b"232 0x5 0x7f0010 0x20 0xffffffffffffffff 0x0 0x8 0x7ffd10 0x7f1132\n";
        let found = parsed(line).unwrap();
        assert_eq!(found[0], 232);
        assert_eq!(found[1..3], [5, 0x7f0010]);
        assert_eq!(found[4], usize::MAX);
        assert_eq!(found[7..], [0x7ffd10, 0x7f1132]);
        for other in [
            &b"running\n"[..],
            b"-1 0x7ffd10 0x7f1132\n",
            b"",
            b"1 0x1\n",
        ] {
            assert_eq!(parsed(other), None, "{other:?}");
        }
    }

    #[test]
    fn waits_that_a_handler_is_to_end_are_not_repeated() {
        let none = [0; 6];
        assert!(may_be_repeated(libc::SYS_ppoll, &none));
        assert!(!may_be_repeated(libc::SYS_ppoll, &[0, 0, 0, 1, 8, 0]));
        assert!(!may_be_repeated(libc::SYS_rt_sigsuspend, &none));
        assert!(may_be_repeated(libc::SYS_pselect6, &none));
        let mask = 1u64;
        let named = [&raw const mask as usize, 8];
        assert!(!may_be_repeated(
            libc::SYS_pselect6,
            &[0, 0, 0, 0, 0, named.as_ptr() as usize]
        ));
        assert!(may_be_repeated(
            libc::SYS_pselect6,
            &[0, 0, 0, 0, 0, [0usize, 8].as_ptr() as usize]
        ));
    }
}
