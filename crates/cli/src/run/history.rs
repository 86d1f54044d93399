//! What the processes of a run published, over time.
//!
//! A report of a run shows memory and faults over time, for a run of a second as well as for one of a week. Processes
//! write ten times a second, which is six million times in a week. So time is divided into steps, in each of which a
//! process has at most one point, and a history has room for a fixed number of points. When it is full, steps become
//! twice as long: the points of a run of any length are evenly spread.
//!
//! Two points of a step are merged into the later one, since counters say what has happened until then. Its gauges are
//! those of the moment at which more was resident: all from one moment, so that the kinds of memory add up, and from
//! the fuller one, because people look for the peak. No peak that a process has published is lost, however long the
//! steps are.
//!
//! A look copies the claimed slots of the board, some 2 KiB each. The run's supervisor does that ten times a second,
//! and it costs the processes nothing.

use millpond_board::{Field, SlotReading};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Map;
use std::collections::HashMap;
use std::time::Duration;

/// Amounts at a moment.
const GAUGES: usize = 11;

/// The fields kept for each moment: first gauges, then counters, which only grow.
pub const KEPT: [Field; 18] = [
    Field::Rss,
    Field::NrMapped,
    Field::LazyFreeMapped,
    Field::NrLimbo,
    Field::NrFreeFrames,
    Field::StoreRam,
    Field::Metadata,
    Field::RssFiles,
    Field::RssShared,
    Field::StoreLogical,
    Field::StoreStored,
    Field::FirstTouchCount,
    Field::RescueCount,
    Field::LoadCount,
    Field::WaitedCount,
    Field::ReclaimedCount,
    Field::BytesOut,
    Field::BytesIn,
];

/// Most points of one process. A plot is not much wider.
const MOST_OF_ONE: usize = 600;
/// Most points of all processes together: 2.5 MB.
const MOST: usize = 16 * 1024;
/// Most processes whose points are kept, each of which has at least one.
const MOST_PROCESSES: usize = 1024;
/// The initial length of a step, which is the interval at which processes publish.
const FIRST_STEP: Duration = Duration::from_millis(100);

/// What a process published at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Time since the start of the run.
    pub at_ns: u64,
    values: [u64; KEPT.len()],
}

impl Point {
    /// A point of these fields.
    pub fn new(at_ns: u64, of: impl Fn(Field) -> u64) -> Self {
        Self {
            at_ns,
            values: KEPT.map(of),
        }
    }

    /// The value of a field that is kept; zero for one that is not.
    #[must_use]
    pub fn get(&self, field: Field) -> u64 {
        let at = KEPT.iter().position(|&kept| kept == field);
        at.map_or(0, |at| self.values[at])
    }

    /// Merges this point and a later one.
    fn joined(self, later: Self) -> Self {
        let mut joined = later;
        if self.get(Field::Rss) > later.get(Field::Rss) {
            joined.values[..GAUGES].copy_from_slice(&self.values[..GAUGES]);
        }
        joined
    }
}

/// The points of one process, the oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    /// When the process claimed its slot, since the start of the run. All its counters were zero.
    pub from_ns: u64,
    /// The points.
    pub points: Vec<Point>,
}

impl Series {
    /// Adds a point, and merges it with the last if that is of the same step.
    fn add(&mut self, point: Point, step_ns: u64) {
        match self.points.last_mut() {
            Some(last) if last.at_ns >= point.at_ns => {}
            Some(last) if last.at_ns / step_ns == point.at_ns / step_ns => {
                *last = last.joined(point);
            }
            _ => self.points.push(point),
        }
    }

    /// Merges the points that are in the same step of this length.
    fn thin(&mut self, step_ns: u64) {
        for point in std::mem::take(&mut self.points) {
            self.add(point, step_ns);
        }
    }
}

/// The points by columns, each with the name that its field has in a report, and the times as `at_ns`; `from_ns` is
/// when the process began. A series is one line of a report: one line per number would be thousands.
impl Serialize for Series {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let column = |of: &dyn Fn(&Point) -> u64| self.points.iter().map(of).collect::<Vec<u64>>();
        let mut columns = Map::new();
        columns.insert("from_ns".to_owned(), self.from_ns.into());
        columns.insert("at_ns".to_owned(), column(&|point| point.at_ns).into());
        for field in KEPT {
            let values = column(&|point| point.get(field));
            columns.insert(field.key().to_owned(), values.into());
        }
        let line = serde_json::value::to_raw_value(&columns).map_err(S::Error::custom)?;
        line.serialize(to)
    }
}

/// Identifies the slot of a process, which may later be given to another one: its number, and when it was claimed.
type Id = (usize, u64);

/// Collects the points during a run.
#[derive(Debug)]
pub struct Recorder {
    started_ns: u64,
    step_ns: u64,
    points: usize,
    numbers: HashMap<Id, usize>,
    all: Vec<Series>,
}

impl Recorder {
    /// The recorder of a run that starts at `started_ns` by the board's clock.
    #[must_use]
    pub fn new(started_ns: u64) -> Self {
        Self {
            started_ns,
            step_ns: FIRST_STEP.as_nanos() as u64,
            points: 0,
            numbers: HashMap::new(),
            all: Vec::new(),
        }
    }

    /// The length of a step.
    #[must_use]
    pub fn step_ns(&self) -> u64 {
        self.step_ns
    }

    /// Takes the latest values published by these processes.
    pub fn look(&mut self, slots: impl IntoIterator<Item = SlotReading>) {
        for slot in slots {
            self.add(&slot);
        }
    }

    /// Takes the last point of each process, and returns the points of these slots.
    #[must_use]
    pub fn finish(mut self, slots: &[SlotReading]) -> Vec<Series> {
        for slot in slots {
            self.add(slot);
        }
        let mut of = |slot: &SlotReading| {
            let number = self.numbers.get(&(slot.number, slot.claimed_ns));
            number.map_or_else(Series::default, |&n| std::mem::take(&mut self.all[n]))
        };
        slots.iter().map(&mut of).collect()
    }

    fn add(&mut self, slot: &SlotReading) {
        let id = (slot.number, slot.claimed_ns);
        let since_start = |ns: u64| ns.saturating_sub(self.started_ns);
        let (from_ns, at_ns) = (since_start(slot.claimed_ns), since_start(slot.published_ns));
        let number = match self.numbers.get(&id) {
            Some(&number) => number,
            None if self.all.len() == MOST_PROCESSES => return,
            None => {
                self.numbers.insert(id, self.all.len());
                self.all.push(Series {
                    from_ns,
                    points: Vec::new(),
                });
                self.all.len() - 1
            }
        };
        let series = &mut self.all[number];
        let before = series.points.len();
        series.add(
            Point::new(at_ns, |field| slot.fields.get(field)),
            self.step_ns,
        );
        let of_one = series.points.len();
        self.points += of_one - before;
        if of_one > MOST_OF_ONE || self.points > MOST {
            self.step_ns *= 2;
            let step_ns = self.step_ns;
            self.all.iter_mut().for_each(|series| series.thin(step_ns));
            self.points = self.all.iter().map(|series| series.points.len()).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_board::{Fields, State};

    const TENTH: u64 = 100_000_000;

    fn slot(number: usize, claimed_ns: u64, published_ns: u64, rss: u64) -> SlotReading {
        let mut fields = Fields::default();
        fields.set(Field::Rss, rss);
        fields.set(Field::NrMapped, rss / 4096);
        fields.set(Field::LoadCount, published_ns / TENTH);
        SlotReading {
            number,
            pid: 7,
            parent: None,
            name: "work".to_owned(),
            state: State::Running,
            claimed_ns,
            published_ns,
            fields,
            torn: false,
        }
    }

    /// A run of ten hours, with a peak of a tenth of a second near its end.
    #[test]
    fn long_run_keeps_evenly_spaced_points_and_its_peak() {
        let mut recorder = Recorder::new(0);
        let ticks = 36_000 * 10;
        for n in 0..=ticks {
            let rss = if n == 323_456 { 1 << 30 } else { 1 << 20 };
            recorder.look([slot(0, 0, n * TENTH, rss)]);
            assert!(recorder.points <= MOST_OF_ONE);
            assert!(
                recorder.points >= (MOST_OF_ONE / 2).min(n as usize),
                "{n}: {}",
                recorder.points
            );
        }
        let step = recorder.step_ns();
        assert_eq!(step, 1024 * TENTH);
        let last = slot(0, 0, ticks * TENTH + 1, 1 << 20);
        let series = recorder.finish(&[last]).remove(0);
        let steps = series.points.windows(2);
        assert!(
            steps
                .map(|two| two[1].at_ns / step - two[0].at_ns / step)
                .all(|steps| steps == 1)
        );
        let of = |field| series.points.iter().map(move |point| point.get(field));
        assert!(of(Field::LoadCount).is_sorted());
        assert_eq!(of(Field::LoadCount).next_back(), Some(ticks));
        assert_eq!(of(Field::Rss).filter(|&rss| rss == 1 << 30).count(), 1);
        assert_eq!(of(Field::NrMapped).max(), Some((1 << 30) / 4096));
    }

    #[test]
    fn merged_point_has_the_later_time_and_the_larger_memory() {
        let of = |at_ns, rss: u64, loads| {
            Point::new(at_ns, |field| match field {
                Field::Rss => rss,
                Field::NrMapped => rss / 4096,
                Field::LoadCount => loads,
                _ => 0,
            })
        };
        let mut series = Series {
            from_ns: 0,
            points: vec![of(0, 8192, 1), of(1, 4096, 2), of(2, 0, 3)],
        };
        series.thin(2);
        assert_eq!(series.points, [of(1, 8192, 2), of(2, 0, 3)]);
        series.thin(4);
        assert_eq!(series.points, [of(2, 8192, 3)]);
        series.add(of(2, 1 << 20, 4), 4);
        assert_eq!(series.points, [of(2, 8192, 3)], "is no later");
    }

    #[test]
    fn many_processes_share_the_room() {
        let mut recorder = Recorder::new(0);
        for n in 0..500 {
            recorder.look((0..400).map(|number| slot(number, 1, n * TENTH, 0)));
            assert!(recorder.points <= MOST, "{n}");
        }
        let slots: Vec<_> = (0..400).map(|n| slot(n, 1, 501 * TENTH, 0)).collect();
        let all = recorder.finish(&slots);
        assert!(all.iter().all(|series| series.points.len() > 16));
    }

    #[test]
    fn slot_reused_by_another_process_starts_a_new_series() {
        let mut recorder = Recorder::new(TENTH);
        for claimed in 1..2000 {
            let of_next = slot(0, claimed * TENTH, claimed * TENTH + 1, 5);
            recorder.look([of_next]);
        }
        assert_eq!(recorder.all.len(), MOST_PROCESSES);
        let late = slot(0, 1999 * TENTH, 1999 * TENTH + 1, 5);
        let all = recorder.finish(&[slot(0, 2 * TENTH, 2 * TENTH + 2, 5), late]);
        assert_eq!((all[0].from_ns, all[0].points.len()), (TENTH, 1));
        assert_eq!(all[1], Series::default());
    }

    #[test]
    fn series_columns_have_the_same_names_as_the_report() {
        let point = Point::new(5, |field| u64::from(field == Field::BytesIn) * 9);
        let series = Series {
            from_ns: 3,
            points: vec![point],
        };
        let text = serde_json::to_string_pretty(&[&series]).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        let json = &serde_json::from_str::<serde_json::Value>(&text).unwrap()[0];
        assert_eq!(json["from_ns"], 3);
        assert_eq!(json["at_ns"], serde_json::json!([5]));
        assert_eq!(json["in_bytes"], serde_json::json!([9]));
        assert_eq!(json.as_object().unwrap().len(), KEPT.len() + 2);
        assert_eq!(point.get(Field::Budget), 0, "is not kept");
    }
}
