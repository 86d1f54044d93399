//! Regions over objects: read in place under the budget, and an error where the object is not what it was.

mod common;

use common::{
    MIB, PAGE, Rng, deliveries, is_numbered, page_is, pages, small, write_numbered, write_page,
};
use millpond::{
    Advice, Delivery, FileError, FileRegion, GrowFileError, Manager, MapObjectError, Mode,
    ObjectError, RegionError,
};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

/// A file of numbered pages from `salt` on, and of `more` bytes of another one, in a directory of its own.
fn file(bytes: usize, more: usize, salt: u64) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("numbered pages");
    write(&path, bytes, more, salt);
    (directory, path)
}

fn write(path: &Path, bytes: usize, more: usize, salt: u64) {
    write_numbered(&mut std::fs::File::create(path).unwrap(), bytes, more, salt);
}

fn map(manager: &Manager, path: &Path) -> FileRegion {
    let url = format!("fs://{}", path.display()).replace(' ', "%20");
    manager.map_object(&url).unwrap()
}

/// In order, at random from several threads, and again: the bytes are the object's, the budget is kept, and nothing
/// goes to the store.
#[test]
fn an_object_larger_than_the_budget_is_read_in_place() {
    let (_directory, path) = file(64 * MIB, 100, 0);
    for delivery in deliveries() {
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, &path);
        assert_eq!(
            (region.len(), region.mode()),
            (64 * MIB + 100, Mode::ReadOnly)
        );
        assert!(is_numbered(&region), "{delivery:?}");
        std::thread::scope(|scope| {
            for seed in 1..4 {
                let region = &region;
                scope.spawn(move || {
                    let mut rng = Rng(seed);
                    for _ in 0..300 {
                        let at = rng.below(64 * MIB / PAGE) * PAGE;
                        assert!(page_is(&region.as_slice()[at..at + PAGE], pages(at)));
                    }
                });
            }
        });
        assert!(is_numbered(&region), "{delivery:?}");
        let mut last = [0; PAGE];
        write_page(&mut last, pages(64 * MIB));
        assert_eq!(region.as_slice()[64 * MIB..], last[..100]);
        let stats = manager.stats();
        assert_eq!((stats.vm.pswpout, stats.store.slots), (0, 0), "{stats:#?}");
        assert!(stats.vm.pgsteal_file > pages(100 * MIB), "{stats:#?}");
        // What is in flight comes on top: four threads of the program's, and the readers.
        assert!(stats.peak_bytes <= stats.ram + MIB as u64, "{stats:#?}");
        drop(region);
        let vm = manager.stats().vm;
        assert_eq!((vm.nr_mapped, vm.nr_limbo), (0, 0), "{vm:#?}");
    }
}

/// Orders that the faults decide: a lone touch brings a page, and its neighbours are not fetched again.
#[test]
fn lone_touches_and_streams_read_what_the_object_holds() {
    let (_directory, path) = file(48 * MIB, 0, 0);
    let manager = Manager::builder().ram(32 << 20).build().unwrap();
    let region = map(&manager, &path);
    region.advise(0..24 * MIB, Advice::Random).unwrap();
    let mut rng = Rng(7);
    for _ in 0..2000 {
        let at = rng.below(region.len() / PAGE) * PAGE;
        assert!(page_is(&region.as_slice()[at..at + PAGE], pages(at)));
    }
    assert!(is_numbered(&region));
    region.prefetch(0..MIB).unwrap();
    drop(region);
    // Several objects of one manager.
    let (_other_directory, other) = file(MIB, 5, 0);
    let regions = [map(&manager, &path), map(&manager, &other)];
    assert!(regions.iter().all(is_numbered));
}

/// Pages in memory stay what they are; no other page of the region is ever of another version.
#[test]
fn a_changed_object_is_an_error_for_pages_not_in_memory() {
    for delivery in deliveries() {
        let (_directory, path) = file(4 * MIB, 0, 0);
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, &path);
        region.populate(0..MIB).unwrap();
        write(&path, 4 * MIB, 0, 1_000_000);
        let mut page = [0; PAGE];
        let changed = |offset| Err(FileError::Changed { offset });
        assert_eq!(
            region.populate(2 * MIB..3 * MIB),
            changed(2 * MIB),
            "{delivery:?}"
        );
        assert_eq!(region.read_at(3 * MIB, &mut page), changed(3 * MIB));
        assert_eq!(
            region.try_read(3 * MIB, &mut page),
            Err(FileError::Changed { offset: 3 * MIB })
        );
        assert_eq!(region.try_read(4 * MIB - PAGE, &mut page), Ok(false));
        assert_eq!(region.pin(2 * MIB..3 * MIB).map(drop), changed(2 * MIB));
        for at in (0..4 * MIB).step_by(17 * PAGE) {
            match region.read_at(at, &mut page) {
                Ok(()) => assert!(page_is(&page, pages(at)), "{delivery:?}: a mixture at {at}"),
                Err(error) => {
                    assert!(at >= MIB, "{delivery:?}: {at} was in memory");
                    assert_eq!(error, FileError::Changed { offset: at });
                }
            }
        }
        // The version that is there now is another object.
        let now = map(&manager, &path);
        now.read_at(3 * MIB, &mut page).unwrap();
        assert!(page_is(&page, 1_000_000 + pages(3 * MIB)));
    }
}

#[test]
fn a_deleted_object_is_an_error_until_it_is_back() {
    let (directory, path) = file(2 * MIB, 0, 0);
    let away = directory.path().join("away");
    let manager = small().build().unwrap();
    let region = map(&manager, &path);
    std::fs::rename(&path, &away).unwrap();
    let mut page = [0; PAGE];
    let gone = FileError::Read {
        offset: MIB,
        errno: rustix::io::Errno::NOENT,
    };
    assert_eq!(region.read_at(MIB, &mut page), Err(gone));
    std::fs::rename(&away, &path).unwrap();
    assert!(is_numbered(&region));
}

#[test]
fn a_touch_of_a_page_of_another_version_is_sigbus() {
    const CHILD: &str = "MILLPOND_TEST_CHANGED_OBJECT";
    if let Some(path) = std::env::var_os(CHILD) {
        let handler = std::env::var_os("MILLPOND_TEST_HANDLER").is_some();
        let delivery = if handler {
            Delivery::Handler
        } else {
            Delivery::InThread
        };
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, Path::new(&path));
        write(Path::new(&path), MIB, 0, 5);
        println!("not reached: {}", region.as_slice()[5 * PAGE]);
        std::process::exit(3);
    }
    for delivery in deliveries() {
        let (_directory, path) = file(MIB, 0, 0);
        let mut run = std::process::Command::new(std::env::current_exe().unwrap());
        run.args(["--exact", "a_touch_of_a_page_of_another_version_is_sigbus"])
            .arg("--nocapture")
            .env(CHILD, &path);
        if delivery == Delivery::Handler {
            run.env("MILLPOND_TEST_HANDLER", "1");
        }
        let run = run.output().unwrap();
        assert_eq!(run.status.signal(), Some(libc::SIGBUS), "{run:?}");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.contains("of an object that has changed"), "{said}");
    }
}

/// A child had the handle of a thread that exists only in its parent, and waited for it.
#[test]
fn a_forked_child_drops_an_object_that_its_parent_mapped() {
    let (_directory, path) = file(MIB, 0, 0);
    let manager = small().build().unwrap();
    let region = map(&manager, &path);
    assert!(is_numbered(&region));
    // SAFETY: the child calls nothing but what is under test, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(region);
        drop(manager);
        // SAFETY: nothing of the process is used afterwards.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's, and the place is this thread's.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert!(is_numbered(&region));
}

#[test]
fn impossible_requests_are_refused_with_a_remedy() {
    let (directory, path) = file(2 * MIB, 0, 0);
    let manager = small().address_space(64 << 20).build().unwrap();
    let refused = |url: &str| manager.map_object(url).unwrap_err();
    let missing = refused("fs:///nowhere/at all");
    assert!(
        matches!(missing, MapObjectError::Object(ObjectError::Missing { .. })),
        "{missing:?}"
    );
    assert!(
        refused("s3://AKIA:secret@b/x")
            .to_string()
            .contains("AWS_ACCESS_KEY_ID")
    );
    assert!(
        refused("redis://h/0")
            .to_string()
            .contains("put the bytes into S3")
    );
    let large = directory.path().join("large");
    std::fs::File::create(&large)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let large = refused(&format!("fs://{}", large.display()));
    assert!(
        matches!(
            large,
            MapObjectError::Region(RegionError::NoAddressSpace { .. })
        ),
        "{large:?}"
    );
    let mut region = map(&manager, &path);
    assert!(region.as_mut_slice().is_none());
    assert_eq!(region.grow(4 * MIB), Err(GrowFileError::NotShared));
    region.sync(0..MIB).unwrap();
}
