//! Forking: the child gets correct memory, or there is no child at all.
//!
//! A child inherits the mapped pages of the space but nothing that serves the missing ones, until its fork handler
//! has rebuilt that. A missing page touched before then silently reads as zeros. So all memory that the C library
//! touches in the child between the system call and our handler must be mapped when the child is made:
//!
//! - its stream objects (it resets their locks), found by walking its list;
//! - the objects that its own variables point to (such as name service state), found by scanning its writable
//!   segments for pointers into the space, as a conservative garbage collector does;
//! - the stack around the stack pointer and the thread's table of thread-local blocks, if they are in the space;
//! - the second levels of thread-specific data, and everything that the dynamic linker allocates (its records of
//!   libraries, tables and blocks of thread-local storage), which `malloc` keeps out of the space.
//!
//! Handlers run in reverse order of registration before the fork and in order in the child. Ours are registered
//! before all others (`atfork.rs`), so they are the innermost: no other handler runs between them and the fork.
//! Creating threads must wait for the program's own handlers, so a late handler behind them does it.
//!
//! Locks are taken in this order: the C library's list of streams, moves, the VMA lock, the space, the internal
//! allocator. `vfork` and `posix_spawn` share our memory, are served by our threads, and need none of this. The same
//! goes for other children by `clone` that share memory; those that have a copy are served (`clone.rs`). A child
//! created by the program's own system call instruction inherits nothing of the space and dies by SIGSEGV when it
//! first touches it. No code of ours runs for such a child. If it inherited memory so that we could write a line, it
//! would also inherit its parent's copies of pages.

use crate::arch;
use crate::dlopen::find_next;
use crate::park::Busy;
use crate::signals::Blocked;
use crate::stack_switch::on_large_stack;
use crate::vma::{self, Kind, PAGE};
use crate::{
    atfork, descriptors, engage, exit, first_thread, guard, init, internal_alloc, jemalloc, linker,
    malloc, mremap, raw, record, report, rights, space, stack_switch, threads,
};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use millpond::ForkError;
use millpond_sync::LocksOf;
use std::sync::OnceLock;

/// Number of bytes of stack to either side of the stack pointer.
const STACK_REACH: usize = 32 << 10;
/// Number of bytes of a stream object with its lock.
const STREAM: usize = 1024;
/// Number of bytes of an object that a variable of the C library points to.
const OBJECT: usize = 1024;
/// Number of bytes of a thread's table of thread-local blocks.
const TLS_TABLE: usize = 2048;

type IterStep = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type IterEdge = unsafe extern "C" fn() -> *mut c_void;
type ListLock = unsafe extern "C" fn();
type ForkAlone = unsafe extern "C" fn() -> libc::pid_t;

/// The functions for the C library's list of streams, which it exports.
#[derive(Clone, Copy)]
struct Streams {
    lock: ListLock,
    unlock: ListLock,
    begin: IterEdge,
    end: IterEdge,
    next: IterStep,
    file: IterStep,
}

/// Facts about the process that are established when it starts.
struct Surroundings {
    streams: Option<Streams>,
    real_fork: Option<ForkAlone>,
    segments: Vec<(usize, usize)>,
}

static SURROUNDINGS: OnceLock<Surroundings> = OnceLock::new();

/// A fork in progress: the signal mask, who holds the locks, and how many late handlers will run in the child.
struct Fork {
    blocked: Blocked,
    /// The process does not engage meanwhile.
    busy: Busy,
    locks: LocksOf,
    late: usize,
    /// The C library's list of streams, if it is locked.
    streams: Option<Streams>,
}

/// Belongs to the thread that holds all locks.
struct Underway(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread that holds the VMA lock uses it.
unsafe impl Sync for Underway {}

static UNDERWAY: Underway = Underway(UnsafeCell::new(None));

/// How many late handlers have yet to run in this process, a new child; the last one creates its threads.
static LATE: AtomicUsize = AtomicUsize::new(0);
/// No late handler runs; the threads are created when somebody asks for them ([`finish_child`]).
const WHEN_ASKED: usize = usize::MAX;

/// Our handlers: one before the fork, one in the parent and one in the child. They do nothing until there is a space.
pub const HANDLERS: (Handler, Handler, Handler) = (prepare, in_parent, in_child);
type Handler = unsafe extern "C" fn();

/// Establishes the facts about the process and registers the handlers, unless that has been done.
///
/// # Errors
/// A line for the user.
pub fn register() -> Result<(), String> {
    SURROUNDINGS.get_or_init(|| Surroundings {
        streams: find_streams(),
        // SAFETY: the C library's function of this name has this type.
        real_fork: find_next(c"_Fork")
            .map(|at| unsafe { core::mem::transmute::<usize, ForkAlone>(at) }),
        segments: find_segments(),
    });
    atfork::register().map_err(|error| format!("cannot register fork handlers: error {error}"))
}

fn find_streams() -> Option<Streams> {
    let (lock, unlock) = (find_next(c"_IO_list_lock")?, find_next(c"_IO_list_unlock")?);
    let (begin, end) = (find_next(c"_IO_iter_begin")?, find_next(c"_IO_iter_end")?);
    let (next, file) = (find_next(c"_IO_iter_next")?, find_next(c"_IO_iter_file")?);
    // SAFETY: the C library's functions of these names have these types.
    unsafe {
        Some(Streams {
            lock: core::mem::transmute::<usize, ListLock>(lock),
            unlock: core::mem::transmute::<usize, ListLock>(unlock),
            begin: core::mem::transmute::<usize, IterEdge>(begin),
            end: core::mem::transmute::<usize, IterEdge>(end),
            next: core::mem::transmute::<usize, IterStep>(next),
            file: core::mem::transmute::<usize, IterStep>(file),
        })
    }
}

/// Returns the writable segments of the C library and the dynamic linker, and records where the linker's code lies.
fn find_segments() -> Vec<(usize, usize)> {
    unsafe extern "C" fn visit(
        object: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes a valid object, and our own argument back.
        let (object, found) = unsafe { (&*object, &mut *found.cast::<Vec<(usize, usize)>>()) };
        if object.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: the name is a C string.
        let name = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
        let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        if !file.starts_with(b"libc.so") && !file.starts_with(b"ld-linux") {
            return 0;
        }
        for n in 0..usize::from(object.dlpi_phnum) {
            // SAFETY: the object has this many headers.
            let header = unsafe { &*object.dlpi_phdr.add(n) };
            let is_code = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
            if is_code && file.starts_with(b"ld-linux") {
                let start = object.dlpi_addr as usize + header.p_vaddr as usize;
                linker::set(start, start + header.p_memsz as usize);
            }
            if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0 {
                let start = object.dlpi_addr as usize + header.p_vaddr as usize;
                found.push((start, start + header.p_memsz as usize));
            }
        }
        0
    }
    let mut found = Vec::new();
    // SAFETY: `visit` gets back the pointer to `found`, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

/// Ranges around pointers into the space, as whole pages.
struct Needed(Vec<(usize, usize)>);

impl Needed {
    fn add(&mut self, addr: usize, len: usize) {
        if space::contains(addr) {
            let start = addr & !(PAGE - 1);
            self.0.push((start, (addr + len).next_multiple_of(PAGE)));
        }
    }

    /// Returns the needed pages as few ranges, without unmapped ones.
    fn mapped(mut self, map: &vma::map::Map) -> Vec<(usize, usize)> {
        self.0.sort_unstable();
        self.0.dedup_by(|next, last| {
            let joins = next.0 <= last.1;
            last.1 = if joins { last.1.max(next.1) } else { last.1 };
            joins
        });
        let mut ranges = Vec::new();
        for (start, end) in self.0 {
            for piece in map.pieces(start..end.min(map.bounds().end)) {
                if let Some(Kind::Managed {
                    prot, opened: true, ..
                }) = piece.kind
                    && prot & libc::PROT_READ != 0
                {
                    ranges.push((piece.range.start, piece.range.len()));
                }
            }
        }
        ranges
    }
}

/// Adds the streams. This touches managed memory, so it must happen before any lock but the list's own is taken.
fn add_streams(needed: &mut Needed, streams: Streams) {
    // SAFETY: the list's lock is held, so the entries stay.
    unsafe {
        let end = (streams.end)();
        let mut at = (streams.begin)();
        while at != end && !at.is_null() {
            needed.add((streams.file)(at) as usize, STREAM);
            at = (streams.next)(at);
        }
    }
}

fn add_pointers(needed: &mut Needed, segments: &[(usize, usize)]) {
    for &(start, end) in segments {
        let first = start.next_multiple_of(size_of::<usize>());
        for at in (first..end & !7).step_by(size_of::<usize>()) {
            // SAFETY: the word is inside a mapped segment of a library that is never unloaded. Other threads may
            // write it meanwhile; a torn value adds at most one unneeded page.
            let word = unsafe { (at as *const usize).read_volatile() };
            needed.add(word, OBJECT);
        }
    }
}

extern "C" fn prepare() {
    prepare_with(None);
}

/// Prepares a fork. `child_stack` is where the child starts, unless it starts where its parent is.
fn prepare_with(child_stack: Option<usize>) {
    if space::get().is_none() {
        return;
    }
    let stack = psm::stack_pointer() as usize;
    on_large_stack(move || prepare_on_large_stack(stack, child_stack));
}

fn prepare_on_large_stack(stack: usize, child_stack: Option<usize>) {
    let blocked = Blocked::new();
    let busy = Busy::begin();
    let surroundings = SURROUNDINGS.get();
    let mut needed = Needed(Vec::new());
    // In a dormant process nothing has to be brought in.
    let is_dormant = engage::is_dormant();
    let streams = surroundings.and_then(|found| found.streams);
    let streams = streams.filter(|_| !is_dormant);
    if let Some(streams) = streams {
        // SAFETY: the lock is released in the parent below, and reset by the C library in the child.
        unsafe { (streams.lock)() };
        add_streams(&mut needed, streams);
    }
    mremap::lock_for_fork();
    vma::lock_for_fork();
    // SAFETY: the VMA lock is held.
    unsafe {
        *UNDERWAY.0.get() = Some(Fork {
            blocked,
            busy,
            locks: LocksOf::this_thread(),
            late: atfork::take_count(),
            streams,
        });
    }
    let segments = surroundings.filter(|_| !is_dormant);
    add_pointers(&mut needed, segments.map_or(&[], |found| &found.segments));
    needed.add(stack.saturating_sub(STACK_REACH), 2 * STACK_REACH);
    needed.add(stack, STACK_REACH);
    if let Some(top) = child_stack {
        needed.add(top.saturating_sub(STACK_REACH), STACK_REACH);
    }
    needed.add(
        arch::tls_table().saturating_sub(PAGE / 2),
        TLS_TABLE + PAGE / 2,
    );
    // SAFETY: the VMA lock is held.
    let ranges = unsafe { vma::held_for_fork(|vmas| needed.mapped(&vmas.map)) };
    descriptors::lend_reserve();
    if let Some(space) = space::get() {
        space.before_fork(&ranges);
    }
    drop(ranges);
    internal_alloc::lock_for_fork();
}

fn release(unlock_streams: bool) {
    // SAFETY: the VMA lock is held by this thread, or was held by its original in the parent.
    let fork = unsafe { (*UNDERWAY.0.get()).take() };
    vma::unlock_after_fork();
    mremap::unlock_after_fork();
    let streams = fork.as_ref().and_then(|fork| fork.streams);
    if unlock_streams && let Some(streams) = streams {
        // SAFETY: the lock was taken in `prepare`.
        unsafe { (streams.unlock)() };
    }
    drop(fork.map(|fork| (fork.busy, fork.blocked)));
}

extern "C" fn in_parent() {
    if let Some(space) = space::get() {
        on_large_stack(move || {
            internal_alloc::unlock_after_fork();
            space.after_fork_in_parent();
            descriptors::keep_reserve();
            release(true);
        });
    }
}

/// How a child was made: by `fork`, or without the C library's help, which in that case does not unlock its streams
/// either.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    ByHandlers,
    Without,
}

extern "C" fn in_child() {
    child(Made::ByHandlers);
}

fn child(made: Made) {
    let Some(space) = space::get() else { return };
    stack_switch::after_fork_in_child();
    guard::signals::after_fork_in_child();
    rights::after_fork_in_child();
    engage::after_fork_in_child();
    jemalloc::after_fork_in_child();
    guard::children::apart::after_fork_in_child();
    on_large_stack(move || {
        // SAFETY: the VMA lock has been held since before the fork.
        let counted = unsafe { &*UNDERWAY.0.get() }.as_ref().map_or(0, |fork| {
            fork.locks.inherit();
            fork.late
        });
        // A program that makes children without handlers looks after its allocator itself, once we are done.
        let late = match made {
            Made::ByHandlers => counted,
            Made::Without if malloc::is_anothers() => WHEN_ASKED,
            Made::Without => 0,
        };
        LATE.store(late, Relaxed);
        atfork::forget_others_in_child();
        internal_alloc::unlock_after_fork();
        threads::forget_service();
        descriptors::forget();
        record::begin_in_child();
        // SAFETY: the VMA lock has been held since before the fork.
        let foreign = unsafe { vma::held_for_fork(|vmas| vmas.map.foreign()) };
        init::starting(|| {
            go_on(space.after_fork_in_child(&foreign));
            if late == 0 {
                go_on(space.start_threads_in_child());
            }
        });
        descriptors::learn(space);
        // SAFETY: the VMA lock has been held since before the fork.
        if let Some(error) = unsafe { vma::held_for_fork(vma::Vmas::become_a_child) } {
            let text =
                format!("millpond: the child of a fork keeps what it should not have: {error}");
            exit::fail_with(&text, exit::CANNOT_FORK);
        }
        report::begin_in_child();
        release(made == Made::Without);
        if late == 0 {
            engage::start_threads_in_child();
            first_thread::child_is_ready();
        }
    });
}

fn go_on(result: Result<(), ForkError>) {
    if let Err(error) = result {
        let text = format!("millpond: the child of a fork cannot go on: {error}");
        exit::fail_with(&text, exit::CANNOT_FORK);
    }
}

/// The late handler that runs in a child.
pub extern "C" fn late_in_child() {
    match LATE.load(Relaxed) {
        0 | WHEN_ASKED => {}
        1 => finish_child(),
        late => LATE.store(late - 1, Relaxed),
    }
}

/// Creates the threads of a new child that has none yet. Called when something cannot wait for the child's last
/// handler, and when a child that runs no handlers creates a thread of its own, since its allocator is then usable.
pub fn finish_child() {
    if LATE.load(Relaxed) == 0 || LATE.swap(0, Relaxed) == 0 {
        return;
    }
    if let Some(space) = space::get() {
        on_large_stack(move || {
            let _blocked = Blocked::new();
            threads::making(|| go_on(space.start_threads_in_child()));
            engage::start_threads_in_child();
            first_thread::child_is_ready();
        });
    }
}

exports! {
    /// The C library's function runs no handlers. Ours run nonetheless.
    #[allow(non_snake_case, reason = "the C library's name")]
    [clone: Child]
    unsafe extern "C" fn _Fork() -> libc::pid_t {
        let Some(real) = SURROUNDINGS.get().and_then(|found| found.real_fork) else {
            raw::set_errno(rustix::io::Errno::NOSYS);
            return -1;
        };
        // SAFETY: the caller guarantees what this call needs.
        made_by(None, || unsafe { real() })
    }
}

/// Runs `make`, which makes a child with its own memory and runs no handlers, and returns its result. Our handlers
/// run nonetheless. A child that returns from `make`, or starts on `child_stack` and calls [`begin_in_child`], is
/// served.
pub fn made_by(child_stack: Option<usize>, make: impl FnOnce() -> libc::pid_t) -> libc::pid_t {
    prepare_with(child_stack);
    let pid = make();
    if pid == 0 {
        begin_in_child();
    } else {
        in_parent();
    }
    pid
}

/// Sets up a child that starts elsewhere than its parent.
pub fn begin_in_child() {
    child(Made::Without);
}
