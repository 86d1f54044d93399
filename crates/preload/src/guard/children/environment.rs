//! The environment, where the C library hands it to a child of its own making.
//!
//! `system` passes the variable `environ` on, and no caller has a say. The list lies in the space after the program's
//! first `setenv`, or where it has made its own. The child, which has no handler left, would be killed for the list's
//! address. So the variable is set to a copy of the list, as `setenv` does when the list has to grow. The texts stay
//! where they are and are held: the kernel reads them, and no filter sees their addresses.
//!
//! A program that goes on to change its environment lets the C library make the list anew, from the copy. So there may
//! be many copies in the life of a process. A copy is freed some copies later, when no thread can still be in a call
//! that it began with it.

use crate::guard::holds::Holds;
use crate::space;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// The copies that are kept.
const KEPT: usize = 16;

type Text = *const c_char;
type Copy = Vec<Text>;

static COPIES: [AtomicPtr<Copy>; KEPT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; KEPT];
static NEXT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static mut environ: *const Text;
}

/// The environment's list.
pub fn list() -> *const Text {
    // SAFETY: the C library's variable is a pointer, read as by any function that uses the environment.
    unsafe { (&raw const environ).read() }
}

/// The value of a variable.
///
/// # Safety
/// Nobody changes the environment while the value is used.
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

/// Holds all of the environment, for a child that reads it.
pub fn hold(holds: &mut Holds) {
    holds.texts(list());
}

/// Makes the environment's list one that does not lie in the space, and holds its texts.
pub fn settle(holds: &mut Holds) {
    let present = list();
    if space::contains(present as usize) {
        // SAFETY: the list ends with a null, as the C library itself relies on.
        let copy = Box::into_raw(Box::new(unsafe { copied(present) }));
        // SAFETY: the copy was made just now. The C library's own functions change the variable in the same way.
        unsafe { (&raw mut environ).write((*copy).as_ptr()) };
        let place = &COPIES[NEXT.fetch_add(1, Relaxed) % KEPT];
        let old = place.swap(copy, AcqRel);
        if !old.is_null() {
            // SAFETY: the pointer came out of a box, and is nowhere else now.
            let old = unsafe { Box::from_raw(old) };
            if old.as_ptr() == list() {
                // The program has set the variable back to a former value.
                Box::leak(old);
            }
        }
    }
    hold(holds);
}

/// A copy of a list of texts, with the null at its end.
///
/// # Safety
/// The list ends with a null.
pub unsafe fn copied(list: *const Text) -> Copy {
    let mut copy = Vec::new();
    let mut at = list;
    loop {
        // SAFETY: the caller promises that the list goes on up to a null.
        let text = unsafe { at.read() };
        copy.push(text);
        if text.is_null() {
            return copy;
        }
        at = at.wrapping_add(1);
    }
}
