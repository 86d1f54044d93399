//! The budget, measured from outside the process.

mod common;

use common::{MIB, PAGE, order, page_is, smaps_rollup, status, write_page};
use millpond::StoreKind;

/// The budget holds for the whole run as the system counts memory: metadata and frames are included.
#[test]
fn resident_memory_stays_within_the_budget_seen_from_outside() {
    const CHILD: &str = "MILLPOND_TEST_BUDGET_CHILD";
    const RAM: usize = 32 * MIB;
    if std::env::var_os(CHILD).is_some() {
        let manager = millpond::Manager::builder()
            .order(millpond::Order::new(4).unwrap())
            .ram(RAM as u64)
            .store(StoreKind::file())
            .build()
            .unwrap();
        println!("ready");
        // No memory is touched before the parent has read how much there was.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let mut region = manager.region(4 * RAM).unwrap();
        for round in 0..3 {
            for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
                write_page(page, number as u64 + round);
            }
            for (number, page) in region.as_slice().chunks_exact(PAGE).enumerate() {
                assert!(page_is(page, number as u64 + round));
            }
        }
        return;
    }
    let me = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(me)
        .args([
            "--exact",
            "resident_memory_stays_within_the_budget_seen_from_outside",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::{BufRead, Write};
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(
            said.read_line(&mut line).unwrap() > 0,
            "the child ended early"
        );
    }
    // The base is what the process had before it touched managed memory: heap and tables. Its code is in the page cache
    // and counts as resident when it runs, but this budget is not about code.
    let base = status(child.id(), "RssAnon:");
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    // The kernel's counter says how much there is at one moment. `smaps_rollup` walks the page tables, and meets pages
    // twice that move between pool and arena meanwhile: its highest sample was 46 MB on a loaded machine when there
    // were never more than 33 MB. Its median is not misled like that.
    let (mut peak, mut walked) = (0, Vec::new());
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(status(child.id(), "RssAnon:"));
        walked.push(smaps_rollup(child.id(), "Anonymous:"));
    }
    assert!(child.wait().unwrap().success());
    assert!(walked.len() > 20, "only {} samples", walked.len());
    walked.sort_unstable();
    let median = walked[walked.len() / 2].saturating_sub(base);
    // In flight may be one batch of the reclaimer and one of the faulting thread, 16 folios of 64 KiB each.
    let in_flight = 2 * 16 * 16 * PAGE as u64;
    let managed = peak.saturating_sub(base);
    assert!(
        managed <= RAM as u64 + in_flight,
        "peak {peak}, {base} before: {managed} managed of {RAM}"
    );
    assert!(
        median <= RAM as u64 + in_flight,
        "median of smaps_rollup: {median} managed of {RAM}"
    );
    assert!(
        managed > RAM as u64 * 9 / 10,
        "only {managed} of {RAM} were used"
    );
}

/// A fill that ended before the first tick exceeded the budget by the growth of its tables, 56 bytes a page. `bench
/// swap` at 4 KiB found this.
#[test]
fn tables_that_grow_with_a_quick_fill_come_off_the_budget() {
    let ram = 64 << 20;
    let manager = millpond::Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(ram)
        .store_outside_budget(true)
        .build()
        .unwrap();
    let mut region = manager.region_with(64 * MIB, order(0)).unwrap();
    for page in region.as_mut_slice().chunks_mut(PAGE) {
        page[0] = 1;
    }
    let peak = manager.stats().peak_bytes;
    assert!(peak <= ram + (512 << 10), "{} bytes too many", peak - ram);
}

/// The addresses of anonymous private memory, 2 MiB or more, that may be backed by huge pages because of the machine's
/// setting alone, since its owner has neither requested nor declined them. The stack of a thread (it follows a closed
/// page) is not a table, and newer kernels decline huge pages for it.
fn left_to_the_machine() -> Vec<String> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut found, mut mapping, mut before) = (Vec::new(), "", "");
    for line in smaps.lines() {
        if !line.starts_with(|first: char| first.is_ascii_uppercase()) {
            (before, mapping) = (mapping, line);
        }
        let Some(flags) = line.strip_prefix("VmFlags:") else {
            continue;
        };
        let words: Vec<&str> = mapping.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let at = |text| usize::from_str_radix(text, 16).unwrap();
        let is_stack = before.contains(&format!("-{start} ---p"));
        let is_memory = words[1] == "rw-p" && words.len() == 5;
        let is_said = flags.split(' ').any(|flag| flag == "nh" || flag == "hg");
        if is_memory && at(end) - at(start) >= 2 * MIB && !is_stack && !is_said {
            found.push(words[0].to_owned());
        }
    }
    found
}

/// Covers machines on which `transparent_hugepage/enabled` is *always*: tables that the budget counted by pages became
/// huge pages where they were touched. The test checks the flags of the mappings, so any machine will do.
#[test]
fn no_table_is_left_to_the_machines_setting_for_huge_pages() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return println!("skipped: the kernel has no transparent huge pages");
    }
    let before = left_to_the_machine();
    let manager = millpond::Manager::builder()
        .store(StoreKind::compressed_ram())
        .ram(32 << 20)
        .build()
        .unwrap();
    let mut region = manager.region(96 * MIB).unwrap();
    region.as_mut_slice().fill(7);
    let after = left_to_the_machine();
    let new: Vec<_> = after.iter().filter(|at| !before.contains(at)).collect();
    assert!(new.is_empty(), "{new:?}");
}
