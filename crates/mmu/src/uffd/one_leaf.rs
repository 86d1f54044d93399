//! Memory for tests that see more than a user of the crate does.

use super::{Offer, UffdMemory};
use crate::{Delivery, Memory, MemoryConfig, TakeOutMethod};
use millpond_core::{LEAF_PAGES, PageCount, PageIndex, PageRange, PoolLayout};

/// Makes memory with one open leaf and three blocks. If this kernel cannot move pages, prints why and returns `None`.
pub(super) fn one_leaf(delivery: Delivery) -> Option<UffdMemory> {
    let leaf = PageRange::new(PageIndex(0), PageCount(LEAF_PAGES));
    let mut frames = [4; 10];
    frames[0] = 3 * LEAF_PAGES;
    let config = MemoryConfig {
        arena: leaf.len,
        bases: &[],
        reserved: None,
        pool: PoolLayout { frames },
        delivery,
        take_out: TakeOutMethod::Move,
        huge_within: crate::HUGE_WITHIN,
        mask: crate::Mask::from_environment(),
    };
    let uffd = UffdMemory::new(&config, Offer::to(&config))
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()?;
    uffd.open(leaf).unwrap();
    Some(uffd)
}
