//! The curve of major faults against memory, for processes that write their counters on a board.
//!
//! The counts of several processes add up. Each process has a limit of its own. "More memory" means the same amount for
//! each of them, namely that of the process with the most major faults: as if all budgets were raised together.

use millpond_board::{Field, SlotReading};
use millpond_replay::curve::{Curve, Step};
use serde::Serialize;
use serde_json::{Value, json};

/// Bytes in a page.
const PAGE: u64 = 4096;

/// The fields that count which faults would still have missed with more memory, in the order of
/// [`millpond_core::policy::curve::MORE`].
pub const FIELDS: [Field; millpond_core::policy::curve::SIZES] = [
    Field::RefaultsAt100,
    Field::RefaultsAt125,
    Field::RefaultsAt150,
    Field::RefaultsAt200,
    Field::RefaultsAt300,
];

/// A point of the curve.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    more_bytes: u64,
    avoided: f64,
}

/// The curve of all `slots` together.
pub fn of<'a>(slots: impl Iterator<Item = &'a SlotReading>) -> Curve {
    let (mut faults, mut counts, mut most) = (0, [0; FIELDS.len()], None);
    for slot in slots {
        let of_slot = slot.fields.get(Field::MajorFaults);
        faults += of_slot;
        for (count, field) in counts.iter_mut().zip(FIELDS) {
            *count += slot.fields.get(field);
        }
        most = most.max(Some((of_slot, slot.fields.get(Field::NrLimit))));
    }
    Curve::new(faults, most.map_or(0, |(_, limit)| limit), counts)
}

/// The curve for programs: `major_faults`, and `steps`, each of which says that with `more_bytes` the share `avoided`
/// of these faults would not have happened. There are no steps until that is known.
pub fn to_json(curve: &Curve) -> Value {
    let point = |step: Step| Point {
        more_bytes: step.pages * PAGE,
        avoided: step.avoided,
    };
    let steps: Vec<Point> = curve.steps().into_iter().map(point).collect();
    json!({ "major_faults": curve.faults(), "steps": steps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_board::{Board, Fields, State};

    #[test]
    fn curves_add_up_with_the_steps_of_the_busiest_process() {
        let (board, _file) = Board::create("work").unwrap();
        for (pid, faults, limit, counts) in [
            (1, 900, 4096, [60, 30, 20, 10, 0]),
            (2, 100, 1 << 20, [40, 20, 20, 10, 0]),
        ] {
            let mut fields = Fields::default();
            fields.set(Field::MajorFaults, faults);
            fields.set(Field::NrLimit, limit);
            for (field, count) in FIELDS.into_iter().zip(counts) {
                fields.set(field, count);
            }
            assert!(
                board
                    .claim(pid, "work")
                    .unwrap()
                    .publish(State::Exited, &fields)
            );
        }
        let slots: Vec<_> = board.slots().collect();
        let curve = of(slots.iter());
        let json = to_json(&curve);
        assert_eq!(json["major_faults"], 1000);
        assert_eq!(json["steps"][0]["more_bytes"], 4 << 20);
        assert_eq!(json["steps"][0]["avoided"], 0.5);
        assert_eq!(json["steps"][3]["avoided"], 1.0);
        let none = to_json(&of([].iter()));
        assert_eq!(none["steps"], json!([]));
    }
}
