//! `millpond bench remap` measures every side, reads back no wrong byte, and restores the machine. The sizes are
//! small and the rounds few, as nothing is measured here; only results that do not depend on the machine's speed are
//! checked.

mod common;
#[path = "common/parts.rs"]
mod parts;

use common::{alone, machine};
use parts::{bad_options_are_refused, ends_with_the_machine_as_it_was, number, side, wants};
use serde_json::{Value, json};

fn report(part: &str, options: &[&str]) -> Option<Value> {
    let before = machine();
    let report = parts::report("remap", part, options)?;
    assert_eq!(machine(), before.unlocked());
    Some(report)
}

const MOVE: [&str; 2] = ["--move-memory=64M", "--move-times=3"];

#[test]
fn every_offset_moves_by_tables_also_with_half_in_the_store() {
    let _alone = alone();
    let Some(report) = report("move", &MOVE) else {
        return;
    };
    let moving = &report["move"];
    let ours = [
        "from_0",
        "from_4096",
        "from_1060864",
        "from_536875008",
        "from_1073737728",
    ];
    let kernel = [
        "kernel",
        "kernel_from_4096",
        "kernel_gigabyte",
        "kernel_misaligned",
    ];
    let sides = ours.iter().chain(&["half_stored"]).chain(&kernel);
    for &name in sides {
        let median = side(moving, name);
        assert_eq!(median["wrong_pages"], 0, "{name}");
        assert_eq!(median["leaves"], 32, "{name}");
        assert!(number(&median["move"]) > 0.0 && number(&median["first"]) > 0.0);
        assert_eq!(median["emptied"].is_null(), name.starts_with("kernel"));
        let (stored, resident) = (
            number(&median["stored_bytes"]),
            number(&median["resident_bytes"]),
        );
        let all = f64::from(64 << 20);
        if name == "half_stored" {
            assert!((0.3..0.7).contains(&(stored / all)), "{median}");
            assert!((0.3..0.7).contains(&(resident / all)), "{median}");
        } else {
            // The folio at the front may begin before the range.
            let folio = f64::from(64 << 10);
            assert_eq!(stored, 0.0, "{name}");
            assert!((all..all + folio).contains(&resident), "{median}");
        }
    }
    assert_eq!(moving["ratios"].as_array().unwrap().len(), 24);
    assert_eq!(wants(&report), 11);
    assert!(report["scale"].is_null() && report["vec"].is_null());
}

#[test]
fn sizes_are_compared_with_the_kernel_and_too_large_ones_left_out() {
    let _alone = alone();
    let sizes = ["--scale-memory=32M,64M,1000T", "--move-times=1"];
    let Some(report) = report("scale", &sizes) else {
        return;
    };
    let scale = &report["scale"];
    for (memory_bytes, leaves) in [(32 << 20, 16), (64 << 20, 32)] {
        for place in ["from_0", "kernel"] {
            let run = json!({ "place": place, "memory_bytes": memory_bytes });
            let median = side(scale, run);
            assert_eq!(
                (&median["leaves"], &median["wrong_pages"]),
                (&json!(leaves), &json!(0))
            );
        }
    }
    assert_eq!(scale["sides"].as_array().unwrap().len(), 4);
    for ratio in scale["ratios"].as_array().unwrap() {
        assert_eq!(
            ratio["ours"]["memory_bytes"],
            ratio["against"]["memory_bytes"]
        );
    }
    let skipped = report["skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(
        skipped[0]["why"]
            .as_str()
            .unwrap()
            .contains("would be needed")
    );
}

#[test]
fn vector_grows_beyond_the_budget_and_stays_resident_within_it() {
    let _alone = alone();
    let sizes = ["--vec-from=64K", "--vec-to=64M", "--vec-ram=16M"];
    let Some(report) = report("vec", &sizes) else {
        return;
    };
    for name in ["pond", "system"] {
        let median = side(&report["vec"], name);
        assert_eq!(median["wrong_numbers"], 0, "{name}");
        assert!(number(&median["to_budget"]) > 0.0 && number(&median["beyond"]) > 0.0);
    }
    let charged = number(&side(&report["vec"], "pond")["peak_charged_bytes"]);
    let budget = f64::from(16 << 20);
    assert!((0.9..1.1).contains(&(charged / budget)), "{charged}");
    assert_eq!(wants(&report), 2);
}

#[test]
fn bad_sizes_are_refused_by_name() {
    bad_options_are_refused(
        "remap",
        &[
            ("--move-memory=16M", "--move-memory"),
            ("--move-times=0", "--move-times"),
            ("--scale-memory=1G,100", "--scale-memory"),
            ("--vec-ram=1M", "--vec-ram"),
            ("--order=10", "--order"),
            ("--only=everything", "--only"),
        ],
    );
}

#[test]
fn a_run_ended_by_a_signal_leaves_no_lock_and_no_worker() {
    ends_with_the_machine_as_it_was(parts::bench("remap", "move", &["--rounds=1000"]));
}
