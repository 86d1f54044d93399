//! `millpond remote clean`: removes the objects that killed runs have left.

use super::RemoteError;
use crate::print;
use crate::size::Human;
use millpond_remote::{Cleaned, RemoteUrl};
use std::fmt::Write as _;
use std::time::Duration;

/// Removes the objects at `url` of runs that have been silent for `age`, or only says what it would remove.
///
/// # Errors
/// When the store cannot be opened or the result cannot be printed.
pub(super) fn clean(url: &RemoteUrl, age: Duration, is_dry: bool) -> Result<u8, RemoteError> {
    let cleaned = if is_dry {
        millpond_remote::clean_dry_run(url, age)?
    } else {
        millpond_remote::clean(url, age)?
    };
    print::all(text(&cleaned, is_dry).as_bytes())?;
    Ok(0)
}

/// A line for each run, and one for the total.
fn text(cleaned: &Cleaned, is_dry: bool) -> String {
    let did = if is_dry { "would remove" } else { "removed" };
    let mut text = String::new();
    // Writing to a string does not fail.
    for run in &cleaned.removed {
        let (name, objects) = (run.name.trim_end_matches('/'), count(run.objects, "object"));
        let _ = writeln!(text, "{did} {name}: {objects}, {}", Human(run.bytes));
    }
    for run in &cleaned.left {
        let _ = writeln!(text, "left {}: {}", run.name.trim_end_matches('/'), run.why);
    }
    let runs = count(cleaned.removed.len() as u64, "run");
    let objects = cleaned.removed.iter().map(|run| run.objects).sum();
    let bytes = cleaned.removed.iter().map(|run| run.bytes).sum();
    let objects = count(objects, "object");
    let _ = writeln!(text, "{did} {runs}: {objects}, {}", Human(bytes));
    text
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_remote::{LeftRun, RemovedRun};

    #[test]
    fn each_run_has_a_line_and_the_total_one_more() {
        let removed = |name: &str, objects, bytes| RemovedRun {
            name: name.to_owned(),
            objects,
            bytes,
        };
        let left = LeftRun {
            name: "millpond-run-c/".to_owned(),
            why: "it said 12 s ago that it lives".to_owned(),
        };
        let cleaned = Cleaned {
            removed: vec![
                removed("millpond-run-a/", 3, 3 << 20),
                removed("millpond-run-b/", 1, 1 << 19),
            ],
            left: vec![left],
        };
        let expected = "removed millpond-run-a: 3 objects, 3 MiB\n\
                        removed millpond-run-b: 1 object, 512 KiB\n\
                        left millpond-run-c: it said 12 s ago that it lives\n\
                        removed 2 runs: 4 objects, 3.5 MiB\n";
        assert_eq!(text(&cleaned, false), expected);
        let planned = expected.replace("removed", "would remove");
        assert_eq!(text(&cleaned, true), planned);
        assert_eq!(
            text(&Cleaned::default(), false),
            "removed 0 runs: 0 objects, 0 B\n"
        );
    }
}
