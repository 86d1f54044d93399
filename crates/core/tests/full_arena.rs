//! Tests that slot numbers do not run out in a full arena.
//!
//! Found by measuring the cost of a decision: once every page of the arena had a slot, swapped out or as the backing of
//! a folio in memory, no number was left for saving a changed folio, and the fault that needed its memory reclaimed
//! forever. Now there are additional numbers, as many as there are folios in memory.

use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Command, Commands, Config, Core, Event, FreeMode, Kind, Order, Outcome, PageCount, PageIndex,
    PageRange, Reclaimer, Reply,
};

/// Answers everything as in a world where everything succeeds, and every folio has changed since it was loaded.
fn settle(core: &mut Core, out: &mut Commands) {
    while !out.is_empty() {
        let commands: Vec<Command> = out.iter().collect();
        out.clear();
        for command in commands {
            let done = |folio, outcome| Event::Completed { folio, outcome };
            let event = match command {
                Command::Zero { folio, .. }
                | Command::Load { folio, .. }
                | Command::Rescue { folio, .. } => {
                    done(folio, Outcome::Installed { frame_kept: false })
                }
                Command::TakeOut { folio, .. } => done(folio, Outcome::TakenOut),
                Command::Save { folio, .. } => done(folio, Outcome::Stored),
                Command::ZeroInPlace { folio, .. } => done(folio, Outcome::Zeroed),
                Command::Zap { folio, .. } => done(folio, Outcome::Zapped),
                Command::FreeFrame { frame } => Event::FrameFreed { frame },
                Command::Release { slot } => Event::SlotReleased { slot },
                other => panic!("{other:?}"),
            };
            core.handle(event, out);
        }
    }
}

#[test]
fn every_page_of_the_arena_has_a_slot_and_changed_folios_are_still_saved() {
    let arena = PageCount(2 * MIN_LIMIT_PAGES);
    let mut core = Core::new(Config::new(arena, PageCount(MIN_LIMIT_PAGES))).unwrap();
    let mut out = Commands::new();
    let order = Order::ZERO;
    core.handle(
        Event::CreateRegion {
            pages: arena,
            order: order.into(),
            kind: Kind::Anonymous,
        },
        &mut out,
    );
    for page in (0..4 * arena.0).map(|n| PageIndex(n % arena.0)) {
        for attempt in 0.. {
            assert!(attempt < 100, "the fault at {page} reclaims for ever");
            let fault = Event::Fault {
                page,
                max_order: Order::MAX,
                within: PageRange::ALL,
            };
            let reply = core.handle(fault, &mut out);
            settle(&mut core, &mut out);
            let Reply::Reclaim { pages } = reply else {
                break;
            };
            core.handle(
                Event::Reclaim {
                    pages,
                    by: Reclaimer::Direct,
                },
                &mut out,
            );
            settle(&mut core, &mut out);
        }
    }
    core.check().unwrap();
}

/// Found by reading: a freed part of the arena's last folio ends where the arena ends, and the split at that end looked
/// for the folio after it.
#[test]
fn a_part_that_is_freed_may_end_with_the_arena() {
    let arena = PageCount(2 * MIN_LIMIT_PAGES);
    let mut core = Core::new(Config::new(arena, PageCount(MIN_LIMIT_PAGES))).unwrap();
    let mut out = Commands::new();
    let order = Order::new(4).unwrap().into();
    let pages = arena;
    core.handle(
        Event::CreateRegion {
            pages,
            order,
            kind: Kind::Anonymous,
        },
        &mut out,
    );
    let start = PageIndex(arena.0 - 16);
    let fault = Event::Fault {
        page: start,
        max_order: Order::MAX,
        within: PageRange::ALL,
    };
    assert_eq!(core.handle(fault, &mut out), Reply::Done);
    settle(&mut core, &mut out);
    let range = PageRange::new(start.plus(4), PageCount(12));
    let mode = FreeMode::Exclusive;
    assert_eq!(
        core.handle(Event::LazyFree { range, mode }, &mut out),
        Reply::Done
    );
    settle(&mut core, &mut out);
    let range = PageRange::new(start, PageCount(2));
    loop {
        let reply = core.handle(Event::Discard { range }, &mut out);
        settle(&mut core, &mut out);
        assert_eq!(core.gathered(out.batch()), None);
        out.batch().clear();
        if reply == Reply::Done {
            break;
        }
    }
    core.check().unwrap();
}
