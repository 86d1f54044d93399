//! What must hold while nothing is under way, and at the end.

use crate::memory::State;
use crate::program::Thread;
use crate::world::{Plot, World};
use millpond_core::{Core, PageRange, PageState};
use millpond_driver::memory::Memory;
use millpond_sim::mmu::Slot;
use millpond_sim::rng::Rng;
use std::sync::{Arc, PoisonError};

/// Checks that the child of a fork at rest would find these pages, except for lost ones.
///
/// # Panics
/// When one is missing.
pub fn are_there(world: &World, pages: &[PageRange]) {
    let state = world.memory().now();
    for page in pages.iter().flat_map(|range| range.pages()) {
        let there = state.mmu.is_mapped(page) || state.oracle.is_lost(page);
        assert!(there, "{page} is to be there after a fork");
    }
}

/// Checks the core and its agreement with memory, while nothing is under way.
///
/// # Panics
/// When they do not agree.
pub fn still(world: &World, core: &Core) {
    assert!(core.is_quiet(), "a command is out, and nobody is inside");
    core.check().unwrap_or_else(|what| panic!("{what}"));
    let state = world.memory().now();
    let vm = core.stats();
    let counts = [
        ("mapped", vm.nr_mapped, state.mmu.mapped()),
        (
            "in frames",
            vm.nr_limbo + vm.nr_free_frames,
            state.mmu.populated(),
        ),
        ("unhooked", vm.nr_unhooked, 0),
    ];
    for (what, counted, are) in counts {
        assert_eq!(
            counted, are,
            "pages {what}: the core counts {counted}, and there are {are}"
        );
    }
    agree(world, core, &state);
}

/// Checks that the pages that the core calls mapped are those that are.
fn agree(world: &World, core: &Core, state: &State) {
    for page in world.memory().arena().pages() {
        let says = core.page_state(page);
        let mapped = matches!(
            says,
            PageState::Resident | PageState::LazyFree { mapped: true }
        );
        let is = state.mmu.page(page);
        assert_eq!(
            mapped,
            matches!(is, Slot::Mapped(_)),
            "the core says {says:?} of {page}, which is {is:?}"
        );
    }
}

/// Checks everything when all threads of the program have ended.
///
/// # Panics
/// When something is lost, invented or forgotten.
pub fn end(world: &Arc<World>, rng: &mut Rng) {
    let mut thread = Thread::new(Arc::clone(world), 30, Rng::new(rng.word()));
    for place in &world.plots {
        let mut plot = place.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(plot) = &mut *plot {
            read_all(&mut thread, plot);
        }
    }
    world.note(30, format_args!("all is read: {:?}", world.driver.stats()));
    world.driver.stop_prefetching();
    world.note(30, format_args!("nothing is prefetched"));
    world.driver.quiesce();
    world.note(30, format_args!("nothing is freed"));
    at_rest(world);
    for place in &world.plots {
        let plot = place.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(plot) = plot {
            world.end(plot, rng.chance(500));
        }
    }
    world.driver.quiesce();
    world.driver.stop_freeing();
    at_rest(world);
    nothing_is_left(world);
}

/// Reads each page of a region.
fn read_all(thread: &mut Thread, plot: &mut Plot) {
    while let Some(range) = plot.volatile.pop() {
        thread.ask_for(range);
    }
    for page in plot.named.1.pages() {
        thread.touch(page, false);
    }
}

/// Checks everything that can be judged while no thread of the program does anything.
///
/// # Panics
/// When a rule is violated.
pub fn at_rest(world: &World) {
    let still = world
        .driver
        .all_at_rest()
        .unwrap_or_else(|what| panic!("{what}"));
    self::still(world, still.core());
    let state = world.memory().now();
    for page in world.memory().arena().pages() {
        let outside = state.mmu.is_mapped(page) && !state.is_open(page);
        assert!(!outside, "{page} is mapped, and in no region");
    }
}

/// Checks that no region, no page and no slot outlives the last region.
fn nothing_is_left(world: &World) {
    let still = world.driver.hold_still(&[]);
    let vm = still.core().stats();
    assert_eq!(vm.nr_mapped, 0, "pages are mapped, and no region is left");
    assert_eq!(vm.nr_limbo, 0, "pages are in limbo, and no region is left");
    let kept = (still.core().slots_in_use() as usize, world.store.slots());
    assert_eq!(
        kept,
        (0, 0),
        "slots that the core knows of and that the store has"
    );
    let state = world.memory().now();
    let open = world
        .memory()
        .arena()
        .pages()
        .find(|&page| state.is_open(page));
    assert_eq!(open, None, "a page is open, and no region is left");
}
