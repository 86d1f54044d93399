//! `millpond remote`: the objects that killed runs left in a store are removed, and nothing else; and the message of a
//! command built without these stores.

use std::process::{Command, Output};

fn remote(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millpond"))
        .arg("remote")
        .args(arguments)
        .output()
        .unwrap()
}

fn refused(output: &Output, status: i32, part: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(
        text.starts_with("millpond: ") && text.contains(part),
        "{text}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn invalid_age_is_refused_with_a_remedy() {
    for (time, part) in [("soon", "such as 90m or 7d"), ("1m", "less than 5 minutes")] {
        refused(
            &remote(&["clean", "fs:///x", "--older-than", time]),
            2,
            part,
        );
    }
}

#[cfg(not(feature = "remote"))]
#[test]
fn command_without_remote_stores_names_the_feature_that_has_them() {
    refused(&remote(&["clean", "s3://bucket"]), 2, "--features remote");
}

#[cfg(feature = "remote")]
mod with_stores {
    use super::{refused, remote};
    use std::path::Path;
    use std::process::Output;

    /// A run's objects, and a lease of so many seconds after the epoch.
    fn leave_run(directory: &Path, digit: char, seconds: u64) {
        let digits = String::from(digit).repeat(32);
        let run = directory.join(format!("millpond-run-{digits}"));
        std::fs::create_dir_all(run.join("o")).unwrap();
        std::fs::write(run.join("o/0000000000000000"), [7; 3000]).unwrap();
        std::fs::write(run.join("o/0000000000000001"), [7; 2000]).unwrap();
        std::fs::write(
            run.join("lease"),
            format!("millpond lease\nseconds {seconds}\n"),
        )
        .unwrap();
    }

    #[test]
    fn clean_removes_only_leftovers_of_dead_runs_and_dry_run_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        leave_run(place, 'a', 1000);
        leave_run(place, 'b', now - 2 * 3600);
        leave_run(place, 'c', now);
        std::fs::write(place.join("of somebody else"), "x").unwrap();
        let has = |digit: char| {
            place
                .join(format!("millpond-run-{}", String::from(digit).repeat(32)))
                .exists()
        };
        let said = |output: Output| {
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let url = format!("fs://{}", place.display());

        let planned = said(remote(&["clean", &url, "--dry-run"]));
        assert!(
            planned.contains("would remove 1 run: 2 objects, 4.9 KiB"),
            "{planned}"
        );
        assert!(has('a') && has('b') && has('c'));

        let removed = said(remote(&["clean", &url]));
        assert!(
            removed.contains("removed 1 run: 2 objects, 4.9 KiB"),
            "{removed}"
        );
        assert!(
            removed.contains(&format!("left millpond-run-{}", "c".repeat(32))),
            "{removed}"
        );
        assert!(!has('a') && has('b') && has('c'));

        said(remote(&["clean", &url, "--older-than", "1h"]));
        assert!(!has('b') && has('c') && place.join("of somebody else").exists());
    }

    #[test]
    fn a_failed_clean_says_why() {
        refused(&remote(&["clean", "ftp://x"]), 2, "use s3://");
        refused(
            &remote(&["clean", "redis://127.0.0.1:1/0"]),
            1,
            "redis-cli --scan",
        );
        refused(
            &remote(&["clean", "fs:///nowhere/at/all"]),
            1,
            "no such directory",
        );
    }
}
