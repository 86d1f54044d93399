//! The threads other than the program's: one that reclaims and ticks, and one that forks.

use crate::judge;
use crate::program::Thread;
use crate::world::World;
use millpond_core::{PageCount, PageRange};
use millpond_driver::signals::SignalsBlocked;
use millpond_mmu::Resolution;
use std::sync::{Arc, PoisonError};

/// Does a number of rounds of the background thread's work: every third round ticks.
pub fn keep_house(world: &Arc<World>) {
    for round in 0..world.profile.rounds {
        world
            .driver
            .reclaim_in_background(|| world.memory().pause());
        if round % 3 == 2 {
            world.driver.tick_in_background();
        }
    }
}

/// Serves the faults of all threads, like the handler's thread.
pub fn serve_faults(world: &World) {
    let Some(kernel) = &world.memory().kernel else {
        return;
    };
    while let Some(page) = kernel.next_fault() {
        match world.driver.serve(page) {
            Resolution::Installed | Resolution::Asleep => {}
            // A thread that touches a lost page sees that itself.
            Resolution::Retry | Resolution::Foreign | Resolution::Lost => {
                kernel.wake(PageRange::new(page, PageCount(1)))
            }
        }
    }
}

/// Forks a number of times, up to the fork itself: everything is stopped, examined, and continued.
pub fn fork(mut thread: Thread) {
    for _ in 0..thread.world.profile.forks {
        let world = Arc::clone(&thread.world);
        // The pages that a child would touch first are in a region that continues to exist.
        let place = &world.plots[thread.any_plot()];
        let plot = place.read().unwrap_or_else(PoisonError::into_inner);
        let resident: Vec<PageRange> = match &*plot {
            Some(plot) => vec![thread.some_of(plot.named.1, 6)],
            None => Vec::new(),
        };
        let _quiet = SignalsBlocked::new();
        let still = world.driver.hold_still(&resident);
        judge::still(&world, still.core());
        judge::are_there(&world, &resident);
        drop(still);
    }
}
