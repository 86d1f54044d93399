//! Every system call of x86-64, by what it is about.
//!
//! The numbers and names are those of Linux 6.12 and later (`arch/x86/entry/syscalls/syscall_64.tbl`), the arguments
//! those of the manual pages and of the kernel's own declarations (`include/linux/syscalls.h`). A test compares the
//! names and numbers with the header of the system that it runs on: a call that is missing here fails it.
//!
//! Calls that the kernel has a number for and no code (`create_module`, `vserver`) have no arguments here.

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

/// The calls by number.
static BY_NUMBER: [Option<&Call>; NUMBERS] = by_number();

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

/// The call of this number, if the table has it.
///
/// ```
/// use millpond_guard::table;
/// assert_eq!(table::call(1).unwrap().name, "write");
/// assert!(table::call(511).is_none());
/// ```
#[must_use]
pub fn call(number: u64) -> Option<&'static Call> {
    BY_NUMBER
        .get(usize::try_from(number).ok()?)
        .copied()
        .flatten()
}

/// All calls, in the order of their numbers.
pub fn calls() -> impl Iterator<Item = &'static Call> {
    BY_NUMBER.iter().flatten().copied()
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

/// The kernel reads so many bytes.
const fn reads_bytes(bytes: u32) -> Argument {
    reads(Extent::Bytes(bytes))
}

/// The kernel writes so many bytes.
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

    const HEADERS: [&str; 2] = [
        "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
        "/usr/include/asm/unistd_64.h",
    ];

    /// The system's own list grows with its kernel. A call that the table does not know would pass the filter with an
    /// address of absent memory.
    #[test]
    fn every_call_of_the_system_is_there_by_its_name() {
        let Some(header) = HEADERS
            .iter()
            .find_map(|path| fs::read_to_string(path).ok())
        else {
            println!("skipped: no unistd_64.h (Debian: linux-libc-dev)");
            return;
        };
        let mut seen = 0;
        for line in header.lines() {
            let Some(definition) = line.strip_prefix("#define __NR_") else {
                continue;
            };
            let (name, number) = definition.split_once(' ').unwrap();
            let found = call(number.trim().parse().unwrap()).map(|call| call.name);
            assert_eq!(found, Some(name), "{number}");
            seen += 1;
        }
        assert!(seen > 350, "{seen} calls in the header");
    }

    #[test]
    fn extents_refer_to_arguments_that_the_call_has() {
        for call in calls() {
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
