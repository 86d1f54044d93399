//! Becoming another program: paths, arguments and environment are held while the kernel reads them.
//!
//! The filter sees the three addresses of `execve` and nothing of the texts that the lists name. A call that succeeds
//! ends this process image and all that it holds. In the child of a `vfork` it leaves its holds in the table that the
//! parent goes on with: the parent's next call takes them away, since it stands higher in the same stack.
//!
//! `execl` and its relatives have their arguments in registers and on the stack. The routines here put the registers
//! below the stack's part, where they form the list, and go on with the functions that take a list. A list in the
//! middle of `execle` is followed by the environment.

use super::{environment, search, traced};
use crate::guard::call::{self, Way};
use crate::guard::holds::Holds;
use crate::guard::is_on;
use crate::guard::real::{Find, Real};
use core::ffi::{c_char, c_int};
use rustix::io::Errno;

pub type Texts = *const *const c_char;
type Execve = unsafe extern "C" fn(*const c_char, Texts, Texts) -> c_int;
type Fexecve = unsafe extern "C" fn(c_int, Texts, Texts) -> c_int;
type Execveat = unsafe extern "C" fn(c_int, *const c_char, Texts, Texts, c_int) -> c_int;

// SAFETY: the C library's function has this type.
static EXECVE: Real<Execve> = unsafe { Real::named(c"execve") };
// SAFETY: the C library's function has this type.
static EXECVPE: Real<Execve> = unsafe { Real::named(c"execvpe") };
// SAFETY: the C library's function has this type.
static FEXECVE: Real<Fexecve> = unsafe { Real::named(c"fexecve") };
// SAFETY: the C library's function has this type.
static EXECVEAT: Real<Execveat> = unsafe { Real::named(c"execveat") };

pub const FUNCTIONS: &[&dyn Find] = &[&EXECVE, &EXECVPE, &FEXECVE, &EXECVEAT];

fn hold(path: *const c_char, argv: Texts, envp: Texts) -> Option<Holds> {
    let mut holds = Holds::new();
    holds.text(path);
    holds.texts(argv);
    holds.texts(envp);
    holds.are_complete().then_some(holds)
}

/// Makes the call at the gate, with the texts held.
unsafe fn held(
    path: *const c_char,
    argv: Texts,
    envp: Texts,
    number: i64,
    args: [usize; 6],
) -> c_int {
    let Some(_holds) = hold(path, argv, envp) else {
        return crate::c_answer(Err(Errno::NOMEM)) as c_int;
    };
    traced::begin(number, &args);
    // SAFETY: the caller guarantees what this call needs.
    crate::c_answer(unsafe { call::make(number, &args, Way::Plain) }) as c_int
}

/// Replaces the C library's `execve`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execve(path: *const c_char, argv: Texts, envp: Texts) -> c_int {
    match EXECVE.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !is_on() => unsafe { real(path, argv, envp) },
        _ => {
            let args = [path as usize, argv as usize, envp as usize, 0, 0, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { held(path, argv, envp, libc::SYS_execve, args) }
        }
    }
}

/// Replaces the C library's `execv`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execv(path: *const c_char, argv: Texts) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { execve(path, argv, environment::list()) }
}

/// Replaces the C library's `execvpe`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: Texts, envp: Texts) -> c_int {
    match EXECVPE.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !is_on() => unsafe { real(file, argv, envp) },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe { search::execvpe(file, argv, envp) },
    }
}

/// Replaces the C library's `execvp`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Texts) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { execvpe(file, argv, environment::list()) }
}

/// Replaces the C library's `fexecve`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: Texts, envp: Texts) -> c_int {
    match FEXECVE.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !is_on() || fd < 0 || argv.is_null() || envp.is_null() => unsafe {
            real(fd, argv, envp)
        },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe { execveat(fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH) },
    }
}

/// Replaces the C library's `execveat`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execveat(
    fd: c_int,
    path: *const c_char,
    argv: Texts,
    envp: Texts,
    flags: c_int,
) -> c_int {
    match EXECVEAT.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !is_on() => unsafe { real(fd, path, argv, envp, flags) },
        _ => {
            let [fd, flags] = [fd as usize, flags as usize];
            let args = [fd, path as usize, argv as usize, envp as usize, flags, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { held(path, argv, envp, libc::SYS_execveat, args) }
        }
    }
}

/// `execle` with its arguments as a list, behind whose null the environment is named.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn execle_with(path: *const c_char, argv: Texts) -> c_int {
    let mut at = argv;
    // SAFETY: the caller guarantees a list that ends with a null, and the environment behind it.
    unsafe {
        while !at.read().is_null() {
            at = at.add(1);
        }
        execve(path, argv, at.add(1).read().cast())
    }
}

/// Defines a function with a path and any number of further arguments, which goes on in `$with` with a list of these.
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($name:ident, $with:path) => {
        /// Replaces the C library's function of this name.
        ///
        /// # Safety
        /// The conditions are those of the function that this one replaces.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(_path: *const c_char) -> c_int {
            core::arch::naked_asm!(
                // The registers go below the arguments on the stack, in the place of the return address and under it.
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {with}",
                "pop r11",
                "add rsp, 40",
                "push r11",
                "ret",
                with = sym $with,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
variadic!(execl, execv);
#[cfg(target_arch = "x86_64")]
variadic!(execlp, execvp);
#[cfg(target_arch = "x86_64")]
variadic!(execle, execle_with);
