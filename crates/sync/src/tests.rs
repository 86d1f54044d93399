//! Tests of the locks on real threads.

use crate::{Gate, Rank, Ranked, end_by};

#[test]
fn locks_in_order_are_taken() {
    let (low, high) = (Ranked::new(Rank::Core, 1), Ranked::new(Rank::Figures, 2));
    let low = low.lock();
    assert_eq!(*low + *high.lock(), 3);
}

const INSIDE: &str = "MILLPOND_TEST_PANIC_INSIDE";

/// Enters the gate when it is dropped, as a region does that ends.
struct Entering<'a>(&'a Gate);

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        let _inside = self.0.enter();
    }
}

/// A panic on the program's own thread, inside the gate and with no lock held, once unwound and left a folio in
/// flight: the next thread that touched it waited for ever. The test runs itself once more as the child that
/// panics. A panic of the program's own, whose unwinding goes through the gate, goes on as ever.
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

/// The output of a test of this file that runs once more as a child, which must end by SIGABRT.
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

/// A child of a fork once took the core's lock that it held already, and waited for ever.
#[test]
#[cfg(debug_assertions)]
fn a_forks_child_holds_what_the_forking_thread_held() {
    use crate::{LocksOf, witness};
    let lock = Ranked::new(Rank::Core, 1);
    let _held = lock.lock();
    let locks = LocksOf::this_thread();
    // SAFETY: the child asks the static table and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        locks.inherit();
        let again = std::panic::catch_unwind(|| witness::before(Rank::Core));
        // SAFETY: the child leaves by _exit, so that nothing of the parent runs at exit.
        unsafe { libc::_exit(i32::from(again.is_ok())) };
    }
    let mut status = 0;
    // SAFETY: the status is written to a variable of this function.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
}

/// A thread that takes a lock out of order holds another lock, and a panic under a lock ends the process.
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
