//! Every system call, by topic.
//!
//! The rows have the numbers of x86-64, by which the rest of the crate identifies a call on every architecture. A
//! [`Machine`] has the calls by the architecture's own numbers.
//!
//! The numbers and names are those of Linux 6.12 and later (`arch/x86/entry/syscalls/syscall_64.tbl`), the arguments
//! those of the manual pages and of the kernel's own declarations (`include/linux/syscalls.h`). A test compares the
//! names and numbers with the header of the system on which it runs: it fails if a call is missing here.
//!
//! Calls for which the kernel has a number but no code (`create_module`, `vserver`) have no arguments here.

mod aarch64;
mod descriptors;
mod files;
mod memory;
mod network;
mod processes;
mod system;
mod time;

use crate::call::{Access, Argument, Call, Extent};

/// Calls have numbers below this.
pub const NUMBERS: usize = 512;

const GROUPS: [&[Call]; 7] = [
    descriptors::CALLS,
    files::CALLS,
    memory::CALLS,
    network::CALLS,
    processes::CALLS,
    system::CALLS,
    time::CALLS,
];

/// The calls of an architecture.
pub struct Machine {
    /// The architecture's name for filters (`AUDIT_ARCH_...`).
    pub architecture: u32,
    /// Numbers from here on are calls with another pointer size, whose addresses lie below every arena.
    pub(crate) narrow_from: Option<u32>,
    by_number: [Option<&'static Call>; NUMBERS],
}

/// x86-64.
pub static X86_64: Machine = Machine {
    architecture: 0xc000_003e,
    narrow_from: Some(1 << 30),
    by_number: by_number(),
};

/// aarch64.
pub static AARCH64: Machine = Machine {
    architecture: 0xc000_00b7,
    narrow_from: None,
    by_number: on_aarch64(),
};

pub use crate::arch::HERE;

impl Machine {
    /// The call of this number, if the table has it.
    #[must_use]
    pub fn call(&self, number: u64) -> Option<&'static Call> {
        let entry = self.by_number.get(usize::try_from(number).ok()?);
        entry.copied().flatten()
    }

    /// All calls with their numbers, in the order of these.
    pub fn calls(&self) -> impl Iterator<Item = (u16, &'static Call)> {
        let numbered = self.by_number.iter().enumerate();
        numbered.filter_map(|(number, call)| Some((number as u16, (*call)?)))
    }
}

const fn by_number() -> [Option<&'static Call>; NUMBERS] {
    let mut table = [None; NUMBERS];
    let mut group = 0;
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].len() {
            let call = &GROUPS[group][at];
            assert!(
                table[call.number as usize].is_none(),
                "a number is there twice"
            );
            table[call.number as usize] = Some(call);
            at += 1;
        }
        group += 1;
    }
    table
}

const fn on_aarch64() -> [Option<&'static Call>; NUMBERS] {
    let mut table = [None; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        table[number] = if number < aarch64::FIRST.len() {
            Some(named(aarch64::FIRST[number]))
        } else if number >= aarch64::ALIKE_FROM {
            X86_64.by_number[number]
        } else if number >= aarch64::SECOND_FROM
            && number < aarch64::SECOND_FROM + aarch64::SECOND.len()
        {
            Some(named(aarch64::SECOND[number - aarch64::SECOND_FROM]))
        } else {
            None
        };
        let mut at = 0;
        while at < aarch64::OTHERWISE.len() {
            let other = &aarch64::OTHERWISE[at];
            if let Some(call) = table[number]
                && call.number == other.number
            {
                table[number] = Some(other);
            }
            at += 1;
        }
        number += 1;
    }
    table
}

/// The call of this name. It is looked up at compile time, so an unknown name is a compile error.
const fn named(name: &str) -> &'static Call {
    let mut group = 0;
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].len() {
            if is_same(GROUPS[group][at].name, name) {
                return &GROUPS[group][at];
            }
            at += 1;
        }
        group += 1;
    }
    panic!("no call has this name")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The call of this number on the architecture for which this is compiled, if the table has it.
///
/// ```
/// use millpond_guard::table;
/// assert_eq!(table::X86_64.call(1).unwrap().name, "write");
/// assert_eq!(table::AARCH64.call(64).unwrap().name, "write");
/// assert!(table::call(511).is_none());
/// ```
#[must_use]
pub fn call(number: u64) -> Option<&'static Call> {
    HERE.call(number)
}

const fn row(number: u16, name: &'static str, arguments: &'static [Argument]) -> Call {
    Call {
        number,
        name,
        arguments,
    }
}

/// A number or a descriptor.
const VALUE: Argument = Argument::Value;
/// Pages that are not touched.
const PAGES: Argument = Argument::Pages;
/// A path or another text that the kernel reads.
const TEXT: Argument = reads(Extent::Text);

const fn reads(extent: Extent) -> Argument {
    Argument::Memory(Access::Reads, extent)
}

const fn writes(extent: Extent) -> Argument {
    Argument::Memory(Access::Writes, extent)
}

/// The kernel reads this many bytes.
const fn reads_bytes(bytes: u32) -> Argument {
    reads(Extent::Bytes(bytes))
}

/// The kernel writes this many bytes.
const fn writes_bytes(bytes: u32) -> Argument {
    writes(Extent::Bytes(bytes))
}

const BY_COMMAND: Extent = Extent::ByCommand;
const MESSAGE: Extent = Extent::Message;
const TEXTS: Extent = Extent::Texts;

const fn bits(of: u8) -> Extent {
    Extent::Bits { of }
}

const fn page_bytes(of: u8) -> Extent {
    Extent::PageBytes { of }
}

const fn pointed_to(of: u8) -> Extent {
    Extent::PointedTo { of }
}

const fn vector(of: u8) -> Extent {
    Extent::Vector { of }
}

const fn messages(of: u8) -> Extent {
    Extent::Messages { of }
}

const fn sized(offset: u32, least: u32, plus: u32) -> Extent {
    Extent::Sized {
        offset,
        least,
        plus,
    }
}

/// As many bytes as argument `of` says.
const fn counted(of: u8) -> Extent {
    items(of, 1)
}

/// As many items of `size` bytes as argument `of` says.
const fn items(of: u8, size: u32) -> Extent {
    Extent::Items { of, size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ARGUMENTS;
    use std::fs;

    const ON_X86_64: [&str; 2] = [
        "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
        "/usr/include/asm/unistd_64.h",
    ];
    const ON_AARCH64: [&str; 1] = ["/usr/include/asm-generic/unistd.h"];

    /// The first of these headers that exists: its definitions as pairs of words.
    fn definitions(headers: &[&str]) -> Option<Vec<(String, String)>> {
        let header = headers
            .iter()
            .find_map(|path| fs::read_to_string(path).ok());
        let Some(header) = header else {
            println!("skipped: no {} (Debian: linux-libc-dev)", headers[0]);
            return None;
        };
        let pair = |line: &str| {
            let mut words = line.strip_prefix("#define __NR")?.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        };
        Some(header.lines().filter_map(pair).collect())
    }

    /// The system's own list grows with its kernel. A call missing from the table would pass the filter with an address
    /// of absent memory.
    #[test]
    fn every_system_call_is_in_the_table_under_its_name() {
        let Some(header) = definitions(&ON_X86_64) else {
            return;
        };
        assert!(header.len() > 350, "{} calls in the header", header.len());
        for (name, number) in header {
            let found = X86_64.call(number.parse().unwrap()).map(|call| call.name);
            assert_eq!(found, name.strip_prefix('_'), "{number}");
        }
    }

    /// The header for architectures without a list of their own names some calls twice: by a number and a name for both
    /// sizes of pointer, and by the name that 64-bit programs use.
    #[test]
    fn every_aarch64_call_is_in_the_table_under_its_name() {
        let Some(header) = definitions(&ON_AARCH64) else {
            return;
        };
        let mut seen = 0;
        for (name, number) in &header {
            let number = match number.strip_prefix("__NR3264") {
                // The first of two definitions is that for 64 bits.
                Some(both) => match header
                    .iter()
                    .find(|(name, _)| name.strip_prefix("3264") == Some(both))
                {
                    Some((_, number)) => number,
                    None => continue,
                },
                None => number,
            };
            let Ok(number) = number.parse() else { continue };
            let is_narrow = (403..aarch64::ALIKE_FROM as u64).contains(&number);
            let ours = match name.strip_prefix('_') {
                // Another architecture's order of arguments, a count, and the end of the list.
                Some("sync_file_range2" | "arch_specific_syscall" | "syscalls") | None => continue,
                // Names for 32 bits.
                Some(
                    "fcntl64" | "statfs64" | "fstatfs64" | "truncate64" | "ftruncate64" | "llseek"
                    | "sendfile64" | "fstatat64" | "fstat64" | "mmap2" | "fadvise64_64",
                ) => continue,
                Some(_) if is_narrow => continue,
                Some(name) => name,
            };
            let found = AARCH64.call(number).map(|call| call.name);
            assert_eq!(found, Some(ours), "{number}");
            seen += 1;
        }
        assert!(seen > 300, "{seen} calls in the header");
    }

    #[test]
    fn extents_refer_to_arguments_that_the_call_has() {
        for (_, call) in X86_64.calls().chain(AARCH64.calls()) {
            assert!(call.arguments.len() <= ARGUMENTS, "{}", call.name);
            for argument in call.arguments {
                let (Argument::Memory(_, extent) | Argument::Kept(_, extent)) = argument else {
                    continue;
                };
                let of = match *extent {
                    Extent::Items { of, .. }
                    | Extent::Bits { of }
                    | Extent::PageBytes { of }
                    | Extent::PointedTo { of }
                    | Extent::Vector { of }
                    | Extent::Messages { of } => of,
                    _ => continue,
                };
                let other = call.arguments.get(usize::from(of));
                let is_pointer = matches!(other, Some(Argument::Memory(..) | Argument::Kept(..)));
                let must_be = matches!(extent, Extent::PointedTo { .. });
                assert!(other.is_some() && is_pointer == must_be, "{}", call.name);
            }
        }
    }
}
