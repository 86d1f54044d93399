//! What a vector has in common with the standard library's.

use super::PondVec;
use crate::manager::Manager;
use std::borrow::{Borrow, BorrowMut};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::slice::SliceIndex;

/// Most elements that `Debug` shows: a vector may be larger than RAM, and so would be its text.
const SHOWN: usize = 100;

/// Writes the elements as a list, which ends with dots when there are more than [`SHOWN`].
pub(super) fn list<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, elements: &[T]) -> fmt::Result {
    let mut list = f.debug_list();
    list.entries(elements.iter().take(SHOWN));
    match elements.len() > SHOWN {
        true => list.finish_non_exhaustive(),
        false => list.finish(),
    }
}

impl<T> Deref for PondVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T> DerefMut for PondVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<T, I: SliceIndex<[T]>> Index<I> for PondVec<T> {
    type Output = I::Output;

    fn index(&self, index: I) -> &I::Output {
        &self.as_slice()[index]
    }
}

impl<T, I: SliceIndex<[T]>> IndexMut<I> for PondVec<T> {
    fn index_mut(&mut self, index: I) -> &mut I::Output {
        &mut self.as_mut_slice()[index]
    }
}

/// # Panics
/// When the manager has no addresses for the elements; [`PondVec::push`] says so without.
impl<T> Extend<T> for PondVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        let elements = elements.into_iter();
        let (least, _) = elements.size_hint();
        if let Err(error) = self.reserve(least) {
            panic!("a vector cannot be extended by {least} elements: {error}");
        }
        for element in elements {
            if let Err(error) = self.push(element) {
                panic!(
                    "a vector of {} elements cannot be extended: {error}",
                    self.len()
                );
            }
        }
    }
}

/// # Panics
/// When the manager has no addresses for the elements; [`PondVec::extend_from_slice`] says so without.
impl<'a, T: Copy + 'a> Extend<&'a T> for PondVec<T> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, elements: I) {
        self.extend(elements.into_iter().copied());
    }
}

/// Collects into the [default manager](Manager::make_default).
/// [`PondVecBuilder::collect`](super::PondVecBuilder::collect) takes a manager, and does not panic.
///
/// # Panics
/// When no manager was made the default, and when it has no addresses for the elements.
impl<T> FromIterator<T> for PondVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let Some(manager) = Manager::get_default() else {
            panic!(
                "no manager of this process is the default: call make_default() on one before you collect into a \
                 PondVec, or name one by PondVec::<T>::builder().collect(&manager, elements)"
            );
        };
        match Self::builder().collect(&manager, elements) {
            Ok(vec) => vec,
            Err(error) => panic!("the elements cannot be collected: {error}"),
        }
    }
}

/// # Panics
/// When the manager has no addresses for the elements; [`PondVec::try_clone`] says so without.
impl<T: Clone> Clone for PondVec<T> {
    fn clone(&self) -> Self {
        match self.try_clone() {
            Ok(copy) => copy,
            Err(error) => panic!(
                "a vector of {} elements cannot be cloned: {error}",
                self.len()
            ),
        }
    }
}

/// The elements as a list, as `Vec` shows them; after 100 elements dots stand for the rest.
impl<T: fmt::Debug> fmt::Debug for PondVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self)
    }
}

impl<T> AsRef<[T]> for PondVec<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for PondVec<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T> Borrow<[T]> for PondVec<T> {
    fn borrow(&self) -> &[T] {
        self
    }
}

impl<T> BorrowMut<[T]> for PondVec<T> {
    fn borrow_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: PartialEq<U>, U> PartialEq<PondVec<U>> for PondVec<T> {
    fn eq(&self, other: &PondVec<U>) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq> Eq for PondVec<T> {}

macro_rules! equals {
    ($($other:ty $(, $length:ident)?;)+) => {
        $(
            impl<T: PartialEq<U>, U $(, const $length: usize)?> PartialEq<$other> for PondVec<T> {
                fn eq(&self, other: &$other) -> bool {
                    self.as_slice() == &other[..]
                }
            }
        )+
    };
}

equals! {
    [U];
    &[U];
    Vec<U>;
    [U; N], N;
    &[U; N], N;
}

impl<T: PartialOrd> PartialOrd for PondVec<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.as_slice().partial_cmp(other)
    }
}

impl<T: Ord> Ord for PondVec<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other)
    }
}

impl<T: Hash> Hash for PondVec<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

/// Bytes are added at the end.
impl io::Write for PondVec<u8> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let added = self.extend_from_slice(bytes);
        added.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
