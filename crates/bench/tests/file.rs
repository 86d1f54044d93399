//! `millpond bench file` reads the right bytes on every side, keeps Millpond within its budget as seen from outside,
//! and restores the machine.

mod common;
#[path = "common/parts.rs"]
mod parts;

use common::{alone, machine};
use parts::{
    bad_options_are_refused, bench, ends_with_the_machine_as_it_was, number, report, side, wants,
};

const BUDGET: u64 = 16 << 20;
const SMALL: [&str; 4] = ["--size=64M", "--ram=16M", "--accesses=200", "--threads=2"];
/// Memory of a process in addition to its budget: its code, its stacks, and a thread's arena of the allocator.
const BESIDE: u64 = 16 << 20;

#[test]
fn every_part_has_its_sides_and_their_bytes_are_right() {
    let _alone = alone();
    let before = machine();
    for part in ["sequential", "random", "random_threads", "hot"] {
        let Some(report) = report("file", part, &SMALL) else {
            return;
        };
        println!("skipped: {}", report["skipped"]);
        let judged = wants(&report);
        let measured = &report[part];
        let sides = measured["sides"].as_array().unwrap();
        for each in sides {
            assert_eq!(each["median"]["wrong_pages"], 0, "{each}");
            assert!(number(&each["median"]["page"]) > 0.0, "{each}");
        }
        let ours = side(measured, "millpond");
        assert!(number(&ours["major_faults"]) > 0.0, "{ours}");
        assert_eq!(ours["hit_ratio"].is_number(), part == "hot", "{ours}");
        let resident = ours["peak_rss_bytes"].as_u64().unwrap();
        assert!(resident <= BUDGET + BESIDE, "{resident} resident");
        if let Some(charged) = ours["peak_group_bytes"].as_u64() {
            println!("{part}: {resident} resident, {charged} charged to the group");
        }
        let has = |name| sides.iter().any(|side| side["side"] == name);
        assert!(!has("device") || part == "sequential");
        let others = ["kernel", "kernel_advised", "device"].into_iter();
        let compared = others.filter(|&name| has(name)).count();
        assert_eq!(measured["ratios"].as_array().map_or(0, Vec::len), compared);
        assert!(judged > usize::from(has("kernel")), "{judged} of {part}");
    }
    assert_eq!(machine(), before.unlocked());
}

#[test]
fn machine_is_restored_after_a_signal() {
    let mut command = bench("file", "random", &["--rounds=1000"]);
    command.args(SMALL);
    ends_with_the_machine_as_it_was(command);
}

#[test]
fn bad_options_are_refused_by_name() {
    bad_options_are_refused(
        "file",
        &[
            ("--threads=0", "--threads"),
            ("--sides=nobody", "--sides"),
            ("--size=100", "--size"),
        ],
    );
}
