//! `madvise`: the program's advice about its memory is followed, passed on, or refused, but never faked.
//!
//! Advice that changes what the program reads (`MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE`, `MADV_WIPEONFORK` and so
//! on) must be followed or refused. On managed memory the kernel's own `MADV_DONTNEED` would drop only the mapped
//! pages; evicted ones would come back later. Hints may be accepted without any effect.
//!
//! The answer is Linux's, in Linux's order. Unknown advice, an unaligned address or a range that wraps is refused
//! before anything is done (all three by the kernel itself). Then the range is walked from its start, mapping by
//! mapping. A hole is remembered, the part after it is still handled, and the call ends with `ENOMEM`. Any other
//! error stops the walk, with everything before it done. Locked memory is such an error for all advice that takes
//! pages away.
//!
//! | advice | on managed memory |
//! | --- | --- |
//! | `DONTNEED` | discarded: zeros at the next touch |
//! | `FREE` | lazily freed: the old bytes or zeros at the next touch, and the frames are kept until there is pressure. Other threads may write meanwhile, so pages are captured and a touch brings them back. Without lazy purging (`MILLPOND_LAZY_PURGE=off`): discarded |
//! | `COLD`, `PAGEOUT` | passed to the manager, which supports both |
//! | `WILLNEED` | read in, up to a quarter of the budget: more would evict memory that the program is using, and finally the first part of the range itself. Linux reads asynchronously and the call returns at once; here the caller waits. Pages that were never touched are created as well, since they cannot be distinguished from evicted ones |
//! | `POPULATE_READ`, `POPULATE_WRITE` | passed to the kernel: it touches the pages, and we serve the faults |
//! | `DONTFORK`, `WIPEONFORK` and their opposites | recorded with the area, and carried out in the child by us ([`crate::fork`]) |
//! | `DONTDUMP`, `DODUMP` | passed to the kernel |
//! | `HUGEPAGE`, `NOHUGEPAGE` | accepted; passed to the kernel while it serves the process alone ([`crate::engage`]) |
//! | `MERGEABLE`, `UNMERGEABLE` | refused with `EINVAL`, as on a kernel without KSM ([`crate::ksm`]) |
//! | `GUARD_INSTALL`, `GUARD_REMOVE`, `COLLAPSE`, `REMOVE` | refused with `EINVAL`. That is the kernel's answer to `REMOVE` (there is no file), and the answer of kernels without the others, so callers have another way |
//!
//! Calls by `syscall` also lead here ([`crate::syscall`]). Calls by the program's own system call instruction bypass
//! us, here and in [`crate::process_madvise`]. Hints do no harm then, but such a `MADV_DONTNEED` on managed memory is
//! only half done: pages that were in memory read as zeros (`driver/src/spurious_fault.rs`), and evicted ones come
//! back unchanged. Go's runtime frees pages that way and expects them to be empty. `millpond run` makes it use
//! `MADV_FREE` instead (`GODEBUG=madvdontneed=0`), after which the contents that come back are correct.

use crate::vma::{self, AtFork, Kind, PAGE, Range, Vmas};
use crate::{engage, guard, raw, space};
use core::ffi::{c_int, c_void};
use rustix::io::Errno;

/// `WILLNEED` reads in at most the budget divided by this.
const WILLNEED_SHARE: u64 = 4;

/// How an advice on managed memory is treated.
#[derive(Clone, Copy)]
enum Treatment {
    /// The memory reads as zeros at the next touch.
    Discard,
    /// The memory reads as zeros at the next touch, even if it is locked.
    DiscardLocked,
    /// The memory reads as zeros or the old bytes at the next touch.
    Free,
    PageOut,
    Cold,
    /// The advice changes what the child of a fork gets.
    Fork(fn(&mut AtFork)),
    /// The advice is a hint, or describes what is already the case.
    Accept,
    /// The advice is about the kernel's mapping, and is passed to the kernel.
    Pass,
    /// Following the advice causes page faults, so it happens without our lock.
    Populate,
    /// The pages are faulted in, up to a share of the budget; a failure is ignored.
    WillNeed,
    Refuse,
}

fn treatment(advice: i32) -> Treatment {
    match advice {
        libc::MADV_DONTNEED => Treatment::Discard,
        libc::MADV_DONTNEED_LOCKED => Treatment::DiscardLocked,
        libc::MADV_FREE => Treatment::Free,
        libc::MADV_PAGEOUT => Treatment::PageOut,
        libc::MADV_COLD => Treatment::Cold,
        libc::MADV_DONTFORK => Treatment::Fork(|at_fork| at_fork.dont_copy = true),
        libc::MADV_DOFORK => Treatment::Fork(|at_fork| at_fork.dont_copy = false),
        libc::MADV_WIPEONFORK => Treatment::Fork(|at_fork| at_fork.wipe = true),
        libc::MADV_KEEPONFORK => Treatment::Fork(|at_fork| at_fork.wipe = false),
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE if engage::is_dormant() => Treatment::Pass,
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE => Treatment::Accept,
        libc::MADV_DONTDUMP | libc::MADV_DODUMP => Treatment::Pass,
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => Treatment::Populate,
        libc::MADV_WILLNEED => Treatment::WillNeed,
        _ => Treatment::Refuse,
    }
}

/// Returns whether the advice makes the old contents disappear, here or in a child. Sealed memory that cannot be
/// written to keeps its contents.
fn discards(advice: i32) -> bool {
    matches!(
        advice,
        libc::MADV_DONTNEED
            | libc::MADV_DONTNEED_LOCKED
            | libc::MADV_FREE
            | libc::MADV_DONTFORK
            | libc::MADV_WIPEONFORK
    )
}

impl Treatment {
    /// Returns whether Linux refuses the advice for locked memory.
    fn takes_away(self) -> bool {
        matches!(
            self,
            Self::Discard | Self::Free | Self::PageOut | Self::Cold
        )
    }
}

/// A part of the range.
struct Part {
    range: Range,
    /// The kind of a part of the space; `None` for a part outside it, which the kernel knows.
    kind: Option<Option<Kind>>,
}

/// Performs the system call `madvise`.
///
/// # Errors
/// The errors are those of the system call.
pub fn advise(addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    let end = len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| addr.checked_add(len));
    let bad = len == 0 || !addr.is_multiple_of(PAGE);
    let Some(end) = end.filter(|&end| !bad && space::overlaps(addr, end - addr)) else {
        // SAFETY: the range is not the space's, or the kernel refuses the call.
        return unsafe { raw::madvise(addr, len, advice) };
    };
    // SAFETY: the range has no bytes. The kernel says whether it knows the advice, and nothing else happens.
    unsafe { raw::madvise(addr, 0, advice) }?;
    match treatment(advice) {
        Treatment::Populate => populate(addr..end, advice),
        Treatment::WillNeed => will_need(addr..end),
        treatment => {
            vma::locked(move |vmas| vmas.advise(addr..end, advice, treatment)).unwrap_or(Ok(()))
        }
    }
}

/// Faults pages in through the kernel, part by part. Unlike other advice, this one stops at the first hole.
fn populate(range: Range, advice: i32) -> Result<(), Errno> {
    let Range { start: mut at, end } = range;
    while at < end {
        let Some(part) = vma::locked(move |vmas| vmas.first_part(at..end)) else {
            break;
        };
        if part.kind == Some(None) {
            return Err(Errno::NOMEM);
        }
        at = part.range.end;
        populate_part(part.range.start, part.range.len(), advice)?;
    }
    Ok(())
}

/// Populates a part, in pieces that are brought in first where the kernel cannot bring them in.
fn populate_part(start: usize, len: usize, advice: i32) -> Result<(), Errno> {
    let most = match guard::is_on() {
        true => guard::holds::allowed(),
        false => len,
    };
    let mut done = 0;
    while done < len {
        let piece = most.min(len - done);
        let mut holds = guard::holds::Holds::new();
        if guard::is_on() {
            holds.add(start + done, piece);
        }
        // SAFETY: populating changes no contents.
        unsafe { raw::madvise(start + done, piece, advice) }?;
        done += piece;
    }
    Ok(())
}

fn will_need(range: Range) -> Result<(), Errno> {
    let Range { start: mut at, end } = range;
    let ram = space::get().map_or(0, |space| space.stats().ram);
    let mut room = usize::try_from(ram / WILLNEED_SHARE).unwrap_or(usize::MAX) & !(PAGE - 1);
    let mut holes = Ok(());
    while at < end {
        let Some(part) = vma::locked(move |vmas| vmas.first_part(at..end)) else {
            break;
        };
        at = part.range.end;
        let (start, len) = (part.range.start, part.range.len());
        match part.kind {
            Some(None) => holes = Err(Errno::NOMEM),
            Some(Some(Kind::Managed { prot, opened, .. })) => {
                let len = len.min(room);
                if opened && prot & libc::PROT_READ != 0 && len > 0 {
                    room -= len;
                    if let Some(space) = space::get() {
                        space.advise_willneed(start, len);
                    }
                    // The advice is a hint: a page that cannot be read in now is read in, or found lost, when it is
                    // touched.
                    let _ = populate_part(start, len, libc::MADV_POPULATE_READ);
                }
            }
            // SAFETY: reading ahead changes no contents.
            Some(Some(Kind::Foreign)) => unsafe { raw::madvise(start, len, libc::MADV_WILLNEED) }?,
            // SAFETY: reading ahead changes no contents.
            None => match unsafe { raw::madvise(start, len, libc::MADV_WILLNEED) } {
                Err(Errno::NOMEM) => holes = Err(Errno::NOMEM),
                result => result?,
            },
        }
    }
    holes
}

impl Vmas {
    /// Returns the first part of `range`, which is not empty.
    fn first_part(&self, range: Range) -> Part {
        let (before, inside, _) = self.split(&range);
        if !before.is_empty() || inside.is_empty() {
            let range = if before.is_empty() { range } else { before };
            return Part { range, kind: None };
        }
        let piece = self.map.first_piece(inside);
        Part {
            range: piece.range,
            kind: Some(piece.kind),
        }
    }

    fn advise(&mut self, range: Range, advice: i32, treatment: Treatment) -> Result<(), Errno> {
        let mut holes = Ok(());
        let mut at = range.start;
        while at < range.end {
            let part = self.first_part(at..range.end);
            at = part.range.end;
            let (start, len) = (part.range.start, part.range.len());
            match part.kind {
                // SAFETY: this is the program's own mapping outside the space.
                None => match unsafe { raw::madvise(start, len, advice) } {
                    Err(Errno::NOMEM) => holes = Err(Errno::NOMEM),
                    result => result?,
                },
                Some(None) => holes = Err(Errno::NOMEM),
                // SAFETY: this is the program's own file or shared mapping.
                Some(Some(Kind::Foreign)) => unsafe { raw::madvise(start, len, advice) }?,
                Some(Some(kind)) => self
                    .advise_managed(part.range, kind, advice, treatment)
                    // The error means that we are short of records. To the caller that is a temporary shortage, not a
                    // hole.
                    .map_err(|error| match error {
                        Errno::NOMEM => Errno::AGAIN,
                        error => error,
                    })?,
            }
        }
        holes
    }

    fn advise_managed(
        &mut self,
        range: Range,
        kind: Kind,
        advice: i32,
        treatment: Treatment,
    ) -> Result<(), Errno> {
        let Kind::Managed {
            opened,
            prot,
            at_fork,
        } = kind
        else {
            return Ok(());
        };
        let keeps = discards(advice) && prot & libc::PROT_WRITE == 0;
        let sealed = keeps.then(|| self.first_sealed(&range)).flatten();
        let range = range.start..sealed.unwrap_or(range.end);
        let locked = if treatment.takes_away() {
            self.first_locked(&range)
        } else {
            None
        };
        let range = range.start..locked.unwrap_or(range.end);
        let (start, len) = (range.start, range.len());
        let reached = opened && len > 0;
        if len == 0 && sealed.is_some() {
            return Err(Errno::PERM);
        }
        match treatment {
            Treatment::Discard | Treatment::DiscardLocked if reached => {
                self.discard(range, prot)?
            }
            Treatment::Free if reached => self.free_lazily(range)?,
            Treatment::PageOut if reached => self.space.advise_pageout(start, len),
            Treatment::Cold if reached => self.space.advise_cold(start, len),
            Treatment::Fork(change) => {
                let mut at_fork = at_fork;
                change(&mut at_fork);
                let kind = Kind::Managed {
                    opened,
                    prot,
                    at_fork,
                };
                self.map.insert(range, kind);
            }
            // SAFETY: the advice changes no contents.
            Treatment::Pass => unsafe { raw::madvise(start, len, advice) }?,
            Treatment::Refuse => return Err(Errno::INVAL),
            _ => {}
        }
        match (locked, sealed) {
            (Some(_), _) => Err(Errno::INVAL),
            (None, Some(_)) => Err(Errno::PERM),
            (None, None) => Ok(()),
        }
    }
}

exports! {
    [madvise: Mappings]
    unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
        crate::c_result(self::advise(addr as usize, len, advice))
    }

    /// The error is the return value, and `POSIX_MADV_DONTNEED` drops nothing.
    [madvise: Mappings]
    unsafe extern "C" fn posix_madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
        if advice == libc::POSIX_MADV_DONTNEED {
            return 0;
        }
        self::advise(addr as usize, len, advice)
            .err()
            .map_or(0, Errno::raw_os_error)
    }
}
