//! `mallinfo` and `mallinfo2`: how much the program has allocated, by jemalloc's count.
//!
//! Programs print these figures, or wait until one of them is small. The C library's own figures would be 0, since
//! nobody uses its `malloc`. Figures that have no meaning in jemalloc (bins, the top block) are 0 here. jemalloc sums
//! up its counters on request, which takes its locks, as an allocation may.

use crate::init;
use core::ffi::{CStr, c_int};
use tikv_jemalloc_sys as je;

/// The figures as in the C library's `mallinfo2`, in its order.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// The figures in the older form, whose fields are too small for large programs: they saturate at the largest `int`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Mallinfo([c_int; 10]);

fn read(name: &CStr) -> usize {
    let mut value = 0usize;
    let mut len = size_of::<usize>();
    // SAFETY: these statistics are of type `size_t`, and both results are ours.
    let error = unsafe {
        je::mallctl(
            name.as_ptr(),
            (&raw mut value).cast(),
            &mut len,
            core::ptr::null_mut(),
            0,
        )
    };
    if error == 0 { value } else { 0 }
}

fn refresh() {
    let mut epoch = 1u64;
    // SAFETY: the epoch is a `uint64_t`, and it is read from our variable.
    let _ = unsafe {
        je::mallctl(
            c"epoch".as_ptr(),
            core::ptr::null_mut(),
            core::ptr::null_mut(),
            (&raw mut epoch).cast(),
            size_of::<u64>(),
        )
    };
}

exports! {
    /// The C library has this function since 2.33.
    [none: Blocks]
    extern "C" fn mallinfo2() -> Mallinfo2 {
        if !init::is_ready() {
            return Mallinfo2::default();
        }
        refresh();
        let (active, used) = (read(c"stats.active"), read(c"stats.allocated"));
        Mallinfo2 {
            arena: active,
            uordblks: used,
            fordblks: active.saturating_sub(used),
            ..Mallinfo2::default()
        }
    }

    [none: Blocks]
    extern "C" fn mallinfo() -> Mallinfo {
        let info = mallinfo2();
        let short = |value: usize| c_int::try_from(value).unwrap_or(c_int::MAX);
        let mut all = [0; 10];
        (all[0], all[7], all[8]) = (
            short(info.arena),
            short(info.uordblks),
            short(info.fordblks),
        );
        Mallinfo(all)
    }
}
