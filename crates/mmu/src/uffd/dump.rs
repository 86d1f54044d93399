//! Core dumps of a whole program in managed memory: what it has in memory, and nothing else.
//!
//! The kernel dumps a private mapping from end to end once any part of it held a page, and goes through it page by
//! page.
//! Parts of the arena are opened and closed, and what is closed joins the reservation around it: so after the first
//! `munmap` all of the reservation was dumped, hundreds of GiB by its length, and a process took 11 s to die. Frames of
//! the pool are copies of what the program has or had, with no addresses of its own. So both are left out of dumps, and
//! what is opened is put in. As opened and closed memory differ in their protection anyhow, this costs no mapping more.
//!
//! The kernel does not ask for absent pages while it dumps. What is out is missing from the core, as zeros.
//!
//! With in-thread delivery regions are a part of a program that knows of them, and leaves move between arena and pool
//! with their tables, for which both must be alike: there everything is as the kernel has it by itself.

use super::Uffd;
use crate::delivery::Delivery;

impl Uffd {
    /// Nothing of the arena and the pool is dumped, from the start.
    pub(super) fn leave_out_of_dumps(&self) {
        let pool = self.pool.memory();
        self.choose_dump(self.arena.base(), self.arena.len(), false);
        if self.delivery == Delivery::Handler {
            // As below.
            let _ = pool.dump(pool.base(), pool.len(), false);
        }
    }

    /// Whether a part of the arena is dumped.
    pub(super) fn choose_dump(&self, start: usize, len: usize, dump: bool) {
        if self.delivery == Delivery::Handler {
            // It is refused when the process has too many mappings; then a core is longer or shorter than it should be.
            let _ = self.arena.dump(start, len, dump);
        }
    }
}
