//! Manual pages and completions, generated from the definition of the command line.

use super::files::make_above;
use crate::tool::{TaskError, at};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_complete::aot::generate;
use millpond_cli::command::Cli;
use std::fs;
use std::path::Path;

/// The directories below a prefix in which each shell looks for completions.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/millpond"),
    (Shell::Zsh, "share/zsh/site-functions/_millpond"),
    (Shell::Fish, "share/fish/vendor_completions.d/millpond.fish"),
];

/// Writes all of them below `tree`.
pub fn write(tree: &Path) -> Result<(), TaskError> {
    let manual = tree.join("share/man/man1");
    at(&manual, fs::create_dir_all(&manual))?;
    at(&manual, clap_mangen::generate_to(Cli::command(), &manual))?;
    for (shell, place) in SHELLS {
        let path = tree.join(place);
        make_above(&path)?;
        let mut text = Vec::new();
        generate(shell, &mut Cli::command(), "millpond", &mut text);
        at(&path, fs::write(&path, text))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_its_words() {
        let tree = tempfile::tempdir().unwrap();
        write(tree.path()).unwrap();
        let manual = tree.path().join("share/man/man1");
        for command in [
            "millpond",
            "millpond-run",
            "millpond-stat",
            "millpond-doctor",
            "millpond-remote-clean",
        ] {
            let page = fs::read_to_string(manual.join(format!("{command}.1"))).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{command}");
        }
        let run = fs::read_to_string(manual.join("millpond-run.1")).unwrap();
        assert!(run.contains("\\-\\-ram"), "{run}");
        for (shell, place) in SHELLS {
            let words = fs::read_to_string(tree.path().join(place)).unwrap();
            assert!(
                words.contains("doctor") && words.contains("delivery"),
                "{shell}"
            );
        }
    }
}
