//! The place of a mapping that may go anywhere, or for which the program suggests an address (a *hint*).
//!
//! Natively a hint is honoured if nothing is mapped there. We also honour it in the space, both for managed memory
//! and for a file or executable memory, which then lies in the space as if its place had been fixed. Left alone, the
//! kernel would find our reservation there and choose another place. `MAP_32BIT` is treated the same way, with an
//! address that we choose.
//!
//! A hint outside the space would create a mapping outside the budget. Memory that can be managed comes from the
//! space nonetheless, as long as the program does not mind ([`Hints`](crate::vma::hints::Hints)). Below 4 GiB it
//! always minds.
//!
//! A mapping longer than any gap of the space goes to the kernel: sanitizers and databases reserve terabytes,
//! readable and writable, and touch little of them. The report of a run states how much of them became memory outside
//! the budget.

use super::Request;
use crate::space;
use crate::vma::{self, PAGE, Range, Vmas};
use libc::{MAP_GROWSDOWN, MAP_HUGETLB};
use rustix::io::Errno;

pub use crate::arch::MAP_32BIT;

/// The end of the addresses for `MAP_32BIT`, as the kernel defines it.
const END_OF_32BIT: usize = 2 << 30;
/// A program that asks for an address below this needs it to be low.
const LOW: usize = 4 << 30;

impl Request {
    /// Returns the addresses that the program suggests; empty if it names none.
    fn hint(self, len: usize) -> Range {
        match self.addr & !(PAGE - 1) {
            0 => 0..0,
            start => start..start.saturating_add(len),
        }
    }

    fn is_32bit(self) -> bool {
        MAP_32BIT.is_some_and(|flag| self.flags & flag != 0)
    }
}

/// Maps `len` bytes, whole pages, for a request whose place is not fixed.
pub fn map(request: Request, len: usize) -> Result<usize, Errno> {
    let hint = request.hint(len);
    let inside = space::overlaps(hint.start, hint.len());
    // The kernel grows a mapping into free addresses, and cannot move huge pages from its pool.
    let stays = request.flags & (MAP_GROWSDOWN | MAP_HUGETLB) != 0;
    let concerned = request.is_ours() || !stays && (request.is_32bit() || inside);
    if !concerned {
        return request.to_kernel();
    }
    if !hint.is_empty() && hint.start < LOW && !inside {
        // The kernel has its own addresses below the space, which are used as long as they last.
        let result = request.to_kernel();
        if result.is_ok() || !request.is_32bit() {
            return result;
        }
    }
    vma::locked(move |vmas| vmas.map_unfixed(request, len))
        .flatten()
        .unwrap_or_else(|| request.to_kernel())
}

impl Vmas {
    /// Maps a request in the space. Returns `None` if it is for the kernel.
    fn map_unfixed(&mut self, request: Request, len: usize) -> Option<Result<usize, Errno>> {
        let range = self.place_for(request, len)?;
        let start = range.start;
        if request.is_ours() {
            return Some(self.place(range, request.prot).map(|()| start));
        }
        // If a mapping cannot be made or moved, the program gets the kernel's own answer.
        self.put_foreign(request, range.clone(), range).ok().map(Ok)
    }

    /// Chooses a free place in the space.
    fn place_for(&mut self, request: Request, len: usize) -> Option<Range> {
        let hint = request.hint(len);
        let is_low_enough = !request.is_32bit() || hint.end <= END_OF_32BIT;
        if !hint.is_empty() && is_low_enough && self.map.is_free(&hint) {
            return Some(hint);
        }
        if request.is_32bit() {
            return self.map.find_32bit(len).map(|start| start..start + len);
        }
        let outside = !hint.is_empty() && !space::overlaps(hint.start, hint.len());
        if !request.is_ours() || outside && self.hints.are_meant() {
            return None;
        }
        let start = self.map.find(len, PAGE)?;
        match outside {
            true => self.hints.passed_over(start..start + len),
            false => self.hints.asked_without(),
        }
        Some(start..start + len)
    }

    /// Maps `len` bytes of zeros where there is room.
    pub fn map_anywhere(&mut self, len: usize, prot: i32) -> Result<usize, Errno> {
        let start = self.map.find(len, PAGE).ok_or(Errno::NOMEM)?;
        self.place(start..start + len, prot)?;
        Ok(start)
    }
}
