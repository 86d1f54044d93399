//! The attributes of a new thread, where they would make the C library pass memory of the space to the kernel, or where
//! they leave too little stack.
//!
//! *Memory of the space.* A new thread starts with all signals blocked. Its creator sets the affinity in that state,
//! from a set in the program's heap. And a thread whose stack lies in the space registers lists at the stack's top
//! with the kernel. The filter stops either call, and a blocked SIGSYS kills. So we pass the affinity in other
//! memory, and such a thread gets a stack from the C library instead, of the same length: its frames are where the
//! kernel reads them, and a program that asks where its stack lies gets the truth.
//!
//! *Little stack.* A program may give its threads as little as 16 KiB, of which its own frames and the C library's need
//! almost nothing. A function of ours that evicts something needs more than that: such a program ended by SIGSEGV in
//! `free`. So the C library is asked for more than the program asked for. A stack of the program's own stays as it is.

use super::apart::Apart;
use crate::guard::{has_signals, signals};
use crate::space;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use libc::{cpu_set_t, pthread_attr_t};

const WORDS: usize = size_of::<pthread_attr_t>() / size_of::<usize>();
/// Bytes of a set of processors.
const SET: usize = 8192 / 8;

/// A stack of fewer bytes than this gets as many more as our functions need.
const SMALL: usize = 256 << 10;
const ROOM: usize = 64 << 10;

/// A new thread's attributes as they are passed on.
pub struct Fit {
    at: *const pthread_attr_t,
    copy: Option<Box<pthread_attr_t>>,
}

impl Fit {
    pub fn get(&self) -> *const pthread_attr_t {
        self.at
    }
}

impl Drop for Fit {
    fn drop(&mut self) {
        if let Some(copy) = &mut self.copy {
            // SAFETY: the copy is valid, and it owns what it has allocated.
            unsafe { libc::pthread_attr_destroy(copy.as_mut()) };
        }
    }
}

/// Returns the attributes, or a copy if they name memory of the space or a small stack.
///
/// # Safety
/// The attributes are null or valid.
pub unsafe fn fit(at: *const pthread_attr_t) -> Fit {
    let as_they_are = Fit { at, copy: None };
    if at.is_null() {
        return as_they_are;
    }
    // SAFETY: the caller promises attributes, which are at least that long and aligned for words.
    let words = unsafe { at.cast::<[usize; WORDS]>().read() };
    // A dormant process may engage while the C library reads them with all signals blocked.
    let is_named = has_signals() && words.iter().any(|&word| space::contains(word));
    // SAFETY: the caller promises valid attributes.
    if !is_named && !unsafe { stack_of(at) }.is_small() {
        return as_they_are;
    }
    // SAFETY: the caller promises valid attributes.
    match unsafe { copy(at) } {
        None => as_they_are,
        Some(mut copy) => {
            // SAFETY: the copy is valid.
            unsafe { widen(&mut copy) };
            Fit {
                at: core::ptr::from_ref(copy.as_ref()),
                copy: Some(copy),
            }
        }
    }
}

/// The stack that attributes describe.
#[derive(Clone, Copy)]
enum Stack {
    /// The C library makes one of this length.
    Made(usize),
    /// The program has one.
    Given(*mut c_void, usize),
    Unknown,
}

impl Stack {
    fn is_small(self) -> bool {
        matches!(self, Self::Made(len) if len < SMALL)
    }
}

/// # Safety
/// The attributes are valid.
unsafe fn stack_of(at: *const pthread_attr_t) -> Stack {
    let (mut start, mut len) = (core::ptr::null_mut::<c_void>(), 0);
    // SAFETY: the caller promises valid attributes, and the results are variables that live here.
    unsafe {
        // If the program has set no stack, the end is address 0.
        let is_given = libc::pthread_attr_getstack(at, &mut start, &mut len) == 0
            && !start.is_null()
            && (start as usize)
                .checked_add(len)
                .is_some_and(|end| end > len);
        match is_given {
            true => Stack::Given(start, len),
            false if libc::pthread_attr_getstacksize(at, &mut len) == 0 => Stack::Made(len),
            false => Stack::Unknown,
        }
    }
}

/// Makes a small stack larger.
///
/// # Safety
/// The attributes are valid.
unsafe fn widen(to: &mut pthread_attr_t) {
    // SAFETY: the caller promises valid attributes.
    let stack = unsafe { stack_of(to) };
    if let Stack::Made(len) = stack
        && stack.is_small()
    {
        // SAFETY: the same.
        unsafe { libc::pthread_attr_setstacksize(to, len + ROOM) };
    }
}

/// Returns a copy of attributes that names no memory of the space, or `None` if there is nothing to copy or no memory
/// for the copy.
///
/// # Safety
/// The attributes are null or valid.
pub unsafe fn copy(at: *const pthread_attr_t) -> Option<Box<pthread_attr_t>> {
    if at.is_null() {
        return None;
    }
    // A thread that cannot bring it in reads the memory that the copy allocates.
    let _apart = Apart::begin();
    let mut copy = Box::new(MaybeUninit::<pthread_attr_t>::uninit());
    // SAFETY: the C library makes the copy valid; the caller promises that the original is.
    unsafe {
        if libc::pthread_attr_init(copy.as_mut_ptr()) != 0 {
            return None;
        }
        let mut copy = copy.assume_init();
        carry_over(at, &mut copy);
        Some(copy)
    }
}

unsafe extern "C" {
    fn pthread_attr_getscope(at: *const pthread_attr_t, scope: *mut c_int) -> c_int;
    fn pthread_attr_setscope(at: *mut pthread_attr_t, scope: c_int) -> c_int;
    fn pthread_attr_getdetachstate(at: *const pthread_attr_t, state: *mut c_int) -> c_int;
}

/// Copies everything set in other attributes. If a value cannot be read, the C library's own remains.
///
/// # Safety
/// Both are valid.
unsafe fn carry_over(from: *const pthread_attr_t, to: &mut pthread_attr_t) {
    let (mut number, mut len) = (0, 0usize);
    // SAFETY: the caller promises valid attributes, and all results are variables that live here.
    unsafe {
        if pthread_attr_getdetachstate(from, &mut number) == 0 {
            libc::pthread_attr_setdetachstate(to, number);
        }
        if pthread_attr_getscope(from, &mut number) == 0 {
            pthread_attr_setscope(to, number);
        }
        if libc::pthread_attr_getguardsize(from, &mut len) == 0 {
            libc::pthread_attr_setguardsize(to, len);
        }
        if libc::pthread_attr_getschedpolicy(from, &mut number) == 0 {
            libc::pthread_attr_setschedpolicy(to, number);
        }
        let mut param: libc::sched_param = core::mem::zeroed();
        if libc::pthread_attr_getschedparam(from, &mut param) == 0 {
            libc::pthread_attr_setschedparam(to, &param);
        }
        if libc::pthread_attr_getinheritsched(from, &mut number) == 0 {
            libc::pthread_attr_setinheritsched(to, number);
        }
        match stack_of(from) {
            Stack::Given(start, len) if !space::contains(start as usize) => {
                libc::pthread_attr_setstack(to, start, len);
            }
            Stack::Given(_, len) | Stack::Made(len) => {
                libc::pthread_attr_setstacksize(to, len);
            }
            Stack::Unknown => {}
        }
        carry_sets_over(from, to);
    }
}

/// Copies the affinity and the signal mask, if any.
unsafe fn carry_sets_over(from: *const pthread_attr_t, to: &mut pthread_attr_t) {
    let mut set = [0u8; SET];
    // SAFETY: the caller promises valid attributes; the set has the stated length.
    unsafe {
        let at = set.as_mut_ptr().cast::<cpu_set_t>();
        let is_known = libc::pthread_attr_getaffinity_np(from, SET, at) == 0;
        // Without an affinity the set contains all processors.
        if is_known && set.iter().any(|&byte| byte != 0xff) {
            libc::pthread_attr_setaffinity_np(to, SET, set.as_ptr().cast());
        }
        signals::copy_mask(from, to);
    }
}
