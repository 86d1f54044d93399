//! Areas that the child of a fork does not get, or gets empty (`MADV_DONTFORK`, `MADV_WIPEONFORK`).
//!
//! All managed memory is inherited, so the child itself drops the areas that it should not have, before the program's
//! code runs in it.

use super::{AtFork, Kind, Vmas};
use rustix::io::Errno;

impl Vmas {
    /// Drops, in a new child whose space is already being served, the areas that it should not have. Returns the
    /// error, if there was one.
    pub fn become_a_child(&mut self) -> Option<Errno> {
        // Locks are not inherited.
        self.unlock_managed(&self.map.bounds());
        for piece in self.map.pieces(self.map.bounds()) {
            let Some(Kind::Managed {
                prot,
                opened,
                at_fork: AtFork { dont_copy, wipe },
            }) = piece.kind
            else {
                continue;
            };
            let result = if dont_copy {
                self.clear(piece.range)
            } else if wipe && opened {
                self.discard(piece.range, prot)
            } else {
                Ok(())
            };
            if let Err(error) = result {
                return Some(error);
            }
        }
        None
    }
}
