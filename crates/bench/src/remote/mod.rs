//! `millpond bench remote`: memory in a store beyond the machine, compared with the service's own client.
//!
//! | part | service |
//! | --- | --- |
//! | `redis` | a `redis-server` on loopback, which keeps everything in its memory |
//! | `s3` | moto's S3 server on loopback (`MOTO_SERVER`, or `moto_server` in `PATH`), which does the same |
//!
//! | side | how |
//! | --- | --- |
//! | `millpond` | a region that is `--beyond` larger than the budget and the file in front together |
//! | `client` | OpenDAL's operator, which Millpond also uses: objects of the same size, as many requests at once |
//! | `redis_client` | plain SET, GET and GETRANGE through the crate `redis`, only in the part `redis` |
//!
//! Each measured process does three things one after the other. It *fills* `--beyond` bytes: of the region, whose
//! budget and file are full by then, or as objects. It *reads* them in order. It reads pages at *random*: single
//! pages from the store without readahead, or for each page the 64 KiB around it in one request. The data does not
//! compress, so both sides move the same bytes.
//!
//! The service is on the same machine, so the figures do not include a network: they show what Millpond adds to a
//! client's own work. The service's processor time is reported beside the process's own. A ratio is the time of a
//! client divided by Millpond's.

mod client;
mod objects;
mod ours;
mod redis;
mod server;
mod work;

use crate::bench::{Asked, Bench, Parts};
use crate::error::BenchError;
use crate::jobs::Job;
use crate::rounds::parse_pages;
use crate::side::sides;
use clap::ValueEnum;
use millpond_cli::size::{self, Human, SizeError};
use serde::{Deserialize, Serialize};
use server::Server;
use work::Outcome;
pub use work::{Task, work};

/// `millpond bench remote`'s arguments.
#[derive(clap::Args, Debug)]
pub struct RemoteArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    #[command(flatten)]
    sizes: Sizes,
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The RAM budget
    #[arg(id = "ram", long = "ram", default_value = "64M", value_parser = size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The size of the file in front of the store; 0 for no file
    #[arg(id = "file", long = "file", default_value = "32M", value_parser = parse_file, value_name = "SIZE")]
    pub file_bytes: u64,
    /// The amount of memory in the store, beyond the budget and the file
    #[arg(id = "beyond", long = "beyond", default_value = "256M", value_parser = parse_pages, value_name = "SIZE")]
    pub beyond_bytes: u64,
    /// The number of pages read at random
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub accesses: u64,
}

fn parse_file(text: &str) -> Result<u64, SizeError> {
    size::parse(text)
}

/// A part of the benchmark: a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Part {
    /// A Redis server
    Redis,
    /// An S3 server, moto's
    S3,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-remote/1";

    fn units(_order: &str) -> String {
        "times are µs a page of 4 KiB; processor time is of all threads, and of the service"
            .to_owned()
    }
}

sides! {
    /// Who moves the data to the service and back.
    pub enum Side {
        /// A region of memory that exceeds the budget and the file
        Millpond,
        /// The service's client, with objects of the same size
        Client,
        /// Redis's own client
        RedisClient,
    }
    against [Client, RedisClient]
}

/// Measures, ends the services, and prints. Returns 1 when memory or an object had wrong contents.
///
/// # Errors
/// When a service or a worker fails, or a signal ended the benchmark.
pub fn remote(args: &RemoteArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, None, |bench, part| match Server::start(part) {
        Ok(server) => measure(bench, part, args.sizes, &server),
        Err(BenchError::Skipped(why)) => {
            bench.summary.skip(&format!("{part:?}"), &why);
            Ok(())
        }
        Err(error) => Err(error),
    })
}

fn measure(bench: &mut Bench, part: Part, sizes: Sizes, server: &Server) -> Result<(), BenchError> {
    let mut sides = Side::value_variants().to_vec();
    sides.retain(|&side| side != Side::RedisClient || part == Part::Redis);
    let rounds = bench.rounds::<_, Outcome>(&sides, |bench, side| {
        let job = Job::Remote(Task {
            side,
            url: server.url().to_owned(),
            server: server.pid() as i32,
            sizes,
        });
        let mut worker = server.worker();
        worker.args(job.to_arguments()?);
        bench.workers.measure_command(worker, None)
    })?;
    let service = match part {
        Part::Redis => "a redis-server",
        Part::S3 => "an S3 server (moto)",
    };
    let (ram, file) = (Human(sizes.budget_bytes), Human(sizes.file_bytes));
    let beyond = Human(sizes.beyond_bytes);
    let heading = format!("{beyond} in {service}, beyond {ram} of RAM and a file of {file}");
    bench.part(part, heading, sizes, rounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};
    use work::Phase;

    #[test]
    fn millpond_is_compared_with_the_client_in_each_phase() {
        let moved = |wall, wrong_pages| {
            let phase = |wall| Phase {
                wall,
                ..Phase::default()
            };
            Outcome {
                fill: phase(wall),
                read: phase(2.0 * wall),
                random: phase(100.0),
                wrong_pages,
                ..Outcome::default()
            }
        };
        let rounds = vec![
            (Side::Millpond, vec![moved(2.0, 0)]),
            (Side::Client, vec![moved(1.0, 0), moved(1.0, 1)]),
        ];
        let part = Comparison::new((), rounds);
        let ratio = |figure| part.ratio(figure, Side::Millpond, Side::Client);
        assert_eq!(
            [ratio("fill"), ratio("read"), ratio("random")],
            [Some(0.5), Some(0.5), Some(1.0)]
        );
        assert_eq!(part.wrong(), 1, "one wrong page of one round is seen");
    }
}
