//! Checks that structures and constants match the header: a C compiler compares them.

use crate::group::{GroupStats, Limits, Pressure};
use crate::pond::Options;
use crate::region::{Part, RegionStats};
use crate::stats::Stats;
use crate::status::Status;
use std::fmt::Write;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};

/// Adds the checks of a structure. This only compiles if all fields of the structure are named.
macro_rules! same {
    ($code:expr, $ours:ident as $theirs:literal { $($field:ident),* $(,)? }) => {{
        let theirs = concat!("struct ", $theirs);
        writeln!($code, "SAME(sizeof({theirs}), {});", size_of::<$ours>()).unwrap();
        $(
            let (field, offset) = (stringify!($field), offset_of!($ours, $field));
            writeln!($code, "SAME(offsetof({theirs}, {field}), {offset});").unwrap();
        )*
        let _ = |$ours { $($field: _),* }: $ours| {};
    }};
}

fn comparisons() -> String {
    let mut code = String::from(
        "#include <millpond.h>\n#define SAME(theirs, ours) _Static_assert((theirs) == (ours), #theirs)\n",
    );
    same!(code, Options as "millpond_options" {
        size, ram, store, store_max, order, delivery, address_space, lazyfree_max, publish, flags,
        store_directory, store_file,
    });
    same!(code, Stats as "millpond_stats" {
        size, ram, resident, limbo, lazyfree, stored, store_bytes, store_ram, metadata, peak, pgfault, pgmajfault,
        pswpin, pswpout, store_failures, fault_p50_ns, fault_p99_ns, fault_max_ns,
    });
    same!(code, RegionStats as "millpond_region_stats" {
        size, resident, limbo, lazyfree, swapped, inherited, lost,
    });
    same!(code, Part as "millpond_range" { offset, len });
    same!(code, Limits as "millpond_limits" { size, min, low, high, max, lazyfree_max });
    same!(code, GroupStats as "millpond_group_stats" {
        size, usage, resident, lazyfree, stored, pgmajfault,
    });
    same!(code, Pressure as "millpond_pressure" {
        size, some, full, some_total_us, full_total_us,
    });
    for (name, status) in [
        ("INVALID", Status::Invalid),
        ("UNALIGNED", Status::Unaligned),
        ("PINNED", Status::Pinned),
        ("LOST", Status::Lost),
        ("NO_ADDRESSES", Status::NoAddresses),
        ("OVER_BUDGET", Status::OverBudget),
        ("SYSTEM", Status::System),
        ("STORE", Status::Store),
        ("VOLATILE", Status::Volatile),
        ("BUSY", Status::Busy),
        ("REMOVED", Status::Removed),
        ("OTHER_POND", Status::OtherPond),
        ("FORKED", Status::Forked),
    ] {
        writeln!(code, "SAME(MILLPOND_{name}, {});", status as i32).unwrap();
    }
    code
}

#[test]
fn structures_and_constants_match_the_header() {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler (cc)");
        return;
    }
    let compiles = |code: &str| {
        let mut compiler = Command::new("cc")
            .args(["-fsyntax-only", "-std=c11", "-x", "c", "-I"])
            .args([concat!(env!("CARGO_MANIFEST_DIR"), "/include"), "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(code.as_bytes()).unwrap();
        drop(input);
        compiler.wait_with_output().unwrap()
    };
    let code = comparisons();
    let output = compiles(&code);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // A wrong offset must be noticed.
    let wrong = code.replacen("ram), 8)", "ram), 16)", 1);
    assert!(wrong != code && !compiles(&wrong).status.success());
}
