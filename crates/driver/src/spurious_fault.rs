//! Pages that the program dropped without the driver's knowledge.
//!
//! `MADV_DONTNEED` by a bare system call, or by a library that the preload does not reach, drops our mapped pages. The
//! core still considers them resident, so it sees nothing to do for the next touch's fault, and the touching thread
//! would fault forever. So when such a fault comes a second time (most come once: two threads touched a page at the
//! same time), the page tables are checked. A missing page gets zeros, as the program requested.
//!
//! All this happens under the core lock: as long as the core considers the page mapped and the lock is held, no thread
//! begins to take it out, so a missing page was not taken by us. A page that had left memory before comes back
//! unchanged; that case cannot be detected.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::recent::Witnessed;
use millpond_core::{PageCount, PageIndex, PageRange};
use millpond_sync::Held;
use millpond_sync::atomic::Ordering::Relaxed;

/// One fault of this kind in this many is checked even if it is the first at its page: faults at two pages may
/// alternate.
const ANY: u32 = 8;

impl<M: Memory> Driver<M> {
    /// Handles a fault at a page that the core, whose lock is held, considers mapped.
    pub fn came_to_mapped(&self, _core: &Held<'_, Witnessed>, page: PageIndex) {
        let again = self.spurious_page.swap(page.0, Relaxed) == page.0;
        if !again && !self.spurious.fetch_add(1, Relaxed).is_multiple_of(ANY) {
            return;
        }
        let range = PageRange::new(page, PageCount(1));
        let mut there = false;
        self.mmu.present_pages(range, &mut |_| there = true);
        if !there {
            // A refusal means that something else is mapped there by now. The fault comes again if necessary.
            let _ = self.mmu.install_zero(range, None);
        }
    }
}
