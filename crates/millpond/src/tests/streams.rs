//! Who reads a stream over a file.

use crate::{Delivery, Manager, StoreKind};
use millpond_core::{Backing, Descriptors, FileFault, Kind, PAGE_SIZE};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// A file on a slow device, which counts the pages that the threads read ahead, and those that others read.
#[derive(Default)]
struct Counted {
    ahead: AtomicUsize,
    by_others: AtomicUsize,
}

impl Backing for Counted {
    fn read(&self, first: u32, out: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
        let is_reader = rustix::thread::name().unwrap().as_c_str() == c"millpond-read";
        let by = if is_reader {
            &self.ahead
        } else {
            &self.by_others
        };
        by.fetch_add(out.len() / PAGE_SIZE, SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        out.fill(first as u8 | 1);
        Ok(())
    }

    fn ram_bytes(&self) -> u64 {
        0
    }
}

/// Streams, and bytes of each.
const STREAMS: usize = 16;
const STREAM: usize = 128 << 20;

/// A fault that had to reclaim did not say that it had read a stream. While readers do nothing the program reclaims for
/// itself, so this went on: of 2 GiB in 128 MiB four fifths were read by the program's faults, one read at a time.
/// Where a handler serves faults, one that met a reader's page did not say how far the stream had come.
#[test]
fn a_stream_is_read_ahead_where_its_faults_reclaim() {
    for delivery in [Delivery::Direct, Delivery::Handler] {
        let builder = Manager::builder().ram(64 << 20).delivery(delivery);
        let builder = builder.store(StoreKind::compressed_ram());
        let Ok(manager) = builder.build() else {
            println!("skipped: no {delivery:?} here");
            continue;
        };
        let file = Arc::new(Counted::default());
        let region = manager.file_region(STREAMS * STREAM, Kind::File, Arc::clone(&file) as _);
        let region = region.unwrap();
        // Each stream begins where memory is full, so that its first faults reclaim.
        for stream in region.as_slice().chunks(STREAM) {
            let pages = stream[STREAM / 2..].chunks(PAGE_SIZE);
            assert!(pages.map(|page| page[0]).all(|byte| byte & 1 == 1));
        }
        let (ahead, by_others) = (file.ahead.load(SeqCst), file.by_others.load(SeqCst));
        println!("{delivery:?}: {ahead} pages ahead, {by_others} by others");
        assert!(
            ahead > 8 * by_others,
            "{delivery:?}: {ahead} pages ahead, {by_others} by others"
        );
    }
}
