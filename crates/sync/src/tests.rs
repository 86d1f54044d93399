//! Tests of the locks on real threads.

use crate::{ForkOnce, Gate, PerProcess, Rank, Ranked, RankedRw, end_by};
use std::sync::Barrier;

#[test]
fn locks_in_order_are_taken() {
    let (low, high) = (Ranked::new(Rank::Core, 1), Ranked::new(Rank::Figures, 2));
    let low = low.lock();
    assert_eq!(*low + *high.lock(), 3);
}

const INSIDE: &str = "MILLPOND_TEST_PANIC_INSIDE";

/// Enters the gate when it is dropped, as the end of a region does.
struct Entering<'a>(&'a Gate);

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        let _inside = self.0.enter();
    }
}

/// A panic on the program's own thread, inside the gate and with no lock held, once unwound and left a folio in flight:
/// the next thread that touched it waited forever. The test runs itself again as the child that panics. A panic of the
/// program, whose unwinding passes through the gate, does not end the process here.
#[test]
fn a_panic_inside_the_gate_ends_the_process() {
    let gate = Gate::new();
    let of_the_programs = std::panic::catch_unwind(|| {
        let _entering = Entering(&gate);
        panic!("the program's own");
    });
    assert!(of_the_programs.is_err());
    if std::env::var_os(INSIDE).is_some() {
        end_by(millpond_mmu::panics::stop_unwinding);
        let unwound = std::panic::catch_unwind(|| {
            let _inside = gate.enter();
            panic!("lost count inside");
        });
        println!("went on: {unwound:?}");
        return;
    }
    let text = last_words("a_panic_inside_the_gate_ends_the_process");
    assert!(text.contains("lost count inside"), "{text}");
}

/// The output of a test of this file that runs again as a child, which must end by SIGABRT.
fn last_words(test: &str) -> String {
    use std::os::unix::process::ExitStatusExt;
    let name = format!("tests::{test}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("millpond: a panic inside Millpond"), "{text}");
    text
}

/// Whether a child forked now answers true. SIGALRM ends a child that hangs.
fn is_true_in_a_child(answer: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child asks its question and leaves by _exit, so that nothing of the parent's runs at exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above; the alarm is the child's own.
        unsafe {
            libc::alarm(10);
            libc::_exit(i32::from(!answer()));
        }
    }
    let mut status = 0;
    // SAFETY: the status is written to a variable of this function.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

/// A child of a fork once took the core's lock, which it already held, and waited forever.
#[test]
#[cfg(debug_assertions)]
fn a_forked_child_holds_the_locks_of_the_forking_thread() {
    use crate::{LocksOf, witness};
    let lock = Ranked::new(Rank::Core, 1);
    let _held = lock.lock();
    let locks = LocksOf::this_thread();
    assert!(is_true_in_a_child(|| {
        locks.inherit();
        witness::obstacle(Rank::Core).is_some()
    }));
}

/// A thread that takes a lock out of order holds another lock, so its panic ends the process.
#[test]
#[cfg(debug_assertions)]
fn locks_out_of_order_are_caught() {
    if std::env::var_os(INSIDE).is_some() {
        end_by(millpond_mmu::panics::stop_unwinding);
        let (low, high) = (Ranked::new(Rank::Core, 1), Ranked::new(Rank::Figures, 2));
        let _high = high.lock();
        let _low = low.lock();
        return;
    }
    let text = last_words("locks_out_of_order_are_caught");
    assert!(text.contains("taking Core while holding"), "{text}");
}

/// A lock taken out of order by a try is held like any other.
#[test]
#[cfg(debug_assertions)]
fn a_lock_tried_out_of_order_counts_as_held() {
    let low = Ranked::new(Rank::VolatileRanges, ());
    let (middle, high) = (Ranked::new(Rank::Gate, ()), Ranked::new(Rank::Core, ()));
    let core = high.lock();
    let tried = low.try_out_of_order().unwrap();
    assert!(low.try_out_of_order().is_none());
    drop(core);
    drop(high.lock());
    drop(middle.lock());
    let again = std::panic::catch_unwind(|| crate::witness::before(Rank::VolatileRanges));
    assert!(again.is_err());
    drop(tried);
    drop(low.lock());
}

/// A wait takes its lock again, so no later lock in the order may be held during the wait.
#[test]
#[cfg(debug_assertions)]
fn a_wait_that_holds_a_higher_lock_is_caught() {
    let (low, high) = (
        Ranked::new(Rank::Frees, ()),
        Ranked::new(Rank::ReuseTold, ()),
    );
    let signal = crate::Condvar::new();
    let waited = std::panic::catch_unwind(|| {
        let low = low.lock();
        let _high = high.lock();
        low.wait_timeout(&signal, std::time::Duration::from_millis(1));
    });
    assert!(waited.is_err());
    let low = low.lock();
    drop(low.wait_timeout(&signal, std::time::Duration::from_millis(1)));
}

#[test]
fn two_locks_of_one_rank_are_taken_by_address() {
    let pair = [1, 2].map(|value| RankedRw::new(Rank::RegionHandle, value));
    let [first, second] = &pair;
    std::thread::scope(|scope| {
        for (one, other) in [(first, second), (second, first)] {
            scope.spawn(move || {
                for _ in 0..1000 {
                    let [mut one, mut other] = one.write_both(other);
                    std::mem::swap(&mut *one, &mut *other);
                }
            });
        }
    });
    assert_eq!(*first.read(), 1);
    assert_eq!(*second.read(), 2);
    let _alone = first.write();
    assert!(first.try_read().is_none());
    #[cfg(debug_assertions)]
    assert!(std::panic::catch_unwind(|| second.write()).is_err());
}

/// At a fork, another thread holds a lock in a static and is in the middle of work that is done once.
#[test]
fn a_child_does_not_wait_for_threads_of_its_parent() {
    static COUNT: PerProcess<u32> = PerProcess::new(Rank::Board, || 0);
    static WORK: ForkOnce = ForkOnce::new(Rank::OncePerProcess);
    let (begun, middle) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            *COUNT.lock() = 1;
            let work = WORK.try_call(|| {
                let _count = COUNT.lock();
                begun.wait();
                middle.wait();
                Ok::<(), ()>(())
            });
            work.unwrap();
        });
        begun.wait();
        let is_well = is_true_in_a_child(|| {
            let mut works = 0;
            let was_interrupted = WORK.was_interrupted();
            let work = WORK.try_call(|| {
                works += 1;
                Ok::<(), ()>(())
            });
            let is_well = work.is_ok() && works == 1 && WORK.is_done() && *COUNT.lock() == 0;
            is_well && was_interrupted && !WORK.was_interrupted()
        });
        assert!(!WORK.was_interrupted());
        middle.wait();
        assert!(is_well);
    });
    assert!(WORK.is_done() && *COUNT.lock() == 1);
    let work_again = || WORK.try_call(|| Err("what was done is done again")).is_ok();
    assert!(is_true_in_a_child(work_again));
}
