//! Races of system calls on held memory against take-outs, with user-mode faults only: the kernel itself cannot bring
//! a page in, so a call gets EFAULT if a hold fails. No call may get it, and no byte may be lost.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::{Random, Tiny, stress_time, usable};
use millpond_core::PAGE_SIZE;
use millpond_mmu::{Delivery, Held, TakeOutMethod, look_for_holds, touch};

/// Threads that make calls, each in folios of its own.
const CALLERS: usize = 3;
/// Folios of each caller.
const OWN: usize = 24;

/// Makes a call on memory of the arena, which is held during the call. The result must be the whole length.
fn held(start: usize, len: usize, call: impl FnOnce() -> isize) {
    let frame = core::hint::black_box(&raw const start) as usize;
    let _held = Held::first(start, start + len, frame).expect("a free line");
    assert!(touch(start, start + len));
    let moved = call();
    let errno = std::io::Error::last_os_error();
    assert_eq!(moved, len as isize, "{errno}");
}

/// Returns the two ends of a datagram socket.
fn datagrams() -> [i32; 2] {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0);
    ends
}

/// Writes memory to a file and reads it back, sends it and receives it, at random places, and compares. Returns the
/// number of rounds.
fn call(tiny: &Tiny, caller: usize, stop: &AtomicBool) -> u64 {
    let bytes = tiny.order.bytes();
    let first = tiny.mmu.addr_of(tiny.range(caller * OWN).start) as usize;
    let all = OWN * bytes;
    let file = tempfile();
    let [from, to] = datagrams();
    let mut random = Random(0x9E37_79B9 + caller as u64);
    let mut rounds = 0u64;
    while !stop.load(Relaxed) {
        let len = 1 + random.below(3 * PAGE_SIZE);
        let source = random.below(all / 2 - len);
        let target = all / 2 + random.below(all / 2 - len);
        let (source, target) = (first + source, first + target);
        let seed = rounds as u8;
        // SAFETY: both places are in this thread's own part of the arena, and do not overlap.
        let (sent, got) = unsafe {
            (
                core::slice::from_raw_parts_mut(source as *mut u8, len),
                core::slice::from_raw_parts_mut(target as *mut u8, len),
            )
        };
        for (n, byte) in sent.iter_mut().enumerate() {
            *byte = seed.wrapping_add(n as u8).wrapping_mul(31);
        }
        got.fill(0);
        // SAFETY: the calls read and write the memory of the two slices.
        unsafe {
            if rounds.is_multiple_of(2) {
                held(source, len, || {
                    libc::pwrite(file, source as *const _, len, 0)
                });
                held(target, len, || libc::pread(file, target as *mut _, len, 0));
            } else {
                held(source, len, || libc::send(from, source as *const _, len, 0));
                held(target, len, || libc::recv(to, target as *mut _, len, 0));
            }
        }
        assert!(sent == got, "bytes were lost");
        rounds += 1;
    }
    rounds
}

/// Returns a descriptor of an unnamed file.
fn tempfile() -> i32 {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"held".as_ptr(), 0) };
    assert!(file >= 0);
    file
}

fn race(method: TakeOutMethod, order: u8) {
    if !usable(Delivery::InThread, method) {
        return;
    }
    look_for_holds();
    let leaves = ((CALLERS * OWN) << order).div_ceil(512) as u32;
    let tiny = Tiny::new(Delivery::InThread, method, leaves, order);
    let stop = Arc::new(AtomicBool::new(false));
    let taken = AtomicU64::new(0);
    let rounds = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (tiny, stop) = (&tiny, &stop);
                scope.spawn(move || call(tiny, caller, stop))
            })
            .collect();
        for taker in 0..2u64 {
            let (tiny, stop, taken) = (&tiny, &stop, &taken);
            scope.spawn(move || {
                let mut random = Random(0xDEAD_BEEF + taker);
                while !stop.load(Relaxed) {
                    let folio = random.below(CALLERS * OWN);
                    let gone = match random.below(3) {
                        0 => usize::from(tiny.evict(folio)),
                        _ => tiny.evict_all(folio, 1 + random.below(8)),
                    };
                    taken.fetch_add(gone as u64, Relaxed);
                }
            });
        }
        std::thread::sleep(stress_time() / 2);
        stop.store(true, Relaxed);
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum::<u64>()
    });
    let taken = taken.load(Relaxed);
    println!("{method:?} order {order}: {rounds} rounds, {taken} taken out");
    assert!(rounds > 0 && taken > 0);
    tiny.end();
}

#[test]
fn no_call_on_held_memory_fails_while_pages_are_moved_out() {
    race(TakeOutMethod::Move, 0);
    race(TakeOutMethod::Move, 2);
}

#[test]
fn no_call_on_held_memory_fails_while_pages_are_copied_out() {
    race(TakeOutMethod::Copy, 0);
    race(TakeOutMethod::Copy, 2);
}
