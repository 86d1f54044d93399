//! Bytes of the command's own file that are read from one end to the other, and are in memory a piece at a time.
//!
//! The command compares the library that it holds with the one in the cache. All of it would stay in the command's
//! resident set, as long as the program runs that it waits for: forty megabytes of a build with its symbols, where the
//! command needs four. In a container they would count against its limit.

use rustix::mm::{Advice, madvise};

/// The bytes that are in memory at once.
const PIECE: usize = 256 << 10;

/// Bytes of this program's file, which nobody changes.
#[derive(Clone, Copy)]
pub struct Constant(&'static [u8]);

impl Constant {
    /// Notes where the bytes are.
    ///
    /// # Safety
    /// They are a constant of the program: a literal, or a file that was included.
    pub const unsafe fn new(bytes: &'static [u8]) -> Self {
        Self(bytes)
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// The bytes, piece after piece. Each leaves the resident set when the next one is asked for.
    pub fn pieces(self) -> impl Iterator<Item = &'static [u8]> {
        let mut pieces = self.0.chunks(PIECE);
        let mut read = 0_usize;
        std::iter::from_fn(move || {
            // The kernel maps what lies beside a page that is touched, too: some of the piece before may be back.
            self.let_go(read.saturating_sub(2 * PIECE), read);
            let piece = pieces.next()?;
            read += piece.len();
            Some(piece)
        })
    }

    /// Gives up the pages that lie between two bytes.
    fn let_go(self, from: usize, to: usize) {
        let page = rustix::param::page_size();
        let from = from + self.0[from..].as_ptr().align_offset(page);
        let whole = to.saturating_sub(from) / page * page;
        if whole > 0 {
            let start = self.0[from..].as_ptr().cast_mut().cast();
            // SAFETY: the pages are of the program's file and are never written, so whoever reads them again finds the
            // same bytes there.
            let _ = unsafe { madvise(start, whole, Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::Process;

    /// A constant of some megabytes.
    static LONG: [u8; 8 << 20] = [7; 8 << 20];

    /// Resident bytes of the mapping of a file that has this address.
    fn resident(address: usize) -> u64 {
        let maps = Process::myself().and_then(|process| process.smaps());
        let has_it = |&(start, end): &(u64, u64)| (start..end).contains(&(address as u64));
        let mut maps = maps.unwrap().into_iter();
        let map = maps.find(|map| has_it(&map.address));
        map.unwrap().extension.map["Rss"]
    }

    #[test]
    fn what_was_read_is_not_resident_and_can_be_read_again() {
        // SAFETY: it is a static that nobody can change.
        let constant = unsafe { Constant::new(&LONG) };
        let at = LONG.as_ptr() as usize;
        for round in 0..2 {
            let before = resident(at);
            let mut seen = 0;
            for piece in constant.pieces() {
                assert!(piece.iter().all(|&byte| byte == 7));
                seen += piece.len();
                // What lies behind a piece may be mapped along with it.
                let grown = resident(at).saturating_sub(before);
                assert!(grown < 2 << 20, "round {round}: {grown} bytes at {seen}");
            }
            assert_eq!(seen, LONG.len());
        }
    }
}
