//! What this kernel lets this user do, probed once, with the cost of each missing capability.
//!
//! Nothing here is guessed from a version number, because distributions backport features and containers forbid them.
//! Each capability is tried.

use linux_raw_sys::general::{
    UFFD_FEATURE_EXACT_ADDRESS, UFFD_FEATURE_MOVE, UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    UFFD_FEATURE_POISON, UFFD_FEATURE_SIGBUS, UFFD_FEATURE_THREAD_ID,
};
use millpond_sync::OnceBox;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::delivery::may_be_preferred;
use crate::mask::Mask;
use crate::protection::Protection;
use crate::staging::{self, Offer};
use crate::sys::descriptor::{self, Source};
use crate::sys::{advise, ioctl, pagemap};
use crate::way_out;

/// One thing that a kernel can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capability {
    /// The name of the capability.
    pub name: &'static str,
    /// Whether this process has the capability.
    pub present: bool,
    /// How the capability works here, or the kernel's answer.
    pub detail: String,
    /// The substitute that Millpond uses without the capability, and what that costs.
    pub cost_if_missing: &'static str,
    /// How to get the capability here, if possible: a command, or what to do first.
    pub grant: Option<&'static str>,
}

/// All capabilities that were probed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Each capability, the most important first.
    pub list: Vec<Capability>,
}

impl Capabilities {
    /// Whether the named capability is present. Returns `false` for an unknown name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.list.iter().any(|one| one.name == name && one.present)
    }
}

/// Returns what this process may do here. The first call probes the kernel, which takes a few hundred microseconds.
///
/// ```
/// for one in &millpond_mmu::capabilities().list {
///     println!("{} {}: {}", if one.present { "yes" } else { "no " }, one.name, one.detail);
/// }
/// ```
#[must_use]
pub fn capabilities() -> &'static Capabilities {
    static FOUND: OnceBox<Capabilities> = OnceBox::new();
    FOUND.get_or_init(|| {
        let mut list = probe();
        mask_out(&mut list, Mask::from_environment());
        Box::new(Capabilities { list })
    })
}

/// The name of the capability to do without userfaultfd.
pub const PROTECTIONS: &str = "closed memory by /proc/self/mem";

/// The name of the capability that makes memory without userfaultfd faster while the program has a single thread.
pub const MARKS: &str = "MADV_GUARD_INSTALL";

/// Removes the capabilities that the process was told to do without.
fn mask_out(list: &mut [Capability], mask: Mask) {
    for one in list {
        let is_masked = match one.name {
            "UFFDIO_MOVE" => mask.moves || mask.uffd,
            "write protection" => mask.wp || mask.uffd,
            "poison" => mask.poison || mask.uffd,
            "process_madvise on self" => mask.vectors,
            MARKS => mask.guards,
            "PAGEMAP_SCAN" => mask.scan,
            "userfaultfd"
            | "userfaultfd for faults in user mode"
            | "SIGBUS delivery"
            | "thread ids in faults"
            | "exact addresses" => mask.uffd,
            _ => false,
        };
        if is_masked {
            one.present = false;
            one.detail = "masked by MILLPOND_MASK".into();
            one.grant = Some("take it out of MILLPOND_MASK");
        }
    }
}

fn probe() -> Vec<Capability> {
    let syscall = descriptor::open_by(Source::Syscall).err();
    let device = descriptor::open_by(Source::Device).err();
    let whole = syscall.is_none() || device.is_none();
    let mut list = vec![
        Capability {
            name: "userfaultfd",
            present: whole,
            detail: match (syscall, device) {
                (None, _) => "by system call".into(),
                (Some(_), None) => "by /dev/userfaultfd".into(),
                (Some(call), Some(device)) => {
                    format!("system call: {call}; /dev/userfaultfd: {device}")
                }
            },
            cost_if_missing: "`millpond run` delivers faults directly, and handler delivery does not work",
            grant: (!whole).then(way_out::of_refused_userfaultfd),
        },
        user_mode(),
        protections(),
        marks(),
    ];
    list.extend(features());
    list.extend([vectors(), scan(), preferred(), huge()]);
    list
}

/// Whether userfaultfd can serve faults in user mode. Kernels before 5.11 serve all faults or none.
#[must_use]
pub fn serves_user_mode(mask: Mask) -> bool {
    !mask.uffd && descriptor::open_for_user_mode().is_ok()
}

/// Returns whether an arena that only the kernel has backed can be taken over here
/// ([`RealMemory::take_over`](crate::RealMemory::take_over)): userfaultfd must be allowed and move pages (Linux 6.8),
/// and the page tables must tell the kernel's page of zeros from others (Linux 6.7).
#[must_use]
pub fn can_take_over(mask: Mask) -> bool {
    let moves = |fd: OwnedFd| {
        let features = ioctl::api(fd.as_fd(), 0).unwrap_or(0);
        features & u64::from(linux_raw_sys::general::UFFD_FEATURE_MOVE) != 0
    };
    let is_masked = mask.uffd || mask.moves || mask.scan;
    !is_masked && descriptor::open_for_user_mode().is_ok_and(moves)
}

fn user_mode() -> Capability {
    let refused = descriptor::open_for_user_mode().err();
    Capability {
        name: "userfaultfd for faults in user mode",
        present: refused.is_none(),
        detail: match refused {
            None => "with UFFD_USER_MODE_ONLY".into(),
            Some(errno) => format!("system call: {errno}"),
        },
        cost_if_missing: "in-thread delivery watches memory by protections, if closed memory can be written: memory \
                          that comes and goes takes two to four times as long at random, and up to eight in order",
        grant: refused.map(|_| way_out::of_refused_userfaultfd()),
    }
}

fn protections() -> Capability {
    let refused = Protection::is_possible().err();
    Capability {
        name: PROTECTIONS,
        present: refused.is_none(),
        detail: match refused {
            None => "writes to memory without access".into(),
            Some(Errno::NOSYS) => "not built for this processor".into(),
            Some(errno) => format!("writes to memory without access: {errno}"),
        },
        cost_if_missing: "nothing works where userfaultfd is refused",
        grant: refused
            .map(|_| "start the kernel with proc_mem.force_override=always, and mount /proc"),
    }
}

fn marks() -> Capability {
    let present = advise::has_guards();
    Capability {
        name: MARKS,
        present,
        detail: match present {
            true => "offered by the kernel".into(),
            false => "not offered by this kernel: needs Linux 6.13".into(),
        },
        cost_if_missing: "where userfaultfd is refused, pages of a program of one thread go and come as those of one with \
                          several",
        grant: None,
    }
}

fn features() -> impl Iterator<Item = Capability> {
    let asked = descriptor::open(false).and_then(|(fd, _)| ioctl::api(fd.as_fd(), 0));
    let rows = [
        (
            "UFFDIO_MOVE",
            UFFD_FEATURE_MOVE,
            "Linux 6.8",
            "pages are captured by protect, copy and discard: two shootdowns and a copy more for each, and \
             O_DIRECT reads into memory that is not pinned can be lost",
        ),
        (
            "write protection",
            UFFD_FEATURE_PAGEFAULT_FLAG_WP,
            "Linux 5.7",
            "without UFFDIO_MOVE nothing can be taken out",
        ),
        (
            "SIGBUS delivery",
            UFFD_FEATURE_SIGBUS,
            "Linux 4.14",
            "in-thread delivery does not work",
        ),
        (
            "thread ids in faults",
            UFFD_FEATURE_THREAD_ID,
            "Linux 4.14",
            "the handler cannot follow the faulter's processor: a fault takes up to seven times as long",
        ),
        (
            "poison",
            UFFD_FEATURE_POISON,
            "Linux 6.6",
            "a page whose contents the store lost stops the process instead of raising SIGBUS in it",
        ),
        (
            "exact addresses",
            UFFD_FEATURE_EXACT_ADDRESS,
            "Linux 5.18",
            "fault messages name pages, not addresses: nothing is lost",
        ),
    ];
    rows.into_iter()
        .map(move |(name, flag, since, cost_if_missing)| {
            let present = asked.is_ok_and(|has| has & u64::from(flag) != 0);
            Capability {
                name,
                present,
                detail: match asked {
                    Err(errno) => format!("userfaultfd is refused: {errno}"),
                    Ok(_) if present => "offered by the kernel".into(),
                    Ok(_) => format!("not offered by this kernel: needs {since}"),
                },
                cost_if_missing,
                grant: None,
            }
        })
}

fn vectors() -> Capability {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    let present =
        pidfd_open(getpid(), PidfdFlags::empty()).is_ok_and(|fd| advise::has_vectors(fd.as_fd()));
    Capability {
        name: "process_madvise on self",
        present,
        detail: if present {
            "takes vectors".into()
        } else {
            "refused: needs Linux 6.13".into()
        },
        cost_if_missing: "each range is dropped by a call of its own, which takes up to 18 times as long for scattered \
                          pages when several threads run",
        grant: None,
    }
}

fn scan() -> Capability {
    let map = pagemap::open();
    let present = map.as_ref().is_ok_and(|map| pagemap::has_scan(map.as_fd()));
    Capability {
        name: "PAGEMAP_SCAN",
        present,
        detail: match map {
            Err(errno) => {
                format!("/proc/self/pagemap: {errno}; userfaultfd cannot be used safely without it")
            }
            Ok(_) if present => "offered by the kernel".into(),
            Ok(_) => "not offered by this kernel: needs Linux 6.7".into(),
        },
        cost_if_missing: "the page map is read entry by entry, which takes 10 times as long over large ranges",
        grant: None,
    }
}

fn preferred() -> Capability {
    let refused = may_be_preferred().err();
    Capability {
        name: "a handler that is preferred",
        present: refused.is_none(),
        detail: match refused {
            None => "the kernel lets a thread run before others".into(),
            Some(errno) => format!("20 steps of niceness: {errno}"),
        },
        cost_if_missing: "under `run` the kernel moves the thread that faults from processor to processor, and a program \
                          takes up to half as long again; a program of one thread avoids that by `taskset -c 0 millpond run`",
        grant: Some(
            "sudo prlimit --nice=40 --pid $$   (for this shell and its children; in a container: docker run --ulimit nice=40)",
        ),
    }
}

/// The directory of the settings with which the administrator says which processes may have huge pages.
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

fn huge() -> Capability {
    let refused = refusal_of_huge_pages();
    Capability {
        name: "huge pages",
        present: refused.is_none(),
        detail: match &refused {
            None => "given when asked for".into(),
            Some((why, _)) => why.clone(),
        },
        cost_if_missing: "folios of 2 MiB are 512 single pages: their first touch takes four times as long, moving them \
                          takes 40 times as long, and the program has more TLB misses; smaller folios lose nothing",
        grant: refused.and_then(|(_, grant)| grant),
    }
}

/// Returns why there are no huge pages, and what helps. It asks for a huge page, because the settings alone do not
/// tell.
fn refusal_of_huge_pages() -> Option<(String, Option<&'static str>)> {
    let ask = |pagemap: OwnedFd| staging::offer(Advice::LinuxPopulateWrite, pagemap.as_fd());
    match pagemap::open().and_then(ask) {
        Ok(Offer::Always) => return None,
        Ok(Offer::Once) => {
            let stay = "the kernel keeps empty page tables, in which they would be split: needs Linux 6.14 on x86";
            return Some((stay.into(), None));
        }
        Ok(Offer::Nothing) => {}
        Err(errno) => return Some((format!("not known: {errno}"), None)),
    }
    let Some(all) = setting("enabled") else {
        return Some(("the kernel is built without them".into(), None));
    };
    if all == "never" {
        return Some((
            format!("{THP}/enabled is never"),
            Some("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        ));
    }
    if setting("hugepages-2048kB/enabled").is_some_and(|size| size == "never") {
        return Some((
            format!("{THP}/hugepages-2048kB/enabled is never"),
            Some(
                "echo inherit | sudo tee /sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
            ),
        ));
    }
    // SAFETY: the call asks about this process, and takes no pointers.
    if unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) } > 0 {
        let by_prctl = "switched off for this process (PR_SET_THP_DISABLE, which is inherited)";
        return Some((by_prctl.into(), None));
    }
    Some((
        format!("none was given, with {THP}/enabled {all}: memory is short, or fragmented"),
        Some("echo 1 | sudo tee /proc/sys/vm/compact_memory"),
    ))
}

/// The value of a setting: the word in brackets among its possible words.
fn setting(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("{THP}/{name}")).ok()?;
    chosen(&text).map(str::to_owned)
}

fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?
        .1
        .split_once(']')
        .map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_setting() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("[never]"), Some("never"));
        assert_eq!(chosen("never"), None);
    }
}
