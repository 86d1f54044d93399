//! The iterator that owns a vector's elements.

use super::PondVec;
use crate::region::Region;
use std::fmt;
use std::iter::FusedIterator;
use std::mem::{ManuallyDrop, needs_drop};
use std::ops::Range;
use std::ptr::NonNull;

/// The elements of a [`PondVec`], by value.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut words = manager.vec_with_capacity::<String>(3)?;
/// words.extend(["a", "b", "c"].map(String::from));
/// let mut words = words.into_iter();
/// assert_eq!((words.next_back().as_deref(), words.len()), (Some("c"), 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IntoIter<T> {
    /// Keeps the memory.
    region: Region,
    data: NonNull<T>,
    /// The elements that are still to come.
    left: Range<usize>,
}

// SAFETY: as for the vector that the elements come from.
unsafe impl<T: Send> Send for IntoIter<T> {}

// SAFETY: as for the vector that the elements come from.
unsafe impl<T: Sync> Sync for IntoIter<T> {}

impl<T> IntoIter<T> {
    /// The elements that are still to come.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: these elements have not been given away, and the region is the iterator's.
        unsafe {
            let first = self.data.add(self.left.start);
            std::slice::from_raw_parts(first.as_ptr(), self.left.len())
        }
    }

    /// Gives the element away.
    ///
    /// # Safety
    /// It was taken out of `left`, so that it is given once.
    unsafe fn give(&self, at: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.data.add(at).read() }
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let at = self.left.next()?;
        // SAFETY: `next` has taken it out.
        Some(unsafe { self.give(at) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T> DoubleEndedIterator for IntoIter<T> {
    fn next_back(&mut self) -> Option<T> {
        let at = self.left.next_back()?;
        // SAFETY: `next_back` has taken it out.
        Some(unsafe { self.give(at) })
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}

impl<T> FusedIterator for IntoIter<T> {}

impl<T> Drop for IntoIter<T> {
    fn drop(&mut self) {
        if needs_drop::<T>() && self.region.pond().is_ours() {
            let left = NonNull::from(self.as_slice());
            // SAFETY: the elements are the iterator's, which is not used after this.
            unsafe { left.drop_in_place() };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for IntoIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::traits::list(f, self.as_slice())
    }
}

impl<T> IntoIterator for PondVec<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        let vec = ManuallyDrop::new(self);
        IntoIter {
            // SAFETY: the vector is not used or dropped after this, so the region has one owner.
            region: unsafe { std::ptr::read(&vec.region) },
            data: vec.data,
            left: 0..vec.len,
        }
    }
}

impl<'a, T> IntoIterator for &'a PondVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut PondVec<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
