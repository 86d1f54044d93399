//! Tests of forking, with and without an announcement.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::{State, Tiny, each_kind, in_child, usable, wait_for};
use millpond_mmu::{Delivery, TakeOutMethod};

#[test]
fn parent_and_child_continue_independently_from_the_same_memory() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 2);
        for folio in 0..8 {
            tiny.counter(folio, 0).store(100 + folio as u64, Relaxed);
        }
        for folio in 0..4 {
            assert!(tiny.evict(folio));
        }
        for folio in 4..8 {
            tiny.settle(folio);
        }
        let child = || {
            if let Err(error) = tiny.mmu.after_fork_in_child(&[]) {
                eprintln!("in the child: {error}");
                return 1;
            }
            for folio in 0..8 {
                if tiny.counter(folio, 0).load(Relaxed) != 100 + folio as u64 {
                    return 10 + folio as i32;
                }
                tiny.counter(folio, 0).fetch_add(1000, Relaxed);
            }
            // A folio that was never touched reads as zeros, through the child's own delivery.
            if tiny.counter(20, 0).load(Relaxed) != 0 || tiny.faults.load(Relaxed) != 8 + 4 + 1 {
                return 20;
            }
            for folio in 0..8 {
                if !tiny.evict(folio) {
                    return 30 + folio as i32;
                }
                if tiny.counter(folio, 0).load(Relaxed) != 1100 + folio as u64 {
                    return 40 + folio as i32;
                }
            }
            0
        };
        let status = in_child(
            || tiny.mmu.before_fork(),
            || tiny.mmu.after_fork_in_parent(),
            child,
        );
        assert_eq!(
            status, 0,
            "{delivery:?} {method:?}: wait status {status:#x}"
        );
        // For MOVE, pages that were shared with the child are busy: taking out makes them our own.
        for folio in 0..8 {
            if folio >= 4 {
                assert!(tiny.evict(folio), "{delivery:?} {method:?} folio {folio}");
            }
            assert_eq!(tiny.counter(folio, 0).load(Relaxed), 100 + folio as u64);
        }
        tiny.end();
    });
}

#[test]
fn pages_are_taken_out_while_a_child_still_shares_them() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 4);
        tiny.counter(0, 0).store(5, Relaxed);
        tiny.settle(0);
        let mut pipe = [0; 2];
        // SAFETY: the array has room for both ends.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        tiny.mmu.before_fork();
        // SAFETY: the child only reads a pipe and ends with `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut byte = 0u8;
            // SAFETY: one byte is read into one byte; the page is mapped, and the child's copy belongs to it.
            unsafe {
                libc::read(pipe[0], (&raw mut byte).cast(), 1);
                libc::_exit(i32::from(tiny.counter(0, 0).load(Relaxed) != 5));
            }
        }
        tiny.mmu.after_fork_in_parent();
        assert!(tiny.evict(0), "{delivery:?} {method:?}");
        tiny.counter(0, 0).store(6, Relaxed);
        // SAFETY: one byte is written from one byte.
        assert_eq!(unsafe { libc::write(pipe[1], [1u8].as_ptr().cast(), 1) }, 1);
        assert_eq!(wait_for(pid), 0);
        assert_eq!(tiny.counter(0, 0).load(Relaxed), 6);
        tiny.end();
    });
}

#[test]
fn a_child_made_behind_our_back_dies_at_its_first_touch() {
    let delivery = match usable(Delivery::Handler, TakeOutMethod::Auto) {
        true => Delivery::Handler,
        false => Delivery::InThread,
    };
    let tiny = Tiny::new(delivery, TakeOutMethod::Auto, 1, 0);
    tiny.counter(0, 0).store(5, Relaxed);
    let status = in_child(|| {}, || {}, || tiny.counter(0, 0).load(Relaxed) as i32);
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
        "{status:#x}"
    );
    tiny.end();
}

#[test]
fn lost_pages_raise_sigbus_until_they_are_dropped() {
    each_kind(|delivery, method| {
        if delivery == Delivery::Handler && !millpond_mmu::capabilities().has("poison") {
            eprintln!("skipped: UFFDIO_POISON is missing (Linux 6.6)");
            return;
        }
        let tiny = Tiny::new(delivery, method, 1, 2);
        let range = tiny.range(1);
        tiny.states.lock().unwrap()[1] = State::Lost;
        let child = || {
            if tiny.mmu.after_fork_in_child(&[]).is_err() {
                return 1;
            }
            tiny.counter(1, 0).load(Relaxed);
            2
        };
        let fork = |child: &dyn Fn() -> i32| {
            in_child(
                || tiny.mmu.before_fork(),
                || tiny.mmu.after_fork_in_parent(),
                child,
            )
        };
        // The page is first found to be lost at the touch, then marked as lost before it.
        for marked in [false, true] {
            if marked {
                millpond_core::Mmu::poison(&*tiny.mmu, range);
            }
            let status = fork(&child);
            assert!(
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS,
                "{delivery:?} {status:#x}"
            );
        }
        millpond_core::Mmu::zap(&*tiny.mmu, &[range]);
        tiny.states.lock().unwrap()[1] = State::Empty;
        assert_eq!(tiny.counter(1, 0).load(Relaxed), 0);
        tiny.end();
    });
}

#[test]
fn a_foreign_bus_error_reaches_the_earlier_handler() {
    let tiny = Tiny::new(Delivery::InThread, TakeOutMethod::Auto, 1, 0);
    tiny.counter(0, 0).store(1, Relaxed);
    let child = || {
        // SAFETY: touching a mapped file without bytes raises SIGBUS, which is the purpose.
        unsafe {
            let fd = libc::memfd_create(c"empty".as_ptr(), 0);
            let at = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            );
            std::ptr::read_volatile(at.cast::<u8>());
        }
        0
    };
    let status = in_child(|| {}, || {}, child);
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS,
        "{status:#x}"
    );
    // A signal that a process sent is not a fault. The standard library's handler responds to the first by restoring
    // the default, so the second ends the process, as it would without us.
    let sent = || {
        // SAFETY: the calls send signals to this thread.
        unsafe {
            libc::raise(libc::SIGBUS);
            libc::raise(libc::SIGBUS)
        }
    };
    let status = in_child(|| {}, || {}, sent);
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS,
        "{status:#x}"
    );
    tiny.end();
}
