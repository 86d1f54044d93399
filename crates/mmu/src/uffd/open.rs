//! The descriptors that a [`UffdMemory`](super::UffdMemory) works with: the userfaultfd with the features that its
//! delivery needs, and the process's memory. A forked child opens its own.

use linux_raw_sys::general::{
    UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EXACT_ADDRESS, UFFD_FEATURE_MOVE,
    UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_FEATURE_POISON, UFFD_FEATURE_SIGBUS,
    UFFD_FEATURE_THREAD_ID,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::config::MemoryConfig;
use crate::delivery::Delivery;
use crate::error::MmuError;
use crate::mask::Mask;
use crate::sys::{FdCell, descriptor, ioctl};
use crate::way_out;

/// The userfaultfd that the kernel offers this process.
pub(crate) struct Offer {
    /// `/dev/userfaultfd`, if it was opened.
    pub(super) device: FdCell,
    /// The features, or the refusal.
    pub(crate) features: Result<u64, MmuError>,
}

impl Offer {
    /// Asks the kernel what a memory of this configuration can get.
    pub(crate) fn to(config: &MemoryConfig) -> Self {
        let device = FdCell::new(match config.delivery {
            Delivery::Handler => descriptor::open_device().ok(),
            Delivery::InThread | Delivery::Direct => None,
        });
        let features = || supported_features(config.delivery, device.get(), config.mask);
        let mut offered = features();
        // A filter may refuse the call that every user may otherwise make, while this user may open the device.
        if config.delivery == Delivery::Direct
            && !config.mask.uffd
            && matches!(offered, Err(MmuError::NoUserfaultfd { .. }))
            && let Ok(opened) = descriptor::open_device()
        {
            device.replace(Some(opened));
            offered = features();
        }
        Self {
            device,
            features: offered,
        }
    }
}

/// Returns the features of the kernel's userfaultfd. This asks with a separate descriptor, because each can only be
/// asked once.
fn supported_features(
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

/// Those features of a descriptor that not every kernel has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Features {
    /// Whether mappings can be registered for write protection.
    pub(super) protect: bool,
    /// Whether lost pages can be marked.
    pub(super) poison: bool,
    /// Whether the registration follows a mapping that is moved, and the thread that reads faults is told.
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
            // With this delivery nobody reads the thread ids in messages.
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

/// Opens a userfaultfd, with `device` if there is no other way. The device was opened when this process, or its
/// ancestor, could open it, and still makes descriptors after the privileges for that were dropped.
fn open_descriptor(
    delivery: Delivery,
    device: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, MmuError> {
    let is_direct = delivery == Delivery::Direct;
    let opened = match is_direct {
        // Every user may have this one, so only one way needs testing.
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
            // If the table of descriptors is full, the problem is not a lack of privileges.
            way_out: match errno {
                Errno::MFILE | Errno::NFILE => "raise `ulimit -n`",
                _ => way_out::of_refused_userfaultfd(),
            },
        })
}

/// Opens this process's memory, to read where the program may not. Without it, such memory stays where it is.
pub(super) fn open_mem() -> Option<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, c"/proc/self/mem", flags, Mode::empty()).ok()
}
