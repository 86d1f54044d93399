//! `millpond bench free` measures every side, reads back no wrong byte, and restores the machine. The sizes are small
//! and the rounds few, as nothing is measured here; only results that do not depend on the machine's speed are
//! checked.

mod common;
#[path = "common/parts.rs"]
mod parts;

use common::{alone, machine};
use parts::{bad_options_are_refused, ends_with_the_machine_as_it_was, number, side, wants};
use serde_json::{Value, json};

fn report(part: &str, options: &[&str]) -> Option<Value> {
    let before = machine();
    let report = parts::report("free", part, options)?;
    assert_eq!(machine(), before.unlocked());
    Some(report)
}

#[test]
fn freed_memory_is_gone_while_another_thread_watches() {
    let _alone = alone();
    let tunings: [&[&str]; 2] = [
        &["--blocked-memory=64M"],
        &[
            "--blocked-memory=64M",
            "--free-workers=2",
            "--free-batch=1024",
            "--free-chunk=2M",
        ],
    ];
    for options in tunings {
        let Some(report) = report("blocked", options) else {
            return;
        };
        let blocked = &report["blocked"];
        for name in ["free_async", "drop", "kernel"] {
            let median = side(blocked, name);
            assert_eq!(median["wrong_pages"], 0, "{name}");
            let figure = |figure| number(&median[figure]);
            assert!(figure("blocked") > 0.0, "{name}: {median}");
            assert!(figure("whole") >= figure("blocked"), "{name}: {median}");
            assert!(
                figure("cpu_to_the_end") >= figure("cpu"),
                "{name}: {median}"
            );
            let all = f64::from(64 << 20);
            assert!(figure("rss_bytes") < all, "{name} kept it: {median}");
            assert!(figure("looks") > 0.0, "{name}: {median}");
            for longest in ["longest_mmap", "longest_fault", "longest_idle"] {
                assert!(figure(longest) > 0.0, "{name}: {median}");
            }
        }
        assert_eq!(blocked["ratios"].as_array().unwrap().len(), 6);
        assert_eq!(wants(&report), 8);
        assert!(report["cycle"].is_null());
        let tuned = options.len() > 1;
        let workers = if tuned { json!(2) } else { json!(null) };
        assert_eq!(blocked["sizes"]["workers"], workers);
    }
}

#[test]
fn memory_touched_again_reads_zeros_on_every_side() {
    let _alone = alone();
    let options = ["--cycle-memory=16M", "--cycle-times=3"];
    let Some(report) = report("cycle", &options) else {
        return;
    };
    let cycle = &report["cycle"];
    let mut sides = vec!["discard", "free_async", "kernel"];
    match report["skipped"].as_array().unwrap().first() {
        Some(why) => println!("skipped: {why}"),
        None => sides.push("kernel_huge"),
    }
    for name in &sides {
        let median = side(cycle, *name);
        assert_eq!(median["wrong_pages"], 0, "{name}");
        let figure = |figure| number(&median[figure]);
        assert!(figure("release") > 0.0 && figure("touch") > 0.0);
        assert!(figure("cpu") > 0.0);
        assert!(
            figure("cycle") >= figure("release") + figure("touch"),
            "what is waited for at the end counts: {median}"
        );
    }
    assert_eq!(cycle["sides"].as_array().unwrap().len(), sides.len());
    assert_eq!(wants(&report), 2);
    assert!(report["blocked"].is_null());
}

#[test]
fn a_programs_munmap_gives_its_memory_back_on_both_sides() {
    let _alone = alone();
    let options = ["--unmap-memory=16M", "--unmap-times=3"];
    let Some(report) = report("unmap", &options) else {
        return;
    };
    let unmap = &report["unmap"];
    let mut sides = vec!["run", "kernel"];
    if let Some(why) = report["skipped"].as_array().unwrap().first() {
        println!("skipped: {why}");
        sides.remove(0);
    }
    for name in &sides {
        let median = side(unmap, *name);
        assert_eq!(median["wrong_pages"], 0, "{name}");
        let figure = |figure| number(&median[figure]);
        assert!(figure("blocked") > 0.0, "{name}: {median}");
        assert!(figure("cycle") > figure("blocked"), "{name}: {median}");
    }
    assert_eq!(unmap["sides"].as_array().unwrap().len(), sides.len());
    assert_eq!(unmap["ratios"].as_array().unwrap().len(), sides.len() - 1);
    assert!(report["cycle"].is_null());
}

#[test]
fn bad_sizes_are_refused_by_name() {
    bad_options_are_refused(
        "free",
        &[
            ("--blocked-memory=100", "--blocked-memory"),
            ("--free-chunk=1", "--free-chunk"),
            ("--free-workers=x", "--free-workers"),
            ("--cycle-memory=0", "--cycle-memory"),
            ("--cycle-times=0", "--cycle-times"),
            ("--unmap-memory=1", "--unmap-memory"),
            ("--unmap-times=0", "--unmap-times"),
            ("--order=10", "--order"),
            ("--only=everything", "--only"),
        ],
    );
}

#[test]
fn a_run_ended_by_a_signal_leaves_no_lock_and_no_worker() {
    ends_with_the_machine_as_it_was(parts::bench("free", "cycle", &["--rounds=1000"]));
}
