//! Types whose zeros are a value.

/// Types for which any bytes are a value, so that memory of zeros holds valid values.
///
/// # Safety
/// Every bit pattern of the type's size must be a valid value, the type has no padding and no drop glue, and it is
/// not of size zero.
///
/// ```
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Row { key: u64, counts: [u32; 2] }
/// // SAFETY: numbers without padding between them.
/// unsafe impl millpond::Plain for Row {}
///
/// let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let rows = manager.vec::<Row>(1_000_000)?;
/// assert_eq!((rows[7].key, rows[7].counts), (0, [0, 0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($type:ty),+) => {
        $(
            // SAFETY: numbers have neither invalid bit patterns nor padding.
            unsafe impl Plain for $type {}
        )+
    };
}

plain!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64
);

// SAFETY: an array of N > 0 elements is these elements and nothing else; with N = 0 it has no bytes, of which any
// number of values may be made.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
