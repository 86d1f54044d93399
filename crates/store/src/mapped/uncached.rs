//! Reads and writes through the page cache that leave nothing there.
//!
//! Some file systems have no direct I/O, or none for some files: ext4 with the kernel's encryption or with journalled
//! data, files that are stored inline. There every page that a region reads would stay in the page cache in addition to
//! its frame, in RAM that no budget covers. Linux 6.14 can drop such pages as soon as they were copied
//! (`RWF_DONTCACHE`): a read drops the pages it brought in, and written pages are written out immediately and then
//! dropped. Pages that were already in the page cache stay.
//!
//! Older kernels, file systems without support, and sandboxes refuse the call. The first call on a file finds that out;
//! it is then made the old way, as are all later ones.

use super::open::DataFile;
use rustix::fd::AsFd;
use rustix::io::{self, Errno, IoSlice, IoSliceMut, ReadWriteFlags};

/// `RWF_DONTCACHE`, for which rustix has no name yet.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Whether the answer only says that there is no such call here, and nothing about the file.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL
    )
}

impl DataFile {
    /// Reads like `pread`, and leaves nothing new in the page cache, if possible.
    pub(super) fn read_uncached(
        &self,
        fd: impl AsFd,
        out: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        if self.drops_cache() {
            match io::preadv2(&fd, &mut [IoSliceMut::new(out)], offset, DONTCACHE) {
                Err(errno) if is_refusal(errno) => self.refuse_to_drop_cache(),
                read => return read,
            }
        }
        io::pread(fd, out, offset)
    }

    /// Writes like `pwrite`, and leaves nothing new in the page cache, if possible.
    pub(super) fn write_uncached(
        &self,
        fd: impl AsFd,
        bytes: &[u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        if self.drops_cache() {
            match io::pwritev2(&fd, &[IoSlice::new(bytes)], offset, DONTCACHE) {
                Err(errno) if is_refusal(errno) => self.refuse_to_drop_cache(),
                written => return written,
            }
        }
        io::pwrite(fd, bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    use crate::mem::{Mapping, PAGE};
    use crate::{Access, DataFile, MappedFile};
    use millpond_core::{Backing, Descriptors};
    use rustix::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const PAGES: usize = 256;

    /// Number of pages of the file that are in the page cache.
    fn cached(file: &std::fs::File) -> usize {
        use std::os::fd::AsRawFd;
        let mut held = [0_u8; PAGES];
        // SAFETY: the mapping is of this function alone, and never read; the array has a byte for each of its pages.
        unsafe {
            let (len, fd) = (PAGES * PAGE, file.as_raw_fd());
            let at = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mincore(at, len, held.as_mut_ptr()), 0);
            libc::munmap(at, len);
        }
        held.iter().filter(|held| *held & 1 == 1).count()
    }

    /// A file with no pages in the page cache.
    fn file() -> std::fs::File {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        for page in 0..PAGES {
            file.write_all_at(&[page as u8; PAGE], (page * PAGE) as u64)
                .unwrap();
        }
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        file
    }

    fn memory() -> (Mapping, &'static mut [u8]) {
        let memory = Mapping::new(PAGES * PAGE).unwrap();
        // SAFETY: the mapping has this many bytes, and the slice is not used after it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), PAGES * PAGE) };
        (memory, bytes)
    }

    /// Without direct I/O the same bytes are read and written, and stay in the page cache only if the system cannot
    /// drop them.
    #[test]
    fn reads_and_writes_leave_no_second_copy_in_the_page_cache() {
        let file = file();
        let data = DataFile::duplicate(file.as_fd(), Access::Write).unwrap();
        data.refuse_direct();
        let mapped = MappedFile::shared(data, &(0..(PAGES * PAGE) as u64), PAGES).unwrap();
        let (_memory, out) = memory();
        for first in (0..PAGES).step_by(16) {
            let out = &mut out[first * PAGE..][..16 * PAGE];
            mapped
                .read(first as u32, out, Descriptors::OfProgram)
                .unwrap();
        }
        assert!(
            out.chunks(PAGE)
                .zip(0..=u8::MAX)
                .all(|(page, byte)| page.iter().all(|&there| there == byte))
        );
        let read = cached(&file);
        out[..64 * PAGE].fill(77);
        assert_eq!(mapped.write_back(0, out, Descriptors::OfProgram), Ok(true));
        mapped.sync().unwrap();
        let mut page = [0; PAGE];
        for (at, byte) in [(0, 77), (63, 77), (64, 64), (255, 255)] {
            file.read_exact_at(&mut page, at * PAGE as u64).unwrap();
            assert_eq!(page, [byte; PAGE], "page {at}");
        }
        match mapped.drops_cache() {
            true => assert!(
                read < PAGES / 4,
                "{read} pages of {PAGES} are in the page cache"
            ),
            false => {
                println!("skipped in part: the system cannot keep what is read from the page cache")
            }
        }
    }

    /// If the call is refused, the file is read and written as before it was tried.
    #[test]
    fn a_refusal_is_remembered_and_nothing_is_lost_by_it() {
        // Memory files support neither direct I/O nor this.
        let file = std::fs::File::from(
            rustix::fs::memfd_create("uncached", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        file.write_all_at(&[3; 2 * PAGE + 5], 0).unwrap();
        let data = DataFile::duplicate(file.as_fd(), Access::Write).unwrap();
        data.refuse_direct();
        let mapped = MappedFile::shared(data, &(0..2 * PAGE as u64 + 5), 8).unwrap();
        let mut out = [9; 3 * PAGE];
        mapped.read(0, &mut out, Descriptors::OfProgram).unwrap();
        assert!(
            out[..2 * PAGE + 5].iter().all(|&byte| byte == 3)
                && out[2 * PAGE + 5..].iter().all(|&byte| byte == 0)
        );
        out[..PAGE].fill(4);
        assert_eq!(mapped.write_back(0, &out, Descriptors::OfProgram), Ok(true));
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, 0).unwrap();
        assert_eq!(page, [4; PAGE]);
        println!(
            "a memory file's reads can be kept from the page cache: {}",
            mapped.drops_cache()
        );
    }
}
