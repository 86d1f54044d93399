//! `millpond doctor`: what this machine allows, what the lack of it costs, and the one command that grants it.
//!
//! Exit status 0 means that `millpond run` works here. `run` makes this same check before it starts a program, so the
//! two never disagree.

use crate::machine::Machine;
use crate::print;
use crate::run::env;
use clap::Args;
use millpond_mmu::{Capabilities, Capability, capabilities};
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
        grant: &'static str,
    },
    /// There is no way to take a page out atomically.
    #[error(
        "this kernel offers neither UFFDIO_MOVE nor write protection by userfaultfd; use Linux 5.7 or later (6.8 for speed)"
    )]
    TakeOut,
}

#[derive(Debug, Serialize)]
struct Findings {
    /// `millpond-doctor/1`. Later versions only add fields.
    schema: &'static str,
    /// Whether `millpond run` works here.
    run_works: bool,
    /// The reasons why it does not work.
    problems: Vec<String>,
    capabilities: Vec<Finding>,
    machine: Machine,
    /// The place of the preload library; null when it is not found.
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
    let library = env::find_library();
    let mut problems = Vec::new();
    problems.extend(require_for_run().err().map(|missing| missing.to_string()));
    problems.extend(library.as_ref().err().map(ToString::to_string));
    let findings = Findings {
        schema: "millpond-doctor/1",
        run_works: problems.is_empty(),
        problems,
        capabilities: capabilities().list.iter().map(Finding::from).collect(),
        machine: Machine::look(),
        preload_library: library.ok().map(|path| path.to_string_lossy().into_owned()),
    };
    let text = if args.json {
        serde_json::to_string_pretty(&findings).map_err(io::Error::from)? + "\n"
    } else {
        findings.to_string()
    };
    print::all(text.as_bytes())?;
    Ok(u8::from(!findings.run_works))
}

/// Whether the kernel lets `millpond run` work here.
///
/// # Errors
/// The missing permission, with the command that grants it here.
pub fn require_for_run() -> Result<(), Missing> {
    enough(capabilities())
}

fn enough(found: &Capabilities) -> Result<(), Missing> {
    if !found.has("userfaultfd") {
        let asked = found.list.iter().find(|one| one.name == "userfaultfd");
        return Err(Missing::Userfaultfd {
            found: asked.map_or_else(String::new, |one| one.detail.clone()),
            grant: asked.and_then(|one| one.grant).unwrap_or_default(),
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
        let names = ["userfaultfd", "UFFDIO_MOVE", "write protection"];
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
    fn what_run_needs() {
        assert_eq!(enough(&found(&["userfaultfd", "UFFDIO_MOVE"])), Ok(()));
        assert_eq!(enough(&found(&["userfaultfd", "write protection"])), Ok(()));
        assert_eq!(enough(&found(&["userfaultfd"])), Err(Missing::TakeOut));
        let refused = enough(&found(&[])).unwrap_err().to_string();
        assert!(
            refused.contains("EPERM") && refused.contains("do it"),
            "{refused}"
        );
    }

    #[test]
    fn the_names_asked_for_are_the_ones_that_are_probed() {
        let probed: Vec<_> = capabilities().list.iter().map(|one| one.name).collect();
        for name in ["userfaultfd", "UFFDIO_MOVE", "write protection"] {
            assert!(probed.contains(&name), "{name} is not among {probed:?}");
        }
    }
}
