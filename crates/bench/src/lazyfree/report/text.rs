//! The form for people: a table for each part, then the targets.

use crate::lazyfree::cycle::{self, Cycle};
use crate::lazyfree::ebizzy::Allocator;
use crate::lazyfree::report::LazyFreeReport;
use crate::lazyfree::report::parts::{
    AtOrder, Ebizzy, Gain, PATTERNS, Rss, RunRounds, SideRounds, Sides, Skipped,
};
use crate::lazyfree::{rss, workers};
use crate::target;
use millpond_cli::size::Human;
use std::fmt;

impl fmt::Display for LazyFreeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "medians of {} rounds", self.rounds)?;
        if let Some(cycle) = &self.parts.cycle {
            cycle.fmt(f)?;
        }
        if let Some(workers) = &self.parts.workers {
            workers.fmt(f)?;
        }
        if let Some(ebizzy) = &self.parts.ebizzy {
            ebizzy.fmt(f)?;
        }
        if let Some(rss) = &self.parts.rss {
            rss.fmt(f)?;
        }
        target::write_all(f, &self.targets)?;
        for Skipped { what, why } in &self.parts.skipped {
            writeln!(f, "{what} skipped: {why}")?;
        }
        if !self.all_right() {
            writeln!(f, "WRONG BYTES were read back; see the JSON form")?;
        }
        Ok(())
    }
}

impl fmt::Display for Sides<cycle::Sizes, Cycle> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Human(self.sizes.chunk_bytes);
        writeln!(f, "\nfree and rewrite, µs a chunk of {bytes}")?;
        write!(f, "{:<28}", "")?;
        for (pattern, _) in PATTERNS {
            write!(f, "{pattern:>12}")?;
        }
        writeln!(f, "{:>12}", "faults")?;
        for SideRounds { side, measured } in &self.sides {
            write!(f, "{side:<28}")?;
            for (_, time) in PATTERNS {
                match time(&measured.median) {
                    Some(time) => write!(f, "{time:>12.3}")?,
                    None => write!(f, "{:>12}", "-")?,
                }
            }
            writeln!(f, "{:>12.2}", measured.median.faults)?;
        }
        for SideRounds { side, measured } in &self.sides {
            for why in &measured.median.skipped {
                writeln!(f, "{side} skipped: {why}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Sides<workers::Sizes, workers::Outcome> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers::Sizes {
            threads,
            block_bytes,
            budget_bytes,
            times,
        } = self.sizes;
        let (block, budget) = (Human(block_bytes), Human(budget_bytes));
        writeln!(
            f,
            "\n{threads} workers fill and free {block} each {times} times in {budget}, pages"
        )?;
        writeln!(
            f,
            "{:<28}{:>12}{:>12}{:>12}{:>12}",
            "", "store reads", "of touched", "written", "seconds"
        )?;
        for SideRounds { side, measured } in &self.sides {
            let median = &measured.median;
            let share = median.pswpin as f64 / median.pages_touched as f64 * 100.0;
            writeln!(
                f,
                "{side:<28}{:>12}{share:>10.3} %{:>12}{:>12.2}",
                median.pswpin, median.pswpout, median.seconds
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Ebizzy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nallocating program, records a second")?;
        writeln!(
            f,
            "{:<10}{:>12}{:>14}{:>12}{:>10}",
            "threads", "kept, ms", "", "records", "faults"
        )?;
        for RunRounds { run, measured } in &self.runs {
            let allocator = match run.allocator {
                Allocator::LazyPurge => "lazy purge",
                Allocator::EagerPurge => "eager purge",
                Allocator::Libc => "C library",
            };
            let median = &measured.median;
            writeln!(
                f,
                "{:<10}{:>12}{allocator:>14}{:>12.0}{:>10.2}",
                run.threads, run.decay, median.records_per_second, median.faults
            )?;
        }
        for Gain {
            threads,
            decay,
            times,
        } in &self.lazy_over_eager
        {
            writeln!(
                f,
                "lazy over eager purge, threads {threads}, kept {decay}: {times:.2}"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Rss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nhalf of a region lazily freed, KiB")?;
        writeln!(
            f,
            "{:<12}{:>12}{:>12}{:>12}{:>12}{:>10}",
            "order", "Rss", "tables", "resident", "lazyfree", "error"
        )?;
        for AtOrder { order, measured } in &self.orders {
            let rss::Outcome {
                rss_bytes,
                metadata_bytes,
                resident_bytes,
                lazyfree_bytes,
                error,
                ..
            } = &measured.median;
            writeln!(
                f,
                "{order:<12}{:>12}{:>12}{:>12}{:>12}{:>8.2} %",
                rss_bytes >> 10,
                metadata_bytes >> 10,
                resident_bytes >> 10,
                lazyfree_bytes >> 10,
                error * 100.0
            )?;
        }
        Ok(())
    }
}
