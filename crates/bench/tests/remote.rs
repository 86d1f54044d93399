//! `millpond bench remote` reads the right bytes on every side, from each installed service, and leaves no service
//! running.

mod common;
#[path = "common/parts.rs"]
#[allow(dead_code)]
mod parts;

use common::{alone, machine};
use parts::{
    bad_options_are_refused, bench, ends_with_the_machine_as_it_was, number, patiently, side,
};
use serde_json::Value;

const SMALL: [&str; 5] = [
    "--ram=16M",
    "--file=4M",
    "--beyond=40M",
    "--accesses=20",
    "--rounds=1",
];

#[test]
fn each_service_has_both_sides_and_their_bytes_are_right() {
    let _alone = alone();
    let before = machine();
    for part in ["redis", "s3"] {
        let output = patiently(bench("remote", part, &SMALL).env_remove("AWS_PROFILE"));
        let text = String::from_utf8_lossy(&output.stderr);
        if text.contains("userfaultfd") {
            println!("skipped: {text}");
            return;
        }
        assert!(output.status.success(), "{text}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["schema"], "millpond-bench-remote/1");
        if report[part].is_null() {
            println!("skipped: {}", report["skipped"]);
            continue;
        }
        let sides = match part {
            "redis" => &["millpond", "client", "redis_client"][..],
            _ => &["millpond", "client"],
        };
        for &name in sides {
            let median = side(&report[part], name);
            assert_eq!(median["wrong_pages"], 0, "{median}");
            for phase in ["fill", "read", "random"] {
                assert!(number(&median[phase]["wall"]) > 0.0, "{median}");
                assert!(number(&median[phase]["cpu"]) > 0.0, "{median}");
            }
            let service =
                number(&median["fill"]["server_cpu"]) + number(&median["read"]["server_cpu"]);
            assert!(service > 0.0, "{median}");
        }
        let ratios = report[part]["ratios"].as_array().unwrap().len();
        assert_eq!(ratios, 3 * (sides.len() - 1));
    }
    assert_eq!(machine(), before.unlocked());
}

#[test]
fn machine_is_restored_after_a_signal() {
    let mut command = bench("remote", "redis", &["--rounds=1000"]);
    command.args(&SMALL[..4]);
    ends_with_the_machine_as_it_was(command);
}

#[test]
fn bad_options_are_refused_by_name() {
    bad_options_are_refused(
        "remote",
        &[
            ("--beyond=100", "--beyond"),
            ("--ram=1", "--ram"),
            ("--only=tape", "--only"),
        ],
    );
}
