//! Whether the kernel promises no more memory than there is (`vm.overcommit_memory` of 2).
//!
//! Such a kernel counts every private writable page as if it were in use, with or without `MAP_NORESERVE`, over all
//! processes, and refuses any mapping, `mprotect` or fork that exceeds its limit. Tables and pools that are long
//! because addresses are free elsewhere are not free there: with a pool of thirteen times the budget, python3 in 19
//! MiB was charged 480, and the shell that it started found nothing left. Code that makes long mappings asks here
//! first, and then makes them short.

/// Whether this machine limits what it promises. Returns false if `/proc` does not say.
#[must_use]
pub fn is_counted_strictly() -> bool {
    let read = std::fs::read("/proc/sys/vm/overcommit_memory");
    read.is_ok_and(|text| text.first() == Some(&b'2'))
}
