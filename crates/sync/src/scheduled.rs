//! Tests of the locks under a scheduler.

use crate::{Rank, Ranked, Word, thread};
use std::sync::Arc;
use std::time::Duration;

const SCHEDULES: usize = 100;

fn fails(test: impl Fn() + Send + Sync + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shuttle::check_random(test, SCHEDULES)
    }))
    .is_err()
}

#[test]
fn a_thread_that_waits_at_a_word_is_woken() {
    let test = || {
        let word = Arc::new(Word::new(0));
        let other = Arc::clone(&word);
        let waits = thread::spawn(move || {
            while other.load() == 0 {
                other.wait(0, Some(Duration::from_millis(1)));
            }
        });
        word.advance();
        word.wake();
        waits.join().unwrap();
    };
    shuttle::check_random(test, SCHEDULES);
}

/// A time limit would hide the missing wake-up.
#[test]
fn a_lost_wake_up_is_found() {
    assert!(fails(|| {
        let word = Arc::new(Word::new(0));
        let other = Arc::clone(&word);
        let waits = thread::spawn(move || {
            while other.load() == 0 {
                other.wait(0, Some(Duration::from_millis(1)));
            }
        });
        word.advance();
        waits.join().unwrap();
    }));
}

/// A thread that failed under a lock leaves no trace of it in the next execution.
#[test]
fn held_ranks_are_tracked_per_thread() {
    let take = |ranks: [Rank; 2]| {
        move || {
            let both = Arc::new(ranks.map(|rank| Ranked::new(rank, ())));
            let other = Arc::clone(&both);
            let first = thread::spawn(move || drop(other[0].lock()));
            let second = thread::spawn(move || {
                let _low = both[0].lock();
                thread::yield_now();
                let _high = both[1].lock();
            });
            first.join().unwrap();
            second.join().unwrap();
        }
    };
    assert!(fails(take([Rank::Figures, Rank::Core])));
    assert!(!fails(take([Rank::Core, Rank::Figures])));
}
