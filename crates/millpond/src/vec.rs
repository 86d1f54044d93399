//! A typed region: a vector in managed memory.

use crate::error::RemapError;
use crate::region::Region;
use millpond_core::{LEAF_PAGES, PAGE_SIZE};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// 2 MiB: the lengths by which a vector grows are multiples of this.
const LEAF: usize = LEAF_PAGES as usize * PAGE_SIZE;

/// Types for which any bytes are a value, so that memory of zeros holds valid values.
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

/// A vector in managed memory. [`Manager::vec`](crate::Manager::vec) and
/// [`Manager::vec_with_capacity`](crate::Manager::vec_with_capacity) make one.
///
/// A vector grows by moving page tables, never by copying, and takes only its addresses ahead: room that was not
/// written to takes no memory. So a push costs the same whatever the length.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut numbers = manager.vec_with_capacity::<u64>(1)?;
/// for n in 0..1_000_000 {
///     numbers.push(n)?;
/// }
/// numbers.truncate(10);
/// numbers.extend_from_slice(&[7, 8])?;
/// assert_eq!((numbers.len(), numbers[11]), (12, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PondVec<T> {
    region: Region,
    /// The region's first byte.
    data: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: the pointer is to the region that the vector owns, which may be sent, and `T` is `Send` by `Plain`.
unsafe impl<T: Plain> Send for PondVec<T> {}

// SAFETY: a shared vector gives shared slices only, and `T` is `Sync` by `Plain`.
unsafe impl<T: Plain> Sync for PondVec<T> {}

impl<T: Plain> PondVec<T> {
    pub(crate) fn new(region: Region, len: usize) -> Self {
        let mut vec = Self {
            region,
            data: NonNull::dangling(),
            len,
            capacity: 0,
        };
        vec.look();
        vec
    }

    /// Reads the region's address and capacity after it has changed.
    fn look(&mut self) {
        self.data = NonNull::new(self.region.as_ptr().cast()).expect("no region is at address 0");
        self.capacity = self.region.len() / size_of::<T>();
    }

    /// The region that holds the elements.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Number of elements that fit before the vector grows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Adds an element at the end.
    ///
    /// # Errors
    /// As [`PondVec::reserve`].
    pub fn push(&mut self, value: T) -> Result<(), RemapError> {
        if self.len == self.capacity {
            self.reserve(1)?;
        }
        // SAFETY: there is room behind the last element, and `&mut self` makes this the only access.
        unsafe { self.data.add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    /// Adds all of `values` at the end.
    ///
    /// # Errors
    /// As [`PondVec::reserve`]; nothing was added then.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), RemapError> {
        self.reserve(values.len())?;
        // SAFETY: there is room for the values behind the last element, and a borrowed slice cannot lie there.
        unsafe {
            self.data
                .add(self.len)
                .copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
        self.len += values.len();
        Ok(())
    }

    /// Makes room for `more` elements. If the vector has to grow, it makes room for at least half as many again as
    /// there are.
    ///
    /// # Errors
    /// Too many elements, or no addresses; nothing has changed then.
    pub fn reserve(&mut self, more: usize) -> Result<(), RemapError> {
        let size = size_of::<T>();
        let too_long = RemapError::NoAddressSpace { bytes: u64::MAX };
        let least = self.len.checked_add(more).ok_or(too_long.clone())?;
        if least <= self.capacity {
            return Ok(());
        }
        let room = least.max(self.capacity + self.capacity / 2);
        let bytes = |elements: usize| {
            elements
                .checked_mul(size)
                .map(|bytes| bytes.next_multiple_of(LEAF))
        };
        let wished = bytes(room).ok_or(too_long.clone())?;
        if self.region.grow(wished).is_err() {
            self.region.grow(bytes(least).ok_or(too_long)?)?;
        }
        self.look();
        Ok(())
    }

    /// Keeps the first `len` elements. The memory of the others is forgotten; their addresses stay for new elements.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        let first_free = (len * size_of::<T>()).next_multiple_of(PAGE_SIZE);
        let end = (self.len * size_of::<T>())
            .next_multiple_of(PAGE_SIZE)
            .min(self.region.len());
        self.len = len;
        if first_free < end {
            // A pinned page keeps its contents, which no call can show.
            let _ = self.region.discard(first_free..end);
        }
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Removes the last element.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.len -= 1;
        Some(last)
    }
}

impl<T: Plain> Deref for PondVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the region has room for `len` elements and is aligned beyond any type's need, and `Plain` says that
        // any bytes are values. Borrowing `self` borrows the region.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for PondVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for PondVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PondVec")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .field("region", &self.region)
            .finish()
    }
}
