//! The parts of memory on which a process's budget is spent.
//!
//! The budget covers the whole process, however much of it Millpond manages. So its parts are the managed memory, by
//! where it is; the memory that Millpond needs for that; the rest of the process, which is what the kernel counts
//! beyond these; and the unused part. The parts are written at one moment, but the kernel counts at another and
//! attributes shared pages in its own way: if it counts less than the sum of the parts, the rest is zero.
//!
//! A bar of cells shows the parts. Each part ends at the cell of the cumulative sum, so that rounding errors do not add
//! up. The bar is as long as the budget, or as the memory in use if that is more.

use millpond_board::{Field, Fields};

const PAGE: u64 = 4096;

/// A place where memory of the budget is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Memory that is mapped in the program and in use.
    Mapped,
    /// Memory in RAM that was taken out of the program.
    Limbo,
    /// Memory in RAM that is lazily freed.
    Lazy,
    /// Unused frames.
    FreeFrames,
    /// Memory that compressed RAM takes, and that other stores need.
    Store,
    /// Millpond's tables.
    Metadata,
    /// Memory of the program that is not managed.
    Rest,
    /// The unused part.
    Left,
}

impl Part {
    /// The part's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Limbo => "limbo",
            Self::Lazy => "lazily freed",
            Self::FreeFrames => "free frames",
            Self::Store => "store",
            Self::Metadata => "metadata",
            Self::Rest => "rest of the process",
            Self::Left => "left",
        }
    }

    /// The symbol for a cell of the part: it differs from its neighbours even without colours.
    #[must_use]
    pub const fn symbol(self) -> char {
        match self {
            Self::Mapped => '█',
            Self::Limbo => '▓',
            Self::Lazy => '▒',
            Self::FreeFrames => '░',
            Self::Store => '#',
            Self::Metadata => '=',
            Self::Rest => '+',
            Self::Left => '·',
        }
    }
}

/// The parts and their bytes, in the order in which they are shown.
#[must_use]
pub fn parts(fields: &Fields) -> [(Part, u64); 8] {
    let of = |field| fields.get(field);
    let lazy = of(Field::LazyFree);
    let lazy_mapped = of(Field::LazyFreeMapped).min(lazy);
    let managed = [
        (
            Part::Mapped,
            (of(Field::NrMapped) * PAGE).saturating_sub(lazy_mapped),
        ),
        (
            Part::Limbo,
            (of(Field::NrLimbo) * PAGE).saturating_sub(lazy - lazy_mapped),
        ),
        (Part::Lazy, lazy),
        (Part::FreeFrames, of(Field::NrFreeFrames) * PAGE),
        (Part::Store, of(Field::StoreRam)),
        (Part::Metadata, of(Field::Metadata)),
    ];
    let together: u64 = managed.iter().map(|(_, bytes)| bytes).sum();
    let rest = of(Field::Rss).saturating_sub(together);
    let left = of(Field::Budget).saturating_sub(together + rest);
    let [a, b, c, d, e, f] = managed;
    [a, b, c, d, e, f, (Part::Rest, rest), (Part::Left, left)]
}

/// The number of cells, of `width`, that each part has.
#[must_use]
pub fn cells(parts: &[(Part, u64)], width: u16) -> Vec<(Part, usize)> {
    let whole: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    let mut before = 0;
    let mut drawn = 0;
    let cells = parts.iter().map(|&(part, bytes)| {
        before += bytes;
        let end = before as f64 / whole.max(1) as f64 * f64::from(width);
        let count = (end.round() as usize).saturating_sub(drawn);
        drawn += count;
        (part, count)
    });
    cells.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fields(values: &[(Field, u64)]) -> Fields {
        let mut fields = Fields::default();
        for &(field, value) in values {
            fields.set(field, value);
        }
        fields
    }

    #[test]
    fn parts_add_up_to_the_budget() {
        let pages = MIB / PAGE;
        let fields = fields(&[
            (Field::Budget, 64 * MIB),
            (Field::Rss, 58 * MIB),
            (Field::NrMapped, 30 * pages),
            (Field::NrLimbo, 8 * pages),
            (Field::LazyFree, 6 * MIB),
            (Field::LazyFreeMapped, 4 * MIB),
            (Field::NrFreeFrames, 2 * pages),
            (Field::StoreRam, 8 * MIB),
            (Field::Metadata, MIB),
        ]);
        let parts = parts(&fields);
        let mib = parts.map(|(_, bytes)| bytes / MIB);
        assert_eq!(mib, [26, 6, 6, 2, 8, 1, 9, 6]);
        assert_eq!(mib.iter().sum::<u64>(), 64);
        let counts: Vec<_> = cells(&parts, 32).into_iter().map(|(_, n)| n).collect();
        assert_eq!(counts, [13, 3, 3, 1, 4, 1, 4, 3]);
        for width in [0, 1, 7, 1000] {
            let sum: usize = cells(&parts, width).iter().map(|(_, n)| n).sum();
            assert_eq!(sum, usize::from(width));
        }
    }

    #[test]
    fn bar_is_scaled_to_memory_above_the_budget() {
        let fields = fields(&[
            (Field::Budget, 16 * MIB),
            (Field::Rss, 10 * MIB),
            (Field::NrMapped, 20 * MIB / PAGE),
        ]);
        let parts = parts(&fields);
        assert_eq!((parts[0].1, parts[6].1, parts[7].1), (20 * MIB, 0, 0));
        assert_eq!(cells(&parts, 10)[0], (Part::Mapped, 10));
        let nothing = self::parts(&Fields::default());
        assert!(cells(&nothing, 10).iter().all(|&(_, count)| count == 0));
    }
}
