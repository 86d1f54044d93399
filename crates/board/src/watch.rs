//! Watching the boards of running processes repeatedly.
//!
//! [`list`](crate::list::list) maps every board anew and permanently, which suits a command that looks once. A command
//! that looks each second for a day would keep every board that ever existed: 700 KiB each of memory that no other
//! process uses any more. So a watch keeps a board mapped from the look that finds it to the look that misses it.

use crate::layout::Page;
use crate::list::{Id, files};
use crate::{BoardError, SlotReading, View};
use std::collections::HashSet;

/// A watch: the boards of running processes, as they come and go.
///
/// ```
/// let (board, _file) = millpond_board::Board::create("index").unwrap();
/// board.claim(7, "index").unwrap();
/// let mut watch = millpond_board::watch::Watch::default();
/// watch.look();
/// let found = watch.boards().find(|board| board.name() == "index").unwrap();
/// assert_eq!(found.slots()[0].pid, 7);
/// ```
#[derive(Debug, Default)]
pub struct Watch {
    boards: Vec<Watched>,
    foreign: HashSet<Id>,
}

/// A board that existed at the last look.
#[derive(Debug)]
pub struct Watched {
    id: Id,
    view: View,
}

impl Watch {
    /// Finds new boards and forgets those that are gone, or that this user may not see.
    pub fn look(&mut self) {
        let found = files();
        let is_there = |id: &Id| found.iter().any(|(_, other)| other == id);
        self.boards.retain(|board| is_there(&board.id));
        self.foreign.retain(is_there);
        for (path, id) in found {
            if self.foreign.contains(&id) || self.boards.iter().any(|board| board.id == id) {
                continue;
            }
            match View::open(&path) {
                Ok(view) => self.boards.push(Watched { id, view }),
                Err(BoardError::Foreign { .. }) => {
                    self.foreign.insert(id);
                }
                // The board's owner ended between the two looks, or the board is just being created.
                Err(_) => {}
            }
        }
    }

    /// The boards that existed at the last look.
    pub fn boards(&self) -> impl Iterator<Item = &Watched> {
        self.boards.iter()
    }

    /// Number of boards of another version.
    #[must_use]
    pub fn foreign(&self) -> usize {
        self.foreign.len()
    }
}

impl Watched {
    /// A number that is unique among the boards that exist at the same time.
    #[must_use]
    pub fn id(&self) -> u64 {
        // All memfds are on one device of the kernel's own.
        self.id.1
    }

    /// The process that made the board.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.view.owner()
    }

    /// The program to which the board belongs.
    #[must_use]
    pub fn name(&self) -> String {
        self.view.name()
    }

    /// The contents of the claimed slots, by their numbers.
    #[must_use]
    pub fn slots(&self) -> Vec<SlotReading> {
        self.view.slots().collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let page: *const Page = self.view.page;
        // SAFETY: the mapping is this board's alone and of a `Page`'s length. The view, which cannot be copied out of
        // here, was the only reference to it, and all that was read from it are copies.
        let unmapped = unsafe { rustix::mm::munmap(page.cast_mut().cast(), size_of::<Page>()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Board;

    /// Number of times that this process has the file of this inode mapped.
    fn mappings(id: u64) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inode = format!(" {id} ");
        maps.lines().filter(|line| line.contains(&inode)).count()
    }

    #[test]
    fn boards_appear_stay_mapped_while_unchanged_and_disappear() {
        let (board, file) = Board::create("watched").unwrap();
        let mine = |watch: &Watch| -> Vec<(u64, usize)> {
            let mine = watch.boards().filter(|board| board.name() == "watched");
            let mine = mine.filter(|board| board.owner() == std::process::id());
            mine.map(|board| (board.id(), board.slots().len()))
                .collect()
        };
        let mut watch = Watch::default();
        assert!(mine(&watch).is_empty());
        watch.look();
        let [(id, 0)] = mine(&watch)[..] else {
            panic!("{watch:?}");
        };
        let slot = board.claim(7, "work").unwrap();
        watch.look();
        assert_eq!(mine(&watch), [(id, 1)]);
        assert_eq!(mappings(id), 2, "the board's own and one of the watch");
        slot.release();
        drop(file);
        watch.look();
        assert!(mine(&watch).is_empty());
        assert_eq!(mappings(id), 1);
    }
}
