//! Lines of text, in bounded memory.

use super::input::Input;
use crate::error::TraceError;

/// Longest meaningful line.
pub(crate) const LONGEST: usize = 4096;
/// Length of the part of a line that a message shows.
const SHOWN: usize = 60;

/// A reader that goes through a text line by line.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    input: Input<'a>,
    number: u64,
    begin: u64,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(input: Input<'a>) -> Self {
        Self {
            input,
            number: 0,
            begin: 0,
        }
    }

    /// Passes the next line, without its end, to `with`. `None` at the end of the text. `with` returns `None` if the
    /// line is not `wanted`.
    pub(crate) fn next<T>(
        &mut self,
        wanted: &'static str,
        with: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, TraceError> {
        self.begin = self.input.position();
        self.number += 1;
        let seen = self.input.some()?;
        let mut end = seen.iter().position(|&byte| byte == b'\n');
        if end.is_none() && seen.len() < LONGEST {
            end = self
                .input
                .ahead(LONGEST)?
                .iter()
                .position(|&byte| byte == b'\n');
        }
        let (number, offset) = (self.number, self.begin);
        let ahead = self.input.some()?;
        if ahead.is_empty() {
            return Ok(None);
        }
        let line = match end {
            Some(end) => &ahead[..end],
            None => &ahead[..ahead.len().min(LONGEST)],
        };
        let too_long = end.is_none() && line.len() == LONGEST;
        let text = std::str::from_utf8(line).ok();
        let parsed = text.filter(|_| !too_long).and_then(with);
        let Some(parsed) = parsed else {
            let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned();
            return Err(TraceError::BadLine {
                line: number,
                offset,
                text,
                wanted,
            });
        };
        let taken = line.len() + usize::from(end.is_some());
        self.input.take(taken);
        Ok(Some(parsed))
    }
}
