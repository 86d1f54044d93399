//! Histograms of fault latencies, by way, for programs and for the page.

use crate::ways::WAYS;
use millpond_board::{FaultWay, Histogram, LATENCY_BUCKETS, SlotReading, latency_end_ns};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The sums of the histograms of some processes.
///
/// In JSON, an object with a list for each way, named like the way's counters (`load`, `first_touch`), and with
/// `end_ns`: faults of a bucket took less than that, and no less than the end of the previous bucket. The last bucket
/// also has all longer ones.
#[derive(Clone, Debug)]
pub struct Latencies {
    by_way: [Histogram; FaultWay::ALL.len()],
}

impl Latencies {
    /// The sums over these slots.
    #[must_use]
    pub fn of(slots: &[SlotReading]) -> Self {
        let mut by_way = [[0; LATENCY_BUCKETS]; FaultWay::ALL.len()];
        for slot in slots {
            for (sums, way) in by_way.iter_mut().zip(FaultWay::ALL) {
                for (sum, count) in sums.iter_mut().zip(slot.fields.latency(way)) {
                    *sum += count;
                }
            }
        }
        Self { by_way }
    }

    /// The faults of this way; ways are numbered in the order of [`WAYS`].
    #[must_use]
    pub fn of_way(&self, way: usize) -> &Histogram {
        &self.by_way[way]
    }

    /// The buckets from the first that has a fault to the last.
    #[must_use]
    pub fn used(&self) -> std::ops::Range<usize> {
        let has = |&bucket: &usize| self.by_way.iter().any(|way| way[bucket] > 0);
        let first = (0..LATENCY_BUCKETS).find(has);
        let last = (0..LATENCY_BUCKETS).rfind(has);
        first.unwrap_or(0)..last.map_or(0, |last| last + 1)
    }
}

/// The shortest time that is counted in this bucket, in nanoseconds.
#[must_use]
pub fn start_ns(bucket: usize) -> u64 {
    bucket.checked_sub(1).map_or(0, latency_end_ns)
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut lists = Map::new();
        let ends: Vec<Value> = (0..LATENCY_BUCKETS)
            .map(|n| latency_end_ns(n).into())
            .collect();
        lists.insert("end_ns".to_owned(), ends.into());
        for ((_, [count, ..]), histogram) in WAYS.into_iter().zip(self.by_way) {
            let name = count
                .key()
                .trim_start_matches("fault_")
                .trim_end_matches("_count");
            lists.insert(name.to_owned(), histogram.to_vec().into());
        }
        // One line, not one per number.
        let line = serde_json::value::to_raw_value(&lists).map_err(S::Error::custom)?;
        line.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_board::{Board, Fields, State, latency_bucket};

    #[test]
    fn histograms_add_up_and_are_named_as_the_counters() {
        let (board, _file) = Board::create("work").unwrap();
        for pid in 1..3 {
            let mut fields = Fields::default();
            let mut loads = [0; LATENCY_BUCKETS];
            loads[latency_bucket(5000)] = u64::from(pid);
            loads[latency_bucket(90_000)] = 10;
            fields.set_latency(FaultWay::Load, loads);
            assert!(
                board
                    .claim(pid, "work")
                    .unwrap()
                    .publish(State::Exited, &fields)
            );
        }
        let slots: Vec<_> = board.slots().collect();
        let all = Latencies::of(&slots);
        let json: Value = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(json["load"][latency_bucket(5000)], 3);
        assert_eq!(json["load"][latency_bucket(90_000)], 20);
        assert_eq!(
            json["first_touch"].as_array().unwrap().len(),
            LATENCY_BUCKETS
        );
        assert_eq!(json["end_ns"][0], 512);
        assert_eq!(json.as_object().unwrap().len(), 1 + WAYS.len());
        assert_eq!(all.used(), latency_bucket(5000)..latency_bucket(90_000) + 1);
        assert_eq!(start_ns(latency_bucket(5000)), 4096);
        assert!(Latencies::of(&[]).used().is_empty());
    }

    /// The order of the ways here and on a board is the same.
    #[test]
    fn ways_are_in_the_order_of_the_board() {
        for ((name, _), way) in WAYS.into_iter().zip(FaultWay::ALL) {
            let way = format!("{way:?}").to_lowercase();
            assert!(way.starts_with(&name.replace(' ', "")), "{name}: {way}");
        }
    }
}
