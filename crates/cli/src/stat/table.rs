//! The human-readable forms: a line per interval under repeated headings, and the list of boards.

use crate::figures::{Figures, is_alive, kind};
use crate::size::Human;
use millpond_board::{Field, SlotReading};
use std::fmt;
use std::io::{self, Write};

/// Lines between two headings: about a screen.
const LINES: u32 = 20;
const MIB: u64 = 1 << 20;
const PAGES_A_MIB: u64 = MIB / 4096;
/// The two lines of the heading for files: current pages, and pages per second.
const FILES: [&str; 2] = [
    " -----files, pages----- ------files, pages/s------",
    "    cache  dirty  wback  refault       in      out",
];

/// The table of lines of figures. It has columns for files from the first line on in which a process has any pages of
/// files, so that for all others it stays as narrow as `vmstat`'s.
pub struct Table {
    /// Lines since the last heading.
    since: u32,
    /// Whether there are columns for files.
    files: bool,
}

impl Table {
    /// A table before its first line.
    #[must_use]
    pub fn new() -> Self {
        Self {
            since: LINES,
            files: false,
        }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When `out` accepts no more.
    pub fn write(&mut self, out: &mut impl Write, figures: &Figures) -> io::Result<()> {
        if !self.files && figures.has_files() {
            self.files = true;
            self.since = LINES;
        }
        if self.since >= LINES {
            self.since = 0;
            let [above, below] = match self.files {
                true => FILES,
                false => [""; 2],
            };
            writeln!(
                out,
                "procs ----------memory, MiB---------- -----faults/s---- ----pages/s---- --------reclaim, pages/s-------{above}"
            )?;
            writeln!(
                out,
                "    r     rss  mapped   limbo    swpd    minor    major      si      so      scan     steal  eff stalls{below}"
            )?;
        }
        self.since += 1;
        let mib = |name| figures.value(name) / PAGES_A_MIB;
        let rate = |name| figures.rate(name).round();
        let efficiency = figures.efficiency();
        let efficiency = efficiency.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0));
        write!(
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
        )?;
        if self.files {
            write!(
                out,
                " {:>8} {:>6} {:>6} {:>8} {:>8} {:>8}",
                figures.value("nr_file_pages"),
                figures.value("nr_dirty"),
                figures.value("nr_writeback"),
                rate("workingset_refault_file"),
                rate("pgpgin"),
                rate("pgpgout"),
            )?;
        }
        writeln!(out)
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

    /// Adds a board and its running processes.
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
            let what = match slot.fields.get(Field::Dormant) {
                0 => what,
                _ => "dormant",
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Sample;
    use millpond_board::{Fields, State};

    /// The figures of a process that has these values at second `second`.
    fn at(second: u64, values: &[(Field, u64)]) -> Sample {
        let mut fields = Fields::default();
        for &(field, value) in values {
            fields.set(field, value);
        }
        let slot = SlotReading {
            number: 0,
            pid: 7,
            parent: None,
            name: "work".to_owned(),
            state: State::Running,
            claimed_ns: 0,
            published_ns: second * 1_000_000_000,
            fields,
            torn: false,
        };
        Sample::of_one(slot, true)
    }

    fn lines(table: &mut Table, figures: &Figures) -> Vec<String> {
        let mut out = Vec::new();
        table.write(&mut out, figures).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Pages of files used to be counted but not shown, so a process that only reads files seemed to do nothing.
    #[test]
    fn file_columns_appear_once_there_are_file_pages() {
        let mut table = Table::new();
        let without = at(1, &[(Field::NrMapped, 512), (Field::MajorFaults, 3)]);
        let before = lines(&mut table, &Figures::new(&without, None));
        assert_eq!(before.len(), 3);
        assert_eq!(before[0].len(), before[2].len(), "{before:#?}");
        assert!(!before[0].contains("files") && !before[1].contains("cache"));
        let with = at(
            3,
            &[
                (Field::NrFilePages, 1234),
                (Field::NrDirty, 5),
                (Field::NrWriteback, 64),
                (Field::WorkingsetRefaultFile, 20),
                (Field::PgPgIn, 4000),
                (Field::PgPgOut, 600),
            ],
        );
        let begun = lines(&mut table, &Figures::new(&with, Some(&without)));
        assert_eq!(begun.len(), 3, "the headings come again");
        let widths: Vec<usize> = begun.iter().map(String::len).collect();
        assert_eq!(widths, [widths[0]; 3], "{begun:#?}");
        let last = |line: &str| -> Vec<String> {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            words[words.len() - 6..].to_vec()
        };
        let names = ["cache", "dirty", "wback", "refault", "in", "out"];
        assert_eq!(last(&begun[1]), names);
        assert_eq!(last(&begun[2]), ["1234", "5", "64", "10", "2000", "300"]);
        // The columns stay after the last page has left.
        let without = at(4, &[(Field::PgPgIn, 4000)]);
        let later = lines(&mut table, &Figures::new(&without, Some(&with)));
        assert_eq!((later.len(), later[0].len()), (1, widths[0]));
        assert_eq!(last(&later[0])[..2], ["0", "0"]);
    }
}
