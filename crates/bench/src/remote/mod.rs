//! `millpond bench remote`: memory in a store beyond the machine, beside what the service's own client moves.
//!
//! | part | service |
//! | --- | --- |
//! | `redis` | a `redis-server` on loopback, which keeps everything in its memory |
//! | `s3` | moto's S3 server on loopback (`MOTO_SERVER`, or `moto_server` in `PATH`), which does so too |
//!
//! | side | how |
//! | --- | --- |
//! | `millpond` | a region, larger by `--beyond` than the budget and the file in front |
//! | `client` | OpenDAL's operator, which Millpond uses too: objects of the same size, as many requests at once |
//! | `redis_client` | plain SET, GET and GETRANGE by the crate `redis`, in the part `redis` only |
//!
//! Each measured process does three things one after the other. It *fills* `--beyond` bytes: of the region, whose
//! budget and file are full by then, or as objects. It *reads* them in order. It reads pages at *random*: single pages
//! that are in the store, without reading ahead, or for each page the 64 KiB around it by one request. The data does
//! not compress, so both sides move the same bytes.
//!
//! The service is on the same machine, so there is no network in the figures: they say what Millpond adds to a client's
//! own work. The service's processor time stands beside the process's own.

mod client;
mod objects;
mod ours;
mod redis;
mod report;
mod server;
mod side;
mod work;

use crate::bench::{self, Asked, Bench};
use crate::error::BenchError;
use crate::part::Part;
use crate::rounds::{self, parse_pages};
use clap::ValueEnum;
use millpond_cli::size::{self, SizeError};
use report::RemoteParts;
use serde::Serialize;
use server::Server;
use side::Side;
pub use work::{Job, work};

/// `millpond bench remote`'s arguments.
#[derive(clap::Args, Debug)]
pub struct RemoteArgs {
    #[command(flatten)]
    asked: Asked<Name>,
    #[command(flatten)]
    sizes: Sizes,
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The RAM budget
    #[arg(id = "ram", long = "ram", default_value = "64M", value_parser = size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The size of the file in front of the store; 0 for none
    #[arg(id = "file", long = "file", default_value = "32M", value_parser = parse_file, value_name = "SIZE")]
    pub file_bytes: u64,
    /// How much is in the store, beyond the budget and the file
    #[arg(id = "beyond", long = "beyond", default_value = "256M", value_parser = parse_pages, value_name = "SIZE")]
    pub beyond_bytes: u64,
    /// How many pages are read at random
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub accesses: u64,
}

fn parse_file(text: &str) -> Result<u64, SizeError> {
    size::parse(text)
}

impl Sizes {
    /// The sizes as arguments of the measured process.
    fn to_arguments(self) -> Vec<String> {
        rounds::options(&[
            ("--ram", self.budget_bytes),
            ("--file", self.file_bytes),
            ("--beyond", self.beyond_bytes),
            ("--accesses", self.accesses),
        ])
    }
}

/// A part of the benchmark: a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Name {
    /// A Redis
    Redis,
    /// An S3 server, moto's
    S3,
}

impl bench::Name for Name {}

/// Measures, ends the services, and prints. Returns 1 when memory or an object held wrong bytes.
///
/// # Errors
/// When a service or a worker fails, or a signal asked for the end.
pub fn remote(args: &RemoteArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, None, |bench, name| {
        let server = match Server::start(name) {
            Ok(server) => server,
            Err(BenchError::Skipped(why)) => {
                bench.skipped.note(&format!("{name:?}"), &why);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        measure(bench, name, args.sizes, &server)
    })
}

fn measure(
    bench: &mut Bench<RemoteParts>,
    name: Name,
    sizes: Sizes,
    server: &Server,
) -> Result<(), BenchError> {
    let all = Side::value_variants().iter().copied();
    let sides: Vec<_> = all.filter(|&side| side.is_of(name)).collect();
    let rounds = bench.rounds(&sides, |bench, side| {
        let mut worker = server.worker();
        worker.args(["worker", "remote", &side.to_string()]);
        worker.args(["--url", server.url()]);
        worker.args(["--server", &server.pid().to_string()]);
        worker.args(sizes.to_arguments());
        bench.workers.measure_command(worker, |_, _| Ok(()))
    })?;
    bench.parts.set(name, Part::new(sizes, rounds));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::Args;
        RemoteArgs::augment_args(clap::Command::new("remote")).debug_assert();
        Job::augment_args(clap::Command::new("worker")).debug_assert();
    }
}
