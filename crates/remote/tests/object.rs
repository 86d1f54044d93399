//! Objects as the contents of regions: the bytes belong to one version, or there is an error.
//!
//! A directory's files are always objects. The S3 server is moto's, behind a proxy that disturbs the traffic (see
//! `faults.rs`).

mod common;
#[path = "common/proxy.rs"]
mod proxy;
#[path = "common/server.rs"]
mod server;

use common::{data, patient, wait_until};
use millpond_core::{Backing, Descriptors, FileFault, PAGE_SIZE};
use millpond_remote::{MappedObject, ObjectConfig, ObjectError, ObjectReader, TimeLimits};
use proxy::{Disturbance, Proxy};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use server::{Server, set_credentials};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of pages in the objects here. The last one is incomplete.
const PAGES: usize = 600;
const MORE: usize = 77;

fn contents(seed: u32) -> Vec<u8> {
    let mut bytes = data(seed, PAGES + 1);
    bytes.truncate(PAGES * PAGE_SIZE + MORE);
    bytes
}

fn start(limits: TimeLimits, kept_bytes: usize) -> Arc<ObjectReader> {
    let config = ObjectConfig {
        kept_bytes,
        limits,
        ..ObjectConfig::default()
    };
    ObjectReader::start(config).unwrap()
}

fn hasty() -> TimeLimits {
    TimeLimits {
        deadline: Duration::from_millis(600),
        attempt: Duration::from_millis(300),
    }
}

fn fs_url(path: &Path) -> String {
    format!("fs://{}", path.display())
}

fn open(reader: &Arc<ObjectReader>, url: &str) -> Result<MappedObject, ObjectError> {
    reader.open(&url.parse().unwrap())
}

fn read(object: &MappedObject, first: usize, pages: usize) -> Result<Vec<u8>, FileFault> {
    let mut out = vec![0xee; pages * PAGE_SIZE];
    object.read(first as u32, &mut out, Descriptors::OfProgram)?;
    Ok(out)
}

/// Returns the pages, with zeros after the end of the last one.
fn expected(bytes: &[u8], first: usize, pages: usize) -> Vec<u8> {
    let end = ((first + pages) * PAGE_SIZE).min(bytes.len());
    let mut expected = bytes[first * PAGE_SIZE..end].to_vec();
    expected.resize(pages * PAGE_SIZE, 0);
    expected
}

/// Reads with every length that a folio has, from several threads, and compares each with `bytes`.
fn all_is(object: &MappedObject, bytes: &[u8]) {
    std::thread::scope(|scope| {
        for order in [0, 2, 4, 6, 9] {
            scope.spawn(move || {
                let pages = 1 << order;
                for first in (0..=PAGES).step_by(if order == 0 { 7 } else { pages }) {
                    let pages = pages.min(PAGES + 1 - first);
                    let got = read(object, first, pages);
                    assert!(
                        got == Ok(expected(bytes, first, pages)),
                        "{pages} pages from {first}: {:?}",
                        got.err()
                    );
                }
            });
        }
    });
}

const NOT_FOUND: FileFault = FileFault::Io(Errno::NOENT.raw_os_error());
const BAD_LENGTH: FileFault = FileFault::Io(Errno::BADMSG.raw_os_error());
const TIMED_OUT: FileFault = FileFault::Io(Errno::TIMEDOUT.raw_os_error());

#[test]
fn a_file_of_a_directory_is_read_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some numbers");
    let bytes = contents(1);
    std::fs::write(&path, &bytes).unwrap();
    let reader = start(patient(), 1 << 20);
    let object = open(&reader, &fs_url(&path).replace(' ', "%20")).unwrap();
    assert_eq!(object.len(), bytes.len() as u64);
    all_is(&object, &bytes);
    assert_eq!(read(&object, PAGES + 1, 1), Err(FileFault::Ended));
    // A second object of the same reader, whose memory counts only once.
    let other = directory.path().join("other");
    std::fs::write(&other, [5; 100]).unwrap();
    let other = open(&reader, &fs_url(&other)).unwrap();
    assert_eq!(
        read(&other, 0, 1).unwrap()[..101],
        [[5; 100].as_slice(), &[0]].concat()
    );
    assert!(object.ram_bytes() > 0 && other.ram_bytes() == object.ram_bytes());
}

/// The client creates its root directory. Mapping an object from a missing directory once created it, empty.
#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent");
    let reader = start(patient(), 1 << 20);
    let missing = open(&reader, &fs_url(&absent.join("x")));
    assert!(matches!(missing, Err(ObjectError::Missing { .. })));
    assert!(!absent.exists());
}

/// Each touch of a page once fetched one page: a sequence of touches made one request each.
#[test]
fn neighbours_of_a_page_come_with_it_and_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let bytes = contents(2);
    std::fs::write(&path, &bytes).unwrap();
    let reader = start(patient(), 1 << 20);
    let object = open(&reader, &fs_url(&path)).unwrap();
    std::thread::scope(|scope| {
        for first in 32..48 {
            let (object, bytes) = (&object, &bytes);
            scope.spawn(move || assert_eq!(read(object, first, 1), Ok(expected(bytes, first, 1))));
        }
    });
    assert_eq!(reader.fetched_bytes(), 64 << 10);
    read(&object, 64, 128).unwrap();
    assert_eq!(reader.fetched_bytes(), (64 << 10) + (512 << 10));
}

/// Each way in which a file can become another one, of the same length or not.
#[test]
fn a_file_that_changes_is_an_error_and_never_a_mixture() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let (bytes, others) = (contents(3), contents(4));
    let changes: [(&str, &dyn Fn()); 4] = [
        ("written over", &|| std::fs::write(&path, &others).unwrap()),
        ("replaced", &|| {
            let new = directory.path().join("new");
            std::fs::write(&new, &others).unwrap();
            std::fs::rename(new, &path).unwrap();
        }),
        ("made shorter", &|| {
            std::fs::write(&path, &bytes[..5000]).unwrap()
        }),
        ("one byte of it changed", &|| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_at(&file, &[!bytes[9]], 9).unwrap();
        }),
    ];
    for (what, change) in changes {
        std::fs::write(&path, &bytes).unwrap();
        let reader = start(hasty(), 64 << 10);
        let object = open(&reader, &fs_url(&path)).unwrap();
        assert_eq!(read(&object, 16, 16), Ok(expected(&bytes, 16, 16)));
        change();
        for (first, pages) in [(0, 1), (16, 16), (64, 512), (PAGES, 1)] {
            let got = read(&object, first, pages.min(PAGES + 1 - first));
            assert_eq!(
                got.err(),
                Some(FileFault::Changed),
                "{what}: {pages} from {first}"
            );
        }
        // The current version can be mapped.
        let now = open(&reader, &fs_url(&path)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(read(&now, 0, 2), Ok(expected(&bytes, 0, 2)), "{what}");
    }
}

/// Readers run concurrently with a writer of one version after the other: every answer comes from one version, the
/// pinned one.
#[test]
fn no_read_beside_a_writer_mixes_versions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let bytes = 128 << 10;
    std::fs::write(&path, vec![1_u8; bytes]).unwrap();
    let reader = start(hasty(), 64 << 10);
    let (mut whole, mut changed) = (0, 0);
    for round in 1..40_u8 {
        let Ok(object) = open(&reader, &fs_url(&path)) else {
            continue;
        };
        let first = read(&object, 0, 32);
        let pinned = first.as_ref().map(|bytes| bytes[0]);
        std::thread::scope(|scope| {
            let path = &path;
            scope.spawn(move || {
                std::thread::sleep(Duration::from_micros(u64::from(round) * 37));
                std::fs::write(path, vec![round + 1; bytes]).unwrap();
            });
            for _ in 0..5 {
                match read(&object, 0, 32) {
                    Ok(got) => {
                        whole += 1;
                        assert!(got.iter().all(|&byte| byte == got[0]), "a mixture");
                        assert!(pinned.is_ok_and(|byte| byte == got[0]), "another version");
                    }
                    Err(FileFault::Changed) => changed += 1,
                    Err(other) => panic!("{other:?}"),
                }
            }
        });
    }
    assert!(whole > 0 && changed > 0, "{whole} whole, {changed} changed");
}

#[test]
fn a_deleted_object_is_an_error_until_the_same_one_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    let away = directory.path().join("away");
    let bytes = contents(5);
    std::fs::write(&path, &bytes).unwrap();
    let reader = start(patient(), 0);
    let object = open(&reader, &fs_url(&path)).unwrap();
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(read(&object, 0, 16), Err(NOT_FOUND));
    std::fs::rename(&away, &path).unwrap();
    all_is(&object, &bytes);
}

#[test]
fn unmappable_objects_are_refused_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("empty"), b"").unwrap();
    std::fs::create_dir(directory.path().join("inner")).unwrap();
    let reader = start(patient(), 0);
    let refused = |url: String| open(&reader, &url).err().unwrap().to_string();
    let place = fs_url(directory.path());
    let cases = [
        (format!("{place}/nothing"), "check the bucket or directory"),
        (format!("{place}/empty"), "has no bytes"),
        (format!("{place}/inner"), "directory"),
        ("redis://127.0.0.1/0".to_owned(), "put the bytes into S3"),
        ("memory://".to_owned(), "use fs://"),
    ];
    for (url, expected) in cases {
        let refused = refused(url);
        assert!(refused.contains(expected), "{refused}");
    }
}

/// A region that ended while its store was away once waited for the reads in progress.
#[test]
fn reads_in_flight_of_an_object_that_ends_are_abandoned() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    std::fs::write(&path, contents(6)).unwrap();
    let reader = start(patient(), 0);
    let object = open(&reader, &fs_url(&path)).unwrap();
    std::fs::remove_file(&path).unwrap();
    // In its place, a pipe to which nobody writes: it answers as little as a server that hangs.
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&object, 0, 512));
        std::thread::sleep(Duration::from_millis(200));
        object.end();
        assert_eq!(reading.join().unwrap(), Err(TIMED_OUT));
    });
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// An S3 client for the tests' own puts and deletes, bypassing the proxy.
struct Bucket {
    operator: opendal::Operator,
    runtime: tokio::runtime::Runtime,
}

impl Bucket {
    fn of(moto: &Server) -> Self {
        moto.make_bucket();
        let port = moto.port;
        let url = format!("s3://pond?endpoint=http://127.0.0.1:{port}&region=us-east-1");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let url: millpond_remote::RemoteUrl = url.parse().unwrap();
        Self {
            operator: url.operator().unwrap(),
            runtime,
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let write = self.operator.write(name, bytes.to_vec());
        self.runtime.block_on(write).unwrap();
    }

    fn delete(&self, name: &str) {
        self.runtime.block_on(self.operator.delete(name)).unwrap();
    }
}

/// All of it is one test, because the environment belongs to the process.
#[test]
fn an_s3_object_is_read_and_its_change_loss_and_absence_are_errors() {
    // SAFETY: no other test of this file reads these variables, and none of their names is read elsewhere in it.
    unsafe { set_credentials() };
    let Some(moto) = Server::s3() else { return };
    let bucket = Bucket::of(&moto);
    let proxy = Proxy::before(moto.port);
    let url = |name: &str| {
        let port = proxy.port;
        format!("s3://pond/{name}?endpoint=http://127.0.0.1:{port}&region=us-east-1")
    };
    let bytes = contents(7);
    bucket.put("team/some numbers", &bytes);
    let reader = start(patient(), 0);
    let object = open(&reader, &url("team/some%20numbers")).unwrap();
    all_is(&object, &bytes);
    disturbed(&object, &proxy, &bytes);
    moto.freeze();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(read(&object, 0, 64), Ok(expected(&bytes, 0, 64))));
        std::thread::sleep(Duration::from_secs(1));
        moto.thaw();
    });
    never_whole(&proxy, &url("team/some%20numbers"), &bytes);
    let missing = open(&reader, &url("nothing")).err().unwrap().to_string();
    assert!(missing.contains("there is no object"), "{missing}");
    // Another object of the same length, the same one again, and none.
    bucket.put("team/some numbers", &contents(8));
    for (first, pages) in [(0, 1), (16, 16), (PAGES, 1)] {
        assert_eq!(read(&object, first, pages), Err(FileFault::Changed));
    }
    // A server that does not know the condition sends what it has: its answer says which version that is.
    proxy.disturb(Disturbance::Hide("if-match"), u32::MAX);
    assert_eq!(read(&object, 0, 512), Err(FileFault::Changed));
    assert!(proxy.happened() > 0, "the header was there");
    bucket.put("team/some numbers", &bytes);
    assert_eq!(read(&object, 0, 512), Ok(expected(&bytes, 0, 512)));
    // A server that does not support ranges sends the whole object.
    proxy.disturb(Disturbance::Hide("range"), u32::MAX);
    assert_eq!(read(&object, 0, 512), Err(BAD_LENGTH));
    assert!(proxy.happened() > 0, "the header was there");
    proxy.disturb(Disturbance::None, 0);
    assert_eq!(read(&object, 0, 512), Ok(expected(&bytes, 0, 512)));
    bucket.delete("team/some numbers");
    assert_eq!(read(&object, 16, 16), Err(NOT_FOUND));
}

/// Disturbances that are temporary.
fn disturbed(object: &MappedObject, proxy: &Proxy, bytes: &[u8]) {
    for disturbance in [
        Disturbance::Answer("500 Internal Server Error"),
        Disturbance::Answer("503 Slow Down"),
        Disturbance::Answer("404 Not Found"),
        Disturbance::Refuse,
        Disturbance::Truncate,
    ] {
        proxy.disturb(disturbance, 2);
        assert_eq!(
            read(object, 0, 512),
            Ok(expected(bytes, 0, 512)),
            "{disturbance:?}"
        );
        assert!(proxy.happened() > 0, "{disturbance:?} never happened");
        proxy.disturb(Disturbance::None, 0);
    }
    all_is(object, bytes);
}

/// A permanent disturbance is an error for those pages, and none of the data is used.
fn never_whole(proxy: &Proxy, url: &str, bytes: &[u8]) {
    let hasty = start(hasty(), 0);
    let object = open(&hasty, url).unwrap();
    for disturbance in [Disturbance::Truncate, Disturbance::Refuse] {
        proxy.disturb(disturbance, u32::MAX);
        assert_eq!(read(&object, 0, 16), Err(TIMED_OUT), "{disturbance:?}");
        proxy.disturb(Disturbance::None, 0);
        wait_until("the object is read", || {
            read(&object, 0, 16) == Ok(expected(bytes, 0, 16))
        });
    }
}
