//! A page that the store has lost does not keep other pages from being in memory when a child is made.
//!
//! Memory that the C library touches in a child before the child is set up must be resident. Bringing it in used to
//! stop at the first unobtainable page, and the pages after it read as zeros in the child.

mod common;

use common::{MIB, PAGE, page_is, write_page};
use millpond::space::{Space, SpaceOptions};
use millpond::{BuildError, StoreKind};
use std::io::{Read, Write};

const LEN: usize = 64 * MIB;
/// Starts of two ranges: pages of the first are lost, the second comes behind it.
const RANGES: [usize; 2] = [30 * MIB, 4 * MIB];
const RANGE: usize = MIB / 2;

/// The page as the kernel reads it, so that a page without memory is an error and does not end the program. `None` for
/// such a page.
fn read(
    address: usize,
    into: &mut std::io::PipeWriter,
    out: &mut std::io::PipeReader,
) -> Option<Vec<u8>> {
    // SAFETY: the page belongs to the test, which writes nothing during the read.
    let page = unsafe { std::slice::from_raw_parts(address as *const u8, PAGE) };
    into.write_all(page).ok()?;
    let mut copy = vec![0; PAGE];
    out.read_exact(&mut copy).unwrap();
    Some(copy)
}

fn space(path: &std::path::Path) -> Option<&'static Space> {
    let made = Space::create(SpaceOptions {
        store: StoreKind::File {
            path: Some(path.into()),
            max_bytes: None,
            force_tmpfs: true,
        },
        ..common::space_options()
    });
    match made {
        Ok(space) => Some(space),
        Err(BuildError::Memory(error)) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn lost_pages_do_not_keep_other_pages_from_a_child() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("store");
    let Some(space) = space(&path) else { return };
    space.open(space.base(), LEN).unwrap();
    // SAFETY: opened for this test alone; the space is never dropped.
    let bytes = unsafe { std::slice::from_raw_parts_mut(space.base() as *mut u8, LEN) };
    for (n, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        write_page(page, n as u64);
    }
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len / 2).unwrap();

    let (mut out, mut into) = std::io::pipe().unwrap();
    let mut right = |start: usize| {
        let pages = (start..start + RANGE).step_by(PAGE);
        let is_right = |at: &usize| {
            read(space.base() + at, &mut into, &mut out)
                .is_some_and(|page| page_is(&page, (at / PAGE) as u64))
        };
        pages.filter(is_right).count()
    };
    space.before_fork(&RANGES.map(|start| (space.base() + start, RANGE)));
    // SAFETY: the child makes system calls, allocates nothing that others hold, and leaves by _exit. It is not set up,
    // so that it finds the memory that the kernel copied.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let there = RANGES.map(&mut right);
        let code = match there {
            [0, n] if n == RANGE / PAGE => 0,
            [_, n] if n == RANGE / PAGE => 1,
            _ => 2,
        };
        // SAFETY: the child leaves by _exit, so that nothing of the parent runs at exit.
        unsafe { libc::_exit(code) };
    }
    space.after_fork_in_parent();
    let mut status = 0;
    // SAFETY: the status is written to a variable of this function.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    let in_parent = RANGES.map(right);
    assert_eq!(in_parent, [0, RANGE / PAGE], "pages that the parent has");
    assert_eq!(libc::WEXITSTATUS(status), 0, "1: lost ones, 2: others");
}
