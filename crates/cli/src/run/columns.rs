//! The histories of processes in columns of equal time, for a plot and a table.
//!
//! Each process has points at its own times. A column has the amounts of the fullest moment in it, or of the last
//! moment before it while the process lives, and the rates over its length: counters are taken to grow evenly between
//! two points.

use crate::run::history::{Point, Series};
use millpond_board::Field;

/// Bytes in a page.
const PAGE: u64 = 4096;

/// A kind of memory that is resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Managed memory that the program has mapped.
    Mapped,
    /// Managed memory that the program has freed, but that is kept until the room is needed.
    LazilyFreed,
    /// Managed memory that was taken out but is not evicted yet.
    Limbo,
    /// Spare frames.
    Spare,
    /// RAM of the store.
    Store,
    /// The manager's tables.
    Tables,
    /// Code, libraries and mapped files.
    Files,
    /// Shared memory.
    Shared,
    /// All other memory: static data, stacks.
    Other,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Mapped,
        Self::LazilyFreed,
        Self::Limbo,
        Self::Spare,
        Self::Store,
        Self::Tables,
        Self::Files,
        Self::Shared,
        Self::Other,
    ];

    /// The bytes of each kind at this moment. They add up to the resident set, or to a little more: the kernel's figure
    /// and the manager's come from different moments.
    #[must_use]
    pub fn bytes(point: &Point) -> [u64; 9] {
        let pages = |field| point.get(field) * PAGE;
        let lazily_freed = point.get(Field::LazyFreeMapped);
        let mut bytes = [
            pages(Field::NrMapped).saturating_sub(lazily_freed),
            lazily_freed,
            pages(Field::NrLimbo),
            pages(Field::NrFreeFrames),
            point.get(Field::StoreRam),
            point.get(Field::Metadata),
            point.get(Field::RssFiles),
            point.get(Field::RssShared),
            0,
        ];
        let known = bytes.iter().sum();
        bytes[Self::Other as usize] = point.get(Field::Rss).saturating_sub(known);
        bytes
    }
}

/// Stretches of equal length of a run.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    span_ns: u64,
    count: usize,
}

impl Columns {
    /// Divides a run of `span_ns` into at most `most` columns of at least `step_ns`.
    #[must_use]
    pub fn new(span_ns: u64, step_ns: u64, most: usize) -> Self {
        let span_ns = span_ns.max(1);
        let fit = usize::try_from(span_ns / step_ns.max(1)).unwrap_or(most);
        Self {
            span_ns,
            count: fit.clamp(1, most),
        }
    }

    /// The length of a column in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.span_ns as f64 / 1e9 / self.count as f64
    }

    /// The number of columns.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    fn start_ns(&self, column: usize) -> u64 {
        (u128::from(self.span_ns) * column as u128 / self.count as u128) as u64
    }

    /// The moment of a process that represents each column; `None` where the process did not exist.
    #[must_use]
    pub fn moments<'a>(&self, series: &'a Series) -> Vec<Option<&'a Point>> {
        let points = &series.points;
        let last_ns = points.last().map_or(0, |last| last.at_ns);
        let of = |column| {
            let (from, to) = (self.start_ns(column), self.start_ns(column + 1));
            let first = points.partition_point(|point| point.at_ns < from);
            let after = points.partition_point(|point| point.at_ns < to);
            let fullest = points[first..after.max(first)]
                .iter()
                .max_by_key(|point| point.get(Field::Rss));
            let alive = from <= last_ns && to > series.from_ns;
            fullest.or_else(|| points[..first].last().filter(|_| alive))
        };
        (0..self.count).map(of).collect()
    }

    /// The sum over all processes of an amount at the moments that represent each column.
    #[must_use]
    pub fn amounts<const N: usize>(
        &self,
        all: &[&Series],
        of: impl Fn(&Point) -> [u64; N],
    ) -> [Vec<f64>; N] {
        let mut sums = [(); N].map(|()| vec![0.0; self.count]);
        for series in all {
            for (column, moment) in self.moments(series).into_iter().enumerate() {
                let values = moment.map_or([0; N], &of);
                for (sum, value) in sums.iter_mut().zip(values) {
                    sum[column] += value as f64;
                }
            }
        }
        sums
    }

    /// The rate per second of all processes together, in each column.
    #[must_use]
    pub fn rates(&self, all: &[&Series], field: Field) -> Vec<f64> {
        let mut rates = vec![0.0; self.count];
        for series in all {
            let mut before = 0.0;
            for (column, rate) in rates.iter_mut().enumerate() {
                let end = counted(series, field, self.start_ns(column + 1));
                *rate += (end - before) / self.seconds();
                before = end;
            }
        }
        rates
    }
}

/// What a process has counted until this moment.
fn counted(series: &Series, field: Field, at_ns: u64) -> f64 {
    let next = series.points.partition_point(|point| point.at_ns < at_ns);
    let (from_ns, from) = match next.checked_sub(1) {
        Some(last) => (series.points[last].at_ns, series.points[last].get(field)),
        None => (series.from_ns, 0),
    };
    let Some(to) = series.points.get(next) else {
        return from as f64;
    };
    if at_ns <= from_ns {
        return from as f64;
    }
    let part = (at_ns - from_ns) as f64 / (to.at_ns - from_ns).max(1) as f64;
    from as f64 + part * to.get(field).saturating_sub(from) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn series(from: u64, points: &[(u64, u64, u64)]) -> Series {
        let point = |&(at, rss, loads): &(u64, u64, u64)| {
            Point::new(at, |field| match field {
                Field::Rss => rss,
                Field::LoadCount => loads,
                _ => 0,
            })
        };
        Series {
            from_ns: from,
            points: points.iter().map(point).collect(),
        }
    }

    #[test]
    fn a_column_shows_its_fullest_moment_or_the_last_one_before() {
        let one = series(
            SECOND,
            &[
                (SECOND, 0, 0),
                (SECOND + 1, 9, 0),
                (SECOND + 2, 5, 0),
                (4 * SECOND, 7, 0),
            ],
        );
        let other = series(4 * SECOND, &[(4 * SECOND + 5, 100, 0)]);
        let columns = Columns::new(6 * SECOND, SECOND, 100);
        let [sums] = columns.amounts(&[&one, &other], |point| [point.get(Field::Rss)]);
        assert_eq!(sums, [0.0, 9.0, 5.0, 5.0, 107.0, 0.0]);
        assert_eq!(columns.seconds(), 1.0);
    }

    #[test]
    fn rates_match_the_counts_wherever_columns_begin() {
        let one = series(SECOND, &[(3 * SECOND, 1, 100), (4 * SECOND, 1, 300)]);
        let rates = |span: u64, most| {
            let columns = Columns::new(span, SECOND, most);
            columns.rates(&[&one, &one], Field::LoadCount)
        };
        assert_eq!(rates(5 * SECOND, 100), [0.0, 100.0, 100.0, 400.0, 0.0]);
        assert_eq!(rates(4 * SECOND, 2), [50.0, 250.0]);
        assert_eq!(rates(4 * SECOND, 1), [150.0]);
        let counted = rates(4 * SECOND, 3).iter().sum::<f64>() * 4.0 / 3.0;
        assert!((counted - 600.0).abs() < 1e-6, "{counted}");
    }

    #[test]
    fn a_short_run_has_one_column() {
        let columns = Columns::new(0, SECOND, 10);
        assert_eq!(columns.count(), 1);
        let none = columns.amounts(&[&Series::default()], |_| [1]);
        assert_eq!(none, [[0.0]]);
        assert_eq!(columns.rates(&[], Field::LoadCount), [0.0]);
    }

    #[test]
    fn the_kinds_add_up_to_the_resident_set() {
        let point = Point::new(0, |field| match field {
            Field::Rss => 100 * PAGE,
            Field::NrMapped => 50,
            Field::LazyFreeMapped => 10 * PAGE,
            Field::NrLimbo => 5,
            Field::StoreRam => 7 * PAGE,
            Field::RssFiles => 20 * PAGE,
            _ => 0,
        });
        let bytes = Kind::bytes(&point);
        assert_eq!(bytes.iter().sum::<u64>(), 100 * PAGE);
        let of = |kind: Kind| bytes[kind as usize] / PAGE;
        assert_eq!(
            [Kind::Mapped, Kind::LazilyFreed, Kind::Other].map(of),
            [40, 10, 18]
        );
    }
}
