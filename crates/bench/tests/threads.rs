//! `millpond bench threads` reads the right bytes with one thread and with two, compares each side with itself, and
//! restores the machine.

mod common;
#[path = "common/parts.rs"]
#[expect(dead_code, reason = "sides are objects here, and no figure is judged")]
mod parts;

use common::{alone, machine};
use parts::{
    bad_options_are_refused, bench, compared, ends_with_the_machine_as_it_was, number, report,
};

const SMALL: [&str; 4] = ["--pages=8192", "--ram=16M", "--accesses=3000", "--order=0"];

#[test]
fn every_side_is_compared_with_itself() {
    let _alone = alone();
    let before = machine();
    for part in ["random", "in_order", "in_pieces"] {
        let Some(report) = report_of(part) else {
            return;
        };
        let part = &report[part];
        let sides = part["sides"].as_array().unwrap();
        for each in sides {
            let median = &each["median"];
            assert_eq!(median["wrong_pages"], 0, "{each}");
            assert!(number(&median["major_faults"]) > 0.0, "{each}");
            assert!(number(&median["fault"]) > 0.0, "{each}");
        }
        let wanted = sides.iter().any(|side| side["side"]["who"] == "direct");
        assert_eq!(compared(&report).len(), usize::from(wanted));
        let ratios = part["ratios"].as_array().unwrap();
        // There are two figures for each side that was measured with one thread and with two.
        assert_eq!(ratios.len(), sides.len());
        for ratio in ratios {
            assert_eq!(ratio["ours"]["who"], ratio["against"]["who"]);
            assert_eq!(ratio["ours"]["threads"], 2);
            assert_eq!(ratio["against"]["threads"], 1);
        }
    }
    assert_eq!(machine(), before.unlocked());
}

fn report_of(part: &str) -> Option<serde_json::Value> {
    let report = report("threads", part, &SMALL)?;
    for skip in report["skipped"].as_array().unwrap() {
        println!("skipped: {skip}");
    }
    Some(report)
}

#[test]
fn machine_is_restored_after_a_signal() {
    ends_with_the_machine_as_it_was(bench("threads", "random", &["--rounds=1000"]));
}

#[test]
fn bad_options_are_refused_by_name() {
    bad_options_are_refused(
        "threads",
        &[
            ("--threads=1", "--threads"),
            ("--sides=nobody", "--sides"),
            ("--order=10", "--order"),
        ],
    );
}
