//! A folio stays whole after a part of it was freed, until memory is needed.

mod common;

use common::{Bench, Driven, part};
use millpond_core::{Command, Event, FreeMode, Outcome, PageCount, PageRange, PageState, Reply};

const EXCLUSIVE: FreeMode = FreeMode::Exclusive;
const ZEROED: PageState = PageState::LazyFree { mapped: true };

fn take_outs(commands: &[Command]) -> Vec<PageRange> {
    let at = |command: &Command| match *command {
        Command::TakeOutIfBlank { at, .. } => Some(at),
        _ => None,
    };
    commands.iter().filter_map(at).collect()
}

#[test]
fn a_part_is_zeroed_in_place_and_split_off_when_memory_is_wanted() {
    let mut bench = Bench::new();
    let range = bench.filled(64, 4);
    let given = bench.free(part(range, 20..26), EXCLUSIVE);
    let [
        Command::ZeroInPlace {
            at, part: zeroed, ..
        },
    ] = given[..]
    else {
        panic!("{given:?}")
    };
    assert_eq!((at, zeroed), (part(range, 16..32), part(range, 20..26)));
    let stats = bench.0.stats();
    assert_eq!(
        (stats.nr_lazyfree, stats.folio_split, stats.deferred_split),
        (6, 0, 1)
    );
    assert_eq!(
        [19, 20, 25, 26].map(|page| bench.state(range, page) == ZEROED),
        [false, true, true, false]
    );

    // The pieces of the part go first, in the largest orders that fit: 4 pages and 2.
    let commands = bench.reclaim(6);
    assert_eq!(
        take_outs(&commands),
        [part(range, 20..24), part(range, 24..26)]
    );
    bench.work(commands);
    assert_eq!(bench.0.stats().pglazyfreed, 6);
    assert_eq!(bench.state(range, 20), PageState::Empty);
    assert_eq!(bench.state(range, 31), PageState::Resident);
}

#[test]
fn adjacent_parts_grow_and_a_wholly_freed_folio_needs_no_split() {
    let mut bench = Bench::new();
    let range = bench.filled(16, 4);
    for pages in [4..8, 8..12, 0..4, 12..16] {
        bench.free(part(range, pages), EXCLUSIVE);
    }
    let stats = bench.0.stats();
    assert_eq!(
        (stats.nr_lazyfree, stats.pglazyfree, stats.folio_split),
        (16, 16, 0)
    );
    assert_eq!(take_outs(&bench.reclaim(16)), [range]);
}

#[test]
fn a_part_that_does_not_touch_is_split_off_at_once() {
    let mut bench = Bench::new();
    let range = bench.filled(16, 4);
    bench.free(part(range, 0..2), EXCLUSIVE);
    bench.free(part(range, 8..12), EXCLUSIVE);
    let stats = bench.0.stats();
    assert_eq!(stats.nr_lazyfree, 6);
    assert!(stats.folio_split > 0);
}

#[test]
fn a_part_that_is_used_again_is_kept() {
    let mut bench = Bench::new();
    let range = bench.filled(16, 4);
    bench.free(part(range, 4..8), EXCLUSIVE);
    // The check during the recount of free pages detects the use.
    let (reply, commands) = bench.send(Event::RecountLazyFree { left: PageCount(4) });
    let [
        Command::Look {
            folio,
            part: looked_at,
            ..
        },
    ] = commands[..]
    else {
        panic!("{commands:?}")
    };
    assert_eq!(
        (reply, looked_at),
        (
            Reply::Seen {
                pages: PageCount(4)
            },
            part(range, 4..8)
        )
    );
    bench.tell(folio, Outcome::Written);
    let stats = bench.0.stats();
    assert_eq!((stats.nr_lazyfree, stats.pglazyfree_reused), (0, 4));

    // The check before the part is dropped detects the use.
    bench.free(part(range, 4..8), EXCLUSIVE);
    let commands = bench.reclaim(4);
    let [Command::TakeOutIfBlank { folio, .. }, ..] = commands[..] else {
        panic!("{commands:?}")
    };
    bench.tell(folio, Outcome::Written);
    assert_eq!(bench.state(range, 4), PageState::Resident);
    assert_eq!(bench.0.stats().pglazyfreed, 0);
}

#[test]
fn wholly_freed_folios_never_enter_the_queue() {
    let mut bench = Bench::new();
    let range = bench.filled(64, 4);
    bench.free(range, EXCLUSIVE);
    assert_eq!(bench.0.stats().deferred_split, 0);
    assert_eq!(take_outs(&bench.reclaim(64)).len(), 4);
}

#[test]
fn a_pin_of_the_rest_keeps_the_mark_of_the_part() {
    let mut bench = Bench::new();
    let range = bench.filled(16, 4);
    bench.free(part(range, 0..4), EXCLUSIVE);
    let (reply, _) = bench.send(Event::Pin {
        range: part(range, 8..9),
    });
    assert_eq!(reply, Reply::Done);
    assert_eq!(
        (bench.state(range, 0), bench.0.stats().nr_lazyfree),
        (ZEROED, 4)
    );
}
