//! Long transfers: a buffer is held in pieces, each an eighth of the budget at most, so that one call does not push
//! everything else out.
//!
//! The program sees one call: the sum of the pieces, up to the first that is short. A piece that is not the first is
//! only asked for where that cannot wait when the whole call would not have: for writes, for files and disks, and for
//! reads that are to wait for all. An error behind the first piece is not told; the program meets it at its next call,
//! as with the kernel's own short counts.
//!
//! What is one message for the kernel stays one call, however long: a write to a socket that keeps the borders of
//! messages, and a message with a header (`sendmsg`). The buffer of a *read* of such a socket is that long for
//! safety's sake mostly; the least piece is longer than the longest datagram of the networks. Two writers to the same
//! file who each write more than a piece may find their pieces in turns.

use super::call::{Way, at_once};
use super::holds::allowed;
use crate::raw::{self, Entry};
use core::mem::MaybeUninit;
use millpond_mmu::read;
use rustix::io::Errno;

/// The most bytes that one call transfers (`MAX_RW_COUNT`).
const MOST: usize = 0x7fff_f000;
/// The ranges that one piece of a vector has.
const PART: usize = 64;
/// The argument of `preadv2` that asks for the file's own position.
const OWN_POSITION: usize = usize::MAX;

/// A call that transfers bytes, and may transfer less than asked for.
#[derive(Clone, Copy)]
struct Shape {
    writes: bool,
    /// Whether the second argument is a vector.
    is_vector: bool,
    /// The argument that says where in the file, if there is one.
    offset: Option<usize>,
    /// The argument that has the flags of a socket's call, if there is one.
    flags: Option<usize>,
}

impl Shape {
    fn of(number: i64) -> Option<Self> {
        let shape = |writes, is_vector, offset, flags| Self {
            writes,
            is_vector,
            offset,
            flags,
        };
        Some(match number {
            libc::SYS_read => shape(false, false, None, None),
            libc::SYS_write => shape(true, false, None, None),
            libc::SYS_recvfrom => shape(false, false, None, Some(3)),
            libc::SYS_sendto => shape(true, false, None, Some(3)),
            libc::SYS_pread64 => shape(false, false, Some(3), None),
            libc::SYS_pwrite64 => shape(true, false, Some(3), None),
            libc::SYS_readv => shape(false, true, None, None),
            libc::SYS_writev => shape(true, true, None, None),
            libc::SYS_preadv | libc::SYS_preadv2 => shape(false, true, Some(3), None),
            libc::SYS_pwritev | libc::SYS_pwritev2 => shape(true, true, Some(3), None),
            _ => return None,
        })
    }
}

/// A call that is made in pieces.
pub struct Pieces {
    number: i64,
    args: [usize; 6],
    shape: Shape,
    len: usize,
}

/// The call, if it is too long for one piece and may be made in several.
pub fn of(number: i64, args: &[usize; 6]) -> Option<Pieces> {
    let shape = Shape::of(number)?;
    let len = match shape.is_vector {
        false => args[2],
        true => total(args[1], args[2])?,
    };
    // A negative length is for the kernel to refuse.
    let is_long = len > allowed() && len <= isize::MAX as usize;
    let may_split = is_long && (!shape.writes || !keeps_borders(args[0]));
    may_split.then(|| Pieces {
        number,
        args: *args,
        shape,
        len: len.min(MOST),
    })
}

impl Pieces {
    /// Makes the calls.
    ///
    /// # Safety
    /// The conditions are those of the system call.
    pub unsafe fn make(self, way: Way) -> Result<usize, Errno> {
        let Self {
            number,
            mut args,
            shape,
            len,
        } = self;
        let mut place = Place::new(&args, shape);
        let mut part = [Entry::default(); PART];
        let mut done = 0;
        while done < len {
            let wanted = (len - done).min(allowed());
            let asked = place.next(wanted, &mut part, &mut args, shape);
            if asked == 0 {
                break;
            }
            // SAFETY: the caller guarantees it for the whole memory, of which this is a part.
            let moved = match unsafe { at_once(number, args, way) } {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(moved) => moved,
            };
            done += moved;
            if moved != asked || !goes_on(shape, &args) {
                break;
            }
            if let Some(offset) = shape.offset
                && args[offset] != OWN_POSITION
            {
                args[offset] += moved;
            }
        }
        Ok(done)
    }
}

/// How far a call has come in the program's memory.
struct Place {
    /// The address of the next byte, or of the vector's present range.
    at: usize,
    /// The ranges that are left, and the bytes of the first of them that are done.
    ranges: usize,
    done: usize,
}

impl Place {
    fn new(args: &[usize; 6], shape: Shape) -> Self {
        Self {
            at: args[1],
            ranges: if shape.is_vector { args[2] } else { 0 },
            done: 0,
        }
    }

    /// Makes the arguments those of the next piece, and answers its bytes.
    fn next(
        &mut self,
        wanted: usize,
        part: &mut [Entry; PART],
        args: &mut [usize; 6],
        shape: Shape,
    ) -> usize {
        if !shape.is_vector {
            (args[1], args[2]) = (self.at, wanted);
            self.at += wanted;
            return wanted;
        }
        let (mut bytes, mut count) = (0, 0);
        while count < PART && bytes < wanted && self.ranges > 0 {
            let Some(entry) = entry(self.at) else { break };
            let len = (entry.len - self.done.min(entry.len)).min(wanted - bytes);
            part[count] = Entry {
                base: entry.base.wrapping_add(self.done),
                len,
            };
            count += 1;
            bytes += len;
            self.done += len;
            if self.done >= entry.len {
                self.at += size_of::<Entry>();
                self.ranges -= 1;
                self.done = 0;
            }
        }
        (args[1], args[2]) = (part.as_ptr() as usize, count);
        bytes
    }
}

/// Reads a range of a vector of the program's.
pub fn entry(at: usize) -> Option<Entry> {
    let mut bytes = [0; size_of::<Entry>()];
    if !read(at, &mut bytes) {
        return None;
    }
    let (base, len) = bytes.split_at(size_of::<usize>());
    Some(Entry {
        base: usize::from_ne_bytes(base.try_into().ok()?),
        len: usize::from_ne_bytes(len.try_into().ok()?),
    })
}

/// The length of a vector. The answer is `None` for a vector that the kernel refuses.
fn total(at: usize, count: usize) -> Option<usize> {
    if count > raw::MAX_RANGES {
        return None;
    }
    let mut sum = 0usize;
    for index in 0..count {
        let len = entry(at.wrapping_add(index * size_of::<Entry>()))?.len;
        if len > isize::MAX as usize {
            return None;
        }
        sum = sum.saturating_add(len).min(isize::MAX as usize);
    }
    Some(sum)
}

/// Whether a piece behind the first cannot wait where the whole call would not have.
fn goes_on(shape: Shape, args: &[usize; 6]) -> bool {
    let waits_for_all = |flags: usize| args[flags] & libc::MSG_WAITALL as usize != 0;
    shape.writes || shape.flags.is_some_and(waits_for_all) || is_file(args[0])
}

/// Whether a read of this descriptor that could go on would not wait: it is a file, or a disk.
fn is_file(fd: usize) -> bool {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let args = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a structure that lives here.
    if unsafe { at_once(libc::SYS_fstat, args, Way::Plain) }.is_err() {
        return false;
    }
    // SAFETY: the kernel has written it.
    let kind = unsafe { status.assume_init() }.st_mode & libc::S_IFMT;
    kind == libc::S_IFREG || kind == libc::S_IFBLK
}

/// Whether the descriptor is a socket that keeps the borders of what is written to it.
fn keeps_borders(fd: usize) -> bool {
    let (mut kind, mut len) = (0i32, 4u32);
    let args = [
        fd,
        libc::SOL_SOCKET as usize,
        libc::SO_TYPE as usize,
        &raw mut kind as usize,
        &raw mut len as usize,
        0,
    ];
    // SAFETY: the kernel writes two numbers that live here.
    let asked = unsafe { at_once(libc::SYS_getsockopt, args, Way::Plain) };
    asked.is_ok() && kind != libc::SOCK_STREAM
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 1 << 20;

    /// A file without a name, with so many bytes.
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

    /// Makes a call in pieces, which must be wanted for it.
    fn made(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
        let pieces = of(number, &args).expect("a call in pieces");
        // SAFETY: the tests pass memory of their own.
        unsafe { pieces.make(Way::Plain) }
    }

    #[test]
    fn a_short_call_is_made_at_once() {
        assert!(of(libc::SYS_read, &[0, 4096, 4096, 0, 0, 0]).is_none());
        let vector = [Entry {
            base: 4096,
            len: 4096,
        }; 3];
        assert!(of(libc::SYS_writev, &[0, vector.as_ptr() as usize, 3, 0, 0, 0]).is_none());
        assert!(of(libc::SYS_close, &[0; 6]).is_none());
    }

    /// Lengths and vectors that the kernel refuses are for the kernel.
    #[test]
    fn what_the_kernel_refuses_is_made_at_once() {
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

    /// A message is one call, however long.
    #[test]
    fn what_is_written_to_a_socket_with_borders_is_one_call() {
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

    /// A read that found something does not go on to wait for more.
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
}
