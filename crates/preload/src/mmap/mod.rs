//! `mmap`: private anonymous memory comes from the space, everything else from the kernel.
//!
//! Mappings that the space cannot provide come from the kernel: executable, locked and huge-page memory, files and
//! shared memory pass through unchanged. Bad arguments also pass through, so that the error is the kernel's own.
//! [`unfixed`] decides where a mapping goes if its place is not fixed.
//!
//! A growing mapping (`MAP_GROWSDOWN`) at a fixed place in the space cannot be the kernel's: the kernel grows it into
//! addresses where nothing is mapped, and our reservation is there. So we provide managed memory that has already
//! grown, as far as the addresses below are free and at most as far as a stack does. Only a query about the mapping
//! shows the difference, and untouched memory costs nothing.
//!
//! The one difficult case is `MAP_FIXED` over the space: the program may put a file on top of memory that it got from
//! us (loaders and shared-memory runtimes reserve first and map pieces later). The kernel guarantees that nothing is
//! lost when the call fails, so we first make such a mapping elsewhere and then move it into place in one step.

mod unfixed;

use crate::vma::{self, Kind, PAGE, Range, Vmas};
use crate::{arch, code, engage, guard, init, jemalloc, raw, space};
use core::ffi::c_void;
use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGETLB, MAP_LOCKED,
    MAP_PRIVATE, MAP_STACK, MAP_TYPE, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use rustix::io::Errno;

/// The maximum growth of a growing mapping: the default limit of a stack.
const GROWTH: usize = 8 << 20;

/// Executable memory of this length or more is a heap with code among its data, such as Lisp's.
const EXECUTABLE_HEAP: usize = 256 << 20;

/// The arguments of one call.
#[derive(Clone, Copy)]
struct Request {
    addr: usize,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
}

impl Request {
    fn to_kernel(self) -> Result<usize, Errno> {
        // SAFETY: the program asked for it, and no part of the space is concerned (or the caller has taken care of
        // it).
        unsafe {
            raw::mmap(
                self.addr,
                self.len,
                self.prot,
                self.flags,
                self.fd,
                self.offset,
            )
        }
    }

    /// Lets the kernel choose a place if the program's hint lies in the space, in a process that has no space yet.
    /// Its parent's filter would end it there, as no handler of ours is installed. (Chromium's allocator maps at
    /// 0x21b0_0000_0000 when the linker first calls it, before any constructor.)
    fn leave_out_hint(&mut self) {
        let end = self.addr.saturating_add(self.len);
        if !self.is_fixed() && self.addr < guard::END && guard::START < end {
            self.addr = 0;
        }
    }

    /// Returns whether the space can provide the requested memory.
    fn is_ours(self) -> bool {
        self.is_ours_but_for(0)
    }

    /// Returns whether this is a growing mapping that the space can otherwise provide.
    fn grows(self) -> bool {
        self.flags & MAP_GROWSDOWN != 0 && self.is_ours_but_for(MAP_GROWSDOWN | MAP_STACK)
    }

    fn is_ours_but_for(self, allowed: i32) -> bool {
        let excluded = MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB | MAP_LOCKED;
        self.flags & MAP_TYPE == MAP_PRIVATE
            && self.flags & MAP_ANONYMOUS != 0
            && self.flags & excluded & !allowed == 0
            && self.prot & !self.possible() == 0
    }

    /// Returns the protections with which managed memory may be mapped. Executable memory is moved by copying, ten
    /// times as slowly as other memory, and JIT compilers want it in small pieces. So only a piece as long as a heap
    /// may be executable.
    fn possible(self) -> i32 {
        match self.len >= EXECUTABLE_HEAP {
            true => PROT_READ | PROT_WRITE | PROT_EXEC,
            false => PROT_READ | PROT_WRITE,
        }
    }

    fn is_fixed(self) -> bool {
        self.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0
    }

    /// Returns the requested pages, if the length and (for fixed ones) the address are valid.
    fn range(self) -> Option<Range> {
        let len = self
            .len
            .checked_next_multiple_of(PAGE)
            .filter(|&len| len > 0)?;
        let end = self.addr.checked_add(len)?;
        (self.offset as usize)
            .is_multiple_of(PAGE)
            .then_some(self.addr..end)
    }
}

fn map(request: Request) -> Result<usize, Errno> {
    let Some(range) = request.range() else {
        return request.to_kernel();
    };
    if request.is_fixed() {
        if !range.start.is_multiple_of(PAGE) || !space::overlaps(range.start, range.len()) {
            if request.prot & PROT_WRITE != 0 {
                code::becomes_writable(range.start, range.len());
            }
            return request.to_kernel();
        }
        return vma::locked(move |vmas| vmas.map_fixed(request, range))
            .unwrap_or_else(|| request.to_kernel());
    }
    unfixed::map(request, range.len())
}

impl Vmas {
    fn map_fixed(&mut self, request: Request, range: Range) -> Result<usize, Errno> {
        let (before, inside, after) = self.split(&range);
        if request.flags & MAP_FIXED_NOREPLACE != 0 && !self.map.is_free(&inside) {
            return Err(Errno::EXIST);
        }
        self.unless_sealed(&inside)?;
        if request.grows() && inside == range {
            self.clear(inside.clone())?;
            self.place(self.grown(inside), request.prot)?;
            return Ok(range.start);
        }
        if !request.is_ours() {
            return self.put_foreign(request, range, inside);
        }
        let mut done: Option<Range> = None;
        for outside in [before, after] {
            if outside.is_empty() {
                continue;
            }
            let part = Request {
                addr: outside.start,
                len: outside.len(),
                ..request
            };
            if let Err(error) = part.to_kernel() {
                if let Some(done) = done
                    && request.flags & MAP_FIXED_NOREPLACE != 0
                {
                    // SAFETY: the kernel newly mapped this part in this very call.
                    let _ = unsafe { raw::munmap(done.start, done.len()) };
                }
                return Err(error);
            }
            done = Some(outside);
        }
        self.clear(inside.clone())?;
        self.place(inside, request.prot)?;
        Ok(range.start)
    }

    /// Returns the range together with the free addresses below it that it may grow into. The lowest page stays free,
    /// as a guard.
    fn grown(&self, range: Range) -> Range {
        let lowest = range
            .start
            .saturating_sub(GROWTH)
            .max(self.map.bounds().start);
        let pieces = self.map.pieces(lowest..range.start);
        let start = match pieces.last() {
            Some(gap) if gap.kind.is_none() => (gap.range.start + PAGE).min(range.start),
            _ => range.start,
        };
        start..range.end
    }

    fn put_foreign(
        &mut self,
        request: Request,
        range: Range,
        inside: Range,
    ) -> Result<usize, Errno> {
        let elsewhere = Request {
            addr: 0,
            flags: request.flags
                & !(MAP_FIXED | MAP_FIXED_NOREPLACE | unfixed::MAP_32BIT.unwrap_or(0)),
            ..request
        };
        let made = elsewhere.to_kernel()?;
        self.move_over(made, range.len(), range.clone(), inside)
            .inspect_err(|_| {
                // SAFETY: the mapping was made in this call and no one knows of it.
                let _ = unsafe { raw::munmap(made, range.len()) };
            })?;
        Ok(range.start)
    }

    /// Unmaps everything in `inside` and gives the addresses to the kernel. [`Space::restore`](space::Space::restore)
    /// takes them back.
    pub fn make_way(&mut self, inside: &Range) -> Result<(), Errno> {
        self.clear(inside.clone())?;
        if inside.is_empty() {
            return Ok(());
        }
        let ceded = self.space.cede(inside.start, inside.len());
        if ceded.is_err() {
            self.space.restore(inside.start, inside.len())?;
        }
        ceded
    }

    /// Moves a mapping of the kernel over `target`; the part `inside` of it lies in the space.
    pub fn move_over(
        &mut self,
        from: usize,
        from_len: usize,
        target: Range,
        inside: Range,
    ) -> Result<(), Errno> {
        self.make_way(&inside)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the program wants `target` replaced, and after `clear` the space holds nothing there.
        let moved = unsafe { raw::mremap(from, from_len, target.len(), flags, target.start) };
        match moved {
            Ok(_) if inside.is_empty() => Ok(()),
            Ok(_) => {
                self.map.insert(inside, Kind::Foreign);
                Ok(())
            }
            Err(error) => {
                if !inside.is_empty() {
                    self.space.restore(inside.start, inside.len())?;
                }
                Err(error)
            }
        }
    }
}

/// Performs the system call `mmap` for code at `caller`.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe extern "C" fn map_for(
    addr: *mut c_void,
    len: usize,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
    caller: usize,
) -> *mut c_void {
    let _growing = engage::before_growth(if prot == libc::PROT_NONE { 0 } else { len });
    let mut request = Request {
        addr: addr as usize,
        len,
        prot,
        flags,
        fd,
        offset,
    };
    if !init::is_ready() {
        request.leave_out_hint();
    }
    // Memory that the allocator maps before it is up goes to the program as blocks, which are recognised by their
    // address.
    let result = match init::is_ready() && guard::runtime::maps_for_itself(caller) {
        true => request.to_kernel(),
        false => map(request),
    };
    let is_private = flags & (MAP_ANONYMOUS | libc::MAP_SHARED) == MAP_ANONYMOUS;
    if result.is_ok() && !is_private {
        engage::mapped_file(len);
    }
    if let (Ok(start), false) = (result, init::is_ready()) {
        jemalloc::mapped(start, len);
    }
    crate::c_answer(result) as *mut c_void
}

exports! {
    #[unsafe(naked)]
    [mmap: Mappings]
    unsafe extern "C" fn mmap(
        _addr: *mut c_void,
        _len: usize,
        _prot: i32,
        _flags: i32,
        _fd: i32,
        _offset: i64,
    ) -> *mut c_void {
        arch::caller_as_seventh!(map_for)
    }

    #[unsafe(naked)]
    [mmap: Mappings]
    unsafe extern "C" fn mmap64(
        _addr: *mut c_void,
        _len: usize,
        _prot: i32,
        _flags: i32,
        _fd: i32,
        _offset: i64,
    ) -> *mut c_void {
        arch::caller_as_seventh!(map_for)
    }
}
