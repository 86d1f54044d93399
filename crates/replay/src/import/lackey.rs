//! The output of `valgrind --tool=lackey --trace-mem=yes`, a line for each instruction and each access to data:
//!
//! ```text
//! I  0023c790,2
//!  L be801f5c,4
//!  S be80199c,4
//!  M 0025747c,1
//! ```
//!
//! The lines are a load, a store and both at once, with the address in hexadecimal and the length in bytes. An access
//! that crosses pages is one access to each. Instructions are skipped unless they are requested. Lines of valgrind
//! itself (`==123== …`) are skipped.

use super::Access;
use super::input::Input;
use super::lines::Lines;
use crate::error::TraceError;
use std::ops::RangeInclusive;

const WANTED: &str = "a line of lackey such as ` L be801f5c,4`";
const PAGE_SHIFT: u32 = 12;
/// Longest access that counts as one: a processor's longest access is far shorter, so more than this is damage.
const LONGEST_ACCESS: u64 = 1 << 16;

/// A reader of lackey's output.
#[derive(Debug)]
pub struct Lackey<'a> {
    lines: Lines<'a>,
    instructions: bool,
    /// Pages of the last line that have not been returned yet.
    rest: Option<(RangeInclusive<u64>, bool)>,
    failed: bool,
}

/// The contents of a line: the pages, whether they are written, whether it is an instruction.
type Said = (RangeInclusive<u64>, bool, bool);

impl<'a> Lackey<'a> {
    /// A reader of the accesses of `input`: those to data only, unless `instructions` is set.
    #[must_use]
    pub fn new(input: Input<'a>, instructions: bool) -> Self {
        Self {
            lines: Lines::new(input),
            instructions,
            rest: None,
            failed: false,
        }
    }
}

impl Iterator for Lackey<'_> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            if let Some((pages, write)) = &mut self.rest {
                if let Some(page) = pages.next() {
                    let write = *write;
                    return Some(Ok(Access { page, write }));
                }
                self.rest = None;
            }
            match self.lines.next(WANTED, parse) {
                Ok(Some(Some((pages, write, instruction)))) => {
                    if self.instructions || !instruction {
                        self.rest = Some((pages, write));
                    }
                }
                Ok(Some(None)) => {}
                Ok(None) => return None,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// Parses a line. `None` if the line is not lackey's, `Some(None)` if it has no access.
fn parse(line: &str) -> Option<Option<Said>> {
    let line = line.trim_ascii_end();
    if line.is_empty() || line.starts_with("==") || line.starts_with("--") {
        return Some(None);
    }
    let (write, instruction) = match line.get(..3)? {
        "I  " => (false, true),
        " L " => (false, false),
        " S " | " M " => (true, false),
        _ => return None,
    };
    let (address, length) = line[3..].split_once(',')?;
    if address.starts_with('+') {
        return None;
    }
    let address = u64::from_str_radix(address, 16).ok()?;
    let length: u64 = length.parse().ok()?;
    if length > LONGEST_ACCESS {
        return None;
    }
    let last = address.checked_add(length.max(1) - 1)?;
    let pages = address >> PAGE_SHIFT..=last >> PAGE_SHIFT;
    Some(Some((pages, write, instruction)))
}

/// Whether the beginning of a file is lackey's output.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let first = text.lines().find_map(|line| match parse(line) {
        Some(None) => None,
        said => Some(said.is_some()),
    });
    first == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "==7== Lackey, an example tool\nI  0400a2f0,3\n L 1ffe,4\n S 2000,8\n M 1ffefff000,1\n\n==7== \n";

    fn read(instructions: bool) -> Vec<(u64, bool)> {
        Lackey::new(Input::new(TEXT.as_bytes()), instructions)
            .map(|access| access.map(|access| (access.page, access.write)).unwrap())
            .collect()
    }

    #[test]
    fn loads_stores_and_modifies_of_lackey_are_parsed() {
        let data = [(1, false), (2, false), (2, true), (0x1ff_efff, true)];
        assert_eq!(read(false), data);
        assert_eq!(read(true)[0], (0x400a, false));
        assert_eq!(read(true)[1..], data);
        assert!(looks_like(TEXT.as_bytes()));
    }

    #[test]
    fn unknown_lackey_lines_are_named_in_the_error() {
        for line in [
            " L xyz,4",
            " L 10",
            "hello",
            " L 10,99999999",
            " L ffffffffffffffff,2",
            "I",
        ] {
            let error = Lackey::new(Input::new(line.as_bytes()), false)
                .find_map(Result::err)
                .unwrap();
            assert!(error.to_string().contains(line), "{error}");
        }
    }
}
