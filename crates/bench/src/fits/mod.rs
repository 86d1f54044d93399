//! `millpond bench fits`: programs whose memory fits into the budget, with and without `millpond run`.
//!
//! If everything fits, nothing has to leave, and a program should not notice Millpond at all. The remaining costs are
//! the first touch of its memory, the allocator, and (with direct delivery) the inspection of each system call. So
//! these programs make many system calls:
//!
//! | part | what is timed |
//! | --- | --- |
//! | `redis_set`, `redis_get` | a redis-server and 50 clients of redis-benchmark, a process without Millpond |
//! | `heap_reads` | a program that reads a file from the page cache into its heap, 4 KiB per call, as `dd` does |
//! | `sqlite` | sqlite3, which fills, changes and queries a database in a file |
//! | `http` | requests to python's `http.server`, which serves each in a new thread |
//! | `nginx` | the same requests to nginx |
//! | `make` | make, which compiles small C files, two at a time |
//! | `script` | a shell's loop, which starts a command in each round |
//! | `tests` | python's unittest over files of small tests |
//! | `node`, `java` | text and maps in a JavaScript engine and in a JVM |
//!
//! Programs that ask how much memory there is are told of the machine's: told of their budget, node and JVMs have
//! smaller heaps, and collect garbage more often, as they would in a container of that size.
//!
//! The start and end of servers are not timed. The output or answers of each program are compared with the expected
//! ones. The disk is not measured: sqlite3 does not wait for it (`synchronous=off`).
//!
//! A ratio is the time of the program by itself divided by its time under Millpond: 1 means the same time, and less
//! than 1 means slower.

mod commands;
mod heap;
mod http;
mod job;
mod nginx;
mod redis;
mod sqlite;

use crate::bench::{Asked, Bench, Parts};
use crate::error::BenchError;
use crate::jobs::Job;
use crate::side::{name, sides};
use crate::under_run;
pub use heap::read;
use job::{Outcome, Sizes};
pub use job::{Task, work};
use millpond_cli::run::DeliveryChoice;
use millpond_cli::size::Human;
use serde::{Deserialize, Serialize};

/// `millpond bench fits`' arguments.
#[derive(clap::Args, Debug)]
pub struct FitsArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    #[command(flatten)]
    sizes: Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Part {
    /// redis-benchmark's SET, 50 clients
    RedisSet,
    /// redis-benchmark's GET, 50 clients
    RedisGet,
    /// Reads of 4 KiB into the heap
    HeapReads,
    /// sqlite3 with a database in a file
    Sqlite,
    /// Requests to python's HTTP server
    Http,
    /// Requests to nginx
    Nginx,
    /// make -j2 of small C files
    Make,
    /// A shell's loop over small commands
    Script,
    /// Small tests in python
    Tests,
    /// Text and maps in node
    Node,
    /// Text and maps in a JVM
    Java,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-fits/3";

    fn units(_order: &str) -> String {
        "times are seconds".to_owned()
    }
}

sides! {
    /// Who serves the faults of the program.
    pub enum Side {
        /// The program without Millpond
        Plain,
        /// `millpond run --delivery handler`
        Handler,
        /// `millpond run --delivery direct --engage start`
        FromStart,
        /// `millpond run --delivery direct`
        Direct,
    }
    against [Plain]
}

/// Measures and prints. Returns 1 when a program gave a wrong answer.
///
/// # Errors
/// When a worker fails, or a signal ended the benchmark.
pub fn fits(args: &FitsArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, None, |bench, part| measure(bench, part, args))
}

fn measure(bench: &mut Bench, part: Part, args: &FitsArgs) -> Result<(), BenchError> {
    let sizes = args.sizes;
    if !bench.can(&name(&part), job::can_run(part)) {
        return Ok(());
    }
    bench.workers.take(sizes.ram);
    let mut sides = vec![Side::Plain];
    for (side, delivery) in [
        (Side::Handler, DeliveryChoice::Handler),
        (Side::FromStart, DeliveryChoice::Direct),
        (Side::Direct, DeliveryChoice::Direct),
    ] {
        let what = format!("{} by {side}", name(&part));
        if bench.can(&what, under_run::can_run_by(delivery)) {
            sides.push(side);
        }
    }
    let what = match part {
        Part::RedisSet => "redis-benchmark, SET, 50 clients",
        Part::RedisGet => "redis-benchmark, GET, 50 clients",
        Part::HeapReads => "reads of 4 KiB into the heap",
        Part::Sqlite => "sqlite3 with a database in a file",
        Part::Http => "requests to python's HTTP server",
        Part::Nginx => "requests to nginx",
        Part::Make => "make -j2 of small C files",
        Part::Script => "a shell's loop over small commands",
        Part::Tests => "small tests in python",
        Part::Node => "text and maps in node",
        Part::Java => "text and maps in a JVM",
    };
    let heading = format!("{what}, in {}", Human(sizes.ram));
    let job = |side| Job::Fits(Task { part, side, sizes });
    bench.processes::<Outcome, _, _>(part, heading, sizes, &sides, job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};

    #[test]
    fn deliveries_are_compared_with_a_plain_run_and_wrong_answers_count() {
        let ran = |seconds, wrong| Outcome {
            seconds,
            cpu_seconds: seconds,
            store_bytes: 0,
            wrong,
        };
        let rounds = vec![
            (Side::Plain, vec![ran(1.0, 0)]),
            (Side::Direct, vec![ran(1.25, 0), ran(1.25, 1)]),
        ];
        let part = Comparison::new((), rounds);
        assert_eq!(part.ratio("seconds", Side::Direct, Side::Plain), Some(0.8));
        assert_eq!(part.wrong(), 1);
    }
}
