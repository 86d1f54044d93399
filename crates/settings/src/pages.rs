//! The documentation pages that list the variables.
//!
//! `cargo xtask docs` writes them, and a test compares them with those in the repository, so that no list is older
//! than the [table](crate::variables::TABLE).

use crate::variables::{Setter, TABLE, Variable};
use std::fmt::Write as _;

/// The path, from the root of the repository, of the page that `millpond help environment` prints and the guide
/// shows.
pub const ENVIRONMENT: &str = "crates/cli/help/environment.md";
/// The path of the page with the whole table.
pub const README: &str = "crates/settings/README.md";

/// The maximum number of characters per line in a text for a terminal.
const WIDTH: usize = 80;
/// The number of spaces between the column of names and the descriptions.
const GAP: usize = 3;

const OF_USER: &str = "# Environment variables

Millpond reads these variables:
";

const OF_RUN: &str = "
`millpond run` sets these for the program and the processes that it starts. They
tell the library in each process what was requested, and are not an interface:
use the options instead.
";

const WITHOUT: &str = "
To start a program without a budget inside a run, remove the library: `env -u
LD_PRELOAD PROGRAM`.
";

/// Marks the line before the table in a page that contains it.
const BEGIN: &str = "<!-- variables: written by `cargo xtask docs` -->\n";
/// Marks the line after the table.
const END: &str = "<!-- end -->\n";

/// The text of [`ENVIRONMENT`].
#[must_use]
pub fn environment() -> String {
    let mut page = String::from(OF_USER);
    page.push_str(&list(TABLE.iter().filter(|row| row.setter != Setter::Run)));
    page.push_str(OF_RUN);
    page.push_str(&list(TABLE.iter().filter(|row| row.setter == Setter::Run)));
    page.push_str(WITHOUT);
    page
}

/// The new text of [`README`], whose present text is `page`. `None` if the page has no place for the table.
#[must_use]
pub fn readme(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some([before, BEGIN, "\n", &table(), "\n", END, after].concat())
}

/// A list of the variables' names in a column, each with its description, in lines that fit a terminal.
fn list(rows: impl Iterator<Item = &'static Variable> + Clone) -> String {
    let column = rows.clone().map(|row| row.name.len()).max().unwrap_or(0) + GAP;
    let mut text = String::from("\n");
    for row in rows {
        let mut line = format!("{:<column$}", row.name);
        let mut is_begun = false;
        for word in row.sets.split(' ') {
            if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
                text.push_str(&line);
                text.push('\n');
                line = " ".repeat(column);
                is_begun = false;
            }
            if is_begun {
                line.push(' ');
            }
            line.push_str(word);
            is_begun = true;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The whole table, in Markdown.
fn table() -> String {
    let mut text = String::from(
        "| variable | set by | values | without it | read by |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in &TABLE {
        let Variable {
            name,
            values,
            default,
            readers,
            setter,
            ..
        } = row;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{name}` | {setter} | {values} | {default} | {readers} |"
        );
    }
    text
}
