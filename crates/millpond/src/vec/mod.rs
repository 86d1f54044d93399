//! A typed region: a vector in managed memory.
//!
//! Methods that may need more memory answer with an error, as address space is bounded and a program may want to go on
//! with less. The traits that leave no room for an error (`Extend`, `FromIterator`, `Clone`) panic instead, as those of
//! the standard library's vector do.

mod builder;
mod iter;
mod plain;
mod traits;

pub use builder::PondVecBuilder;
pub use iter::IntoIter;
pub use plain::Plain;

use crate::error::RemapError;
use crate::region::Region;
use millpond_core::{LEAF_PAGES, PAGE_SIZE};
use std::mem::needs_drop;
use std::ptr::NonNull;

/// 2 MiB: the lengths by which a vector grows are multiples of this.
const LEAF: usize = LEAF_PAGES as usize * PAGE_SIZE;

/// A vector in managed memory, of any type of element. [`Manager::vec`](crate::Manager::vec) makes one of zeros,
/// [`Manager::vec_with_capacity`](crate::Manager::vec_with_capacity) an empty one, [`PondVec::builder`] one in a group
/// or from an iterator, and `collect` one in the [default manager](crate::Manager::make_default).
///
/// A vector grows by moving page tables, never by copying, and takes only its addresses ahead: room that was not
/// written to takes no memory. So a push costs the same whatever the length.
///
/// It is a slice to everything that takes one: indices, `sort_unstable`, `iter`, `windows`. Like the standard library's
/// vector it may be sent to another thread if its elements may, and shared if they may be shared. In a forked child
/// only its parent's elements cannot be had: such a vector is dropped there without them.
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
///
/// let names: Vec<String> = vec!["reed".into(), "weir".into()];
/// let mut more = manager.vec_with_capacity::<String>(10)?;
/// more.extend(names);
/// more.sort_unstable_by(|a, b| b.cmp(a));
/// assert_eq!(format!("{more:?}"), r#"["weir", "reed"]"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Elements that may not leave their thread keep the vector there:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>(_: T) {}
/// fn send(vec: millpond::PondVec<std::rc::Rc<u8>>) { sent(vec) }
/// ```
pub struct PondVec<T> {
    region: Region,
    /// The region's first byte.
    data: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: the pointer is to the region that the vector owns, which may be sent; the elements go along.
unsafe impl<T: Send> Send for PondVec<T> {}

// SAFETY: a shared vector gives shared slices only.
unsafe impl<T: Sync> Sync for PondVec<T> {}

const _: () = {
    const fn may_be_sent_and_shared<T: Send + Sync>() {}
    may_be_sent_and_shared::<PondVec<String>>();
    may_be_sent_and_shared::<IntoIter<String>>();
    may_be_sent_and_shared::<crate::Region>();
    may_be_sent_and_shared::<crate::Manager>();
    may_be_sent_and_shared::<crate::Group>();
};

impl<T> PondVec<T> {
    /// A builder for a vector in a group, with folios of orders of its own, or from an iterator.
    pub fn builder() -> PondVecBuilder<T> {
        PondVecBuilder::default()
    }

    /// Makes a vector of the region's first `len` elements.
    ///
    /// # Safety
    /// The region's first bytes are `len` values of the type.
    pub(crate) unsafe fn new(region: Region, len: usize) -> Self {
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
        const { assert!(align_of::<T>() <= LEAF, "a region begins at 2 MiB") };
        self.data = NonNull::new(self.region.as_ptr().cast()).expect("no region is at address 0");
        self.capacity = match size_of::<T>() {
            0 => usize::MAX,
            size => self.region.len() / size,
        };
    }

    /// The region that holds the elements: for its figures, advice and pins.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut numbers = manager.vec::<u32>(1 << 20)?;
    /// numbers[0] = 7;
    /// assert_eq!(numbers.region().stats().resident, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Number of elements that fit before the vector grows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// All elements.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the region is aligned beyond the type's need (`look`) and begins with `len` values of it. Borrowing
        // `self` borrows the region.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// All elements, for writing.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// Adds an element at the end.
    ///
    /// # Errors
    /// As [`PondVec::reserve`]; the element is dropped then.
    pub fn push(&mut self, value: T) -> Result<(), RemapError> {
        if self.len == self.capacity {
            self.reserve(1)?;
        }
        // SAFETY: there is room behind the last element, and `&mut self` makes this the only access.
        unsafe { self.data.add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    /// Adds clones of all of `values` at the end.
    ///
    /// # Errors
    /// As [`PondVec::reserve`]; nothing was added then.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), RemapError>
    where
        T: Clone,
    {
        self.reserve(values.len())?;
        for value in values {
            // SAFETY: there is room for the values behind the last element. A clone that panics leaves the elements
            // before it in the vector.
            unsafe { self.data.add(self.len).write(value.clone()) };
            self.len += 1;
        }
        Ok(())
    }

    /// Makes the vector `len` elements long: cuts it off, or adds clones of `value`.
    ///
    /// # Errors
    /// As [`PondVec::reserve`]; nothing was added then.
    pub fn resize(&mut self, len: usize, value: T) -> Result<(), RemapError>
    where
        T: Clone,
    {
        self.truncate(len);
        self.reserve(len - self.len)?;
        while self.len < len {
            self.push(value.clone())?;
        }
        Ok(())
    }

    /// Puts an element at `index`, and moves those from there on by one place.
    ///
    /// # Errors
    /// As [`PondVec::reserve`]; the element is dropped then.
    ///
    /// # Panics
    /// When `index` is beyond the end.
    pub fn insert(&mut self, index: usize, value: T) -> Result<(), RemapError> {
        let len = self.len;
        assert!(index <= len, "the place {index} is beyond the length {len}");
        self.push(value)?;
        self.as_mut_slice()[index..].rotate_right(1);
        Ok(())
    }

    /// Takes the element at `index` out, and moves those behind it by one place.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn remove(&mut self, index: usize) -> T {
        self.as_mut_slice()[index..].rotate_left(1);
        self.pop().expect("the index was within the length")
    }

    /// Takes the element at `index` out, and puts the last one in its place.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let len = self.len;
        assert!(
            index < len,
            "the place {index} is not within the length {len}"
        );
        self.swap(index, len - 1);
        self.pop().expect("the index was within the length")
    }

    /// Keeps the elements for which `keep` says so, in their order. If `keep` panics, all elements are still there, in
    /// some order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut kept = 0;
        for at in 0..self.len {
            if keep(&self[at]) {
                self.swap(kept, at);
                kept += 1;
            }
        }
        self.truncate(kept);
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
            let bytes = elements.checked_mul(size)?;
            bytes.checked_next_multiple_of(LEAF)
        };
        let wished = bytes(room).ok_or(too_long.clone())?;
        if self.region.grow(wished).is_err() {
            self.region.grow(bytes(least).ok_or(too_long)?)?;
        }
        self.look();
        Ok(())
    }

    /// Gives back the addresses behind the last element, as far as whole pages go.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut numbers = manager.vec_with_capacity::<u64>(1 << 20)?;
    /// numbers.push(7)?;
    /// numbers.shrink_to_fit();
    /// assert_eq!(numbers.capacity(), 512);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink_to_fit(&mut self) {
        let bytes = (self.len * size_of::<T>()).max(1);
        let pages = bytes.next_multiple_of(PAGE_SIZE);
        if pages < self.region.len() {
            // Pinned pages keep the region as long as it is, which no element shows.
            let _ = self.region.shrink(pages);
            self.look();
        }
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
        let dropped = NonNull::from(&mut self.as_mut_slice()[len..]);
        self.len = len;
        if needs_drop::<T>() {
            // SAFETY: the elements are not the vector's any more, so each is dropped once.
            unsafe { dropped.drop_in_place() };
        }
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
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the element is a value, and not the vector's any more.
        Some(unsafe { self.data.add(self.len).read() })
    }

    /// A copy in memory of its own, of the same group and orders. Unlike [`Clone`] it does not panic.
    ///
    /// # Errors
    /// No addresses.
    pub fn try_clone(&self) -> Result<Self, RemapError>
    where
        T: Clone,
    {
        let bytes = (self.len * size_of::<T>()).max(1);
        let no_space = RemapError::NoAddressSpace {
            bytes: bytes as u64,
        };
        let region = self.region.another(0, bytes).ok_or(no_space)?;
        // SAFETY: no elements are any region's.
        let mut copy = unsafe { Self::new(region, 0) };
        copy.extend_from_slice(self)?;
        Ok(copy)
    }
}

impl<T> Drop for PondVec<T> {
    fn drop(&mut self) {
        // A forked child does not have the elements: looking at one would end it.
        if needs_drop::<T>() && self.region.pond().is_ours() {
            let elements = NonNull::from(self.as_mut_slice());
            // SAFETY: the vector is not used after this.
            unsafe { elements.drop_in_place() };
        }
    }
}
