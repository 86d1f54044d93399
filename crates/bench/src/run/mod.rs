//! `millpond bench run`: your own program in less memory than it needs, under Millpond and under the kernel.
//!
//! | side | what limits its memory | where the rest goes |
//! | --- | --- | --- |
//! | `unlimited` | nothing | |
//! | `millpond` | `millpond run`, with a budget per process that includes the store's memory | `--store` |
//! | `kernel_file` | a memory cgroup for all processes together | a swap file in `--swap-directory` |
//! | `kernel_zram` | the same | zram with lz4, whose memory is in no group and comes on top |
//! | `kernel_equal` | the same, but the limit makes group and zram together use the budget ([`equal`]) | the same |
//!
//! `kernel_zram` is the result of setting up zram for the machine. `kernel_equal` answers the same question as
//! `millpond`: how fast is the program when memory *and* compressed memory together have this much?
//!
//! The program runs twice without a limit before the measurement. The output and exit status of every other run are
//! compared with those. A program whose two outputs differ cannot be compared, and the result says so. The limit is a
//! quarter of its peak, unless `--ram` gives another. If root measures, the page cache is dropped before each run of
//! each side, so that the program's code is read again and counts equally on all sides.
//!
//! In JSON the only part is `program`. Its `sizes` have `equal`, the limit of `kernel_equal` and its peak when it was
//! found. [`Outcome`] defines its figures.

mod equal;
mod kernel;
mod outcome;
mod program;
mod runner;
mod side;

use crate::error::BenchError;
use millpond_cli::size;
pub use outcome::{Expected, Outcome, Sizes};
pub use program::{Ran, Task, work};
use runner::SWAP_LEAST;
pub use runner::{Compared, How, Limits, Program, Runner};
pub use side::Side;
use std::ffi::OsString;

/// The program's peak divided by this is the limit, unless `--ram` gives another.
const QUARTER: u64 = 4;

/// `millpond bench run`'s arguments.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure only these sides
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    only: Vec<Side>,
    /// The memory for the program; the default is a quarter of its peak without a limit
    #[arg(long, value_name = "SIZE", value_parser = size::parse_ram)]
    ram: Option<u64>,
    #[command(flatten)]
    how: How,
    /// The program and its arguments; its standard input is empty
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Measures, restores the machine, and prints. Returns 1 when the program's output differed from that without a
/// limit, or the program failed under Millpond.
///
/// # Errors
/// When the program cannot be started, something cannot be restored, or a signal ended the benchmark.
pub fn run(args: &RunArgs) -> Result<u8, BenchError> {
    let mut runner = Runner::new(args.how.clone(), "millpond-bench-run/3", args.rounds)?;
    let program = Program {
        words: &args.program,
        environment: &[],
    };
    let limits = Limits {
        ram: args.ram.unwrap_or(size::MIN_RAM),
        swap_bytes: SWAP_LEAST,
        equal: None,
    };
    let should = Expected::of([
        runner.measure(Side::Unlimited, limits, program)?,
        runner.measure(Side::Unlimited, limits, program)?,
    ]);
    let peak = should.peak_rss_bytes;
    let limits = Limits::of(peak, args.ram.unwrap_or(peak / QUARTER));
    runner.expect(peak);
    let words = args.program.iter().map(|word| word.to_string_lossy());
    let words = words.map(String::from).collect();
    let compared = runner.compare(
        &args.only,
        limits,
        &should,
        words,
        |runner, side, limits| runner.measure(side, limits, program),
    )?;
    let summary = &mut runner.bench.summary;
    summary.table(heading(&compared.sizes), &compared);
    summary.field("program", &compared)?;
    runner.bench.finish(args.json)
}

fn heading(sizes: &Sizes) -> String {
    let (ram, peak) = sizes.ram_and_peak();
    let (program, store) = (sizes.program.join(" "), &sizes.store);
    let differs = match sizes.is_repeatable {
        true => "",
        false => "\noutput differs between two runs without a limit, so that no output is compared",
    };
    format!("{program} in {ram}, the store {store}; without a limit it takes {peak}{differs}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heading_says_that_output_differs_between_runs() {
        let mut sizes = Sizes {
            ram_bytes: 16 << 20,
            peak_rss_bytes: 64 << 20,
            is_repeatable: true,
            program: vec!["sort".to_owned(), "numbers".to_owned()],
            store: "auto".to_owned(),
            equal: None,
        };
        let said = "sort numbers in 16 MiB, the store auto; without a limit it takes 64 MiB";
        assert_eq!(heading(&sizes), said);
        sizes.is_repeatable = false;
        let differs = "output differs between two runs without a limit";
        assert!(heading(&sizes).contains(differs));
    }
}
