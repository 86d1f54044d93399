//! The exported functions, all defined by one macro: [`exports!`].
//!
//! The program and its libraries find these functions in place of those of the C library, jemalloc, or the libraries
//! for asynchronous I/O, because the dynamic linker searches this library first. So each has the name, the arguments
//! and the ABI of the function that it replaces. An entry of the table states that once, together with the system
//! call that the function makes and the memory that is touched:
//!
//! ```ignore
//! exports! {
//!     /// What a reader must know besides.
//!     [sendmsg: Held]
//!     unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize
//!         = SENDMSG if !message_concerns(message), else unsafe {
//!             point(libc::SYS_sendmsg, [fd as usize, message as usize, flags as usize, 0, 0, 0])
//!         }
//! }
//! ```
//!
//! *How an entry ends.*
//!
//! | end | body |
//! | --- | --- |
//! | `{ … }` | as written; each unsafe block in it argues for itself |
//! | `= unsafe { … }` | as written, unsafe by the caller's promise alone |
//! | `= path;` | calls that function with the same arguments, by the caller's promise |
//! | `= REAL if condition, else { … }`, `else unsafe { … }` | calls the function that is replaced if the condition holds and there is one; otherwise the rest |
//! | `= REAL.must() if condition, else { … }`, `else unsafe { … }` | the same, for functions that each C library has |
//!
//! The last two also define the static `REAL`, a [`Real`](crate::guard::real::Real) of the entry's own name and type.
//! An entry `real PLACE: Type = c"name";` defines such a static alone, for a function of another name or type. A file
//! that has any gets a list of them, `FUNCTIONS`, which is used to look them up before the program runs.
//!
//! *The caller's promise.* An exported function is `unsafe` under the conditions that the manual gives for the
//! function of its name: pointers are valid for what the function does with them, lists and strings are terminated,
//! blocks come from this allocator and are live, and mappings to be changed are the program's own. The program calls
//! a function that it takes for the C library's, so it has made exactly this promise and no other. The promise
//! suffices wherever the arguments are passed on unchanged to something with the same conditions: the replaced
//! function, another name of it, or the system call that it makes. Where a SAFETY comment in this crate says that the
//! caller guarantees what a call needs, it means this promise. Anything else that an export does has an unsafe block
//! and an argument of its own.
//!
//! *`static`s of type `Real`* rest on a fact about the C library: its function of that name has that type. It is also
//! the type of the export, since programs call either through the same declaration.
//!
//! *Unwinding.* Functions in which a thread may be cancelled have the ABI `"C-unwind"`; see [`crate::guard::cancel`].
//!
//! *Constraints.* Exports run in signal handlers, in children of `fork` and `vfork`, before constructors, and while
//! the thread serves a fault. The macro adds nothing to a body: no allocation, no thread-local storage, no lock.
//!
//! *Tests.* In test builds nothing is exported, because a test program that replaced its own `malloc` half-way would
//! test nothing. There each entry puts an [`Export`] into a section of its own. The tests below compare these with
//! the table of system calls (`millpond_guard::table`), with the calls that are served by number
//! ([`crate::syscall`]), and with the list in `docs/INTERFACE.md`.

/// Defines exported functions. The top of this file describes the grammar.
macro_rules! exports {
    (@rest []) => {};
    (@rest [$($found:ident)+]) => {
        /// The replaced functions that this file calls.
        pub const FUNCTIONS: &[&dyn $crate::guard::real::Find] = &[$(&$found),+];
    };
    (@rest [$($found:ident)*] $(#[$meta:meta])* real $place:ident: $type:ty = $name:expr; $($rest:tt)*) => {
        $(#[$meta])*
        pub static $place: $crate::guard::real::Real<$type> =
            // SAFETY: the C library's function of this name has this type.
            unsafe { $crate::guard::real::Real::named($name) };
        $crate::exports::registered! { millpond_reals: &dyn $crate::guard::real::Find = &$place }
        exports! { @rest [$($found)* $place] $($rest)* }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        unsafe extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        { $($body:tt)* }
        $($rest:tt)*
    ) => {
        #[doc = concat!("Replaces the function `", stringify!($name), "`.")]
        ///
        $(#[$meta])*
        ///
        /// # Safety
        /// The conditions are those of the function that this one replaces.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern $abi fn $name($($arg: $type),*) $(-> $answer)? { $($body)* }
        exports! { @listed $name $call $memory }
        exports! { @rest [$($found)*] $($rest)* }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        { $($body:tt)* }
        $($rest:tt)*
    ) => {
        #[doc = concat!("Replaces the function `", stringify!($name), "`.")]
        ///
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub extern $abi fn $name($($arg: $type),*) $(-> $answer)? { $($body)* }
        exports! { @listed $name $call $memory }
        exports! { @rest [$($found)*] $($rest)* }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        unsafe extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        = unsafe { $($body:tt)* }
        $($rest:tt)*
    ) => {
        exports! {
            @rest [$($found)*]
            $(#[$meta])* [$call: $memory] unsafe extern $abi fn $name($($arg: $type),*) $(-> $answer)? {
                // SAFETY: the caller has made the promise described at the top of this file.
                unsafe { $($body)* }
            }
            $($rest)*
        }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        unsafe extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        = $to:path;
        $($rest:tt)*
    ) => {
        exports! {
            @rest [$($found)*]
            $(#[$meta])* [$call: $memory] unsafe extern $abi fn $name($($arg: $type),*) $(-> $answer)? {
                // SAFETY: the caller has made the promise described at the top of this file.
                unsafe { $to($($arg),*) }
            }
            $($rest)*
        }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        unsafe extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        = $real:ident if $condition:expr, else unsafe { $($otherwise:tt)* }
        $($rest:tt)*
    ) => {
        exports! {
            @rest [$($found)*]
            $(#[$meta])* [$call: $memory] unsafe extern $abi fn $name($($arg: $type),*) $(-> $answer)?
            = $real if $condition, else {
                // SAFETY: the caller has made the promise described at the top of this file.
                unsafe { $($otherwise)* }
            }
            $($rest)*
        }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        unsafe extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        = $real:ident if $condition:expr, else { $($otherwise:tt)* }
        $($rest:tt)*
    ) => {
        exports! {
            @rest [$($found)*]
            real $real: unsafe extern $abi fn($($type),*) $(-> $answer)? =
                $crate::guard::real::c_name(concat!(stringify!($name), "\0"));
            $(#[$meta])* [$call: $memory] unsafe extern $abi fn $name($($arg: $type),*) $(-> $answer)? {
                match $real.get() {
                    // SAFETY: the caller has made the promise described at the top of this file.
                    Some(real) if $condition => unsafe { real($($arg),*) },
                    _ => { $($otherwise)* }
                }
            }
            $($rest)*
        }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        unsafe extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        = $real:ident.must() if $condition:expr, else unsafe { $($otherwise:tt)* }
        $($rest:tt)*
    ) => {
        exports! {
            @rest [$($found)*]
            $(#[$meta])* [$call: $memory] unsafe extern $abi fn $name($($arg: $type),*) $(-> $answer)?
            = $real.must() if $condition, else {
                // SAFETY: the caller has made the promise described at the top of this file.
                unsafe { $($otherwise)* }
            }
            $($rest)*
        }
    };
    (
        @rest [$($found:ident)*]
        $(#[$meta:meta])* [$call:ident: $memory:ident]
        unsafe extern $abi:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?
        = $real:ident.must() if $condition:expr, else { $($otherwise:tt)* }
        $($rest:tt)*
    ) => {
        exports! {
            @rest [$($found)*]
            real $real: unsafe extern $abi fn($($type),*) $(-> $answer)? =
                $crate::guard::real::c_name(concat!(stringify!($name), "\0"));
            $(#[$meta])* [$call: $memory] unsafe extern $abi fn $name($($arg: $type),*) $(-> $answer)? {
                if $condition {
                    // SAFETY: the caller has made the promise described at the top of this file.
                    return unsafe { $real.must()($($arg),*) };
                }
                $($otherwise)*
            }
            $($rest)*
        }
    };
    (@listed $name:ident $call:ident $memory:ident) => {
        $crate::exports::registered! {
            millpond_exports: $crate::exports::Export = $crate::exports::Export {
                name: stringify!($name),
                call: stringify!($call),
                memory: $crate::exports::Memory::$memory,
            }
        }
    };
    ($($entries:tt)*) => { exports! { @rest [] $($entries)* } };
}

/// Puts a value into a section of the test program, where the tests find all values of one kind.
macro_rules! registered {
    ($section:ident: $type:ty = $value:expr) => {
        #[cfg(test)]
        const _: () = {
            #[used]
            #[unsafe(link_section = stringify!($section))]
            static VALUE: $type = $value;
        };
    };
}

pub(crate) use registered;

/// An exported function as its entry in the table describes it.
#[cfg(test)]
#[derive(Clone, Copy)]
pub struct Export {
    pub name: &'static str,
    /// The system call that the function makes, whose number a program can use for the same purpose, or `none`.
    pub call: &'static str,
    pub memory: Memory,
}

/// The memory that is touched, and who touches it.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Memory {
    /// None: the arguments are numbers.
    Numbers,
    /// Mappings, which the library keeps account of.
    Mappings,
    /// Memory that the kernel touches according to `millpond_guard::table`. Under direct delivery it is brought in
    /// and held.
    Held,
    /// Memory that a child touches before it serves its own faults.
    Child,
    /// Blocks of the allocator.
    Blocks,
    /// Memory that this thread touches itself, so a fault there is served like any other.
    Thread,
}

#[cfg(test)]
impl Memory {
    const ALL: [Self; 6] = [
        Self::Numbers,
        Self::Mappings,
        Self::Held,
        Self::Child,
        Self::Blocks,
        Self::Thread,
    ];

    /// Returns the words that the list in `docs/INTERFACE.md` uses.
    fn in_words(self) -> &'static str {
        match self {
            Self::Numbers => "none: the arguments are numbers",
            Self::Mappings => "mappings, of which the library keeps an account",
            Self::Held => "what the kernel touches: brought in and held under direct delivery",
            Self::Child => "what a child touches before it serves its own faults",
            Self::Blocks => "blocks of the allocator",
            Self::Thread => "what the calling thread touches by itself",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Export, Memory};
    use crate::guard::real::Find;
    use crate::{dlopen, guard, syscall, tell, threads};
    use millpond_guard::call::{Argument, Call};
    use millpond_guard::table;
    use std::fs;
    use std::path::Path;

    unsafe extern "C" {
        #[link_name = "__start_millpond_exports"]
        static FIRST_EXPORT: u8;
        #[link_name = "__stop_millpond_exports"]
        static END_OF_EXPORTS: u8;
        #[link_name = "__start_millpond_reals"]
        static FIRST_REAL: u8;
        #[link_name = "__stop_millpond_reals"]
        static END_OF_REALS: u8;
    }

    /// Returns what [`registered!`] put into a section.
    ///
    /// # Safety
    /// The linker has placed the two symbols around a section that contains only values of this type.
    unsafe fn section<T>(first: &'static u8, end: &'static u8) -> &'static [T] {
        let [first, end] = [first, end].map(|symbol| core::ptr::from_ref(symbol).cast::<T>());
        // SAFETY: values of one type lie in a section without gaps.
        unsafe { core::slice::from_raw_parts(first, end.offset_from_unsigned(first)) }
    }

    fn exports() -> Vec<Export> {
        // SAFETY: the section of this name contains exports.
        let all: &[Export] = unsafe { section(&FIRST_EXPORT, &END_OF_EXPORTS) };
        let mut all = all.to_vec();
        all.sort_by_key(|export| export.name);
        assert!(all.len() > 150, "{} exports", all.len());
        all
    }

    /// Returns the call of this name. Names are those of x86-64, which has all the calls that are made here.
    fn call(name: &str) -> &'static Call {
        let found = table::X86_64.calls().find(|(_, call)| call.name == name);
        found
            .unwrap_or_else(|| panic!("no call has the name {name}"))
            .1
    }

    #[test]
    fn calls_touch_the_memory_that_the_table_says() {
        for Export {
            name,
            call: of,
            memory,
        } in exports()
        {
            let touches = of != "none" && {
                let touched = |argument: &Argument| {
                    matches!(argument, Argument::Memory(..) | Argument::Kept(..))
                };
                call(of).arguments.iter().any(touched)
            };
            match memory {
                Memory::Numbers => assert!(!touches, "{name}: the kernel touches memory for {of}"),
                // `syscall` makes any call.
                Memory::Held => assert!(
                    touches || of == "none",
                    "{name}: the kernel touches no memory for {of}"
                ),
                Memory::Mappings => assert_ne!(of, "none", "{name}: mappings are changed by calls"),
                Memory::Child | Memory::Blocks | Memory::Thread => {}
            }
        }
    }

    /// A call by number that bypassed the account of mappings would tear a hole in the space.
    #[test]
    fn calls_about_mappings_are_served_by_number_too() {
        for Export { name, call, memory } in exports() {
            if memory != Memory::Mappings {
                continue;
            }
            let here = table::HERE.calls().find(|(_, here)| here.name == call);
            let is_served = here.is_none_or(|(number, _)| syscall::is_served(i64::from(number)));
            assert!(is_served, "{name}: {call} is not in syscall.rs");
        }
    }

    #[test]
    fn functions_that_are_called_are_looked_up_at_the_start() {
        guard::find();
        tell::find();
        threads::find();
        // SAFETY: the section of this name contains functions to look up.
        let all: &[&dyn Find] = unsafe { section(&FIRST_REAL, &END_OF_REALS) };
        assert!(all.len() > 60, "{} functions", all.len());
        for real in all {
            let (name, is_found) = real.found();
            let exists = dlopen::find_next(name).is_some();
            assert_eq!(
                is_found, exists,
                "{name:?}: its file's FUNCTIONS are looked up nowhere"
            );
        }
    }

    #[test]
    fn the_interface_lists_every_exported_function() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/INTERFACE.md");
        let Ok(page) = fs::read_to_string(page) else {
            println!("skipped: no docs/INTERFACE.md beside this crate");
            return;
        };
        for memory in Memory::ALL {
            let all = exports();
            let names = all.iter().filter(|export| export.memory == memory);
            let names: Vec<_> = names.map(|export| format!("`{}`", export.name)).collect();
            let row = format!("| {} | {} |", memory.in_words(), names.join(", "));
            assert!(
                page.lines().any(|line| line == row),
                "docs/INTERFACE.md should have this row:\n{row}"
            );
        }
    }

    /// `__wrap_getenv` is not for programs (`settings.rs`).
    #[test]
    fn no_function_is_exported_past_the_table() {
        fn look(folder: &Path) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    look(&path);
                } else if !path.ends_with("exports.rs") && !path.ends_with("settings.rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    assert!(
                        !text.contains("no_mangle"),
                        "{}: use exports!",
                        path.display()
                    );
                }
            }
        }
        look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    }
}
