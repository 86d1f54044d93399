//! Callers' structures, which begin with their own size.
//!
//! The structures only ever grow, at their end. A program built with an older header passes fewer bytes than our
//! structure has: the rest is zero, and is not written. A program built with a newer header passes more bytes: values
//! in them would be silently ignored, so they must be zero.

use crate::status::Failure;
use std::ffi::c_void;

/// A structure of numbers and pointers that is valid if all its bytes are zero, and begins with its size.
///
/// # Safety
/// The type is `#[repr(C)]` with a first field of type `usize` and no padding that matters, and zeros are a valid
/// value.
pub(crate) unsafe trait Structure: Copy {
    /// The structure's name in the header.
    const NAME: &'static str;
}

/// The smallest size that a caller can mean: the size itself and one field.
const LEAST: usize = 2 * size_of::<usize>();
/// The largest size that a caller can mean: with a larger one, the caller did not set the size.
const MOST: usize = 1 << 16;

fn size_of_callers<T: Structure>(at: *const T) -> Result<usize, Failure> {
    let name = T::NAME;
    if at.is_null() {
        return Err(Failure::invalid(format!("null was passed for a {name}")));
    }
    // SAFETY: the pointer is not null, and by the header's contract points to a structure that begins with its size.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    match (LEAST..=MOST).contains(&size) {
        true => Ok(size),
        false => Err(Failure::invalid(format!(
            "a {name} of {size} bytes was passed: set its .size to sizeof ({name})"
        ))),
    }
}

/// Reads a caller's structure into ours.
///
/// # Safety
/// `at` is null, or readable up to its size.
pub(crate) unsafe fn read<T: Structure>(at: *const T) -> Result<T, Failure> {
    let size = size_of_callers(at)?;
    let ours = size_of::<T>();
    for byte in ours..size {
        // SAFETY: the byte is within the size.
        if unsafe { *at.cast::<u8>().add(byte) } != 0 {
            return Err(Failure::invalid(format!(
                "a {} of {size} bytes sets what this library does not know, as its own has {ours}: use a newer library",
                T::NAME
            )));
        }
    }
    let mut read = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: only bytes that both structures have are copied; zeros elsewhere are a valid value of the type.
    unsafe {
        std::ptr::copy_nonoverlapping(
            at.cast::<u8>(),
            read.as_mut_ptr().cast::<u8>(),
            size.min(ours),
        );
        Ok(read.assume_init())
    }
}

/// Fills in a caller's structure, except for its size, as far as it reaches. Bytes beyond our structure become zero.
///
/// # Safety
/// `at` is null, or writable up to its size.
pub(crate) unsafe fn write<T: Structure>(
    at: *mut T,
    fill: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    let size = size_of_callers(at.cast_const())?;
    let filled = fill()?;
    let ours = size_of::<T>().min(size);
    let head = size_of::<usize>();
    // SAFETY: the bytes are within the caller's size, and within ours.
    unsafe {
        let from = (&raw const filled).cast::<u8>().add(head);
        let to = at.cast::<u8>();
        std::ptr::copy_nonoverlapping(from, to.add(head), ours - head);
        to.add(ours).cast::<c_void>().write_bytes(0, size - ours);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(C)]
    struct Pair {
        size: usize,
        one: u64,
        two: u64,
    }

    // SAFETY: the structure meets the trait's requirements.
    unsafe impl Structure for Pair {
        const NAME: &'static str = "struct pair";
    }

    #[test]
    fn older_and_newer_callers_are_understood() {
        let mut words = [16_usize, 7, 9, 0, 0];
        let at = words.as_mut_ptr().cast::<Pair>();
        // SAFETY: the words exist, and the first one gives the maximum number.
        unsafe {
            let (one, two) = (7, 0);
            assert_eq!(read(at).unwrap(), Pair { size: 16, one, two });
            (*at).size = 40;
            assert_eq!(read(at).unwrap().two, 9);
            at.cast::<usize>().add(4).write(1);
            assert!(read(at).unwrap_err().message.contains("newer library"));
            let ours = Pair {
                size: 0,
                one: 3,
                two: 4,
            };
            write(at, || Ok(ours)).unwrap();
            assert_eq!(words, [40, 3, 4, 0, 0]);
            words = [16, 0, 8, 8, 8];
            write(at, || Ok(ours)).unwrap();
            assert_eq!(words, [16, 3, 8, 8, 8]);
        }
    }

    #[test]
    fn a_size_that_was_not_set_is_an_error() {
        let pair = Pair {
            size: 0,
            one: 1,
            two: 2,
        };
        // SAFETY: one pointer refers to a whole structure, the other is null.
        let failures = unsafe { [read(&raw const pair), read(std::ptr::null::<Pair>())] };
        for failure in failures {
            let message = failure.unwrap_err().message;
            assert!(message.contains("struct pair"), "{message}");
        }
    }
}
