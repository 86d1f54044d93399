//! Changes of user and group, which the C library applies to every thread of the process.
//!
//! To the kernel each thread has its own credentials. So `setuid` and its relatives signal all other threads,
//! including ours, and each makes the same system call, with the arguments that the caller left *on its stack*. Then
//! the results are compared. If one thread gets a different result, the C library aborts the process.
//!
//! Two things follow for threads that the program does not know about.
//!
//! - The caller's stack, or the list of groups passed to `setgroups`, may lie in managed memory and be evicted. The
//!   thread that serves faults would then wait for itself. So we make the call on a stack of our own, with a copy of
//!   the list.
//! - A single-threaded program may change its thread's privileges with calls that affect only one thread: `prctl`
//!   with `PR_SET_KEEPCAPS` or `PR_SET_SECUREBITS`, `capset`, the bare system calls. (`setpriv`, and programs that
//!   use libcap-ng, were aborted because of that.) So before such a change of user the caller records its rights, and
//!   a thread of ours that is signalled first adopts those that differ. It does so before the C library's own handler
//!   runs.
//!
//! Our threads also give up the rights that the program gives up: nothing in the process keeps them.

use crate::dlopen::find_next;
use crate::lock::RawLock;
use crate::signals::Blocked;
use crate::stack_switch::on_safe_stack;
use crate::{init, internal_alloc, raw, space, threads};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use millpond_sync::Rank;
use rustix::io::Errno;

/// The signal with which the C library makes threads change (`SIGSETXID`).
const SIGNAL: usize = 33;
/// The maximum number of groups that a process can have.
const MAX_GROUPS: usize = 65536;
/// The bit of the securebits that preserves rights across a change of user. Unlike the other bits, it may be set
/// without any rights.
const KEEP: u64 = 1 << 4;

/// The names of the C library's functions, in the order of [`Change`].
const NAMES: [&CStr; 9] = [
    c"setuid",
    c"setgid",
    c"seteuid",
    c"setegid",
    c"setreuid",
    c"setregid",
    c"setresuid",
    c"setresgid",
    c"setgroups",
];
static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

#[derive(Clone, Copy)]
enum Change {
    Uid,
    Gid,
    EffectiveUid,
    EffectiveGid,
    BothUids,
    BothGids,
    AllUids,
    AllGids,
    Groups,
}

/// Looks up the C library's functions. This must happen before the program calls one.
pub fn find() {
    for (name, place) in NAMES.iter().zip(&REAL) {
        place.store(find_next(name).unwrap_or(0), Relaxed);
    }
}

/// The lock that allows one change at a time, from the caller's record to the last thread's result.
static TURN: RawLock = RawLock::new(Rank::Rights);

/// Frees the lock in a new child, where a thread that was making a change does not exist.
pub fn after_fork_in_child() {
    TURN.reset();
}

/// The rights that determine the result of a change: the three user IDs, the three group IDs, the securebits and the
/// capability sets (effective, permitted, inheritable).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Rights {
    uids: [u32; 3],
    gids: [u32; 3],
    bits: u64,
    capabilities: [u64; 3],
}

/// The caller's rights, as words that a signal handler may read.
static NOTED: [AtomicU64; 10] = [const { AtomicU64::new(0) }; 10];

fn call(number: i64, args: [usize; 3]) -> Result<usize, Errno> {
    // SAFETY: the calls concern the calling thread's rights, and the callers borrow what the pointers refer to.
    unsafe { raw::syscall(number, [args[0], args[1], args[2], 0, 0, 0]) }
}

fn prctl(option: i32, argument: u64) -> Result<usize, Errno> {
    call(libc::SYS_prctl, [option as usize, argument as usize, 0])
}

/// The header that asks the kernel for the calling thread's sets: version 3, and no other thread's ID.
const SETS: [u32; 2] = [0x2008_0522, 0];

impl Rights {
    fn of_this_thread() -> Self {
        let mut rights = Self {
            bits: prctl(libc::PR_GET_SECUREBITS, 0).map_or(0, |bits| bits as u64),
            ..Self::default()
        };
        for (number, ids) in [
            (libc::SYS_getresuid, &mut rights.uids),
            (libc::SYS_getresgid, &mut rights.gids),
        ] {
            let [real, effective, saved] =
                ids.each_mut().map(|id| core::ptr::from_mut(id) as usize);
            let _ = call(number, [real, effective, saved]);
        }
        let (mut header, mut halves) = (SETS, [[0u32; 3]; 2]);
        let places = [
            header.as_mut_ptr() as usize,
            halves.as_mut_ptr() as usize,
            0,
        ];
        let _ = call(libc::SYS_capget, places);
        let [low, high] = halves;
        rights.capabilities =
            core::array::from_fn(|n| u64::from(low[n]) | u64::from(high[n]) << 32);
        rights
    }

    fn note(&self) {
        let ids = self.uids.iter().chain(&self.gids).map(|&id| u64::from(id));
        let words = ids.chain([self.bits]).chain(self.capabilities);
        for (place, word) in NOTED.iter().zip(words) {
            place.store(word, Relaxed);
        }
    }

    fn noted() -> Self {
        let word = |n: usize| NOTED[n].load(Relaxed);
        Self {
            uids: core::array::from_fn(|n| word(n) as u32),
            gids: core::array::from_fn(|n| word(n + 3) as u32),
            bits: word(6),
            capabilities: core::array::from_fn(|n| word(n + 7)),
        }
    }

    /// Gives the calling thread these rights, as far as the kernel allows. Capabilities come last, since the other
    /// changes need those that are given up.
    fn take(&self, present: &Self) {
        let _ = prctl(libc::PR_SET_KEEPCAPS, 1);
        let numbers = [libc::SYS_setresgid, libc::SYS_setresuid];
        let ids = [(self.gids, present.gids), (self.uids, present.uids)];
        for (number, (wanted, present)) in numbers.into_iter().zip(ids) {
            if wanted != present {
                let _ = call(number, wanted.map(|id| id as usize));
            }
        }
        if self.bits | KEEP != present.bits | KEEP {
            let _ = prctl(libc::PR_SET_SECUREBITS, self.bits | KEEP);
        }
        let (mut header, mut halves) = (SETS, [[0u32; 3]; 2]);
        for (n, set) in self.capabilities.into_iter().enumerate() {
            halves[0][n] = set as u32;
            halves[1][n] = (set >> 32) as u32;
        }
        let places = [
            header.as_mut_ptr() as usize,
            halves.as_mut_ptr() as usize,
            0,
        ];
        let _ = call(libc::SYS_capset, places);
        let _ = prctl(libc::PR_SET_KEEPCAPS, u64::from(self.bits & KEEP != 0));
    }
}

type Handler = extern "C" fn(c_int, *mut c_void, *mut c_void);

/// The address of the C library's own handler of the signal.
static OF_C_LIBRARY: AtomicUsize = AtomicUsize::new(0);

extern "C" fn follow(signal: c_int, info: *mut c_void, context: *mut c_void) {
    if threads::is_service() {
        let (wanted, present) = (Rights::noted(), Rights::of_this_thread());
        if wanted != present {
            wanted.take(&present);
        }
    }
    // SAFETY: the address was the kernel's action for this signal, with these arguments, before ours was.
    let handler = unsafe { core::mem::transmute::<usize, Handler>(OF_C_LIBRARY.load(Relaxed)) };
    handler(signal, info, context);
}

/// Installs our handler ahead of the C library's handler for its signal, which exists once the C library has created
/// a thread. This needs bare system calls, because the C library's functions do not accept this signal.
pub fn follow_program() {
    // These words are the kernel's `sigaction`: the handler comes first.
    let mut action = [0usize; 4];
    let act = |new: usize, old: usize| {
        let args = [SIGNAL, new, old, size_of::<u64>(), 0, 0];
        // SAFETY: the kernel reads or writes four words that live here; the handler stays as long as the process.
        unsafe { raw::syscall(libc::SYS_rt_sigaction, args) }
    };
    let place = action.as_mut_ptr() as usize;
    let has_handler = act(0, place).is_ok() && action[0] > libc::SIG_IGN;
    if has_handler && action[0] != follow as *const () as usize {
        OF_C_LIBRARY.store(action[0], Relaxed);
        action[0] = follow as *const () as usize;
        let _ = act(action.as_mut_ptr() as usize, 0);
    }
}

fn change(which: Change, args: [usize; 3]) -> c_int {
    type Real = extern "C" fn(usize, usize, usize) -> c_int;
    let real = REAL[which as usize].load(Relaxed);
    if real == 0 {
        raw::set_errno(Errno::NOSYS);
        return -1;
    }
    // SAFETY: the C library's function of this name takes as many words or fewer.
    let real = unsafe { core::mem::transmute::<usize, Real>(real) };
    if space::get().is_none() || init::is_starting() {
        return real(args[0], args[1], args[2]);
    }
    on_safe_stack(move || {
        let _blocked = Blocked::new();
        TURN.lock();
        Rights::of_this_thread().note();
        let result = real(args[0], args[1], args[2]);
        TURN.unlock();
        result
    })
}

/// Calls `work` with room for `count` group IDs, in memory that is never evicted.
fn with_list(count: usize, work: impl FnOnce(*mut libc::gid_t) -> c_int) -> c_int {
    let bytes = count.max(1) * size_of::<libc::gid_t>();
    let list = on_safe_stack(move || internal_alloc::allocate(bytes, 16));
    if list.is_null() {
        raw::set_errno(Errno::NOMEM);
        return -1;
    }
    let result = work(list.cast());
    // SAFETY: the block came from that allocator, and no one uses it any more.
    on_safe_stack(move || unsafe { internal_alloc::release(list) });
    result
}

exports! {
    [setuid: Numbers]
    extern "C" fn setuid(uid: libc::uid_t) -> c_int {
        change(Change::Uid, [uid as usize, 0, 0])
    }

    [setgid: Numbers]
    extern "C" fn setgid(gid: libc::gid_t) -> c_int {
        change(Change::Gid, [gid as usize, 0, 0])
    }

    [setresuid: Numbers]
    extern "C" fn seteuid(uid: libc::uid_t) -> c_int {
        change(Change::EffectiveUid, [uid as usize, 0, 0])
    }

    [setresgid: Numbers]
    extern "C" fn setegid(gid: libc::gid_t) -> c_int {
        change(Change::EffectiveGid, [gid as usize, 0, 0])
    }

    [setreuid: Numbers]
    extern "C" fn setreuid(real: libc::uid_t, effective: libc::uid_t) -> c_int {
        change(Change::BothUids, [real as usize, effective as usize, 0])
    }

    [setregid: Numbers]
    extern "C" fn setregid(real: libc::gid_t, effective: libc::gid_t) -> c_int {
        change(Change::BothGids, [real as usize, effective as usize, 0])
    }

    [setresuid: Numbers]
    extern "C" fn setresuid(
        real: libc::uid_t,
        effective: libc::uid_t,
        saved: libc::uid_t,
    ) -> c_int {
        change(
            Change::AllUids,
            [real, effective, saved].map(|id| id as usize),
        )
    }

    [setresgid: Numbers]
    extern "C" fn setresgid(
        real: libc::gid_t,
        effective: libc::gid_t,
        saved: libc::gid_t,
    ) -> c_int {
        change(
            Change::AllGids,
            [real, effective, saved].map(|id| id as usize),
        )
    }

    [setgroups: Thread]
    unsafe extern "C" fn setgroups(count: usize, list: *const libc::gid_t) -> c_int {
        // A list that is too long is refused without being read. A bad pointer is SIGSEGV here, and EFAULT in the C
        // library.
        if space::get().is_none() || count > MAX_GROUPS {
            return change(Change::Groups, [count, list as usize, 0]);
        }
        with_list(count, |copy| {
            if count > 0 {
                // SAFETY: the caller guarantees this many IDs, and the copy has room for them.
                unsafe { core::ptr::copy_nonoverlapping(list, copy, count) };
            }
            change(Change::Groups, [count, copy as usize, 0])
        })
    }

    /// The C library's function calls its own `setgroups`.
    [setgroups: Thread]
    unsafe extern "C" fn initgroups(user: *const c_char, group: libc::gid_t) -> c_int {
        let mut room = 64;
        loop {
            let mut count = room as c_int;
            let mut fits = false;
            let result = with_list(room, |list| {
                // SAFETY: the caller guarantees a name, and there is room for this many IDs.
                fits = unsafe { libc::getgrouplist(user, group, list, &mut count) } >= 0;
                match fits || room == MAX_GROUPS {
                    true => change(
                        Change::Groups,
                        [(count as usize).min(room), list as usize, 0],
                    ),
                    false => 0,
                }
            });
            if fits || room == MAX_GROUPS || result != 0 {
                return result;
            }
            room = (count as usize).clamp(room * 2, MAX_GROUPS);
        }
    }
}
