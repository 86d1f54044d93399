//! Measures what folios of 2 MiB cost: the first touch of 1 GiB in such folios, compared with the kernel's own first
//! touch with huge and with small pages, and their way out and back. The measurements take turns, so that all run
//! under the same conditions. The output is the minimum and the median of the rounds, in microseconds for 2 MiB. Run
//! it with `cargo run --release -p millpond-mmu --example huge [ROUNDS]`.
//!
//! On a virtual machine the host takes memory that the guest does not use, and getting it back costs ten times as
//! much as what is measured here. So before each first touch the same memory is touched and freed.

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use common::huge::{huge_frame, leaf, memory};
use common::{State, Tiny};
use millpond_core::{Mmu, PAGE_SIZE, PageCount, PageIndex, PageRange, Placed};
use millpond_mmu::{Delivery, RealMemory, TakeOutMethod};

const LEAVES: usize = 512;
const HUGE: usize = 2 << 20;

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(7, |n| n.parse().expect("rounds are a number"));
    let Some(mmu) = memory(64) else { return };

    println!("first touch of 1 GiB, one byte of each 4 KiB written");
    let folios = Tiny::new(Delivery::InThread, TakeOutMethod::Auto, LEAVES as u32, 9);
    let by_handler = Tiny::new(Delivery::Handler, TakeOutMethod::Auto, LEAVES as u32, 9);
    let small = Tiny::new(Delivery::InThread, TakeOutMethod::Auto, LEAVES as u32, 4);
    in_turns(
        rounds,
        true,
        &mut [
            ("kernel, 4 KiB pages", &mut || {
                kernel_touch(libc::MADV_NOHUGEPAGE)
            }),
            ("kernel, huge pages", &mut || {
                kernel_touch(libc::MADV_HUGEPAGE)
            }),
            ("folios of 2 MiB, in-thread delivery", &mut || {
                touch(&folios)
            }),
            ("folios of 2 MiB, handler", &mut || touch(&by_handler)),
            ("folios of 64 KiB, in-thread delivery", &mut || {
                touch(&small)
            }),
        ],
    );
    for tiny in [folios, by_handler, small] {
        tiny.end();
    }

    println!("without faults, 64 leaves one after the other");
    in_turns(
        rounds * 4,
        false,
        &mut [
            ("new zeros", &mut || {
                all(&mmu, |n| {
                    let _ = mmu.install_zero(leaf(n), None).expect("an open leaf");
                })
            }),
            ("take out", &mut || {
                all(&mmu, |n| {
                    mmu.take_out(leaf(n), huge_frame(n)).expect("a free frame");
                })
            }),
            ("put back", &mut || {
                all(&mmu, |n| {
                    let placed = mmu.install(huge_frame(n), leaf(n));
                    assert_eq!(placed, Ok(Placed::Moved));
                })
            }),
            ("zero a used frame and put it in", &mut || {
                for n in 0..64 {
                    mmu.take_out(leaf(n), huge_frame(n)).expect("a free frame");
                }
                all(&mmu, |n| {
                    let placed = mmu.install_zero(leaf(n), Some(huge_frame(n)));
                    assert_eq!(placed, Ok(Placed::Moved));
                })
            }),
            ("give it up", &mut || all(&mmu, |n| mmu.zap(&[leaf(n)]))),
            ("new pages for a load, without the load", &mut || {
                all(&mmu, |n| {
                    mmu.fill(huge_frame(n), true, &mut |_| Ok(()))
                        .expect("nothing fails");
                })
            }),
            ("give the frame back", &mut || {
                all(&mmu, |n| mmu.free_frames(&[huge_frame(n)]))
            }),
        ],
    );
}

/// Runs each of `work` in turn, `rounds` times, and prints the minimum and the median of the results. If `warm` is
/// set, each runs after 1 GiB was touched and freed, so that all get the same pages.
fn in_turns(rounds: usize, warm: bool, work: &mut [(&str, &mut dyn FnMut() -> f64)]) {
    let mut times = vec![Vec::new(); work.len()];
    for _ in 0..rounds {
        for ((_, run), times) in work.iter_mut().zip(&mut times) {
            if warm {
                kernel_touch(libc::MADV_HUGEPAGE);
            }
            times.push(run());
        }
    }
    for ((name, _), times) in work.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!(
            "  {name:<40} {:>8.1} {:>8.1}",
            times[0],
            times[times.len() / 2]
        );
    }
}

fn all(mmu: &RealMemory, each: impl Fn(u32)) -> f64 {
    let leaves = (mmu.len() / HUGE) as u32;
    let since = Instant::now();
    (0..leaves).for_each(each);
    micros(since) / f64::from(leaves)
}

fn touch(tiny: &Arc<Tiny>) -> f64 {
    let base = tiny.mmu.addr_of(PageIndex(0));
    let time = touch_pages(base);
    (0..tiny.folios()).for_each(|folio| tiny.settle(folio));
    let pages = PageCount((LEAVES * HUGE / PAGE_SIZE) as u32);
    tiny.mmu.zap(&[PageRange::new(PageIndex(0), pages)]);
    tiny.states
        .lock()
        .expect("nobody panicked")
        .fill(State::Empty);
    time
}

fn kernel_touch(advice: i32) -> f64 {
    let len = (LEAVES + 1) * HUGE;
    // SAFETY: everything here is done to a mapping that this function owns.
    unsafe {
        let raw = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        assert_ne!(raw, libc::MAP_FAILED);
        libc::madvise(raw, len, advice);
        let base = raw.cast::<u8>();
        let time = touch_pages(base.wrapping_add(base.align_offset(HUGE)));
        libc::munmap(raw, len);
        time
    }
}

fn touch_pages(base: *mut u8) -> f64 {
    let since = Instant::now();
    for offset in (0..LEAVES * HUGE).step_by(PAGE_SIZE) {
        // SAFETY: the callers pass 1 GiB that nobody else uses.
        unsafe { base.add(offset).write_volatile(1) };
    }
    black_box(base);
    micros(since) / LEAVES as f64
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64 / 1000.0
}
