//! Tests of refusals at opening, and of the stores' descriptions of themselves.

mod common;

use common::{Fill, contents, file, ram};
use millpond_core::SlotId;
use millpond_core::port::{SaveError, Slots};
use millpond_store::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn at(path: &Path) -> FileStoreConfig {
    FileStoreConfig {
        location: Location::File(path.to_owned()),
        force_tmpfs: true,
        ..FileStoreConfig::in_directory(path)
    }
}

fn refusal(config: &FileStoreConfig) -> OpenError {
    FileStore::create(config).err().expect("a refusal")
}

#[test]
fn a_named_file_is_private_empty_and_ours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pond");
    let store = FileStore::create(&at(&path)).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(matches!(refusal(&at(&path)), OpenError::InUse { .. }));
    store
        .save(SlotId(0), None, &contents(Fill::Noise(1), 65536))
        .unwrap();
    assert!(
        store
            .describe()
            .starts_with(&format!("file {} (", path.display()))
    );
    drop(store);
    drop(FileStore::create(&at(&path)).unwrap());

    std::fs::write(&path, "precious").unwrap();
    let error = refusal(&at(&path));
    assert!(matches!(error, OpenError::NotEmpty { bytes: 8, .. }));
    assert!(error.to_string().contains("delete it first"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_path_that_is_not_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        refusal(&at(dir.path())),
        OpenError::NotAFile { .. }
    ));
    assert!(matches!(
        refusal(&at(Path::new("/dev/null"))),
        OpenError::NotAFile { .. }
    ));
    assert!(matches!(
        refusal(&at(Path::new("/"))),
        OpenError::NoFileName { .. }
    ));
    let missing = dir.path().join("no/such");
    assert!(matches!(
        refusal(&at(&missing)),
        OpenError::Directory { .. }
    ));
    assert!(matches!(
        refusal(&FileStoreConfig::in_directory(missing)),
        OpenError::Directory { .. }
    ));
}

#[test]
fn tmpfs_is_refused_unless_forced() {
    let shm = Path::new("/dev/shm");
    let here = rustix::fs::statfs(shm).is_ok_and(|stat| stat.f_type == 0x0102_1994);
    let Ok(dir) = tempfile::tempdir_in(shm) else {
        return println!("skipped: needs a tmpfs at /dev/shm");
    };
    if !here {
        return println!("skipped: needs a tmpfs at /dev/shm");
    }
    let mut config = FileStoreConfig::in_directory(dir.path());
    let error = refusal(&config);
    assert!(matches!(error, OpenError::Tmpfs { .. }));
    assert!(error.to_string().contains("/var/tmp"), "{error}");
    let named = FileStoreConfig {
        force_tmpfs: false,
        ..at(&dir.path().join("pond"))
    };
    assert!(matches!(refusal(&named), OpenError::Tmpfs { .. }));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "a refusal leaves no file"
    );
    config.force_tmpfs = true;
    let store = FileStore::create(&config).unwrap();
    store
        .save(SlotId(0), None, &contents(Fill::Noise(1), 65536))
        .unwrap();
    store.load(SlotId(0), 3, &mut [0; 4096]).unwrap();
}

#[test]
fn limits_that_hold_nothing_are_refused() {
    let config = CompressedRamConfig {
        max_bytes: Some(1000),
    };
    assert!(matches!(
        CompressedRam::new(config).err(),
        Some(OpenError::LimitTooSmall { bytes: 1000, .. })
    ));
    let config = FileStoreConfig {
        max_bytes: Some(1000),
        ..FileStoreConfig::in_directory("/tmp")
    };
    assert!(matches!(
        refusal(&config),
        OpenError::LimitTooSmall { bytes: 1000, .. }
    ));
}

#[test]
fn every_store_describes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let spill = Spill::new(ram(Some(32 << 20)), file(dir.path(), None));
    let text = spill.describe();
    assert!(
        text.contains("at most 32 MiB, then unnamed file in"),
        "{text}"
    );
    assert!(
        text.ends_with("(direct I/O)") || text.ends_with("(I/O through the page cache)"),
        "{text}"
    );
    println!("{text}");
    assert_eq!(Null.describe(), "no store");
    assert_eq!(Null.save(SlotId(0), None, &[1; 4096]), Err(SaveError::Full));
}
