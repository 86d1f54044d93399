//! Private anonymous memory from the kernel, in pages of a chosen size: the kernel's side of the measurements.
//!
//! If the machine's setting is `madvise`, a mapping gets huge pages when it asks for them. If the setting is
//! `always`, a mapping gets them unless it asks for small ones. So each mapping asks, and is aligned to 2 MiB, so
//! that both kinds cover the same addresses.

use crate::error::Skip;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::{fs, io};

const HUGE: usize = 2 << 20;

/// The size of the kernel's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// All pages are of 4 KiB.
    Small,
    /// Pages are of 2 MiB where the kernel can provide them.
    Huge,
}

/// Whether the kernel gives huge pages to mappings that ask for them.
///
/// # Errors
/// The reason why it does not.
pub fn huge_pages() -> Result<(), Skip> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match fs::read_to_string(path) {
        Ok(text) if !text.contains("[never]") => Ok(()),
        Ok(_) => Err(Skip(format!("no huge pages; `echo madvise > {path}`"))),
        Err(error) => Err(Skip(format!("no huge pages: {path}: {error}"))),
    }
}

/// A mapping with one owner.
#[derive(Debug)]
pub struct Mapping {
    /// The whole mapped range: the memory, and the remainder left by alignment.
    whole: (*mut u8, usize),
    start: *mut u8,
    len: usize,
}

// SAFETY: only this value owns the mapping, and any thread may use it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeros.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(len: usize, pages: Pages) -> io::Result<Self> {
        let room = len
            .checked_add(HUGE)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let at =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), room, protection, flags)? };
        let at = at.cast::<u8>();
        let mapping = Self {
            whole: (at, room),
            start: at.wrapping_add(at.align_offset(HUGE)),
            len,
        };
        let advice = match pages {
            Pages::Small => Advice::LinuxNoHugepage,
            Pages::Huge => Advice::LinuxHugepage,
        };
        // SAFETY: the range is part of the mapping made above, and the advice does not change its contents.
        unsafe { rustix::mm::madvise(mapping.start.cast(), len, advice)? };
        Ok(mapping)
    }

    /// The first byte of the memory.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes of the memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable and initialised (zeros), and the borrow excludes writers.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes of the memory, for writing.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and initialised (zeros), and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (at, len) = self.whole;
        // SAFETY: this value owns the mapping, and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(at.cast(), len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?} of an own mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_zeros_on_the_boundary_of_a_huge_page() {
        for pages in [Pages::Small, Pages::Huge] {
            let mut mapping = Mapping::new(3 * HUGE + 4096, pages).unwrap();
            assert_eq!(mapping.start() as usize % HUGE, 0);
            assert!(mapping.bytes().iter().all(|&byte| byte == 0));
            mapping.bytes_mut().fill(1);
            assert_eq!(mapping.bytes()[mapping.len() - 1], 1);
        }
        assert!(Mapping::new(usize::MAX, Pages::Small).is_err());
    }
}
