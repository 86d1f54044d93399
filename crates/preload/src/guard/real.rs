//! The C library's functions that this library replaces.
//!
//! They are looked up before any code of the program can call them, because the look-up may allocate and take locks,
//! and a program may call them in a signal handler. An export that is called even earlier (by a `.preinit_array`, by
//! this library's own standard library) finds none. In that case it makes its system call itself ([`Real::get`]), or
//! looks up the other function after all ([`Real::must`]).

use crate::dlopen::{find_next, next};
use core::ffi::CStr;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A function of type `F`, a function pointer.
pub struct Real<F> {
    name: &'static CStr,
    at: AtomicUsize,
    function: PhantomData<F>,
}

// SAFETY: the value holds only an address.
unsafe impl<F> Sync for Real<F> {}

impl<F: Copy> Real<F> {
    /// Refers to the function of this name, which must be of type `F`.
    ///
    /// # Safety
    /// `F` is a function pointer of the same type as the C library's function of this name.
    pub const unsafe fn named(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<usize>());
        Self {
            name,
            at: AtomicUsize::new(0),
            function: PhantomData,
        }
    }

    /// Returns the function, if it has been looked up and exists.
    #[inline]
    pub fn get(&self) -> Option<F> {
        match self.at.load(Relaxed) {
            0 => None,
            // SAFETY: the address is that of the function of this name, whose type was promised to be `F`.
            at => Some(unsafe { core::mem::transmute_copy::<usize, F>(&at) }),
        }
    }
}

impl<F: Copy> Real<F> {
    /// Returns the function. Ends the process if there is none: the program has found ours, and asks for something
    /// that cannot be done.
    #[inline]
    pub fn must(&self) -> F {
        self.get().unwrap_or_else(|| self.late())
    }

    #[cold]
    fn late(&self) -> F {
        let at = next(self.name)
            .unwrap_or_else(|error| crate::exit::fail(&format!("millpond: {error}")));
        self.at.store(at, Relaxed);
        // SAFETY: the address is that of the function of this name, whose type was promised to be `F`.
        unsafe { core::mem::transmute_copy::<usize, F>(&at) }
    }
}

/// A function that is looked up by its name.
pub trait Find: Sync {
    /// Looks up the function. If an older C library lacks it, it stays unknown: no program that runs there calls it.
    fn find(&self);

    /// Returns the name that is looked up, and whether it has been found.
    #[cfg(test)]
    fn found(&self) -> (&'static CStr, bool);
}

impl<F: Copy> Find for Real<F> {
    fn find(&self) {
        self.at.store(find_next(self.name).unwrap_or(0), Relaxed);
    }

    #[cfg(test)]
    fn found(&self) -> (&'static CStr, bool) {
        (self.name, self.get().is_some())
    }
}

/// Returns a string that ends with a zero as the name of a function.
pub const fn c_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with its only zero"),
    }
}

/// Looks up the functions.
pub fn find(functions: &[&dyn Find]) {
    for function in functions {
        function.find();
    }
}
