//! Handing pages over to a base, and copying them out of it.

use millpond_core::{CopyFrom, Frame, InstallError, PageIndex, PageRange, Placed};

use super::{BLANK, MmuSabotage, SimMmu, Slot, overlap};
use crate::report::{Check, breach};

impl SimMmu {
    /// Moves the mapped pages in `from`, and the lost ones, to `to`, as `mremap` does.
    ///
    /// # Errors
    /// `to` holds something, or a page of `from` is pinned or protected.
    pub fn hand_over(&mut self, from: PageRange, to: PageRange) -> Check {
        self.expect_empty(to)?;
        if let Some(protection) = self.protections.iter().find(|p| overlap(p.range, from)) {
            breach!(at from.start, "{from} is handed over while {protection:?}");
        }
        let mut left_behind = None;
        for (page, onto) in from.pages().zip(to.pages()) {
            if self.is_pinned(page) {
                breach!(at page, "{from} is handed over, but {page} is pinned");
            }
            let leave = self.sabotage == Some(MmuSabotage::LeaveBehind);
            if leave && left_behind.is_none() && self.is_mapped(page) {
                left_behind = Some(page);
                continue;
            }
            self.pages[onto.0 as usize] =
                std::mem::replace(&mut self.pages[page.0 as usize], Slot::Empty);
        }
        self.handed.push((from, to));
        Ok(())
    }

    /// Simulates [`millpond_core::Mmu::copy`]; `copy` says that the kernel copied rather than moved.
    ///
    /// # Errors
    /// The contract is broken.
    pub fn copy(
        &mut self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
        copy: bool,
    ) -> Check<Result<Placed, InstallError>> {
        self.expect_folio(at, frame.map(Frame::order))?;
        self.expect_empty(at)?;
        let mut contents = match from {
            CopyFrom::Frame { frame, first } => {
                let pages = self.frame(frame)?.get(usize::from(first)..);
                match pages.and_then(|pages| pages.get(..at.len.0 as usize)) {
                    Some(pages) => pages.to_vec(),
                    None => {
                        breach!(at at.start, "copy of {at} from page {first} of {frame}, which is shorter")
                    }
                }
            }
            CopyFrom::Mapped(first) => {
                let mut contents = Vec::new();
                for page in PageRange::new(first, at.len).pages() {
                    let Slot::Mapped(content) = self.page(page) else {
                        breach!(at page, "copy of {page}, which is {:?}", self.page(page));
                    };
                    contents.push(content);
                }
                contents
            }
        };
        if let Some(frame) = frame {
            self.frame(frame)?;
        }
        if self.splits(at) {
            return Ok(Err(InstallError::Split));
        }
        if self.sabotage == Some(MmuSabotage::StaleCopy) {
            let last = contents.last_mut().expect("a folio has a page");
            let old = self.copied.replace(*last);
            *last = old.unwrap_or(*last);
        }
        self.map(at, &contents);
        Ok(Ok(self.spend(frame, copy)))
    }

    /// Zeroes the page that was last handed over from `page`.
    pub(super) fn drop_below(&mut self, page: PageIndex) {
        let mut handed = self.handed.iter().rev();
        if let Some((from, to)) = handed.find(|(from, _)| from.contains(page)) {
            let below = to.start.plus(page.0 - from.start.0);
            if self.is_mapped(below) {
                self.pages[below.0 as usize] = Slot::Mapped(BLANK);
            }
        }
    }
}
