//! The file that is read: created once, and removed from the page cache before each measurement.
//!
//! It has no name, so that it disappears however the benchmark ends. Measured processes open it through the
//! descriptor of the process that created it.

use crate::data::{self, PAGE};
use rustix::fs::{Advice, Mode, OFlags};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A file of pages with the contents of [`data::fill`].
pub struct DataFile(File);

impl DataFile {
    /// Creates the file in `directory`, and waits until the device has stored it.
    ///
    /// # Errors
    /// When there is no room.
    pub fn make(directory: &Path, bytes: u64) -> io::Result<Self> {
        let file = tempfile::tempfile_in(directory)?;
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        let mut page = [0; PAGE];
        for index in 0..bytes as usize / PAGE {
            data::fill(&mut page, index);
            out.write_all(&page)?;
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
        Ok(Self(file))
    }

    /// The path by which another process opens the file.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Removes the file from the page cache.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cool(&self) -> io::Result<()> {
        rustix::fs::fadvise(&self.0, 0, None, Advice::DontNeed)?;
        Ok(())
    }
}

/// Opens the file at `path` for reads that bypass the page cache.
///
/// # Errors
/// When the file system does not support such reads.
pub fn open_direct(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_holds_its_number_when_read_by_another_descriptor() {
        let file = DataFile::make(Path::new("/var/tmp"), 9 * PAGE as u64).unwrap();
        file.cool().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), 9 * PAGE);
        assert!((0..9).all(|page| data::look(&bytes, page)));
    }
}
