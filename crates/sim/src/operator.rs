//! The operator changes the limit, the weather and the store, lets time pass, and sends requests that must be refused.

use millpond_core::{
    Event, FreeMode, Kind, LEAF_PAGES, Order, PageCount, PageIndex, PageRange, RegionId, Reply,
};

use crate::actor::{Blocked, OPERATOR};
use crate::gather::Spare;
use crate::profile::ARENA_PAGES;
use crate::report::{Check, Coverage, Entry, breach};
use crate::store::Weather;
use crate::world::{SimRegion, World};

impl World {
    /// Makes the operator change something.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn operate(&mut self) -> Check {
        self.actors[OPERATOR].blocked =
            Blocked::Until(self.step + u64::from(self.rng.between(50, 800)));
        if self.profile.groups > 0 && self.rng.chance(400) {
            return self.operate_groups();
        }
        if self.profile.files > 0 && self.rng.chance(self.profile.cuts) {
            return self.cut_some_file();
        }
        match self.rng.below(10) {
            0 => {
                let sixteenths = self.rng.below(400);
                match self.profile.files > 0 && self.rng.chance(500) {
                    true => self.expect_done(Event::SetFileCost { sixteenths }),
                    false => self.expect_done(Event::SetRefaultCost { sixteenths }),
                }
            }
            1 => {
                let least = self.profile.config.limit.0;
                let pages = least + self.rng.below(least / 2);
                self.expect_done(Event::SetLimit {
                    pages: PageCount(pages),
                })
            }
            2 => {
                self.give_freed_back()?;
                self.tick_core()
            }
            3 if self.profile.takes_leaves && self.rng.chance(200) => {
                let on = self.rng.chance(800);
                self.expect_done(Event::TakeLeaves { on })
            }
            3 if self.profile.drops_copies && self.rng.chance(300) => {
                let keep = self.rng.chance(400);
                self.expect_done(Event::KeepCopies { keep })
            }
            3..5 => self.expect_done(Event::RetryStore),
            5..8 => {
                let storm = self.rng.chance(self.profile.storms);
                self.store.weather = if storm {
                    self.profile.storm
                } else {
                    Weather::default()
                };
                let none = PageRange::default();
                self.log
                    .push(self.step, Entry::World("storm", u64::from(storm), none));
                Ok(())
            }
            _ if self.profile.files > 0 && self.rng.chance(300) => self.ask_for_impossible_files(),
            _ => self.ask_for_the_impossible(),
        }
    }

    /// Gives back the memory that was kept in a region; anything may happen to it in the meantime.
    fn give_freed_back(&mut self) -> Check {
        let kept = PageCount(self.rng.below(2 * LEAF_PAGES));
        self.core.keep(kept, PageCount(self.rng.below(64)));
        if self.regions.is_empty() {
            return Ok(());
        }
        let mut range = self.regions[self.rng.below(self.regions.len() as u32) as usize].range;
        loop {
            let event = Event::GiveFreedBack { range };
            match self.send(OPERATOR, event)? {
                Reply::Done | Reply::Wait { .. } => return Ok(()),
                Reply::More { from } => range = range.tail(from),
                reply => breach!("{event:?} is answered with {reply:?}"),
            }
        }
    }

    /// Lets time pass: frames beyond the demand of faults go back to the kernel.
    pub(crate) fn tick_core(&mut self) -> Check {
        self.expect_done(Event::Tick)?;
        let what = match self.rng.chance(500) {
            true => Spare::Copied,
            false => Spare::Unwanted,
        };
        self.give_spare_back(what)
    }

    fn expect_done(&mut self, event: Event) -> Check {
        let reply = self.send(OPERATOR, event)?;
        if reply != Reply::Done {
            breach!("{event:?} is answered with {reply:?}");
        }
        Ok(())
    }

    /// Sends events that must be refused, and that change nothing.
    fn ask_for_the_impossible(&mut self) -> Check {
        let Some(event) = self.draw_impossible() else {
            return Ok(());
        };
        Coverage::count(&mut self.coverage.injected, "impossible");
        let reply = self.send(OPERATOR, event)?;
        if !matches!(reply, Reply::Refused(_)) {
            breach!("{event:?} must be refused, but is answered with {reply:?}");
        }
        Ok(())
    }

    /// An event that must be refused, or `None` if its preconditions are not met.
    fn draw_impossible(&mut self) -> Option<Event> {
        let outside = PageRange::new(PageIndex(ARENA_PAGES - 1), PageCount(2));
        let empty = PageRange::new(PageIndex(0), PageCount(0));
        let unknown = RegionId(u32::MAX);
        let create = |pages| Event::CreateRegion {
            pages: PageCount(pages),
            order: Order::ZERO.into(),
            kind: Kind::Anonymous,
        };
        Some(match self.rng.below(15) {
            0 => Event::Discard { range: outside },
            1 => Event::Pin { range: empty },
            2 => Event::Unpin { range: outside },
            3 => Event::DropRegion { region: unknown },
            4 => create(0),
            5 => create(ARENA_PAGES + 1),
            6 => Event::Purge { range: empty },
            7 => Event::LazyFree {
                range: outside,
                mode: FreeMode::Exclusive,
            },
            8 => {
                let region = self.regions.iter().find(|r| self.holds_a_page(r))?;
                Event::DropRegion { region: region.id }
            }
            10 => Event::Detach { region: unknown },
            11 => Event::Merge {
                base: unknown,
                from: PageIndex(0),
            },
            12 => {
                let region = self.regions.first()?;
                Event::Merge {
                    base: region.id,
                    from: region.range.start,
                }
            }
            13 => self.draw_impossible_of_base()?,
            14 => {
                let region = self.regions.first()?.id;
                Event::Snapshot {
                    region,
                    base: region,
                    copy: self.rng.pick(&[region, unknown]),
                }
            }
            _ => Event::Unpin {
                range: PageRange::new(self.unpinned_page()?, PageCount(1)),
            },
        })
    }

    /// The end of a base that has an heir, or the merge of one that has two.
    fn draw_impossible_of_base(&mut self) -> Option<Event> {
        if self.rng.below(2) == 0 {
            let base = self.bases.iter().find(|base| self.heirs(base.id) > 0)?;
            return Some(Event::DropRegion { region: base.id });
        }
        let base = self.bases.iter().find(|base| self.heirs(base.id) > 1)?;
        Some(Event::Merge {
            base: base.id,
            from: base.range.start,
        })
    }

    fn holds_a_page(&self, region: &SimRegion) -> bool {
        // An unhooked page is mapped, but no longer held.
        let held = |page| self.mmu.is_mapped(page) && !self.is_unhooked(page);
        region.range.pages().any(held)
    }

    fn unpinned_page(&self) -> Option<PageIndex> {
        let region = self.regions.first()?;
        region.range.pages().find(|page| !self.mmu.is_pinned(*page))
    }
}
