//! `millpond help WORD`: the meaning of a word that several commands share, or the help of a command.
//!
//! The texts are files in `help/`, which the guide also shows, so that each exists only once. They are written to be
//! read on a terminal unprocessed: no tables, no links, and no line of more than 80 characters.

use crate::command::Cli;
use crate::print;
use clap::builder::PossibleValuesParser;
use clap::{Args, Command, CommandFactory};
use std::fmt::Write as _;
use std::io;

/// The words that are not commands, with the topic and the text of each.
const TOPICS: [(&str, &str, &str); 6] = [
    (
        "budget",
        "How to choose --ram, and what counts against it",
        include_str!("../help/budget.md"),
    ),
    (
        "store",
        "Where memory goes that does not fit into the budget",
        include_str!("../help/store.md"),
    ),
    (
        "delivery",
        "Which thread brings in a page, and which privileges that takes",
        include_str!("../help/delivery.md"),
    ),
    (
        "tell",
        "What a program learns when it asks how much memory there is",
        include_str!("../help/tell.md"),
    ),
    (
        "exit-codes",
        "What each exit status means",
        include_str!("../help/exit-codes.md"),
    ),
    (
        "environment",
        "The environment variables that Millpond reads and sets",
        include_str!("../help/environment.md"),
    ),
];

/// `millpond help`'s arguments.
#[derive(Args, Debug)]
pub struct HelpArgs {
    /// A command or a topic; without one, `millpond help` lists them all
    #[arg(value_name = "WORD", value_parser = PossibleValuesParser::new(words()))]
    word: Option<String>,
}

/// The help cannot be printed.
#[derive(Debug, thiserror::Error)]
#[error("cannot print the help: {0}")]
pub struct HelpError(#[from] io::Error);

/// Prints the requested help.
///
/// # Errors
/// When it cannot be printed.
pub fn help(args: &HelpArgs) -> Result<u8, HelpError> {
    print::all(text(args.word.as_deref()).as_bytes())?;
    Ok(0)
}

fn words() -> Vec<&'static str> {
    let topics = TOPICS.iter().map(|(word, ..)| *word);
    COMMANDS.into_iter().chain(topics).collect()
}

/// The commands, by name. They cannot be taken from [`Cli`] here, because its construction needs these words.
const COMMANDS: [&str; 10] = [
    "run", "doctor", "record", "replay", "stat", "metrics", "top", "remote", "bench", "help",
];

/// The text about a word: a command's help, a topic's file, or, without a word, an overview of both.
fn text(word: Option<&str>) -> String {
    let mut cli = Cli::command();
    cli.build();
    let Some(word) = word else {
        return all(&mut cli);
    };
    let topic = TOPICS.iter().find(|(name, ..)| *name == word);
    match (topic, cli.find_subcommand_mut(word)) {
        (Some((_, _, text)), _) => (*text).to_owned(),
        (None, Some(command)) => command.render_long_help().to_string(),
        (None, None) => all(&mut cli),
    }
}

/// The commands with what they do, and the topics with what they are about.
fn all(cli: &mut Command) -> String {
    let mut text = cli.render_help().to_string();
    text.push_str("\nMore help: millpond help WORD\n");
    for (word, about, _) in TOPICS {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {word:<12} {about}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_help_by_name() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(COMMANDS.contains(&name), "{name} is not among the words");
            let text = text(Some(name));
            assert!(text.contains(&format!("Usage: millpond {name}")), "{text}");
        }
        assert_eq!(
            COMMANDS.len(),
            Cli::command().get_subcommands().count(),
            "a word is no command any more"
        );
    }

    #[test]
    fn texts_fit_a_terminal_and_name_only_options_of_run() {
        let mut cli = Cli::command();
        let run = cli.find_subcommand_mut("run").unwrap();
        let options: Vec<_> = run
            .get_arguments()
            .filter_map(|one| one.get_long())
            .collect();
        for (word, _, text) in TOPICS {
            assert!(text.starts_with("# ") && text.ends_with('\n'), "{word}");
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{word}"
            );
            let named = text.split("--").skip(1).filter_map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-');
                let name = &rest[..end.unwrap_or(rest.len())];
                (name.len() > 1).then(|| name.trim_end_matches('-'))
            });
            // Options of other programs, and commands, that the texts name.
            let others = ["max-old-space-size", "curve", "help"];
            for name in named.filter(|name| !others.contains(name)) {
                assert!(options.contains(&name), "{word} names --{name}");
            }
        }
    }

    #[test]
    fn help_without_a_word_lists_commands_and_topics() {
        let text = text(None);
        for (word, about, _) in TOPICS {
            assert!(text.contains(word) && text.contains(about), "{text}");
        }
        assert!(text.contains("doctor"), "{text}");
    }
}
