//! Regions that get another length, step by step, as the driver does it.
//!
//! A region grows in place if no other region has the addresses after it; otherwise it moves as a whole to a longer
//! one, which takes over its orders and its base. It shrinks when its tail was discarded and nothing is inherited
//! there. No other actor works in the region during the resize.

use millpond_core::{
    Event, GroupId, Kind, LEAF_PAGES, Order, PageCount, PageIndex, PageRange, PageState, Refusal,
    RegionId, Reply,
};

use crate::actor::{Blocked, Op};
use crate::mmu::overlap;
use crate::profile::ARENA_PAGES;
use crate::remap::{Remap, RemapStage};
use crate::report::{Check, breach};
use crate::world::{SimRegion, World};

/// A region that gets another length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resize {
    /// The region.
    pub region: RegionId,
    /// The region's new length.
    pub pages: PageCount,
    /// The region inherited something when its tail began to be discarded.
    pub inherits: bool,
}

/// How far a resize has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeStage {
    /// Other operations still work in the region.
    Quiet,
    /// The actor waits for a purge that may have taken a range of the tail.
    Purging,
    /// The tail is being discarded.
    Discard {
        /// The part that the core has not reported as done.
        rest: PageRange,
    },
    /// The core is asked next.
    Ask,
}

impl World {
    pub(crate) fn resize_of(&self, region: SimRegion, pages: u32) -> Op {
        Op::Resize {
            resize: Resize {
                region: region.id,
                pages: PageCount(pages),
                inherits: false,
            },
            stage: ResizeStage::Quiet,
        }
    }

    /// Takes one step of a resize.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_resize(&mut self, i: usize, resize: Resize, stage: ResizeStage) -> Check {
        let region = self.region(resize.region)?;
        let mut resize = resize;
        if matches!(stage, ResizeStage::Quiet | ResizeStage::Purging) {
            resize.inherits = region.base.is_some();
        }
        let range = region.range;
        let shrinks = resize.pages < range.len;
        let rest_of_it = || range.tail(range.start.plus(resize.pages.0));
        let stage = match stage {
            ResizeStage::Quiet => {
                if region.users > 0 {
                    self.actors[i].blocked = Blocked::Until(self.step + 20);
                    return Ok(());
                }
                self.ask_for_bad_lengths(i, region)?;
                if !shrinks {
                    ResizeStage::Ask
                } else {
                    let rest = rest_of_it();
                    if self.book.straddler(rest).is_some() {
                        self.end_remap(i);
                        return Ok(());
                    }
                    match self.forget_volatile(rest)? {
                        true => ResizeStage::Purging,
                        false => self.begin_to_shrink(i, rest),
                    }
                }
            }
            ResizeStage::Purging if self.must_wait_for_purges(i) => ResizeStage::Purging,
            ResizeStage::Purging => self.begin_to_shrink(i, rest_of_it()),
            ResizeStage::Discard { rest } => match self.ask(i, Event::Discard { range: rest })? {
                None => ResizeStage::Discard { rest },
                Some(Reply::Done) => {
                    self.settle(i);
                    ResizeStage::Ask
                }
                Some(Reply::More { from }) => {
                    self.settle(i);
                    let rest = self.rest_of(rest, from)?;
                    ResizeStage::Discard { rest }
                }
                Some(other) => breach!("a discard of {rest} is answered with {other:?}"),
            },
            ResizeStage::Ask => {
                if shrinks {
                    self.oracle.discard_ends(i, true)?;
                }
                return self.resize(i, region, resize);
            }
        };
        self.actors[i].op = Some(Op::Resize { resize, stage });
        Ok(())
    }

    fn begin_to_shrink(&mut self, i: usize, rest: PageRange) -> ResizeStage {
        self.oracle.discard_begins(i, rest);
        ResizeStage::Discard { rest }
    }

    fn ask_for_bad_lengths(&mut self, i: usize, region: SimRegion) -> Check {
        for pages in [0, ARENA_PAGES + 1] {
            let pages = PageCount(pages);
            let event = Event::Resize {
                region: region.id,
                pages,
            };
            let reply = self.send(i, event)?;
            if reply != Reply::Refused(Refusal::BadRange) {
                breach!("{event:?} is answered with {reply:?}");
            }
        }
        let holds = |page: &PageIndex| self.core.page_state(*page) != PageState::Empty;
        let last = region.range.pages().rfind(holds);
        if let Some(page) = last.filter(|page| *page > region.range.start) {
            let event = Event::Resize {
                region: region.id,
                pages: PageCount(page.0 - region.range.start.0),
            };
            let reply = self.send(i, event)?;
            if reply != Reply::Refused(Refusal::RegionInUse) {
                breach!(at page, "{event:?} is answered with {reply:?}, but {page} is not empty");
            }
        }
        Ok(())
    }

    /// Gives the region its new length in place, or elsewhere.
    fn resize(&mut self, i: usize, region: SimRegion, resize: Resize) -> Check {
        let Resize {
            pages, inherits, ..
        } = resize;
        let old = region.range;
        let wanted = PageRange::new(old.start, pages);
        let event = Event::Resize {
            region: region.id,
            pages,
        };
        let leaves = |range: PageRange| range.end().0.next_multiple_of(LEAF_PAGES);
        let whole = |range: PageRange| {
            PageRange::new(range.start, PageCount(leaves(range) - range.start.0))
        };
        let in_the_way = |other: PageRange| other != old && overlap(whole(other), whole(wanted));
        let taken = self.ranges().any(in_the_way) || leaves(wanted) > ARENA_PAGES;
        match self.send(i, event)? {
            Reply::Region { region: id, range } if id == region.id && range == wanted && !taken => {
                self.count_remap(match pages < old.len {
                    true => "shrunk",
                    false => "grown in place",
                });
                let known = self.regions.iter_mut().find(|r| r.id == id);
                known.expect("it is a region").range = range;
                self.check_all()?;
                self.end_remap(i);
            }
            // The discarded pages hide what is inherited there, or did until a merge ended in the meantime.
            Reply::Refused(Refusal::RegionInUse) if pages < old.len && inherits => {
                self.count_remap("refused: what is hidden");
                self.end_remap(i);
            }
            Reply::Refused(Refusal::NoAddressSpace) if taken => {
                return self.grow_elsewhere(i, region, pages);
            }
            other => {
                breach!(at old.start, "{event:?} for {old} is answered with {other:?}, taken: {taken}")
            }
        }
        Ok(())
    }

    /// Makes a region, `pages` long, for the whole of `region` to move to.
    fn grow_elsewhere(&mut self, i: usize, region: SimRegion, pages: PageCount) -> Check {
        let (order, kind) = (Order::ZERO.into(), Kind::Anonymous);
        match self.send(i, Event::CreateRegion { pages, order, kind })? {
            Reply::Region {
                region: target,
                range,
            } => {
                if range.len != pages || self.ranges().any(|other| overlap(other, range)) {
                    breach!("a region of {pages:?} for a longer one is at {range}");
                }
                self.regions.push(SimRegion {
                    id: target,
                    range,
                    order: 0,
                    largest: 0,
                    adaptive: false,
                    users: 0,
                    closing: true,
                    base: None,
                    group: GroupId::ROOT,
                    kind,
                });
                let remap = Remap {
                    source: region.id,
                    from: region.range,
                    target,
                    to: PageRange::new(range.start, region.range.len),
                    grows: true,
                };
                let stage = RemapStage::Close;
                self.actors[i].op = Some(Op::Remap { remap, stage });
            }
            Reply::Refused(Refusal::NoAddressSpace) => self.end_remap(i),
            other => breach!("a region of {pages:?} is answered with {other:?}"),
        }
        Ok(())
    }
}
