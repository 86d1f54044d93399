//! Core dumps of a whole program in managed memory: they contain the program's own memory, and nothing else.
//!
//! The kernel dumps a private mapping from end to end once any part of it contained a page, and goes through it page
//! by page. Parts of the arena are opened and closed, and a closed part joins the reservation around it. So after the
//! first `munmap`, all of the reservation was dumped, hundreds of GiB by its length, and a process took 11 s to die.
//! Frames of the pool are copies of memory that the program has or had, without addresses of its own. So both are
//! excluded from dumps, and a part of the arena is included when it is opened. Because open and closed memory already
//! differ in their protection, this costs no additional mapping.
//!
//! The kernel does not request absent pages while it dumps. They are missing from the core, where they are zeros.
//!
//! With in-thread delivery, regions are a part of a program that knows about them, and leaves move between arena and
//! pool with their tables, which requires that both are alike. So there the kernel's defaults stay.

use super::Common;

impl Common {
    /// Excludes the whole arena and pool from dumps, at the start.
    pub(super) fn leave_out_of_dumps(&self) {
        let pool = self.pool.memory();
        // An arena that is taken over may have mappings of somebody else's (`uffd/take_over.rs`).
        if !self.arena.is_lent() {
            self.choose_dump(self.arena.base(), self.arena.len(), false);
        }
        if self.delivery.is_for_any_program() {
            // Failure is ignored, as in `choose_dump`.
            let _ = pool.dump(pool.base(), pool.len(), false);
        }
    }

    /// Sets whether a part of the arena is dumped.
    pub(crate) fn choose_dump(&self, start: usize, len: usize, dump: bool) {
        if self.delivery.is_for_any_program() {
            // The kernel refuses if the process has too many mappings; then a core is longer or shorter than it
            // should be.
            let _ = self.arena.dump(start, len, dump);
        }
    }
}
