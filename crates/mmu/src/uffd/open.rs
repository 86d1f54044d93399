//! The descriptors that a [`Uffd`](super::Uffd) works through: the userfaultfd with the features that its delivery
//! needs, the page map, and the process's own descriptor for vectored advice. A child of a fork opens its own.

use std::sync::Arc;

use linux_raw_sys::general::{
    UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EXACT_ADDRESS, UFFD_FEATURE_MOVE,
    UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_POISON, UFFD_FEATURE_SIGBUS,
    UFFD_FEATURE_THREAD_ID,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::{TakeOutMethod, UffdConfig};
use crate::delivery::Delivery;
use crate::error::MmuError;
use crate::mask::Mask;
use crate::protection::Protection;
use crate::reservation::Reservation;
use crate::sys::{advise, descriptor, ioctl, pagemap};
use crate::way_out;

/// The features of the kernel's userfaultfd, asked on a separate descriptor: a descriptor can be asked only once.
pub(super) fn supported_features(
    delivery: Delivery,
    device: Option<BorrowedFd<'_>>,
    mask: Mask,
) -> Result<u64, MmuError> {
    if mask.uffd {
        return Err(MmuError::NoUserfaultfd {
            errno: Errno::PERM,
            way_out: "take uffd out of MILLPOND_MASK",
        });
    }
    let fd = open_descriptor(delivery, device)?;
    let has = ioctl::api(fd.as_fd(), 0).map_err(|errno| MmuError::NoUserfaultfd {
        errno,
        way_out: way_out::of_refused_userfaultfd(),
    })?;
    let masked = [
        (mask.moves, UFFD_FEATURE_MOVE),
        (mask.wp, UFFD_FEATURE_PAGEFAULT_FLAG_WP),
        (mask.poison, UFFD_FEATURE_POISON),
    ];
    let masked = masked.iter().filter(|(is_masked, _)| *is_masked);
    Ok(masked.fold(has, |has, &(_, flag)| has & !u64::from(flag)))
}

/// The watch over an arena by protections, where userfaultfd was `refused`.
///
/// # Errors
/// What was refused, where the configuration needs userfaultfd, or closed memory cannot be written.
pub(super) fn watch_by_protections(
    config: &UffdConfig,
    arena: &Reservation,
    refused: MmuError,
) -> Result<Arc<Protection>, MmuError> {
    let MmuError::NoUserfaultfd { errno, .. } = refused else {
        return Err(refused);
    };
    if config.delivery == Delivery::Handler || config.take_out == TakeOutMethod::Move {
        return Err(refused);
    }
    Protection::new(arena.base(), arena.len(), !config.mask.guards)
        .map(Arc::new)
        .map_err(|_| MmuError::NoUserfaultfd {
            errno,
            way_out: way_out::of_refused_userfaultfd(),
        })
}

/// The features of a descriptor that not every kernel has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Features {
    /// Whether mappings can be registered for write protection.
    pub(super) protect: bool,
    /// Whether lost pages can be marked.
    pub(super) poison: bool,
    /// Whether registration goes along when a mapping is moved, and the thread that reads faults is told.
    pub(super) remap: bool,
}

/// Opens a descriptor with the features that the delivery needs.
pub(super) fn open_uffd(
    delivery: Delivery,
    device: Option<BorrowedFd<'_>>,
    can_move: bool,
    mask: Mask,
) -> Result<(OwnedFd, Features), MmuError> {
    let has = supported_features(delivery, device, mask)?;
    let bit = u64::from;
    let mut wanted = has & (bit(UFFD_FEATURE_EXACT_ADDRESS) | bit(UFFD_FEATURE_THREAD_ID));
    let need = |flag: u32, feature, way_out| {
        if has & bit(flag) == 0 {
            Err(MmuError::MissingFeature { feature, way_out })
        } else {
            Ok(bit(flag))
        }
    };
    if can_move {
        wanted |= bit(UFFD_FEATURE_MOVE);
    } else {
        wanted |= need(
            UFFD_FEATURE_PAGEFAULT_FLAG_WP,
            "write protection",
            "use Linux 5.7 or later",
        )?;
    }
    let mut features = Features {
        protect: has & bit(UFFD_FEATURE_PAGEFAULT_FLAG_WP) != 0,
        ..Features::default()
    };
    match delivery {
        Delivery::InThread | Delivery::Direct => {
            wanted |= need(
                UFFD_FEATURE_SIGBUS,
                "SIGBUS delivery",
                "use Linux 4.14 or later",
            )?;
            // With this delivery nothing reads the thread ids in messages.
            wanted &= !bit(UFFD_FEATURE_THREAD_ID);
            if delivery == Delivery::Direct {
                wanted |= need(
                    UFFD_FEATURE_EVENT_REMAP,
                    "events of moves",
                    "use Linux 4.11 or later",
                )?;
                features.remap = true;
            }
        }
        Delivery::Handler => {
            let extra = has & (bit(UFFD_FEATURE_POISON) | bit(UFFD_FEATURE_EVENT_REMAP));
            features.poison = extra & bit(UFFD_FEATURE_POISON) != 0;
            features.remap = extra & bit(UFFD_FEATURE_EVENT_REMAP) != 0;
            wanted |= extra;
        }
    }
    let fd = open_descriptor(delivery, device)?;
    ioctl::api(fd.as_fd(), wanted).map_err(|errno| MmuError::NoUserfaultfd {
        errno,
        way_out: way_out::of_refused_userfaultfd(),
    })?;
    Ok((fd, features))
}

/// Opens a userfaultfd, by `device` if there is no other way. The device was opened when this process, or the one
/// that it comes from, could open it, and still makes descriptors after the rights to that were given up.
fn open_descriptor(
    delivery: Delivery,
    device: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, MmuError> {
    let is_direct = delivery == Delivery::Direct;
    let opened = match is_direct {
        // Every user may have this one, so that there is one way that is tested.
        true => descriptor::open_by(descriptor::Source::UserModeOnly),
        false => descriptor::open(delivery == Delivery::Handler).map(|(fd, _)| fd),
    };
    opened
        .or_else(|errno| match device {
            Some(device) => descriptor::by_device(device, is_direct),
            None => Err(errno),
        })
        .map_err(|errno| MmuError::NoUserfaultfd {
            errno,
            // Where the table of descriptors is full, the problem is not a lack of rights.
            way_out: match errno {
                Errno::MFILE | Errno::NFILE => "raise `ulimit -n`",
                _ => way_out::of_refused_userfaultfd(),
            },
        })
}

pub(super) fn open_pagemap() -> Result<OwnedFd, MmuError> {
    pagemap::open().map_err(|errno| MmuError::Open {
        what: "/proc/self/pagemap",
        errno,
        way_out: pagemap_way_out(errno, is_dumpable()),
    })
}

/// Whether the process is dumpable. After a change of user, or by its own wish, it is not, and its files in `/proc`
/// are root's.
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

/// Opens this process's memory, to read where the program may not. Without it such memory stays where it is.
pub(super) fn open_mem() -> Option<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, c"/proc/self/mem", flags, Mode::empty()).ok()
}

/// A descriptor of this process for vectored advice, if the kernel takes it.
pub(super) fn open_pidfd(mask: Mask) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    let fd = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    (!mask.vectors && advise::has_vectors(fd.as_fd())).then_some(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_page_map_is_told_of_with_its_cause() {
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
