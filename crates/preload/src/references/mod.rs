//! References held by the kernel: no page may be evicted while the kernel refers to it.
//!
//! A page is evicted by `UFFDIO_MOVE`: the page itself goes to the pool, is saved from there, and is then reused for
//! other data. The kernel refuses to move a page that is *pinned*, as during direct I/O. It does not refuse a page
//! that is merely *referred to*: by a pipe after `vmsplice`, or by the queue of a socket after `MSG_ZEROCOPY`. Such a
//! page was evicted and reused for other data, which then reached the reader at the far end: wrong bytes, with no
//! error anywhere.
//!
//! User space cannot ask whether the kernel holds such a reference, or when it ends (`docs/REFERENCES.md` lists what
//! was tried). So we prevent such references:
//!
//! | call | treatment | file |
//! | --- | --- | --- |
//! | `vmsplice` of managed memory into a pipe | the bytes are copied, and the pipe gets the copy | `pipe` |
//! | `setsockopt` with `SO_ZEROCOPY` | refused as by a protocol without it; the program then sends copies | `socket` |
//! | `setsockopt` that makes the kernel encrypt TLS | refused as by a kernel without it | `socket` |
//!
//! We see only calls through the C library, not the program's own system call instructions. That document also lists
//! the other references to pages, and says why they need nothing or are not handled yet.

mod pipe;
mod socket;

pub use pipe::vmsplice;
pub use socket::setsockopt;

use crate::{guard, raw};
use rustix::io::Errno;

/// The maximum number of bytes that one call copies. The kernel pins them meanwhile, and pinned pages cannot make
/// room for absent ones.
const PIECE: usize = 64 << 10;

/// Copies memory that the program named, up to the first byte that cannot be read. The kernel makes the copy, because
/// a bad address is the program's fault and must not cause a fault in our code.
///
/// # Errors
/// The first byte cannot be read.
fn copy_from_program(from: usize, to: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < to.len() {
        let piece = &mut to[done..];
        let len = piece.len().min(PIECE);
        match copy_piece(from.wrapping_add(done), &mut piece[..len]) {
            Ok(copied) => {
                done += copied;
                if copied < len {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn copy_piece(from: usize, to: &mut [u8]) -> Result<usize, Errno> {
    let mut holds = guard::holds::Holds::new();
    if guard::is_on() {
        holds.add(from, to.len());
    }
    let local = [to.as_mut_ptr() as usize, to.len()];
    let remote = [from, to.len()];
    // We use the thread's ID, not the process's: the latter is that of the first thread, which may have ended.
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as usize;
    let vectors = [&local, &remote].map(|vector| vector.as_ptr() as usize);
    // SAFETY: the kernel writes to `to`, which is borrowed for it.
    let copied = unsafe {
        raw::syscall(
            libc::SYS_process_vm_readv,
            [thread, vectors[0], 1, vectors[1], 1, 0],
        )
    };
    match copied {
        Ok(0) => Err(Errno::FAULT),
        Err(Errno::PERM | Errno::NOSYS) => {
            // A filter of system calls forbids the safe way. In that case a bad address raises SIGSEGV instead of
            // failing with EFAULT.
            // SAFETY: the program passes the bytes to the kernel, so it claims that they can be read; `to` is ours.
            unsafe { core::ptr::copy(from as *const u8, to.as_mut_ptr(), to.len()) };
            Ok(to.len())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ends_at_unreadable_memory() {
        let at = raw::map_anonymous(2 * PIECE).unwrap();
        // SAFETY: this is our own mapping, which no one else uses.
        unsafe {
            core::ptr::write_bytes(at as *mut u8, 7, PIECE);
            raw::mprotect(at + PIECE, PIECE, libc::PROT_NONE, None).unwrap();
        }
        let mut copy = vec![0; 2 * PIECE];
        assert_eq!(copy_from_program(at + 1, &mut copy), Ok(PIECE - 1));
        assert!(copy[..PIECE - 1].iter().all(|&byte| byte == 7));
        assert_eq!(copy_from_program(at + PIECE, &mut copy), Err(Errno::FAULT));
        assert_eq!(copy_from_program(at, &mut []), Ok(0));
        // SAFETY: this is our own mapping, which no one else uses.
        unsafe { raw::munmap(at, 2 * PIECE).unwrap() };
    }
}
