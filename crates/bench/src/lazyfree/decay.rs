//! The time for which the allocating program's allocator keeps memory that it does not need.
//!
//! An allocator that keeps memory for seconds returns almost nothing while a program is busy, so it makes no
//! difference how it does so. An allocator that returns memory at once has the smallest footprint, and pays for each
//! piece again when it is reused: here the way of returning memory matters. jemalloc calls this time decay, and sets
//! it through its control function `mallctl`, which a program looks up in whatever allocator it runs with.

use crate::error::Failure;
use crate::side::by_text;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::str::FromStr;

/// The time for which unused memory is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Decay {
    /// The allocator's own setting.
    Own,
    /// This many milliseconds. With 0, memory is returned at once.
    Milliseconds(u32),
}

impl FromStr for Decay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Self::Own),
            _ => text
                .parse()
                .map(Self::Milliseconds)
                .map_err(|_| format!("`{text}` is neither `own` nor a number of milliseconds")),
        }
    }
}

impl fmt::Display for Decay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.pad("own"),
            Self::Milliseconds(time) => f.pad(&time.to_string()),
        }
    }
}

by_text!(Decay);

type Control =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

impl Decay {
    /// Makes the allocator of this process keep memory for this time.
    ///
    /// # Errors
    /// When the allocator is not jemalloc, or refuses.
    pub fn set(self) -> Result<(), Failure> {
        let Self::Milliseconds(time) = self else {
            return Ok(());
        };
        let control = control().ok_or("the allocator has no mallctl")?;
        let time = isize::try_from(time)?;
        write(control, c"arenas.dirty_decay_ms", time)?;
        for arena in 0..arenas(control)? {
            let name = CString::new(format!("arena.{arena}.dirty_decay_ms"))?;
            match write(control, &name, time) {
                // An arena that is not in use yet will use the time that was set above.
                Err(Refused(libc::EFAULT)) => {}
                answer => answer?,
            }
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("mallctl failed: error {0}")]
struct Refused(c_int);

fn control() -> Option<Control> {
    // SAFETY: the name is a string with an end; looking it up changes nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallctl".as_ptr()) };
    // SAFETY: a library that exports this name exports jemalloc's function; null becomes `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<Control>>(found) }
}

fn write(control: Control, name: &CStr, mut value: isize) -> Result<(), Refused> {
    let none = std::ptr::null_mut();
    let new = (&raw mut value).cast();
    // SAFETY: the control takes a signed word, which lives during the call, and no old value is requested.
    match unsafe { control(name.as_ptr(), none, none.cast(), new, size_of_val(&value)) } {
        0 => Ok(()),
        error => Err(Refused(error)),
    }
}

fn arenas(control: Control) -> Result<u32, Refused> {
    let (mut count, mut len) = (0u32, size_of::<u32>());
    let old = (&raw mut count).cast();
    let name = c"arenas.narenas".as_ptr();
    // SAFETY: the control returns an unsigned int, for which there is room, and nothing is set.
    match unsafe { control(name, old, &mut len, std::ptr::null_mut(), 0) } {
        0 => Ok(count),
        error => Err(Refused(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_times_round_trip_through_text() {
        assert_eq!("own".parse(), Ok(Decay::Own));
        assert_eq!("0".parse(), Ok(Decay::Milliseconds(0)));
        assert!("soon".parse::<Decay>().is_err() && "-1".parse::<Decay>().is_err());
        assert_eq!(Decay::Milliseconds(20).to_string(), "20");
    }

    #[test]
    fn setting_a_decay_without_mallctl_is_an_error() {
        Decay::Own.set().unwrap();
        let error = Decay::Milliseconds(0).set().unwrap_err();
        assert!(error.to_string().contains("no mallctl"), "{error}");
    }
}
