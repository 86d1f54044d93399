//! The simulated memory: an arena of mapped pages, a pool of frames, and the contract between them as checks.
//!
//! A page has four words here. That is equivalent to bytes (every word is written and compared separately) at a
//! thousandth of the work. Mistakes that the kernel would silently accept are failures here: mapping over a mapped
//! page, taking out an unmapped page, treating a populated frame as a hole or a hole as a frame. The caller injects
//! legitimate but inconvenient behaviour of the kernel: copying instead of moving, refusing a busy page.
//!
//! Protections stand for `mprotect` and `mlock` by the program: an install across the edge of a protection is answered
//! with `Split`, a take-out that meets a protection is answered with `Immovable`.

use std::collections::BTreeMap;

use millpond_core::{
    Frame, InstallError, LeafPages, Order, PageCount, PageIndex, PageRange, Placed, PoolLayout,
    TakeOutError,
};

use crate::report::{Check, breach};

mod snapshot;
mod zero_in_place;

/// Words in a simulated page.
pub const LINES: usize = 4;
/// The contents of a page.
pub type Content = [u64; LINES];
/// A page of zeros.
pub const BLANK: Content = [0; LINES];
/// The contents of new or half-filled frames: no actor ever writes them, so they show when such a frame gets mapped.
pub const GARBAGE: Content = [0xdead_dead_dead_dead; LINES];

/// The state of a page of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// A touch of the page faults.
    Empty,
    /// A touch of the page sees this.
    Mapped(Content),
    /// A touch of the page is an error.
    Poisoned,
}

/// A protection by the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    /// The protected pages.
    pub range: PageRange,
    /// Whether the pages refuse to move; otherwise only the edges of the range matter.
    pub locked: bool,
    /// The event at which the program announced the protection, if it did.
    pub announced: Option<u64>,
}

/// Ways to break the simulated memory on purpose, to check that the judges notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmuSabotage {
    /// A take-out sometimes forgets one line of the last page.
    LoseWrite,
    /// A frame used for zeros keeps its first page.
    KeepOld,
    /// A zap leaves the pages in the frame's shadow: they come back with the next zeros.
    Resurrect,
    /// Zeroing in place forgets the last page.
    ForgetPage,
    /// A page zeroed in place gets its old contents back when another folio is zeroed.
    UndoZeroing,
    /// Pages that are believed to be zeros are not checked.
    DropWritten,
    /// The last page of a copy is a previously copied page.
    StaleCopy,
    /// A page is left behind when the others are handed over.
    LeaveBehind,
    /// Pages that an heir drops are dropped in its base as well.
    DropBelow,
}

/// Arena, frame pool and protections.
#[derive(Debug)]
pub struct SimMmu {
    pages: Vec<Slot>,
    frames: BTreeMap<Frame, Vec<Content>>,
    pool: PoolLayout,
    mapped: u64,
    populated: u64,
    pins: Vec<u16>,
    /// The protections that the program has set.
    pub protections: Vec<Protection>,
    /// The part that is broken on purpose.
    pub sabotage: Option<MmuSabotage>,
    sabotaged: u64,
    shadow: Option<Content>,
    last_zeroed: Option<(PageIndex, Content)>,
    copied: Option<Content>,
    handed: Vec<(PageRange, PageRange)>,
}

impl SimMmu {
    /// An empty arena of `arena` pages and an empty pool.
    #[must_use]
    pub fn new(arena: PageCount, pool: PoolLayout) -> Self {
        Self {
            pages: vec![Slot::Empty; arena.0 as usize],
            frames: BTreeMap::new(),
            pool,
            mapped: 0,
            populated: 0,
            pins: vec![0; arena.0 as usize],
            protections: Vec::new(),
            sabotage: None,
            sabotaged: 0,
            shadow: None,
            last_zeroed: None,
            copied: None,
            handed: Vec::new(),
        }
    }

    /// The slot that a touch of `page` meets.
    #[must_use]
    pub fn page(&self, page: PageIndex) -> Slot {
        self.pages[page.0 as usize]
    }

    /// Whether `page` is mapped.
    #[must_use]
    pub fn is_mapped(&self, page: PageIndex) -> bool {
        matches!(self.page(page), Slot::Mapped(_))
    }

    /// Pages mapped.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Pages in populated frames.
    #[must_use]
    pub fn populated(&self) -> u64 {
        self.populated
    }

    /// Writes one line of a mapped page, like a program.
    ///
    /// # Panics
    /// When the page is not mapped: the caller has to check.
    pub fn write(&mut self, page: PageIndex, line: usize, value: u64) {
        let Slot::Mapped(content) = &mut self.pages[page.0 as usize] else {
            panic!("write to {page}, which is not mapped")
        };
        content[line] = value;
    }

    /// Maps a page with `content` before the core knows of it, as the kernel does for a process that nobody manages.
    ///
    /// # Errors
    /// Something is there.
    pub fn was_mapped(&mut self, page: PageIndex, content: Content) -> Check {
        let at = PageRange::new(page, PageCount(1));
        self.expect_empty(at)?;
        self.map(at, &[content]);
        Ok(())
    }

    /// Counts a pin of every page of `range`.
    ///
    /// # Errors
    /// A page of `range` is not mapped.
    pub fn pin(&mut self, range: PageRange) -> Check {
        for page in range.pages() {
            if !self.is_mapped(page) {
                breach!(at page, "{page} was pinned while it is {:?}", self.page(page));
            }
            self.pins[page.0 as usize] += 1;
        }
        Ok(())
    }

    /// Takes one pin of every page of `range` back.
    pub fn unpin(&mut self, range: PageRange) {
        for page in range.pages() {
            self.pins[page.0 as usize] -= 1;
        }
    }

    /// Whether a page is pinned.
    #[must_use]
    pub fn is_pinned(&self, page: PageIndex) -> bool {
        self.pins[page.0 as usize] > 0
    }

    /// The contents of the populated `frame`.
    ///
    /// # Errors
    /// `frame` is a hole.
    pub fn frame(&self, frame: Frame) -> Check<&[Content]> {
        match self.frames.get(&frame) {
            Some(contents) => Ok(contents),
            None => breach!("{frame} is used for its contents, but is a hole"),
        }
    }

    /// Simulates [`millpond_core::Mmu::install_zero`]; `copy` says that the kernel copied rather than moved.
    ///
    /// # Errors
    /// The contract is broken.
    pub fn install_zero(
        &mut self,
        at: PageRange,
        frame: Option<Frame>,
        copy: bool,
    ) -> Check<Result<Placed, InstallError>> {
        self.expect_folio(at, frame.map(Frame::order))?;
        self.expect_empty(at)?;
        if let Some(frame) = frame {
            self.frame(frame)?;
        }
        if self.splits(at) {
            return Ok(Err(InstallError::Split));
        }
        let mut contents = vec![BLANK; at.len.0 as usize];
        if let (Some(frame), Some(MmuSabotage::KeepOld)) = (frame, self.sabotage) {
            contents[0] = self.frames[&frame][0];
        }
        if self.sabotage == Some(MmuSabotage::Resurrect)
            && let Some(old) = self.shadow.take()
        {
            contents[0] = old;
        }
        self.map(at, &contents);
        Ok(Ok(self.spend(frame, copy)))
    }

    /// Fills `frame`; `None` is a failed load, which leaves garbage.
    ///
    /// # Errors
    /// `fresh` is wrong about the frame.
    pub fn fill(&mut self, frame: Frame, fresh: bool, contents: Option<Vec<Content>>) -> Check {
        self.expect_place(frame)?;
        if fresh == self.frames.contains_key(&frame) {
            let is = if fresh { "populated" } else { "a hole" };
            breach!("load into {frame} with fresh: {fresh}, but it is {is}");
        }
        if fresh {
            self.populated += u64::from(frame.order().pages().0);
        }
        let contents = contents.unwrap_or_else(|| vec![GARBAGE; frame.order().pages().0 as usize]);
        self.frames.insert(frame, contents);
        Ok(())
    }

    /// Simulates [`millpond_core::Mmu::install`]; `across` maps page by page where protections differ, as the real one
    /// does.
    ///
    /// # Errors
    /// The contract is broken.
    pub fn install(
        &mut self,
        frame: Frame,
        at: PageRange,
        copy: bool,
        across: bool,
    ) -> Check<Result<Placed, InstallError>> {
        self.expect_folio(at, Some(frame.order()))?;
        self.expect_empty(at)?;
        let contents = self.frame(frame)?.to_vec();
        if self.splits(at) && !across {
            return Ok(Err(InstallError::Split));
        }
        self.map(at, &contents);
        Ok(Ok(self.spend(Some(frame), copy)))
    }

    /// Simulates [`millpond_core::Mmu::take_out`]; `busy` says that the kernel holds a page.
    ///
    /// # Errors
    /// The contract is broken.
    pub fn take_out(
        &mut self,
        at: PageRange,
        frame: Frame,
        busy: bool,
    ) -> Check<Result<(), TakeOutError>> {
        self.expect_folio(at, Some(frame.order()))?;
        self.expect_place(frame)?;
        if self.frames.contains_key(&frame) {
            breach!(at at.start, "take-out of {at} into {frame}, which is populated");
        }
        let mut contents = Vec::with_capacity(at.len.0 as usize);
        for page in at.pages() {
            let Slot::Mapped(content) = self.page(page) else {
                breach!(at page, "take-out of {at}, but {page} is {:?}", self.page(page));
            };
            if self.is_pinned(page) {
                breach!(at page, "take-out of {at}, but {page} is pinned");
            }
            contents.push(content);
        }
        if busy {
            return Ok(Err(TakeOutError::Busy));
        }
        if self.splits(at)
            || self
                .protections
                .iter()
                .any(|p| p.locked && overlap(p.range, at))
        {
            return Ok(Err(TakeOutError::Immovable));
        }
        self.sabotaged += 1;
        if self.sabotage == Some(MmuSabotage::LoseWrite) && self.sabotaged.is_multiple_of(7) {
            let last = contents.len() - 1;
            contents[last][0] = 0;
        }
        for page in at.pages() {
            self.pages[page.0 as usize] = Slot::Empty;
        }
        self.mapped -= u64::from(at.len.0);
        self.populated += u64::from(at.len.0);
        self.frames.insert(frame, contents);
        Ok(Ok(()))
    }

    /// Simulates [`millpond_core::Mmu::take_out_leaf`]; `busy` says that this is not possible now.
    ///
    /// # Errors
    /// The contract is broken.
    pub fn take_out_leaf(
        &mut self,
        at: PageRange,
        frame: Frame,
        pages: &LeafPages,
        busy: bool,
    ) -> Check<Result<(), TakeOutError>> {
        self.expect_folio(at, Some(Order::MAX))?;
        let place = |n: u32| Frame::new(Order::ZERO, frame.index() + n);
        if frame.order() > Order::ZERO || !frame.index().is_multiple_of(at.len.0) {
            breach!(at at.start, "{frame} begins no block for {at}");
        }
        for (n, page) in (0..).zip(at.pages()) {
            self.expect_place(place(n))?;
            if self.frames.contains_key(&place(n)) {
                breach!(at page, "{at} leaves to a block of which {} is populated", place(n));
            }
            let fits = match self.page(page) {
                Slot::Mapped(_) => pages.has(n) && !self.is_pinned(page),
                Slot::Empty => !pages.has(n),
                Slot::Poisoned => false,
            };
            if !fits {
                breach!(at page, "{at} leaves by its table, with {page} {:?}, which was not said", self.page(page));
            }
        }
        if busy || self.protections.iter().any(|p| overlap(p.range, at)) {
            return Ok(Err(TakeOutError::Busy));
        }
        for n in pages.iter() {
            let page = PageRange::new(at.start.plus(n), PageCount(1));
            if self.take_out(page, place(n), false)?.is_err() {
                breach!(at page.start, "{page} stays though its leaf leaves");
            }
        }
        Ok(Ok(()))
    }

    /// Drops the pages that are mapped in `at`, or the poison there.
    ///
    /// # Errors
    /// A page of `at` is pinned, or is neither mapped nor poisoned.
    pub fn zap(&mut self, at: PageRange) -> Check {
        for page in at.pages() {
            if self.is_pinned(page) {
                breach!(at page, "zap of {at}, but {page} is pinned");
            }
            match self.page(page) {
                Slot::Mapped(content) => {
                    if content != BLANK {
                        self.shadow = Some(content);
                    }
                    self.mapped -= 1;
                }
                Slot::Poisoned => {}
                Slot::Empty => breach!(at page, "zap of {at}, but {page} holds nothing"),
            }
            self.pages[page.0 as usize] = Slot::Empty;
            if self.sabotage == Some(MmuSabotage::DropBelow) {
                self.drop_below(page);
            }
        }
        Ok(())
    }

    /// Drops the pages that are mapped in `at`, and the poison there, and returns how many pages that were.
    ///
    /// # Errors
    /// A page of `at` is pinned.
    pub fn zap_all(&mut self, at: PageRange) -> Check<u64> {
        let mut zapped = 0;
        for page in at.pages() {
            if self.page(page) != Slot::Empty {
                self.zap(PageRange::new(page, PageCount(1)))?;
                zapped += 1;
            }
        }
        Ok(zapped)
    }

    /// Makes a populated frame a hole.
    ///
    /// # Errors
    /// `frame` is already a hole.
    pub fn free_frame(&mut self, frame: Frame) -> Check {
        match self.frames.remove(&frame) {
            Some(_) => {
                self.populated -= u64::from(frame.order().pages().0);
                Ok(())
            }
            None => breach!("{frame} is freed, but is a hole"),
        }
    }

    /// Poisons empty pages.
    ///
    /// # Errors
    /// A page of `at` is mapped or poisoned.
    pub fn poison(&mut self, at: PageRange) -> Check {
        self.expect_empty(at)?;
        for page in at.pages() {
            self.pages[page.0 as usize] = Slot::Poisoned;
        }
        Ok(())
    }

    /// Populated frames, for messages.
    pub fn frames(&self) -> impl Iterator<Item = Frame> + '_ {
        self.frames.keys().copied()
    }

    fn splits(&self, at: PageRange) -> bool {
        let inside = |edge: PageIndex| edge > at.start && edge < at.end();
        self.protections
            .iter()
            .any(|p| inside(p.range.start) || inside(p.range.end()))
    }

    fn expect_folio(&self, at: PageRange, order: Option<Order>) -> Check {
        let len = at.len.0;
        if !len.is_power_of_two() || !at.start.0.is_multiple_of(len) {
            breach!(at at.start, "{at} is not one naturally aligned folio");
        }
        if at.end().0 as usize > self.pages.len() {
            breach!(at at.start, "{at} leaves the arena");
        }
        match order {
            Some(order) if order.pages() != at.len => {
                breach!(at at.start, "{at} goes with a frame of order {}", order.get())
            }
            _ => Ok(()),
        }
    }

    fn expect_empty(&self, at: PageRange) -> Check {
        for page in at.pages() {
            if self.page(page) != Slot::Empty {
                breach!(at page, "{at} is to be filled, but {page} is {:?}", self.page(page));
            }
        }
        Ok(())
    }

    fn expect_place(&self, frame: Frame) -> Check {
        let places = self.pool.frames[usize::from(frame.order().get())];
        if frame.index() >= places {
            breach!("{frame} is not in the pool, which has {places} places of its order");
        }
        Ok(())
    }

    fn map(&mut self, at: PageRange, contents: &[Content]) {
        for (page, content) in at.pages().zip(contents) {
            self.pages[page.0 as usize] = Slot::Mapped(*content);
        }
        self.mapped += u64::from(at.len.0);
    }

    fn spend(&mut self, frame: Option<Frame>, copy: bool) -> Placed {
        match frame {
            Some(frame) if !copy => {
                self.frames.remove(&frame);
                self.populated -= u64::from(frame.order().pages().0);
                Placed::Moved
            }
            _ => Placed::Copied,
        }
    }
}

/// Whether two ranges share a page.
#[must_use]
pub fn overlap(a: PageRange, b: PageRange) -> bool {
    a.start < b.end() && b.start < a.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mmu() -> SimMmu {
        SimMmu::new(PageCount(512), PoolLayout { frames: [8; 10] })
    }

    fn at(start: u32, len: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(len))
    }

    fn frame(order: u8, index: u32) -> Frame {
        Frame::new(Order::new(order).unwrap(), index)
    }

    #[test]
    fn contents_travel_out_and_back() {
        let mut mmu = mmu();
        mmu.install_zero(at(4, 2), None, false).unwrap().unwrap();
        mmu.write(PageIndex(5), 1, 9);
        mmu.take_out(at(4, 2), frame(1, 0), false).unwrap().unwrap();
        assert!(!mmu.is_mapped(PageIndex(5)));
        assert_eq!((mmu.mapped(), mmu.populated()), (0, 2));
        assert_eq!(
            mmu.install(frame(1, 0), at(4, 2), false, false).unwrap(),
            Ok(Placed::Moved)
        );
        assert_eq!(mmu.page(PageIndex(5)), Slot::Mapped([0, 9, 0, 0]));
        assert_eq!((mmu.mapped(), mmu.populated()), (2, 0));
    }

    #[test]
    fn every_misuse_is_a_breach() {
        let mut mmu = mmu();
        assert!(
            mmu.take_out(at(0, 1), frame(0, 0), false).is_err(),
            "not mapped"
        );
        mmu.install_zero(at(0, 1), None, false).unwrap().unwrap();
        assert!(
            mmu.install_zero(at(0, 1), None, false).is_err(),
            "mapped over"
        );
        assert!(
            mmu.install_zero(at(1, 2), None, false).is_err(),
            "not aligned"
        );
        assert!(
            mmu.take_out(at(0, 1), frame(1, 0), false).is_err(),
            "orders differ"
        );
        assert!(
            mmu.take_out(at(0, 1), frame(0, 8), false).is_err(),
            "beyond the pool"
        );
        assert!(
            mmu.install(frame(0, 1), at(1, 1), false, false).is_err(),
            "a hole"
        );
        assert!(mmu.free_frame(frame(0, 1)).is_err(), "a hole");
        assert!(
            mmu.fill(frame(0, 1), false, None).is_err(),
            "a hole that is not fresh"
        );
        mmu.fill(frame(0, 1), true, None).unwrap();
        assert!(
            mmu.fill(frame(0, 1), true, None).is_err(),
            "a frame that is fresh"
        );
        assert!(
            mmu.take_out(at(0, 1), frame(0, 1), false).is_err(),
            "populated"
        );
        mmu.pin(at(0, 1)).unwrap();
        assert!(
            mmu.take_out(at(0, 1), frame(0, 2), false).is_err(),
            "pinned"
        );
        assert!(mmu.zap(at(0, 1)).is_err(), "pinned");
        assert!(mmu.poison(at(0, 1)).is_err(), "mapped");
        assert!(mmu.zap(at(1, 1)).is_err(), "nothing there");
    }

    #[test]
    fn protections_split_installs_and_hold_pages() {
        let mut mmu = mmu();
        mmu.protections.push(Protection {
            range: at(3, 2),
            locked: true,
            announced: None,
        });
        assert_eq!(
            mmu.install_zero(at(0, 4), None, false).unwrap(),
            Err(InstallError::Split)
        );
        mmu.install_zero(at(3, 1), None, false).unwrap().unwrap();
        let refused = mmu.take_out(at(3, 1), frame(0, 0), false).unwrap();
        assert_eq!(refused, Err(TakeOutError::Immovable));
    }
}
