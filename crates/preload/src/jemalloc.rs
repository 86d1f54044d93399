//! The program's allocator: jemalloc, with its extents from the space.
//!
//! jemalloc asks for memory in extents through hooks. All automatic arenas get ours before their first use. What it no
//! longer needs it keeps as address space and has discarded (`purge_forced`), so the space's areas stay few and large.
//! Its own bookkeeping comes by `mmap`, which is ours too and gives managed memory: it counts against the budget like
//! the rest.
//!
//! Unused pages go back after two seconds instead of jemalloc's ten: in a tight budget they push out pages that are
//! used. There are as many arenas as processors, because each keeps free pages of its own.

use crate::vma::{self, PAGE};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_uint, c_void};
use std::io::Write;
use tikv_jemalloc_sys as je;

/// Read by jemalloc when it starts, before the environment variable `_RJEM_MALLOC_CONF`.
#[cfg_attr(not(test), unsafe(export_name = "_rjem_malloc_conf"))]
pub static CONF: Conf = Conf(UnsafeCell::new(core::ptr::null()));

/// A pointer to a C string that is written once, before jemalloc looks.
#[repr(transparent)]
pub struct Conf(UnsafeCell<*const c_char>);

// SAFETY: written in the constructor while there is one program thread, read by jemalloc afterwards.
unsafe impl Sync for Conf {}

static HOOKS: je::extent_hooks_t = je::extent_hooks_s {
    alloc: Some(alloc),
    dalloc: Some(retain),
    destroy: Some(destroy),
    commit: Some(opt_out),
    decommit: Some(opt_out),
    purge_lazy: Some(opt_out),
    purge_forced: Some(purge),
    split: Some(split),
    merge: Some(merge),
};

/// Starts jemalloc. With `managed`, all its arenas take their memory from the space.
///
/// # Errors
/// What jemalloc did not accept.
pub fn start(arenas: usize, managed: bool) -> Result<(), String> {
    let conf = format!(
        "narenas:{arenas},dss:disabled,retain:true,thp:never,metadata_thp:disabled,\
         background_thread:false,dirty_decay_ms:2000,muzzy_decay_ms:0,\
         zero_realloc:free\0"
    );
    let conf: &'static [u8] = Vec::leak(conf.into_bytes());
    // SAFETY: one thread, and jemalloc has not been called yet.
    unsafe { *CONF.0.get() = conf.as_ptr().cast() };
    if !managed {
        return Ok(());
    }
    for arena in 0..arena_count()? {
        let mut name = [0u8; 48];
        let mut rest = &mut name[..];
        write!(rest, "arena.{arena}.extent_hooks").map_err(|error| error.to_string())?;
        let name = CStr::from_bytes_until_nul(&name).map_err(|error| error.to_string())?;
        let mut hooks = &raw const HOOKS;
        // SAFETY: this control takes a pointer to a pointer to hooks that live for ever.
        let result = unsafe {
            je::mallctl(
                name.as_ptr(),
                core::ptr::null_mut(),
                core::ptr::null_mut(),
                (&raw mut hooks).cast(),
                size_of_val(&hooks),
            )
        };
        if result != 0 {
            return Err(format!(
                "jemalloc refuses extent hooks for arena {arena}: error {result}"
            ));
        }
    }
    Ok(())
}

fn arena_count() -> Result<c_uint, String> {
    let mut count: c_uint = 0;
    let mut len = size_of_val(&count);
    // SAFETY: this control writes one unsigned int.
    let result = unsafe {
        je::mallctl(
            c"opt.narenas".as_ptr(),
            (&raw mut count).cast(),
            &mut len,
            core::ptr::null_mut(),
            0,
        )
    };
    if result == 0 {
        Ok(count)
    } else {
        Err(format!("jemalloc has no arenas: error {result}"))
    }
}

unsafe extern "C" fn alloc(
    _: *mut je::extent_hooks_t,
    wanted: *mut c_void,
    size: usize,
    align: usize,
    zero: *mut bool,
    commit: *mut bool,
    _: c_uint,
) -> *mut c_void {
    let wanted = wanted as usize;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let place = vma::locked(move |vmas| {
        let start = if wanted == 0 {
            vmas.map.find(size, align.max(PAGE))
        } else {
            Some(wanted).filter(|&start| vmas.map.is_free(&(start..start + size)))
        };
        start.filter(|&start| vmas.place(start..start + size, prot).is_ok())
    });
    match place.flatten() {
        Some(start) => {
            // SAFETY: jemalloc passes pointers to two flags of its own; new memory is zeros and usable.
            unsafe {
                *zero = true;
                *commit = true;
            }
            start as *mut c_void
        }
        None => core::ptr::null_mut(),
    }
}

/// Keeps the addresses with jemalloc: it has them purged instead, and uses them again.
unsafe extern "C" fn retain(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    true
}

unsafe extern "C" fn destroy(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    size: usize,
    _: bool,
    _: c_uint,
) {
    let start = at as usize;
    // A refusal costs addresses only: jemalloc does not use the extent again.
    let _ = vma::locked(move |vmas| vmas.clear(start..start + size));
}

unsafe extern "C" fn opt_out(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: c_uint,
) -> bool {
    true
}

unsafe extern "C" fn purge(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    _: usize,
    offset: usize,
    len: usize,
    _: c_uint,
) -> bool {
    let start = at as usize + offset;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    vma::locked(move |vmas| vmas.discard(start..start + len, prot).is_err()).unwrap_or(true)
}

unsafe extern "C" fn split(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}

unsafe extern "C" fn merge(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}
