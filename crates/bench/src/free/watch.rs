//! Another thread of the freeing process, which keeps mapping and touching memory, and measures how long it waits.
//!
//! The thread alternates between two operations. It maps a little memory from the kernel, touches it and unmaps it,
//! which needs the kernel's lock on the address space. And it touches new memory of the same kind as the memory being
//! freed, for which Millpond's side needs the manager. Between them it sleeps: it should wait for the freeing thread
//! and not for a processor, and use little processor time itself.

use crate::clock::micros;
use crate::data::PAGE;
use crate::error::Failure;
use crate::mapping::{Mapping, Pages};
use millpond::Region;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes that are mapped and unmapped at once.
const SMALL: usize = 64 << 10;
/// The step in bytes between touches: a folio of the usual order.
const STEP: usize = 64 << 10;
/// The number of touched bytes after which the memory is freed, off the clock.
pub const TOUCHED: usize = 16 << 20;
const PAUSE: Duration = Duration::from_micros(50);

/// Memory that the thread touches.
pub enum Touched {
    /// Millpond's memory.
    Region(Region),
    /// The kernel's memory.
    Mapping(Mapping),
}

impl Touched {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Region(region) => region.as_mut_slice(),
            Self::Mapping(mapping) => mapping.bytes_mut(),
        }
    }

    fn forget(&mut self) -> Result<(), Failure> {
        match self {
            Self::Region(region) => region.discard(0..region.len())?,
            Self::Mapping(mapping) => *mapping = Mapping::new(mapping.len(), Pages::Small)?,
        }
        Ok(())
    }
}

/// The waits of the thread, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// The longest time for mapping, touching and unmapping.
    pub mmap: f64,
    /// The longest time of a touch.
    pub fault: f64,
    /// The number of operations of each kind.
    pub count: u64,
    /// Pages that were not zero at their first touch.
    pub wrong_pages: u64,
}

/// A running watch thread.
pub struct Watch {
    stop: std::sync::Arc<AtomicBool>,
    thread: JoinHandle<Result<(Seen, Touched), String>>,
}

impl Watch {
    /// Starts the thread, and waits until it has measured once.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(touched: Touched) -> Result<Self, Failure> {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let theirs = std::sync::Arc::clone(&stop);
        let (tells, told) = std::sync::mpsc::channel();
        let thread = thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watch(touched, &theirs, &tells).map_err(|error| error.to_string()))?;
        // If the thread has failed, joining it reports that.
        let _ = told.recv();
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    ///
    /// # Errors
    /// The thread's failure.
    pub fn stop(self) -> Result<(Seen, Touched), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().map_err(|_| "the thread panicked")?;
        Ok(ended?)
    }
}

fn watch(
    mut touched: Touched,
    stop: &AtomicBool,
    tells: &std::sync::mpsc::Sender<()>,
) -> Result<(Seen, Touched), Failure> {
    let mut seen = Seen::default();
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        seen.mmap = seen.mmap.max(map_and_unmap()?);
        if at == touched.bytes().len() {
            touched.forget()?;
            at = 0;
        }
        let page = &mut touched.bytes()[at..][..PAGE];
        let started = Instant::now();
        page[0] = 1;
        seen.fault = seen.fault.max(micros(started.elapsed()));
        seen.wrong_pages += u64::from(std::mem::replace(&mut page[PAGE - 1], 1) != 0);
        seen.count += 1;
        at += STEP;
        if seen.count == 1 {
            let _ = tells.send(());
        }
        thread::sleep(PAUSE);
    }
    touched.forget()?;
    Ok((seen, touched))
}

fn map_and_unmap() -> io::Result<f64> {
    use rustix::mm::{MapFlags, ProtFlags};
    let started = Instant::now();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address; only the range that was mapped here is written and unmapped.
    unsafe {
        let flags = MapFlags::PRIVATE;
        let at = rustix::mm::mmap_anonymous(std::ptr::null_mut(), SMALL, protection, flags)?;
        for offset in (0..SMALL).step_by(PAGE) {
            at.cast::<u8>().add(offset).write_volatile(1);
        }
        rustix::mm::munmap(at, SMALL)?;
    }
    Ok(micros(started.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_scans_repeatedly_and_reports_a_nonzero_page() {
        let mapping = Mapping::new(4 * STEP, Pages::Small).unwrap();
        let watch = Watch::start(Touched::Mapping(mapping)).unwrap();
        thread::sleep(Duration::from_millis(100));
        let (seen, mut touched) = watch.stop().unwrap();
        assert!(seen.count > 8, "more than once over all of it: {seen:?}");
        assert!(seen.mmap > 0.0 && seen.fault > 0.0);
        assert_eq!(seen.wrong_pages, 0);
        touched.bytes()[PAGE - 1] = 7;
        let (seen, _) = Watch::start(touched).unwrap().stop().unwrap();
        assert_eq!(seen.wrong_pages, 1);
    }
}
