//! Mapping a copy of pages that stay where they are. A snapshot and its source share such pages; the copy is for the
//! side that touches them.
//!
//! `UFFDIO_COPY` reads the bytes where they are, mapped or in a frame, and maps new pages with them. Where a recycled
//! frame is at hand and moving it in is cheaper, the bytes are copied into that frame first. As with every install, a
//! racing thread sees a page whole or faults.

use millpond_core::{CopyFrom, Frame, InstallError, PAGE_SIZE, PageRange, Placed};

use super::Uffd;
use super::cost::Method;
use crate::pool::Lease;

impl Uffd {
    /// Implements [`Mmu::copy`](millpond_core::Mmu::copy).
    pub(super) fn install_copy(
        &self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        let lent: Lease<'_>;
        let src = match from {
            CopyFrom::Mapped(first) => self.at(first),
            CopyFrom::Frame { frame, first } => {
                lent = self.pool.lease(frame);
                lent.addr() + usize::from(first) * PAGE_SIZE
            }
        };
        let (start, len) = (self.at(at.start), at.len.bytes() as usize);
        if self.is_watched_by_protections() {
            return self.install_copy_closed(start, src, len, frame);
        }
        if let Some(frame) = frame {
            let choice = self.choose(frame);
            if choice.method == Method::Move {
                let mut lease = self.pool.lease(frame);
                // SAFETY: the caller guarantees that the frame is populated, and it is leased to nobody else.
                let bytes = unsafe { lease.bytes_mut() };
                // SAFETY: the caller holds the source in flight: `len` bytes are mapped there, and no one writes to
                // them. A lent frame is leased above, and is not the one that is filled.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        core::ptr::with_exposed_provenance(src),
                        bytes.as_mut_ptr(),
                        len,
                    );
                }
                return self.install_chosen(&lease, frame, at, choice);
            }
        }
        match self.copy_around(start, src, len) {
            Ok(()) => Ok(Placed::Copied),
            Err(done) => {
                self.drop_pages(start, done);
                Err(super::install::refusal(len))
            }
        }
    }
}
