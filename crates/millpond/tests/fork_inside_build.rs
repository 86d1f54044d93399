//! A child that is forked in the middle of its parent's first `build`, and builds a manager itself.
//!
//! A manager was ready to serve faults before the process had a handler for forks. A child that was forked in between
//! still had its parent's manager registered, and built its own at addresses where the parent's memory was missing: its
//! first touch went to the copy of the parent's manager, which knew of no such page, and ended the child by SIGBUS; or
//! it waited for a lock held by a thread of the parent. Here the forks are made at each point where `build` starts a
//! thread, in turn.

#[path = "common/forked.rs"]
mod forked;

use forked::{forked, status};
use millpond::{Delivery, Manager};
use std::ffi::{c_int, c_void};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::Duration;

/// Exit status of a child that did what it was forked for.
const WELL: i32 = 40;
/// Exit status of a parent of a child that never ended.
const HANGS: i32 = 41;
/// Exit status of a parent that had no child, because it started fewer threads, or may not have such a manager.
const NONE: i32 = 42;
const REFUSED: i32 = 43;
/// A child that has not ended after this time never will.
const LONG: Duration = Duration::from_secs(10);
/// Address space of a child's manager, in bytes. That of the parent's is a multiple of it, so that the child's finds
/// room where the parent's was.
const LITTLE: u64 = 1 << 30;
/// The calls of `pthread_create` until the one at which another thread forks.
static CALLS: AtomicI32 = AtomicI32::new(-1);
/// Where the two threads meet before the fork, and once the child has ended.
static FORK: Barrier = Barrier::new(2);

type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// Stands before the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    if CALLS.fetch_sub(1, SeqCst) == 0 {
        FORK.wait();
        FORK.wait();
    }
    // SAFETY: the next one is the C library's, of this type, and the arguments are the caller's.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        let next = std::mem::transmute::<*mut c_void, Create>(next);
        next(thread, attributes, start, argument)
    }
}

/// Builds a manager whose memory works. False where an ordinary user may have none with this delivery.
fn build(delivery: Delivery, address_space: u64) -> bool {
    let builder = Manager::builder()
        .ram(16 << 20)
        .address_space(address_space)
        .delivery(delivery);
    let manager = match builder.build() {
        Ok(manager) => manager,
        Err(error) => {
            println!("skipped: {delivery:?}: {error}");
            return false;
        }
    };
    let mut region = manager.region(1 << 20).unwrap();
    region.as_mut_slice().fill(9);
    assert!(region.as_slice().iter().all(|&byte| byte == 9));
    true
}

/// A process whose thread forks where the first `build` of the other one starts its thread of this number. Its answer
/// is the child's, or says why there was none.
fn forks_at(nth: i32, delivery: Delivery) -> i32 {
    let forking = std::thread::spawn(|| {
        FORK.wait();
        let child = forked(|| {
            build(Delivery::InThread, LITTLE);
            build(Delivery::Handler, LITTLE);
            WELL
        });
        let ended = status(child, LONG);
        FORK.wait();
        ended
    });
    CALLS.store(nth, SeqCst);
    if !build(delivery, 64 * LITTLE) {
        return REFUSED;
    }
    if CALLS.load(SeqCst) >= 0 {
        return NONE;
    }
    forking.join().unwrap().unwrap_or(HANGS)
}

#[test]
fn a_child_of_a_half_built_manager_builds_its_own() {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        for nth in 0.. {
            let ended = status(forked(|| forks_at(nth, delivery)), 2 * LONG);
            if ended == Some(NONE) && nth >= 2 || ended == Some(REFUSED) {
                break;
            }
            assert_eq!(ended, Some(WELL), "{delivery:?}, at thread {nth}");
        }
    }
}
