//! The ways that faults go, and the fields of a board for each.

use millpond_board::Field;

/// A way that faults go, with its fields: how many went that way, median, 99th percentile, longest, and the time that
/// all of them took.
pub type Way = (&'static str, [Field; 5]);

/// The ways, from the cheapest to the most expensive.
pub const WAYS: [Way; 5] = [
    (
        "first touch",
        [
            Field::FirstTouchCount,
            Field::FirstTouchP50,
            Field::FirstTouchP99,
            Field::FirstTouchMax,
            Field::FirstTouchTime,
        ],
    ),
    (
        "rescue",
        [
            Field::RescueCount,
            Field::RescueP50,
            Field::RescueP99,
            Field::RescueMax,
            Field::RescueTime,
        ],
    ),
    (
        "load",
        [
            Field::LoadCount,
            Field::LoadP50,
            Field::LoadP99,
            Field::LoadMax,
            Field::LoadTime,
        ],
    ),
    (
        "wait",
        [
            Field::WaitedCount,
            Field::WaitedP50,
            Field::WaitedP99,
            Field::WaitedMax,
            Field::WaitedTime,
        ],
    ),
    (
        "reclaim",
        [
            Field::ReclaimedCount,
            Field::ReclaimedP50,
            Field::ReclaimedP99,
            Field::ReclaimedMax,
            Field::ReclaimedTime,
        ],
    ),
];
