//! `madvise`: what the program says about its memory, done, passed on, or refused; never pretended.
//!
//! Advice that changes what the program reads (`MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE`, `MADV_WIPEONFORK` and so
//! on) has to be done or refused. The kernel's own `MADV_DONTNEED` on managed memory would drop the mapped pages only:
//! what was taken out would come back later. Hints may be taken as said and done nothing about.

use crate::vma::{self, Kind, PAGE, Range, Vmas};
use crate::{raw, space};
use core::ffi::{c_int, c_void};
use rustix::io::Errno;

/// What to do about advice on managed memory.
enum Treatment {
    Discard,
    PageOut,
    Cold,
    /// A hint, or what is so anyway.
    Accept,
    /// About the kernel's mapping: right as it is.
    Pass,
    /// Done with page faults, so without our lock.
    PassUnlocked,
    Refuse,
}

fn treatment(advice: i32) -> Treatment {
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED => Treatment::Discard,
        libc::MADV_PAGEOUT => Treatment::PageOut,
        libc::MADV_COLD => Treatment::Cold,
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_DOFORK
        | libc::MADV_KEEPONFORK => Treatment::Accept,
        libc::MADV_DONTDUMP | libc::MADV_DODUMP => Treatment::Pass,
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => Treatment::PassUnlocked,
        // Not to be had in the child of a fork, where all managed memory is inherited alike; programs that use these
        // have another way for kernels without them. The rest is unknown or makes no sense on private memory.
        _ => Treatment::Refuse,
    }
}

fn advise(addr: usize, len: usize, advice: i32) -> Result<(), Errno> {
    let end = len
        .checked_next_multiple_of(PAGE)
        .and_then(|len| addr.checked_add(len));
    let bad = len == 0 || !addr.is_multiple_of(PAGE);
    let Some(end) = end.filter(|&end| !bad && space::overlaps(addr, end - addr)) else {
        // SAFETY: not the space's, or refused by the kernel.
        return unsafe { raw::madvise(addr, len, advice) };
    };
    if let Treatment::PassUnlocked = treatment(advice) {
        // SAFETY: populating changes no contents.
        return unsafe { raw::madvise(addr, len, advice) };
    }
    let range = addr..end;
    vma::locked(move |vmas| vmas.advise(range, advice)).unwrap_or(Ok(()))
}

impl Vmas {
    fn advise(&mut self, range: Range, advice: i32) -> Result<(), Errno> {
        let (before, inside, after) = self.split(&range);
        // The kernel goes on behind a hole and says at the end that there was one.
        let mut holes = Ok(());
        for outside in [before, after] {
            if outside.is_empty() {
                continue;
            }
            // SAFETY: the program's own mapping outside the space.
            match unsafe { raw::madvise(outside.start, outside.len(), advice) } {
                Err(Errno::NOMEM) => holes = Err(Errno::NOMEM),
                result => result?,
            }
        }
        for piece in self.map.pieces(inside) {
            match piece.kind {
                None => holes = Err(Errno::NOMEM),
                Some(Kind::Foreign) => {
                    // SAFETY: the program's own file or shared mapping.
                    unsafe { raw::madvise(piece.range.start, piece.range.len(), advice) }?;
                }
                Some(Kind::Managed { opened, prot }) => {
                    self.advise_managed(&piece.range, opened, prot, advice)?;
                }
            }
        }
        holes
    }

    fn advise_managed(
        &self,
        range: &Range,
        opened: bool,
        prot: i32,
        advice: i32,
    ) -> Result<(), Errno> {
        let (start, len) = (range.start, range.len());
        match treatment(advice) {
            Treatment::Discard if opened => self.discard(range.clone(), prot),
            Treatment::PageOut if opened => {
                self.space.advise_pageout(start, len);
                Ok(())
            }
            Treatment::Cold if opened => {
                self.space.advise_cold(start, len);
                Ok(())
            }
            Treatment::Discard | Treatment::PageOut | Treatment::Cold | Treatment::Accept => Ok(()),
            // SAFETY: changes no contents.
            Treatment::Pass | Treatment::PassUnlocked => unsafe {
                raw::madvise(start, len, advice)
            },
            Treatment::Refuse => Err(Errno::INVAL),
        }
    }
}

/// As `madvise` of the C library.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    crate::c_result(self::advise(addr as usize, len, advice))
}

/// As `posix_madvise` of the C library: the error is the result, and `POSIX_MADV_DONTNEED` drops nothing.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    self::advise(addr as usize, len, advice)
        .err()
        .map_or(0, Errno::raw_os_error)
}
