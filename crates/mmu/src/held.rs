//! Held memory: ranges that stay in memory while the kernel works on them.
//!
//! With in-thread delivery the kernel itself cannot touch a page that is out: a system call on it fails with EFAULT,
//! and a datagram that was to be copied there is lost. So the memory of such a call has to be brought in first, and
//! nobody may take it out before the call has returned. A pin of the core would do, but it takes the core's lock
//! twice for each call. A hold is a line in a lock-free table.
//!
//! *The protocol.* A caller publishes its range, waits until every thread that was taking pages out at that moment is
//! done, and then touches each page: absent pages come in by a fault. A thread that takes pages out announces itself
//! first, and then looks at the table. Each side writes one variable and reads the other's (sequentially consistent),
//! as with hazard pointers. So either the taker sees the hold and leaves the page, or the caller sees the taker,
//! waits, and finds by its touch that the page is missing. A page that was touched under a hold stays.
//!
//! *No allocation, no locks, safe in signal handlers.* The table is static. A signal handler that interrupts a call
//! and makes calls of its own takes other lines. A caller does not wait for its own thread, which it may have
//! interrupted.
//!
//! *Abandoned holds.* A call that is left by `longjmp` from a signal handler, or by the cancellation of its thread,
//! may never give its line back; nor does the child of a `vfork` that executes another program, whose lines are its
//! parent's. So a line records its thread and where in the stack its owner stood, and the thread's next call
//! ([`Held::first`]) releases the abandoned lines. The stack grows down, and a call that is still running stands
//! above the calls that its signal handlers make: a line as deep as the new call, or deeper, is abandoned. An
//! alternate stack may lie above or below the interrupted call, so depth says nothing there; what counts is which
//! stack each call is on. A handler on the alternate stack leaves the lines of the ordinary stack alone, and a call
//! on the ordinary stack knows that no handler is running on the alternate one. A thread that ends calls
//! [`Held::forget_thread`].
//!
//! There is one exception: a handler that switches to another stack and makes calls there, while the call that it
//! interrupted continues later. Then that call's line can be taken for an abandoned one. The call may fail with
//! EFAULT, but there is no further harm: a hold knows the turn of its line, and releases no other.

use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use millpond_core::PAGE_SIZE;

use crate::small_pages;
use crate::sys::gate;

/// The number of lines in the table. A line that was never used takes no memory, and nobody looks at it.
const MOST: usize = 1 << 16;
/// Each thread starts its search for a free line at one of the first `NEAR` lines, so a search for holds is short.
const NEAR: usize = 64;
/// The maximum number of threads that take pages out at the same time. Others wait for their turn.
const TAKERS: usize = 64;

/// A thread searches the whole table for its abandoned lines once in this many turns of a line. It meets most of them
/// earlier, because they lie where it starts its search for a free line.
const LOOK: usize = 64;
/// The frame of a line whose owner has not yet said where in the stack it stands.
const NOWHERE: usize = 0;

/// A line of the table. `end` is 0 while the line holds nothing.
#[repr(align(64))]
struct Line {
    owner: AtomicUsize,
    /// A different number for each owner of the line.
    turn: AtomicUsize,
    frame: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
}

static LINES: [Line; MOST] = [const {
    Line {
        owner: AtomicUsize::new(0),
        turn: AtomicUsize::new(0),
        frame: AtomicUsize::new(NOWHERE),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
    }
}; MOST];
/// The number of lines that hold something (too high where a call was abandoned between two steps), and the number of
/// lines ever used.
static HELD: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// The threads that take pages out: each is a thread pointer, whose lowest bits are 0, combined with a few bits of a
/// number that differs from turn to turn. Free entries are 0.
static TAKING: [AtomicUsize; TAKERS] = [const { AtomicUsize::new(0) }; TAKERS];
/// The lowest bits of a thread pointer, which are always 0.
const TURN: usize = 15;
static TAKING_NOW: AtomicUsize = AtomicUsize::new(0);
static TURNS: AtomicUsize = AtomicUsize::new(0);

/// Whether this process ever holds memory.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Makes threads that take pages out look for holds from now on. Call this before the first hold, while the process
/// has no memory that could be taken out.
pub fn look_for_holds() {
    IN_USE.store(true, SeqCst);
}

/// Returns how many bytes of writable memory the table takes that no line has ever used, and that no RAM is behind.
///
/// ```
/// assert!(millpond_mmu::unused_bytes_of_holds() > 1 << 20);
/// ```
#[must_use]
pub fn unused_bytes_of_holds() -> usize {
    let unused = MOST.saturating_sub(USED.load(SeqCst));
    (unused * size_of::<Line>()).saturating_sub(2 * PAGE_SIZE)
}

/// Keeps huge pages away from the table of lines, because few lines are ever used.
pub(crate) fn decline_huge_pages() {
    let lines = LINES.as_ptr_range();
    small_pages::decline_huge_pages(lines.start.addr()..lines.end.addr());
}

fn me() -> usize {
    // SAFETY: the call has no arguments and changes nothing; it reads the thread pointer.
    unsafe { libc::pthread_self() as usize }
}

/// A range that nobody takes out while this value lives. It belongs to the thread that made it.
#[derive(Debug)]
#[must_use = "the range is held while the value lives"]
pub struct Held {
    number: u16,
    turn: usize,
    /// Keeps the value in its thread.
    _thread: PhantomData<*const ()>,
}

impl Held {
    /// Holds the pages of `start..end`, the first range of a call whose frame is at `frame`, an address on the
    /// caller's stack. Absent pages are still absent: [`touch`](crate::touch) them next. Holds that earlier calls of
    /// this thread abandoned are released. Returns `None` when all lines of the table are taken.
    ///
    /// ```
    /// use millpond_mmu::Held;
    /// let bytes = [0u8; 64];
    /// let start = bytes.as_ptr() as usize;
    /// let held = Held::first(start, start + 64, &raw const bytes as usize).expect("a free line");
    /// drop(held);
    /// ```
    #[inline]
    pub fn first(start: usize, end: usize, frame: usize) -> Option<Self> {
        let me = me();
        let mut claimed = claim(me, near(me))?;
        if claimed.is_behind_own || claimed.turn.is_multiple_of(LOOK) {
            claimed = after_a_look(me, frame, claimed)?;
        }
        Some(hold(me, claimed, start, end, frame))
    }

    /// Holds one more range for the same call.
    pub fn further(&self, start: usize, end: usize) -> Option<Self> {
        let me = me();
        let own = usize::from(self.number);
        let frame = LINES[own].frame.load(Relaxed);
        let claimed = claim(me, own + 1)?;
        Some(hold(me, claimed, start, end, frame))
    }

    /// Extends this hold to cover one more range, and everything in between. A call uses this when it finds no free
    /// line: it may keep more in memory than it needs, but it does not fail.
    pub fn widen(&mut self, start: usize, end: usize) {
        let line = &LINES[usize::from(self.number)];
        line.start.fetch_min(start & !(PAGE_SIZE - 1), SeqCst);
        line.end.fetch_max(end, SeqCst);
        if TAKING_NOW.load(SeqCst) > 0 {
            wait_for_takers(me());
        }
    }

    /// Returns how many ranges all threads hold now.
    #[inline]
    #[must_use]
    pub fn count() -> usize {
        HELD.load(Relaxed)
    }

    /// Releases, for good, all holds of the calling thread, which is ending or has started as a new process.
    pub fn forget_thread() {
        forget(me(), |_| true);
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        let line = &LINES[usize::from(self.number)];
        // The line may have been released in between, and have another owner now.
        if line.owner.load(Relaxed) == me() && line.turn.load(Relaxed) == self.turn {
            line.give_back();
        }
    }
}

impl Line {
    fn give_back(&self) {
        if self.end.load(Relaxed) > 0 {
            self.end.store(0, Release);
            HELD.fetch_sub(1, Release);
        }
        self.frame.store(NOWHERE, Relaxed);
        self.owner.store(0, Release);
    }
}

/// A line that was free and now belongs to the caller.
struct Claimed {
    number: usize,
    turn: usize,
    /// Whether the thread met another line of its own on the way.
    is_behind_own: bool,
}

/// The number of the line at which a thread starts its search.
fn near(me: usize) -> usize {
    (me >> 12 ^ me >> 7) % NEAR
}

/// Takes a free line for the thread `me`, at `first` or after it.
#[inline]
fn claim(me: usize, first: usize) -> Option<Claimed> {
    let mut is_behind_own = false;
    for number in (0..MOST).map(|step| (first + step) % MOST) {
        let line = &LINES[number];
        let owner = line.owner.load(Relaxed);
        is_behind_own |= owner == me;
        if owner == 0 && line.owner.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
            if USED.load(Relaxed) <= number {
                USED.fetch_max(number + 1, SeqCst);
            }
            let turn = line.turn.load(Relaxed).wrapping_add(1);
            line.turn.store(turn, Relaxed);
            return Some(Claimed {
                number,
                turn,
                is_behind_own,
            });
        }
    }
    None
}

/// Publishes a range in a line, and waits for the threads that were taking pages out.
#[inline]
fn hold(me: usize, claimed: Claimed, start: usize, end: usize, frame: usize) -> Held {
    let line = &LINES[claimed.number];
    line.frame.store(frame, Relaxed);
    line.start.store(start & !(PAGE_SIZE - 1), Relaxed);
    // A call that is abandoned between these two steps leaves the count too high, which only costs time.
    HELD.fetch_add(1, SeqCst);
    line.end.store(end.max(1), SeqCst);
    if TAKING_NOW.load(SeqCst) > 0 {
        wait_for_takers(me);
    }
    Held {
        number: claimed.number as u16,
        turn: claimed.turn,
        _thread: PhantomData,
    }
}

/// Returns the alternate stack of the calling thread: an empty range if it has none.
#[cold]
fn alternate_stack() -> Range<usize> {
    // SAFETY: zeros are a valid `stack_t`.
    let mut stack: libc::stack_t = unsafe { core::mem::zeroed() };
    let args = [0, &raw mut stack as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a structure that lives here, and changes nothing.
    if unsafe { gate::syscall(libc::SYS_sigaltstack as usize, args) } != 0 {
        return 0..0;
    }
    let start = stack.ss_sp as usize;
    match stack.ss_flags & libc::SS_DISABLE {
        0 => start..start.saturating_add(stack.ss_size),
        _ => 0..0,
    }
}

/// Releases the lines that earlier calls of this thread abandoned, as seen by a call whose frame is at `frame`. The
/// call then takes the first of them instead of its own: if it is abandoned too, its line lies in the next call's
/// way.
#[cold]
fn after_a_look(me: usize, frame: usize, claimed: Claimed) -> Option<Claimed> {
    let alternate = alternate_stack();
    if forget(me, |at| is_left(at, frame, &alternate)) == 0 {
        return Some(claimed);
    }
    LINES[claimed.number].owner.store(0, Release);
    claim(me, near(me))
}

/// Whether the line of a call that stood at `at` is abandoned, as seen by a call of the same thread at `frame`.
fn is_left(at: usize, frame: usize, alternate: &Range<usize>) -> bool {
    if at == NOWHERE {
        return false;
    }
    match (alternate.contains(&at), alternate.contains(&frame)) {
        (true, false) => true,
        (false, true) => false,
        _ => at <= frame,
    }
}

/// Releases lines of the thread `me`, selected by where in the stack their owners stood. Returns how many.
fn forget(me: usize, is_left: impl Fn(usize) -> bool) -> usize {
    let used = LINES[..USED.load(SeqCst)].iter();
    let left =
        used.filter(|line| line.owner.load(Relaxed) == me && is_left(line.frame.load(Relaxed)));
    left.map(Line::give_back).count()
}

/// Waits until the threads that are taking pages out now are done.
#[cold]
fn wait_for_takers(me: usize) {
    for taker in &TAKING {
        let turn = taker.load(SeqCst);
        if turn == 0 || turn & !TURN == me & !TURN {
            continue;
        }
        let mut spins = 0u32;
        while taker.load(SeqCst) == turn {
            spins += 1;
            if spins.is_multiple_of(64) {
                rustix::thread::sched_yield();
            }
            core::hint::spin_loop();
        }
    }
}

/// The calling thread takes pages out while this value lives.
pub(crate) struct Taking(Option<&'static AtomicUsize>);

impl Taking {
    pub(crate) fn begin() -> Self {
        loop {
            if let Some(taking) = Self::try_begin() {
                return taking;
            }
            rustix::thread::sched_yield();
        }
    }

    /// [`begin`](Self::begin) for a thread that must not wait for its turn. Returns `None` when it would have to.
    pub(crate) fn try_begin() -> Option<Self> {
        if !IN_USE.load(Relaxed) {
            return Some(Self(None));
        }
        TAKING_NOW.fetch_add(1, SeqCst);
        let turn = me() & !TURN | TURNS.fetch_add(1, Relaxed) & TURN;
        for taker in &TAKING {
            let is_free = taker.load(Relaxed) == 0;
            if is_free && taker.compare_exchange(0, turn, SeqCst, Relaxed).is_ok() {
                return Some(Self(Some(taker)));
            }
        }
        TAKING_NOW.fetch_sub(1, SeqCst);
        None
    }

    /// Whether some page of the range is held.
    pub(crate) fn is_held(&self, start: usize, len: usize) -> bool {
        if self.0.is_none() || HELD.load(SeqCst) == 0 {
            return false;
        }
        let end = start + len;
        let used = USED.load(SeqCst);
        LINES[..used].iter().any(|line| {
            let until = line.end.load(SeqCst);
            until > start && line.start.load(SeqCst) < end
        })
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if let Some(taker) = self.0 {
            taker.store(0, SeqCst);
            TAKING_NOW.fetch_sub(1, SeqCst);
        }
    }
}

/// Forgets, in a new child, the holds and work of its parent's other threads.
pub(crate) fn forget_others_in_child() {
    let me = me();
    for line in &LINES[..USED.load(SeqCst)] {
        if line.owner.load(SeqCst) != me && line.end.load(SeqCst) > 0 {
            line.give_back();
        }
        if line.owner.load(SeqCst) != me {
            line.owner.store(0, SeqCst);
        }
    }
    let held = LINES[..USED.load(SeqCst)]
        .iter()
        .filter(|line| line.end.load(SeqCst) > 0)
        .count();
    HELD.store(held, SeqCst);
    TAKING.iter().for_each(|taker| taker.store(0, SeqCst));
    TAKING_NOW.store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Each of these tests has the table to itself, because where a thread finds its lines depends on the other
    /// owners.
    fn alone() -> MutexGuard<'static, ()> {
        static TABLE: Mutex<()> = Mutex::new(());
        TABLE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The starts of the ranges that this thread holds.
    fn own() -> Vec<usize> {
        let mine = |line: &&Line| line.owner.load(Relaxed) == me() && line.end.load(Relaxed) > 0;
        let lines = LINES.iter().filter(mine);
        lines.map(|line| line.start.load(Relaxed)).collect()
    }

    const HERE: usize = 0x7000_0000_0000;

    /// A handler stands below the call that it interrupts, and makes calls of its own.
    #[test]
    fn a_call_in_a_signal_handler_keeps_the_interrupted_calls_holds() {
        let _alone = alone();
        let outer = Held::first(0x1000, 0x2000, HERE).unwrap();
        let more = outer.further(0x5000, 0x6000).unwrap();
        let nested = Held::first(0x3000, 0x4000, HERE - 512).unwrap();
        let mut held = own();
        held.sort_unstable();
        assert_eq!(held, [0x1000, 0x3000, 0x5000]);
        drop(nested);
        assert_eq!(own().len(), 2);
        drop((more, outer));
        assert_eq!(own(), []);
    }

    /// Guards against calls that were refused, and threads that were stopped, once 4096 ranges were held.
    #[test]
    fn thousands_of_ranges_are_held_and_a_hold_can_be_widened() {
        let _alone = alone();
        let mut first = Held::first(0x9000, 0xa000, HERE).unwrap();
        let more: Vec<_> = (0..6000).map(|_| first.further(0x1000, 0x2000)).collect();
        assert!(more.iter().all(Option::is_some));
        first.widen(0x3000, 0x4000);
        first.widen(0xc000, 0xd000);
        let line = &LINES[usize::from(first.number)];
        let covered = (line.start.load(Relaxed), line.end.load(Relaxed));
        assert_eq!(covered, (0x3000, 0xd000));
        drop((more, first));
        assert_eq!(own(), []);
    }

    /// `longjmp` leaves the call without ending its hold. The next call stands at the same depth, or higher.
    #[test]
    fn a_call_releases_holds_abandoned_by_an_earlier_one() {
        let _alone = alone();
        for frame in [HERE, HERE + 64] {
            core::mem::forget(Held::first(0x1000, 0x2000, HERE).unwrap());
            core::mem::forget(Held::first(0x2000, 0x3000, HERE - 512).unwrap());
            let next = Held::first(0x3000, 0x4000, frame).unwrap();
            assert_eq!(own(), [0x3000]);
            drop(next);
        }
        assert_eq!(own(), []);
    }

    /// Holds of two ranges each are abandoned again and again, and are found each time.
    #[test]
    fn abandoned_holds_do_not_accumulate() {
        let _alone = alone();
        for _ in 0..1000 {
            let left = Held::first(0x1000, 0x2000, HERE).unwrap();
            core::mem::forget(left.further(0x5000, 0x6000));
            core::mem::forget(left);
            assert!(own().len() <= 2);
        }
        Held::forget_thread();
        assert_eq!(own(), []);
    }

    /// A hold that ends late does not release what another call holds by then.
    #[test]
    fn the_late_end_of_an_abandoned_hold_is_harmless() {
        let _alone = alone();
        let late = Held::first(0x1000, 0x2000, HERE - 512).unwrap();
        let next = Held::first(0x3000, 0x4000, HERE).unwrap();
        drop(late);
        assert_eq!(own(), [0x3000]);
        drop(next);
    }

    #[test]
    fn an_alternate_stack_is_distinguished_from_the_ordinary_one() {
        let _alone = alone();
        for alternate in [0x1000..0x9000, 0x7100_0000_0000..0x7100_0001_0000] {
            let there = alternate.start + 0x800;
            // A handler on the alternate stack has interrupted a call on the ordinary one.
            assert!(!is_left(HERE, there, &alternate));
            // A call on the ordinary stack is never below a handler on the other.
            assert!(is_left(there, HERE, &alternate));
            // Two calls on the alternate stack.
            assert!(is_left(there - 64, there, &alternate));
            assert!(!is_left(there + 64, there, &alternate));
        }
        assert!(!is_left(NOWHERE, HERE, &(0..0)));
        assert!(is_left(HERE, HERE, &(0..0)));
    }

    #[test]
    fn the_alternate_stack_of_a_thread_is_read_from_the_kernel() {
        let _alone = alone();
        // The standard library has given this thread one.
        let stack = alternate_stack();
        assert!(stack.is_empty() || stack.len() >= 4096);
    }
}
