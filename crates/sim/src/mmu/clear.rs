//! Zeroing mapped pages where they are, and looking whether they are zeros.

use millpond_core::{Frame, PageRange};

use super::{BLANK, Content, SimMmu, Slot};
use crate::report::{Check, breach};

/// Words of a page that a glance sees.
const GLANCE: usize = 1;

impl SimMmu {
    /// See [`millpond_core::Mmu::clear`].
    ///
    /// # Errors
    /// A page of it is pinned, or not mapped.
    pub fn clear(&mut self, at: PageRange) -> Check {
        self.expect_folio(at, None)?;
        for page in at.pages() {
            if self.is_pinned(page) {
                breach!(at page, "{at} is cleared, but {page} is pinned");
            }
            if !self.is_mapped(page) {
                breach!(at page, "{at} is cleared, but {page} is {:?}", self.page(page));
            }
            self.pages[page.0 as usize] = Slot::Mapped(BLANK);
        }
        Ok(())
    }

    /// See [`millpond_core::Mmu::is_blank`].
    ///
    /// # Errors
    /// A page of it is not mapped.
    pub fn is_blank(&self, at: PageRange, glance: bool) -> Check<bool> {
        self.expect_folio(at, None)?;
        let mut blank = true;
        for page in at.pages() {
            let Slot::Mapped(content) = self.page(page) else {
                breach!(at page, "{at} is looked at, but {page} is {:?}", self.page(page));
            };
            let seen = if glance { GLANCE } else { content.len() };
            blank &= content[..seen] == BLANK[..seen];
        }
        Ok(blank)
    }

    /// Whether the populated `frame` holds zeros.
    ///
    /// # Errors
    /// It is a hole.
    pub fn frame_is_blank(&self, frame: Frame) -> Check<bool> {
        let is_blank = |page: &Content| *page == BLANK;
        Ok(self.frame(frame)?.iter().all(is_blank))
    }
}
