//! `millpond doctor`: what this machine allows, what the lack of it costs, and the one command that grants it.
//!
//! Exit status 0 means that `millpond run` works here. `run` makes this same check before it starts a program, so the
//! two never disagree.

use crate::machine::Machine;
use crate::print;
use crate::run::{DeliveryChoice, library};
use clap::Args;
use millpond_mmu::capabilities::{MARKS, PROTECTIONS};
use millpond_mmu::{Capabilities, Capability, Mask, can_take_over, capabilities};
use serde::Serialize;
use std::{fmt, io};

/// `millpond doctor`'s arguments.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// The findings cannot be printed.
#[derive(Debug, thiserror::Error)]
#[error("cannot print the findings: {0}")]
pub struct DoctorError(#[from] io::Error);

/// The kernel does not let `millpond run` work here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Missing {
    /// The system call and the device are both refused.
    #[error("userfaultfd is refused ({found}): {grant}")]
    Userfaultfd {
        /// The kernel's answer.
        found: String,
        /// The remedy on this machine.
        grant: String,
    },
    /// The kernel has no way to take a page out atomically.
    #[error(
        "this kernel offers neither UFFDIO_MOVE nor write protection by userfaultfd; use Linux 5.7 or later (6.8 for speed)"
    )]
    TakeOut,
}

/// The name of the capability that direct delivery needs.
const USER_MODE: &str = "userfaultfd for faults in user mode";

#[derive(Debug, Serialize)]
struct Findings {
    /// `millpond-doctor/1`. Later versions only add fields.
    schema: &'static str,
    /// Whether `millpond run` works on this machine.
    run_works: bool,
    /// The reasons why it does not work.
    problems: Vec<String>,
    /// Whether processes begin dormant with `--engage needed`.
    dormant: bool,
    /// How faults are served in the thread that faults: `userfaultfd` or `protections`; null when they cannot be.
    direct: Option<&'static str>,
    capabilities: Vec<Finding>,
    machine: Machine,
    /// The path of the preload library; null when it is not found.
    preload_library: Option<String>,
}

#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    present: bool,
    detail: String,
    cost_if_missing: &'static str,
    grant: Option<&'static str>,
}

impl From<&Capability> for Finding {
    fn from(one: &Capability) -> Self {
        Self {
            name: one.name,
            present: one.present,
            detail: one.detail.clone(),
            cost_if_missing: one.cost_if_missing,
            grant: one.grant,
        }
    }
}

/// Looks at the machine and prints what it finds. Returns 0 when `millpond run` works here and 1 when it does not.
///
/// # Errors
/// When the findings cannot be printed.
pub fn doctor(args: &DoctorArgs) -> Result<u8, DoctorError> {
    let library = library::find();
    let mut problems = Vec::new();
    problems.extend(
        require_for_run(DeliveryChoice::Auto)
            .err()
            .map(|missing| missing.to_string()),
    );
    problems.extend(library.as_ref().err().map(ToString::to_string));
    let findings = Findings {
        schema: "millpond-doctor/1",
        run_works: problems.is_empty(),
        problems,
        dormant: can_take_over(Mask::from_environment()),
        direct: Watch::of(capabilities()).map(Watch::name),
        capabilities: capabilities().list.iter().map(Finding::from).collect(),
        machine: Machine::look(),
        preload_library: library.ok().map(|found| found.to_string()),
    };
    let text = if args.json {
        serde_json::to_string_pretty(&findings).map_err(io::Error::from)? + "\n"
    } else {
        findings.to_string()
    };
    print::all(text.as_bytes())?;
    Ok(u8::from(!findings.run_works))
}

/// What stops a thread at an absent page, when the thread itself brings the page in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// userfaultfd, as far as a user may have it.
    Userfaultfd,
    /// The page's protection, if userfaultfd is refused in all its forms.
    Protections,
}

impl Watch {
    /// The best way available here.
    pub fn of(found: &Capabilities) -> Option<Self> {
        let takes_out = found.has("UFFDIO_MOVE") || found.has("write protection");
        let user_mode = found.has("userfaultfd") || found.has(USER_MODE);
        match user_mode {
            true => takes_out.then_some(Self::Userfaultfd),
            false => found.has(PROTECTIONS).then_some(Self::Protections),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Userfaultfd => "userfaultfd",
            Self::Protections => "protections",
        }
    }
}

/// Says how faults are served in the thread that faults, what that costs, and what would be better.
fn write_direct(f: &mut fmt::Formatter<'_>, findings: &Findings) -> fmt::Result {
    match findings.direct {
        Some("protections") => {
            writeln!(
                f,
                "Direct delivery works here by protections, as userfaultfd is refused: memory that comes and\n\
                 goes takes two to four times as long at random, and up to eight in order."
            )?;
            let has_marks = |one: &Finding| one.name == MARKS && one.present;
            if findings.capabilities.iter().any(has_marks) {
                writeln!(
                    f,
                    "For a program with a single thread it takes half as long again at random."
                )?;
            }
            let grant = findings
                .capabilities
                .iter()
                .find(|one| one.name == "userfaultfd");
            match grant.and_then(|one| one.grant) {
                Some(grant) => writeln!(f, "  better: {grant}"),
                None => Ok(()),
            }
        }
        Some(name) => writeln!(f, "Direct delivery works here by {name}."),
        None => writeln!(f, "Direct delivery does not work here."),
    }
}

/// Says whether a process can begin dormant.
fn write_dormant(f: &mut fmt::Formatter<'_>, findings: &Findings) -> fmt::Result {
    match findings.dormant {
        true => writeln!(
            f,
            "With `--engage needed`, processes begin dormant: the kernel alone serves them until they need more."
        ),
        false => writeln!(
            f,
            "`--engage needed` changes nothing here: it needs userfaultfd with UFFDIO_MOVE (Linux 6.8)."
        ),
    }
}

/// Whether the kernel lets `millpond run` work here with this delivery.
///
/// # Errors
/// The missing permission, with the command that grants it here.
pub fn require_for_run(delivery: DeliveryChoice) -> Result<(), Missing> {
    enough(capabilities(), delivery)
}

fn enough(found: &Capabilities, delivery: DeliveryChoice) -> Result<(), Missing> {
    let by_handler = found.has("userfaultfd") && delivery != DeliveryChoice::Direct;
    let direct = found.has(USER_MODE) && delivery != DeliveryChoice::Handler;
    if delivery != DeliveryChoice::Handler && Watch::of(found) == Some(Watch::Protections) {
        return Ok(());
    }
    if !by_handler && !direct {
        let find = |name| found.list.iter().find(|one| one.name == name);
        let (asked, closed) = (find("userfaultfd"), find(PROTECTIONS));
        // Protections would work as well, except for a handler.
        let closed = closed.filter(|one| !one.present && delivery != DeliveryChoice::Handler);
        let grants = [asked, closed].map(|one| one.and_then(|one| one.grant));
        let grants: Vec<&str> = grants.into_iter().flatten().collect();
        return Err(Missing::Userfaultfd {
            found: asked.map_or_else(String::new, |one| one.detail.clone()),
            grant: grants.join("; or "),
        });
    }
    if found.has("UFFDIO_MOVE") || found.has("write protection") {
        Ok(())
    } else {
        Err(Missing::TakeOut)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Kernel capabilities")?;
        for one in &self.capabilities {
            let mark = if one.present { "yes" } else { "NO" };
            writeln!(f, "  {mark:<4} {:<36} {}", one.name, one.detail)?;
            if !one.present {
                writeln!(f, "       without it: {}", one.cost_if_missing)?;
                if let Some(grant) = one.grant {
                    writeln!(f, "       to grant it: {grant}")?;
                }
            }
        }
        writeln!(f, "\nMachine\n{}", self.machine)?;
        let library = self.preload_library.as_deref().unwrap_or("not found");
        writeln!(f, "  {:<27} {library}\n", "preload library")?;
        write_direct(f, self)?;
        write_dormant(f, self)?;
        if self.run_works {
            return writeln!(f, "`millpond run` works here.");
        }
        writeln!(f, "`millpond run` does not work here:")?;
        for problem in &self.problems {
            writeln!(f, "  {problem}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(present: &[&'static str]) -> Capabilities {
        let names = [
            "userfaultfd",
            USER_MODE,
            "UFFDIO_MOVE",
            "write protection",
            PROTECTIONS,
        ];
        let one = |name| Capability {
            name,
            present: present.contains(&name),
            detail: "EPERM".to_owned(),
            cost_if_missing: "all",
            grant: Some("do it"),
        };
        Capabilities {
            list: names.into_iter().map(one).collect(),
        }
    }

    #[test]
    fn run_needs_userfaultfd_and_what_its_delivery_requires() {
        use DeliveryChoice::{Auto, Direct, Handler};
        let enough = |present: &[&'static str], delivery| enough(&found(present), delivery);
        assert_eq!(enough(&["userfaultfd", "UFFDIO_MOVE"], Auto), Ok(()));
        assert_eq!(enough(&["userfaultfd", "write protection"], Auto), Ok(()));
        assert_eq!(enough(&["userfaultfd"], Auto), Err(Missing::TakeOut));
        assert_eq!(enough(&[USER_MODE, "UFFDIO_MOVE"], Auto), Ok(()));
        assert_eq!(enough(&[USER_MODE, "UFFDIO_MOVE"], Direct), Ok(()));
        assert!(enough(&[USER_MODE, "UFFDIO_MOVE"], Handler).is_err());
        assert_eq!(enough(&[PROTECTIONS], Auto), Ok(()));
        assert!(enough(&[PROTECTIONS], Handler).is_err());
        let refused = enough(&[], Auto).unwrap_err().to_string();
        assert!(
            refused.contains("EPERM") && refused.contains("do it"),
            "{refused}"
        );
    }

    #[test]
    fn faults_are_served_by_the_best_available_method() {
        for (present, watch) in [
            (
                &["userfaultfd", "UFFDIO_MOVE"][..],
                Some(Watch::Userfaultfd),
            ),
            (&[USER_MODE, "write protection"], Some(Watch::Userfaultfd)),
            (&[USER_MODE, PROTECTIONS], None),
            (&[PROTECTIONS], Some(Watch::Protections)),
            (&[], None),
        ] {
            assert_eq!(Watch::of(&found(present)), watch, "{present:?}");
        }
    }

    #[test]
    fn every_capability_name_in_use_is_probed() {
        let probed: Vec<_> = capabilities().list.iter().map(|one| one.name).collect();
        for name in [
            "userfaultfd",
            USER_MODE,
            "UFFDIO_MOVE",
            "write protection",
            PROTECTIONS,
            MARKS,
        ] {
            assert!(probed.contains(&name), "{name} is not among {probed:?}");
        }
    }
}
