//! Pages that the program dropped without the driver's knowledge.
//!
//! `MADV_DONTNEED` by a bare system call, or by a library that no preload reaches, drops mapped pages of ours. The core
//! still calls them resident, so that the next touch is a fault that it finds nothing to do about, and the touching
//! thread would try for ever. So when such a fault comes a second time (most come once: two threads touched a page at
//! the same time), the page tables are asked. A page that is not there gets zeros, as the program asked for.
//!
//! All this happens under the core lock: as long as the core says that the page is mapped and the lock is held, no
//! thread begins to take it out, so a missing page was not taken by us. A page that had left memory before comes back
//! as it was; that case cannot be known.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::recent::Witnessed;
use millpond_core::{PageCount, PageIndex, PageRange};
use millpond_sync::Held;
use millpond_sync::atomic::Ordering::Relaxed;

/// One fault of this kind in so many is checked even if it is the first at its page: two pages may take turns.
const ANY: u32 = 8;

impl<M: Memory> Driver<M> {
    /// Handles a fault at a page of which the core, whose lock is held, says that it is mapped.
    pub fn came_to_mapped(&self, _core: &Held<'_, Witnessed>, page: PageIndex) {
        let again = self.spurious_page.swap(page.0, Relaxed) == page.0;
        if !again && !self.spurious.fetch_add(1, Relaxed).is_multiple_of(ANY) {
            return;
        }
        let range = PageRange::new(page, PageCount(1));
        let mut there = false;
        self.mmu.present_pages(range, &mut |_| there = true);
        if !there {
            // A refusal means that something else is mapped there by now. The fault comes again if it has to.
            let _ = self.mmu.install_zero(range, None);
        }
    }
}
