//! Memory without userfaultfd: memory that is watched through protections behaves like memory that userfaultfd
//! watches, and the program's own protections stay in force. (All other tests run on such memory with
//! `MILLPOND_MASK=uffd`.)

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::{Random, Tiny, config, in_child, protect, stress_time};
use millpond_core::{LEAF_PAGES, Mmu, PAGE_SIZE, PageCount, PageIndex, PageRange};
use millpond_mmu::{Delivery, Mask, Memory, MemoryConfig, TakeOutMethod, capabilities};

/// Returns the configuration of `leaves` leaves without userfaultfd. If closed memory cannot be written, prints why
/// and returns `None`.
fn closed(leaves: u32) -> Option<MemoryConfig> {
    let name = millpond_mmu::capabilities::PROTECTIONS;
    let found = capabilities()
        .list
        .iter()
        .find(|one| one.name == name)
        .unwrap();
    if !found.present {
        eprintln!("skipped: no {name}: {}", found.detail);
        return None;
    }
    let mask = Mask {
        uffd: true,
        ..Mask::from_environment()
    };
    Some(MemoryConfig {
        mask,
        ..config(Delivery::InThread, TakeOutMethod::Auto, leaves)
    })
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

fn most_mappings() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    text.trim().parse().unwrap()
}

/// Every other page of a gigabyte is a run of its own: twice as many as the kernel allows mappings. Nothing fails,
/// reads return what was written, and present pages come back without the sink.
#[test]
fn every_other_page_of_a_gigabyte_comes_back_without_failures() {
    let Some(config) = closed(512) else { return };
    let tiny = Tiny::with(config, 0);
    let pages = || (0..512 * LEAF_PAGES as usize).step_by(2);
    for page in pages() {
        tiny.counter(page, 3).store(page as u64 + 1, Relaxed);
    }
    let most = most_mappings();
    let count = mappings();
    println!("{count} mappings of {most} for {} pages", pages().count());
    assert!(count < most / 2 + 1000, "{count} of {most}");
    let faults = tiny.faults.load(Relaxed);
    assert_eq!(faults, pages().count() as u64);
    for page in pages() {
        assert_eq!(tiny.counter(page, 3).load(Relaxed), page as u64 + 1);
    }
    assert_eq!(
        tiny.faults.load(Relaxed),
        faults,
        "a page that is there came to the sink"
    );
    // Every other one of these leaves.
    for page in pages().step_by(2) {
        assert!(tiny.evict(page));
    }
    for page in pages() {
        assert_eq!(tiny.counter(page, 3).load(Relaxed), page as u64 + 1);
    }
    assert!(mappings() < most);
    tiny.end();
}

/// Isolated pages, one in each leaf, are parked as well: the search for a leaf with several runs examined all leaves at
/// each touch, and found none, so the number of runs only grew. (20,000 such pages took 59 seconds.)
#[test]
fn a_page_in_each_leaf_is_parked() {
    let Some(config) = closed(512) else { return };
    let tiny = Tiny::with(config, 0);
    tiny.mmu.limit_runs(100);
    let pages = || (0..512).map(|leaf| leaf * LEAF_PAGES as usize + leaf % 500);
    for round in 0..3 {
        for page in pages() {
            assert_eq!(tiny.counter(page, 1).fetch_add(1, Relaxed), round);
        }
        let runs = tiny.mmu.open_runs().unwrap();
        assert!(runs <= 101, "{runs}");
    }
    tiny.end();
}

/// The races specific to this memory: some threads park pages and open them again, others take them out and bring them
/// in, and all write to them. No increment is lost.
#[test]
fn no_increment_is_lost_while_pages_are_parked() {
    for (order, most) in [(0, 3), (0, 40), (2, 5), (4, 2)] {
        let Some(config) = closed(4) else { return };
        let tiny = Tiny::with(config, order);
        tiny.mmu.limit_runs(most);
        let stop = AtomicBool::new(false);
        let (written, taken) = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|writer| {
                    let (tiny, stop) = (&tiny, &stop);
                    scope.spawn(move || write_at_random(tiny, stop, writer))
                })
                .collect();
            let (tiny, stop) = (&tiny, &stop);
            let evictors: Vec<_> = (0..2u64)
                .map(|n| scope.spawn(move || evict_at_random(tiny, stop, n)))
                .collect();
            std::thread::sleep(stress_time() / 3);
            stop.store(true, Relaxed);
            let sum = |all: Vec<std::thread::ScopedJoinHandle<'_, u64>>| {
                all.into_iter().map(|one| one.join().unwrap()).sum::<u64>()
            };
            (sum(writers), sum(evictors))
        });
        let per_folio = tiny.order.bytes() / 512;
        let found: u64 = (0..tiny.folios())
            .flat_map(|folio| (0..per_folio).map(move |n| (folio, n)))
            .map(|(folio, n)| tiny.counter(folio, n * 64).load(Relaxed))
            .sum();
        println!("order {order}, {most} runs: {written} increments, {taken} taken out");
        assert_eq!(found, written, "order {order}, {most} runs");
        assert!(taken > 0);
        tiny.end();
    }
}

fn write_at_random(tiny: &Tiny, stop: &AtomicBool, writer: u64) -> u64 {
    let (mut random, mut count) = (Random(0x9E37_79B9 + writer), 0);
    while !stop.load(Relaxed) {
        for _ in 0..64 {
            let n = random.below(tiny.order.bytes() / 512) * 64;
            tiny.counter(random.below(tiny.folios()), n)
                .fetch_add(1, Relaxed);
            count += 1;
        }
    }
    count
}

fn evict_at_random(tiny: &Tiny, stop: &AtomicBool, evictor: u64) -> u64 {
    let (mut random, mut count) = (Random(0xDEAD_BEEF + evictor), 0);
    while !stop.load(Relaxed) {
        let folio = random.below(tiny.folios());
        count += match random.below(4) {
            0 => tiny.evict_all(folio, 8) as u64,
            _ => u64::from(tiny.evict(folio)),
        };
    }
    count
}

/// The program's access rights to a page are the same before and after the page was out, and a forbidden touch is the
/// program's SIGSEGV.
#[test]
fn a_forbidden_touch_is_the_programs_own_sigsegv() {
    let Some(config) = closed(1) else { return };
    let tiny = Tiny::with(config, 0);
    for page in 0..8 {
        tiny.counter(page, 0).store(page as u64 + 1, Relaxed);
    }
    let one = |page: u32| PageRange::new(PageIndex(page), PageCount(1));
    for out in [false, true] {
        for (page, prot) in [(2, libc::PROT_READ), (4, libc::PROT_NONE)] {
            protect(&tiny.mmu, one(page), prot);
            if out {
                assert!(tiny.evict(page as usize));
            }
        }
        let dies = |touch: &dyn Fn()| {
            let child = || {
                if tiny.mmu.after_fork_in_child(&[]).is_err() {
                    return 1;
                }
                touch();
                2
            };
            let status = in_child(
                || tiny.mmu.before_fork(),
                || tiny.mmu.after_fork_in_parent(),
                child,
            );
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV
        };
        assert!(dies(&|| tiny.counter(2, 0).store(9, Relaxed)), "out: {out}");
        let read = |page| assert!(tiny.counter(page, 0).load(Relaxed) > 0);
        assert!(dies(&|| read(4)), "out: {out}");
        assert!(!dies(&|| read(2)), "out: {out}");
        assert_eq!(tiny.counter(2, 0).load(Relaxed), 3);
        for page in [2, 4] {
            protect(&tiny.mmu, one(page), libc::PROT_READ | libc::PROT_WRITE);
            let value = u64::from(page) + 1;
            assert_eq!(tiny.counter(page as usize, 0).fetch_add(0, Relaxed), value);
        }
    }
    tiny.end();
}

/// A page whose protection is changed without our knowledge must not make its thread retry forever.
#[test]
fn a_page_closed_behind_our_back_is_the_programs_own_sigsegv() {
    let Some(config) = closed(1) else { return };
    let tiny = Tiny::with(config, 0);
    tiny.counter(0, 0).store(1, Relaxed);
    let child = || {
        if tiny.mmu.after_fork_in_child(&[]).is_err() {
            return 1;
        }
        // SAFETY: the page is in the arena, and the child's alone.
        unsafe {
            libc::mprotect(
                tiny.mmu.addr_of(PageIndex(0)).cast(),
                PAGE_SIZE,
                libc::PROT_READ,
            )
        };
        tiny.counter(0, 0).store(2, Relaxed);
        2
    };
    let status = in_child(
        || tiny.mmu.before_fork(),
        || tiny.mmu.after_fork_in_parent(),
        child,
    );
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
        "{status:#x}"
    );
    tiny.end();
}

/// Runs `work` of the test with this name in a process of its own. Returns its output on standard error, and whether it
/// ended well.
fn alone(test: &str, work: impl FnOnce()) -> Option<(String, bool)> {
    const CHILD: &str = "MILLPOND_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        work();
        return None;
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    Some((said, run.status.success()))
}

/// A stack overflow is reported by the previously installed handler, on its alternate stack.
#[test]
fn a_stack_overflow_is_reported_by_the_earlier_handler() {
    let Some(config) = closed(1) else { return };
    let overflow = || {
        let tiny = Tiny::with(config, 0);
        tiny.counter(0, 0).store(1, Relaxed);
        std::thread::spawn(|| println!("{}", deep(0)))
            .join()
            .unwrap();
    };
    if let Some((said, _)) = alone(
        "a_stack_overflow_is_reported_by_the_earlier_handler",
        overflow,
    ) {
        assert!(said.contains("overflowed its stack"), "{said}");
    }
}

/// If userfaultfd is refused in all its forms, as by the profile of a container, or for a user who may not open the
/// device, memory is automatically watched through protections.
#[test]
fn a_process_that_is_refused_userfaultfd_works_without_it() {
    if closed(1).is_none() {
        return;
    }
    let work = || {
        refuse_userfaultfd();
        let config = MemoryConfig {
            mask: Mask::default(),
            ..config(Delivery::InThread, TakeOutMethod::Auto, 1)
        };
        let tiny = Tiny::with(config, 2);
        assert!(tiny.mmu.is_watched_by_protections());
        for folio in 0..tiny.folios() {
            tiny.counter(folio, 0).store(folio as u64, Relaxed);
            assert!(tiny.evict(folio));
        }
        for folio in 0..tiny.folios() {
            assert_eq!(tiny.counter(folio, 0).load(Relaxed), folio as u64);
        }
        tiny.end();
    };
    let test = "a_process_that_is_refused_userfaultfd_works_without_it";
    if let Some((said, well)) = alone(test, work) {
        assert!(well, "{said}");
    }
}

/// Becomes a user without privileges, and makes the kernel return EPERM from the system call.
fn refuse_userfaultfd() {
    let step = |code: u32, k: u32, yes: u8, no: u8| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_userfaultfd as u32,
            0,
            1,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            0,
            0,
        ),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the calls remove privileges from this process, and the filter program outlives the last one.
    unsafe {
        // A process that may not change its user has no access to the device either.
        libc::setresuid(65534, 65534, 65534);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // The test harness's threads also get the filter.
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(libc::syscall(libc::SYS_seccomp, mode, flags, &program), 0);
    }
}

/// A program that has nearly reached its limit of mappings still gets its pages: all others are parked for them.
#[test]
fn a_few_mappings_are_enough() {
    let Some(config) = closed(4) else { return };
    let work = || {
        let tiny = Tiny::with(config, 0);
        use_up_mappings(24);
        let pages = || (0..4 * LEAF_PAGES as usize).step_by(2);
        for page in pages() {
            tiny.counter(page, 1).store(page as u64, Relaxed);
        }
        for page in pages().step_by(3) {
            assert!(tiny.evict(page));
        }
        for page in pages() {
            assert_eq!(tiny.counter(page, 1).load(Relaxed), page as u64);
        }
        let runs = tiny.mmu.open_runs().unwrap();
        assert!(runs < 24, "{runs}");
        tiny.end();
    };
    if let Some((said, well)) = alone("a_few_mappings_are_enough", work) {
        assert!(well, "{said}");
    }
}

/// Makes mappings until the limit is reached, and releases `spare` of them.
fn use_up_mappings(spare: usize) {
    let len = (most_mappings() + 2) * PAGE_SIZE;
    // SAFETY: everything is done to a mapping that this function owns.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let mut page = PAGE_SIZE;
        while page < len && libc::mprotect(at.add(page), PAGE_SIZE, libc::PROT_READ) == 0 {
            page += 2 * PAGE_SIZE;
        }
        assert!(page < len, "mappings have no limit");
        let back = spare * PAGE_SIZE;
        assert_eq!(
            libc::mprotect(at.add(page - back), back, libc::PROT_NONE),
            0
        );
    }
}

fn deep(n: u64) -> u64 {
    let room = std::hint::black_box([n; 64]);
    if n == u64::MAX {
        room[3]
    } else {
        deep(n + 1) + std::hint::black_box(room)[5]
    }
}

/// Pinned pages are not parked: the kernel must find them open.
#[test]
fn pinned_pages_stay_open_for_the_kernel() {
    let Some(config) = closed(4) else { return };
    let tiny = Tiny::with(config, 0);
    tiny.mmu.limit_runs(4);
    let pages = || (0..4 * LEAF_PAGES as usize).step_by(2);
    let touch = || pages().for_each(|page| tiny.counter(page, 1).store(7, Relaxed));
    touch();
    let pinned = PageRange::new(PageIndex(20), PageCount(1));
    tiny.mmu.pinned(pinned);
    touch();
    let mut bytes = [0u8; 8];
    let mut read = || {
        let from = tiny.mmu.addr_of(pinned.start).wrapping_add(8).cast();
        let (ours, theirs) = (
            libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: 8,
            },
            libc::iovec {
                iov_base: from,
                iov_len: 8,
            },
        );
        // SAFETY: the call reads this process's own arena into a buffer of that length; closed pages are an error.
        unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) }
    };
    assert_eq!(read(), 8);
    tiny.mmu.unpinned(pinned);
    touch();
    assert_eq!(read(), -1, "the leaf of page 20 is not parked");
    tiny.end();
}

/// Pages that move to other addresses keep their bytes and their protections, and so do pages that are out.
#[test]
fn pages_are_handed_over() {
    let Some(config) = closed(8) else { return };
    let tiny = Tiny::with(config, 0);
    let range = |leaf: u32| PageRange::new(PageIndex(leaf * LEAF_PAGES + 7), PageCount(1000));
    let seen = Arc::new(AtomicU64::new(0));
    for page in (0..1000).step_by(3) {
        tiny.counter(7 + page, 2).store(page as u64, Relaxed);
    }
    tiny.mmu.close(range(4)).unwrap();
    protect(
        &tiny.mmu,
        PageRange::new(PageIndex(7), PageCount(1)),
        libc::PROT_READ,
    );
    for (from, to) in [(0, 4), (4, 0), (0, 4)] {
        // SAFETY: nothing else runs, and nobody uses the destination.
        unsafe { tiny.mmu.hand_over_watched(range(from), range(to), false) }.unwrap();
    }
    let there = 4 * LEAF_PAGES as usize;
    let mut states = tiny.states.lock().unwrap();
    states.copy_within(7..1007, there + 7);
    states[7..1007].fill(common::State::Empty);
    drop(states);
    for page in (0..1000).step_by(3) {
        assert_eq!(tiny.counter(there + 7 + page, 2).load(Relaxed), page as u64);
        seen.fetch_add(1, Relaxed);
    }
    let mut present = 0;
    tiny.mmu
        .present_pages(range(0), &mut |run| present += run.len.0);
    assert_eq!(present, 0);
    tiny.mmu.zap(&[range(4)]);
    tiny.end();
}
