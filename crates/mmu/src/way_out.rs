//! What helps where userfaultfd is refused.
//!
//! One refusal (EPERM) has several causes, and the command for one is no help with another: nobody can set a sysctl of
//! the host inside a container, and no sysctl changes what a seccomp profile refuses. So the message looks where it
//! is. That is done when something was refused, and at no other time.

use std::fs;
use std::path::Path;

use crate::sys::descriptor::{self, Source};

const ANYWHERE: &str = "grant it with `sudo sysctl vm.unprivileged_userfaultfd=1`, \
                        or with `sudo chmod 0666 /dev/userfaultfd` (Linux 6.1 or later)";
const CONTAINER: &str = "start the container with `docker run --device /dev/userfaultfd` \
                         (the host needs Linux 6.1 or later)";
const CONTAINER_WITH_DEVICE: &str = "this container has /dev/userfaultfd, but its user may not open it: be root in the \
                                     container, or `sudo chmod 0666 /dev/userfaultfd` on the host and start it anew";
const SECCOMP: &str = "a seccomp profile refuses it to this process: run outside the sandbox, or allow the system call \
                       userfaultfd in the profile";
const SECCOMP_WITH_DEVICE: &str = "a seccomp profile refuses the system call to this process: grant the device \
                                   instead with `sudo chmod 0666 /dev/userfaultfd`, or allow the call in the profile";

/// Where this process runs, as far as it decides what helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Surroundings {
    /// In a container.
    container: bool,
    /// A seccomp filter refuses the system call.
    seccomp: bool,
    /// There is a `/dev/userfaultfd`.
    device: bool,
}

/// What to do here about a refused userfaultfd.
pub(crate) fn of_refused_userfaultfd() -> &'static str {
    Surroundings::look().way_out()
}

impl Surroundings {
    fn look() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            container: is_container(&fs::read("/proc/1/environ").unwrap_or_default()),
            // Many programs run under filters that let it pass. For faults in user mode alone the kernel needs no
            // grant, so that it is the filter that refuses them.
            seccomp: has_filter(&status) && descriptor::open_by(Source::UserModeOnly).is_err(),
            device: Path::new("/dev/userfaultfd").exists(),
        }
    }

    fn way_out(self) -> &'static str {
        match (self.container, self.seccomp, self.device) {
            (true, _, false) => CONTAINER,
            (true, _, true) => CONTAINER_WITH_DEVICE,
            (false, true, false) => SECCOMP,
            (false, true, true) => SECCOMP_WITH_DEVICE,
            (false, false, _) => ANYWHERE,
        }
    }
}

/// Docker and Podman leave a file; systemd-nspawn, LXC and others name themselves to the first process.
fn is_container(first_process: &[u8]) -> bool {
    Path::new("/.dockerenv").exists()
        || Path::new("/run/.containerenv").exists()
        || names_container(first_process)
}

fn names_container(environment: &[u8]) -> bool {
    environment
        .split(|&byte| byte == 0)
        .any(|one| one.starts_with(b"container=") && one.len() > b"container=".len())
}

fn has_filter(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))
        .is_some_and(|mode| mode.trim() == "2")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container the message once named a sysctl, which nobody can set there.
    #[test]
    fn what_helps_depends_on_where_the_process_is() {
        for (container, seccomp, device, helps, does_not) in [
            (true, true, false, "docker run --device", "sysctl"),
            (true, false, false, "docker run --device", "sysctl"),
            (true, true, true, "on the host", "sysctl"),
            (true, false, true, "be root in the container", "sysctl"),
            (false, true, false, "seccomp profile", "sysctl"),
            (false, true, true, "chmod 0666 /dev/userfaultfd", "sysctl"),
            (false, false, true, "sysctl", "docker"),
            (false, false, false, "sysctl", "seccomp"),
        ] {
            let here = Surroundings {
                container,
                seccomp,
                device,
            };
            let text = here.way_out();
            assert!(text.contains(helps), "{here:?}: {text}");
            assert!(!text.contains(does_not), "{here:?}: {text}");
        }
    }

    #[test]
    fn containers_and_filters_are_known_by_their_marks() {
        assert!(names_container(b"PATH=/bin\0container=lxc\0"));
        assert!(!names_container(
            b"PATH=/bin\0my_container=lxc\0container=\0"
        ));
        assert!(!names_container(b""));
        assert!(has_filter(
            "NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!has_filter("Seccomp:\t0\nSeccomp_filters:\t2\n"));
    }
}
