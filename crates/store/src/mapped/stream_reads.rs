//! Reads of a stream, with several in flight at a time.
//!
//! A thread that reads ahead of a stream is asked for 2 MiB at once. With one `pread` after the other the device is
//! idle while the thread copies out of [contiguous memory](super::bounce), and the thread is idle while the device
//! reads. So a thread of Millpond's own that does nothing else declares that ([`StreamReads::enter`]), and its direct
//! reads go to the kernel through a [`Ring`], each in pieces:
//!
//! ```text
//!   through parts          first  │ asked for ──▶ there ─▶ copied │ asked for ──▶ there ─▶ copied │ ...
//!   of a huge page         second │     asked for ──▶ there ─▶ copied │ asked for ──▶ there ─▶ ...
//!
//!   to a frame that is     pieces of a quarter, all asked for at once
//!   a huge page itself
//! ```
//!
//! - *Ownership.* A ring serves only the thread that made it, so a thread finds its ring by its thread number in a
//!   table of the process. Thread-local storage is not used, because the same code serves the program's threads in a
//!   signal handler. A thread that finds the table full has no ring.
//! - *An answer other than all the requested bytes*, an error or an end of the file, is not examined. The whole read is
//!   repeated synchronously, and that read reports the error.
//! - *No read is left in flight.* The kernel writes to the bytes until it has answered, so a thread waits for all
//!   answers before it leaves.
//! - *A child of a fork* has neither these threads nor their rings: table entries of another process count as free.
//! - *Without a ring*, mostly in containers, the same thread reads by `pread`. Reads through the page cache always use
//!   `pread`, since the kernel has its own readahead there.

use super::bounce::{self, Bounce, Part};
use crate::mem::PAGE;
use crate::ring::{Answer, RAM_BYTES, Ring};
use arrayvec::ArrayVec;
use millpond_sync::{Held, Rank, Ranked};
use rustix::fd::BorrowedFd;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most threads of a process that have rings. Others read by `pread`.
const SEATS: usize = 8;
/// Pieces of a read that goes straight to its destination.
const PIECES: usize = 4;
/// Parts of a huge page that one read uses: the thread copies out of one while the other is filled.
const PARTS: usize = 2;
/// How long a wait for an answer lasts before the thread checks again, in nanoseconds.
const LOOK: i64 = 1_000_000_000;

static TABLE: [Seat; SEATS] = [const { Seat::new() }; SEATS];

/// A place in the table of threads that have rings.
struct Seat {
    /// The process and the thread in it, 0 when the seat is free.
    owner: AtomicU64,
    /// Only the owner's thread and a thread that takes the seat lock it, and only by trying: a child of a fork may find
    /// the lock held by a thread that it does not have.
    ring: Ranked<Option<Ring>>,
}

/// The calling thread's process and number.
fn this_thread() -> u64 {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    u64::from(process.cast_unsigned()) << 32 | u64::from(thread.cast_unsigned())
}

impl Seat {
    const fn new() -> Self {
        Self {
            owner: AtomicU64::new(0),
            ring: Ranked::new(Rank::StreamRing, None),
        }
    }

    /// Takes the seat, if it is free or belongs to another process.
    fn take(&self, thread: u64) -> bool {
        let is_free = |owner: u64| owner == 0 || owner >> 32 != thread >> 32;
        let taken = |owner| is_free(owner).then_some(thread);
        self.owner.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }
}

/// Declares that a thread reads streams, as long as this value lives: if the kernel gives it a ring (`io_uring`), it
/// has several parts of a large read in flight.
///
/// ```
/// std::thread::spawn(|| {
///     let _reads = millpond_store::StreamReads::enter();
///     // Large reads of a `MappedFile` by this thread go by its ring.
/// });
/// ```
pub struct StreamReads {
    seat: Option<&'static Seat>,
    /// The ring is the thread's.
    stays: PhantomData<*const ()>,
}

impl StreamReads {
    /// Declares the calling thread, one of Millpond's own, a stream reader: its large reads use a ring. If the kernel
    /// does not give it one, it reads as other threads do.
    #[must_use]
    pub fn enter() -> Self {
        let take = |ring| {
            let thread = this_thread();
            let seat = TABLE.iter().find(|seat| seat.take(thread))?;
            *seat.ring.try_lock()? = Some(ring);
            Some(seat)
        };
        Self {
            seat: Ring::open().ok().and_then(take),
            stays: PhantomData,
        }
    }
}

impl Drop for StreamReads {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            let ring = seat.ring.try_lock().and_then(|mut ring| ring.take());
            drop(ring);
            seat.owner.store(0, Relaxed);
        }
    }
}

/// The seats that are taken.
fn taken() -> impl Iterator<Item = &'static Seat> {
    TABLE.iter().filter(|seat| seat.owner.load(Relaxed) != 0)
}

/// The most RAM that the rings of the process take.
pub(super) fn ram_bytes() -> u64 {
    taken().count() as u64 * RAM_BYTES
}

/// Reads all of `out`, which begins at a page, from `offset` on: through parts of `through`, or straight to its
/// destination. Returns false if it has to be read in another way; `out` may then hold anything.
pub(super) fn read(
    fd: BorrowedFd<'_>,
    out: &mut [u8],
    offset: u64,
    through: Option<&Bounce>,
) -> bool {
    // If no thread has a ring, the thread's number is not needed.
    let mut seats = taken().peekable();
    let thread = seats.peek().map(|_| this_thread());
    let own = seats.find(|seat| Some(seat.owner.load(Relaxed)) == thread);
    let Some(ring) = own.and_then(|seat| seat.ring.try_lock()) else {
        return false;
    };
    let mut flight = Flight { ring, under_way: 0 };
    let part = || through.and_then(Bounce::take);
    let mut parts: ArrayVec<Part<'_>, PARTS> = std::iter::from_fn(part).take(PARTS).collect();
    match parts.is_empty() {
        true => flight.read_straight(fd, out, offset),
        false => flight.read_through(fd, out, offset, &mut parts),
    }
}

/// Reads in flight. Their buffers are borrowed for longer than this value lives.
struct Flight<'a> {
    ring: Held<'a, Option<Ring>>,
    under_way: u32,
}

impl Flight<'_> {
    /// Submits a read. Returns whether it is in flight.
    ///
    /// # Safety
    /// The bytes stay where they are, and nobody uses them, until the read is answered, or this value is dropped.
    unsafe fn ask(
        &mut self,
        fd: BorrowedFd<'_>,
        bytes: &mut [u8],
        offset: u64,
        number: usize,
    ) -> bool {
        let to = (bytes.as_mut_ptr(), bytes.len());
        let Some(ring) = &mut *self.ring else {
            return false;
        };
        // SAFETY: the caller vouches for the bytes, and this value takes all answers before it ends. No more reads are
        // in flight than there are pieces or parts, which are fewer than the ring's entries.
        let asked = unsafe { ring.read(fd, to, offset, number as u64) };
        self.under_way += u32::from(asked);
        asked
    }

    /// The next answer, once it has arrived. `None` if nothing is in flight.
    fn answer(&mut self) -> Option<Answer> {
        let ring = self.ring.as_mut()?;
        while self.under_way > 0 {
            if let Some(answer) = ring.take() {
                self.under_way -= 1;
                return Some(answer);
            }
            ring.waiter().wait(LOOK);
        }
        None
    }

    fn read_straight(&mut self, fd: BorrowedFd<'_>, out: &mut [u8], offset: u64) -> bool {
        let len = (out.len().div_ceil(PIECES)).next_multiple_of(PAGE);
        let total = out.len();
        let mut all = true;
        for (number, piece) in out.chunks_mut(len).enumerate() {
            // SAFETY: `out` is borrowed until this function has taken all answers.
            all = all && unsafe { self.ask(fd, piece, offset + (number * len) as u64, number) };
        }
        while let Some(answer) = self.answer() {
            let wanted = len.min(total - answer.number as usize * len);
            all &= usize::try_from(answer.result) == Ok(wanted);
        }
        all
    }

    fn read_through(
        &mut self,
        fd: BorrowedFd<'_>,
        out: &mut [u8],
        offset: u64,
        parts: &mut ArrayVec<Part<'_>, PARTS>,
    ) -> bool {
        let mut at = offset;
        let mut rest = out.chunks_mut(bounce::PART);
        let mut wanted: [Option<&mut [u8]>; PARTS] = [const { None }; PARTS];
        // Requests the next piece into a free part. False if it cannot be requested.
        let mut ask = |flight: &mut Self, number: usize, part: &mut Part<'_>| {
            let Some(piece) = rest.next() else {
                return (true, None);
            };
            let bytes = &mut part.bytes()[..piece.len()];
            // SAFETY: the part is this thread's until `parts` ends, which outlives this function, and the function
            // takes all answers. The part's bytes are used again when it is answered.
            let asked = unsafe { flight.ask(fd, bytes, at, number) };
            at += piece.len() as u64;
            (asked, Some(piece))
        };
        let mut all = true;
        for (number, part) in parts.iter_mut().enumerate() {
            let asked;
            (asked, wanted[number]) = ask(self, number, part);
            all &= asked;
        }
        while let Some(answer) = self.answer() {
            let number = answer.number as usize;
            let Some(piece) = wanted[number].take() else {
                return false;
            };
            all &= usize::try_from(answer.result) == Ok(piece.len());
            if all {
                let part = &mut parts[number];
                piece.copy_from_slice(&part.bytes()[..piece.len()]);
                (all, wanted[number]) = ask(self, number, part);
            }
        }
        all
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        while self.answer().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::noise::noise;
    use crate::mem::Mapping;
    use crate::{Access, DataFile, MappedFile};
    use millpond_core::{Backing, Descriptors};
    use rustix::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::{Arc, Barrier};

    const PAGES: usize = 700;
    const LEN: usize = PAGES * PAGE + 80;

    /// A file on a disk, and its contents.
    fn file() -> (std::fs::File, Vec<u8>) {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let bytes = noise(1_u64, LEN);
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        (file, bytes)
    }

    fn opened(file: &std::fs::File) -> DataFile {
        DataFile::duplicate(file.as_fd(), Access::Read).unwrap()
    }

    fn memory(pages: usize) -> (Mapping, &'static mut [u8]) {
        let memory = Mapping::new(pages * PAGE).unwrap();
        // SAFETY: the mapping has this many bytes, and the slice is not used after it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), pages * PAGE) };
        (memory, bytes)
    }

    /// Runs `test` on a thread that has a ring. If there is none, it prints that.
    fn with_ring(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let reads = StreamReads::enter();
                match reads.seat {
                    Some(_) => test(),
                    None => println!("skipped: no ring here ({:?})", Ring::open().err()),
                }
            });
        });
    }

    #[test]
    fn ring_reads_of_all_lengths_return_what_is_in_the_file() {
        let (file, bytes) = file();
        let data = opened(&file);
        with_ring(|| {
            let Some(direct) = data.direct(Descriptors::OfProgram) else {
                println!("skipped: no reads past the page cache here");
                return;
            };
            let bounce = Bounce::shared().unwrap();
            let (_memory, out) = memory(PAGES);
            for pages in [1, 2, 3, 8, 31, 127, 128, 129, 257, 512, 513, PAGES] {
                for first in [0, 1, (PAGES - pages) / 2, PAGES - pages] {
                    if first + pages > PAGES {
                        continue;
                    }
                    for through in [None, Some(&*bounce)] {
                        let out = &mut out[..pages * PAGE];
                        out.fill(0xA5);
                        let offset = first * PAGE;
                        assert!(read(direct.as_fd(), out, offset as u64, through));
                        assert!(*out == bytes[offset..offset + pages * PAGE]);
                    }
                }
            }
        });
    }

    /// An end of the file or an error in any piece: the synchronous reads decide the result, and the ring remains
    /// usable.
    #[test]
    fn incomplete_reads_of_a_ring_fall_back_to_synchronous_reads() {
        let (file, bytes) = file();
        let data = opened(&file);
        with_ring(|| {
            let mapped = MappedFile::read_only(opened(&file), &(0..LEN as u64));
            let (_memory, out) = memory(PAGES + 1);
            for end in [LEN, 600 * PAGE, 513 * PAGE + 1, 100 * PAGE, 1] {
                file.set_len(end as u64).unwrap();
                let pages = end.div_ceil(PAGE);
                let out = &mut out[..pages * PAGE];
                mapped.read(0, out, Descriptors::OfProgram).unwrap();
                assert!(out[..end] == bytes[..end] && out[end..].iter().all(|&byte| byte == 0));
                if let Some(direct) = data.direct(Descriptors::OfProgram) {
                    let whole = end.is_multiple_of(PAGE);
                    for through in [None, Some(&*Bounce::shared().unwrap())] {
                        assert_eq!(read(direct.as_fd(), out, 0, through), whole);
                    }
                }
            }
            let written = std::fs::OpenOptions::new().write(true).open("/dev/null");
            assert!(!read(written.unwrap().as_fd(), out, 0, None));
        });
    }

    /// More threads than rings, all reading one file through the one huge page of the process.
    #[test]
    fn threads_without_a_seat_read_the_same_bytes() {
        const THREADS: usize = SEATS + 3;
        let (file, bytes) = file();
        let mapped = Arc::new(MappedFile::read_only(opened(&file), &(0..LEN as u64)));
        let begin = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (mapped, bytes, begin) = (Arc::clone(&mapped), &bytes, &begin);
                scope.spawn(move || {
                    let _reads = StreamReads::enter();
                    begin.wait();
                    let (_memory, out) = memory(PAGES);
                    for turn in 0..20 {
                        let first = (thread * 31 + turn * 97) % (PAGES / 2);
                        let out = &mut out[..(PAGES / 2 - turn) * PAGE];
                        mapped
                            .read(first as u32, out, Descriptors::OfProgram)
                            .unwrap();
                        assert!(*out == bytes[first * PAGE..][..out.len()]);
                    }
                    begin.wait();
                });
            }
        });
    }

    #[test]
    fn the_seat_of_another_process_is_free() {
        let seat = Seat::new();
        let thread = |process: u64, number: u64| process << 32 | number;
        assert!(seat.take(thread(7, 8)));
        assert!(!seat.take(thread(7, 9)));
        assert!(seat.take(thread(9, 9)));
        assert!(!seat.take(thread(9, 10)));
        seat.owner.store(0, Relaxed);
        assert!(seat.take(thread(9, 10)));
    }
}
