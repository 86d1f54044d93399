//! The forms for people: a line each interval under headings that come again, and the list of boards.

use crate::figures::{Figures, is_alive, kind};
use crate::size::Human;
use millpond_board::{Field, SlotReading};
use std::fmt;
use std::io::{self, Write};

/// Lines between two headings: about a screen.
const LINES: u32 = 20;
const MIB: u64 = 1 << 20;
const PAGES_A_MIB: u64 = MIB / 4096;

/// The table of lines of figures.
pub struct Table {
    /// Lines since the last heading.
    since: u32,
}

impl Table {
    /// A table before its first line.
    #[must_use]
    pub fn new() -> Self {
        Self { since: LINES }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When `out` takes no more.
    pub fn write(&mut self, out: &mut impl Write, figures: &Figures) -> io::Result<()> {
        if self.since >= LINES {
            self.since = 0;
            writeln!(
                out,
                "procs -----------memory, MiB---------- ----faults/s---- ----pages/s---- --------reclaim, pages/s--------"
            )?;
            writeln!(
                out,
                "    r     rss  mapped   limbo    swpd    minor    major      si      so      scan     steal  eff stalls"
            )?;
        }
        self.since += 1;
        let mib = |name| figures.value(name) / PAGES_A_MIB;
        let rate = |name| figures.rate(name).round();
        let efficiency = figures.efficiency();
        let efficiency = efficiency.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0));
        writeln!(
            out,
            "{:>5} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>7} {:>7} {:>9} {:>9} {:>4} {:>6}",
            figures.running(),
            figures.value("rss_bytes") / MIB,
            mib("nr_mapped"),
            mib("nr_limbo"),
            mib("nr_swapped"),
            rate("pgfault") - rate("pgmajfault"),
            rate("pgmajfault"),
            rate("pswpin"),
            rate("pswpout"),
            figures.velocity().round(),
            figures.stolen().round(),
            efficiency,
            rate("allocstall"),
        )
    }
}

/// The list of boards.
pub struct Listing {
    rows: Vec<[String; 6]>,
}

impl Listing {
    /// A list with headings.
    #[must_use]
    pub fn new() -> Self {
        let heading = ["PID", "KIND", "BUDGET", "RSS", "MAJOR FAULTS", "NAME"];
        Self {
            rows: vec![heading.map(str::to_owned)],
        }
    }

    /// Adds a board and its processes that run.
    pub fn add(&mut self, owner: u32, name: &str, slots: &[SlotReading]) {
        let kind = kind(owner, slots);
        let alive: Vec<_> = slots.iter().filter(|slot| is_alive(slot)).collect();
        if kind == "run" {
            let mut row = [const { String::new() }; 6];
            row[0] = owner.to_string();
            row[1] = kind.to_owned();
            row[5] = name.to_owned();
            self.rows.push(row);
        }
        let (what, indent) = match kind {
            "run" => ("process", "  "),
            other => (other, ""),
        };
        for slot in alive {
            let bytes = |field| Human(slot.fields.get(field)).to_string();
            self.rows.push([
                slot.pid.to_string(),
                what.to_owned(),
                bytes(Field::Budget),
                bytes(Field::Rss),
                slot.fields.get(Field::MajorFaults).to_string(),
                format!("{indent}{}", slot.name),
            ]);
        }
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for [pid, kind, budget, rss, faults, name] in &self.rows {
            writeln!(
                f,
                "{pid:>8}  {kind:<8}{budget:>11}{rss:>11}{faults:>14}  {name}"
            )?;
        }
        Ok(())
    }
}
