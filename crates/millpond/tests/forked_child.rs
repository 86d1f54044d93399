//! A forked child has its parent's regions and managers in name only.
//!
//! A child that dropped a region, as a garbage collector may do at any time, used to hang, since it has none of the
//! threads for which the drop waited. Nor may the drop proceed in the child, since a request on the child's descriptor
//! acts on its parent's memory.

mod common;

use allocator_api2::alloc::{Allocator, Layout};
use common::{MIB, PAGE};
use millpond::{Delivery, Manager, PondAlloc};
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Exit status of a child that did its work; `PANICKED` is that of a child that panicked.
const DONE: i32 = 40;
const PANICKED: i32 = 41;

/// Runs `what` in a child of a fork, which ends there. The child uses its own copies of the variables.
fn in_a_child(what: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `what` alone and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let status = match catch_unwind(AssertUnwindSafe(what)) {
            Ok(()) => DONE,
            Err(_) => PANICKED,
        };
        // SAFETY: this ends the process.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the call waits for the child, and writes to `status`.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    assert!(
        libc::WIFEXITED(status),
        "the child ended by signal {}",
        libc::WTERMSIG(status)
    );
    libc::WEXITSTATUS(status)
}

fn manager(delivery: Delivery) -> Option<Manager> {
    let built = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .delivery(delivery)
        .build();
    built
        .inspect_err(|error| println!("skipped {delivery:?}: {error}"))
        .ok()
}

#[test]
fn drops_in_a_child_leave_the_parents_memory_alone() {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let mut manager = manager(delivery);
        let Some(living) = manager.clone() else {
            continue;
        };
        let mut regions: Vec<_> = (1..5)
            .map(|n| {
                let mut region = living.region(8 * MIB).unwrap();
                region.as_mut_slice().fill(n);
                region
            })
            .collect();
        let mut copy = Some(regions[0].snapshot().unwrap());
        drop(living);
        let status = in_a_child(|| {
            drop(copy.take());
            regions.remove(0).free_async();
            regions.clear();
            drop(manager.take());
        });
        assert_eq!(status, DONE, "{delivery:?}");
        let copy = copy.unwrap();
        for (region, n) in regions.iter().chain([&copy]).zip([1, 2, 3, 4, 1]) {
            assert!(region.as_slice().iter().all(|&byte| byte == n));
        }
    }
}

#[test]
fn a_call_in_a_forked_child_panics() {
    let manager = manager(Delivery::InThread).unwrap();
    let mut region = manager.region(MIB).unwrap();
    region.as_mut_slice().fill(7);
    assert_eq!(in_a_child(|| region.discard(0..PAGE).unwrap()), PANICKED);
    assert_eq!(region.as_slice()[0], 7);
}

#[test]
fn a_child_may_have_a_manager_of_its_own() {
    let manager = manager(Delivery::InThread).unwrap();
    let mut region = manager.region(32 * MIB).unwrap();
    region.as_mut_slice().fill(7);
    let status = in_a_child(|| {
        let own = Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .ram(16 << 20)
            .build()
            .unwrap();
        let mut region = own.region(32 * MIB).unwrap();
        region.as_mut_slice().fill(9);
        assert!(region.as_slice().iter().all(|&byte| byte == 9));
        assert!(own.stats().vm.pswpout > 0);
    });
    assert_eq!(status, DONE);
    assert!(region.as_slice().iter().all(|&byte| byte == 7));
}

/// A touch in a child used to be a SIGSEGV without any message. System calls on such memory are refused, as before.
#[test]
fn a_touch_in_a_forked_child_ends_it_with_a_message() {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let Some(manager) = manager(delivery) else {
            continue;
        };
        let mut region = manager.region(MIB).unwrap();
        region.as_mut_slice().fill(7);
        let mut said = tempfile::tempfile().unwrap();
        // SAFETY: the child makes system calls, touches the region and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: both descriptors are open, and nothing else in the child uses them.
            unsafe { libc::dup2(said.as_raw_fd(), 2) };
            let at = region.as_slice().as_ptr();
            // SAFETY: the kernel finds no memory there, or copies the byte that it finds.
            let written = unsafe { libc::write(2, at.cast(), 1) };
            // SAFETY: the call ends the process, or the touch does, which is what is tested.
            unsafe { libc::_exit(i32::from(written == 1 || at.read_volatile() == 7)) };
        }
        let mut status = 0;
        // SAFETY: the call waits for the child, and writes to `status`.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        let mut text = String::new();
        said.rewind().unwrap();
        said.read_to_string(&mut text).unwrap();
        let by_abort = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
        assert!(by_abort, "{delivery:?}: {status:#x}, {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.starts_with("millpond: ") && text.contains("before the fork"),
            "{text}"
        );
        assert!(region.as_slice().iter().all(|&byte| byte == 7));
    }
}

/// Dropping a vector drops its elements, which a child does not have: accessing them would have ended it.
#[test]
fn a_child_drops_vectors_and_heaps_without_accessing_elements() {
    let Some(manager) = manager(Delivery::InThread) else {
        return;
    };
    let mut names = manager.vec_with_capacity::<String>(10).unwrap();
    names.extend((0..1000).map(|n| n.to_string()));
    let mut copies = names.clone().into_iter();
    let heap = PondAlloc::new(&manager).unwrap();
    let mut numbers = allocator_api2::vec::Vec::new_in(heap.clone());
    numbers.extend(0..1000_u64);
    manager.make_default();
    let child = in_a_child(|| {
        // SAFETY: these are the child's own copies of the values, which the parent's are not touched by.
        unsafe {
            drop(std::ptr::read(&names));
            drop(std::ptr::read(&copies));
            drop(std::ptr::read(&numbers));
        }
        assert!(heap.allocate(Layout::new::<u64>()).is_err());
        assert!(format!("{heap:?}").contains("PondAlloc"));
        assert!(Manager::get_default().is_none());
    });
    assert_eq!(child, DONE);
    assert_eq!((names.len(), &*names[999]), (1000, "999"));
    assert_eq!(copies.next_back().as_deref(), Some("999"));
    assert_eq!(numbers.iter().sum::<u64>(), 499_500);
}
