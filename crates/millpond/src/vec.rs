//! A typed region.

use crate::region::Region;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Types that any bytes are a value of, so that memory of zeros is full of them.
///
/// # Safety
/// Every bit pattern of the type's size must be a valid value, the type has no padding and no drop glue, and it is
/// not of size zero.
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

// SAFETY: an array of N > 0 elements is these elements and nothing else; with N = 0 it has no bytes, and
// `Manager::vec` refuses that as an empty region.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A vector of fixed length in managed memory. Made by [`Manager::vec`](crate::Manager::vec).
pub struct PondVec<T> {
    region: Region,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Plain> PondVec<T> {
    pub(crate) fn new(region: Region, len: usize) -> Self {
        Self {
            region,
            len,
            elements: PhantomData,
        }
    }

    /// The region under it.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl<T: Plain> Deref for PondVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the region has room for `len` elements, is aligned beyond any type's need, and `Plain` says that
        // whatever bytes it has are values. Borrowing `self` borrows the region.
        unsafe { std::slice::from_raw_parts(self.region.as_ptr().cast(), self.len) }
    }
}

impl<T: Plain> DerefMut for PondVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.region.as_ptr().cast(), self.len) }
    }
}

impl<T> fmt::Debug for PondVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PondVec")
            .field("len", &self.len)
            .field("region", &self.region)
            .finish()
    }
}
