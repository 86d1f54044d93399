//! Calls in which a thread can be cancelled, as in the C library.
//!
//! The C library makes a thread's cancellation *asynchronous* around each call that may block: the signal sent by
//! `pthread_cancel` ends the thread at once, and the unwinder walks up its stack and runs the cleanup code. Our
//! wrappers do the same. The unwinder passes through frames of ours, and ends the process if it finds one marked as
//! not unwindable. Therefore the call is made by a routine that the compiler cannot see into and must assume to
//! unwind, and asynchronous cancellation is enabled only in frames that have nothing to clean up.
//!
//! The instruction at the gate belongs to no library, and the unwinder would take it for the end of the stack: the
//! thread would end without running the destructors of its C++ frames, and still holding the lock of a stream that it
//! was reading. So we register that page with the unwinder, but only when the first thread is cancelled: a registered
//! page slows every look-up in older unwinders, and most programs cancel nothing.

use super::{gate, is_on};
use crate::{arch, first_thread};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::*};

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// Makes a system call at the gate, during which the thread can be cancelled. Returns the kernel's answer. Nothing in
/// this function has a destructor, so it can be left at any instruction.
///
/// # Safety
/// The conditions are those of the system call.
#[inline(never)]
pub unsafe extern "C-unwind" fn call(number: i64, args: &[usize; 6]) -> isize {
    let (mut before, mut now) = (DEFERRED, 0);
    // SAFETY: the results are written to variables that live here. No frame of ours holds anything that must not be
    // abandoned: the callers' ranges are released by their destructors or later.
    unsafe {
        pthread_setcanceltype(ASYNCHRONOUS, &mut before);
        let answer = gate::call(number, args);
        pthread_setcanceltype(before, &mut now);
        answer
    }
}

/// Defers cancellation in the calling thread, and returns its previous kind for [`put_back`]. A handler of ours that
/// interrupts a call of the C library must not be left at an arbitrary instruction.
pub fn put_off() -> c_int {
    let mut before = DEFERRED;
    // SAFETY: the result is written to a variable that lives here.
    unsafe { pthread_setcanceltype(DEFERRED, &mut before) };
    before
}

/// Returns whether a thread of this kind can be cancelled at any instruction.
pub fn is_asynchronous(kind: c_int) -> bool {
    kind == ASYNCHRONOUS
}

/// Restores the previous kind of cancellation. A thread that was cancelled meanwhile may end here.
pub fn put_back(before: c_int) {
    if is_asynchronous(before) {
        let mut now = 0;
        // SAFETY: as above.
        unsafe { pthread_setcanceltype(before, &mut now) };
    }
}

exports! {
    real CANCEL: unsafe extern "C" fn(libc::pthread_t) -> c_int = c"pthread_cancel";

    [tgkill: Numbers]
    unsafe extern "C" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
        first_thread::before_end(thread);
        if is_on() {
            describe_gate();
        }
        match CANCEL.get() {
            // SAFETY: the caller guarantees this.
            Some(real) => unsafe { real(thread) },
            None => libc::ENOSYS,
        }
    }
}

/// The unwinder's description of the gate: one frame description for the whole page, in the form of `.eh_frame`,
/// followed by room for the unwinder's own record.
#[repr(C, align(8))]
struct Frames {
    /// The part that frames share.
    common: [u8; 24],
    own: u32,
    to_common: u32,
    start: usize,
    len: usize,
    /// No augmentation and no instructions.
    rest: [u8; 8],
    end: u32,
    room: [usize; 16],
}

struct Description(UnsafeCell<Frames>);

// SAFETY: only the unwinder uses it, under its own lock.
unsafe impl Sync for Description {}

static GATE: Description = Description(UnsafeCell::new(Frames {
    common: arch::gate::FRAME,
    own: 28,
    to_common: 28,
    start: gate::START,
    len: gate::LEN,
    rest: [0; 8],
    end: 0,
    room: [0; 16],
}));

/// Registers the gate, once, with the unwinder that the C library uses to cancel threads.
fn describe_gate() {
    type Register = unsafe extern "C" fn(*const c_void, *mut c_void);
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, AcqRel) {
        return;
    }
    // SAFETY: the name is a C string. The C library loads the same one for `pthread_cancel`, and keeps it.
    let unwinder = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
    if unwinder.is_null() {
        return;
    }
    // SAFETY: the name is a C string, the handle valid.
    let register = unsafe { libc::dlsym(unwinder, c"__register_frame_info".as_ptr()) };
    if register.is_null() {
        return;
    }
    // SAFETY: libgcc's function of this name has this type.
    let register = unsafe { core::mem::transmute::<*mut c_void, Register>(register) };
    let frames = GATE.0.get();
    // SAFETY: the description is valid and stays; the room is longer than any version's record.
    unsafe { register(frames.cast(), (&raw mut (*frames).room).cast()) };
}
