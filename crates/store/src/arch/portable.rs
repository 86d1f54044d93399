/// Does nothing: Rust has no stable name for a prefetch that every processor has.
#[inline]
pub(crate) fn prefetch(_at: *const u8) {}
