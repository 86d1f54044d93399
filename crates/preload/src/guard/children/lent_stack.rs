//! Stacks for children that share this memory (`clone` with `CLONE_VM`) and were given a stack in the space.
//!
//! The kernel removes the alternate stack of such a child, unless it is a `vfork`'s: an absent page of its stack
//! could not be brought in, since the signal itself needs the stack. So the child runs on a stack mapped by the
//! kernel. Nobody says how long the program's own stack is; ours has the default maximum length of a stack, and costs
//! only what is touched. It is reused when its child is gone.

use crate::guard::is_on;
use crate::{raw, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

/// The maximum number of stacks that are reused.
const MOST: usize = 64;
const LENGTH: usize = 8 << 20;

const FREE: i32 = 0;
const TAKEN: i32 = -1;

struct Place {
    /// The child that has the stack, [`FREE`] or [`TAKEN`].
    child: AtomicI32,
    base: AtomicUsize,
}

static PLACES: [Place; MOST] = [const {
    Place {
        child: AtomicI32::new(FREE),
        base: AtomicUsize::new(0),
    }
}; MOST];

/// A stack to be lent to a child.
pub struct Lent {
    place: Option<&'static Place>,
    base: usize,
}

impl Lent {
    /// Returns the end of the stack, from which it grows down.
    pub fn top(&self) -> *mut c_void {
        (self.base + LENGTH) as *mut c_void
    }

    /// Records which child has the stack, or that none was created.
    pub fn keep(self, child: c_int) {
        if let Some(place) = self.place {
            place.child.store(child.max(FREE), Release);
        }
    }
}

/// Returns whether a child with these flags uses this memory while its parent continues.
pub fn is_apart(flags: c_int) -> bool {
    flags & libc::CLONE_VM != 0 && flags & libc::CLONE_VFORK == 0
}

/// Returns a stack for a child with these flags, if it needs one other than that which ends at `top`.
pub fn in_place_of(top: *mut c_void, flags: c_int) -> Option<Lent> {
    if !is_on() || !is_apart(flags) || !space::contains((top as usize).wrapping_sub(1)) {
        return None;
    }
    let place = PLACES.iter().find(|place| place.take());
    let kept = place.map_or(0, |place| place.base.load(Acquire));
    let base = match kept {
        0 => raw::map_anonymous(LENGTH).ok(),
        kept => Some(kept),
    };
    if let Some(place) = place {
        place.base.store(base.unwrap_or(0), Release);
        if base.is_none() {
            place.child.store(FREE, Release);
        }
    }
    base.map(|base| Lent { place, base })
}

impl Place {
    /// Takes the place if it is free or its child is gone.
    fn take(&self) -> bool {
        let child = self.child.load(Acquire);
        let is_free = child == FREE || child > FREE && is_gone(child);
        is_free
            && self
                .child
                .compare_exchange(child, TAKEN, AcqRel, Relaxed)
                .is_ok()
    }
}

/// Returns whether no process and no thread has this ID.
fn is_gone(child: i32) -> bool {
    // SAFETY: signal 0 is not delivered to anybody.
    let answer = unsafe { raw::syscall(libc::SYS_tkill, [child as usize, 0, 0, 0, 0, 0]) };
    answer == Err(rustix::io::Errno::SRCH)
}
