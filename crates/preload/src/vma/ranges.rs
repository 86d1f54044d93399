//! Small sets of address ranges that share a property.

use super::Range;
use rangemap::RangeSet;

/// A set of ranges, ordered and disjoint.
#[derive(Default)]
pub struct Ranges(RangeSet<usize>);

impl Ranges {
    /// Adds a range, which may overlap ranges of the set.
    pub fn add(&mut self, range: Range) {
        if !range.is_empty() {
            self.0.insert(range);
        }
    }

    /// Returns `range` in parts, each with whether it is in the set.
    pub fn parts(&self, range: Range) -> Vec<(Range, bool)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        for one in self.0.overlapping(&range) {
            let (start, end) = (one.start.max(at), one.end.min(range.end));
            if at < start {
                parts.push((at..start, false));
            }
            if start < end {
                parts.push((start..end, true));
            }
            at = end;
        }
        if at < range.end {
            parts.push((at..range.end, false));
        }
        parts
    }

    /// All ranges.
    pub fn all(&self) -> impl Iterator<Item = &Range> {
        self.0.iter()
    }

    /// Removes a range from the set, whether it is in it or not.
    pub fn remove(&mut self, range: &Range) {
        if !range.is_empty() {
            self.0.remove(range.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_range_and_say_which_are_in_the_set() {
        let mut ranges = Ranges::default();
        ranges.add(30..40);
        ranges.add(10..20);
        ranges.add(20..25);
        let expected = vec![
            (5..10, false),
            (10..25, true),
            (25..30, false),
            (30..35, true),
        ];
        assert_eq!(ranges.parts(5..35), expected);
        assert_eq!(ranges.parts(12..14), vec![(12..14, true)]);
        assert_eq!(ranges.parts(50..60), vec![(50..60, false)]);
        ranges.add(0..100);
        assert_eq!(ranges.parts(5..35), vec![(5..35, true)]);
    }

    #[test]
    fn removing_a_range_leaves_the_rest() {
        let mut ranges = Ranges::default();
        ranges.add(10..20);
        ranges.add(30..40);
        ranges.remove(&(15..35));
        let all = |ranges: &Ranges| ranges.0.iter().cloned().collect::<Vec<_>>();
        assert_eq!(all(&ranges), vec![10..15, 35..40]);
        ranges.remove(&(11..12));
        assert_eq!(all(&ranges), vec![10..11, 12..15, 35..40]);
        ranges.remove(&(0..100));
        assert_eq!(all(&ranges), vec![]);
    }

    /// The kernel accepts calls about no bytes at all, and so do the sets.
    #[test]
    fn empty_ranges_change_nothing_and_have_no_parts() {
        let mut ranges = Ranges::default();
        ranges.add(10..20);
        ranges.add(30..30);
        ranges.remove(&(15..15));
        assert_eq!(ranges.parts(0..40).len(), 3);
        for at in [5, 10, 15, 20] {
            assert_eq!(ranges.parts(at..at), vec![]);
        }
    }
}
