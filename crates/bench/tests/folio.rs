//! `millpond bench folio` measures every side, reads back no wrong byte, and restores the machine. The sizes are
//! small and the rounds few, as nothing is measured here; only results that do not depend on the machine's speed are
//! checked.

mod common;
#[path = "common/parts.rs"]
mod parts;

use common::{alone, machine};
use parts::{bad_options_are_refused, ends_with_the_machine_as_it_was, number, side, wants};
use rustix::process::geteuid;
use serde_json::{Value, json};

/// The region of `swap` and `mix`: 64 MiB in 32 MiB.
const SWAP: [&str; 3] = ["--pages=16384", "--ram=32M", "--accesses=4000"];

fn report(part: &str, options: &[&str]) -> Option<Value> {
    let before = machine();
    let report = parts::report("folio", part, options)?;
    assert_eq!(machine(), before.unlocked());
    Some(report)
}

/// The sides of a part with their medians. Checks that none has read a wrong byte.
fn right_sides(part: &Value) -> Vec<&Value> {
    let sides = part["sides"].as_array().unwrap();
    for side in sides {
        assert_eq!(side["rounds"].as_array().unwrap().len(), 1);
        let median = &side["median"];
        let wrong = ["wrong_pages", "wrong_headers"].map(|name| median[name].as_u64());
        assert_eq!(
            wrong.into_iter().flatten().collect::<Vec<_>>(),
            [0],
            "{side}"
        );
    }
    sides.iter().map(|side| &side["side"]).collect()
}

/// Whether the report has the kernel's side. Prints the reason if it does not.
fn has_kernel(report: &Value) -> bool {
    match report["skipped"].as_array().unwrap().first() {
        Some(why) => {
            println!("skipped: {why}");
            false
        }
        None => true,
    }
}

#[test]
fn one_setting_runs_all_phases_and_counts_pages_brought_in() {
    let _alone = alone();
    let Some(report) = report("swap,mix", &SWAP) else {
        return;
    };
    let (swap, mix) = (&report["swap"], &report["mix"]);
    let wanted = if has_kernel(&report) {
        assert_eq!(right_sides(swap), ["adaptive", "kernel"]);
        assert_eq!(right_sides(mix), ["adaptive", "kernel"]);
        let kernel = side(swap, "kernel");
        assert!(number(&kernel["random_major_faults"]) > 0.0, "{kernel}");
        assert!(kernel["random_brought_in"].is_null());
        assert_eq!(report["kernel_swap"]["compression"], "lz4");
        assert_eq!(swap["ratios"].as_array().unwrap().len(), 4);
        let ratio = &mix["ratios"][0];
        let mixed = |name| number(&side(mix, name)["mixed"]);
        assert_eq!(ratio["figure"], "mixed");
        // JSON numbers may differ in the last digit after parsing.
        let times = number(&ratio["times"]) * mixed("adaptive") / mixed("kernel");
        assert!((times - 1.0).abs() < 1e-9, "{ratio}");
        6
    } else {
        1
    };
    assert_eq!(wants(&report), wanted);
    let median = side(swap, "adaptive");
    for phase in ["fill", "random", "sequential", "verify"] {
        assert!(number(&median[phase]) > 0.0, "{median}");
    }
    let came = &median["random_brought_in"];
    let (faults, pages) = (number(&came["faults"]), number(&came["pages"]));
    assert!(
        faults > 100.0 && pages >= faults,
        "nothing was swapped: {came}"
    );
    assert!(
        pages < 1.5 * faults,
        "reading at random brought in a stream: {came}"
    );
    let median = side(mix, "adaptive");
    assert!(number(&median["sequential"]) > 0.0 && number(&median["random"]) > 0.0);
    assert!(report["touch"].is_null() && report["latency"].is_null());
}

#[test]
fn explicit_order_replaces_the_adaptive_one() {
    let _alone = alone();
    let mut options = SWAP.to_vec();
    options.push("--order=2");
    let Some(report) = report("swap", &options) else {
        return;
    };
    assert_eq!(report["order"], "2");
    let came = &side(&report["swap"], "2")["random_brought_in"];
    assert_eq!(
        number(&came["pages"]),
        4.0 * number(&came["faults"]),
        "folios of four pages: {came}"
    );
}

#[test]
fn first_touch_takes_as_many_faults_as_its_order_implies() {
    let _alone = alone();
    let Some(report) = report("touch", &["--touch-memory=16M"]) else {
        return;
    };
    let touch = &report["touch"];
    let faults = |name| number(&side(touch, name)["faults"]);
    let mut sides = vec!["adaptive", "9", "4", "kernel"];
    if has_kernel(&report) {
        sides.push("kernel_huge");
        assert!(faults("kernel_huge") < faults("kernel") / 2.0);
    }
    assert_eq!(right_sides(touch), sides);
    // Of eight leaves, the third brings in one more, and the fifth two more.
    assert_eq!(faults("9"), 5.0);
    // Folios of 64 KiB that are touched in order come in by the MiB, which is a sixty-fourth of the budget.
    assert!((16.0..32.0).contains(&faults("4")), "{touch}");
    assert!(faults("adaptive") <= 64.0, "{touch}");
    assert!(faults("kernel") >= 4096.0, "{touch}");
    assert_eq!(number(&side(touch, "kernel")["huge_bytes"]), 0.0);
    assert_eq!(wants(&report), sides.len() - 2);
}

#[test]
fn sparse_touches_make_whole_folios_resident() {
    let _alone = alone();
    let Some(report) = report("sparse", &["--sparse-memory=64M"]) else {
        return;
    };
    let sparse = &report["sparse"];
    assert_eq!(right_sides(sparse), ["0", "adaptive", "4"]);
    let resident = |name| side(sparse, name)["resident_bytes"].as_u64().unwrap();
    assert_eq!((resident("0"), resident("4")), (4 << 20, 64 << 20));
    assert!(resident("adaptive") <= (4 << 20) * 11 / 10, "{sparse}");
    let rss = number(&side(sparse, "4")["rss_bytes"]);
    assert!(rss >= f64::from(64 << 20), "{sparse}");
    assert_eq!(wants(&report), 1);
}

#[test]
fn headers_are_used_with_and_without_millpond() {
    let _alone = alone();
    let Some(report) = report("header", &["--header-times=500"]) else {
        return;
    };
    let header = &report["header"];
    if has_kernel(&report) {
        assert_eq!(right_sides(header).len(), 5);
        for order in ["0", "adaptive"] {
            for lazy_purge in [true, false] {
                let order = order.parse().map_or(json!(order), |order: u8| json!(order));
                let run = json!({ "order": order, "lazy_purge": lazy_purge });
                assert!(number(&side(header, run)["round"]) > 0.0);
            }
        }
        assert_eq!(wants(&report), 2);
    } else {
        assert_eq!(right_sides(header).len(), 1);
    }
    let libc = json!({ "order": null, "lazy_purge": false });
    let libc = number(&side(header, libc)["faults"]);
    assert!(
        libc >= 1.0,
        "the header was not touched: {libc} faults a round"
    );
}

#[test]
fn snapshot_is_measured_next_to_a_fork() {
    let _alone = alone();
    let Some(report) = report("snapshot", &["--snapshot-memory=32M"]) else {
        return;
    };
    let snapshot = &report["snapshot"];
    let mut sides = vec!["adaptive", "kernel"];
    if has_kernel(&report) {
        sides.push("kernel_huge");
    }
    assert_eq!(right_sides(snapshot), sides);
    for name in sides {
        let median = side(snapshot, name);
        assert!(number(&median["blocked"]) > 0.0 && number(&median["page"]) > 0.0);
    }
    assert_eq!(wants(&report), 2);
}

#[test]
fn the_slowest_faults_are_timed_by_program_and_manager() {
    let _alone = alone();
    let sizes = ["--latency-ram=16M", "--latency-accesses=4000"];
    let Some(report) = report("latency", &sizes) else {
        return;
    };
    let latency = &report["latency"];
    assert_eq!(right_sides(latency).len(), 4);
    for order in [json!(0), json!("adaptive")] {
        for background in [false, true] {
            let run = json!({ "order": order, "background": background });
            let median = side(latency, run);
            let [program, manager] =
                ["program", "manager"].map(|clock| number(&median[clock]["count"]));
            assert!(
                program > 500.0,
                "half of the region is in the store: {median}"
            );
            // With a second thread, a page may leave between the check and the access.
            assert!((program - manager).abs() <= 0.1 * manager, "{median}");
            for clock in ["program", "manager"] {
                let times = ["p50_ns", "p99_ns", "max_ns"].map(|t| number(&median[clock][t]));
                assert!(times[0] > 0.0 && times.is_sorted(), "{median}");
            }
        }
    }
    assert_eq!(wants(&report), 8);
}

#[test]
fn bad_sizes_are_refused_by_name() {
    bad_options_are_refused(
        "folio",
        &[
            ("--touch-memory=100", "--touch-memory"),
            ("--mix-threads=1", "--mix-threads"),
            ("--order=10", "--order"),
            ("--rounds=0", "--rounds"),
            ("--only=everything", "--only"),
        ],
    );
}

#[test]
fn a_run_ended_by_a_signal_leaves_no_swap_no_lock_and_no_worker() {
    if !geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    for part in ["swap", "touch"] {
        ends_with_the_machine_as_it_was(parts::bench("folio", part, &["--rounds=1000"]));
    }
}
