//! Small sets of address ranges that have a property in common.

use super::Range;

/// A set of ranges, in order and apart.
#[derive(Default)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// Adds a range, which may overlap ranges of the set.
    pub fn add(&mut self, range: Range) {
        let mut whole = range;
        self.0.retain(|old| {
            let joins = old.start <= whole.end && whole.start <= old.end;
            if joins {
                whole = whole.start.min(old.start)..whole.end.max(old.end);
            }
            !joins
        });
        let place = self.0.partition_point(|old| old.start < whole.start);
        self.0.insert(place, whole);
    }

    /// `range` in parts, each with whether it is in the set.
    pub fn parts(&self, range: Range) -> Vec<(Range, bool)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        for one in &self.0 {
            let start = one.start.clamp(at, range.end);
            let end = one.end.clamp(at, range.end);
            if start < end {
                if at < start {
                    parts.push((at..start, false));
                }
                parts.push((start..end, true));
                at = end;
            }
        }
        if at < range.end {
            parts.push((at..range.end, false));
        }
        parts
    }

    /// Removes a range from the set, whether it is there or not.
    pub fn remove(&mut self, range: &Range) {
        let touched = |one: &Range| one.start < range.end && range.start < one.end;
        if !self.0.iter().any(touched) {
            return;
        }
        let rest = self.0.iter().flat_map(|one| {
            let before = one.start..one.end.min(range.start);
            let after = one.start.max(range.end)..one.end;
            [before, after]
        });
        self.0 = rest.filter(|part| part.start < part.end).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_range_and_name_what_is_in() {
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
    fn what_is_taken_out_leaves_the_rest() {
        let mut ranges = Ranges::default();
        ranges.add(10..20);
        ranges.add(30..40);
        ranges.remove(&(15..35));
        assert_eq!(ranges.0, vec![10..15, 35..40]);
        ranges.remove(&(11..12));
        assert_eq!(ranges.0, vec![10..11, 12..15, 35..40]);
        ranges.remove(&(0..100));
        assert_eq!(ranges.0, vec![]);
    }
}
