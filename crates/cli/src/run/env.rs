//! The environment of the program: the preload library's settings, and the board.
//!
//! Everything goes through variables, because they also reach the programs that the program starts. A named file would
//! be left behind by a kill, so the board has no name, and the variable names the supervisor's own descriptor:
//! `/proc/PID/fd/N` can be opened as long as the supervisor lives, even by programs that have closed all their
//! descriptors, and by `millpond stat`.

use millpond_board::{Board, BoardError};
use millpond_settings::Settings;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Why the program's environment cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// The board cannot be made.
    #[error(transparent)]
    Board(#[from] BoardError),
}

/// The report board and the descriptor through which the program finds it.
pub struct SharedBoard {
    /// The board, for reading.
    pub board: Board,
    file: OwnedFd,
}

impl SharedBoard {
    /// Makes a board for a run of `program`.
    ///
    /// # Errors
    /// When the kernel does not provide such memory.
    pub fn create(program: &OsStr) -> Result<Self, EnvError> {
        let (board, file) = Board::create(&program.to_string_lossy())?;
        Ok(Self { board, file })
    }

    /// The path under which any process of this user opens the board while this process lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        millpond_board::path_of(&self.file)
    }
}

/// The variables that the program gets beside its own.
pub fn variables(settings: &Settings, library: &Path) -> Vec<(&'static str, OsString)> {
    let mut variables = settings.variables();
    variables.push((
        "LD_PRELOAD",
        preload_list(library, std::env::var_os("LD_PRELOAD")),
    ));
    variables.push(("GODEBUG", go_settings(std::env::var_os("GODEBUG"))));
    variables
}

fn preload_list(library: &Path, present: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(present) = present.filter(|list| !list.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(present);
    }
    list
}

/// Settings for Go's runtime, which gives pages back through direct system calls that no library sees. In managed
/// memory, pages that were out came back with their old contents, and Go's collector found stale pointers there. With
/// this setting the runtime uses `MADV_FREE`, after which old contents are allowed.
fn go_settings(present: Option<OsString>) -> OsString {
    const NAME: &str = "madvdontneed=";
    let mut settings = present.unwrap_or_default();
    let is_set = settings
        .to_string_lossy()
        .split(',')
        .any(|setting| setting.starts_with(NAME));
    if !is_set {
        if !settings.is_empty() {
            settings.push(",");
        }
        settings.push(NAME);
        settings.push("0");
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_program_keeps_its_settings_and_frees_lazily() {
        assert_eq!(go_settings(None), "madvdontneed=0");
        assert_eq!(go_settings(Some("".into())), "madvdontneed=0");
        assert_eq!(
            go_settings(Some("gctrace=1".into())),
            "gctrace=1,madvdontneed=0"
        );
        let chosen = "madvdontneed=1,gctrace=1";
        assert_eq!(go_settings(Some(chosen.into())), chosen);
    }

    #[test]
    fn library_comes_first_in_an_existing_ld_preload() {
        let library = Path::new("/x/lib.so");
        assert_eq!(preload_list(library, None), "/x/lib.so");
        assert_eq!(preload_list(library, Some("".into())), "/x/lib.so");
        assert_eq!(
            preload_list(library, Some("a.so b.so".into())),
            "/x/lib.so:a.so b.so"
        );
    }

    #[test]
    fn a_board_without_a_name_can_be_opened_and_leaves_nothing() {
        let shared = SharedBoard::create(OsStr::new("work")).unwrap();
        let seen = std::fs::read_link(shared.path()).unwrap();
        assert!(seen.to_string_lossy().ends_with("(deleted)"), "{seen:?}");
        Board::open(&shared.path()).unwrap().claim(1, "x").unwrap();
        assert_eq!(shared.board.slots().count(), 1);
    }
}
