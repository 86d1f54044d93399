//! Regions: allocated runs of arena addresses, each with the order of its folios.
//!
//! A region starts at a leaf boundary (2 MiB), so address → region is one array access and no leaf is shared. The free
//! addresses are a sorted list of runs, allocated first fit; making and dropping regions is not on the fault path.
//!
//! A region of 64 GiB or more is not in that array but in a short list, which is searched first. The addresses of a
//! whole program are one region of a terabyte or more, and its part of the array would take megabytes of memory with
//! the same value in every entry.

use super::extent::extent;
use crate::addr::{LEAF_PAGES, PageCount, PageIndex, PageRange};
use crate::ids::{GroupId, Kind, NodeId, RegionId};
use crate::policy::order::{Habit, OrderPolicy};
use std::ops::Range;

const PLACE_BITS: u32 = 20;
/// The value of a leaf without a region. Seats are numbered from one in the table of leaves, so that leaves without a
/// region take no memory.
const NO_REGION: u32 = 0;
/// Number of leaves in 1 GiB.
const GIGABYTE: u32 = 512;
/// Fewest leaves of a region that is recorded as a whole (64 GiB).
const WIDE: u32 = 64 * GIGABYTE;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) range: PageRange,
    pub(crate) order: OrderPolicy,
    pub(crate) kind: Kind,
    /// The group that the region's memory is charged to.
    pub(crate) group: GroupId,
    /// While the region changes groups: the old group, and the page from which on everything is still charged to it.
    pub(crate) leaving: Option<(GroupId, PageIndex)>,
    /// The node that the region's memory should be on.
    pub(crate) node: NodeId,
    /// How long the region's runs of faults are.
    pub(crate) habit: Habit,
    /// The region with the contents of this region's empty entries; see `ops/snapshot.rs`.
    pub(crate) base: Option<RegionId>,
    /// How many regions have this one as their base.
    pub(crate) heirs: u32,
    /// Whether the region is about to be dropped, so that no fault brings anything in.
    pub(crate) ending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    region: Option<Region>,
    generation: u32,
}

#[derive(Debug)]
pub(crate) struct Regions {
    seats: Vec<Seat>,
    free_seats: Vec<u32>,
    /// Number of regions whose pages are a file's.
    of_files: u32,
    /// For each leaf of the arena the seat of its region, plus one.
    leaves: Vec<u32>,
    /// The wide regions: first leaf, length, seat.
    wide: Vec<(u32, u32, u32)>,
    /// Free runs of leaves (start, length), sorted and never adjacent.
    gaps: Vec<(u32, u32)>,
}

impl Regions {
    pub(crate) fn new(arena: PageCount) -> Self {
        let leaves = arena.0 / LEAF_PAGES;
        Self {
            seats: Vec::new(),
            free_seats: Vec::new(),
            of_files: 0,
            leaves: vec![NO_REGION; leaves as usize],
            wide: Vec::new(),
            gaps: vec![(0, leaves)],
        }
    }

    /// Calls `each` with the addresses of each long table.
    pub(crate) fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        each(extent(&self.leaves));
    }

    /// Hands out `pages` pages. Returns `None` when no gap is long enough.
    pub(crate) fn create(
        &mut self,
        pages: PageCount,
        order: OrderPolicy,
        kind: Kind,
        node: NodeId,
    ) -> Option<(RegionId, PageRange)> {
        let want = pages.0.div_ceil(LEAF_PAGES);
        let (gap, skip) = self.gap_for(want)?;
        if self.free_seats.is_empty() && self.seats.len() >= 1 << PLACE_BITS {
            return None;
        }
        let first = self.gaps[gap].0 + skip;
        self.take(gap, skip, want);
        let range = PageRange::new(PageIndex(first * LEAF_PAGES), pages);
        let region = Some(Region {
            range,
            order,
            kind,
            group: GroupId::ROOT,
            leaving: None,
            node,
            habit: Habit::default(),
            base: None,
            heirs: 0,
            ending: false,
        });
        let seat = match self.free_seats.pop() {
            Some(seat) => {
                self.seats[seat as usize].region = region;
                seat
            }
            None => {
                self.seats.push(Seat {
                    region,
                    generation: 0,
                });
                self.seats.len() as u32 - 1
            }
        };
        self.occupy(first, want, seat);
        self.of_files += u32::from(kind != Kind::Anonymous);
        Some((self.name(seat), range))
    }

    /// The first gap with room for `want` leaves, and how many leaves of the gap come before them. A region of 1 GiB or
    /// more begins at a multiple of 1 GiB if there is room, as the kernel can then move its page tables by the
    /// gigabyte.
    fn gap_for(&self, want: u32) -> Option<(usize, u32)> {
        let find = |align: u32| {
            let skip = |&(start, _): &(u32, u32)| start.next_multiple_of(align) - start;
            let fits = |gap: &&(u32, u32)| skip(gap).saturating_add(want) <= gap.1;
            let at = self.gaps.iter().position(|gap| fits(&gap))?;
            Some((at, skip(&self.gaps[at])))
        };
        (want >= GIGABYTE)
            .then(|| find(GIGABYTE))
            .flatten()
            .or_else(|| find(1))
    }

    /// Takes `len` leaves out of a gap, after `skip` leaves that stay in it.
    fn take(&mut self, gap: usize, skip: u32, len: u32) {
        let (start, all) = self.gaps[gap];
        let rest = (start + skip + len, all - skip - len);
        match (skip, rest.1) {
            (0, 0) => {
                self.gaps.remove(gap);
            }
            (0, _) => self.gaps[gap] = rest,
            (_, 0) => self.gaps[gap].1 = skip,
            _ => {
                self.gaps[gap].1 = skip;
                self.gaps.insert(gap + 1, rest);
            }
        }
    }

    /// Changes a region's length, if the addresses behind it allow that.
    pub(crate) fn resize(&mut self, id: RegionId, pages: PageCount) -> Option<PageRange> {
        let region = self.get(id)?;
        let (first, old) = (
            region.range.start.leaf(),
            region.range.len.0.div_ceil(LEAF_PAGES),
        );
        let want = pages.0.div_ceil(LEAF_PAGES);
        let seat = id.0 & ((1 << PLACE_BITS) - 1);
        if want > old {
            let behind = |&(start, len): &(u32, u32)| start == first + old && len >= want - old;
            let gap = self.gaps.iter().position(behind)?;
            self.take(gap, 0, want - old);
        }
        if want != old && old.max(want) >= WIDE {
            self.vacate(first, old);
            self.occupy(first, want, seat);
        } else if want > old {
            self.occupy(first + old, want - old, seat);
        } else {
            self.vacate(first + want, old - want);
        }
        if want < old {
            self.give_back(first + want, old - want);
        }
        let region = self.get_mut(id)?;
        region.range.len = pages;
        Some(region.range)
    }

    /// Takes a region's addresses back.
    pub(crate) fn remove(&mut self, id: RegionId) {
        let Some(region) = self.get(id).copied() else {
            return;
        };
        let seat = id.0 & ((1 << PLACE_BITS) - 1);
        let first = region.range.start.leaf();
        let len = region.range.len.0.div_ceil(LEAF_PAGES);
        self.vacate(first, len);
        let entry = &mut self.seats[seat as usize];
        entry.region = None;
        self.of_files -= u32::from(region.kind != Kind::Anonymous);
        entry.generation = (entry.generation + 1) % (1 << (32 - PLACE_BITS));
        self.free_seats.push(seat);
        self.give_back(first, len);
    }

    /// Records that the leaves belong to the region in `seat`. Of a wide region they must be all its leaves.
    fn occupy(&mut self, first: u32, len: u32, seat: u32) {
        match len >= WIDE {
            true => self.wide.push((first, len, seat)),
            false => self.leaves[first as usize..(first + len) as usize].fill(seat + 1),
        }
    }

    /// Records that the leaves, which [`occupy`](Self::occupy) gave to one region, belong to no region.
    fn vacate(&mut self, first: u32, len: u32) {
        match len >= WIDE {
            true => self.wide.retain(|wide| wide.0 != first),
            false => self.leaves[first as usize..(first + len) as usize].fill(NO_REGION),
        }
    }

    /// The seat of the region that the leaf belongs to.
    fn seat_of(&self, leaf: u32) -> Option<u32> {
        let within = |&&(first, len, _): &&(u32, u32, u32)| leaf.wrapping_sub(first) < len;
        match self.wide.iter().find(within) {
            Some(&(_, _, seat)) => Some(seat),
            None => self.leaves.get(leaf as usize)?.checked_sub(1),
        }
    }

    pub(crate) fn get(&self, id: RegionId) -> Option<&Region> {
        let seat = self.seats.get((id.0 & ((1 << PLACE_BITS) - 1)) as usize)?;
        if seat.generation != id.0 >> PLACE_BITS {
            return None;
        }
        seat.region.as_ref()
    }

    /// The region of this name, mutably.
    pub(crate) fn get_mut(&mut self, id: RegionId) -> Option<&mut Region> {
        self.get(id)?;
        self.seats[(id.0 & ((1 << PLACE_BITS) - 1)) as usize]
            .region
            .as_mut()
    }

    /// Transfers all regions of one group to another.
    pub(crate) fn regroup(&mut self, from: GroupId, to: GroupId) {
        for region in self
            .seats
            .iter_mut()
            .filter_map(|seat| seat.region.as_mut())
        {
            if region.group == from {
                region.group = to;
            }
            if let Some((group, _)) = region.leaving.as_mut().filter(|(group, _)| *group == from) {
                *group = to;
            }
        }
    }

    /// Number of regions whose pages are a file's.
    pub(crate) fn of_files(&self) -> u32 {
        self.of_files
    }

    /// All regions, for checks and for rare operations.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RegionId, &Region)> {
        let named = |(seat, entry)| {
            let entry: &Seat = entry;
            Some((self.name(seat as u32), entry.region.as_ref()?))
        };
        self.seats.iter().enumerate().filter_map(named)
    }

    /// The region that `page` lies in.
    pub(crate) fn of(&self, page: PageIndex) -> Option<&Region> {
        let seat = self.seat_of(page.leaf())?;
        let region = self.seats.get(seat as usize)?.region.as_ref()?;
        region.range.contains(page).then_some(region)
    }

    /// The region that `page` lies in, mutably.
    pub(crate) fn of_mut(&mut self, page: PageIndex) -> Option<&mut Region> {
        let seat = self.seat_of(page.leaf())?;
        let region = self.seats.get_mut(seat as usize)?.region.as_mut()?;
        region.range.contains(page).then_some(region)
    }

    fn name(&self, seat: u32) -> RegionId {
        RegionId(self.seats[seat as usize].generation << PLACE_BITS | seat)
    }

    fn give_back(&mut self, first: u32, len: u32) {
        let at = self.gaps.partition_point(|&(start, _)| start < first);
        self.gaps.insert(at, (first, len));
        if at + 1 < self.gaps.len() && first + len == self.gaps[at + 1].0 {
            self.gaps[at].1 += self.gaps.remove(at + 1).1;
        }
        if at > 0 && self.gaps[at - 1].0 + self.gaps[at - 1].1 == first {
            self.gaps[at - 1].1 += self.gaps.remove(at).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Order;

    fn regions() -> Regions {
        Regions::new(PageCount(8 * LEAF_PAGES))
    }

    #[test]
    fn freed_addresses_are_joined_and_reused() {
        let mut regions = regions();
        let ids: Vec<_> = (0..4)
            .map(|_| {
                regions
                    .create(
                        PageCount(2 * LEAF_PAGES),
                        Order::ZERO.into(),
                        Kind::Anonymous,
                        NodeId(0),
                    )
                    .unwrap()
                    .0
            })
            .collect();
        assert!(
            regions
                .create(PageCount(1), Order::ZERO.into(), Kind::Anonymous, NodeId(0))
                .is_none()
        );
        for id in [ids[2], ids[0], ids[1], ids[3]] {
            regions.remove(id);
        }
        assert_eq!(regions.gaps, [(0, 8)]);
    }

    #[test]
    fn wide_region_is_found_at_all_its_leaves_after_resizes() {
        let pages = |leaves| PageCount(leaves * LEAF_PAGES);
        let mut regions = Regions::new(pages(4 * WIDE));
        let order = || Order::ZERO.into();
        let narrow = |regions: &mut Regions| {
            let made = regions.create(pages(3), order(), Kind::Anonymous, NodeId(0));
            made.unwrap().0
        };
        let before = narrow(&mut regions);
        let made = regions.create(pages(WIDE), order(), Kind::Anonymous, NodeId(0));
        let (wide, range) = made.unwrap();
        let first = range.start.leaf();
        for want in [WIDE, 2 * WIDE, WIDE - 1, 5, WIDE + 7, WIDE + 6] {
            regions.resize(wide, pages(want)).unwrap();
            let found = |leaf: u32| regions.of(PageIndex(leaf * LEAF_PAGES)).map(|of| of.range);
            let whole = regions.get(wide).unwrap().range;
            assert_eq!(whole.len, pages(want));
            for leaf in [first, first + want / 2, first + want - 1] {
                assert_eq!(found(leaf), Some(whole), "leaf {leaf} of {want}");
            }
            assert_eq!(found(first + want), None, "behind {want}");
            assert_eq!(found(2), regions.get(before).map(|region| region.range));
        }
        regions.remove(wide);
        assert!(regions.of(range.start).is_none() && regions.wide.is_empty());
        regions.remove(before);
        assert_eq!(regions.gaps, [(0, 4 * WIDE)]);
    }

    #[test]
    fn id_of_a_dropped_region_never_becomes_valid_again() {
        let mut regions = regions();
        let (old, range) = regions
            .create(PageCount(1), Order::ZERO.into(), Kind::Anonymous, NodeId(0))
            .unwrap();
        regions.remove(old);
        let (new, again) = regions
            .create(PageCount(1), Order::ZERO.into(), Kind::Anonymous, NodeId(0))
            .unwrap();
        assert_eq!(range, again);
        assert!(regions.get(old).is_none() && regions.get(new).is_some());
    }

    #[test]
    fn a_region_grows_into_the_gap_behind_it_and_gives_it_back() {
        let mut regions = regions();
        let pages = |leaves| PageCount(leaves * LEAF_PAGES);
        let (first, at) = regions
            .create(pages(2), Order::ZERO.into(), Kind::Anonymous, NodeId(0))
            .unwrap();
        let (second, _) = regions
            .create(pages(1), Order::ZERO.into(), Kind::Anonymous, NodeId(0))
            .unwrap();
        assert_eq!(
            regions.resize(first, pages(3)),
            None,
            "somebody is in the way"
        );
        regions.remove(second);
        assert_eq!(
            regions.resize(first, pages(8)).map(|range| range.len),
            Some(pages(8))
        );
        assert!(regions.gaps.is_empty());
        assert!(regions.of(at.start.plus(8 * LEAF_PAGES - 1)).is_some());
        assert_eq!(
            regions.resize(first, PageCount(1)).map(|range| range.len.0),
            Some(1)
        );
        assert_eq!(regions.gaps, [(1, 7)]);
        assert!(regions.of(at.start.plus(1)).is_none());
    }

    #[test]
    fn a_gigabyte_begins_at_a_multiple_of_itself_where_there_is_room() {
        let mut regions = Regions::new(PageCount(3 * GIGABYTE * LEAF_PAGES));
        let gigabyte = PageCount(GIGABYTE * LEAF_PAGES);
        let starts = [PageCount(1), gigabyte, gigabyte].map(|pages| {
            let (_, range) = regions
                .create(pages, Order::ZERO.into(), Kind::Anonymous, NodeId(0))
                .unwrap();
            range.start.leaf()
        });
        assert_eq!(starts, [0, GIGABYTE, 2 * GIGABYTE]);
        assert_eq!(regions.gaps, [(1, GIGABYTE - 1)]);
        assert!(
            regions
                .create(gigabyte, Order::ZERO.into(), Kind::Anonymous, NodeId(0))
                .is_none()
        );
    }

    #[test]
    fn a_page_beyond_a_regions_last_is_outside() {
        let mut regions = regions();
        let (_, range) = regions
            .create(PageCount(3), Order::ZERO.into(), Kind::Anonymous, NodeId(0))
            .unwrap();
        assert!(regions.of(range.start.plus(2)).is_some());
        assert!(regions.of(range.start.plus(3)).is_none());
    }
}
