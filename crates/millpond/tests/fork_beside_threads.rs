//! A manager in a forked child works, whatever the parent's threads were doing at the fork.
//!
//! Two tests of one file each forked a child that built a manager, and one in some thousand runs never ended: at the
//! fork another thread of the parent was inside the standard library, holding the lock under which it records each
//! thread's stack. In the child no thread held the lock or could release it, and the first thread of the manager waited
//! for it.

#[path = "common/forked.rs"]
mod forked;

use forked::{forked, status};
use millpond::{Delivery, Manager, StoreKind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Exit status of a child that could start a thread of the standard library's.
const FREE: i32 = 40;
/// Exit status of a child that could not, and whose manager worked anyway.
const DONE: i32 = 41;
/// A thread that has not ended after this time never will.
const LONG: Duration = Duration::from_millis(500);

fn manager_works() {
    let builder = Manager::builder()
        .store(StoreKind::compressed_ram())
        .delivery(Delivery::InThread);
    let manager = builder.ram(16 << 20).build().unwrap();
    let mut region = manager.region(32 << 20).unwrap();
    region.as_mut_slice().fill(9);
    region.prefetch(0..1 << 20).unwrap();
    assert!(region.as_slice().iter().all(|&byte| byte == 9));
    assert!(manager.stats().vm.pswpout > 0);
}

#[test]
fn a_manager_starts_where_the_standard_library_can_start_no_thread() {
    let stop = AtomicBool::new(false);
    let (mut forks, mut met) = (0, 0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::thread::spawn(|| {}).join().unwrap();
                }
            });
        }
        let began = Instant::now();
        let mut wrong = None;
        while met < 2 && wrong.is_none() && began.elapsed() < Duration::from_secs(30) {
            forks += 1;
            let child = forked(|| {
                let grandchild = forked(|| {
                    std::thread::spawn(|| {}).join().unwrap();
                    0
                });
                if status(grandchild, LONG).is_some() {
                    return FREE;
                }
                manager_works();
                DONE
            });
            match status(child, Duration::from_secs(20)) {
                Some(FREE) => {}
                Some(DONE) => met += 1,
                other => wrong = Some(other),
            }
        }
        stop.store(true, Relaxed);
        assert_eq!(wrong, None, "the manager's child hung, or failed");
    });
    if met == 0 {
        println!("skipped: {forks} children could all start a thread of the standard library's");
    }
}
