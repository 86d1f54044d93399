//! A copy-on-write image of memory: a snapshot of a region, compared with a fork of the process. All memory is
//! resident.
//!
//! Two costs are measured. The thread that takes the image is blocked meanwhile: a fork copies an entry for each
//! page. A thread that writes afterwards pays for each page that both still share: the kernel copies the page in the
//! child's fault, Millpond in the source's. One page in a hundred, chosen at random, is written once, one word of it.
//!
//! As with the first touch, everything is done several times in a process and the last time counts, because copies
//! are new memory, which on a virtual machine may have to come from the host.
//!
//! Afterwards the written pages and some others are compared byte for byte, both in the image and in its source.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::folio::Side;
use crate::folio::touch::WARM_UPS;
use crate::mapping::{Mapping, Pages};
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::{millpond_side, rounds};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::time::Instant;

/// One page in this many is written.
const WRITTEN: usize = 100;
/// One in this many of the other pages is compared.
const COMPARED: usize = 61;
/// The word that is written.
const NEW: u64 = 0x5EC0_4D00_C0FF_EE00;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the memory of which a snapshot is taken
    #[arg(id = "snapshot-memory", long = "snapshot-memory", default_value = "1G", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
}

outcome! {
    /// The measurements of one process, in microseconds.
    pub struct Outcome {
        /// The time for taking the image.
        pub blocked: f64,
        /// The time for writing a shared page.
        pub page: f64,
        /// Pages of image and source with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "blocked" = |r| r.blocked,
        time "page" = |r| r.page,
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory, or its image cannot be taken.
pub fn work(side: Side, sizes: &Sizes) -> Result<Outcome, Failure> {
    let len = usize::try_from(sizes.memory_bytes)?;
    let once = || match side {
        Side::Ours(order) => snapshot(order, len),
        Side::Kernel => fork(Pages::Small, len),
        Side::KernelHuge => fork(Pages::Huge, len),
    };
    for _ in 0..WARM_UPS {
        once()?;
    }
    once()
}

fn snapshot(order: BenchOrder, len: usize) -> Result<Outcome, Failure> {
    // There is room for the image as well, as on the kernel's side.
    let manager = millpond_side::settings(3 * len as u64 + (64 << 20)).build()?;
    let mut source = manager.region_with(len, order.0)?;
    data::fill_all(source.as_mut_slice());
    let pages = written(len / PAGE);
    let started = Instant::now();
    let image = source.snapshot()?;
    let blocked = started.elapsed().as_secs_f64() * 1e6;
    let page = write(source.as_mut_slice(), &pages);
    let wrong_pages =
        wrong(image.as_slice(), &pages, false) + wrong(source.as_slice(), &pages, true);
    Ok(Outcome {
        blocked,
        page,
        wrong_pages,
    })
}

fn fork(kind: Pages, len: usize) -> Result<Outcome, Failure> {
    let mut source = Mapping::new(len, kind)?;
    data::fill_all(source.bytes_mut());
    let pages = written(len / PAGE);
    let (mut told, mut tells) = io::pipe()?;
    let started = Instant::now();
    // SAFETY: this process has one thread, so the child finds no lock taken; the child does not return to a caller.
    let child = unsafe { libc::fork() };
    let blocked = started.elapsed().as_secs_f64() * 1e6;
    match child {
        -1 => return Err(io::Error::last_os_error().into()),
        0 => {
            let page = write(source.bytes_mut(), &pages);
            let wrong = wrong(source.bytes(), &pages, true);
            let mut text = [0; 16];
            text[..8].copy_from_slice(&page.to_le_bytes());
            text[8..].copy_from_slice(&wrong.to_le_bytes());
            let status = i32::from(tells.write_all(&text).is_err());
            // SAFETY: ends this process without running the exit handlers that the parent has registered.
            unsafe { libc::_exit(status) }
        }
        _ => drop(tells),
    }
    let mut text = [0; 16];
    let read = told.read_exact(&mut text);
    let mut status = 0;
    // SAFETY: `status` is writable, and the child belongs to this process and has not been waited for.
    if unsafe { libc::waitpid(child, &raw mut status, 0) } != child || status != 0 {
        return Err(format!("the child failed: status {status}").into());
    }
    read?;
    let (page, wrong_there) = text.split_at(8);
    Ok(Outcome {
        blocked,
        page: f64::from_le_bytes(page.try_into()?),
        wrong_pages: u64::from_le_bytes(wrong_there.try_into()?)
            + wrong(source.bytes(), &pages, false),
    })
}

/// The pages to write, in the order of the writes.
fn written(pages: usize) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let count = (pages / WRITTEN).max(1);
    data::random_pages(pages, 1)
        .filter(|&page| seen.insert(page))
        .take(count)
        .collect()
}

/// Writes a word to each of `pages`, and returns microseconds per page.
fn write(memory: &mut [u8], pages: &[usize]) -> f64 {
    let started = Instant::now();
    for &page in pages {
        memory[page * PAGE..][..8].copy_from_slice(&NEW.to_le_bytes());
    }
    started.elapsed().as_secs_f64() * 1e6 / pages.len() as f64
}

/// The number of wrong pages among `pages` and some others. The expected contents are those of the fill, with the new
/// word in `pages` if it was `written` here.
fn wrong(memory: &[u8], pages: &[usize], written: bool) -> u64 {
    let mut wanted = [0; PAGE];
    let is_wrong = |&page: &usize| {
        data::fill(&mut wanted, page);
        if written && pages.contains(&page) {
            wanted[..8].copy_from_slice(&NEW.to_le_bytes());
        }
        memory[page * PAGE..][..PAGE] != wanted
    };
    let others = (0..memory.len() / PAGE).step_by(COMPARED);
    pages.iter().copied().chain(others).filter(is_wrong).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_written_once_each_and_a_wrong_byte_is_found() {
        let pages = written(1000);
        assert_eq!(pages.len(), 10);
        let mut memory = vec![0; 1000 * PAGE];
        data::fill_all(&mut memory);
        assert_eq!(wrong(&memory, &pages, false), 0);
        write(&mut memory, &pages);
        assert_eq!(wrong(&memory, &pages, true), 0);
        assert!(wrong(&memory, &pages, false) >= 10);
        for page in [pages[3], 2 * COMPARED] {
            memory[page * PAGE + 4000] ^= 1;
            assert!(wrong(&memory, &pages, true) > 0, "page {page}");
            memory[page * PAGE + 4000] ^= 1;
        }
    }
}
