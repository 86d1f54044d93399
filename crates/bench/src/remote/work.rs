//! The measured process: it fills, reads in order and reads at random, on one side.

use crate::clock::Clock;
use crate::data::PAGE;
use crate::error::Failure;
use crate::outcome::{highest, mib, outcome};
use crate::phases::usage;
use crate::remote::{Side, Sizes, client, ours, redis};
use millpond::RemoteUrl;
use procfs::process::Process;
use serde::{Deserialize, Serialize};

outcome! {
    /// The times of one phase, in microseconds per page.
    #[derive(Copy)]
    pub struct Phase {
        /// Wall time.
        pub wall: f64,
        /// Processor time of all threads of the measured process.
        pub cpu: f64,
        /// Processor time of the service.
        pub server_cpu: f64,
    }
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Writing pages in order, beyond the capacity of the budget and the file, or as objects.
        pub fill: Phase,
        /// Reading pages in order.
        pub read: Phase,
        /// Reading pages at random, one at a time.
        pub random: Phase,
        /// Peak resident set of the process as counted by the kernel.
        pub peak_rss_bytes: u64 = highest,
        /// How often the store of Millpond's region accepted nothing for a while, so that pages stayed above the
        /// budget. If that happened, less was moved than on the other sides, and the times cannot be compared.
        pub store_failures: u64 = highest,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "fill" = |r| r.fill.wall,
        other "its cpu" = |r| r.fill.cpu,
        other "service's" = |r| r.fill.server_cpu,
        time "read" = |r| r.read.wall,
        other "its cpu" = |r| r.read.cpu,
        other "service's" = |r| r.read.server_cpu,
        time "random" = |r| r.random.wall,
        other "its cpu" = |r| r.random.cpu,
        other "service's" = |r| r.random.server_cpu,
        other "rss MiB" = |r| mib(r.peak_rss_bytes),
        other "refused" = |r| r.store_failures,
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Who moves the data.
    pub side: Side,
    /// The service, as a URL.
    pub url: String,
    /// The service's process.
    pub server: i32,
    /// The sizes.
    pub sizes: Sizes,
}

/// Moves the data, and measures.
///
/// # Errors
/// When the process cannot get its memory, or the service does not answer.
pub fn work(task: &Task) -> Result<Outcome, Failure> {
    let outcome = match task.side {
        Side::Millpond => ours::work(task)?,
        Side::Client => client::work(task)?,
        Side::RedisClient => redis::work(task)?,
    };
    Ok(Outcome {
        peak_rss_bytes: usage().peak_rss_bytes,
        ..outcome
    })
}

impl Task {
    /// The service's parsed URL.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn url(&self) -> Result<RemoteUrl, Failure> {
        Ok(self.url.parse()?)
    }

    /// The number of pages beyond the budget and the file.
    pub fn beyond(&self) -> usize {
        self.sizes.beyond_bytes as usize / PAGE
    }

    /// The number of pages for which the budget and the file have room.
    pub fn within(&self) -> usize {
        (self.sizes.budget_bytes + self.sizes.file_bytes) as usize / PAGE
    }

    /// Starts the clocks of this process and of the service.
    ///
    /// # Errors
    /// When the service has ended.
    pub fn start(&self) -> Result<Clocks, Failure> {
        Ok(Clocks {
            server: self.server,
            server_cpu: cpu_of(self.server)?,
            own: Clock::start(),
        })
    }
}

/// Clocks that run while a phase is measured.
pub struct Clocks {
    own: Clock,
    server: i32,
    server_cpu: f64,
}

impl Clocks {
    /// The times since the start, per page for `pages`.
    ///
    /// # Errors
    /// When the service has ended.
    pub fn stop(&self, pages: usize) -> Result<Phase, Failure> {
        let (wall, cpu) = (self.own.wall(), self.own.cpu());
        let server_cpu = cpu_of(self.server)? - self.server_cpu;
        let each = |micros: f64| micros / pages as f64;
        Ok(Phase {
            wall: each(wall),
            cpu: each(cpu),
            server_cpu: each(server_cpu),
        })
    }
}

/// The processor time of a process so far, in microseconds. The kernel counts it in ticks, usually of 10 ms.
fn cpu_of(pid: i32) -> Result<f64, Failure> {
    let stat = Process::new(pid)?.stat()?;
    let ticks = stat.utime + stat.stime;
    Ok(ticks as f64 * 1e6 / procfs::ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_for_both_processes() {
        let url = "memory://".to_owned();
        let sizes = Sizes {
            budget_bytes: 16 << 20,
            file_bytes: 4 << 20,
            beyond_bytes: 1 << 20,
            accesses: 1,
        };
        let task = Task {
            side: Side::Client,
            url,
            server: std::process::id() as i32,
            sizes,
        };
        let clocks = task.start().unwrap();
        while clocks.own.cpu() < 50_000.0 {}
        let phase = clocks.stop(10).unwrap();
        assert!(phase.wall >= 5000.0 && phase.cpu >= 5000.0, "{phase:?}");
        assert!(phase.server_cpu >= 2000.0, "{phase:?}");
        assert_eq!((task.beyond(), task.within()), (256, 5120));
        let gone = Task { server: -1, ..task };
        assert!(gone.start().is_err());
    }
}
