//! Tests of calls in pieces, in a process without a filter.

use super::*;
use crate::guard::holds::allowed;

const LONG: usize = 1 << 20;

/// Creates an unnamed file with these bytes.
fn file(bytes: &[u8]) -> usize {
    // SAFETY: the name is a C string, the bytes are borrowed.
    unsafe {
        let fd = libc::memfd_create(c"pieces".as_ptr(), 0);
        assert_eq!(
            libc::write(fd, bytes.as_ptr().cast(), bytes.len()),
            bytes.len() as isize
        );
        fd as usize
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

/// Makes a call that must be cut into pieces.
fn made(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    let pieces = of(number, &args).expect("a call in pieces");
    // SAFETY: the tests pass memory of their own.
    unsafe { pieces.make(Way::Plain) }
}

#[test]
fn a_short_call_is_not_split() {
    assert!(of(libc::SYS_read, &[0, 4096, 4096, 0, 0, 0]).is_none());
    let vector = [Entry {
        base: 4096,
        len: 4096,
    }; 3];
    assert!(of(libc::SYS_writev, &[0, vector.as_ptr() as usize, 3, 0, 0, 0]).is_none());
    assert!(of(libc::SYS_close, &[0; 6]).is_none());
}

/// Leaves lengths and vectors that the kernel refuses to the kernel.
#[test]
fn a_call_that_the_kernel_refuses_is_not_split() {
    assert!(of(libc::SYS_read, &[0, 4096, usize::MAX, 0, 0, 0]).is_none());
    let vector = [Entry {
        base: 4096,
        len: usize::MAX,
    }];
    assert!(of(libc::SYS_readv, &[0, vector.as_ptr() as usize, 1, 0, 0, 0]).is_none());
    assert!(
        of(
            libc::SYS_readv,
            &[0, vector.as_ptr() as usize, 5000, 0, 0, 0]
        )
        .is_none()
    );
}

#[test]
fn a_long_read_of_a_file_is_whole_and_ends_with_the_file() {
    let from = bytes(LONG + 1000);
    let fd = file(&from);
    let mut to = vec![0u8; 2 * LONG];
    let at = to.as_mut_ptr() as usize;
    assert_eq!(
        made(libc::SYS_pread64, [fd, at, 2 * LONG, 500, 0, 0]),
        Ok(LONG + 500)
    );
    assert!(to[..LONG + 500] == from[500..]);
}

#[test]
fn a_vector_is_cut_where_a_piece_ends() {
    let from = bytes(LONG);
    let fd = file(&from);
    for range in [777, 5000, 300_000, LONG] {
        let mut to = vec![0u8; LONG];
        let base = to.as_mut_ptr() as usize;
        let mut vector: Vec<_> = (0..LONG)
            .step_by(range.max(LONG / 1000))
            .map(|at| Entry {
                base: base + at,
                len: range.max(LONG / 1000).min(LONG - at),
            })
            .collect();
        vector.insert(vector.len() / 2, Entry { base: 0, len: 0 });
        let args = [fd, vector.as_ptr() as usize, vector.len(), 0, 0, 0];
        assert_eq!(made(libc::SYS_preadv, args), Ok(LONG));
        assert!(to == from, "{range}");
        let empty = file(&[]);
        let args = [empty, vector.as_ptr() as usize, vector.len(), 0, 0, 0];
        assert_eq!(made(libc::SYS_writev, args), Ok(LONG));
    }
}

/// A message is one call, however long it is.
#[test]
fn a_write_to_a_message_socket_is_one_call() {
    let mut ends = [0; 2];
    for (kind, splits) in [
        (libc::SOCK_DGRAM, false),
        (libc::SOCK_SEQPACKET, false),
        (libc::SOCK_STREAM, true),
    ] {
        // SAFETY: the kernel writes two descriptors.
        assert_eq!(
            // SAFETY: the kernel writes two numbers, for which there is room.
            unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) },
            0
        );
        let args = [ends[0] as usize, 4096, LONG, 0, 0, 0];
        assert_eq!(of(libc::SYS_write, &args).is_some(), splits);
        assert_eq!(of(libc::SYS_sendto, &args).is_some(), splits);
    }
}

/// A read that found something does not wait for more.
#[test]
fn a_read_of_a_pipe_does_not_wait_behind_its_first_piece() {
    let mut ends = [0; 2];
    let from = bytes(LONG);
    // SAFETY: the kernel writes two descriptors, and reads bytes that are borrowed.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert!(libc::fcntl(ends[1], libc::F_SETPIPE_SZ, LONG) >= LONG as i32);
        let len = allowed();
        assert_eq!(
            libc::write(ends[1], from.as_ptr().cast(), len),
            len as isize
        );
    }
    let mut to = vec![0u8; LONG];
    let args = [ends[0] as usize, to.as_mut_ptr() as usize, LONG, 0, 0, 0];
    assert_eq!(made(libc::SYS_read, args), Ok(allowed()));
    assert!(to[..allowed()] == from[..allowed()]);
}
