//! `posix_spawn`: everything that its child reads or names is copied out of the space.
//!
//! The child runs on its parent's memory, with all signals blocked and caught ones reset to their defaults. It reads
//! the attributes and the actions, opens the files that these name, and becomes the program. So it must not touch
//! absent memory or pass the kernel an address of the space. Copies live until the call returns; by then the child
//! has become another program or has failed.
//!
//! The C library's own record of the call lies on the caller's stack, and the child passes parts of it to the kernel.
//! A caller whose stack lies in the space makes the call on one of our stacks.
//!
//! `posix_spawnp` also reads `PATH` in the child. For that it walks the parent's environment, which is held.

use super::environment::{self, copied};
use crate::guard::holds::Holds;
use crate::guard::is_on;
use crate::guard::real::Real;
use crate::park::Busy;
use crate::space;
use crate::stack_switch::on_safe_stack;
use core::ffi::{CStr, c_char, c_int};
use libc::{pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

type Text = *const c_char;
type Spawn = unsafe extern "C" fn(
    *mut pid_t,
    Text,
    *const posix_spawn_file_actions_t,
    *const posix_spawnattr_t,
    *const Text,
    *const Text,
) -> c_int;

/// The C library's list of file actions: their number, and their address. The other fields are not used.
#[derive(Clone, Copy)]
#[repr(C)]
struct Actions {
    allocated: c_int,
    used: c_int,
    at: *const Action,
    rest: [c_int; 16],
}

/// One action: its type, and up to three words, some of which are strings. Numbers never look like an address of the
/// space.
type Action = [usize; 4];

const _: () = assert!(size_of::<Actions>() == size_of::<posix_spawn_file_actions_t>());

/// The memory that a child reads, outside the space.
struct Copies {
    texts: Vec<Box<CStr>>,
    lists: [Vec<Text>; 2],
    actions: Option<Box<Actions>>,
    list: Vec<Action>,
    attributes: Option<Box<posix_spawnattr_t>>,
}

impl Copies {
    fn new() -> Self {
        Self {
            texts: Vec::new(),
            lists: [Vec::new(), Vec::new()],
            actions: None,
            list: Vec::new(),
            attributes: None,
        }
    }

    /// Returns the string, or a copy if it lies in the space.
    ///
    /// # Safety
    /// The string ends with a zero.
    unsafe fn text(&mut self, at: Text) -> Text {
        if !space::contains(at as usize) {
            return at;
        }
        // SAFETY: the caller promises this.
        let copy: Box<CStr> = unsafe { CStr::from_ptr(at) }.into();
        let at = copy.as_ptr();
        self.texts.push(copy);
        at
    }

    /// Returns a copy of a list of strings, and copies those that lie in the space.
    ///
    /// # Safety
    /// The list ends with a null, and the strings with zeros.
    unsafe fn list(&mut self, which: usize, at: *const Text) -> *const Text {
        if at.is_null() {
            return at;
        }
        // SAFETY: the caller promises this.
        let mut list = unsafe { copied(at) };
        for text in &mut list {
            // SAFETY: the caller promises this.
            *text = unsafe { self.text(*text) };
        }
        self.lists[which] = list;
        self.lists[which].as_ptr()
    }

    /// Returns a copy of the actions, with copies of the strings that they name.
    ///
    /// # Safety
    /// The actions are valid.
    unsafe fn actions(
        &mut self,
        at: *const posix_spawn_file_actions_t,
    ) -> *const posix_spawn_file_actions_t {
        if at.is_null() {
            return at;
        }
        // SAFETY: the caller promises actions, which begin with these fields.
        let mut actions = unsafe { at.cast::<Actions>().read() };
        if actions.used > 0 && !actions.at.is_null() {
            // SAFETY: the C library's list has that many actions.
            let list = unsafe { core::slice::from_raw_parts(actions.at, actions.used as usize) };
            let mut list = list.to_vec();
            for word in list.as_flattened_mut() {
                // SAFETY: a word of an action that looks like an address of the space is a string.
                *word = unsafe { self.text(*word as Text) } as usize;
            }
            self.list = list;
            actions.at = self.list.as_ptr();
        }
        core::ptr::from_ref(self.actions.insert(Box::new(actions)).as_ref()).cast()
    }

    /// Returns a copy of the attributes.
    ///
    /// # Safety
    /// The attributes are valid.
    unsafe fn attributes(&mut self, at: *const posix_spawnattr_t) -> *const posix_spawnattr_t {
        if at.is_null() {
            return at;
        }
        // SAFETY: the caller promises this.
        let copy = Box::new(unsafe { at.read() });
        core::ptr::from_ref(self.attributes.insert(copy).as_ref())
    }
}

/// The arguments of a call, as they are passed on.
#[derive(Clone, Copy)]
struct Arguments {
    pid: *mut pid_t,
    file: Text,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: *const Text,
    envp: *const Text,
}

unsafe fn spawn(real: &Real<Spawn>, by_name: bool, call: Arguments) -> c_int {
    let Some(real) = real.get() else {
        return libc::ENOSYS;
    };
    if !is_on() {
        let _busy = Busy::begin();
        // SAFETY: the caller guarantees this.
        return unsafe { make(real, call) };
    }
    let mut copies = Copies::new();
    // SAFETY: the caller guarantees what these need.
    let call = unsafe {
        Arguments {
            pid: call.pid,
            file: copies.text(call.file),
            actions: copies.actions(call.actions),
            attributes: copies.attributes(call.attributes),
            argv: copies.list(0, call.argv),
            envp: copies.list(1, call.envp),
        }
    };
    let mut holds = Holds::new();
    if by_name {
        environment::hold(&mut holds);
    }
    if !holds.are_complete() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller guarantees this, and the copies have the same contents.
    on_safe_stack(move || unsafe { make(real, call) })
}

unsafe fn make(real: Spawn, call: Arguments) -> c_int {
    let Arguments {
        pid,
        file,
        actions,
        attributes,
        argv,
        envp,
    } = call;
    // SAFETY: the caller guarantees this.
    unsafe { real(pid, file, actions, attributes, argv, envp) }
}

exports! {
    real SPAWN: Spawn = c"posix_spawn";
    real SPAWNP: Spawn = c"posix_spawnp";

    [clone3: Child]
    unsafe extern "C" fn posix_spawn(
        pid: *mut pid_t,
        file: Text,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const Text,
        envp: *const Text,
    ) -> c_int = unsafe {
        let call = Arguments {
            pid,
            file,
            actions,
            attributes,
            argv,
            envp,
        };
        spawn(&SPAWN, false, call)
    }

    [clone3: Child]
    unsafe extern "C" fn posix_spawnp(
        pid: *mut pid_t,
        file: Text,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: *const Text,
        envp: *const Text,
    ) -> c_int = unsafe {
        let call = Arguments {
            pid,
            file,
            actions,
            attributes,
            argv,
            envp,
        };
        spawn(&SPAWNP, true, call)
    }
}
