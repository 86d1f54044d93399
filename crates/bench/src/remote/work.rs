//! The measured process: it fills, reads in order and reads at random, by one side.

use crate::clock::Clock;
use crate::data::PAGE;
use crate::error::Failure;
use crate::phases::usage;
use crate::remote::report::{Outcome, Phase};
use crate::remote::side::Side;
use crate::remote::{Sizes, client, ours, redis};
use millpond::RemoteUrl;
use procfs::process::Process;

/// What is measured once.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Job {
    /// Who moves the data
    pub side: Side,
    /// The service
    #[arg(long)]
    pub url: RemoteUrl,
    /// The service's process
    #[arg(long, value_name = "PID")]
    pub server: i32,
    #[command(flatten)]
    pub sizes: Sizes,
}

/// Moves the data, and measures.
///
/// # Errors
/// When the process cannot get its memory, or the service does not answer.
pub fn work(job: &Job) -> Result<Outcome, Failure> {
    let outcome = match job.side {
        Side::Millpond => ours::work(job)?,
        Side::Client => client::work(job)?,
        Side::RedisClient => redis::work(job)?,
    };
    Ok(Outcome {
        peak_rss_bytes: usage().peak_rss_bytes,
        ..outcome
    })
}

impl Job {
    /// Pages beyond the budget and the file.
    pub fn beyond(&self) -> usize {
        self.sizes.beyond_bytes as usize / PAGE
    }

    /// Pages for which the budget and the file have room.
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
    /// The times since the start, for each of `pages`.
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

/// Processor time of a process so far, in microseconds. The kernel counts it in ticks of mostly 10 ms.
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
        let url = "memory://".parse().unwrap();
        let sizes = Sizes {
            budget_bytes: 16 << 20,
            file_bytes: 4 << 20,
            beyond_bytes: 1 << 20,
            accesses: 1,
        };
        let job = Job {
            side: Side::Client,
            url,
            server: std::process::id() as i32,
            sizes,
        };
        let clocks = job.start().unwrap();
        while clocks.own.cpu() < 50_000.0 {}
        let phase = clocks.stop(10).unwrap();
        assert!(phase.wall >= 5000.0 && phase.cpu >= 5000.0, "{phase:?}");
        assert!(phase.server_cpu >= 2000.0, "{phase:?}");
        assert_eq!((job.beyond(), job.within()), (256, 5120));
        let gone = Job { server: -1, ..job };
        assert!(gone.start().is_err());
    }
}
