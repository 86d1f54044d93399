//! The library that `millpond run` loads into a program by `LD_PRELOAD`.
//!
//! The program is not rebuilt and does not know about Millpond. Its `malloc` becomes jemalloc over a managed address
//! space. Its private anonymous `mmap`s and its `brk` also come from that space, and memory that does not fit in the
//! budget is brought back when it is touched. Everything else that the program maps passes through untouched.
//!
//! | concern | file |
//! | --- | --- |
//! | the exported functions: how each is defined and described | `exports` |
//! | code that depends on the processor | `arch` |
//! | start, phases; programs that are managed later, or never | `init`, `settings`, `engage`, `unmanaged` |
//! | allocation: the owner of a block, the exports, jemalloc's hooks and the memory that it keeps, our own allocator | `owner`, `malloc`, `libc_names`, `realloc`, `mallocx`, `jemalloc`, `decay`, `internal_alloc`, `linker`, `mallinfo` |
//! | mappings: the account, and each call | `vma`, `mmap`, `munmap`, `mprotect`, `mremap`, `mseal`, `madvise`, `process_madvise`, `brk`, `mlock`, `ask`, `shm` |
//! | calls by `syscall`; things that the kernel must not do to managed memory by itself | `syscall`, `futexes`, `prctl`, `ksm`, `filters` |
//! | pages that the kernel would refer to: pipes, sockets | `references` |
//! | direct delivery: memory that the kernel is about to touch, signals, children | `guard` |
//! | libraries that are loaded later | `dlopen` |
//! | processes and threads, their rights | `fork`, `clone`, `namespaces`, `threads`, `first_thread`, `last_thread`, `last_words`, `rights`, `exit`, `report` |
//! | the safety of locks; files and text without an allocation | `lock`, `signals`, `stack_switch`, `raw`, `words` |
//!
//! Exported symbols exist only in the shared library; the unit tests are built without them, because a test program
//! that replaced its own `malloc` half-way would test nothing.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "the exports, which use most of it, are not in the tests"
    )
)]

#[macro_use]
mod exports;

mod arch;
mod ask;
mod atfork;
mod brk;
mod clone;
mod code;
mod decay;
mod descriptors;
mod dlopen;
mod engage;
mod exit;
mod filters;
mod first_thread;
mod fork;
mod futexes;
mod guard;
mod init;
mod internal_alloc;
mod jemalloc;
mod ksm;
mod last_thread;
mod last_words;
mod libc_names;
mod linker;
mod lock;
mod madvise;
mod mallinfo;
mod malloc;
mod mallocx;
mod mlock;
mod mmap;
mod mprotect;
mod mremap;
mod mseal;
mod munmap;
mod namespaces;
mod owner;
mod park;
mod prctl;
mod process_madvise;
mod raw;
mod realloc;
mod record;
mod references;
mod report;
mod rights;
mod settings;
mod shm;
mod signals;
mod space;
mod stack_switch;
mod syscall;
mod tasks;
mod tell;
mod thread_exit;
mod threads;
mod unmanaged;
mod vma;
mod words;

/// Turns a result into a C return value: zero, or -1 with `errno` set.
fn c_result(result: Result<(), rustix::io::Errno>) -> core::ffi::c_int {
    c_answer(result.map(|()| 0)) as core::ffi::c_int
}

/// Turns a result into a C return value: the value, or -1 with `errno` set. (For an address, -1 equals `MAP_FAILED`.)
fn c_answer(result: Result<usize, rustix::io::Errno>) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(error) => {
            raw::set_errno(error);
            -1
        }
    }
}
