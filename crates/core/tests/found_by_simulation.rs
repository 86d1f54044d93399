//! Bugs found in the core, most of them by the simulator, each as a short history that reproduces it.
//!
//! A seed keeps its history only as long as the simulator does not change; these tests are independent of it. Events
//! are sent and commands answered by hand. Each test fails on the core before the commit that its story names, except
//! `a_folio_in_limbo_comes_back_while_the_store_is_full`: there the MMU was fixed.

mod common;

use common::{Driven, NEW};
use millpond_core::gather::Gathered;
use millpond_core::limits::{MIN_LIMIT_PAGES, RECLAIM_SCAN};
use millpond_core::{
    Advice, Command, Config, Core, Event, FreeMode, LEAF_PAGES, Order, Outcome, PageCount,
    PageIndex, PageRange, PageState, Reclaimer, RegionId, Reply,
};

const LIMIT: u32 = MIN_LIMIT_PAGES;
const COPIED: Outcome = Outcome::Installed { frame_kept: true };

/// A core with a driver that does nothing by itself. Every event is followed by the whole-state check.
struct Bench(Core);

impl Driven for Bench {
    fn core(&mut self) -> &mut Core {
        &mut self.0
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let arena = PageCount(32 * LEAF_PAGES);
        let mut config = Config::new(arena, PageCount(LIMIT));
        change(&mut config);
        Self(Core::new(config).unwrap())
    }

    fn fault(&mut self, page: PageIndex, max_order: Order) -> (Reply, Vec<Command>) {
        self.send(Event::Fault {
            page,
            max_order,
            within: PageRange::ALL,
        })
    }

    /// Touches every page of `range`. Installs end as `outcome`.
    fn touch(&mut self, range: PageRange, outcome: Outcome) {
        for page in range.pages() {
            let (reply, commands) = self.fault(page, Order::MAX);
            if reply == Reply::Present {
                continue;
            }
            assert_eq!(reply, Reply::Done);
            self.work_as(commands, outcome);
        }
    }

    /// Sends an event for all of `range`, as often as it takes.
    fn all(&mut self, mut range: PageRange, event: impl Fn(PageRange) -> Event) {
        loop {
            let (reply, commands) = self.send(event(range));
            self.work_as(commands, NEW);
            match reply {
                Reply::Done => return,
                Reply::More { from } => {
                    range = range.tail(from);
                }
                reply => panic!("{reply:?}"),
            }
        }
    }

    fn page_out(&mut self, range: PageRange) {
        let advice = Advice::PageOut;
        self.all(range, |range| Event::Advise { range, advice });
    }

    fn discard(&mut self, range: PageRange) {
        self.all(range, |range| Event::Discard { range });
    }

    fn lazy_free(&mut self, range: PageRange, mode: FreeMode) {
        self.all(range, |range| Event::LazyFree { range, mode });
    }

    fn reclaim(&mut self) -> Vec<Command> {
        let (pages, by) = (PageCount(64), Reclaimer::Background);
        self.send(Event::Reclaim { pages, by }).1
    }

    fn frames(&self) -> u64 {
        let stats = self.0.stats();
        stats.nr_mapped + stats.nr_limbo + stats.nr_free_frames
    }

    /// Discards and drops all regions, and checks that nothing is left.
    fn end(mut self, regions: &[(RegionId, PageRange)]) {
        for &(region, range) in regions {
            self.discard(range);
            assert_eq!(self.send(Event::DropRegion { region }).0, Reply::Done);
        }
        let stats = self.0.stats();
        let left = (stats.nr_mapped, stats.nr_limbo, stats.nr_swapped);
        assert_eq!((left, self.0.slots_in_use()), ((0, 0, 0), 0));
        assert!(self.0.is_quiet());
    }
}

/// Seeds 9 and 1003889 (fixed by d2254cb). A large folio was installed by copying, so its frame stayed behind as spare
/// and the frames were over the limit by the folio's length. The core then gave back a number of *frames*, the smallest
/// first: 24 single pages for 64 missing ones. 40 pages stayed above the limit with nothing in flight, until the next
/// fault. Now the smallest frame that covers the missing pages goes, or the largest there is.
#[test]
fn a_copied_install_does_not_leave_the_budget_exceeded() {
    let mut bench = Bench::new();
    // 32 spare frames of one page, and one of 64.
    let small = bench.create(32, 0);
    let large = bench.create(128, 6);
    let first = PageRange::block(large.1.start, Order::new(6).unwrap());
    for range in [small.1, first] {
        bench.touch(range, NEW);
        bench.page_out(range);
        bench.discard(range);
    }
    assert_eq!(bench.0.stats().nr_free_frames, 32 + 64);
    // Mapped memory takes the rest of the budget.
    let rest = bench.create(LIMIT - 96, 5);
    bench.touch(rest.1, NEW);
    assert_eq!(bench.frames(), u64::from(LIMIT));

    let (reply, commands) = bench.fault(large.1.start, Order::MAX);
    let [Command::Zero { folio, frame, .. }] = commands[..] else {
        panic!("{reply:?} {commands:?}");
    };
    assert_eq!(frame.map(|frame| frame.order().get()), Some(6));
    let freed = bench.tell(folio, COPIED);
    assert!(
        bench.frames() <= u64::from(LIMIT),
        "{} frames of {LIMIT} after {freed:?}",
        bench.frames()
    );
    bench.work_as(freed, NEW);
    assert!(bench.0.is_quiet());
    bench.end(&[small, large, rest]);
}

/// Seed 11872894 (fixed by d2254cb). A folio that could not be moved was being discarded when news of a changed
/// protection came. Handling the news checked the flag but not the state, and put the folio on the inactive list while
/// a command named it: the completion released a listed record, or reclaim took the folio out while its zap was
/// pending. Now the flag is always cleared, and only a resident folio changes lists.
#[test]
fn news_of_protection_leaves_a_folio_in_flight_alone() {
    let mut bench = Bench::new();
    let region = bench.create(1, 0);
    let range = region.1;
    bench.touch(range, NEW);
    let advice = Advice::PageOut;
    let (_, commands) = bench.send(Event::Advise { range, advice });
    let [Command::TakeOut { folio, .. }] = commands[..] else {
        panic!("{commands:?}");
    };
    bench.tell(folio, Outcome::TakeOutImmovable);
    assert_eq!(bench.0.stats().nr_unevictable, 1);

    let (_, mut out) = bench.hold(Event::Discard { range });
    assert!(out.batch().items().eq([Gathered::Run(range)]));
    assert_eq!(bench.send(Event::Protected { range }).0, Reply::Done);
    assert_eq!(bench.0.stats().nr_inactive, 0);
    assert_eq!(bench.reclaim(), [], "the folio is being discarded");
    bench.give_back(out.batch());
    assert_eq!(bench.0.page_state(range.start), PageState::Empty);
    bench.end(&[region]);
}

/// Seeds 10034023 and 1474308 (fixed by c9c7519). The program had split a folio in limbo by a protection. Its rescue
/// was answered with `InstallSplit`, the fault came back for a single page, and the only way to have single pages was
/// to save the folio and load it in parts. The store was full: the save failed, the folio went back to limbo, and the
/// fault came again, forever. The cure is in the MMU: contents that exist are mapped page by page, whatever borders
/// they cross, so a rescue is no longer answered with `InstallSplit` for a border. The core's half of the cure has
/// three parts: a full store does not turn a rescue into a save, a rescue by copying ends the fault, and the next news
/// of the protection splits the mapped folio. A driver that asks for single pages anyway loses nothing, but is not
/// served until the store accepts saves again. The core did all this before the fix, and this test checks that it still
/// does. The fix itself is checked by `contents_cross_protections_and_an_unmapped_page_takes_the_folio_back` in the
/// MMU's tests.
#[test]
fn a_folio_in_limbo_comes_back_while_the_store_is_full() {
    let mut bench = Bench::new();
    let region = bench.create(16, 4);
    let (range, page) = (region.1, region.1.start.plus(6));
    bench.touch(range, NEW);
    bench.page_out(range);
    assert_eq!(bench.0.page_state(page), PageState::Limbo);

    // Single pages come through the store, which is full.
    for _ in 0..3 {
        let (reply, commands) = bench.fault(page, Order::ZERO);
        assert_eq!(reply, Reply::Wait { page: range.start });
        let [Command::Save { folio, .. }] = commands[..] else {
            panic!("{commands:?}");
        };
        assert_eq!(
            bench.tell(folio, Outcome::StoreFull),
            [Command::Wake { at: range }]
        );
        assert_eq!(bench.0.page_state(page), PageState::Limbo);
    }
    assert!(bench.0.store_blocked());

    // The whole folio is mapped again without the store.
    let (reply, commands) = bench.fault(page, Order::MAX);
    let [Command::Rescue { folio, at, .. }] = commands[..] else {
        panic!("{reply:?} {commands:?}");
    };
    assert_eq!(at, range);
    bench.tell(folio, COPIED);
    assert_eq!(bench.0.page_state(page), PageState::Resident);
    let half = PageRange::new(page, PageCount(4));
    assert_eq!(bench.send(Event::Protected { range: half }).0, Reply::Done);
    assert!(bench.0.stats().folio_split > 0);

    // Single pages come through the store when it accepts saves again.
    bench.page_out(range);
    bench.send(Event::RetryStore);
    bench.touch(range, NEW);
    assert_eq!(bench.0.page_state(page), PageState::Resident);
    bench.end(&[region]);
}

/// Seed 10034023's log (fixed by c9c7519). Background reclaim met folios in limbo that had changed since they were
/// loaded from a slot. A store that took nothing was still tried for folios with a slot, for they might be unchanged.
/// Each was refused, went back to limbo's old end with its slot, and was the first of the next batch. Reclaim never
/// answered "nothing to do", but compared and compressed in a loop for as long as the store was full. A full store has
/// compared, so the slot is stale; now it is given up, which ends the loop and makes room in the store. The folios that
/// were refused are tried once for that room.
#[test]
fn reclaim_rests_when_a_full_store_has_refused_everything() {
    const FOLIOS: u32 = 5;
    let mut bench = Bench::new();
    let region = bench.create(FOLIOS, 0);
    let range = region.1;
    bench.touch(range, NEW);
    bench.page_out(range);
    for command in bench.reclaim() {
        bench.work_as(vec![command], NEW);
    }
    assert_eq!(bench.0.stats().nr_swapped, u64::from(FOLIOS));
    // The pages come in again, are changed by the program, and go out again.
    bench.touch(range, NEW);
    bench.page_out(range);

    let mut refused = 0;
    let mut released = 0;
    for _ in 0..10 {
        let room_came = released;
        for command in bench.reclaim() {
            let Command::Save {
                folio, previous, ..
            } = command
            else {
                panic!("{command:?}");
            };
            assert!(
                previous.is_some() || room_came > 0,
                "only what might be unchanged is tried, or what there may be room for"
            );
            refused += 1;
            for command in bench.tell(folio, Outcome::StoreFull) {
                released += u32::from(matches!(command, Command::Release { .. }));
                bench.work_as(vec![command], NEW);
            }
        }
    }
    assert_eq!((refused, released), (2 * FOLIOS, FOLIOS));
    assert_eq!(bench.reclaim(), []);
    assert_eq!(
        bench.0.stats().nr_limbo,
        u64::from(FOLIOS),
        "nothing is lost"
    );
    assert!(bench.0.is_quiet());
    bench.end(&[region]);
}

/// Noted with the bug of `reclaim_rests_when_a_full_store_has_refused_everything` (fixed by c9c7519). One batch looks
/// at the oldest 128 folios of limbo only. While the store took nothing, folios that it could not take stayed at the
/// old end. Folios behind them that it already held, and that could have left memory immediately, were never examined.
/// Now skipped folios go to the young end.
#[test]
fn unchanged_folios_are_found_behind_others_while_the_store_is_full() {
    let others = RECLAIM_SCAN as u32 + 20;
    let mut bench = Bench::new();
    let clean = bench.create(1, 0);
    let dirty = bench.create(others, 0);
    bench.touch(clean.1, NEW);
    bench.page_out(clean.1);
    for command in bench.reclaim() {
        bench.work_as(vec![command], NEW);
    }
    bench.touch(clean.1, NEW);
    // Advice puts folios at limbo's old end, so the folio that comes first ends up youngest.
    bench.page_out(clean.1);
    bench.touch(dirty.1, NEW);
    bench.page_out(dirty.1);
    let (_, commands) = bench.fault(dirty.1.start, Order::MAX);
    bench.work_as(commands, NEW);
    bench.page_out(PageRange::new(dirty.1.start, PageCount(1)));
    let first: Vec<_> = bench.reclaim();
    for command in first {
        let Command::Save { folio, .. } = command else {
            panic!("{command:?}");
        };
        for command in bench.tell(folio, Outcome::StoreFull) {
            bench.work_as(vec![command], NEW);
        }
    }
    assert!(bench.0.store_blocked());

    for _ in 0..4 {
        for command in bench.reclaim() {
            let Command::Save {
                folio, previous, ..
            } = command
            else {
                panic!("{command:?}");
            };
            assert!(previous.is_some());
            bench.tell(folio, Outcome::Unchanged);
        }
    }
    assert_eq!(bench.0.page_state(clean.1.start), PageState::Swapped);
    bench.end(&[clean, dirty]);
}

/// Fixed by 7b8daa4. The count of slots that the store was asked to forget was incremented, but not decremented when it
/// had forgotten them. `is_quiet` waits for that count, and a fork waits for `is_quiet`: after the first release every
/// fork waited forever.
#[test]
fn a_released_slot_is_not_waited_for() {
    let mut bench = Bench::new();
    let region = bench.create(1, 0);
    let range = region.1;
    bench.touch(range, NEW);
    bench.page_out(range);
    for command in bench.reclaim() {
        bench.work_as(vec![command], NEW);
    }
    assert_eq!(bench.0.page_state(range.start), PageState::Swapped);
    let (_, commands) = bench.send(Event::Purge { range });
    let [Command::Release { slot }] = commands[..] else {
        panic!("{commands:?}");
    };
    assert!(!bench.0.is_quiet(), "the store has not answered yet");
    bench.send(Event::SlotReleased { slot });
    assert!(bench.0.is_quiet());
    assert_eq!(bench.0.slots_in_use(), 0);
    bench.end(&[region]);
}

/// Seed 5. A page that could not be moved was lazily freed such that it had to read as zeros, and was therefore
/// zeroed in place. Then it had a mark and was on the unevictable list, where nothing is dropped. It counted as
/// lazily freed forever, so that no volatile range was purged any more. News of its protection then put it on the
/// inactive list, with its mark. Now it is dropped as in a discard; a page that cannot move because of its mapping
/// may well be read-only.
#[test]
fn immovable_page_that_must_read_zeros_is_dropped() {
    let mut bench = Bench::new();
    let region = bench.create(1, 0);
    let range = region.1;
    bench.touch(range, NEW);
    let advice = Advice::PageOut;
    let (_, commands) = bench.send(Event::Advise { range, advice });
    let [Command::TakeOut { folio, .. }] = commands[..] else {
        panic!("{commands:?}");
    };
    bench.tell(folio, Outcome::TakeOutImmovable);

    bench.lazy_free(range, FreeMode::ReadsZeros);
    bench.send(Event::Protected { range });
    assert_eq!(bench.0.stats().nr_lazyfree, 0);
    assert_eq!(bench.0.page_state(range.start), PageState::Empty);
    bench.end(&[region]);
}

/// Seeds 20, 21 and 33. The oldest lazily freed folio was mapped, and the pool had no place for it: lazily freed folios
/// that had been taken out held all of them. Reclaim dropped nothing because of the first, and could take nothing else
/// out because it had no place. Every fault asked for memory forever. Now a folio without a place makes way for folios
/// that free one.
#[test]
fn lazily_freed_memory_is_dropped_behind_a_folio_without_a_place() {
    let mut bench = Bench::with(|config| config.pool.frames = [4; 10]);
    let region = bench.create(3, 0);
    let range = region.1;
    let first = PageRange::new(range.start, PageCount(1));
    let others = PageRange::new(range.start.plus(1), PageCount(2));
    bench.touch(range, NEW);
    bench.lazy_free(first, FreeMode::Exclusive);
    // The folios take two of the four places; the others are kept for loads.
    bench.lazy_free(others, FreeMode::Shared);
    assert_eq!(bench.0.stats().nr_limbo, 2);

    for _ in 0..2 {
        for command in bench.reclaim() {
            bench.work_as(vec![command], NEW);
        }
    }
    assert_eq!(bench.0.stats().nr_lazyfree, 0);
    assert_eq!(bench.0.stats().pglazyfreed, 3);
    bench.end(&[region]);
}

/// Seed 1. The store accepted nothing, so a fault without memory was served above the limit, although there was
/// lazily freed memory that could have been dropped without the store. Without any store this affects every fault.
#[test]
fn the_limit_is_not_exceeded_while_lazily_freed_memory_is_there() {
    let mut bench = Bench::new();
    let limbo = block_the_store(&mut bench);
    let full = bench.create(LIMIT - 2, 0);
    let more = bench.create(2, 0);
    bench.touch(full.1, NEW);
    let freed = PageRange::new(full.1.start.plus(9), PageCount(1));
    bench.lazy_free(freed, FreeMode::Exclusive);

    let short = Reply::Reclaim {
        pages: PageCount(1),
    };
    assert_eq!(bench.fault(more.1.start, Order::MAX), (short, vec![]));
    let pages = PageCount(1);
    let by = Reclaimer::Direct;
    for command in bench.send(Event::Reclaim { pages, by }).1 {
        bench.work_as(vec![command], NEW);
    }
    bench.touch(more.1, NEW);
    let stats = bench.0.stats();
    assert_eq!((stats.pglazyfreed, stats.over_limit), (1, 1));
    bench.end(&[limbo, full, more]);
}

/// The counterpart of the two previous tests: if lazily freed memory cannot be dropped, because a store that accepts
/// nothing keeps the pool's places full, nothing waits for it. It loses its mark.
#[test]
fn lazily_freed_memory_without_a_place_is_not_waited_for() {
    let mut bench = Bench::with(|config| config.pool.frames = [4; 10]);
    let limbo = block_the_store(&mut bench);
    let full = bench.create(LIMIT - 2, 0);
    let more = bench.create(1, 0);
    bench.touch(full.1, NEW);
    bench.page_out(PageRange::new(full.1.start, PageCount(2)));
    assert_eq!(bench.0.stats().nr_limbo, 4);
    let freed = PageRange::new(full.1.start.plus(9), PageCount(1));
    bench.lazy_free(freed, FreeMode::Exclusive);

    let (reply, _) = bench.fault(more.1.start, Order::MAX);
    assert!(matches!(reply, Reply::Reclaim { .. }), "{reply:?}");
    assert_eq!(bench.reclaim(), []);
    assert_eq!(bench.0.stats().nr_lazyfree, 0);
    bench.touch(more.1, NEW);
    assert_eq!(bench.0.stats().over_limit, 1);
    bench.end(&[limbo, full, more]);
}

/// Seeds 11 and 24. A batch of reclaim drops a bounded number of lazily freed folios. If that was not enough it
/// continued with memory in use, although more of the list was left: with single pages, half of the pages that a
/// thread in need took out were the wrong ones. Folios in limbo are dropped without a command, so commands alone do
/// not tell whether something was done.
#[test]
fn all_lazily_freed_memory_goes_before_any_other() {
    for mode in [FreeMode::Exclusive, FreeMode::Shared] {
        let mut bench = Bench::new();
        let used = bench.create(64, 0);
        let free = bench.create(RECLAIM_SCAN as u32 + 40, 0);
        bench.touch(used.1, NEW);
        bench.touch(free.1, NEW);
        bench.lazy_free(free.1, mode);
        while bench.0.stats().nr_lazyfree > 64 {
            let (pages, by) = (PageCount(256), Reclaimer::Direct);
            for command in bench.send(Event::Reclaim { pages, by }).1 {
                let Command::TakeOutIfBlank { .. } = command else {
                    panic!("{mode:?}: {command:?}");
                };
                bench.work_as(vec![command], NEW);
            }
        }
        bench.end(&[used, free]);
    }
}

/// Seed 4504639. Each thread that frees lazily drops the memory beyond the cap. Memory that another thread had begun to
/// drop was counted once more, so that several threads dropped several times the excess.
#[test]
fn memory_being_dropped_does_not_count_against_the_cap() {
    const CAP: u32 = 20;
    let mut bench = Bench::with(|config| config.lazyfree_max = PageCount(CAP));
    let region = bench.create(CAP + 10, 0);
    bench.touch(region.1, NEW);
    bench.lazy_free(region.1, FreeMode::Exclusive);
    assert_eq!(bench.0.lazyfree_over(), PageCount(10));
    let (_, commands) = bench.send(Event::TrimLazyFree);
    assert_eq!(commands.len(), 10);
    assert_eq!(bench.0.lazyfree_over(), PageCount::ZERO);
    assert_eq!(bench.send(Event::TrimLazyFree).1, []);
    bench.work_as(commands, NEW);
    assert_eq!(bench.0.stats().nr_lazyfree, u64::from(CAP));
    bench.end(&[region]);
}

/// Found by reading. One recount event processed all lazily freed folios in limbo, which need no command: a million
/// of them in one critical section.
#[test]
fn a_recount_examines_a_bounded_number_of_folios() {
    let pages = 2 * RECLAIM_SCAN as u32 + 1;
    let mut bench = Bench::new();
    let region = bench.create(pages, 0);
    bench.touch(region.1, NEW);
    bench.lazy_free(region.1, FreeMode::Shared);
    let mut rounds = Vec::new();
    let mut left = pages;
    while left > 0 {
        let event = Event::RecountLazyFree {
            left: PageCount(left),
        };
        let (
            Reply::Seen {
                pages: PageCount(n),
            },
            _,
        ) = bench.send(event)
        else {
            panic!("a recount is answered by what was seen");
        };
        rounds.push(n);
        left -= n;
    }
    let bound = RECLAIM_SCAN as u32;
    assert_eq!(rounds, [bound, bound, 1]);
    assert_eq!(bench.0.stats().nr_lazyfree, u64::from(pages));
    bench.end(&[region]);
}

/// Makes a folio of two pages in limbo that the store has refused.
fn block_the_store(bench: &mut Bench) -> (RegionId, PageRange) {
    let region = bench.create(2, 1);
    bench.touch(region.1, NEW);
    bench.page_out(region.1);
    let (_, commands) = bench.fault(region.1.start, Order::ZERO);
    let [Command::Save { folio, .. }] = commands[..] else {
        panic!("{commands:?}");
    };
    bench.tell(folio, Outcome::StoreFull);
    assert!(bench.0.store_blocked());
    region
}

/// Seed 13414052, with much lazily freed memory. The pool had no place for any of the mapped folios that a trim was
/// to drop, so each of them lost its mark instead. That was not counted, and the trim continued until no marked folio
/// was left.
#[test]
fn a_trim_without_a_place_removes_no_more_marks_than_requested() {
    let arena = PageCount(32 * LEAF_PAGES);
    let mut config = Config::new(arena, PageCount(LIMIT));
    config.pool.frames = [4; 10];
    config.lazyfree_max = PageCount(6);
    let mut bench = Bench(Core::new(config).unwrap());
    let region = bench.create(12, 0);
    let out = PageRange::new(region.1.start, PageCount(2));
    let freed = PageRange::new(region.1.start.plus(2), PageCount(10));
    bench.touch(region.1, NEW);
    // Two of the four places hold other folios, and two are kept for loads.
    let advice = Advice::PageOut;
    bench.all(out, |range| Event::Advise { range, advice });
    bench.lazy_free(freed, FreeMode::Exclusive);
    assert_eq!(bench.0.stats().nr_lazyfree, 10);

    for _ in 0..3 {
        for command in bench.send(Event::TrimLazyFree).1 {
            bench.work_as(vec![command], NEW);
        }
    }
    assert_eq!(bench.0.stats().nr_lazyfree, 6);
    bench.end(&[region]);
}

/// Every seed with a store that fails to load, once the simulator marked lost pages a moment after the core's
/// command. The mark had no answer, so nothing waited for it: a thread that discarded the page, or ended its region,
/// dropped a mark that did not exist yet. The mark came afterwards, to an empty page or to a page of the next region.
/// A touch of that page raised SIGBUS, or a page that was brought in met a mark unknown to the core.
///
/// Seed 13178127, when that was fixed: a thread that gives up the store's copy, to overwrite it, waited for a load that
/// might fail, but no longer for the mark of one that had failed. The mark came to pages that had been written since.
#[test]
fn discard_of_a_lost_page_waits_until_it_is_marked() {
    let mut bench = Bench::new();
    let region = bench.create(4, 2);
    bench.touch(region.1, NEW);
    bench.page_out(region.1);
    while bench.0.page_state(region.1.start) != PageState::Swapped {
        let commands = bench.reclaim();
        bench.work(commands);
    }
    let (_, commands) = bench.fault(region.1.start, Order::MAX);
    let [Command::Load { folio, .. }] = commands[..] else {
        panic!("{commands:?}");
    };
    let waits = Reply::Wait {
        page: region.1.start,
    };
    assert_eq!(bench.fault(region.1.start.plus(3), Order::MAX).0, waits);
    let commands = bench.tell(folio, Outcome::LoadFailed { frame_kept: true });
    let is_mark = |command: &&Command| matches!(command, Command::Poison { .. });
    let Some(&Command::Poison { folio, at }) = commands.iter().find(is_mark) else {
        panic!("{commands:?}");
    };
    assert_eq!(at, region.1);
    let wakes = |commands: &[Command]| commands.contains(&Command::Wake { at });
    assert!(!wakes(&commands), "nobody has anything to see yet");
    let rest = commands.into_iter().filter(|command| !is_mark(&command));
    bench.work(rest.collect());

    let range = region.1;
    assert_eq!(bench.send(Event::Discard { range }).0, waits);
    let mode = FreeMode::Stored;
    assert_eq!(bench.send(Event::LazyFree { range, mode }).0, waits);
    let mut gather = millpond_core::gather::Gather::new();
    assert_eq!(bench.0.gather(range, &mut gather), waits);
    assert!(gather.is_empty() && !bench.0.is_quiet());

    assert!(wakes(&bench.tell(folio, Outcome::Poisoned)));
    assert_eq!(bench.0.page_state(range.start), PageState::Poisoned);
    bench.discard(range);
    bench.end(&[region]);
}
