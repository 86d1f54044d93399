//! Checks, word by word, whether a page contains only zeros.

use millpond_core::PAGE_SIZE;

/// The bytes of each page that a glance sees: those that programs write first, and one cache line.
const GLANCE: usize = 64;

/// Returns how many words of each page to look at.
pub(crate) fn words_seen(glance: bool) -> usize {
    let seen = if glance { GLANCE } else { PAGE_SIZE };
    seen / size_of::<u64>()
}

/// Whether `words` words from `at` are zero. Each is read once, because the program may write there meanwhile.
///
/// # Safety
/// The words are mapped and aligned; `words` is a multiple of 8.
pub(crate) unsafe fn is_blank(at: *const u64, words: usize) -> bool {
    for line in (0..words).step_by(8) {
        let mut sum = 0;
        for i in line..line + 8 {
            // SAFETY: the word is one of those that the caller guarantees.
            sum |= unsafe { at.add(i).read_volatile() };
        }
        if sum != 0 {
            return false;
        }
    }
    true
}
