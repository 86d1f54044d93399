//! Tests that a leaf of scattered small folios leaves by its table: with one command, in steps for which faults need
//! not wait.

mod common;

use common::{Bench, Driven};
use millpond_core::{
    Command, Event, LEAF_PAGES, PageCount, PageIndex, PageRange, PageState, Reclaimer, Reply,
};

/// Every fifth page of a leaf: 103 of 512.
const APART: u32 = 5;

fn scattered(allowed: bool) -> (Bench, PageRange) {
    let mut bench = Bench::new();
    bench.send(Event::TakeLeaves { on: allowed });
    let leaf = bench.region(LEAF_PAGES, 0);
    for page in mapped(leaf) {
        let commands = bench.fault(page).1;
        bench.work(commands);
    }
    (bench, leaf)
}

fn mapped(leaf: PageRange) -> impl Iterator<Item = PageIndex> {
    leaf.pages().step_by(APART as usize)
}

fn step(bench: &mut Bench) -> (Reply, Vec<Command>) {
    let (pages, by) = (PageCount(64), Reclaimer::Direct);
    bench.send(Event::Reclaim { pages, by })
}

/// Steps until a command is given. Returns the commands and the number of steps.
fn until_command(bench: &mut Bench) -> (Vec<Command>, u32) {
    for steps in 1..100 {
        match step(bench) {
            (Reply::More { .. }, commands) if commands.is_empty() => {}
            (reply, commands) => {
                assert_eq!(reply, Reply::Done);
                return (commands, steps);
            }
        }
    }
    panic!("a hundred steps and no command");
}

/// Answers for the leaf until all of its folios have been told.
fn answer(bench: &mut Bench, at: PageRange, taken: bool) -> Vec<Command> {
    let mut given = Vec::new();
    loop {
        let (reply, commands) = bench.send(Event::LeafTakenOut { at, taken });
        given.extend(commands);
        match reply {
            Reply::More { .. } => {}
            reply => {
                assert_eq!(reply, Reply::Done);
                return given;
            }
        }
    }
}

fn states(bench: &Bench, leaf: PageRange) -> Vec<PageState> {
    mapped(leaf).map(|page| bench.0.page_state(page)).collect()
}

fn all(bench: &Bench, leaf: PageRange, state: PageState) -> bool {
    states(bench, leaf).iter().all(|&found| found == state)
}

#[test]
fn a_leaf_leaves_by_one_command_and_comes_back_page_by_page() {
    let (mut bench, leaf) = scattered(true);
    let (commands, steps) = until_command(&mut bench);
    let [Command::TakeOutLeaf { at, frame }] = commands[..] else {
        panic!("{commands:?}");
    };
    assert_eq!(at, leaf);
    assert!(frame.index().is_multiple_of(LEAF_PAGES));
    // The steps pass twice over 103 folios, at most 32 at a time.
    assert!(steps >= 2 * 4, "{steps} steps");
    assert!(all(&bench, leaf, PageState::InFlight));
    assert_eq!(answer(&mut bench, leaf, true), []);
    assert!(all(&bench, leaf, PageState::Limbo));
    assert_eq!(bench.0.stats().takeout_leaf, 103);
    for page in mapped(leaf) {
        let (reply, commands) = bench.fault(page);
        assert_eq!(reply, Reply::Done);
        let place = page.0 % LEAF_PAGES;
        let rescued = matches!(commands[..], [Command::Rescue { frame: from, .. }] if from.index() == frame.index() + place);
        assert!(rescued, "{commands:?}");
        bench.work(commands);
    }
    assert!(all(&bench, leaf, PageState::Resident));
}

#[test]
fn faults_in_a_leaf_that_leaves_wait_and_are_woken() {
    let (mut bench, leaf) = scattered(true);
    let absent = leaf.start.plus(1);
    // Faults do not wait while the leaf is examined.
    assert!(matches!(step(&mut bench).0, Reply::More { .. }));
    let (reply, commands) = bench.fault(leaf.start.plus(2));
    assert_eq!(reply, Reply::Done);
    bench.work(commands);
    until_command(&mut bench);
    for page in [absent, leaf.start] {
        assert!(matches!(bench.fault(page), (Reply::Wait { .. }, none) if none.is_empty()));
    }
    let woken = answer(&mut bench, leaf, true);
    assert!(woken.contains(&Command::Wake { at: leaf }), "{woken:?}");
    assert_eq!(bench.fault(absent).0, Reply::Done);
}

/// The last page of the leaf is pinned after the first ones have begun to leave.
#[test]
fn one_page_that_has_to_stay_brings_the_rest_of_its_leaf_back() {
    let (mut bench, leaf) = scattered(true);
    let last = PageRange::new(leaf.start.plus(510), PageCount(1));
    while bench.0.page_state(leaf.start) == PageState::Resident {
        assert!(matches!(step(&mut bench).0, Reply::More { .. }));
    }
    assert_eq!(bench.send(Event::Pin { range: last }).0, Reply::Done);
    assert!(matches!(bench.fault(leaf.start).0, Reply::Wait { .. }));
    let (commands, _) = until_done(&mut bench);
    assert!(
        !commands
            .iter()
            .any(|c| matches!(c, Command::TakeOutLeaf { .. })),
        "{commands:?}"
    );
    assert!(commands.contains(&Command::Wake { at: leaf }));
    assert_eq!(bench.0.page_state(last.start), PageState::Resident);
}

/// Steps until no more steps are needed.
fn until_done(bench: &mut Bench) -> (Vec<Command>, u32) {
    let mut given = Vec::new();
    for steps in 1..100 {
        let (reply, commands) = step(bench);
        given.extend(commands);
        if reply == Reply::Done {
            return (given, steps);
        }
    }
    panic!("a hundred steps and no end");
}

#[test]
fn a_leaf_that_cannot_be_taken_is_restored_and_goes_page_by_page() {
    let (mut bench, leaf) = scattered(true);
    until_command(&mut bench);
    answer(&mut bench, leaf, false);
    assert!(all(&bench, leaf, PageState::Resident));
    let (commands, _) = until_command(&mut bench);
    assert!(commands.len() > 1);
    for command in &commands {
        assert!(matches!(command, Command::TakeOut { .. }), "{command:?}");
    }
}

/// Other threads reclaim between the parts of an answer. Each of them used to continue with every leaf that had to
/// stay, even one for which the driver was answering. Then the leaf's folios were told, the leaf was forgotten, and the
/// rest of the answer met no leaf. (Four threads that counted in a region of three times their memory, on a machine
/// where a page of a leaf was busy, stopped with "the driver answers for a leaf that is leaving".)
#[test]
fn concurrent_reclaim_leaves_a_partial_answer_to_its_reporter() {
    for taken in [false, true] {
        let (mut bench, leaf) = scattered(true);
        until_command(&mut bench);
        let event = Event::LeafTakenOut { at: leaf, taken };
        let mut parts = 1;
        while bench.send(event).0 != Reply::Done {
            for _ in 0..8 {
                let commands = step(&mut bench).1;
                bench.work(commands);
            }
            parts += 1;
        }
        assert_eq!(parts, 4, "of 32 folios each, for 103");
        let vm = bench.0.stats();
        let counted = (vm.takeout_leaf, vm.takeout_leaf_stayed);
        assert_eq!(counted, if taken { (103, 0) } else { (0, 103) });
        assert!(!states(&bench, leaf).contains(&PageState::InFlight));
    }
}

#[test]
fn leaf_out_is_not_tried_after_repeated_failures() {
    let mut bench = Bench::new();
    bench.send(Event::TakeLeaves { on: true });
    let region = bench.region(16 * LEAF_PAGES, 0);
    for page in region.pages().step_by(APART as usize) {
        let commands = bench.fault(page).1;
        bench.work(commands);
    }
    let mut tried = 0;
    for _ in 0..200 {
        let (commands, _) = until_done(&mut bench);
        for command in commands {
            match command {
                Command::TakeOutLeaf { at, .. } => {
                    tried += 1;
                    answer(&mut bench, at, false);
                }
                command => bench.work(vec![command]),
            }
        }
    }
    assert_eq!(tried, 8);
}

#[test]
fn without_leaf_out_pages_leave_one_by_one() {
    let (mut bench, _) = scattered(false);
    let (commands, steps) = until_command(&mut bench);
    assert_eq!(steps, 1);
    let single = |command: &Command| matches!(command, Command::TakeOut { .. });
    assert!(commands.iter().all(single), "{commands:?}");
}

/// The next victim is in a different leaf from the previous one. Only the leaf of a batch's first victim used to be
/// considered, and the other 63 left individually, from leaves that were later taken out as a whole. That took half
/// the time of a reclaiming thread during random reads.
#[test]
fn a_leaf_that_stays_does_not_make_later_victims_leave_one_by_one() {
    let mut bench = Bench::new();
    bench.send(Event::TakeLeaves { on: true });
    let few = bench.region(LEAF_PAGES, 0);
    let many = bench.region(LEAF_PAGES, 0);
    // The folios are too few for their leaf to leave, and each is older than the next folios of the other leaf.
    for (n, page) in mapped(many).enumerate() {
        if n % 5 == 0 {
            let commands = bench.fault(few.start.plus(n as u32)).1;
            bench.work(commands);
        }
        let commands = bench.fault(page).1;
        bench.work(commands);
    }
    let mut alone = Vec::new();
    for _ in 0..100 {
        for command in step(&mut bench).1 {
            match command {
                Command::TakeOutLeaf { at, .. } => {
                    assert_eq!(at, many);
                    let others = alone.iter().filter(|&&page| !few.contains(page));
                    assert_eq!(others.count(), 0, "{alone:?}");
                    return;
                }
                Command::TakeOut { at, .. } => alone.push(at.start),
                _ => {}
            }
            bench.work(vec![command]);
        }
    }
    panic!("no leaf left, {} pages did", alone.len());
}

/// A leaf that had to stay used to be followed by a batch and by the next leaf, within one event that asked to be
/// sent again until no leaf was left: for a fault that needed one page, thousands left.
#[test]
fn leaves_that_stay_do_not_cause_excess_reclaim() {
    let mut bench = Bench::new();
    bench.send(Event::TakeLeaves { on: true });
    let region = bench.region(24 * LEAF_PAGES, 0);
    // Twenty pages of each leaf are touched, each in a different leaf from the one before.
    for n in 0..20 {
        for page in region.pages().skip(3 * n).step_by(LEAF_PAGES as usize) {
            let commands = bench.fault(page).1;
            bench.work(commands);
        }
    }
    let (commands, _) = until_done(&mut bench);
    assert!(commands.len() <= 2 * 64, "{} commands", commands.len());
}

/// A discard of a folio whose leaf is leaving waits for it, as for every folio in flight, and is not forgotten.
#[test]
fn page_discarded_while_its_leaf_leaves_is_empty_afterwards() {
    let (mut bench, leaf) = scattered(true);
    until_command(&mut bench);
    let reply = bench.send(Event::Discard { range: leaf }).0;
    answer(&mut bench, leaf, true);
    if reply != Reply::Done {
        bench.all(leaf, |range| Event::Discard { range });
    }
    assert!(all(&bench, leaf, PageState::Empty));
}

/// Folios of four pages that had been split used to come back from the store as single pages, although the region had
/// requested four: 113 of 2,057 in the run of `bench folio --order 2` that showed it.
#[test]
fn folios_of_a_requested_order_are_not_split() {
    let mut bench = Bench::new();
    bench.send(Event::TakeLeaves { on: true });
    let leaf = bench.region(LEAF_PAGES, 1);
    for page in leaf.pages().step_by(12) {
        let commands = bench.fault(page).1;
        bench.work(commands);
    }
    let (commands, _) = until_command(&mut bench);
    let whole = |command: &Command| matches!(command, Command::TakeOut { at, .. } if at.len.0 == 2);
    assert!(commands.iter().all(whole), "{commands:?}");
}
