//! The repository's pages that list the variables match the table.

use millpond_settings::pages;
use std::fs;
use std::path::Path;

#[test]
fn the_pages_match_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |page: &str| fs::read_to_string(root.join(page)).unwrap();
    let old = "is older than the table of variables: run `cargo xtask docs`";
    let environment = read(pages::ENVIRONMENT);
    assert!(
        environment == pages::environment(),
        "{} {old}",
        pages::ENVIRONMENT
    );
    let readme = read(pages::README);
    assert!(
        pages::readme(&readme).as_ref() == Some(&readme),
        "{} {old}",
        pages::README
    );
}
