//! Maps a copy of pages that stay where they are. A snapshot and its source share such pages; the copy is for the
//! side that touches them.
//!
//! `UFFDIO_COPY` reads the bytes in place, mapped or in a frame, and maps new pages with them. If a recycled frame is
//! available and moving it in is cheaper, the bytes are first copied into that frame. As with every install, a racing
//! thread sees the whole page or faults.

use millpond_core::{CopyFrom, Frame, InstallError, PAGE_SIZE, PageRange, Placed};

use super::UffdMemory;
use super::cost::Method;
use super::install::AtBorder;
use super::transfer::Existing;
use crate::common::refusal;
use crate::pool::Lease;

impl UffdMemory {
    /// Implements [`Mmu::copy`](millpond_core::Mmu::copy).
    pub(super) fn install_copy(
        &self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        let lent: Lease<'_>;
        let src = match from {
            CopyFrom::Mapped(first) => self.common.at(first),
            CopyFrom::Frame { frame, first } => {
                lent = self.common.pool.lease(frame);
                lent.addr() + usize::from(first) * PAGE_SIZE
            }
        };
        let (start, len) = (self.common.at(at.start), at.len.bytes() as usize);
        if let Some(frame) = frame {
            let choice = self.choose(frame.order());
            if choice.method == Method::Move {
                let mut lease = self.common.pool.lease(frame);
                // SAFETY: the caller guarantees that the frame is populated, and nobody else has leased it.
                let bytes = unsafe { lease.bytes_mut() };
                // SAFETY: the caller holds the source in flight: `len` bytes are mapped there, and nobody writes to
                // them. A lent frame is leased above, and differs from the one that is filled.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        core::ptr::with_exposed_provenance(src),
                        bytes.as_mut_ptr(),
                        len,
                    );
                }
                return self.install_by(choice, &lease, frame, at, AtBorder::Cross);
            }
        }
        match self.copy(start, src, len, Existing::Stays) {
            Ok(()) => Ok(Placed::Copied),
            Err(stopped) => {
                self.common.drop_pages(start, stopped.done);
                Err(refusal(len))
            }
        }
    }
}
