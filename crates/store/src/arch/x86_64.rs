/// Prefetches the cache line at `at`. The address need not be mapped.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: a prefetch is a hint: it never faults and changes nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
}
