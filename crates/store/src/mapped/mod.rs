//! Files as the contents of regions: their pages are read from where they are.
//!
//! A [`DataFile`] is an open file of the program's; a [`MappedFile`] is a range of it, as the driver sees it
//! ([`Backing`]). The bytes read are not kept here: the frame into which a page was read is its only copy. If the
//! program may write to its memory, the pages' checksums are kept.
//!
//! *Bypassing the page cache.* A page in a frame needs no second copy in the page cache, which no budget covers. So the
//! file is opened once more for direct reads; if the file system refuses to open it that way, or refuses the first such
//! read, reads go through the page cache, and leave nothing there if the kernel supports that (`uncached.rs`). The
//! kernel writes out dirty pages of the page cache before it reads directly. Large reads go through contiguous memory
//! (`bounce.rs`). A thread that reads streams has several such reads in flight (`stream_reads.rs`).
//!
//! *Failing writes.* A run of changed pages is one write. If it fails, each page is written separately, so that an
//! unwritable page does not keep the others from the file. A failed write may have written a part of a page. The page's
//! checksum is then forgotten: if the program put the old bytes back, they would count as unchanged, and the mixture
//! would stay in the file.
//!
//! *The end of the file.* The last page of a file is usually not whole. Bytes beyond the end read as zeros, as in the
//! kernel's own mappings. Reading a page that begins beyond the end is an error, and so is a run whose last page does:
//! the caller then reads each page separately.

mod bounce;
mod open;
mod stream_reads;
mod uncached;

pub use open::{Access, DataFile, DataFileError};
pub use stream_reads::StreamReads;

use crate::mem::PAGE;
use crate::sums::Sums;
use bounce::Bounce;
use millpond_core::{Backing, Descriptors, FileFault, WriteFault};
use open::Usable;
use rustix::fd::AsFd;
use rustix::io::{self, Errno};
use std::ops::Range;
use std::sync::Arc;

/// A range of a file, as the pages of a region.
pub struct MappedFile {
    file: Arc<DataFile>,
    /// Where the first page begins in the file.
    start: u64,
    /// The checksums of the pages when they were read. `None` if the memory is only read.
    sums: Option<Sums>,
    /// The bytes of the file that are written back: those of the range, without the rest of its first and last page.
    /// There are none if the file is never written.
    own: Range<u64>,
    /// Contiguous memory for large reads, if there is any.
    bounce: Option<Arc<Bounce>>,
}

impl MappedFile {
    /// The pages that hold `range` of the file. The first begins at a multiple of 4,096, at the start of `range` or
    /// before it. Their memory is only read.
    #[must_use]
    pub fn read_only(file: impl Into<Arc<DataFile>>, range: &Range<u64>) -> Self {
        Self {
            file: file.into(),
            start: range.start / PAGE as u64 * PAGE as u64,
            sums: None,
            own: 0..0,
            bounce: Bounce::shared().ok(),
        }
    }

    /// As [`written`](Self::written), and changes to the memory are written to the file.
    ///
    /// # Errors
    /// As [`written`](Self::written).
    pub fn shared(
        file: impl Into<Arc<DataFile>>,
        range: &Range<u64>,
        most: usize,
    ) -> Result<Self, Errno> {
        Ok(Self {
            own: range.clone(),
            ..Self::written(file, range, most)?
        })
    }

    /// As [`read_only`](Self::read_only), but the program may write to the memory, which has room for `most` pages.
    ///
    /// # Errors
    /// The system has no memory for the table of checksums, or no random bytes for its key.
    pub fn written(
        file: impl Into<Arc<DataFile>>,
        range: &Range<u64>,
        most: usize,
    ) -> Result<Self, Errno> {
        let pages = (range.end.div_ceil(PAGE as u64) - range.start / PAGE as u64) as usize;
        Ok(Self {
            sums: Some(Sums::new(pages.min(most))?),
            ..Self::read_only(file, range)
        })
    }
}

impl MappedFile {
    /// Reads as much of `out` as the file has from `offset` on, bypassing the page cache if possible. Returns how much
    /// that is.
    fn fill(
        &self,
        out: &mut [u8],
        offset: u64,
        table: Descriptors,
        through: Option<&Bounce>,
    ) -> Result<usize, Errno> {
        let aligned = out.as_ptr().addr().is_multiple_of(PAGE);
        let done = match self.file.direct(table).filter(|_| aligned) {
            Some(direct) => match fill_direct(&direct, out, offset, through) {
                Err(Errno::INVAL) => {
                    self.file.refuse_direct();
                    0
                }
                read => read?,
            },
            None => 0,
        };
        if done == out.len() {
            return Ok(done);
        }
        // The file ends here, or the read was cut short in the middle of a page: only the page cache can continue
        // there.
        let cached = self.file.cached(table)?;
        let mut done = done;
        loop {
            let read = |out: &mut [u8], offset| self.file.read_uncached(&cached, out, offset);
            let more = fill_by(read, &mut out[done..], offset + done as u64)?;
            done += more;
            if more == 0 || done == out.len() {
                return Ok(done);
            }
        }
    }
}

impl MappedFile {
    /// Reads whole pages from `first` on, as [`Backing::read`] says; large direct reads go through `through`.
    fn read_pages(
        &self,
        first: u32,
        out: &mut [u8],
        table: Descriptors,
        through: Option<&Bounce>,
    ) -> Result<(), FileFault> {
        let offset = self.start + u64::from(first) * PAGE as u64;
        let done = self.fill(out, offset, table, through);
        let done = done.map_err(|errno| FileFault::Io(errno.raw_os_error()))?;
        if done.next_multiple_of(PAGE) < out.len() {
            return Err(FileFault::Ended);
        }
        out[done..].fill(0);
        if let Some(sums) = &self.sums {
            sums.set(first.into(), out);
        }
        Ok(())
    }

    /// Writes pages to the file, bypassing the page cache if possible. Bytes outside the range are not written, since
    /// others may write them.
    fn write(&self, first: u32, bytes: &[u8], table: Descriptors) -> Result<(), FileFault> {
        let failed = |errno: Errno| FileFault::Io(errno.raw_os_error());
        let at = self.start + u64::from(first) * PAGE as u64;
        let (begin, end) = (
            at.max(self.own.start),
            (at + bytes.len() as u64).min(self.own.end),
        );
        if begin >= end {
            return Ok(());
        }
        let cached = self.file.cached(table).map_err(failed)?;
        // A write beyond the end would extend the file, which has been truncated from outside.
        let stat = rustix::fs::fstat(&cached).map_err(failed)?;
        if (stat.st_size as u64) < end {
            return Err(FileFault::Ended);
        }
        let whole = (begin, end) == (at, at + bytes.len() as u64);
        let aligned = bytes.as_ptr().addr().is_multiple_of(PAGE);
        let bytes = &bytes[(begin - at) as usize..(end - at) as usize];
        if let Some(direct) = self.file.direct(table).filter(|_| whole && aligned) {
            match write_by(
                |bytes, offset| io::pwrite(&direct, bytes, offset),
                bytes,
                begin,
            ) {
                Err(Errno::INVAL) => self.file.refuse_direct(),
                written => return written.map_err(failed),
            }
        }
        let write = |bytes: &[u8], offset| self.file.write_uncached(&cached, bytes, offset);
        write_by(write, bytes, begin).map_err(failed)
    }
}

impl MappedFile {
    /// Writes a run of changed pages, page by page if they cannot be written as one.
    fn write_run(&self, first: u32, bytes: &[u8], table: Descriptors) -> Result<(), WriteFault> {
        let Err(why) = self.write_and_note(first, bytes, table) else {
            return Ok(());
        };
        if bytes.len() == PAGE {
            return Err(WriteFault { page: first, why });
        }
        let mut result = Ok(());
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE)) {
            let written = self.write_and_note(page, bytes, table);
            result = result.and(written.map_err(|why| WriteFault { page, why }));
        }
        result
    }

    fn write_and_note(
        &self,
        first: u32,
        bytes: &[u8],
        table: Descriptors,
    ) -> Result<(), FileFault> {
        let written = self.write(first, bytes, table);
        match (&self.sums, written) {
            (Some(sums), Ok(())) => sums.set(first.into(), bytes),
            (Some(sums), Err(FileFault::Io(_))) => {
                let first = u64::from(first);
                sums.forget(first..first + (bytes.len() / PAGE) as u64);
            }
            _ => {}
        }
        written
    }
}

/// Reads directly, as [`fill_by`] does: a large read goes through the thread's ring, or else through a part of
/// `through`, if one is free.
fn fill_direct(
    fd: &Usable<'_>,
    out: &mut [u8],
    offset: u64,
    through: Option<&Bounce>,
) -> Result<usize, Errno> {
    let is_large = out.len() >= bounce::LEAST;
    if is_large && stream_reads::read(fd.as_fd(), out, offset, through) {
        return Ok(out.len());
    }
    let bounce = through.filter(|_| is_large);
    let Some(mut part) = bounce.and_then(Bounce::take) else {
        return fill_by(|out, offset| io::pread(fd, out, offset), out, offset);
    };
    let mut done = 0;
    for out in out.chunks_mut(part.bytes().len()) {
        let bytes = &mut part.bytes()[..out.len()];
        let read = fill_by(
            |out, offset| io::pread(fd, out, offset),
            bytes,
            offset + done as u64,
        )?;
        out[..read].copy_from_slice(&bytes[..read]);
        done += read;
        if read < out.len() {
            break;
        }
    }
    Ok(done)
}

/// Writes all of `bytes` from `offset` on, by calls of `write`.
fn write_by(
    mut write: impl FnMut(&[u8], u64) -> Result<usize, Errno>,
    bytes: &[u8],
    offset: u64,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match write(&bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads as much of `out` as there is from `offset` on, by calls of `read`, until one ends within a page.
fn fill_by(
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
    out: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < out.len() {
        match read(&mut out[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        if !done.is_multiple_of(PAGE) {
            break;
        }
    }
    Ok(done)
}

impl Backing for MappedFile {
    fn read(&self, first: u32, out: &mut [u8], table: Descriptors) -> Result<(), FileFault> {
        self.read_pages(first, out, table, self.bounce.as_deref())
    }

    fn read_in_one_piece(
        &self,
        first: u32,
        out: &mut [u8],
        table: Descriptors,
    ) -> Result<(), FileFault> {
        self.read_pages(first, out, table, None)
    }

    fn is_as_read(&self, first: u32, bytes: &[u8]) -> bool {
        self.sums
            .as_ref()
            .is_none_or(|sums| sums.are(first.into(), bytes))
    }

    fn forget(&self, pages: Range<u32>) {
        if let Some(sums) = &self.sums {
            sums.forget(pages.start.into()..pages.end.into());
        }
    }

    fn write_back(&self, first: u32, bytes: &[u8], table: Descriptors) -> Result<bool, WriteFault> {
        let Some(sums) = self.sums.as_ref().filter(|_| !self.own.is_empty()) else {
            return Ok(false);
        };
        // Unchanged pages are not written: others may have changed them in the file.
        let pages = bytes.len() / PAGE;
        let changed = |page: usize| {
            let bytes = &bytes[page * PAGE..(page + 1) * PAGE];
            !sums.are((first + page as u32).into(), bytes)
        };
        let (mut any, mut result) = (false, Ok(()));
        let mut page = 0;
        while page < pages {
            let run = (page..pages).take_while(|&page| changed(page)).count();
            if run > 0 {
                let run_bytes = &bytes[page * PAGE..(page + run) * PAGE];
                let written = self.write_run(first + page as u32, run_bytes, table);
                result = result.and(written);
                any = true;
            }
            // The page after a run has not changed.
            page += run + 1;
        }
        result.map(|()| any)
    }

    fn is_written(&self) -> bool {
        !self.own.is_empty()
    }

    fn sync(&self) -> Result<(), FileFault> {
        let fd = self.file.cached(Descriptors::OfProgram);
        let synced = fd.and_then(rustix::fs::fdatasync);
        synced.map_err(|errno| {
            // The kernel forgets what it could not write once it has reported the error.
            if let Some(sums) = &self.sums {
                sums.clear();
            }
            FileFault::Io(errno.raw_os_error())
        })
    }

    fn ram_bytes(&self) -> u64 {
        let bounce = self.bounce.as_ref().map_or(0, Bounce::ram_bytes);
        bounce + self.sums.as_ref().map_or(0, Sums::ram_bytes)
    }
}

#[cfg(test)]
impl MappedFile {
    fn drops_cache(&self) -> bool {
        self.file.drops_cache()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn file(bytes: &[u8]) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn mapped(file: &std::fs::File, range: Range<u64>) -> MappedFile {
        MappedFile::read_only(
            DataFile::duplicate(file.as_fd(), Access::Read).unwrap(),
            &range,
        )
    }

    #[test]
    fn pages_are_numbered_from_the_one_where_the_range_begins() {
        let file = file(&[[1; PAGE], [2; PAGE], [3; PAGE]].concat());
        let mapped = mapped(&file, PAGE as u64 + 100..3 * PAGE as u64);
        let mut out = [0; 2 * PAGE];
        mapped.read(0, &mut out, Descriptors::OfProgram).unwrap();
        assert_eq!(out.as_slice(), [[2; PAGE], [3; PAGE]].concat());
        mapped
            .read(1, &mut out[..PAGE], Descriptors::OfProgram)
            .unwrap();
        assert_eq!(out[..PAGE], [3; PAGE]);
    }

    #[test]
    fn past_the_end_the_last_page_is_zeros_and_later_ones_are_errors() {
        let file = file(&[7; PAGE + 10]);
        let mapped = mapped(&file, 0..3 * PAGE as u64);
        let mut out = [9; 3 * PAGE];
        let read = |first, out: &mut [u8]| mapped.read(first, out, Descriptors::OfProgram);
        assert_eq!(read(0, &mut out[..2 * PAGE]), Ok(()));
        assert!(out[..PAGE + 10].iter().all(|&byte| byte == 7));
        assert!(out[PAGE + 10..2 * PAGE].iter().all(|&byte| byte == 0));
        assert_eq!(read(0, &mut out), Err(FileFault::Ended));
        assert_eq!(read(2, &mut out[..PAGE]), Err(FileFault::Ended));
        file.set_len(PAGE as u64).unwrap();
        assert_eq!(read(1, &mut out[..PAGE]), Err(FileFault::Ended));
        assert_eq!(read(0, &mut out[..PAGE]), Ok(()));
    }

    /// A run of changed pages extended beyond the end of a file that had been truncated. The run was one write, which
    /// was refused, so pages that the file still had were not written either, and the error named the first of them.
    #[test]
    fn pages_beyond_the_end_do_not_keep_others_from_being_written() {
        let file = file(&[1; 6 * PAGE]);
        let data = DataFile::duplicate(file.as_fd(), Access::Write).unwrap();
        let mapped = MappedFile::shared(data, &(0..6 * PAGE as u64), 16).unwrap();
        let mut bytes = [0; 6 * PAGE];
        mapped.read(0, &mut bytes, Descriptors::OfProgram).unwrap();
        // The fourth page is unchanged, and divides the changed pages into two runs.
        bytes[..3 * PAGE].fill(2);
        bytes[4 * PAGE..].fill(2);
        file.set_len(2 * PAGE as u64 + 10).unwrap();
        let write = |bytes: &[u8]| mapped.write_back(0, bytes, Descriptors::OfProgram);
        let ended = |page| {
            Err(WriteFault {
                page,
                why: FileFault::Ended,
            })
        };
        assert_eq!(write(&bytes), ended(2));
        file.set_len(5 * PAGE as u64).unwrap();
        assert_eq!(write(&bytes), ended(5));
        file.set_len(6 * PAGE as u64).unwrap();
        assert_eq!(write(&bytes), Ok(true));
        assert_eq!(write(&bytes), Ok(false));
        let mut out = [0; 6 * PAGE];
        mapped.read(0, &mut out, Descriptors::OfProgram).unwrap();
        // The unchanged page was cut off.
        bytes[3 * PAGE..4 * PAGE].fill(0);
        assert!(out == bytes);
    }

    /// A frame for reads: page-aligned bytes.
    fn frame(pages: usize) -> (crate::mem::Mapping, &'static mut [u8]) {
        let memory = crate::mem::Mapping::new(pages * PAGE).unwrap();
        // SAFETY: the mapping has this many bytes, and the slice is not used after it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), pages * PAGE) };
        (memory, bytes)
    }

    /// Through the page cache or directly, if the file system supports that: reads see the same bytes, including new
    /// ones in the page cache, and the same ends.
    #[test]
    fn direct_reads_see_what_is_in_the_page_cache() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 3 * PAGE + 77], 0).unwrap();
        let mapped = mapped(&file, 0..3 * PAGE as u64 + 77);
        let past = mapped.file.direct(Descriptors::OfProgram).is_some();
        println!("reads pass by the page cache: {past}");
        let (_memory, out) = frame(4);
        for round in 2..5 {
            std::os::unix::fs::FileExt::write_all_at(&file, &[round; 10], 2 * PAGE as u64).unwrap();
            mapped.read(0, out, Descriptors::OfProgram).unwrap();
            assert!(out[..2 * PAGE].iter().all(|&byte| byte == 1));
            assert_eq!(
                out[2 * PAGE..2 * PAGE + 11],
                [[round; 10].as_slice(), &[1]].concat()
            );
            assert!(out[3 * PAGE..3 * PAGE + 77].iter().all(|&byte| byte == 1));
            assert!(out[3 * PAGE + 77..].iter().all(|&byte| byte == 0));
            mapped
                .read(3, &mut out[..PAGE], Descriptors::OfProgram)
                .unwrap();
            assert_eq!((out[76], out[77]), (1, 0));
        }
        assert_eq!(mapped.file.direct(Descriptors::OfProgram).is_some(), past);
        file.set_len(PAGE as u64).unwrap();
        assert_eq!(
            mapped.read(0, out, Descriptors::OfProgram),
            Err(FileFault::Ended)
        );
        mapped.file.refuse_direct();
        mapped
            .read(0, &mut out[..PAGE], Descriptors::OfProgram)
            .unwrap();
        assert_eq!(out[..PAGE], [1; PAGE]);
    }

    /// The threads that serve faults have descriptor tables of their own, made before the file was opened.
    #[test]
    fn a_thread_with_its_own_descriptors_reads_the_programs_file() {
        let file = file(&[5; PAGE]);
        let mapped = mapped(&file, 0..PAGE as u64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: only this thread's table changes, and nothing in it is used afterwards.
                unsafe {
                    assert_eq!(libc::unshare(libc::CLONE_FILES), 0);
                    libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
                }
                let mut out = [0; PAGE];
                let without = mapped.read(0, &mut out, Descriptors::OfProgram);
                assert_eq!(without, Err(FileFault::Io(libc::EBADF)));
                mapped.read(0, &mut out, Descriptors::OfThread).unwrap();
                assert_eq!(out, [5; PAGE]);
            });
        });
    }
}
