//! Bytes for tests of the file.

/// Incompressible bytes, different for each seed. `len` is a multiple of 8.
pub(crate) fn noise(seed: impl Into<u64>, len: usize) -> Vec<u8> {
    let mut state: u64 = seed.into();
    let words = (0..len / 8).flat_map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).to_ne_bytes()
    });
    words.collect()
}
