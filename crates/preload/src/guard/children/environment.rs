//! The environment, where the C library passes it to a child that it creates itself.
//!
//! `system` passes on the variable `environ`, and no caller has a say in it. The list lies in the space after the
//! program's first `setenv`, or if the program has made its own. The child no longer has a handler and would be
//! killed because of the list's address. So we set the variable to a copy of the list, as `setenv` does when the list
//! has to grow. The strings stay where they are and are held: the kernel reads them, and no filter sees their
//! addresses.
//!
//! If the program then changes its environment, the C library builds a new list from the copy. So a process may make
//! many copies in its life. A copy is freed several copies later, when no thread can still be in a call that it
//! started with it.

use crate::guard::holds::Holds;
use crate::space;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// The number of copies that are kept.
const KEPT: usize = 16;

type Text = *const c_char;
type Copy = Vec<Text>;

static COPIES: [AtomicPtr<Copy>; KEPT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; KEPT];
static NEXT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static mut environ: *const Text;
}

/// Returns the environment's list.
pub fn list() -> *const Text {
    // SAFETY: the C library's variable is a pointer, read as by any function that uses the environment.
    unsafe { (&raw const environ).read() }
}

/// Returns the value of a variable.
///
/// # Safety
/// Nobody changes the environment while the value is in use.
pub unsafe fn variable<'a>(name: &[u8]) -> Option<&'a [u8]> {
    let mut at = list();
    while !at.is_null() {
        // SAFETY: the list ends with a null, as the C library itself relies on.
        let text = unsafe { at.read() };
        if text.is_null() {
            return None;
        }
        // SAFETY: each entry is a C string.
        let text = unsafe { CStr::from_ptr(text) }.to_bytes();
        if let Some(value) = text
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(b"="))
        {
            return Some(value);
        }
        at = at.wrapping_add(1);
    }
    None
}

/// Holds the whole environment, for a child that reads it.
pub fn hold(holds: &mut Holds) {
    holds.texts(list());
}

/// Replaces the environment's list by one outside the space, and holds its strings.
pub fn settle(holds: &mut Holds) {
    let present = list();
    if space::contains(present as usize) {
        // SAFETY: the list ends with a null, as the C library itself relies on.
        let copy = Box::into_raw(Box::new(unsafe { copied(present) }));
        // SAFETY: the copy was just made. The C library's own functions change the variable in the same way.
        unsafe { (&raw mut environ).write((*copy).as_ptr()) };
        let place = &COPIES[NEXT.fetch_add(1, Relaxed) % KEPT];
        let old = place.swap(copy, AcqRel);
        if !old.is_null() {
            // SAFETY: the pointer came from a box, and is stored nowhere else now.
            let old = unsafe { Box::from_raw(old) };
            if old.as_ptr() == list() {
                // The program has set the variable back to a former value.
                Box::leak(old);
            }
        }
    }
    hold(holds);
}

/// Returns a copy of a list of strings, including the null at its end.
///
/// # Safety
/// The list ends with a null.
pub unsafe fn copied(list: *const Text) -> Copy {
    let mut copy = Vec::new();
    let mut at = list;
    loop {
        // SAFETY: the caller promises that the list continues up to a null.
        let text = unsafe { at.read() };
        copy.push(text);
        if text.is_null() {
            return copy;
        }
        at = at.wrapping_add(1);
    }
}
