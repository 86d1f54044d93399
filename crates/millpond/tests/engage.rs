//! A dormant space: the kernel backs it, and then it is engaged, with everything that is in it.
//!
//! A space lasts until the process ends, so each part has a process of its own: the test starts itself again.

mod common;

use common::{MIB, PAGE, can, page_is, space_options, write_page};
use millpond::space::{Opened, Space, SpaceOptions};
use millpond::{Delivery, StoreKind};
use std::process::Command;

const RAM: u64 = 24 << 20;

fn options() -> SpaceOptions {
    SpaceOptions {
        ram: RAM,
        ..space_options()
    }
}

fn dormant() -> &'static Space {
    let space = Space::dormant(4 << 30, &[], RAM).unwrap();
    assert!(space.is_dormant());
    assert_eq!(space.stats().ram, RAM);
    space
}

/// The bytes of an open range. The test is the only one to use it, and the space is never dropped.
fn bytes(start: usize, len: usize) -> &'static mut [u8] {
    // SAFETY: see above.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) }
}

fn fill(memory: &mut [u8], salt: u64) {
    for (n, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, n as u64 + salt);
    }
}

fn wrong_pages(memory: &[u8], salt: u64) -> usize {
    let pages = memory.chunks_exact(PAGE).enumerate();
    pages
        .filter(|&(n, page)| !page_is(page, n as u64 + salt))
        .count()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * PAGE as u64
}

fn opened(start: usize, len: usize) -> Opened {
    Opened {
        start,
        len,
        usable: true,
    }
}

/// Everything that a dormant space does is what a managed one does.
fn dormant_memory_behaves_as_managed_memory() {
    let space = dormant();
    let (base, len) = (space.base(), 8 * MIB);
    space.open(base, len).unwrap();
    fill(bytes(base, len), 1);
    space.discard(base, len / 2).unwrap();
    assert!(bytes(base, len / 2).iter().all(|&byte| byte == 0));
    space.lazy_free(base + len / 2, PAGE).unwrap();
    let to = base + 64 * MIB;
    space.remap(base, len, to, false).unwrap();
    assert_eq!(wrong_pages(&bytes(to, len)[len / 2 + PAGE..], 1 + 1025), 0);
    space.close(to, PAGE).unwrap();
    space.open(to, PAGE).unwrap();
    assert!(bytes(to, PAGE).iter().all(|&byte| byte == 0));
    space.populate(to, PAGE);
    assert!(space.lend_aside(PAGE, base).is_none());
    assert!(space.descriptors().is_empty());
    assert_eq!(
        space
            .remap(base, len, base + PAGE, false)
            .unwrap_err()
            .raw_os_error(),
        libc::EINVAL
    );
}

/// The contents of memory that is in use, unused, read only, unreadable, moved, pinned, given up, or a page of zeros
/// are the same before and after, and the budget holds from then on.
fn engaging_keeps_every_byte_and_the_budget_holds() {
    let space = dormant();
    let (base, len) = (space.base(), 64 * MIB);
    space.open(base, len).unwrap();
    fill(bytes(base, len), 7);
    // Pages of zeros that the kernel shares, and memory that was never touched.
    let zeros = base + 256 * MIB;
    space.open(zeros, 4 * MIB).unwrap();
    assert!(bytes(zeros, 2 * MIB).iter().all(|&byte| byte == 0));
    // Memory that cannot be written, or not even be read.
    let (read_only, hidden) = (base + len / 4, base + len / 2);
    let protect = |at: usize, prot| {
        // SAFETY: the range is the test's own.
        assert_eq!(unsafe { libc::mprotect(at as *mut _, MIB, prot) }, 0);
    };
    protect(read_only, libc::PROT_READ);
    protect(hidden, libc::PROT_NONE);
    // Holes, moved memory, a mapping of somebody else's.
    space.discard(base + 3 * MIB, 5 * PAGE).unwrap();
    let (moved, foreign) = (base + 512 * MIB, base + 640 * MIB);
    space.open(base + 384 * MIB, MIB).unwrap();
    fill(bytes(base + 384 * MIB, MIB), 90_000);
    space.remap(base + 384 * MIB, MIB, moved, false).unwrap();
    space.cede(foreign, MIB).unwrap();
    // SAFETY: nothing is managed there.
    let mapped = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(foreign as *mut _, MIB, prot, flags, -1, 0)
    };
    assert_eq!(mapped as usize, foreign);
    fill(bytes(foreign, MIB), 70_000);

    let usable = [
        opened(base, len / 2),
        Opened {
            usable: false,
            ..opened(hidden, MIB)
        },
        opened(hidden + MIB, len / 2 - MIB),
        opened(zeros, 4 * MIB),
        opened(moved, MIB),
    ];
    let held = [(base, MIB)];
    space
        .engage(&options(), &usable, &held, &[(foreign, MIB)])
        .unwrap();
    assert!(!space.is_dormant());

    assert!(
        bytes(base + 3 * MIB, 5 * PAGE)
            .iter()
            .all(|&byte| byte == 0)
    );
    fill(bytes(base + 3 * MIB, 5 * PAGE), 7 + 768);
    for round in 0..3 {
        protect(hidden, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(wrong_pages(bytes(base, len), 7), 0, "round {round}");
        protect(hidden, libc::PROT_NONE);
        assert!(bytes(zeros, 4 * MIB).iter().all(|&byte| byte == 0));
        assert_eq!(wrong_pages(bytes(moved, MIB), 90_000), 0);
        assert_eq!(wrong_pages(bytes(foreign, MIB), 70_000), 0);
    }
    let stats = space.stats();
    assert!(stats.vm.pswpout > 0 && stats.vm.pswpin > 0, "{stats:#?}");
    // What lies under the other mapping, the test's own memory and the manager's are not managed.
    let resident = resident_bytes();
    assert!(resident < RAM + (20 << 20), "{resident} bytes");
    fill(bytes(zeros, 4 * MIB), 11);
    assert_eq!(wrong_pages(bytes(zeros, 4 * MIB), 11), 0);
}

/// The bytes of the mappings that begin in a range which are in the kernel's huge pages.
fn huge_bytes(start: usize, len: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut kib) = (false, 0);
    for line in text.lines() {
        let from = line
            .split_once('-')
            .map(|(from, _)| usize::from_str_radix(from, 16));
        if let Some(Ok(from)) = from {
            inside = (start..start + len).contains(&from);
        } else if let Some(number) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            let number = number.trim().strip_suffix(" kB").unwrap();
            kib += number.parse::<u64>().unwrap();
        }
    }
    kib << 10
}

/// While a space is dormant, the kernel maps the pages that it would map anywhere. Huge ones are taken over with what
/// is in them, leave in parts, and there are no more of them.
fn huge_pages_of_the_kernel_are_taken_over() {
    const HUGE: usize = 2 << 20;
    let space = dormant();
    let (base, len) = (space.base(), 24 * HUGE);
    space.open(base, len).unwrap();
    let advise = |at: usize, len: usize| {
        // SAFETY: the range is the test's own.
        unsafe { libc::madvise(at as *mut _, len, libc::MADV_HUGEPAGE) }
    };
    let setting = "/sys/kernel/mm/transparent_hugepage/enabled";
    let allowed = std::fs::read_to_string(setting).is_ok_and(|text| !text.contains("[never]"));
    assert_eq!(advise(base, len) == 0, std::fs::exists(setting).unwrap());
    // Eight are written to at one place each, and one of all zeros is read; the rest is never touched.
    for at in (0..8 * HUGE).step_by(HUGE) {
        fill(bytes(base + at + 5 * PAGE, PAGE), at as u64);
    }
    assert_eq!(bytes(base + 9 * HUGE, PAGE)[7], 0);
    let huge = huge_bytes(base, len);
    assert_eq!(huge > 0, allowed, "{huge} bytes in huge pages");
    space
        .engage(&options(), &[opened(base, len)], &[], &[])
        .unwrap();
    for round in 0..3 {
        for at in (0..8 * HUGE).step_by(HUGE) {
            let page = bytes(base + at + 5 * PAGE, PAGE);
            assert_eq!(wrong_pages(page, at as u64), 0, "round {round}");
            assert!(
                bytes(base + at + 6 * PAGE, PAGE)
                    .iter()
                    .all(|&byte| byte == 0)
            );
        }
        let large = bytes(base + 8 * HUGE, 16 * HUGE);
        assert!(round > 0 || large.iter().all(|&byte| byte == 0));
        fill(large, 1);
        assert_eq!(wrong_pages(large, 1), 0);
    }
    let huge = huge_bytes(base, len);
    assert_eq!(huge, 0, "bytes in huge pages that nobody asked for");
    let (stats, resident) = (space.stats(), resident_bytes());
    assert!(
        stats.vm.pswpout > 0 && resident < RAM + (20 << 20),
        "{resident} bytes"
    );
}

/// A child of a dormant space is dormant, has its own copy, and may engage by itself while its parent stays dormant.
fn a_child_engages_by_itself() {
    let space = dormant();
    let (base, len) = (space.base(), 40 * MIB);
    space.open(base, len).unwrap();
    fill(bytes(base, len), 3);
    space.before_fork(&[]);
    // SAFETY: the child leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let _ = space
            .after_fork_in_child(&[])
            .and_then(|()| space.start_threads_in_child());
        let engaged = space.engage(&options(), &[opened(base, len)], &[], &[]);
        let right = engaged.is_ok() && wrong_pages(bytes(base, len), 3) == 0;
        fill(bytes(base, len), 4);
        let right = right && wrong_pages(bytes(base, len), 4) == 0;
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    space.after_fork_in_parent();
    let mut status = 0;
    // SAFETY: the status is written to a variable of this function.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child of a dormant space");
    assert!(space.is_dormant());
    assert_eq!(wrong_pages(bytes(base, len), 3), 0);
    // Pages that were shared with a child are taken over like others.
    space
        .engage(&options(), &[opened(base, len)], &[], &[])
        .unwrap();
    assert_eq!(wrong_pages(bytes(base, len), 3), 0);
    assert_eq!(wrong_pages(bytes(base, len), 3), 0);
}

/// A space that cannot be engaged as asked is as it was, and may be engaged otherwise.
fn a_refused_engagement_changes_nothing() {
    let space = dormant();
    let (base, len) = (space.base(), 8 * MIB);
    space.open(base, len).unwrap();
    fill(bytes(base, len), 5);
    let nowhere = SpaceOptions {
        store: StoreKind::Auto {
            directory: Some("/nowhere".into()),
        },
        ..options()
    };
    let error = space
        .engage(&nowhere, &[opened(base, len)], &[], &[])
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
    assert!(space.is_dormant());
    assert_eq!(wrong_pages(bytes(base, len), 5), 0);
    space
        .engage(&options(), &[opened(base, len)], &[], &[])
        .unwrap();
    assert_eq!(wrong_pages(bytes(base, len), 5), 0);
}

const PARTS: [(&str, fn()); 5] = [
    ("behaves", dormant_memory_behaves_as_managed_memory),
    ("keeps", engaging_keeps_every_byte_and_the_budget_holds),
    ("huge", huge_pages_of_the_kernel_are_taken_over),
    ("child", a_child_engages_by_itself),
    ("refused", a_refused_engagement_changes_nothing),
];

const VARIABLE: &str = "MILLPOND_TEST_PART";

#[test]
fn a_dormant_space_becomes_a_managed_one_with_all_that_it_holds() {
    if let Ok(wanted) = std::env::var(VARIABLE) {
        let part = PARTS.iter().find(|(name, _)| *name == wanted);
        return part.unwrap().1();
    }
    if !can(Delivery::Handler) || !millpond_mmu::can_take_over(options().mask) {
        println!("skipped: memory cannot be taken over here");
        return;
    }
    for (name, _) in PARTS {
        let own = std::env::current_exe().unwrap();
        let status = Command::new(own)
            .args([
                "--exact",
                "a_dormant_space_becomes_a_managed_one_with_all_that_it_holds",
            ])
            .arg("--nocapture")
            .env(VARIABLE, name)
            .status()
            .unwrap();
        assert!(status.success(), "{name}: {status}");
    }
}
