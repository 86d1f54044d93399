//! Zeroing mapped pages in place, and checking whether pages are zeros.

use millpond_core::{Frame, PageRange};

use super::{BLANK, Content, MmuSabotage, SimMmu, Slot};
use crate::report::{Check, breach};

/// Words of a page that a glance sees.
const GLANCE: usize = 1;

impl SimMmu {
    /// Simulates [`millpond_core::Mmu::zero_in_place`].
    ///
    /// # Errors
    /// A page of `at` is pinned, or not mapped.
    pub fn zero_in_place(&mut self, at: PageRange) -> Check {
        for page in at.pages() {
            if self.is_pinned(page) {
                breach!(at page, "{at} is zeroed in place, but {page} is pinned");
            }
            if !self.is_mapped(page) {
                breach!(at page, "{at} is zeroed in place, but {page} is {:?}", self.page(page));
            }
        }
        if self.sabotage == Some(MmuSabotage::UndoZeroing) {
            self.undo_the_last_zeroing(at);
        }
        let forgets = self.sabotage == Some(MmuSabotage::ForgetPage);
        for page in at.pages().take((at.len.0 - u32::from(forgets)) as usize) {
            self.pages[page.0 as usize] = Slot::Mapped(BLANK);
        }
        Ok(())
    }

    /// Simulates [`millpond_core::Mmu::is_blank`].
    ///
    /// # Errors
    /// A page of `at` is not mapped.
    pub fn is_blank(&self, at: PageRange, glance: bool) -> Check<bool> {
        let mut blank = true;
        for page in at.pages() {
            let Slot::Mapped(content) = self.page(page) else {
                breach!(at page, "{at} is looked at, but {page} is {:?}", self.page(page));
            };
            let seen = if glance { GLANCE } else { content.len() };
            blank &= content[..seen] == BLANK[..seen];
        }
        Ok(blank || self.sabotage == Some(MmuSabotage::DropWritten))
    }

    /// Whether the populated `frame` holds zeros.
    ///
    /// # Errors
    /// `frame` is a hole.
    pub fn frame_is_blank(&self, frame: Frame) -> Check<bool> {
        let is_blank = |page: &Content| *page == BLANK;
        let blank = self.frame(frame)?.iter().all(is_blank);
        Ok(blank || self.sabotage == Some(MmuSabotage::DropWritten))
    }

    /// Restores the old contents of the most recently zeroed page, unless it was used since. The next such page is one
    /// of `at`.
    fn undo_the_last_zeroing(&mut self, at: PageRange) {
        if let Some((page, content)) = self.last_zeroed.take()
            && self.page(page) == Slot::Mapped(BLANK)
        {
            self.pages[page.0 as usize] = Slot::Mapped(content);
        }
        self.last_zeroed = at.pages().find_map(|page| match self.page(page) {
            Slot::Mapped(content) if content != BLANK => Some((page, content)),
            _ => None,
        });
    }
}
