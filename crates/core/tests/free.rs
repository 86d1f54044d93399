//! Tests of gathers, ticks and the mark of the pool, decision by decision.

mod common;

use common::{Bench, Driven, NEW, part};
use millpond_core::gather::{Gather, Gathered};
use millpond_core::limits::DISCARD_WALK;
use millpond_core::{
    Command, Event, LEAF_PAGES, Outcome, PageCount, PageIndex, PageRange, PageState, Refusal, Reply,
};

fn unhook(bench: &mut Bench, range: PageRange, gather: &mut Gather) -> Reply {
    let reply = bench.0.gather(range, gather);
    bench.0.check().unwrap();
    reply
}

fn given_back(bench: &mut Bench, gather: &mut Gather) {
    assert_eq!(bench.give_back(gather), None, "nobody waits");
}

#[test]
fn unhooked_pages_count_until_they_are_given_back() {
    let mut bench = Bench::new();
    let range = bench.filled(96, 4);
    bench.swap_out(range);
    bench.touch(part(range, 0..16));
    bench.touch(part(range, 32..96));
    bench.page_out(part(range, 0..16));
    let mut gather = Gather::with_pages(1);
    assert_eq!(unhook(&mut bench, range, &mut gather), Reply::Done);
    // The batch has the range of the 64 mapped pages, and the slots of all. The frame of the folio in limbo is
    // already spare.
    assert_eq!(gather.zap(), Some(range));
    let slots = gather
        .items()
        .filter(|item| matches!(item, Gathered::Slot(_)));
    assert_eq!(slots.count(), 6);
    let vm = bench.0.stats();
    assert_eq!(
        (vm.nr_unhooked, vm.nr_mapped, vm.nr_limbo, vm.nr_swapped),
        (64, 0, 0, 0)
    );
    assert!(!bench.0.is_quiet());
    assert!(
        range
            .pages()
            .all(|page| bench.0.page_state(page) == PageState::Empty)
    );
    let before = bench.0.available().0;
    given_back(&mut bench, &mut gather);
    assert_eq!(
        (bench.0.available().0 - before, bench.0.stats().nr_unhooked),
        (64, 0)
    );
    assert!(bench.0.is_quiet());
}

/// Frames that a gather took from limbo used to count as freed as soon as they were collected: the next faults used
/// that memory while it was still occupied, which exceeded the limit by the length of limbo. (Simulator, seed
/// 16777225.)
#[test]
fn gathered_frames_count_until_they_are_given_back() {
    let mut bench = Bench::new();
    let range = bench.filled(96, 4);
    bench.page_out(range);
    assert_eq!(bench.0.stats().nr_limbo, 96);
    // Without demand the pool keeps none of them.
    for _ in 0..64 {
        bench.send(Event::Tick);
    }
    let before = bench.0.available();
    let mut gather = Gather::with_pages(1);
    assert_eq!(unhook(&mut bench, range, &mut gather), Reply::Done);
    let frames = gather.items().filter_map(|item| match item {
        Gathered::Frame(frame) => Some(frame.order().pages().0),
        _ => None,
    });
    let collected: u32 = frames.sum();
    assert!(collected > 0);
    assert_eq!(bench.0.available().0, before.0 + 96 - collected);
    given_back(&mut bench, &mut gather);
    assert_eq!(bench.0.available().0, before.0 + 96);
}

/// Gives back the spare frames that are not needed. Returns their number of pages.
fn give_spare_back(bench: &mut Bench) -> u32 {
    let mut gather = Gather::with_pages(0);
    let mut pages = 0;
    loop {
        bench.0.gather_spare(PageCount(64), &mut gather);
        if gather.is_empty() {
            return pages;
        }
        assert!(gather.pages() <= PageCount(64 + 15), "four a batch, by 16");
        pages += gather.pages().0;
        given_back(bench, &mut gather);
    }
}

/// A growing store lowers the limit while a thread reclaims. Spare frames that the thread had made once exceeded a
/// budget of 39 MiB by 2 MiB, until the next fault checked. Now a few are freed immediately.
#[test]
fn a_lowered_limit_gives_a_few_spare_frames_back_at_once() {
    let mut bench = Bench::new();
    let range = bench.filled(256, 4);
    bench.all(range, |range| Event::Discard { range });
    let pages = PageCount(200);
    let commands = bench.send(Event::SetLimit { pages }).1;
    let freed = |command: &Command| matches!(command, Command::FreeFrame { .. });
    assert_eq!((commands.len(), commands.iter().all(freed)), (4, true));
    bench.work(commands);
    assert_eq!(bench.0.stats().nr_free_frames, 192);
    assert!(bench.send(Event::SetLimit { pages }).1.is_empty());
}

/// A collected frame counts as memory until it is freed, and is collected once.
#[test]
fn spare_frames_over_a_lowered_budget_are_freed_in_batches() {
    let mut bench = Bench::new();
    let range = bench.filled(1024, 4);
    bench.all(range, |range| Event::Discard { range });
    assert_eq!(bench.0.stats().nr_free_frames, 1024);
    let pages = PageCount(96);
    assert!(bench.send(Event::SetLimit { pages }).1.is_empty());
    assert_eq!(bench.0.spare_excess(), PageCount(1024 - 96));
    let mut gather = Gather::with_pages(1);
    let most = PageCount(10_000);
    bench.0.gather_spare(most, &mut gather);
    // Frames are freed down to the limit, and to the half of it that demand may keep.
    assert_eq!(gather.pages(), PageCount(1024 - 48));
    assert_eq!(bench.0.available(), PageCount(0));
    assert_eq!(bench.0.spare_excess(), PageCount::ZERO);
    let mut again = Gather::with_pages(1);
    bench.0.gather_spare(most, &mut again);
    assert!(again.is_empty());
    given_back(&mut bench, &mut gather);
    assert_eq!(bench.0.available(), PageCount(96));
    assert_eq!(give_spare_back(&mut bench), 0);
}

#[test]
fn a_full_batch_ends_the_walk_and_the_next_goes_on() {
    let mut bench = Bench::new();
    let range = bench.filled(256, 0);
    for page in 0..256 {
        bench.swap_out(part(range, page..page + 1));
    }
    // The batch has no more room than inline, and a folio may leave two items.
    let mut gather = Gather::new();
    let inline = gather.room() as u32;
    let (mut rest, mut batches) = (range, 0);
    loop {
        let reply = unhook(&mut bench, rest, &mut gather);
        batches += 1;
        given_back(&mut bench, &mut gather);
        match reply {
            Reply::More { from } => rest = rest.tail(from),
            reply => break assert_eq!(reply, Reply::Done),
        }
    }
    assert!(batches > 1 && batches >= 256 / inline, "{batches}");
    assert_eq!(bench.0.slots_in_use(), 0);
}

#[test]
fn a_walk_is_32_mib_at_most() {
    let mut bench = Bench::new();
    let range = bench.region(DISCARD_WALK + LEAF_PAGES, 0);
    let mut gather = Gather::with_pages(0);
    let from = range.start.plus(DISCARD_WALK);
    assert_eq!(unhook(&mut bench, range, &mut gather), Reply::More { from });
    assert!(gather.is_empty());
}

#[test]
fn unhook_waits_for_pages_in_flight_and_is_refused_if_pinned() {
    let mut bench = Bench::new();
    let range = bench.filled(32, 4);
    let mut gather = Gather::with_pages(0);
    assert_eq!(
        bench
            .send(Event::Pin {
                range: part(range, 3..4)
            })
            .0,
        Reply::Done
    );
    let refused = Reply::Refused(Refusal::Pinned {
        page: range.start.plus(3),
    });
    assert_eq!(unhook(&mut bench, range, &mut gather), refused);
    assert_eq!(
        bench
            .send(Event::Unpin {
                range: part(range, 3..4)
            })
            .0,
        Reply::Done
    );

    let late = bench.region(16, 4);
    let [Command::Zero { folio, .. }] = bench.fault(late.start).1[..] else {
        panic!("a fault brings zeros in")
    };
    let wait = Reply::Wait { page: late.start };
    assert_eq!(unhook(&mut bench, late, &mut gather), wait);
    let answer = bench.tell(folio, NEW);
    assert!(matches!(answer[..], [Command::Wake { .. }]), "{answer:?}");
    assert_eq!(unhook(&mut bench, late, &mut gather), Reply::Done);
    given_back(&mut bench, &mut gather);
}

#[test]
fn a_discard_keeps_memory_for_demand_and_ticks_give_it_back() {
    let mut bench = Bench::new();
    let range = bench.filled(256, 4);
    let given = bench.all(range, |range| Event::Discard { range });
    assert!(
        given
            .iter()
            .all(|command| matches!(command, Command::TakeOut { .. }))
    );
    assert_eq!(bench.0.stats().nr_free_frames, 256);
    // Demand halves with each tick: 256, 128, 64 and so on.
    let mut kept = Vec::new();
    for _ in 0..10 {
        bench.send(Event::Tick);
        give_spare_back(&mut bench);
        kept.push(bench.0.stats().nr_free_frames);
    }
    assert_eq!(kept[..3], [256, 128, 64]);
    assert_eq!(kept[9], 0);
    // Without demand for memory nothing is kept.
    let range = PageRange::new(range.start, PageCount(16));
    bench.touch(range);
    for _ in 0..6 {
        bench.send(Event::Tick);
    }
    let (_, mut given) = bench.hold(Event::Discard { range });
    let run = [Gathered::Run(range)];
    assert!(given.is_empty() && given.batch().items().eq(run));
    assert_eq!(bench.give_back(given.batch()), None);
}

/// Memory that threads may touch is also freed in batches. Neighbours form one run; it ends at a page that a fault may
/// bring in before the run is dropped.
#[test]
fn remaining_memory_of_a_discard_is_freed_in_batches() {
    let mut bench = Bench::new();
    let range = bench.filled(96, 4);
    bench.swap_out(range);
    bench.touch(part(range, 0..48));
    bench.touch(part(range, 64..96));
    bench.page_out(part(range, 64..80));
    // Without demand the pool keeps nothing.
    for _ in 0..64 {
        bench.send(Event::Tick);
    }
    give_spare_back(&mut bench);
    let (reply, mut out) = bench.hold(Event::Discard { range });
    assert!(reply == Reply::Done && out.is_empty());
    let is_slot = |item: &Gathered| matches!(item, Gathered::Slot(_));
    let (slots, runs): (Vec<_>, Vec<_>) = out.batch().items().partition(is_slot);
    assert_eq!(slots.len(), 6);
    let expected = [part(range, 0..48), part(range, 80..96)];
    assert_eq!(runs, expected.map(Gathered::Run));
    assert_eq!(out.batch().pages(), PageCount(48 + 16));
    // The folio that was in limbo is already spare; everything else counts as before.
    assert_eq!(bench.0.stats().nr_free_frames, 16);
    let vm = bench.0.stats();
    assert_eq!((vm.nr_mapped, vm.nr_limbo, vm.nr_unhooked), (64, 0, 0));
    assert!(!bench.0.is_quiet());
    let before = bench.0.available();
    assert_eq!(bench.give_back(out.batch()), None);
    assert_eq!(bench.0.available(), PageCount(before.0 + 64));
    assert!(bench.0.is_quiet() && bench.0.slots_in_use() == 0);
    assert_eq!(bench.0.stats().pgdiscard, 96);
}

/// A touch of a page that is being dropped waits; a touch of its neighbour does not.
#[test]
fn a_fault_in_a_run_waits_until_it_was_given_back() {
    let mut bench = Bench::new();
    let range = bench.filled(64, 2);
    for _ in 0..64 {
        bench.send(Event::Tick);
    }
    let gap = part(range, 32..36);
    bench.send(Event::Discard { range: gap });
    let (_, mut out) = bench.hold(Event::Discard { range });
    let runs = [part(range, 0..32), part(range, 36..64)].map(Gathered::Run);
    assert!(out.batch().items().eq(runs));
    for page in [9, 40] {
        let at = range.start.plus(page / 4 * 4);
        let reply = bench.fault(range.start.plus(page)).0;
        assert_eq!(reply, Reply::Wait { page: at });
    }
    bench.touch(gap);
    assert_eq!(bench.state(range, 33), PageState::Resident);
    // Another discard of the range waits as well.
    let wait = Reply::Wait { page: range.start };
    assert_eq!(bench.send(Event::Discard { range }).0, wait);
    let woken = bench.give_back(out.batch());
    assert_eq!(woken, Some(part(range, 0..44)));
    assert_eq!(bench.state(range, 33), PageState::Resident);
    assert_eq!(bench.state(range, 9), PageState::Empty);
    bench.touch(range);
}

/// A page that the kernel holds cannot be taken out, but must read as zeros all the same.
#[test]
fn a_page_that_cannot_be_taken_out_is_zapped() {
    for outcome in [Outcome::TakeOutBusy, Outcome::TakeOutImmovable] {
        let mut bench = Bench::new();
        let range = bench.filled(16, 4);
        let (_, commands) = bench.send(Event::Discard { range });
        let [Command::TakeOut { folio, .. }] = commands[..] else {
            panic!("{commands:?}")
        };
        // In the meantime a fault waits for the folio.
        assert_eq!(
            bench.fault(range.start).0,
            Reply::Wait { page: range.start }
        );
        let answer = bench.tell(folio, outcome);
        assert!(matches!(answer[..], [Command::Zap { .. }]), "{answer:?}");
        let answer = bench.tell(folio, Outcome::Zapped);
        assert!(matches!(answer[..], [Command::Wake { .. }]), "{answer:?}");
        assert_eq!(bench.state(range, 0), PageState::Empty);
    }
}

#[test]
fn a_bad_range_is_refused() {
    let mut bench = Bench::new();
    let beyond = PageRange::new(PageIndex(u32::MAX - 1), PageCount(8));
    let mut gather = Gather::with_pages(0);
    assert_eq!(
        unhook(&mut bench, beyond, &mut gather),
        Reply::Refused(Refusal::BadRange)
    );
}

/// Memory that is kept in place replaces frames in the pool instead of adding to them; its use counts as demand.
#[test]
fn the_pool_keeps_less_when_memory_is_kept_in_place() {
    let mut bench = Bench::new();
    bench.filled(256, 4);
    assert_eq!(bench.0.room_to_keep(), PageCount(256));
    bench.0.keep(PageCount(200), PageCount(0));
    assert_eq!(
        (bench.0.room_to_keep(), bench.0.pool_room()),
        (PageCount(56), PageCount(56))
    );
    assert_eq!(bench.0.kept_too_much(), PageCount(0));
    for _ in 0..2 {
        bench.send(Event::Tick);
    }
    assert_eq!(bench.0.kept_too_much(), PageCount(200 - 128));
    bench.0.keep(PageCount(200), PageCount(300));
    assert_eq!(
        (bench.0.room_to_keep(), bench.0.kept_too_much()),
        (PageCount(100), PageCount(0))
    );
}
