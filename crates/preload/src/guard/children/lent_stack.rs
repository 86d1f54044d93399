//! Stacks for children that share this memory (`clone` with `CLONE_VM`) and were given a stack in the space.
//!
//! The kernel takes the alternate stack away from such a child, unless it is a `vfork`'s: a page of its stack that is
//! out could not be brought in, since the signal itself needs the stack. So it runs on a stack that is the kernel's.
//! How long the program's own is, nobody says; this one is as long as a stack may be by default, and costs what is
//! touched of it. It is used again when its child is gone.

use crate::guard::is_on;
use crate::{raw, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};

/// The most stacks that are used again.
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

/// A stack that a child is about to get.
pub struct Lent {
    place: Option<&'static Place>,
    base: usize,
}

impl Lent {
    /// The end of the stack, where it begins to grow.
    pub fn top(&self) -> *mut c_void {
        (self.base + LENGTH) as *mut c_void
    }

    /// Notes which child has the stack, or that none was made.
    pub fn keep(self, child: c_int) {
        if let Some(place) = self.place {
            place.child.store(child.max(FREE), Release);
        }
    }
}

/// Whether a child with these flags uses this memory while its parent goes on.
pub fn is_apart(flags: c_int) -> bool {
    flags & libc::CLONE_VM != 0 && flags & libc::CLONE_VFORK == 0
}

/// A stack for a child with these flags, if it needs another than the one that ends at `top`.
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
    /// Takes the place if it is free, or if its child is gone.
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

/// Whether no process and no thread has this number.
fn is_gone(child: i32) -> bool {
    // SAFETY: a signal of the number 0 is sent to nobody.
    let answer = unsafe { raw::syscall(libc::SYS_tkill, [child as usize, 0, 0, 0, 0, 0]) };
    answer == Err(rustix::io::Errno::SRCH)
}
