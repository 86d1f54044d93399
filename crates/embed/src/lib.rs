//! Embeds the shared library of a dependency in the program that depends on it.
//!
//! `cargo install` installs programs but no libraries, and stable cargo cannot depend on a built file. A build script
//! that runs a second cargo would build all dependencies twice, with a separate lock file and settings. But cargo
//! does most of the work by itself: a dependency whose crate types are `cdylib` and `rlib` is built as both, before
//! the crate that depends on it, and both files have the same name in the same directory. Only that name is missing,
//! because it contains a hash. The compiler knows it: cargo names the `rlib` in an `--extern` argument. A macro runs
//! inside the compiler and can read its arguments.
//!
//! ```text
//! rustc ... --extern millpond_preload=/…/deps/libmillpond_preload-0a1b.rlib     what cargo passes
//!                                      /…/deps/libmillpond_preload-0a1b.so      what is put in
//! ```
//!
//! The `rlib` itself is not used: the compiler only opens libraries that the source names. If nothing is built
//! (`cargo check`, clippy, rustdoc) there is no shared library yet, and nothing is embedded. A real build without the
//! library fails and says what to do, so no program ever lacks its library.

use proc_macro::TokenStream;
use std::path::{Path, PathBuf};

/// Expands to `Some(bytes)`, where `bytes` is a `&'static [u8]` with the shared library of the named dependency, or
/// to `None` if the crate is only checked.
///
/// The dependency needs the crate types `cdylib` and `rlib`. A name that is not a dependency is an error:
///
/// ```compile_fail
/// const LIBRARY: Option<&[u8]> = millpond_embed::shared_library!(a_crate_that_is_no_dependency);
/// ```
#[proc_macro]
pub fn shared_library(dependency: TokenStream) -> TokenStream {
    let name = dependency.to_string();
    let arguments: Vec<String> = std::env::args().collect();
    let text = match find(&arguments, &name) {
        Ok(Some(path)) => {
            let path = path.to_string_lossy();
            format!(
                "::core::option::Option::Some(::core::include_bytes!({path:?}) as &'static [u8])"
            )
        }
        Ok(None) => "::core::option::Option::None".to_owned(),
        Err(message) => format!("::core::compile_error!({message:?})"),
    };
    // All three are Rust expressions, whatever the path and the message contain.
    text.parse().unwrap_or_default()
}

/// Finds the shared library of the dependency `name` from the compiler's arguments. Returns `None` if nothing is
/// linked.
fn find(arguments: &[String], name: &str) -> Result<Option<PathBuf>, String> {
    let way_out = "build without the feature that puts it in (`--no-default-features`), and install it by itself";
    let library = extern_file(arguments, name)
        .ok_or_else(|| format!("{name} is no dependency of this crate: name one, or {way_out}"))?;
    if !links(arguments) {
        return Ok(None);
    }
    let shared = std::path::absolute(library.with_extension("so"))
        .map_err(|error| format!("{}: {error}", library.display()))?;
    match shared.is_file() {
        true => Ok(Some(shared)),
        false => Err(format!(
            "cargo has built no {}: the crate types of {name} must be cdylib and rlib; or {way_out}",
            shared.display()
        )),
    }
}

/// The file that `--extern` names for a crate. Options, followed by a colon, may precede the name.
fn extern_file<'a>(arguments: &'a [String], name: &str) -> Option<&'a Path> {
    values(arguments, "--extern").find_map(|value| {
        let (named, file) = value.split_once('=')?;
        (named.rsplit(':').next() == Some(name)).then_some(Path::new(file))
    })
}

/// Whether this compilation produces more than metadata.
fn links(arguments: &[String]) -> bool {
    values(arguments, "--emit")
        .flat_map(|kinds| kinds.split(','))
        .any(|kind| kind == "link" || kind.starts_with("link="))
}

/// All values of an option that is given as `OPTION VALUE` or `OPTION=VALUE`, possibly several times.
fn values<'a>(arguments: &'a [String], option: &'a str) -> impl Iterator<Item = &'a str> {
    arguments
        .iter()
        .enumerate()
        .filter_map(move |(at, argument)| {
            let rest = argument.strip_prefix(option)?;
            match rest.is_empty() {
                true => arguments.get(at + 1).map(String::as_str),
                false => rest.strip_prefix('='),
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn library_is_found_beside_the_rlib_that_cargo_names() {
        let file = std::env::current_exe().unwrap().with_extension("so");
        std::fs::write(&file, "").unwrap();
        let rlib = file.with_extension("rlib");
        for (option, emit) in [
            ("", "dep-info,metadata,link"),
            ("priv,noprelude:", "dep-info,link=x"),
        ] {
            let text = format!(
                "rustc --emit={emit} --extern b --extern {option}a={}",
                rlib.display()
            );
            assert_eq!(find(&arguments(&text), "a"), Ok(Some(file.clone())));
        }
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn nothing_is_embedded_where_nothing_is_linked() {
        for emit in ["--emit=dep-info,metadata", "--emit dep-info", ""] {
            let text = format!("rustc {emit} --extern a=/no/where/liba.rmeta");
            assert_eq!(find(&arguments(&text), "a"), Ok(None));
        }
    }

    #[test]
    fn a_build_without_a_library_fails_and_says_what_to_do() {
        let text = "rustc --emit=dep-info,link --extern a=/no/where/liba.rlib --extern aa=/b";
        let missing = find(&arguments(text), "a").unwrap_err();
        assert!(
            missing.contains("/no/where/liba.so") && missing.contains("cdylib"),
            "{missing}"
        );
        let none = find(&arguments(text), "b").unwrap_err();
        assert!(
            none.contains("no dependency") && none.contains("--no-default-features"),
            "{none}"
        );
    }
}
