//! Zones of free addresses, which determine the addresses that each request can get.
//!
//! A space that starts low covers addresses that programs ask for by number, because a pointer must fit in 32 bits or
//! because a runtime's design fixes its heap. Natively these are free, because the kernel allocates addresses from
//! the other end. If the space gave them to requests that name no address, a program that names one would come too
//! late. We measured these natively:
//!
//! | request | wanted addresses |
//! | --- | --- |
//! | `MAP_32BIT` | between 1 and 2 GiB |
//! | sbcl | 1.25 GiB for static and 64 GiB for dynamic memory, or does not start |
//! | a JVM's heap | so that it ends at 4 GiB, else anywhere below 32 GiB |
//! | a JVM's archive of classes | 32 GiB |
//! | ghc's heap | a reservation of 1 TiB from 264 GiB on |
//! | Go's heap | from 768 GiB on |
//!
//! So the free addresses are divided into zones, each with its own gaps. A request that names an address gets it if
//! it is free. A request that names none gets one from the last zone, or from the one before it if the last is full.
//! Addresses below 4 GiB are given out only by name, or for `MAP_32BIT`.

use super::gap::Gaps;
use super::{GIGABYTE, Range};

/// The end of the addresses for `MAP_32BIT`, as the kernel defines it.
const END_OF_32BIT: usize = 2 << 30;
/// The end of the low addresses, which are given out only by name.
const LOW: usize = 4 << 30;
/// The end of the addresses that runtimes ask for by number: after ghc's.
const NAMED: usize = 1344 << 30;
/// A space that starts at this address or above contains none of these addresses.
const LOWEST: usize = 64 << 30;
/// A space shorter than this should lie where the kernel places it: the low addresses that it occupies are lost to
/// others.
pub const LEAST: usize = 16 << 30;

/// The free addresses by zone, lowest first.
pub struct Zones(Vec<(Range, Gaps)>);

impl Zones {
    /// Creates zones of `bounds` in which everything is free.
    pub fn new(bounds: Range) -> Self {
        let mut borders = Vec::new();
        if bounds.start < LOWEST && bounds.len() >= LEAST {
            // A short space keeps a quarter for requests that name no address.
            let most = bounds.start + (bounds.len() / 4 * 3).next_multiple_of(GIGABYTE);
            borders.extend([END_OF_32BIT, LOW, NAMED.min(most)]);
            borders.retain(|&border| bounds.start < border);
        }
        borders.push(bounds.end);
        let mut start = bounds.start;
        let zone = |end| {
            let mut gaps = Gaps::default();
            gaps.give(start..end);
            let zone = (start..end, gaps);
            start = end;
            zone
        };
        Self(borders.into_iter().map(zone).collect())
    }

    /// Makes `range`, no part of which is free yet, free.
    pub fn give(&mut self, range: Range) {
        self.each(&range, |gaps, part| gaps.give(part));
    }

    /// Makes all of `range` not free, whether it was free or not.
    pub fn take(&mut self, range: Range) {
        self.each(&range, |gaps, part| gaps.take(part));
    }

    fn each(&mut self, range: &Range, mut work: impl FnMut(&mut Gaps, Range)) {
        for (zone, gaps) in &mut self.0 {
            let part = range.start.max(zone.start)..range.end.min(zone.end);
            if part.start < part.end {
                work(gaps, part);
            }
        }
    }

    /// Returns whether all of `range` is free.
    pub fn holds(&self, range: &Range) -> bool {
        let mut at = range.start;
        for (zone, gaps) in &self.0 {
            let part = at..range.end.min(zone.end);
            if zone.contains(&at) && part.start < part.end {
                if !gaps.holds(&part) {
                    return false;
                }
                at = part.end;
            }
        }
        at >= range.end
    }

    /// Returns the gaps for requests that name no address, best first.
    fn unnamed(&self) -> impl Iterator<Item = &Gaps> {
        let last = self.0.len() - 1;
        let usable = self.0.iter().enumerate().rev();
        let usable = usable.filter(move |(n, (zone, _))| *n == last || zone.start >= LOW);
        usable.map(|(_, (_, gaps))| gaps)
    }

    /// Returns a place for a request that names none. [`Gaps::find`] chooses it within a zone.
    pub fn find(&self, len: usize, align: usize) -> Option<usize> {
        self.unnamed().find_map(|gaps| gaps.find(len, align))
    }

    /// Returns a place aligned like `addr`, for a request that names none. [`Gaps::find_like`] chooses it within a
    /// zone.
    pub fn find_like(&self, len: usize, addr: usize) -> Option<usize> {
        self.unnamed().find_map(|gaps| gaps.find_like(len, addr))
    }

    /// Returns a place for `len` bytes that satisfies `MAP_32BIT`.
    pub fn find_32bit(&self, len: usize, align: usize) -> Option<usize> {
        let zones = self.0.iter();
        let mut low = zones.take_while(|(zone, _)| zone.end <= END_OF_32BIT);
        low.find_map(|(_, gaps)| gaps.find(len, align))
    }

    /// Returns the number of free bytes.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.0.iter().map(|(_, gaps)| gaps.total()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAGE;
    use super::*;

    const SPACE: Range = GIGABYTE..1793 * GIGABYTE;

    #[test]
    fn requests_without_a_hint_avoid_addresses_that_programs_name() {
        let mut zones = Zones::new(SPACE);
        assert_eq!(zones.find(PAGE, PAGE), Some(NAMED));
        assert_eq!(zones.find_like(PAGE, 5 * PAGE), Some(NAMED + 5 * PAGE));
        assert_eq!(zones.find_32bit(PAGE, PAGE), Some(GIGABYTE));
        // When these are all in use, and for longer requests, the addresses that only runtimes name are given out.
        assert_eq!(zones.find(1024 * GIGABYTE, PAGE), Some(LOW));
        zones.take(NAMED..SPACE.end);
        assert_eq!(zones.find(PAGE, PAGE), Some(LOW));
        zones.take(LOW..NAMED);
        assert_eq!(zones.find(PAGE, PAGE), None);
        assert_eq!(zones.find_32bit(GIGABYTE, PAGE), Some(GIGABYTE));
        assert_eq!(zones.find_32bit(GIGABYTE + PAGE, PAGE), None);
        assert_eq!(zones.total(), 3 * GIGABYTE);
    }

    #[test]
    fn a_range_across_zones_is_free_if_all_its_parts_are() {
        let mut zones = Zones::new(SPACE);
        let across = END_OF_32BIT - PAGE..LOW + PAGE;
        assert!(zones.holds(&across) && zones.holds(&SPACE));
        assert!(!zones.holds(&(0..SPACE.start + PAGE)));
        assert!(!zones.holds(&(SPACE.end - PAGE..SPACE.end + PAGE)));
        zones.take(across.clone());
        for part in [END_OF_32BIT, LOW, LOW - PAGE] {
            assert!(!zones.holds(&(part..part + PAGE)));
        }
        assert_eq!(zones.total(), SPACE.len() - across.len());
        zones.give(across.clone());
        assert!(zones.holds(&across) && zones.total() == SPACE.len());
    }

    #[test]
    fn a_kernel_placed_space_is_one_zone_and_a_short_one_keeps_a_quarter() {
        let high = 0x7000 * GIGABYTE..0x7100 * GIGABYTE;
        assert_eq!(Zones::new(high.clone()).find(PAGE, PAGE), Some(high.start));
        assert_eq!(Zones::new(high).find_32bit(PAGE, PAGE), None);
        let short = GIGABYTE..257 * GIGABYTE;
        assert_eq!(Zones::new(short).find(PAGE, PAGE), Some(193 * GIGABYTE));
        let least = Zones::new(GIGABYTE..17 * GIGABYTE);
        assert_eq!(least.find(PAGE, PAGE), Some(13 * GIGABYTE));
        assert_eq!(least.find_32bit(PAGE, PAGE), Some(GIGABYTE));
        let behind = 8 * GIGABYTE..200 * GIGABYTE;
        assert_eq!(Zones::new(behind).find_32bit(PAGE, PAGE), None);
    }
}
