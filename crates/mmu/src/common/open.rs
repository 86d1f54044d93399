//! The descriptors for examining and dropping memory: the page map, and the process's own descriptor for vectored
//! advice. A forked child opens its own.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use crate::error::MmuError;
use crate::mask::Mask;
use crate::sys::{advise, pagemap};

pub(super) fn open_pagemap() -> Result<OwnedFd, MmuError> {
    pagemap::open().map_err(|errno| MmuError::Open {
        what: "/proc/self/pagemap",
        errno,
        way_out: pagemap_way_out(errno, is_dumpable()),
    })
}

/// Whether the process is dumpable. After a change of user, or by its own choice, it is not, and its files in `/proc`
/// belong to root.
fn is_dumpable() -> bool {
    use rustix::process::{DumpableBehavior, dumpable_behavior};
    dumpable_behavior().is_ok_and(|state| state == DumpableBehavior::Dumpable)
}

fn pagemap_way_out(errno: Errno, is_dumpable: bool) -> &'static str {
    match errno {
        Errno::MFILE => "raise `ulimit -n`",
        Errno::NFILE => "raise the sysctl fs.file-max",
        Errno::ACCESS | Errno::PERM if !is_dumpable => {
            "this process is not dumpable, as after a change of user, so that its files in /proc are root's: \
             call prctl(PR_SET_DUMPABLE, 1) after the change"
        }
        Errno::ACCESS | Errno::PERM => "let this process read its own files in /proc",
        _ => "mount /proc",
    }
}

/// Returns a descriptor of this process for vectored advice, if the kernel accepts it.
pub(super) fn open_pidfd(mask: Mask) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    let fd = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    (!mask.vectors && advise::has_vectors(fd.as_fd())).then_some(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_page_map_is_reported_with_its_cause() {
        for (errno, is_dumpable, part) in [
            (Errno::ACCESS, false, "not dumpable"),
            (Errno::PERM, false, "PR_SET_DUMPABLE"),
            (Errno::ACCESS, true, "its own files"),
            (Errno::MFILE, false, "ulimit -n"),
            (Errno::NOENT, false, "mount /proc"),
        ] {
            let text = pagemap_way_out(errno, is_dumpable);
            assert!(text.contains(part), "{errno}: {text}");
        }
    }
}
