//! The report for people.

use super::{PAGE, Report, number};
use crate::dormancy;
use crate::numbers::{Thousands, Time};
use crate::run::beside::Beside;
use crate::run::killed::Told;
use crate::size::Human;
use crate::ways::{WAYS, Way};
use millpond_board::Field;
use std::fmt::{self, Write as _};

/// The human-readable form, at most one screen of 24 lines: what happened, whether the budget was kept, where the time
/// went, the curve if there were major faults, and what to do next.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_end(f)?;
        if self.processes.is_empty() {
            return self.write_not_in_force(f);
        }
        let running = self.processes.iter().filter(|one| !one.became_another);
        let processes = running.count().max(1);
        self.write_peak(f, processes)?;
        self.write_own_part(f)?;
        match processes {
            1 => self.write_dormancy(f)?,
            _ => writeln!(f, "  processes       {processes}{}", self.dormant())?,
        }
        self.write_unmanaged(f)?;
        self.write_killed(f)?;
        self.write_faults(f)?;
        self.write_store(f)?;
        self.write_reclaim(f)?;
        self.write_recompressed(f)?;
        self.write_lazily_freed(f)?;
        self.write_given_back(f)?;
        self.write_trouble(f)?;
        if self.sum(Field::MajorFaults) > 0 {
            write!(f, "{}", self.plot)?;
        }
        writeln!(f, "  next            {}", self.next)
    }
}

impl Report {
    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match (self.exit_code, self.signal) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        let (wall, cpu) = (Time(self.wall_ns), Time(self.cpu_ns));
        writeln!(
            f,
            "millpond: {}: {end} after {wall} ({cpu} of processor time)",
            self.program
        )
    }

    /// Says how many processes stayed dormant, if any did.
    fn dormant(&self) -> String {
        let stayed = self
            .processes
            .iter()
            .filter(|one| !one.became_another && number(&one.fields, Field::Dormant) == 1);
        match stayed.count() {
            0 => String::new(),
            dormant => format!(", {dormant} of them dormant to the end"),
        }
    }

    /// Says of the only process whether it stayed dormant, or when and why it engaged.
    fn write_dormancy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let only = self.processes.iter().find(|one| !one.became_another);
        let words = only.and_then(|one| dormancy::words(|field| number(&one.fields, field)));
        match words {
            Some(words) => writeln!(f, "  managed         {words}"),
            None => Ok(()),
        }
    }

    fn write_not_in_force(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (peak, budget) = (Human(self.peak_resident_bytes), Human(self.budget_bytes));
        writeln!(
            f,
            "  budget          {budget}, not in force: no process reported. A program that clears its"
        )?;
        writeln!(
            f,
            "                  environment does not load the library. Resident {peak} at most."
        )
    }

    fn write_peak(&self, f: &mut fmt::Formatter<'_>, processes: usize) -> fmt::Result {
        let (peak, budget) = (Human(self.peak_resident_bytes), Human(self.budget_bytes));
        let percent = 100.0 * self.peak_resident_bytes as f64 / self.budget_bytes as f64;
        let of_one = match processes {
            1 => "",
            _ => ", the largest process",
        };
        write!(
            f,
            "  peak resident   {peak} of a budget of {budget} ({percent:.0} %){of_one}"
        )?;
        if let Some(held) = self.over_budget_held_by {
            write!(f, "; {} over it: {held}", Human(self.over_budget_bytes))?;
        }
        writeln!(f)
    }

    /// Writes a line if memory that cannot be taken out takes much of the budget. If it takes most of the budget, the
    /// line adds the budget that it needs: the program is then slow for that reason alone.
    fn write_own_part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = Beside {
            own: self.own_bytes,
            files: self.own_files_bytes,
            shared: self.own_shared_bytes,
            left: self.own_left_bytes,
        };
        if !beside.is_much_of(self.budget_bytes) {
            return Ok(());
        }
        if !beside.is_most_of(self.budget_bytes) {
            return writeln!(f, "  not managed     {}: {beside}", Human(beside.own));
        }
        // The suggested budget is twice the part, in whole MiB.
        let wanted = 2 * beside.own;
        let advice = match self.has_room(wanted) {
            true => format!(": try --ram {}M", wanted.div_ceil(1 << 20)),
            false => String::new(),
        };
        writeln!(
            f,
            "  trouble         the program's own code and data stay in RAM and take {} of the budget; {} were left for \
             the rest{advice}. They are {beside}",
            Human(beside.own),
            Human(beside.left),
        )
    }

    /// Writes a line if processes that the program started were killed.
    fn write_killed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.killed.is_empty() && self.oom_kills == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "  killed          {}",
            Told(&self.killed, self.oom_kills)
        )
    }

    /// Writes a line if programs ran without a budget, with the name of the largest.
    fn write_unmanaged(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [largest, others @ ..] = &self.unmanaged[..] else {
            return Ok(());
        };
        write!(
            f,
            "  without budget  {} (process {}) did not load the library; resident {} at most",
            largest.name,
            largest.pid,
            Human(largest.peak_resident_bytes)
        )?;
        match others.len() {
            0 => writeln!(f),
            count => writeln!(f, "; {count} more, smaller"),
        }
    }

    /// The ways that faults went, each with its 99th percentile; empty when there were no faults.
    fn by_way(&self) -> String {
        let gone = |&&(_, [count, ..]): &&Way| number(&self.ways, count) > 0;
        let told =
            |&(name, [_, _, p99, ..]): &Way| format!("{name} {}", Time(number(&self.ways, p99)));
        let ways: Vec<_> = WAYS.iter().filter(gone).map(told).collect();
        ways.join(", ")
    }

    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let touched = Human(self.sum(Field::Touched));
        writeln!(
            f,
            "  touched         {touched}, in folios of order {}",
            self.order
        )?;
        let (minor, major) = (self.sum(Field::MinorFaults), self.sum(Field::MajorFaults));
        writeln!(
            f,
            "  faults          {} minor, {} major",
            Thousands(minor),
            Thousands(major)
        )?;
        if minor + major == 0 {
            return Ok(());
        }
        let [p50, p99, max] = [self.fault_p50_ns, self.fault_p99_ns, self.fault_max_ns].map(Time);
        writeln!(
            f,
            "  fault latency   half within {p50}, 99 % within {p99}, longest {max}"
        )?;
        let ways = self.by_way();
        if !ways.is_empty() {
            writeln!(f, "    99 % within   {ways}")?;
        }
        let spent = self.time_by_way();
        if !spent.is_empty() {
            let all = Time(self.fault_ns);
            writeln!(f, "  time in faults  {all} of all threads: {spent}")?;
        }
        Ok(())
    }

    /// The time that faults of each way took; empty when there were no faults.
    fn time_by_way(&self) -> String {
        let spent = WAYS.map(|(name, [.., time])| (name, self.sum(time)));
        let spent = spent.iter().filter(|(_, ns)| *ns > 0);
        let told: Vec<_> = spent
            .map(|(name, ns)| format!("{name} {}", Time(*ns)))
            .collect();
        told.join(", ")
    }

    fn write_store(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (out, back) = (
            Human(self.sum(Field::BytesOut)),
            Human(self.sum(Field::BytesIn)),
        );
        let mut line = format!("  store ({})", self.store);
        line = format!("{line:<18}{out} out, {back} in");
        if let Some(ratio) = self.compression_ratio {
            write!(line, ", compressed {ratio:.1} to 1")?;
        }
        let beyond = self.sum(Field::RemotePeak);
        if beyond > 0 {
            let loads = Thousands(self.sum(Field::RemoteLoads));
            write!(
                line,
                "; {} beyond the machine at most, {loads} loads",
                Human(beyond)
            )?;
        }
        match self.sum(Field::RemoteLost) {
            0 => writeln!(f, "{line}"),
            lost => writeln!(f, "{line}, {} of which failed", Thousands(lost)),
        }
    }

    fn write_reclaim(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reclaim = Time(self.sum(Field::Reclaim));
        write!(
            f,
            "  reclaim         {reclaim}, {} direct",
            Thousands(self.sum(Field::DirectReclaims))
        )?;
        let both = |one, other| self.sum(one) + self.sum(other);
        let scanned = both(Field::PgScanKswapd, Field::PgScanDirect);
        let stolen = both(Field::PgStealKswapd, Field::PgStealDirect);
        if scanned > 0 {
            let efficiency = 100.0 * stolen as f64 / scanned as f64;
            write!(f, "; freed {efficiency:.0} % of what it looked at")?;
        }
        writeln!(f)
    }

    fn write_recompressed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.sum(Field::RecompressBytes);
        if bytes == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "  made denser     {} of what was in compressed RAM, which saved {}; {} of a processor",
            Human(bytes),
            Human(self.sum(Field::RecompressSaved)),
            Time(self.sum(Field::Recompress)),
        )
    }

    fn write_lazily_freed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let freed = self.sum(Field::PgLazyFree);
        if freed == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "  lazily freed    {}, {} of it dropped when memory was short; {} resident at the end",
            Human(freed * PAGE),
            Human(self.sum(Field::PgLazyFreed) * PAGE),
            Human(self.sum(Field::LazyFree))
        )
    }

    fn write_given_back(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches = self.sum(Field::FreeBatches);
        if batches == 0 {
            return Ok(());
        }
        let tuned = |field| number(&self.free_tuning, field);
        writeln!(
            f,
            "  given back      {} in {}, {} batches, {} by workers ({}; from {} on, {} at once)",
            Human(self.sum(Field::FreeBytes)),
            Time(self.sum(Field::FreeTime)),
            Thousands(batches),
            Thousands(self.sum(Field::FreeByWorkers)),
            tuned(Field::FreeWorkers),
            Human(tuned(Field::FreeThreshold) * PAGE),
            Human(tuned(Field::FreeChunk)),
        )
    }

    fn write_trouble(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, meaning) in self.failures() {
            writeln!(f, "  trouble         {} {meaning}", Thousands(count))?;
        }
        Ok(())
    }

    /// What failed, how often, and what that means.
    pub(super) fn failures(&self) -> Vec<(u64, &'static str)> {
        let kinds = [
            (
                Field::StoreFailed,
                "writes that the store refused or failed; their data stayed in RAM",
            ),
            (Field::LoadFailed, "reads from the store that failed"),
            (
                Field::OverLimit,
                "faults served above the budget, as nothing more could leave",
            ),
        ];
        let counted = kinds.map(|(field, meaning)| (self.sum(field), meaning));
        counted
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .collect()
    }
}
