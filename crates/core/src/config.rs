//! The sizes and marks of a core. They are fixed when it is built, except those that an event can change.

use crate::addr::{LEAF_PAGES, Order, PageCount};
use crate::limits::{
    FOLIO_SHARE, MAX_ARENA_PAGES, MAX_NODES, MIN_LIMIT_PAGES, REFAULT_COST_MOST, SHADOW_BITS_LEAST,
    SINGLE_PLACES, SINGLE_PLACES_MOST,
};
use crate::tables::folio::Folio;
use crate::tables::swap::Slot;

/// The number of frames for which the pool has room, by order, on each node. The MMU backend lays out its addresses by
/// the same table, [on all nodes](PoolLayout::on_nodes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolLayout {
    /// Places for frames, by order.
    pub frames: [u32; 10],
}

/// The settings with which a core is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Address space from which regions are allocated.
    pub arena: PageCount,
    /// The budget for frames: mapped, in limbo and spare ones together.
    pub limit: PageCount,
    /// Folios that can be in memory at once: at least `limit`, more if the budget may be exceeded because the store
    /// accepts nothing. A record is 48 bytes of address space, and of memory once it is used.
    pub records: u32,
    /// Room in the frame pool, on each node.
    pub pool: PoolLayout,
    /// Lazily freed pages beyond this many are dropped, oldest first.
    pub lazyfree_max: PageCount,
    /// Number of memory nodes (NUMA) over which regions are spread.
    pub nodes: u8,
    /// Limbo's minimum share of the limit, in 1/1024. The share grows where that is worth its cost; see
    /// [`workingset`](crate::policy::workingset).
    pub limbo_share: u16,
    /// The cost of a major fault, in sixteenths of the cost of a rescue from limbo: 256 is a file on a disk (60 to 100
    /// µs against 4 to 6), 20 is compressed RAM. [`Event::SetRefaultCost`](crate::Event::SetRefaultCost) changes it.
    pub refault_cost: u32,
    /// The cost of a major fault of a file's page, in the same unit. [`Event::SetFileCost`](crate::Event::SetFileCost)
    /// changes it.
    pub file_cost: u32,
    /// Whether refaults and rescues decide which folios stay, with shadows, watched folios and their miniatures, and
    /// the curve. Otherwise folios leave in the order in which they were last seen in use, and limbo keeps its minimum
    /// share. The switch exists so that the cost of all this can be measured.
    pub workingset: bool,
    /// The pages that come in with one fault take at most one part in this many of the limit. The number is
    /// [`FOLIO_SHARE`] everywhere except in tests, which change it to get windows of a whole leaf in a small memory.
    pub folio_share: u32,
    /// Maximum number of bits of a shadow, 12 or more. There are fewer if the entries have fewer to spare.
    pub shadow_bits: u8,
    /// Reclaim in the background begins when fewer pages than limit × `low_mark` / 1024 are available.
    pub low_mark: u16,
    /// Reclaim in the background ends when limit × `high_mark` / 1024 pages are available.
    pub high_mark: u16,
}

/// Why a configuration cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The budget is below [`MIN_LIMIT_PAGES`].
    LimitTooSmall {
        /// The requested budget.
        pages: PageCount,
    },
    /// The arena is empty, not a whole number of leaves, or larger than [`MAX_ARENA_PAGES`].
    BadArena {
        /// The requested length.
        pages: PageCount,
    },
    /// `low_mark` < `high_mark` < 1024 does not hold, or limbo's share is 1024 or more.
    BadMarks,
    /// The pool has too few places for some order (fewer than 4).
    BadPool,
    /// `records` is below `limit`.
    TooFewRecords,
    /// `shadow_bits` is below [`SHADOW_BITS_LEAST`] or above 32.
    BadShadowBits {
        /// The requested bits.
        bits: u8,
    },
    /// `refault_cost` or `file_cost` is above [`REFAULT_COST_MOST`].
    BadRefaultCost {
        /// The larger of the two requested costs.
        sixteenths: u32,
    },
    /// `folio_share` is below 2: one fault would take all memory.
    BadFolioShare {
        /// The requested share.
        share: u32,
    },
    /// `nodes` is zero, or above [`MAX_NODES`].
    BadNodes {
        /// The requested number.
        nodes: u8,
    },
}

impl PoolLayout {
    /// The pool of `nodes` nodes: of each order, those of the first node, then those of the second, and so on.
    #[must_use]
    pub fn on_nodes(self, nodes: u8) -> Self {
        let frames = self.frames.map(|n| n * u32::from(nodes));
        Self { frames }
    }

    /// The pool for a budget of `limit`. It has room for all of `limit` in any one order (lazily freed memory waits
    /// there), and for a few folios of the largest. Of single pages it has [`SINGLE_PLACES`] times as many, so that
    /// there are blocks of holes for leaves that leave by their tables, even when limbo is most of memory and a leaf
    /// has left with a third of its pages; but not beyond [`SINGLE_PLACES_MOST`]. Places are addresses, not memory:
    /// unused ones cost half a byte each in the core's book.
    #[must_use]
    pub fn for_limit(limit: PageCount) -> Self {
        let share = limit.0.max(8 * LEAF_PAGES);
        let mut frames = [0; 10];
        for order in Order::all() {
            frames[usize::from(order.get())] = share / order.pages().0;
        }
        frames[0] = share.max(share.saturating_mul(SINGLE_PLACES).min(SINGLE_PLACES_MOST));
        Self { frames }
    }

    /// The pool for a budget of `limit` if places are not free, because the kernel promises memory for each: a quarter
    /// of the places of [`for_limit`](Self::for_limit). A folio without a place of its order waits, or comes in as
    /// smaller ones.
    #[must_use]
    pub fn short(limit: PageCount) -> Self {
        let frames = Self::for_limit(limit).frames.map(|n| (n / 4).max(4));
        Self { frames }
    }
}

impl Config {
    /// The usual marks for this arena and budget.
    #[must_use]
    pub fn new(arena: PageCount, limit: PageCount) -> Self {
        Self {
            arena,
            limit,
            records: arena.0.max(limit.0),
            pool: PoolLayout::for_limit(limit),
            lazyfree_max: PageCount(u32::MAX),
            nodes: 1,
            limbo_share: 32,
            refault_cost: 256,
            file_cost: 256,
            workingset: true,
            folio_share: FOLIO_SHARE,
            shadow_bits: 32,
            low_mark: 16,
            high_mark: 32,
        }
    }

    /// Bytes of address space that the largest of a core's tables takes. Memory is taken as the tables are used.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        let (arena, records) = (u64::from(self.arena.0), u64::from(self.records));
        let entries = arena * size_of::<u64>() as u64;
        let folios = records * size_of::<Folio>() as u64;
        let slots = (arena + records) * size_of::<Slot>() as u64;
        entries.max(folios).max(slots)
    }

    /// Whether a core can be built from this.
    ///
    /// # Errors
    /// The first error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.limit.0 < MIN_LIMIT_PAGES {
            return Err(ConfigError::LimitTooSmall { pages: self.limit });
        }
        if self.arena.0 == 0
            || !self.arena.0.is_multiple_of(LEAF_PAGES)
            || self.arena.0 > MAX_ARENA_PAGES
        {
            return Err(ConfigError::BadArena { pages: self.arena });
        }
        if self.low_mark >= self.high_mark || self.high_mark >= 1024 || self.limbo_share >= 1024 {
            return Err(ConfigError::BadMarks);
        }
        let most = (1 << 28) / u32::from(self.nodes.max(1));
        if self.pool.frames.iter().any(|n| !(4..most).contains(n)) {
            return Err(ConfigError::BadPool);
        }
        if self.records < self.limit.0 {
            return Err(ConfigError::TooFewRecords);
        }
        if !(1..=MAX_NODES).contains(&self.nodes) {
            return Err(ConfigError::BadNodes { nodes: self.nodes });
        }
        if !(SHADOW_BITS_LEAST..=32).contains(&self.shadow_bits) {
            return Err(ConfigError::BadShadowBits {
                bits: self.shadow_bits,
            });
        }
        if self.folio_share < 2 {
            let share = self.folio_share;
            return Err(ConfigError::BadFolioShare { share });
        }
        let sixteenths = self.refault_cost.max(self.file_cost);
        if sixteenths > REFAULT_COST_MOST {
            return Err(ConfigError::BadRefaultCost { sixteenths });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For python3 in 19 MiB the kernel once had to promise a pool of 256 MiB, on a machine where it counts its
    /// promises.
    #[test]
    fn a_short_pool_takes_four_times_the_budget_at_most() {
        for mib in [16, 19, 64, 4096] {
            let limit = PageCount(mib << 8);
            let pool = PoolLayout::short(limit);
            let of_each =
                Order::all().map(|order| pool.frames[usize::from(order.get())] * order.pages().0);
            let least = limit.0.max(8 * LEAF_PAGES);
            let pages = of_each.sum::<u32>();
            assert!(pages <= 4 * least, "{pages} places for {limit:?}");
            let config = Config {
                pool,
                ..Config::new(PageCount(1 << 20), limit)
            };
            assert_eq!(config.validate(), Ok(()));
        }
    }
}
