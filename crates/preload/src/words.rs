//! Text in buffers of a fixed length: these calls may be made in a signal handler, which must not allocate.

use core::ffi::CStr;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{Mode, OFlags};

/// Reads the start of a file: as much of it as fits in `into`.
pub fn read_path<'a>(path: &CStr, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    read(&file, into)
}

/// Reads an open file from its start, without moving its offset.
pub fn read(file: impl AsFd, into: &mut [u8]) -> Option<&[u8]> {
    let mut len = 0;
    while len < into.len() {
        match rustix::io::pread(&file, &mut into[len..], len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(_) => return None,
        }
    }
    Some(&into[..len])
}

/// Writes an open file's path, as the kernel has it, and returns its length, or `None` if it does not fit.
pub fn path_of(file: impl AsFd, into: &mut [u8]) -> Option<usize> {
    let name = name_of(file);
    let name = CStr::from_bytes_with_nul(name.bytes()).ok()?;
    let room = into.len();
    let len = rustix::fs::readlinkat_raw(rustix::fs::CWD, name, into).ok()?;
    (len < room).then_some(len)
}

/// Returns the name under which this process finds one of its open files, with the zero at its end.
pub fn name_of(file: impl AsFd) -> Text<32> {
    let mut name = Text::new();
    name.add(b"/proc/self/fd/");
    name.add_number(file.as_fd().as_raw_fd() as u64);
    name.add(b"\0");
    name
}

/// Parses a decimal number, surrounded by nothing but white space.
pub fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// Parses the numbers at these places of a line, counted from 0.
fn numbers<const N: usize>(line: &[u8], places: [usize; N]) -> Option<[usize; N]> {
    let mut found = [0; N];
    for (found, place) in found.iter_mut().zip(places) {
        let word = line.split(u8::is_ascii_whitespace).nth(place)?;
        *found = usize::try_from(number(word)?).ok()?;
    }
    Some(found)
}

/// Reads the numbers at these places of `/proc/self/statm`: what the process has, in pages.
pub fn statm<const N: usize>(places: [usize; N]) -> Option<[usize; N]> {
    let mut text = [0; 128];
    numbers(read_path(c"/proc/self/statm", &mut text)?, places)
}

/// Text of at most `N` bytes. Anything that does not fit is omitted.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn add(&mut self, more: &[u8]) {
        let fits = more.len().min(N - self.len);
        self.bytes[self.len..self.len + fits].copy_from_slice(&more[..fits]);
        self.len += fits;
    }

    pub fn add_number(&mut self, number: u64) {
        self.add_number_at_right(number, 0);
    }

    /// Adds a number, padded with spaces on the left to at least `width` bytes.
    pub fn add_number_at_right(&mut self, mut number: u64, width: usize) {
        const MOST: usize = 20;
        let mut digits = [b' '; MOST];
        let mut at = MOST;
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        for _ in MOST..width {
            self.add(b" ");
        }
        self.add(&digits[at.min(MOST - width.min(MOST))..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned() {
        let mut text = Text::<64>::new();
        text.add_number(0);
        text.add(b" ");
        text.add_number_at_right(1234, 6);
        text.add_number_at_right(1_234_567, 3);
        text.add_number_at_right(5, 22);
        assert_eq!(text.bytes(), b"0   12341234567                     5");
    }

    #[test]
    fn text_that_does_not_fit_is_truncated() {
        let mut text = Text::<4>::new();
        text.add(b"abc");
        text.add(b"def");
        assert_eq!(text.bytes(), b"abcd");
    }

    #[test]
    fn numbers_are_read_from_their_places_in_a_line() {
        assert_eq!(
            numbers(b"1000 300 20 5 0 400 0\n", [2, 5]).map(|[shared, data]| shared + data),
            Some(420)
        );
        for odd in [&b""[..], b"1 2 3", b"1 2 x 4 5 6 7", &[0xff; 8]] {
            assert_eq!(numbers(odd, [2, 5]), None, "{odd:?}");
        }
    }

    #[test]
    fn a_number_is_read_with_its_line_end_and_nothing_else() {
        assert_eq!(number(b"4096\n"), Some(4096));
        assert_eq!(number(b"max\n"), None);
        assert_eq!(number(b""), None);
    }
}
