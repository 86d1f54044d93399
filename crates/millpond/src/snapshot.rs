//! Snapshots: an image of a region, independent of it from then on.

use crate::error::SnapshotError;
use crate::region::Region;
use millpond_driver::snapshot::SnapshotRefusal;
use std::fmt;
use std::ops::Deref;

impl Region {
    /// Makes a region with the present contents of this one. From then on neither sees writes to the other.
    ///
    /// Taking a snapshot costs a pointer for each 2 MiB (1 GiB: 0.3 ms), whether the pages are in memory or in the
    /// store; every other thread that faults waits that long. Afterwards both regions share their contents, and each
    /// page is copied when one of them touches it for the first time, even by reading. Pages in the store are not
    /// copied in the store. Either region may be dropped first: the remaining region gets the rest back. A snapshot may
    /// have snapshots.
    ///
    /// Ranges that are [volatile](Region::mark_volatile) in the region are not volatile in the snapshot.
    ///
    /// # Errors
    /// No address space (a snapshot takes twice the region's length of it), a pinned page, or a kernel that cannot move
    /// page tables (before Linux 5.13). In these cases nothing has changed.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(1 << 20)?;
    /// region.as_mut_slice().fill(1);
    /// let mut snapshot = region.snapshot()?;
    /// region.as_mut_slice()[0] = 2;
    /// snapshot.as_mut_slice()[1] = 3;
    /// assert_eq!((&region.as_slice()[..2], &snapshot.as_slice()[..2]), (&[2, 1][..], &[1, 3][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&mut self) -> Result<Region, SnapshotError> {
        // SAFETY: `&mut self`: no other thread uses the bytes.
        let copy = unsafe { self.driver().snapshot(self.named()) };
        let copy = copy.map_err(|refusal| match refusal {
            SnapshotRefusal::Pinned(page) => SnapshotError::Pinned {
                offset: self.offset(page),
            },
            SnapshotRefusal::NoAddressSpace => SnapshotError::NoAddressSpace {
                bytes: self.named().1.len.bytes(),
            },
            SnapshotRefusal::Memory(error) => SnapshotError::Memory {
                reason: error.to_string(),
            },
        })?;
        Ok(self.sibling(copy))
    }

    /// [`Region::snapshot`] for readers only: nothing writes to it, so it keeps the contents of that moment.
    ///
    /// # Errors
    /// As [`Region::snapshot`].
    pub fn snapshot_read_only(&mut self) -> Result<ReadOnlyRegion, SnapshotError> {
        self.snapshot().map(ReadOnlyRegion)
    }
}

/// A read-only region. See [`Region::snapshot_read_only`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(1 << 20)?;
/// region.as_mut_slice().fill(1);
/// let before = region.snapshot_read_only()?;
/// region.as_mut_slice().fill(2);
/// assert_eq!((before.as_slice()[9], region.as_slice()[9]), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReadOnlyRegion(Region);

impl ReadOnlyRegion {
    /// Makes the snapshot an ordinary region.
    #[must_use]
    pub fn into_writable(self) -> Region {
        self.0
    }
}

impl Deref for ReadOnlyRegion {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl fmt::Debug for ReadOnlyRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnlyRegion").field(&self.0).finish()
    }
}
