//! Core dumps of a whole program in managed memory: they have the program's own memory, and nothing else.
//!
//! The kernel dumps a private mapping from end to end once any part of it held a page, and goes through it page by
//! page. Parts of the arena are opened and closed, and a part that is closed joins the reservation around it. So
//! after the first `munmap` all of the reservation was dumped, hundreds of GiB by its length, and a process took 11 s
//! to die. Frames of the pool are copies of memory that the program has or had, with no addresses of its own. So both
//! are left out of dumps, and a part of the arena is put in when it is opened. As opened and closed memory differ in
//! their protection anyhow, this costs no additional mapping.
//!
//! The kernel does not ask for absent pages while it dumps. Pages that are out are missing from the core, where they
//! are zeros.
//!
//! With in-thread delivery, regions are a part of a program that knows of them, and leaves move between arena and
//! pool with their tables, for which both must be alike. So there the kernel's defaults stay.

use super::Common;

impl Common {
    /// Leaves all of the arena and the pool out of dumps, at the start.
    pub(super) fn leave_out_of_dumps(&self) {
        let pool = self.pool.memory();
        self.choose_dump(self.arena.base(), self.arena.len(), false);
        if self.delivery.is_for_any_program() {
            // The failure is ignored as in `choose_dump`.
            let _ = pool.dump(pool.base(), pool.len(), false);
        }
    }

    /// Sets whether a part of the arena is dumped.
    pub(super) fn choose_dump(&self, start: usize, len: usize, dump: bool) {
        if self.delivery.is_for_any_program() {
            // The kernel refuses when the process has too many mappings; then a core is longer or shorter than it
            // should be.
            let _ = self.arena.dump(start, len, dump);
        }
    }
}
