//! Bytes of the command's own file that are read sequentially, with only a piece at a time in memory.
//!
//! The command compares the library that it contains with the one in the cache. The whole library would stay in the
//! command's resident set for as long as the program runs: forty megabytes for a build with symbols, where the command
//! needs four. In a container they would count against its limit.

use rustix::mm::{Advice, madvise};

/// The most bytes that are in memory at once.
const PIECE: usize = 256 << 10;

/// Bytes of this program's file, which never change.
#[derive(Clone, Copy)]
pub struct Constant(&'static [u8]);

impl Constant {
    /// Records where the bytes are.
    ///
    /// # Safety
    /// They are a constant of the program: a literal, or an included file.
    pub const unsafe fn new(bytes: &'static [u8]) -> Self {
        Self(bytes)
    }

    /// Number of bytes.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// The bytes, piece by piece. Each leaves the resident set when the next one is requested.
    pub fn pieces(self) -> impl Iterator<Item = &'static [u8]> {
        let mut pieces = self.0.chunks(PIECE);
        let mut read = 0_usize;
        std::iter::from_fn(move || {
            // The kernel also maps the neighbours of a touched page: some of the previous piece may be back.
            self.let_go(read.saturating_sub(2 * PIECE), read);
            let piece = pieces.next()?;
            read += piece.len();
            Some(piece)
        })
    }

    /// Releases the pages that lie between two bytes.
    fn let_go(self, from: usize, to: usize) {
        let page = rustix::param::page_size();
        let from = from + self.0[from..].as_ptr().align_offset(page);
        let whole = to.saturating_sub(from) / page * page;
        if whole > 0 {
            let start = self.0[from..].as_ptr().cast_mut().cast();
            // SAFETY: the pages belong to the program's file and are never written, so a later read finds the same
            // bytes there.
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
    fn constant_is_not_resident_after_reading_and_can_be_reread() {
        // SAFETY: it is a static that cannot change.
        let constant = unsafe { Constant::new(&LONG) };
        let at = LONG.as_ptr() as usize;
        for round in 0..2 {
            let before = resident(at);
            let mut seen = 0;
            for piece in constant.pieces() {
                assert!(piece.iter().all(|&byte| byte == 7));
                seen += piece.len();
                // The pages after a piece may be mapped along with it.
                let grown = resident(at).saturating_sub(before);
                assert!(grown < 2 << 20, "round {round}: {grown} bytes at {seen}");
            }
            assert_eq!(seen, LONG.len());
        }
    }
}
