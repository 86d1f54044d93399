//! The curve of misses against memory: what each further MiB would have saved.
//!
//! A page that comes back has a *refault distance*: how much more memory would have held it until now. A histogram of these
//! distances is the answer for all sizes at once: "with *n* more pages, that many major faults would not have happened" is
//! the number of refaults whose distance is at most *n*. Distances are kept in buckets that grow with them, four an
//! octave, so that a few dozen counters reach from a page to terabytes and no answer is off by more than a quarter of the
//! size that was asked about; within a bucket they are taken to lie evenly.

use std::fmt;

/// Buckets in each octave, as a power of two.
const SUB_BITS: u32 = 2;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS as usize) << SUB_BITS) + SUB as usize;

/// Refaults by distance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    /// Without any.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS],
        }
    }

    /// Adds a refault of what `pages` more pages would have kept.
    pub fn record(&mut self, pages: u64) {
        self.counts[bucket_of(pages)] += 1;
    }

    /// The buckets that hold something: the longest distance of each, and how many refaults.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let counted = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        counted.map(|(n, &refaults)| Bucket {
            least: first_of(n),
            most: first_of(n + 1).wrapping_sub(1),
            refaults,
        })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

fn bucket_of(pages: u64) -> usize {
    if pages < SUB {
        return pages as usize;
    }
    let octave = pages.ilog2() - SUB_BITS;
    ((u64::from(octave) << SUB_BITS) + (pages >> octave)) as usize
}

/// The shortest distance of a bucket.
fn first_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB {
        return bucket;
    }
    let octave = (bucket >> SUB_BITS) - 1;
    (SUB + bucket % SUB) << octave
}

/// Refaults of about the same distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// The shortest distance, in pages.
    pub least: u64,
    /// The longest.
    pub most: u64,
    /// How many refaults.
    pub refaults: u64,
}

/// What more memory would have saved.
///
/// ```
/// use millpond_replay::curve::{Bucket, Curve};
///
/// let bucket = |least, most, refaults| Bucket { least, most, refaults };
/// let curve = Curve::new(100, [bucket(8, 9, 30), bucket(64, 79, 50)]);
/// assert_eq!(curve.avoided(7), 0.0);
/// assert_eq!(curve.avoided(9), 0.3);
/// assert_eq!(curve.avoided(1000), 0.8);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    faults: u64,
    buckets: Vec<Bucket>,
}

impl Curve {
    /// The curve of `faults` major faults, of which those in `buckets` (in order of their distance) have one.
    pub fn new(faults: u64, buckets: impl IntoIterator<Item = Bucket>) -> Self {
        Self {
            faults,
            buckets: buckets.into_iter().collect(),
        }
    }

    /// The share of major faults that would not have happened with `pages` more; 0 when there were none.
    #[must_use]
    pub fn avoided(&self, pages: u64) -> f64 {
        let below = |bucket: &Bucket| {
            if bucket.most <= pages {
                return bucket.refaults as f64;
            }
            let width = bucket.most - bucket.least + 1;
            let part = (pages + 1).saturating_sub(bucket.least) as f64 / width as f64;
            bucket.refaults as f64 * part
        };
        let sum: f64 = self.buckets.iter().map(below).sum();
        sum / self.faults.max(1) as f64
    }

    /// Major faults that the shares are of.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Sizes worth looking at, each twice the one before, from a few pages that change nothing much to where no more is to be gained;
    /// with the share that each saves.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        /// Less is not worth a line.
        const LITTLE: f64 = 0.005;
        let Some(last) = self.buckets.last() else {
            return Vec::new();
        };
        let top = last.most.next_power_of_two().trailing_zeros();
        let step = |exponent: u32| {
            let pages = 1 << exponent;
            Step {
                pages,
                avoided: self.avoided(pages),
            }
        };
        let mut steps: Vec<Step> = (0..=top.min(62)).map(step).collect();
        let dull = steps
            .iter()
            .take_while(|step| step.avoided < LITTLE)
            .count();
        steps.drain(..dull.saturating_sub(1));
        // At the end nothing changes any more.
        while let [.., before, last] = steps[..]
            && last.avoided - before.avoided < LITTLE
            && before.avoided > LITTLE
        {
            steps.pop();
        }
        steps
    }
}

/// A point of the curve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// This many more pages …
    pub pages: u64,
    /// … would have saved this share of the major faults.
    pub avoided: f64,
}

/// The curve as a table and a plot in one: a line for each step, with a bar.
impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 40;
        if self.faults == 0 {
            return writeln!(
                f,
                "there were no major faults: more memory would have saved none"
            );
        }
        let steps = self.steps();
        if steps.is_empty() {
            return writeln!(
                f,
                "of {} major faults none has a known distance: what more memory would have saved is not known",
                self.faults
            );
        }
        writeln!(
            f,
            "{:>12}  major faults that would not have happened (of {})",
            "more memory", self.faults
        )?;
        for Step { pages, avoided } in steps {
            let eighths = (avoided.clamp(0.0, 1.0) * (WIDTH * 8) as f64).round() as usize;
            let mut bar = "█".repeat(eighths / 8);
            bar.extend(
                ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"]
                    .get(eighths % 8)
                    .copied(),
            );
            writeln!(f, "{:>12}  {:>5.1} %  {bar}", size(pages), avoided * 100.0)?;
        }
        Ok(())
    }
}

/// Pages as bytes; they are powers of two here.
fn size(pages: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = u128::from(pages) * 4;
    let mut unit = 0;
    while value >= 1024 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("+{value} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        for bucket in 0..BUCKETS - 1 {
            let (first, next) = (first_of(bucket), first_of(bucket + 1));
            assert!(first < next, "bucket {bucket}");
            assert_eq!((bucket_of(first), bucket_of(next - 1)), (bucket, bucket));
            assert!(
                next - first <= (first / 4).max(1),
                "bucket {bucket} is wide"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_curve_never_falls_and_ends_at_all_that_came_back() {
        let mut histogram = Histogram::new();
        for n in 1..=1000 {
            histogram.record(n * n);
        }
        let curve = Curve::new(2000, histogram.buckets());
        let mut last = 0.0;
        for n in 0..2_000_000 {
            let avoided = curve.avoided(n);
            assert!(avoided >= last, "{n}");
            last = avoided;
        }
        assert_eq!(last, 0.5);
        // A hundred distances are at most 10,000, within a quarter's uncertainty of the size.
        assert!((0.04..0.06).contains(&curve.avoided(10_000)));
    }

    #[test]
    fn the_table_says_what_is_gained_and_stops_there() {
        let mut histogram = Histogram::new();
        for _ in 0..100 {
            histogram.record(1000);
        }
        let text = Curve::new(100, histogram.buckets()).to_string();
        assert!(text.contains("+4 MiB  100.0 %  ████"), "{text}");
        assert!(text.lines().count() <= 5, "{text}");
        assert!(Curve::new(0, []).to_string().contains("no major faults"));
        assert!(Curve::new(5, []).to_string().contains("not known"));
    }
}
