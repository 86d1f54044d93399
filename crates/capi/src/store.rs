//! The store that a pond is opened with: converts its words to the library's own kind.
//!
//! The words are those of `millpond run --store`, and `none`. A URL follows the store that comes before it. Stores at
//! URLs require the feature `remote`, because their clients take minutes to build. A library without it recognizes a
//! URL, and says which library has these stores.

use crate::status::Failure;
#[cfg(not(feature = "remote"))]
use crate::status::Status;
use millpond::StoreKind;
use millpond_settings::StoreChoice;
use std::path::{Path, PathBuf};

/// The minimum size of a file.
const LEAST_FILE: u64 = 4 << 20;

/// What a caller specifies about the store.
pub(crate) struct Wanted<'a> {
    /// The store's words.
    pub(crate) name: Option<&'a str>,
    /// The maximum number of bytes that it may take.
    pub(crate) max_bytes: Option<u64>,
    /// The directory of the file in front of a URL.
    pub(crate) directory: Option<&'a str>,
    /// The maximum number of bytes of that file; 0 if the library chooses.
    pub(crate) file_bytes: u64,
}

impl Wanted<'_> {
    /// Returns the kind of store; `None` for the default one, which may do without its file.
    pub(crate) fn kind(&self) -> Result<Option<StoreKind>, Failure> {
        let is_url = |text: &str| text.contains("://") && !text.starts_with("file:");
        if let Some((front, url)) = self.name.and_then(|name| name.split_once(','))
            && is_url(url)
        {
            return self.behind(front, url).map(Some);
        }
        if self.name.is_some_and(is_url) {
            // The text is not repeated, because an invalid one may contain a password.
            return Err(Failure::invalid(
                "a URL stands behind the store that is full first: write auto,URL, or zram,URL where there is no disk",
            ));
        }
        if self.has_file() {
            return Err(Failure::invalid(
                "`.store_directory` and `.store_file` are for the file of auto,URL: leave them 0, or name the \
                 directory of a file by .store = \"file:PATH\"",
            ));
        }
        match (self.name, self.max_bytes) {
            (None | Some("auto"), None) => Ok(None),
            // A limit without a store means compressed RAM: the default store takes no limit.
            (None, limit) => named("zram", limit).map(Some),
            (Some(name), limit) => named(name, limit).map(Some),
        }
    }

    fn has_file(&self) -> bool {
        self.directory.is_some() || self.file_bytes > 0
    }

    /// Returns the store at a URL, behind `front`.
    fn behind(&self, front: &str, url: &str) -> Result<StoreKind, Failure> {
        match front {
            "auto" if self.file_bytes > 0 => self.at(url, self.file_bytes),
            "auto" => self.at(url, self.half_of_what_is_free()),
            "zram" if self.has_file() => Err(Failure::invalid(
                "`zram,URL` has no file: leave `.store_directory` and `.store_file` 0, or write auto,URL",
            )),
            "zram" => self.at(url, 0),
            _ => Err(Failure::invalid(format!(
                "`{front}` is no store that a URL may stand behind; choose auto or zram"
            ))),
        }
    }

    /// Returns half of the free space where the file would be, like `millpond run`, or 0 if that is too little.
    fn half_of_what_is_free(&self) -> u64 {
        let half = millpond::half_of_free(self.directory.map(Path::new)).unwrap_or(0);
        // If a directory was named and does not exist, making the file is refused later.
        if half < LEAST_FILE && self.directory.is_none() {
            0
        } else {
            half.max(LEAST_FILE)
        }
    }

    #[cfg(feature = "remote")]
    fn at(&self, url: &str, file_bytes: u64) -> Result<StoreKind, Failure> {
        let url = url
            .parse()
            .map_err(|error: millpond::UrlError| Failure::invalid(error.to_string()))?;
        Ok(StoreKind::Remote {
            url,
            directory: self.directory.map(PathBuf::from),
            file_bytes,
            max_bytes: self.max_bytes,
        })
    }

    #[cfg(not(feature = "remote"))]
    fn at(&self, _url: &str, _file_bytes: u64) -> Result<StoreKind, Failure> {
        Err(Failure::new(
            Status::Store,
            "this library was built without stores beyond the machine: build it by `cargo build --release -p \
             millpond-capi --features remote`, or choose zram, auto, file or file:PATH",
        ))
    }
}

/// Returns a store by its name: one that `millpond run --store` takes, or `none`.
fn named(name: &str, max_bytes: Option<u64>) -> Result<StoreKind, Failure> {
    let file = |path| StoreKind::File {
        path,
        max_bytes,
        force_tmpfs: false,
    };
    match (name.parse(), name) {
        (Ok(StoreChoice::Zram), _) => Ok(StoreKind::CompressedRam { max_bytes }),
        (Ok(StoreChoice::File(path)), _) => Ok(file(path)),
        // The system refuses a file without a name when it is created.
        (_, "file:") => Ok(file(Some(PathBuf::new()))),
        (Ok(StoreChoice::Auto), _) | (_, "none") if max_bytes.is_some() => Err(Failure::invalid(
            format!("the store `{name}` takes no .store_max: leave it 0, or choose zram or file"),
        )),
        (_, "none") => Ok(StoreKind::None),
        _ => Err(Failure::invalid(format!(
            "`{name}` is no store; choose zram, auto, file, file:PATH, none, or auto,URL"
        ))),
    }
}
