//! Handing a range's pages over to another range by the tables that map them.
//!
//! `mremap` moves 2 MiB by moving one pointer, where source and destination lie alike in their 2 MiB; but not where
//! userfaultfd is registered without its remap event, which waits for another thread each time. So the source is taken out
//! of userfaultfd for as long as that lasts: 1 GiB in 0.3 ms, where entry by entry it takes 3.4. A page that were
//! touched there meanwhile would come from the kernel as zeros; whoever calls this sees to it that none is.
//!
//! `MREMAP_DONTUNMAP` leaves the source mapped and empty (Linux 5.7), so that nobody else can be given its addresses.

use millpond_core::PageRange;

use super::Uffd;
use crate::error::MmuError;
use crate::sys::{ioctl, remap};

impl Uffd {
    /// Whether [`Uffd::hand_over`] moves a pointer for each 2 MiB: the kernel does on these machines, and unregistering a range
    /// that is watched for writes would visit each page of it.
    #[must_use]
    pub fn hands_over_by_tables(&self) -> bool {
        self.can_move && cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
    }
    /// Moves what is mapped in `from` to `to`, two open or reserved ranges of the same length that begin at a leaf. `from` is
    /// empty afterwards.
    ///
    /// # Safety
    /// Nothing else is under way in either range, no thread of the program touches `from` meanwhile, and `to` is
    /// nobody's.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`], [`MmuError::HandOver`]: all is where it was.
    pub unsafe fn hand_over(&self, from: PageRange, to: PageRange) -> Result<(), MmuError> {
        let ((src, len), (dst, other)) = (self.span(from)?, self.span(to)?);
        assert_eq!(len, other, "{from} and {to} differ in length");
        let fail = |errno| MmuError::HandOver { range: from, errno };
        ioctl::unregister(self.fd(), src, len).map_err(fail)?;
        // SAFETY: both ranges are inside the arena; the caller's word for the rest.
        let moved = unsafe { remap::move_tables(src, dst, len) };
        let registered = self.register_arena(src, len);
        if let Err(errno) = moved {
            registered?;
            return Err(fail(errno));
        }
        // A source that nobody serves reads as zeros: that must not be found out later.
        registered
            .and_then(|()| self.register_arena(dst, len))
            .unwrap_or_else(|error| {
                crate::report::stop(format_args!(
                    "memory cannot be watched any more ({error}): stopped, to lose nothing silently"
                ))
            });
        Ok(())
    }
}
