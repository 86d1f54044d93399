//! Tests of pages of files, and of balancing two kinds of memory by the cost of their refaults, decision by decision.

mod common;

use common::{Bench, Driven, part};
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Advice, Command, Config, Core, Event, FreeMode, Kind, LEAF_PAGES, Outcome, PageCount,
    PageIndex, PageRange, PageState, Refusal, Reply, VmStat,
};

/// A core whose limit is lowered to a few pages, so that histories are short.
fn small(limit: u32) -> Bench {
    let config = Config::new(PageCount(32 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES));
    let mut bench = Bench(Core::new(config).unwrap());
    let pages = PageCount(limit);
    bench.send(Event::SetLimit { pages });
    bench
}

fn file(bench: &mut Bench, pages: u32) -> PageRange {
    bench.create_of(Kind::File, pages, 0).1
}

/// Carries commands out. Each write-back ends as `written`.
fn work(bench: &mut Bench, commands: Vec<Command>, written: Outcome) {
    for command in commands {
        let next = match command {
            Command::WriteBack { folio, .. } => bench.tell(folio, written),
            other => {
                bench.work(vec![other]);
                continue;
            }
        };
        work(bench, next, written);
    }
}

/// Touches a page, reclaiming until that succeeds.
fn touch(bench: &mut Bench, page: PageIndex) {
    for _ in 0..100 {
        let (reply, commands) = bench.fault(page);
        work(bench, commands, Outcome::Unchanged);
        match reply {
            Reply::Reclaim { pages } => {
                let commands = bench.reclaim(pages.0);
                work(bench, commands, Outcome::Unchanged);
            }
            _ => return,
        }
    }
    panic!("{page} is reclaimed for, for ever");
}

/// Evicts all of `range`. Write-backs end as `written`. Returns the ranges of the write-backs.
fn leave(bench: &mut Bench, range: PageRange, written: Outcome) -> Vec<PageRange> {
    let advice = Advice::PageOut;
    bench.all(range, |range| Event::Advise { range, advice });
    let commands = bench.reclaim(range.len.0);
    let places = commands.iter().filter_map(|command| match command {
        Command::WriteBack { at, .. } => Some(*at),
        _ => None,
    });
    let places = places.collect();
    work(bench, commands, written);
    places
}

/// A page is read from its place in the file, dropped without a slot while it is clean, and written back to its place
/// when it is not.
#[test]
fn file_pages_use_their_place_in_the_file_and_no_slot() {
    let mut bench = Bench::new();
    let range = file(&mut bench, 100);
    let (reply, commands) = bench.fault(range.start);
    assert_eq!(reply, Reply::Done);
    let [Command::Read { at, .. }] = commands[..] else {
        panic!("{commands:?}")
    };
    assert_eq!(at, part(range, 0..1));
    bench.work(commands);
    let stats = bench.0.stats();
    assert_eq!((stats.pgmajfault, stats.pgpgin, stats.pswpin), (1, 1, 0));
    let asked = leave(&mut bench, at, Outcome::Unchanged);
    assert_eq!(asked, [at]);
    assert_eq!(bench.state(range, 0), PageState::Empty);
    let stats = bench.0.stats();
    assert_eq!((stats.pgpgout, stats.pswpout, stats.nr_swapped), (0, 0, 0));
    assert_eq!(bench.0.slots_in_use(), 0);
    bench.touch(at);
    assert_eq!(bench.0.stats().workingset_refault_file, 1);
    leave(&mut bench, at, Outcome::Stored);
    let stats = bench.0.stats();
    assert_eq!((stats.pgpgout, stats.pgsteal_file), (1, 2));
    assert_eq!((stats.pgsteal_anon, bench.0.slots_in_use()), (0, 0));
}

/// A page that could not be written stays, and is not tried again before the file is reported to accept writes. Clean
/// pages leave in the meantime.
#[test]
fn unwritable_page_waits_and_does_not_keep_reclaim_busy() {
    let mut bench = Bench::new();
    let range = file(&mut bench, 8);
    // With this advice no page comes in unrequested.
    let advice = Advice::Random;
    bench.send(Event::Advise { range, advice });
    bench.touch(part(range, 0..4));
    leave(&mut bench, part(range, 0..4), Outcome::StoreFailed);
    assert_eq!(bench.state(range, 0), PageState::Limbo);
    assert!(bench.0.files_blocked() && !bench.0.store_blocked());
    assert!(bench.reclaim(16).is_empty());
    bench.touch(part(range, 4..8));
    let asked = leave(&mut bench, part(range, 4..8), Outcome::Unchanged);
    assert_eq!(asked.len(), 4);
    assert_eq!(bench.state(range, 0), PageState::Limbo);
    bench.send(Event::RetryStore);
    let commands = bench.reclaim(16);
    assert_eq!(commands.len(), 4);
    work(&mut bench, commands, Outcome::Stored);
    assert_eq!(bench.state(range, 0), PageState::Empty);
}

/// A page that cannot be read is lost until it is discarded; then it is read again.
#[test]
fn a_page_that_cannot_be_read_is_poisoned() {
    let mut bench = Bench::new();
    let range = file(&mut bench, 4);
    let (_, commands) = bench.fault(range.start);
    bench.work_as(commands, Outcome::LoadFailed { frame_kept: true });
    assert_eq!(bench.state(range, 0), PageState::Poisoned);
    let one = part(range, 0..1);
    bench.all(one, |range| Event::Discard { range });
    let (_, commands) = bench.fault(range.start);
    assert!(matches!(commands[..], [Command::Read { .. }]));
    bench.work(commands);
}

/// A page that is mapped directly from the memory that holds its file never leaves a shadow. A page of another file
/// does, in tables that contain nothing else.
#[test]
fn pages_mapped_straight_from_memory_leave_no_shadow() {
    for (kind, refaults) in [(Kind::File, 1), (Kind::Direct, 0)] {
        let mut bench = Bench::new();
        let (_, range) = bench.create_of(kind, 100, 0);
        bench.touch(range);
        leave(&mut bench, range, Outcome::Unchanged);
        while bench.0.stats().nr_limbo > 0 {
            let commands = bench.reclaim(100);
            work(&mut bench, commands, Outcome::Unchanged);
        }
        assert_eq!(bench.0.stats().workingset_nodes, refaults);
        let majors = bench.0.stats().pgmajfault;
        bench.touch(part(range, 50..51));
        let stats = bench.0.stats();
        assert_eq!(stats.workingset_refault_file, refaults, "{kind:?}");
        assert_eq!(stats.pgmajfault - majors, refaults, "{kind:?}");
    }
}

/// Lazy frees, and all other operations that depend on where the bytes are, are refused for files.
#[test]
fn anonymous_memory_operations_are_refused_for_files() {
    let mut bench = Bench::new();
    let (region, range) = bench.create_of(Kind::File, 2 * LEAF_PAGES, 0);
    let (base, _) = bench.create(2 * LEAF_PAGES, 0);
    let (copy, other) = bench.create(2 * LEAF_PAGES, 0);
    bench.touch(part(range, 0..3));
    let events = [
        Event::LazyFree {
            range: part(range, 0..3),
            mode: FreeMode::Exclusive,
        },
        Event::LazyFree {
            range: part(range, 0..3),
            mode: FreeMode::AlreadyZeroed,
        },
        Event::Purge { range },
        Event::Snapshot { region, base, copy },
        Event::Remap {
            from: range,
            to: other,
        },
        Event::Remap {
            from: other,
            to: range,
        },
        Event::Resize {
            region,
            pages: PageCount(LEAF_PAGES),
        },
    ];
    for event in events {
        assert_eq!(
            bench.send(event),
            (Reply::Refused(Refusal::FileBacked), Vec::new()),
            "{event:?}"
        );
    }
}

/// Uses a heap and a file at random, together more than twice the memory. Returns the counts of the second half, and
/// how many pages of each are in memory.
fn balanced(anon_cost: u32, file_cost: u32) -> (VmStat, [u32; 2]) {
    let mut bench = small(128);
    for event in [
        Event::SetRefaultCost {
            sixteenths: anon_cost,
        },
        Event::SetFileCost {
            sixteenths: file_cost,
        },
    ] {
        bench.send(event);
    }
    let ranges = [bench.region(150, 0), file(&mut bench, 150)];
    let mut before = VmStat::default();
    let mut n = 12345_u32;
    for step in 0..5000 {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let range = ranges[(n >> 30 & 1) as usize];
        let page = range.start.plus((n >> 12) % 150);
        if !matches!(bench.0.page_state(page), PageState::Resident) {
            touch(&mut bench, page);
        }
        if step == 2500 {
            before = bench.0.stats();
        }
    }
    let in_memory = |page: &PageIndex| {
        let state = bench.0.page_state(*page);
        matches!(state, PageState::Resident | PageState::Limbo)
    };
    let sizes = ranges.map(|range| range.pages().filter(in_memory).count() as u32);
    (bench.0.stats().since(&before), sizes)
}

/// The scan follows the cost of a refault of each kind, and spares neither kind altogether.
#[test]
fn kind_with_dearer_refaults_is_scanned_less_and_keeps_more() {
    let (even, sizes) = balanced(256, 256);
    println!(
        "even: anon {} file {} {sizes:?}",
        even.pgscan_anon, even.pgscan_file
    );
    assert!(sizes[0].abs_diff(sizes[1]) < 30, "{sizes:?}");
    let (dear_file, sizes) = balanced(20, 1000);
    println!(
        "dear file: anon {} file {} {sizes:?}",
        dear_file.pgscan_anon, dear_file.pgscan_file
    );
    assert!(sizes[1] > 2 * sizes[0], "{sizes:?}");
    assert!(dear_file.workingset_refault_anon > dear_file.workingset_refault_file * 3 / 2);
    assert!(dear_file.pgsteal_file > dear_file.pgsteal_anon / 8);
    let (dear_anon, sizes) = balanced(1000, 20);
    println!(
        "dear anon: anon {} file {} {sizes:?}",
        dear_anon.pgscan_anon, dear_anon.pgscan_file
    );
    assert!(sizes[0] > 2 * sizes[1], "{sizes:?}");
    assert!(dear_anon.workingset_refault_file > dear_anon.workingset_refault_anon * 3 / 2);
    assert!(dear_anon.pgsteal_anon > dear_anon.pgsteal_file / 8);
}

/// The cost of files does not matter to a program without files: with cheap refaults a save earns few take-outs, so a
/// batch saves many folios. (Batches were three folios where twelve were due, when a whole batch had sixteen. They
/// left a group above its `high` in limbo, as long as no file was read: `a_group_above_its_high_is_reclaimed` in
/// `millpond/tests/groups.rs`.)
#[test]
fn a_kind_that_is_not_there_does_not_shorten_batches() {
    let mut bench = Bench::new();
    for event in [
        Event::SetRefaultCost { sixteenths: 20 },
        Event::SetFileCost { sixteenths: 1000 },
    ] {
        bench.send(event);
    }
    let range = bench.filled(1000, 0);
    bench.page_out(part(range, 0..300));
    let commands = bench.reclaim(64);
    let saves = commands
        .iter()
        .filter(|c| matches!(c, Command::Save { .. }));
    assert_eq!(saves.count(), 24);
}

/// A file that accepted nothing also kept reclaim from using the store: anonymous memory could not leave, and faults
/// exceeded the limit.
#[test]
fn an_unwritable_file_does_not_keep_other_memory_from_leaving() {
    let mut bench = Bench::new();
    let range = file(&mut bench, 64);
    let advice = Advice::Random;
    bench.send(Event::Advise { range, advice });
    bench.touch(range);
    while !leave(&mut bench, range, Outcome::StoreFailed).is_empty() {}
    assert!(bench.0.files_blocked() && !bench.0.store_blocked());
    // Anonymous memory goes to the store, wherever it is.
    let anonymous = bench.filled(64, 0);
    let advice = Advice::PageOut;
    bench.all(part(anonymous, 0..8), |range| Event::Advise {
        range,
        advice,
    });
    let mut saved = 0;
    for _ in 0..64 {
        let commands = bench.reclaim(16);
        let saves = commands
            .iter()
            .filter(|it| matches!(it, Command::Save { .. }));
        saved += saves.count();
        let asked = commands
            .iter()
            .any(|it| matches!(it, Command::WriteBack { .. }));
        assert!(!asked, "what waits for its file was asked for again");
        work(&mut bench, commands, Outcome::StoreFailed);
    }
    assert_eq!(saved, 64, "all of it left");
    assert!((0..64).all(|page| bench.state(range, page) == PageState::Limbo));
    bench.send(Event::RetryStore);
    for _ in 0..16 {
        let commands = bench.reclaim(16);
        work(&mut bench, commands, Outcome::Stored);
    }
    assert!((0..64).all(|page| bench.state(range, page) == PageState::Empty));
}

/// When all memory that could leave waits for its file, faults are served above the limit, as with a full store.
#[test]
fn faults_exceed_the_limit_when_all_pages_wait_for_their_file() {
    let mut bench = small(64);
    let range = file(&mut bench, 64);
    let advice = Advice::Random;
    bench.send(Event::Advise { range, advice });
    for page in range.pages() {
        touch(&mut bench, page);
    }
    leave(&mut bench, range, Outcome::StoreFailed);
    let anonymous = bench.region(8, 0);
    for page in anonymous.pages() {
        let served = (0..100).any(|_| {
            let (reply, commands) = bench.fault(page);
            work(&mut bench, commands, Outcome::StoreFailed);
            if let Reply::Reclaim { pages } = reply {
                let commands = bench.reclaim(pages.0);
                work(&mut bench, commands, Outcome::StoreFailed);
            }
            reply == Reply::Done
        });
        assert!(served, "{page} is reclaimed for, for ever");
    }
    assert!(bench.0.stats().over_limit > 0);
}

/// Folios that waited for their file had taken all places of their size in the pool. The remaining mapped folios could
/// not be taken out, but counted as if they could, and the next fault reclaimed forever.
#[test]
fn faults_exceed_the_limit_when_large_folios_wait_for_their_file() {
    for order in [0, 2, 4] {
        let mut bench = small(96);
        let (_, range) = bench.create_of(Kind::File, 192, order);
        for page in range.pages().step_by(1 << order) {
            let served = (0..2000).any(|_| {
                let (reply, commands) = bench.fault(page);
                work(&mut bench, commands, Outcome::StoreFailed);
                if let Reply::Reclaim { pages } = reply {
                    let commands = bench.reclaim(pages.0);
                    work(&mut bench, commands, Outcome::StoreFailed);
                }
                matches!(reply, Reply::Done | Reply::Present)
            });
            assert!(
                served,
                "{page} is reclaimed for, for ever, at order {order}"
            );
        }
        assert!(bench.0.stats().over_limit > 0);
    }
}
