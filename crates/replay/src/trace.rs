//! A trace in memory, ready to be replayed: four bytes for each access.
//!
//! A replay goes through the trace many times, and some policies need to know the future. So the whole trace is held,
//! with pages renumbered. There are two numberings. *Ids* count the pages by first touch, without gaps; the tables of
//! the comparison policies are indexed by them. *Arena pages* are the pages' places for the core. Neighbours matter to
//! the core, so if the numbers of a trace are addresses, pages that shared a leaf (2 MiB) still do, at the same place
//! in it, and leaves are numbered by first touch. If numbers are scattered (hashes, objects), as shown by leaves that
//! hold less than an eighth of their pages, the ids are the arena pages: a leaf for each object would make the core's
//! tables 512 times larger and mean nothing.

use crate::error::TraceError;
use crate::import::Access;
use millpond_core::LEAF_PAGES;
use millpond_core::limits::MAX_ARENA_PAGES;
use rustc_hash::FxHashMap;

/// Divisor of a leaf's room: if leaves hold fewer pages than this share of it, they do not count as neighbourhoods.
const SPARSE: u64 = 8;

/// A trace in memory. See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    ids: Vec<u32>,
    /// A bit for each access, if the trace distinguishes writes.
    writes: Option<Vec<u64>>,
    /// The arena page of each id.
    arena: Vec<u32>,
    arena_pages: u32,
}

impl Trace {
    /// Reads all `accesses`.
    ///
    /// # Errors
    /// The errors of `accesses`; also when there are none, or they name too many pages.
    pub fn read(
        accesses: impl Iterator<Item = Result<Access, TraceError>>,
        has_writes: bool,
    ) -> Result<Self, TraceError> {
        let mut ids = Vec::new();
        let mut writes = Vec::new();
        let mut known: FxHashMap<u64, u32> = FxHashMap::default();
        let mut pages = Vec::new();
        let mut last = None;
        for access in accesses {
            let access = access?;
            let id = match last {
                Some((page, id)) if page == access.page => id,
                _ => {
                    let next = pages.len() as u32;
                    let id = *known.entry(access.page).or_insert(next);
                    if id == next {
                        pages.push(access.page);
                    }
                    id
                }
            };
            if pages.len() as u64 > u64::from(MAX_ARENA_PAGES) {
                return Err(TraceError::TooManyPages {
                    most: MAX_ARENA_PAGES,
                });
            }
            last = Some((access.page, id));
            if has_writes {
                if ids.len().is_multiple_of(64) {
                    writes.push(0);
                }
                *writes.last_mut().expect("a word was added") |=
                    u64::from(access.write) << (ids.len() % 64);
            }
            ids.push(id);
        }
        if ids.is_empty() {
            return Err(TraceError::Empty);
        }
        let (arena, arena_pages) = place(&pages);
        Ok(Self {
            ids,
            writes: has_writes.then_some(writes),
            arena,
            arena_pages,
        })
    }

    /// A trace of reads, for tests and examples.
    ///
    /// # Panics
    /// When there are no pages.
    pub fn of_pages(pages: impl IntoIterator<Item = u64>) -> Self {
        let accesses = pages.into_iter().map(|page| Ok(Access::read(page)));
        Self::read(accesses, false).expect("some accesses, and not too many pages")
    }

    /// The id of each access' page.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Number of accesses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Always false: a trace has at least one access.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether the trace distinguishes writes from reads.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        self.writes.is_some()
    }

    /// Whether the access with this number writes.
    #[must_use]
    pub fn is_write(&self, access: usize) -> bool {
        self.writes
            .as_ref()
            .is_some_and(|bits| bits[access / 64] >> (access % 64) & 1 != 0)
    }

    /// Number of different pages.
    #[must_use]
    pub fn footprint(&self) -> u32 {
        self.arena.len() as u32
    }

    /// The place of a page in the arena of a replay.
    #[must_use]
    pub fn arena_page(&self, id: u32) -> u32 {
        self.arena[id as usize]
    }

    /// Length of that arena in pages, a whole number of leaves.
    #[must_use]
    pub fn arena_pages(&self) -> u32 {
        self.arena_pages
    }
}

/// Assigns places in the arena to pages. Returns these and the arena's length.
fn place(pages: &[u64]) -> (Vec<u32>, u32) {
    let leaf_pages = u64::from(LEAF_PAGES);
    let mut leaves: FxHashMap<u64, u32> = FxHashMap::default();
    for page in pages {
        let next = leaves.len() as u32;
        leaves.entry(page / leaf_pages).or_insert(next);
    }
    let in_leaves = leaves.len() as u64 * leaf_pages;
    if in_leaves <= SPARSE * pages.len() as u64 && in_leaves <= u64::from(MAX_ARENA_PAGES) {
        let at =
            |page: &u64| leaves[&(page / leaf_pages)] * LEAF_PAGES + (page % leaf_pages) as u32;
        (pages.iter().map(at).collect(), in_leaves as u32)
    } else {
        let n = pages.len() as u32;
        let whole = u64::from(n).next_multiple_of(leaf_pages);
        (
            (0..n).collect(),
            whole.min(u64::from(MAX_ARENA_PAGES)) as u32,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_stay_neighbours() {
        let base = 0x7f00_0000_u64 * 512;
        // Two leaves lie far apart, and each is used backwards.
        let pages = (0..512).rev().flat_map(|n| [base + n, base * 2 + n]);
        let trace = Trace::of_pages(pages);
        assert_eq!((trace.footprint(), trace.arena_pages()), (1024, 1024));
        assert_eq!(trace.arena_page(trace.ids()[0]), 511);
        assert_eq!(trace.arena_page(trace.ids()[1]), 1023);
        assert_eq!(trace.arena_page(trace.ids()[2]), 510);
    }

    #[test]
    fn scattered_numbers_do_not_blow_up_the_arena() {
        let trace = Trace::of_pages((0..1000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert_eq!((trace.footprint(), trace.arena_pages()), (1000, 1024));
    }

    #[test]
    fn writes_are_kept_beside_the_pages() {
        let accesses = (0..130).map(|n| {
            Ok(Access {
                page: n % 3,
                write: n % 7 == 0,
            })
        });
        let trace = Trace::read(accesses, true).unwrap();
        assert!((0..130).all(|n| trace.is_write(n) == n.is_multiple_of(7)));
    }

    #[test]
    fn an_empty_input_is_not_a_trace() {
        let nothing = std::iter::empty();
        assert!(matches!(
            Trace::read(nothing, false),
            Err(TraceError::Empty)
        ));
    }
}
