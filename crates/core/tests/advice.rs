//! Tests of advice about pages that are in flight.

mod common;

use common::{Bench, Driven, NEW};
use millpond_core::{Advice, Command, Event, Reply};

/// A thread writes a page, which is mapped, and continues before its arrival is reported: the advice to page it out
/// skipped it, and it stayed in memory. On a busy machine one process in thirty kept half a mebibyte that way.
#[test]
fn page_out_advice_reaches_a_page_that_has_just_arrived() {
    let mut bench = Bench::new();
    let range = bench.region(1, 0);
    let commands = bench.fault(range.start).1;
    let [Command::Zero { folio, .. }] = commands[..] else {
        panic!("{commands:?}")
    };
    let advise = |advice| Event::Advise { range, advice };
    assert_eq!(
        bench.send(advise(Advice::PageOut)).0,
        Reply::Wait { page: range.start }
    );
    // The hint that makes pages the first to leave does not wait.
    assert_eq!(bench.send(advise(Advice::Cold)).0, Reply::Done);
    let answer = bench.tell(folio, NEW);
    assert!(matches!(answer[..], [Command::Wake { .. }]), "{answer:?}");
    let (_, commands) = bench.send(advise(Advice::PageOut));
    assert!(
        matches!(commands[..], [Command::TakeOut { .. }]),
        "{commands:?}"
    );
}
