//! The kernel's side: private anonymous memory, freed by `madvise`.
//!
//! Huge pages are off, as for Millpond, which maps 4 KiB pages: freeing a part of a huge page would measure how it is
//! split. Many ranges are freed by `process_madvise` on the calling process, which accepts `MADV_FREE` and
//! `MADV_DONTNEED` since Linux 6.13.

use crate::error::Failure;
use crate::lazyfree::memory::{Memory, Side};
use crate::mapping::{Mapping, Pages};
use crate::phases::usage_of_thread;
use rustix::mm::Advice;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{fs, io};

/// The maximum number of ranges in one call (`UIO_MAXIOV`).
const MAX_RANGES: usize = 1024;

/// A mapping with one owner.
pub struct Anonymous {
    mapping: Mapping,
    side: Side,
    process: OwnedFd,
}

impl Anonymous {
    /// Maps `len` bytes of zeros.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn map(side: Side, len: usize) -> Result<Self, Failure> {
        let process = rustix::process::pidfd_open(
            rustix::process::getpid(),
            rustix::process::PidfdFlags::empty(),
        )?;
        Ok(Self {
            mapping: Mapping::new(len, Pages::Small)?,
            side,
            process,
        })
    }

    fn advice(&self) -> Option<Advice> {
        match self.side {
            Side::KernelFree => Some(Advice::LinuxFree),
            Side::KernelDontneed => Some(Advice::LinuxDontNeed),
            _ => None,
        }
    }

    fn check(&self, range: &Range<usize>) {
        assert!(
            range.start < range.end && range.end <= self.mapping.len(),
            "{range:?} is not in 0..{}",
            self.mapping.len()
        );
    }

    fn advise_many(&self, ranges: &[Range<usize>], advice: Advice) -> io::Result<()> {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| {
                self.check(range);
                libc::iovec {
                    iov_base: self.mapping.start().wrapping_add(range.start).cast(),
                    iov_len: range.len(),
                }
            })
            .collect();
        for some in vectors.chunks(MAX_RANGES) {
            // SAFETY: the vectors lie in the mapping (checked), and the callers' exclusive borrow guarantees that
            // nobody holds a reference into it.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    self.process.as_raw_fd(),
                    some.as_ptr(),
                    some.len(),
                    advice as libc::c_int,
                    0,
                )
            };
            let bytes: usize = some.iter().map(|vector| vector.iov_len).sum();
            match usize::try_from(done) {
                Ok(done) if done == bytes => {}
                Ok(done) => {
                    return Err(io::Error::other(format!(
                        "process_madvise did {done} of {bytes} bytes"
                    )));
                }
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }
}

impl Memory for Anonymous {
    fn bytes(&mut self) -> &mut [u8] {
        self.mapping.bytes_mut()
    }

    fn free(&mut self, range: Range<usize>) -> Result<(), Failure> {
        let Some(advice) = self.advice() else {
            return Ok(());
        };
        self.check(&range);
        let start = self.mapping.start().wrapping_add(range.start);
        // SAFETY: the range lies in the mapping (checked), and with `&mut self` nobody holds a reference into it.
        unsafe { rustix::mm::madvise(start.cast(), range.len(), advice)? };
        Ok(())
    }

    fn free_vectored(&mut self, ranges: &[Range<usize>]) -> Option<Result<(), Failure>> {
        let advice = self.advice()?;
        Some(
            self.advise_many(ranges, advice)
                .map_err(|error| format!("process_madvise on the own process: {error}").into()),
        )
    }

    fn reuse(&mut self, _: Range<usize>) -> Result<(), Failure> {
        Ok(())
    }

    fn faults(&self) -> u64 {
        let usage = usage_of_thread();
        usage.minor_faults + usage.major_faults
    }

    fn purged(&self) -> u64 {
        0
    }
}

/// Counts since boot of pages that the machine has swapped in, swapped out, and dropped because they were lazily
/// freed.
///
/// # Errors
/// When `/proc/vmstat` cannot be read.
pub fn vmstat() -> io::Result<[u64; 3]> {
    let text = fs::read_to_string("/proc/vmstat")?;
    Ok(["pswpin", "pswpout", "pglazyfreed"].map(|name| value_of(&text, name).unwrap_or(0)))
}

fn value_of(vmstat: &str, name: &str) -> Option<u64> {
    let line = vmstat
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::PAGE;

    #[test]
    fn vmstat_values_are_parsed_by_exact_name() {
        let text = "pswpin 12\npswpout 34\npswpout_x 9\n";
        assert_eq!(value_of(text, "pswpout"), Some(34));
        assert_eq!(value_of(text, "pglazyfreed"), None);
    }

    #[test]
    fn dontneed_gives_zeros_in_both_forms_and_touches_nothing_else() {
        let mut memory = Anonymous::map(Side::KernelDontneed, 8 * PAGE).unwrap();
        memory.bytes().fill(7);
        memory.free(PAGE..2 * PAGE).unwrap();
        let freed = [3 * PAGE..4 * PAGE, 5 * PAGE..7 * PAGE];
        let vectored = memory.free_vectored(&freed).unwrap();
        let firsts: Vec<u8> = memory.bytes().iter().step_by(PAGE).copied().collect();
        match vectored {
            Ok(()) => assert_eq!(firsts, [7, 0, 7, 0, 7, 0, 0, 7]),
            Err(error) => {
                println!("skipped: {error}");
                assert_eq!(firsts, [7, 0, 7, 7, 7, 7, 7, 7]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "is not in")]
    fn freeing_outside_the_mapping_panics() {
        let mut memory = Anonymous::map(Side::KernelDontneed, 2 * PAGE).unwrap();
        let _ = memory.free(PAGE..3 * PAGE);
    }
}
