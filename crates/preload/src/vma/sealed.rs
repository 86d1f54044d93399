//! Memory that the program sealed (`mseal`).
//!
//! A seal says that a mapping stays as it is: it can be neither unmapped, moved, replaced nor given another
//! protection, and if it cannot be written its contents cannot be dropped. The contents of a page may still leave
//! memory and come back. So the kernel has no seals on managed memory: they would apply to our mapping, and would
//! forbid us to bring pages in. We keep them in our account, for the whole life of the process and its children, and
//! each call checks it.
//!
//! As in the kernel, a call that meets a seal fails with `EPERM`. In that case `munmap` and `mmap` have done nothing;
//! `mprotect` and `madvise` have handled the part before it.

use super::{Range, Vmas};
use rustix::io::Errno;

impl Vmas {
    /// Seals a part of the space, all of which is mapped.
    pub fn seal_inside(&mut self, inside: Range) {
        if !inside.is_empty() {
            self.sealed.add(inside);
        }
    }

    /// Returns the first sealed address of `range`, part of which may lie outside the space.
    pub fn first_sealed(&self, range: &Range) -> Option<usize> {
        let parts = self.sealed.parts(range.clone()).into_iter();
        parts
            .filter(|part| part.1)
            .map(|(part, _)| part.start)
            .next()
    }

    /// Checks that no part of `range` is sealed.
    ///
    /// # Errors
    /// `EPERM` if a part is sealed.
    pub fn unless_sealed(&self, range: &Range) -> Result<(), Errno> {
        self.first_sealed(range)
            .map_or(Ok(()), |_| Err(Errno::PERM))
    }
}
