//! Code that the tests on real memory share.
#![allow(dead_code, reason = "each test binary uses a part")]

#[cfg(target_arch = "x86_64")]
pub mod calls;
pub mod far_end;
pub mod lazily;
pub mod page_model;

use millpond::space::SpaceOptions;
use millpond::{
    Delivery, FileRegion, Manager, ManagerBuilder, OnStoreFull, Order, Region, StoreKind,
    TakeOutMethod,
};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

pub const MIB: usize = 1 << 20;
pub const PAGE: usize = millpond::PAGE_SIZE;
/// A folio of order 4.
pub const FOLIO: usize = 16 * PAGE;

/// A space of 24 MiB with compressed RAM, a handler and single pages.
pub fn space_options() -> SpaceOptions {
    SpaceOptions {
        ram: 24 << 20,
        store: StoreKind::compressed_ram(),
        on_store_full: OnStoreFull::Exceed,
        encrypt: false,
        delivery: Delivery::Handler,
        order: Order::ZERO.into(),
        address_space: 4 << 30,
        bases: &[],
        on_tick: None,
        recording: None,
        mask: millpond::Mask::from_environment(),
        tables_on_credit: false,
    }
}

/// Number of pages in this many bytes.
pub fn pages(bytes: usize) -> u64 {
    (bytes / PAGE) as u64
}

/// How long stress tests run: MILLPOND_STRESS_SECS, or 3 seconds.
pub fn stress_time() -> Duration {
    let seconds = std::env::var("MILLPOND_STRESS_SECS")
        .ok()
        .and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Whether a stress test is over: when its time is up. On a machine that is busy elsewhere it is not over before it has
/// shown something.
pub fn is_over(end: Instant, has_shown: bool) -> bool {
    const GRACE: Duration = Duration::from_secs(20);
    let now = Instant::now();
    now >= end && (has_shown || now >= end + GRACE)
}

/// Whether `what` becomes true within some seconds.
pub fn eventually(mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while !what() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

/// The ways in which faults can be delivered here. Without userfaultfd there is no handler, and a line says so.
pub fn deliveries() -> Vec<Delivery> {
    let mut all = vec![Delivery::InThread, Delivery::Handler];
    all.retain(|&delivery| can(delivery));
    all
}

/// Whether faults can be delivered in this way here. A line says so when they cannot.
pub fn can(delivery: Delivery) -> bool {
    let built = small().delivery(delivery).build();
    if let Err(error) = &built {
        println!("skipped {delivery:?}: {error}");
    }
    built.is_ok()
}

/// Every way in which faults and pages can travel here.
pub fn ways() -> Vec<(Delivery, TakeOutMethod)> {
    let mut ways = Vec::new();
    for delivery in deliveries() {
        for method in [TakeOutMethod::Auto, TakeOutMethod::Copy] {
            ways.push((delivery, method));
        }
    }
    ways
}

/// A manager of 16 MiB with compressed RAM outside the budget.
pub fn small() -> ManagerBuilder {
    Manager::builder()
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .store(StoreKind::compressed_ram())
        .store_outside_budget(true)
}

/// A cheap generator that gives the same numbers every time.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// An unnamed file that holds this many bytes of numbered pages; the next write appends to them.
pub fn numbered_file(bytes: usize) -> File {
    let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
    write_numbered(&mut file, bytes, 0, 0);
    file
}

/// Writes this many bytes of pages that are numbered from `salt` on, and `more` bytes of the next page.
pub fn write_numbered(file: &mut impl Write, bytes: usize, more: usize, salt: u64) {
    let mut page = [0; PAGE];
    for number in 0..=pages(bytes) {
        write_page(&mut page, salt + number);
        let len = if number < pages(bytes) { PAGE } else { more };
        file.write_all(&page[..len]).unwrap();
    }
}

/// Whether all whole pages of a region are those of a [`numbered_file`].
pub fn is_numbered(region: &FileRegion) -> bool {
    let whole = region.as_slice().chunks_exact(PAGE).enumerate();
    let mut whole = whole.map(|(number, page)| page_is(page, number as u64));
    whole.all(|is_right| is_right)
}

/// Writes a kilobyte of noise and the page's number, which compress to about a third.
pub fn write_page(page: &mut [u8], number: u64) {
    let mut rng = Rng(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for word in page[..1024].chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next().to_le_bytes());
    }
    for word in page[1024..].chunks_exact_mut(8) {
        word.copy_from_slice(&number.to_le_bytes());
    }
}

/// Whether a page holds what [`write_page`] wrote.
pub fn page_is(page: &[u8], number: u64) -> bool {
    let mut right = [0; PAGE];
    write_page(&mut right, number);
    page == right
}

pub fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// Writes every page of `range`, with numbers from `salt` on.
pub fn fill(region: &mut Region, range: Range<usize>, salt: u64) {
    let pages = region.as_mut_slice()[range].chunks_mut(PAGE).enumerate();
    pages.for_each(|(n, page)| write_page(page, salt + n as u64));
}

/// Whether `range` holds what [`fill`] wrote.
pub fn holds(region: &Region, range: Range<usize>, salt: u64) -> bool {
    let mut pages = region.as_slice()[range].chunks(PAGE).enumerate();
    pages.all(|(n, page)| page_is(page, salt + n as u64))
}

pub fn is_zero(region: &Region, range: Range<usize>) -> bool {
    region.as_slice()[range].iter().all(|&byte| byte == 0)
}

/// Uses `bytes` of new memory, one page after the other, and gives it back.
pub fn press(manager: &Manager, bytes: usize) {
    let mut region = manager.region_with(bytes, order(4)).unwrap();
    for page in region.as_mut_slice().chunks_mut(PAGE) {
        page[0] = 1;
    }
    drop(region);
    // The reclaim thread may have a batch in its hands, so that a folio is counted in neither place.
    let figures = || {
        let vm = manager.stats().vm;
        (vm.nr_mapped, vm.nr_limbo, vm.nr_swapped, vm.pglazyfreed)
    };
    let mut last = figures();
    eventually(|| {
        std::thread::sleep(Duration::from_millis(5));
        std::mem::replace(&mut last, figures()) == last
    });
}

/// Runs `work` of the test with this name in a process of its own, so that the process's figures are its figures.
pub fn alone(test: &str, work: impl FnOnce()) {
    const CHILD: &str = "MILLPOND_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
}

/// A figure of `/proc/PID/smaps_rollup`, in bytes.
pub fn smaps_rollup(pid: u32, field: &str) -> u64 {
    figure(pid, "smaps_rollup", field)
}

/// A figure of `/proc/PID/status`, in bytes.
pub fn status(pid: u32, field: &str) -> u64 {
    figure(pid, "status", field)
}

fn figure(pid: u32, file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}
