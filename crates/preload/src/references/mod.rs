//! No page leaves while the kernel refers to it.
//!
//! A page is taken out by `UFFDIO_MOVE`: the page itself goes to the pool, is saved from there, and then holds other
//! data. The kernel refuses to move a page that is *pinned*, as one is under direct I/O. It does not refuse a page that
//! is only *referred to*: what `vmsplice` put in a pipe, or `MSG_ZEROCOPY` in the queue of a socket. Such a page left,
//! was used for other data, and the reader at the far end got that: wrong bytes, and no error anywhere.
//!
//! User space cannot ask whether the kernel holds such a reference, nor when it ends (`docs/REFERENCES.md` has what was
//! looked at). So no reference comes to be in the first place:
//!
//! | call | what is done instead | file |
//! | --- | --- | --- |
//! | `vmsplice` of managed memory into a pipe | the bytes are copied, and the pipe gets the copy | `pipe` |
//! | `setsockopt` with `SO_ZEROCOPY` | refused as by a protocol without it; the program then sends copies | `socket` |
//! | `setsockopt` that makes the kernel encrypt TLS | refused as by a kernel without it | `socket` |
//!
//! Only calls through the C library are seen here, not system call instructions of the program's own.
//! What else refers to pages, and why it needs nothing or is not served yet, is in the same document.

mod pipe;
mod socket;

pub use pipe::vmsplice;
pub use socket::setsockopt;

use crate::raw;
use rustix::io::Errno;

/// Bytes that one call copies. The kernel pins them meanwhile, and what is pinned cannot make room for what is absent.
const PIECE: usize = 64 << 10;

/// Copies memory that the program named, up to the first byte that cannot be read. The kernel copies, as a bad address
/// is the program's and must not be a fault of ours.
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
    let local = [to.as_mut_ptr() as usize, to.len()];
    let remote = [from, to.len()];
    // The thread and not the process: the first thread may have ended, and the process's number is that thread's.
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
            // A filter of system calls forbids the careful way: then a bad address is SIGSEGV instead of EFAULT.
            // SAFETY: the program hands the bytes to the kernel, so it says that they can be read; `to` is ours.
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
    fn what_cannot_be_read_ends_a_copy() {
        let at = raw::map_anonymous(2 * PIECE).unwrap();
        // SAFETY: our own mapping, which nobody else uses.
        unsafe {
            core::ptr::write_bytes(at as *mut u8, 7, PIECE);
            raw::mprotect(at + PIECE, PIECE, libc::PROT_NONE, None).unwrap();
        }
        let mut copy = vec![0; 2 * PIECE];
        assert_eq!(copy_from_program(at + 1, &mut copy), Ok(PIECE - 1));
        assert!(copy[..PIECE - 1].iter().all(|&byte| byte == 7));
        assert_eq!(copy_from_program(at + PIECE, &mut copy), Err(Errno::FAULT));
        assert_eq!(copy_from_program(at, &mut []), Ok(0));
        // SAFETY: as above.
        unsafe { raw::munmap(at, 2 * PIECE).unwrap() };
    }
}
