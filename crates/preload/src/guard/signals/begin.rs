//! The beginning of a thread of the program's: its alternate stack, and its mask as the program sees it.
//!
//! A thread begins in a function of ours. It may end by `pthread_exit` or be cancelled, and is unwound through that
//! function then, which keeps nothing that would have to be given back.

use super::given::{self, Attributes, Given, Unwound};
use super::{alternate, masks, thread};
use crate::stack_switch::on_safe_stack;
use crate::threads::{PthreadCreate, Start};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

/// What a new thread needs to begin, handed over in unmanaged memory.
struct Beginning {
    start: Start,
    argument: *mut c_void,
    masked: u64,
    given: Option<Given>,
}

extern "C-unwind" fn begin(beginning: *mut c_void) -> *mut c_void {
    alternate::begin_thread();
    let at = beginning as usize;
    let beginning = on_safe_stack(move || {
        // SAFETY: the creating thread gave the box away.
        *unsafe { Box::from_raw(at as *mut Beginning) }
    });
    let Beginning {
        start,
        argument,
        masked,
        given,
    } = beginning;
    masks::begin_thread(masked);
    // SAFETY: the types differ in whether the function may be unwound, which costs a caller nothing.
    let start = unsafe { core::mem::transmute::<Start, Unwound>(start) };
    match given {
        Some(given) => given::run(given, start, argument),
        None => start(argument),
    }
}

/// Makes a thread of the program's by `real`.
///
/// # Safety
/// The conditions are those of `pthread_create`, whose address `real` is.
pub unsafe fn create(
    real: PthreadCreate,
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let masked = thread::this().masked.load(Relaxed);
    // SAFETY: the caller guarantees the attributes.
    let (given, own) = match unsafe { Given::of(attributes) } {
        // SAFETY: as above.
        Some(given) => match unsafe { Attributes::without_stack(attributes, given) } {
            Some(own) => (Some(given), Some(own)),
            None => return libc::EAGAIN,
        },
        None => (None, None),
    };
    let attributes = own.as_ref().map_or(attributes, Attributes::as_ptr);
    let beginning = on_safe_stack(move || {
        Box::into_raw(Box::new(Beginning {
            start,
            argument,
            masked,
            given,
        })) as usize
    });
    // SAFETY: the types differ in whether the function may be unwound, which costs a caller nothing.
    let begin = unsafe { core::mem::transmute::<Unwound, Start>(begin) };
    // SAFETY: the caller guarantees it; the box belongs to the new thread.
    let result = unsafe { real(thread, attributes, begin, beginning as *mut c_void) };
    if result != 0 {
        // SAFETY: no thread was made that could have taken the box.
        on_safe_stack(move || drop(unsafe { Box::from_raw(beginning as *mut Beginning) }));
    }
    result
}
