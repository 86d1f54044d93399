//! Regions are made, ended, moved and copied.

use crate::program::{Thread, must};
use crate::world::{Plot, World};
use millpond_core::{LEAF_PAGES, PageCount, PageRange};
use millpond_driver::remap::{Beside, RemapRefusal};
use millpond_sync::{RwLockReadGuard, RwLockWriteGuard};
use std::sync::{Arc, PoisonError};

impl Thread {
    /// Ends the region at a place, and makes another one there.
    pub(crate) fn replace(&mut self) {
        let world = Arc::clone(&self.world);
        let place = &world.plots[self.any_plot()];
        let mut plot = place.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(plot) = plot.take() {
            self.end(plot);
        }
        *plot = world.new_plot(&mut self.rng);
    }

    /// Ends a region, as the facade does when the handle is dropped or freed in the background.
    pub(crate) fn end(&mut self, plot: Plot) {
        let in_background = self.rng.chance(400);
        self.world.end(plot, in_background);
    }

    /// Moves pages from one region to another.
    pub(crate) fn remap(&mut self) {
        let world = Arc::clone(&self.world);
        let (one, other) = (self.any_plot(), self.any_plot());
        if one == other {
            return;
        }
        let (from, to);
        // The two regions are borrowed in the order of their places, whichever is the source.
        if one < other {
            from = world.alone_with(one);
            to = world.alone_with(other);
        } else {
            to = world.alone_with(other);
            from = world.alone_with(one);
        }
        let (Some(from), Some(to)) = (&*from, &*to) else {
            return;
        };
        let Some((from_range, into)) = self.some_of_both(from, to) else {
            return;
        };
        let driver = &world.driver;
        driver.settle_kept(from.named.0);
        driver.forget_prefetches(from_range);
        driver.forget_prefetches(into);
        self.forget(into);
        // SAFETY: nobody else uses the two regions.
        match unsafe { driver.remap(from_range, into, Beside::default()) } {
            Ok(()) => must(world.memory().now().oracle.relocate(from_range, into)),
            // The facade copies shares of a snapshot.
            Err(RemapRefusal::InUse) => {}
            Err(refusal) => panic!("{from_range} does not move to {into}: {refusal:?}"),
        }
    }

    /// Moves pages from a region while other threads touch it. They find zeros there afterwards.
    pub(crate) fn remap_watched(&mut self) {
        let world = Arc::clone(&self.world);
        let (one, other) = (self.any_plot(), self.any_plot());
        if one == other {
            return;
        }
        let (from, to);
        if one < other {
            from = world.shared_with(one);
            to = world.alone_with(other);
        } else {
            to = world.alone_with(other);
            from = world.shared_with(one);
        }
        let (Some(from), Some(to)) = (&*from, &*to) else {
            return;
        };
        let Some((from_range, into)) = self.some_of_both(from, to) else {
            return;
        };
        let driver = &world.driver;
        driver.settle_kept(from.named.0);
        driver.forget_prefetches(into);
        let _moved = world.moves.write().unwrap_or_else(PoisonError::into_inner);
        self.forget(into);
        match driver.remap_watched(from_range, into, true) {
            Ok(()) | Err(RemapRefusal::InUse | RemapRefusal::Pinned(_)) => {}
            Err(refusal) => panic!("{from_range} does not move to {into}: {refusal:?}"),
        }
    }

    /// Pages of `from`, and as many of `to` with the same alignment; `None` if something there is volatile.
    fn some_of_both(&mut self, from: &Plot, to: &Plot) -> Option<(PageRange, PageRange)> {
        if !(from.volatile.is_empty() && to.volatile.is_empty()) {
            return None;
        }
        let most = from.named.1.len.0.min(to.named.1.len.0);
        let from_range = self.some_of(PageRange::new(from.named.1.start, PageCount(most)), 64);
        let offset = from_range.start.0 - from.named.1.start.0;
        let into = PageRange::new(to.named.1.start.plus(offset), from_range.len);
        let alike = from_range.start.0 % LEAF_PAGES == into.start.0 % LEAF_PAGES;
        assert!(alike, "regions begin at leaves");
        Some((from_range, into))
    }

    /// Makes a region longer or shorter.
    pub(crate) fn resize(&mut self, plot: &mut Plot) {
        if !plot.volatile.is_empty() {
            return;
        }
        let world = Arc::clone(&self.world);
        let (driver, (id, old)) = (&world.driver, plot.named);
        let pages = PageCount(self.rng.between(1, world.profile.longest));
        if pages > old.len {
            driver.forget_prefetches(old);
            driver.settle_kept(id);
            // SAFETY: nobody else uses the region.
            match unsafe { driver.grow(plot.named, pages) } {
                Ok(named) => {
                    let front = PageRange::new(named.1.start, old.len);
                    if front != old {
                        world.begins_blank(named.1);
                        must(world.memory().now().oracle.relocate(old, front));
                    }
                    world.begins_blank(named.1.tail(front.end()));
                    plot.named = named;
                }
                Err(RemapRefusal::NoAddressSpace | RemapRefusal::InUse) => {}
                Err(refusal) => panic!("{old} does not grow: {refusal:?}"),
            }
        } else if pages < old.len {
            let rest = old.tail(old.start.plus(pages.0));
            driver.forget_prefetches(rest);
            driver.settle_kept(id);
            self.forget(rest);
            driver.forget_volatile(rest);
            if driver.shrink(plot.named, pages) {
                plot.named.1 = PageRange::new(old.start, pages);
            }
        }
    }

    /// Takes a snapshot of a region, in place of another region.
    pub(crate) fn snapshot(&mut self) {
        let world = Arc::clone(&self.world);
        let (from, to) = (self.any_plot(), self.any_plot());
        if from == to {
            return;
        }
        let lock = |n: usize| {
            world.plots[n]
                .write()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let (mut low, mut high) = (lock(from.min(to)), lock(from.max(to)));
        let (source, target) = match from < to {
            true => (&mut *low, &mut *high),
            false => (&mut *high, &mut *low),
        };
        let Some(source) = source else { return };
        if !source.volatile.is_empty() {
            return;
        }
        if let Some(plot) = target.take() {
            self.end(plot);
        }
        // SAFETY: nobody else uses the region.
        let Ok(copy) = (unsafe { world.driver.snapshot(source.named) }) else {
            return;
        };
        world.begins_blank(copy.1);
        let oracle = &mut world.memory().now().oracle;
        must(oracle.snapshot(source.named.1, copy.1, &[]));
        *target = Some(Plot {
            named: copy,
            order: source.order,
            volatile: Vec::new(),
        });
    }
}

impl World {
    /// The region at a place, for exclusive use.
    fn alone_with(&self, place: usize) -> RwLockWriteGuard<'_, Option<Plot>> {
        let place = &self.plots[place];
        place.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region at a place, for shared use.
    fn shared_with(&self, place: usize) -> RwLockReadGuard<'_, Option<Plot>> {
        let place = &self.plots[place];
        place.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a region. The oracle is told first that its volatile ranges end with it: other threads may get the
    /// addresses before the driver returns.
    pub fn end(&self, plot: Plot, in_background: bool) {
        let range = plot.named.1;
        for &volatile in &plot.volatile {
            let ended = self.memory().now().oracle.volatile_ends(volatile, false);
            must(ended);
        }
        self.driver.forget_prefetches(range);
        match in_background {
            true => self.driver.free_async(plot.named),
            false => self.driver.drop_region(plot.named),
        }
    }
}
