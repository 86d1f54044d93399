//! The start of a program thread: its alternate stack, and its mask as the program sees it.
//!
//! A thread starts in a function of ours. If it ends by `pthread_exit` or is cancelled, it is unwound through that
//! function, which therefore keeps nothing that would have to be given back.
//!
//! It takes no lock before the program's code runs. A fork holds our locks during the system call, in which the
//! kernel may wait for that very thread, for instance one that reads the program's own userfaultfd and is notified of
//! forks. So a new thread abandons the memory that it was handed, and the next thread to create one frees it.

use super::given::{self, Attributes, Given, Unwound};
use super::{alternate, masks, thread};
use crate::first_thread;
use crate::stack_switch::on_safe_stack;
use crate::threads::{PthreadCreate, Start};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// The values that a new thread needs to start, passed in unmanaged memory.
struct Beginning {
    start: Start,
    argument: *mut c_void,
    masked: u64,
    given: Option<Given>,
}

const _: () = assert!(!core::mem::needs_drop::<Beginning>());

/// A block with a beginning. A thread that has started has taken the contents, and the block is in a list.
struct Block {
    beginning: Beginning,
    next: *mut Block,
}

/// The blocks that threads have abandoned. Threads insert blocks one by one and remove them all at once, so no block
/// can reappear between a load and an exchange.
static LEFT: AtomicPtr<Block> = AtomicPtr::new(core::ptr::null_mut());

/// Takes the contents of a block, and abandons the block.
///
/// # Safety
/// The block was made by `Box::into_raw`, and belongs to the caller.
unsafe fn take(block: *mut Block) -> Beginning {
    // SAFETY: the block is the caller's, and nobody takes its contents again; they have nothing to drop.
    let beginning = unsafe { (&raw const (*block).beginning).read() };
    let mut head = LEFT.load(Relaxed);
    loop {
        // SAFETY: the block is the caller's until it is in the list.
        unsafe { (*block).next = head };
        match LEFT.compare_exchange_weak(head, block, Release, Relaxed) {
            Ok(_) => return beginning,
            Err(other) => head = other,
        }
    }
}

/// Frees abandoned blocks. The caller may take locks.
fn give_back() {
    let mut block = LEFT.swap(core::ptr::null_mut(), Acquire);
    while !block.is_null() {
        // SAFETY: whoever takes the list has all blocks in it, which were made by `Box::into_raw`.
        block = unsafe { Box::from_raw(block) }.next;
    }
}

extern "C-unwind" fn begin(beginning: *mut c_void) -> *mut c_void {
    alternate::begin_thread();
    let Beginning {
        start,
        argument,
        masked,
        given,
        // SAFETY: the creating thread gave the block away.
    } = unsafe { take(beginning.cast()) };
    masks::begin_thread(masked);
    // SAFETY: the types differ only in whether the function may unwind, which makes no difference to a caller.
    let start = unsafe { core::mem::transmute::<Start, Unwound>(start) };
    let result = match given {
        Some(given) => given::run(given, start, argument),
        None => start(argument),
    };
    first_thread::thread_ends();
    result
}

/// Creates a program thread with `real`.
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
    let block = on_safe_stack(move || {
        give_back();
        let beginning = Beginning {
            start,
            argument,
            masked,
            given,
        };
        Box::into_raw(Box::new(Block {
            beginning,
            next: core::ptr::null_mut(),
        })) as usize
    });
    // SAFETY: the types differ only in whether the function may unwind, which makes no difference to a caller.
    let begin = unsafe { core::mem::transmute::<Unwound, Start>(begin) };
    // SAFETY: the caller guarantees this; the box belongs to the new thread.
    let result = unsafe { real(thread, attributes, begin, block as *mut c_void) };
    if result != 0 {
        on_safe_stack(move || {
            // SAFETY: no thread was created that could have taken the block.
            drop(unsafe { Box::from_raw(block as *mut Block) });
        });
    }
    result
}
