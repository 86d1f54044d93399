//! `cargo xtask docs`: writes the pages that are generated from tables in the sources.

use crate::tool::{self, TaskError, at};
use millpond_settings::pages;
use std::{fs, io};

/// Writes the pages.
///
/// # Errors
/// The page that could not be read or written.
pub fn docs() -> Result<(), TaskError> {
    let root = tool::root();
    let environment = root.join(pages::ENVIRONMENT);
    at(&environment, fs::write(&environment, pages::environment()))?;
    let readme = root.join(pages::README);
    let page = at(&readme, fs::read_to_string(&readme))?;
    let page = pages::readme(&page)
        .ok_or_else(|| io::Error::other("the marks of the table of variables are not there"));
    at(&readme, page.and_then(|page| fs::write(&readme, page)))
}
