//! Whether the kernel promises no more memory than there is (`vm.overcommit_memory` of 2).
//!
//! Such a kernel counts every private page that can be written as if it were in use, `MAP_NORESERVE` or not, in all
//! processes together, and refuses a mapping, a `mprotect` and a fork that go beyond its sum. Tables and pools that are
//! long because addresses are free elsewhere are not free there: with a pool of thirteen times the budget, python3 in
//! 19 MiB was promised 480, and the shell that it started found nothing left. Whoever makes long mappings asks here,
//! and makes them short.

/// Whether this machine counts what it promises. Where `/proc` does not say, it is taken for one that does not.
#[must_use]
pub fn is_counted_strictly() -> bool {
    let read = std::fs::read("/proc/sys/vm/overcommit_memory");
    read.is_ok_and(|text| text.first() == Some(&b'2'))
}
