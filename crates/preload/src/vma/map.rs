//! The program's mappings in the space: areas by address, like the kernel's list of VMAs.
//!
//! The kernel sees one big mapping with a few protections and the program's own file mappings on top. Only this map
//! knows which pages of it the program believes it has, and of what kind. Areas never overlap, adjacent areas of one
//! kind are joined, and addresses that are in no area are in the gaps.

use super::zones::Zones;
use super::{Kind, PAGE, Range};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Area {
    end: usize,
    kind: Kind,
}

/// The areas of one space.
pub struct Map {
    bounds: Range,
    areas: BTreeMap<usize, Area>,
    gaps: Zones,
}

/// A part of a range that belongs to one area, or to none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The addresses of the piece.
    pub range: Range,
    /// The kind of the area there; `None` if nothing is mapped.
    pub kind: Option<Kind>,
}

impl Map {
    /// Creates a map of `bounds` with nothing in it.
    pub fn new(bounds: Range) -> Self {
        Self {
            gaps: Zones::new(bounds.clone()),
            bounds,
            areas: BTreeMap::new(),
        }
    }

    /// Splits an area so that one starts at `addr`, if one spans it.
    fn cut(&mut self, addr: usize) {
        if let Some((&start, area)) = self.areas.range_mut(..addr).next_back()
            && area.end > addr
        {
            let tail = Area {
                end: area.end,
                kind: area.kind,
            };
            area.end = addr;
            debug_assert!(start < addr);
            self.areas.insert(addr, tail);
        }
    }

    fn erase(&mut self, range: &Range) {
        self.cut(range.start);
        self.cut(range.end);
        while let Some((&start, _)) = self.areas.range(range.clone()).next() {
            self.areas.remove(&start);
        }
    }

    /// Gives all of `range` (not empty, inside the bounds) this kind, whatever was there.
    pub fn insert(&mut self, range: Range, kind: Kind) {
        debug_assert!(range.start < range.end);
        debug_assert!(range.start >= self.bounds.start && range.end <= self.bounds.end);
        self.erase(&range);
        self.gaps.take(range.clone());
        let mut whole = range;
        if let Some((&start, area)) = self.areas.range(..whole.start).next_back()
            && area.end == whole.start
            && area.kind == kind
        {
            whole.start = start;
        }
        if let Some(area) = self.areas.get(&whole.end)
            && area.kind == kind
        {
            let end = area.end;
            self.areas.remove(&whole.end);
            whole.end = end;
        }
        self.areas.insert(
            whole.start,
            Area {
                end: whole.end,
                kind,
            },
        );
    }

    /// Makes all of `range` free.
    pub fn remove(&mut self, range: Range) {
        for piece in self.pieces(range.clone()) {
            if piece.kind.is_some() {
                self.erase(&piece.range);
                self.gaps.give(piece.range);
            }
        }
    }

    /// Returns the pieces of `range`, cut to it, in order and without holes.
    pub fn pieces(&self, range: Range) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let piece = self.first_piece(at..range.end);
            at = piece.range.end;
            pieces.push(piece);
        }
        pieces
    }

    /// Returns the first piece of `range`, which is not empty.
    pub fn first_piece(&self, range: Range) -> Piece {
        let at = range.start;
        let before = self.areas.range(..=at).next_back();
        let (end, kind) = match before.filter(|(_, area)| area.end > at) {
            Some((_, area)) => (area.end, Some(area.kind)),
            None => {
                let next = self.areas.range(at..range.end).next();
                (next.map_or(range.end, |area| *area.0), None)
            }
        };
        Piece {
            range: at..end.min(range.end),
            kind,
        }
    }

    /// Returns the address and length of each of the kernel's mappings in the space, in order.
    pub fn foreign(&self) -> Vec<(usize, usize)> {
        let areas = self.areas.iter();
        let foreign = areas.filter(|(_, area)| area.kind == Kind::Foreign);
        foreign
            .map(|(&start, area)| (start, area.end - start))
            .collect()
    }

    /// The managed areas whose pages may hold something, in order.
    pub fn opened(&self) -> impl Iterator<Item = (Range, Kind)> {
        let areas = self.areas.iter();
        let opened =
            areas.filter(|(_, area)| matches!(area.kind, Kind::Managed { opened: true, .. }));
        opened.map(|(&start, area)| (start..area.end, area.kind))
    }

    /// Returns whether `range` lies inside the bounds and nothing is mapped in it.
    pub fn is_free(&self, range: &Range) -> bool {
        self.gaps.holds(range)
    }

    /// Returns a free place for `len` bytes at a multiple of `align`. [`Zones::find`] chooses it.
    pub fn find(&self, len: usize, align: usize) -> Option<usize> {
        self.gaps.find(len, align)
    }

    /// Returns a free place for `len` bytes that is aligned like `addr`. [`Zones::find_like`] chooses it.
    pub fn find_like(&self, len: usize, addr: usize) -> Option<usize> {
        self.gaps.find_like(len, addr)
    }

    /// Returns a free place for `len` bytes that satisfies `MAP_32BIT`.
    pub fn find_32bit(&self, len: usize) -> Option<usize> {
        self.gaps.find_32bit(len, PAGE)
    }

    /// Returns the addresses that this map covers.
    pub fn bounds(&self) -> Range {
        self.bounds.clone()
    }

    #[cfg(test)]
    pub fn check(&self) {
        let mut before: Option<Area> = None;
        let mut mapped = 0;
        for (&start, area) in &self.areas {
            assert!(start < area.end);
            if let Some(before) = before {
                assert!(before.end <= start);
                assert!(
                    before.end < start || before.kind != area.kind,
                    "not joined at {start:#x}"
                );
            }
            mapped += area.end - start;
            before = Some(*area);
        }
        assert_eq!(
            mapped + self.gaps.total(),
            self.bounds.end - self.bounds.start
        );
    }
}
