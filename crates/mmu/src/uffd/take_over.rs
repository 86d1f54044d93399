//! Taking over an arena that the kernel has backed alone so far ([`DormantMemory`](crate::DormantMemory)).
//!
//! What is in memory stays where it is. Only pages of zeros that the kernel shares among all who read fresh memory are
//! given back: they belong to nobody and cannot be moved out. From then on a touch of an absent page is a fault as in
//! any other arena. The kernel may have mapped huge pages. They are pages in memory like others: the kernel divides
//! one when a part of it leaves, and makes no more.

use millpond_core::PageRange;

use super::UffdMemory;
use crate::error::MmuError;
use crate::report;
use crate::sys::pagemap;

impl UffdMemory {
    /// Implements [`RealMemory::take_over`](crate::RealMemory::take_over).
    pub(crate) fn take_over(&self, foreign: &[PageRange]) -> Result<(), MmuError> {
        let common = &self.common;
        for ours in common.pages().without(foreign) {
            let (start, len) = common.span(ours)?;
            self.drop_shared_zeros(start, len);
            common
                .arena
                .advise_new(start, len)
                .map_err(|errno| MmuError::Reserve {
                    what: "arena",
                    bytes: len,
                    errno,
                })?;
            common.choose_dump(start, len, false);
            self.register_arena(start, len)?;
        }
        Ok(())
    }

    /// Unmaps the kernel's shared pages of zeros. A page that is missed, where the kernel does not tell, stays in
    /// memory for good.
    fn drop_shared_zeros(&self, start: usize, len: usize) {
        let found = pagemap::shared_zeros(
            self.common.pagemap(),
            start,
            start + len,
            &mut |from, to| {
                self.common.drop_pages(from, to - from);
            },
        );
        if let Err(errno) = found {
            report::line(format_args!(
                "pages of zeros could not be looked for ({errno}): some may stay in memory"
            ));
        }
    }
}
