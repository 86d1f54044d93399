//! Shrinkers: caches of the program that shrink under pressure.

use crate::group::{Group, group_or_root};
use crate::pond::{Pond, manager, place};
use crate::status::{Failure, answer};
use millpond::ShrinkerGuard;
use std::ffi::{c_int, c_void};

/// The type behind `millpond_shrinker`.
pub struct Shrinker {
    _guard: ShrinkerGuard,
}

type Count = unsafe extern "C" fn(context: *mut c_void) -> usize;
type Scan = unsafe extern "C" fn(context: *mut c_void, objects: usize) -> usize;

/// The program's pointer, passed back to it on the pond's thread.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the pointer is only passed on, to functions that by contract another thread may call.
unsafe impl Send for Context {}

impl Context {
    /// Returns the pointer. A closure that calls this function captures all of `self` instead of the bare pointer.
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// # Safety
/// Each pointer is null or as the header requires; the functions may be called with `context` until the shrinker is
/// freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_shrinker_new(
    pond: *const Pond,
    group: *const Group,
    count: Option<Count>,
    scan: Option<Scan>,
    context: *mut c_void,
    shrinker: *mut *mut Shrinker,
) -> c_int {
    let register = || {
        // SAFETY: the caller's contract.
        let (manager, place) = unsafe { (manager(pond)?, place(shrinker, "shrinker")?) };
        // SAFETY: the caller's contract.
        let group = unsafe { group_or_root(manager, group)? };
        let (Some(count), Some(scan)) = (count, scan) else {
            return Err(Failure::invalid("null was passed for `count` or `scan`"));
        };
        let context = Context(context);
        let guard = manager.register_shrinker(
            &group,
            // SAFETY: the caller's contract.
            move || unsafe { count(context.get()) },
            // SAFETY: the caller's contract.
            move |objects| unsafe { scan(context.get(), objects) },
        )?;
        *place = Box::into_raw(Box::new(Shrinker { _guard: guard }));
        Ok(())
    };
    answer(register())
}

/// # Safety
/// As [`millpond_shrinker_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_shrinker_free(shrinker: *mut Shrinker) {
    if !shrinker.is_null() {
        // SAFETY: `millpond_shrinker_new` made the shrinker, and it is no longer used.
        drop(unsafe { Box::from_raw(shrinker) });
    }
}
