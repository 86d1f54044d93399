//! Advice on what to do where userfaultfd is refused.
//!
//! One error (EPERM) has several causes, and the command for one does not help with another: nobody can set a sysctl
//! of the host inside a container, and no sysctl changes what a seccomp profile refuses. So the advice depends on
//! where the process runs. The environment is only examined after something was refused.

use std::fs;
use std::path::Path;

use crate::sys::descriptor::{self, Source};

const ANYWHERE: &str = "grant it with `sudo sysctl vm.unprivileged_userfaultfd=1`, \
                        or with `sudo chmod 0666 /dev/userfaultfd`";
const WITHOUT_DEVICE: &str = "grant it with `sudo sysctl vm.unprivileged_userfaultfd=1`";
const DOCKER: &str = "start the container with `docker run --device /dev/userfaultfd` \
                      (the host needs Linux 6.1 or later)";
const PODMAN: &str = "start the container with `podman run --device /dev/userfaultfd` \
                      (the host needs Linux 6.1 or later)";
const CONTAINER_WITH_DEVICE: &str = "this container has /dev/userfaultfd, but its user may not open it: be root in the \
                                     container, or `sudo chmod 0666 /dev/userfaultfd` on the host and start it anew";
const NAMESPACE: &str = "this is a user namespace without /dev/userfaultfd: on the host, `sudo chmod 0666 \
                         /dev/userfaultfd`, and start this anew with `podman run --device /dev/userfaultfd`, `docker \
                         run --device /dev/userfaultfd` or `bwrap --dev-bind /dev/userfaultfd /dev/userfaultfd`";
const NAMESPACE_WITH_DEVICE: &str = "in this user namespace nobody may open /dev/userfaultfd: \
                                     `sudo chmod 0666 /dev/userfaultfd` on the host";
const SECCOMP: &str = "a seccomp profile refuses it to this process: run outside the sandbox, or allow the system call \
                       userfaultfd in the profile";
const SECCOMP_WITH_DEVICE: &str = "a seccomp profile refuses the system call to this process: grant the device \
                                   instead with `sudo chmod 0666 /dev/userfaultfd`, or allow the call in the profile";

/// The environment of this process, as far as it decides what helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Surroundings {
    /// Whether the process runs in a container.
    container: bool,
    /// Whether it is a Podman container.
    podman: bool,
    /// Whether the process runs in its own user namespace, where root has no privileges outside: rootless containers,
    /// Bubblewrap, `unshare -r`.
    namespace: bool,
    /// Whether a seccomp filter refuses the system call.
    seccomp: bool,
    /// Whether there is a `/dev/userfaultfd`.
    device: bool,
}

/// Returns the advice for a refused userfaultfd here.
pub(crate) fn of_refused_userfaultfd() -> &'static str {
    Surroundings::look().way_out()
}

impl Surroundings {
    fn look() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let first_process = fs::read("/proc/1/environ").unwrap_or_default();
        Self {
            container: is_container(&first_process),
            podman: Path::new("/run/.containerenv").exists(),
            namespace: is_namespace(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default()),
            // Many programs run under filters that allow the call. For faults in user mode only, the kernel requires
            // no privilege, so a refusal of that comes from the filter.
            seccomp: has_filter(&status) && descriptor::open_by(Source::UserModeOnly).is_err(),
            device: Path::new("/dev/userfaultfd").exists(),
        }
    }

    fn way_out(self) -> &'static str {
        if self.namespace {
            return match self.device {
                false => NAMESPACE,
                true => NAMESPACE_WITH_DEVICE,
            };
        }
        match (self.container, self.seccomp, self.device) {
            (true, _, false) if self.podman => PODMAN,
            (true, _, false) => DOCKER,
            (true, _, true) => CONTAINER_WITH_DEVICE,
            (false, true, false) => SECCOMP,
            (false, true, true) => SECCOMP_WITH_DEVICE,
            (false, false, true) => ANYWHERE,
            (false, false, false) => WITHOUT_DEVICE,
        }
    }
}

/// Whether this is a container. Docker and Podman leave a file; systemd-nspawn, LXC and others name themselves in the
/// environment of the first process.
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

/// Whether this is a user namespace in which some of the machine's users do not exist under their own numbers.
fn is_namespace(uid_map: &str) -> bool {
    let mut words = uid_map.split_whitespace();
    let all = [Some("0"), Some("0"), Some("4294967295"), None];
    // Without the file, nothing is known about namespaces.
    !uid_map.is_empty() && all != [words.next(), words.next(), words.next(), words.next()]
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

    /// Guards against a message that once named a sysctl in a container, where nobody can set it.
    #[test]
    fn the_remedy_depends_on_the_processs_surroundings() {
        let host = Surroundings::default();
        let container = Surroundings {
            container: true,
            ..host
        };
        let podman = Surroundings {
            podman: true,
            ..container
        };
        let namespace = Surroundings {
            namespace: true,
            ..host
        };
        let with_filter = |here| Surroundings {
            seccomp: true,
            ..here
        };
        let with_device = |here| Surroundings {
            device: true,
            ..here
        };
        for (here, helps, does_not) in [
            (container, "docker run --device", "sysctl"),
            (with_filter(container), "docker run --device", "sysctl"),
            (with_filter(with_device(container)), "on the host", "sysctl"),
            (with_device(container), "be root in the container", "sysctl"),
            (podman, "podman run --device", "docker"),
            (with_filter(host), "seccomp profile", "sysctl"),
            (
                with_filter(with_device(host)),
                "chmod 0666 /dev/userfaultfd",
                "sysctl",
            ),
            (with_device(host), "chmod 0666 /dev/userfaultfd", "docker"),
            (host, "sysctl", "chmod"),
            (namespace, "bwrap --dev-bind /dev/userfaultfd", "sysctl"),
            (with_filter(namespace), "podman run --device", "sysctl"),
            (with_device(namespace), "on the host", "be root"),
            (
                Surroundings {
                    namespace: true,
                    ..with_device(container)
                },
                "on the host",
                "be root",
            ),
        ] {
            let text = here.way_out();
            assert!(text.contains(helps), "{here:?}: {text}");
            assert!(!text.contains(does_not), "{here:?}: {text}");
        }
    }

    #[test]
    fn containers_and_user_namespaces_are_detected() {
        assert!(names_container(b"PATH=/bin\0container=lxc\0"));
        assert!(!names_container(
            b"PATH=/bin\0my_container=lxc\0container=\0"
        ));
        assert!(!names_container(b""));
        assert!(has_filter(
            "NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!has_filter("Seccomp:\t0\nSeccomp_filters:\t2\n"));
        assert!(!is_namespace("         0          0 4294967295\n"));
        assert!(is_namespace("         0       1000          1\n"));
        assert!(is_namespace("0 100000 65536\n65536 1000 1\n"));
        assert!(!is_namespace(""));
    }
}
