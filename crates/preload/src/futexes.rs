//! `futex` operations during which the kernel cannot wait for a page, under handler delivery.
//!
//! `FUTEX_LOCK_PI`, its relatives and `FUTEX_WAKE_OP` change a word while holding locks of the kernel. If the page is
//! out, the kernel drops its locks and faults the page in, but not through a userfaultfd: it returns `EFAULT`. So we
//! first read the word that such a call names, and repeat the call if the page was evicted in between. With direct
//! delivery the words are held, like the memory of any other call.

use crate::raw::{self, Entry};
use crate::{guard, space};
use rustix::io::Errno;

/// The bits of the second argument that are the operation.
const OPERATION: u32 = 0x7f;
/// The operations that write a word under the kernel's locks.
const WAKE_OP: u32 = 5;
const LOCK_PI: u32 = 6;
const UNLOCK_PI: u32 = 7;
const TRYLOCK_PI: u32 = 8;
const CMP_REQUEUE_PI: u32 = 12;
const LOCK_PI2: u32 = 13;
/// How often a call is made whose word is evicted in between.
const TRIES: u32 = 32;

/// Makes the call if it is one that needs this. Returns `None` for all others.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(args: [usize; 6]) -> Option<Result<usize, Errno>> {
    let operation = args[1] as u32 & OPERATION;
    let writes = matches!(
        operation,
        WAKE_OP | LOCK_PI | UNLOCK_PI | TRYLOCK_PI | CMP_REQUEUE_PI | LOCK_PI2
    );
    let second = match operation {
        WAKE_OP | CMP_REQUEUE_PI => args[4],
        _ => args[0],
    };
    let is_managed = |word: usize| space::contains(word);
    if guard::is_on() || !writes || !is_managed(args[0]) && !is_managed(second) {
        return None;
    }
    for _ in 1..TRIES {
        if !bring_in(args[0]) || !bring_in(second) {
            break;
        }
        // SAFETY: the caller guarantees what this call needs.
        let answer = unsafe { raw::syscall(libc::SYS_futex, args) };
        if answer != Err(Errno::FAULT) {
            return Some(answer);
        }
    }
    // SAFETY: the caller guarantees what this call needs.
    Some(unsafe { raw::syscall(libc::SYS_futex, args) })
}

/// Makes the kernel read a word, which waits for its page. Returns whether it can be read.
fn bring_in(word: usize) -> bool {
    let mut copy = 0u32;
    let local = Entry {
        base: &raw mut copy as usize,
        len: size_of::<u32>(),
    };
    let remote = Entry {
        base: word,
        ..local
    };
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as usize;
    let [local, remote] = [&raw const local as usize, &raw const remote as usize];
    // SAFETY: the kernel writes one word, which lives here.
    let read =
        unsafe { raw::syscall(libc::SYS_process_vm_readv, [thread, local, 1, remote, 1, 0]) };
    read == Ok(size_of::<u32>())
}
