//! A test of news of a protection during a take-out.

mod common;

use common::{Bench, Driven};
use millpond_core::{Advice, Command, Event, Outcome, Reply};

/// A take-out found its page locked; the program unlocked it and reported that; then the answer of the take-out came,
/// and the page stayed on the unevictable list until the next news, which may never come.
#[test]
fn a_change_of_protection_waits_for_a_take_out_in_flight() {
    let mut bench = Bench::new();
    let range = bench.filled(1, 0);
    let advice = Advice::PageOut;
    let (_, commands) = bench.send(Event::Advise { range, advice });
    let [Command::TakeOut { folio, .. }] = commands[..] else {
        panic!("{commands:?}")
    };
    assert_eq!(
        bench.send(Event::Protected { range }).0,
        Reply::Wait { page: range.start }
    );
    let answer = bench.tell(folio, Outcome::TakeOutImmovable);
    assert!(matches!(answer[..], [Command::Wake { .. }]), "{answer:?}");
    assert_eq!(bench.0.stats().nr_unevictable, 1);
    assert_eq!(bench.send(Event::Protected { range }).0, Reply::Done);
    assert_eq!(bench.0.stats().nr_unevictable, 0);
}
