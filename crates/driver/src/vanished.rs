//! Pages that the program dropped behind our back.
//!
//! `MADV_DONTNEED` by a bare system call, or by a library that no preload reaches, drops mapped pages of ours. The core
//! still calls them resident, so that the next touch is a fault that it finds nothing to do about, and the toucher
//! would try for ever. So when such a fault comes a second time (most come once: two threads touched a page at the same
//! time), the page tables are asked, and a page that is not there gets zeros, which is what was asked for.
//!
//! All under the core lock: as long as the core says that the page is mapped and the lock is held, nobody begins to
//! take it out, so what is missing was not taken by us. What had left memory before comes back as it was; that cannot
//! be known.

use crate::driver::Driver;
use crate::recent::Witnessed;
use crate::state::lock::Held;
use millpond_core::{Mmu, PageCount, PageIndex, PageRange};
use std::sync::atomic::Ordering::Relaxed;

/// One in so many faults of this kind is looked into even if it is the first at its page: two pages may take turns.
const ANY: u32 = 8;

impl Driver {
    /// A fault came at a page of which the core, held since, says that it is mapped.
    pub fn came_to_mapped(&self, _core: &Held<'_, Witnessed>, page: PageIndex) {
        let again = self.spurious_page.swap(page.0, Relaxed) == page.0;
        if !again && !self.spurious.fetch_add(1, Relaxed).is_multiple_of(ANY) {
            return;
        }
        let range = PageRange::new(page, PageCount(1));
        let mut there = false;
        self.mmu.present_pages(range, &mut |_| there = true);
        if !there {
            // A refusal means that something else is mapped there by now. It comes again if it has to.
            let _ = self.mmu.install_zero(range, None);
        }
    }
}
