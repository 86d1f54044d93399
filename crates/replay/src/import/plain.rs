//! Text with the number of a page on each line, in decimal or in hexadecimal with `0x`. Empty lines and lines that
//! begin with `#` are skipped.

use super::input::Input;
use super::lines::Lines;
use crate::error::TraceError;

const WANTED: &str = "the number of a page (decimal, or 0x and hexadecimal)";

/// A reader of such text.
#[derive(Debug)]
pub struct Plain<'a> {
    lines: Lines<'a>,
    failed: bool,
}

impl<'a> Plain<'a> {
    /// A reader of the numbers of `input`.
    #[must_use]
    pub fn new(input: Input<'a>) -> Self {
        Self {
            lines: Lines::new(input),
            failed: false,
        }
    }
}

impl Iterator for Plain<'_> {
    type Item = Result<u64, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.lines.next(WANTED, parse) {
                Ok(Some(Some(number))) => return Some(Ok(number)),
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

/// Parses a line. `None` if the line is not in this format, `Some(None)` if it has no number.
fn parse(line: &str) -> Option<Option<u64>> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with('#') {
        return Some(None);
    }
    let number = match line.strip_prefix("0x").or_else(|| line.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16),
        Some(_) => return None,
        None if line.starts_with('+') => return None,
        None => line.parse(),
    };
    number.ok().map(Some)
}

/// Whether the beginning of a file is text in this format.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(head) else {
        return false;
    };
    let whole = text.rfind('\n').map_or(text, |end| &text[..end]);
    let mut numbers = 0;
    for line in whole.lines() {
        match parse(line) {
            Some(said) => numbers += usize::from(said.is_some()),
            None => return false,
        }
    }
    numbers > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_hexadecimal_numbers_are_parsed() {
        let text = b"1\n0x10\r\n\n# a remark\n 7 \n18446744073709551615";
        let numbers: Vec<_> = Plain::new(Input::new(&text[..]))
            .map(Result::unwrap)
            .collect();
        assert_eq!(numbers, [1, 16, 7, u64::MAX]);
    }

    #[test]
    fn an_invalid_number_is_named_with_its_line() {
        for (text, line, offset, shown) in [
            ("1\n2\nthree\n4\n", 3, 4, "three"),
            ("1\n+2\n", 2, 2, "+2"),
            ("0x\n", 1, 0, "0x"),
            ("18446744073709551616\n", 1, 0, "18446744073709551616"),
        ] {
            let mut numbers = Plain::new(Input::new(text.as_bytes()));
            let error = numbers.find_map(Result::err).unwrap();
            let TraceError::BadLine {
                line: at,
                offset: from,
                text,
                ..
            } = error
            else {
                panic!("{error}")
            };
            assert_eq!((at, from, text.as_str()), (line, offset, shown));
            assert!(numbers.next().is_none());
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let endless = std::io::repeat(b'1');
        let error = Plain::new(Input::new(endless)).next().unwrap().unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
