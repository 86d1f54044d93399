//! The C library's functions behind those that this library replaces.
//!
//! They are looked up before any code of the program can call them, because the look-up may allocate and take locks. A
//! function that is called even earlier (by a `.preinit_array`, by this library's own standard library) finds none, and
//! makes its system call by itself.

use crate::dlopen::find_next;
use core::ffi::CStr;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A function of the type `F`, a pointer to a function.
pub struct Real<F> {
    name: &'static CStr,
    at: AtomicUsize,
    function: PhantomData<F>,
}

// SAFETY: the value holds an address and no function.
unsafe impl<F> Sync for Real<F> {}

impl<F: Copy> Real<F> {
    /// The function of this name, which must be of the type `F`.
    ///
    /// # Safety
    /// `F` is a pointer to a function of the type that the C library's function of this name has.
    pub const unsafe fn named(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<usize>());
        Self {
            name,
            at: AtomicUsize::new(0),
            function: PhantomData,
        }
    }

    /// The function, if it has been looked up and is there.
    #[inline]
    pub fn get(&self) -> Option<F> {
        match self.at.load(Relaxed) {
            0 => None,
            // SAFETY: the address is that of the function of this name, whose type was promised to be `F`.
            at => Some(unsafe { core::mem::transmute_copy::<usize, F>(&at) }),
        }
    }
}

/// A function that is looked up by its name.
pub trait Find: Sync {
    /// Looks the function up. The answer is whether it is there.
    fn find(&self) -> bool;
}

impl<F: Copy> Find for Real<F> {
    fn find(&self) -> bool {
        let found = find_next(self.name);
        self.at.store(found.unwrap_or(0), Relaxed);
        found.is_some()
    }
}

/// Looks functions up. Those that this C library does not have stay away.
pub fn find(functions: &[&dyn Find]) {
    for function in functions {
        function.find();
    }
}
