//! The report of a run as a page.
//!
//! It answers, in this order: was the budget kept and at what cost, what to do next, where memory was over time, which
//! faults there were and how long they took, what the store did, what more memory would have saved, and which process
//! it was. Each drawing has its figures in a table next to it.

mod over_time;
mod processes;
mod tables;

use super::{Report, number};
use crate::numbers::{Thousands, Time};
use crate::page;
use crate::run::beside::Beside;
use crate::run::history::Series;
use crate::size::Human;
use maud::{Markup, html};
use millpond_board::Field;

impl Report {
    /// The report as a page; see [`crate::page`].
    #[must_use]
    pub fn to_page(&self) -> String {
        let title = format!("{} in {}", self.program, Human(self.budget_bytes));
        let body = html! {
            h1 { (title) }
            p.soft { (self.ended()) }
            (self.tiles())
            p.next { b { "Next: " } (self.next) }
            (self.troubles())
            @if self.processes.is_empty() {
                p { "No process reported. A program that clears its environment does not load the library, so the
                     budget was not in force." }
            } @else {
                (over_time::memory(self, &self.all_series()))
                (over_time::faults(self, &self.all_series()))
                (tables::latency(&self.latency))
                (over_time::store(self, &self.all_series()))
                (tables::curve(self))
                (processes::section(self))
            }
            (processes::unmanaged(self))
        };
        page::document(&title, &body)
    }

    /// What each process published over time.
    fn all_series(&self) -> Vec<&Series> {
        self.processes
            .iter()
            .filter_map(|process| process.series.as_ref())
            .collect()
    }

    /// The sum of a counter over all processes.
    fn total(&self, field: Field) -> u64 {
        let counts = self.processes.iter().map(|one| number(&one.fields, field));
        counts.sum()
    }

    fn ended(&self) -> String {
        let end = match (self.exit_code, self.signal) {
            (Some(code), _) => format!("ended with exit status {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        let (wall, cpu) = (Time(self.wall_ns), Time(self.cpu_ns));
        format!("The program {end} after {wall}, with {cpu} of processor time.")
    }

    fn tiles(&self) -> Markup {
        let kept = self.peak_resident_bytes <= self.budget_bytes;
        let percent = 100.0 * self.peak_resident_bytes as f64 / self.budget_bytes as f64;
        let largest = if self.processes.len() > 1 {
            " by the largest process"
        } else {
            ""
        };
        let share = 100.0 * self.fault_ns as f64 / self.wall_ns.max(1) as f64;
        let (minor, major) = (self.sum(Field::MinorFaults), self.sum(Field::MajorFaults));
        let ratio = self
            .compression_ratio
            .map_or_else(String::new, |ratio| format!(", compressed {ratio:.1} to 1"));
        html! {
            div.tiles {
                div.tile {
                    span.soft { "Budget" }
                    @if kept { b.good { "Kept" } } @else { b.bad { (Human(self.over_budget_bytes)) " over" } }
                    span { (Human(self.peak_resident_bytes)) " of " (Human(self.budget_bytes)) " resident"
                           (largest) " (" (format!("{percent:.0}")) " %)" }
                }
                div.tile {
                    span.soft { "Time in faults" }
                    b { (Time(self.fault_ns)) }
                    span { "of all threads together: " (format!("{share:.0}")) " % of the run's " (Time(self.wall_ns)) }
                }
                div.tile {
                    span.soft { "Faults" }
                    b { (Thousands(major)) " major" }
                    span { (Thousands(minor)) " minor, with nothing to read" }
                }
                div.tile {
                    span.soft { "Store (" (self.store) ")" }
                    b { (Human(self.sum(Field::BytesOut))) " out" }
                    span { (Human(self.sum(Field::BytesIn))) " in" (ratio) }
                }
            }
        }
    }

    /// What went wrong, and memory that the budget does not control.
    fn troubles(&self) -> Markup {
        let beside = Beside {
            own: self.own_bytes,
            files: self.own_files_bytes,
            shared: self.own_shared_bytes,
            left: self.own_left_bytes,
        };
        html! {
            @if let Some(held) = self.over_budget_held_by {
                p.bad { (Human(self.over_budget_bytes)) " over the budget: " (held) "." }
            }
            @for (count, meaning) in self.failures() {
                p.bad { (Thousands(count)) " " (meaning) "." }
            }
            @if beside.is_much_of(self.budget_bytes) {
                p { (Human(beside.own)) " of the budget are the program's own code and data, which stay in RAM: "
                    (beside) ". " (Human(beside.left)) " were left for the rest." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{report, slots};
    use super::*;
    use crate::run::history::Point;

    fn page_of(slots: &[millpond_board::SlotReading], points: u64) -> String {
        let mut report = report("zram", "2", 0, slots);
        for process in &mut report.processes {
            let point = |n| {
                Point::new(n * 100_000_000, |field| match field {
                    Field::Rss => 50 << 20,
                    Field::NrMapped => 5000,
                    Field::LoadCount => n * 100,
                    Field::BytesIn => n << 20,
                    _ => 0,
                })
            };
            process.series = Some(Series {
                from_ns: 0,
                points: (1..=points).map(point).collect(),
            });
        }
        report.to_page()
    }

    /// Every kind of figure is in the page as text, even if a drawing shows it.
    #[test]
    fn the_figures_are_in_tables() {
        let values = [
            (Field::MajorFaults, 1234),
            (Field::LoadCount, 1234),
            (Field::LoadP99, 9100),
            (Field::LoadTime, 700_000_000),
            (Field::BytesIn, 24 << 20),
            (Field::NrLimit, 4096),
            (Field::RefaultsAt100, 400),
            (Field::RefaultsAt125, 100),
            (Field::PeakRss, 63 << 20),
        ];
        let page = page_of(&slots(&[&values]), 24);
        for part in [
            "<b class=\"good\">Kept</b>",
            "63 MiB of 64 MiB resident",
            "<td>load</td><td>1,234</td>",
            "<td>9.1 µs</td>",
            "<td>700.0 ms</td>",
            "<td>80 MiB</td><td>+16 MiB</td>",
            "Next: ",
            "<svg",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(
            page.matches("<h3>").count(),
            0,
            "one process is all of the run"
        );
    }

    #[test]
    fn runs_without_points_or_without_processes_have_pages() {
        let page = page_of(&slots(&[&[]]), 0);
        assert!(page.contains("too short"));
        let page = page_of(&[], 0);
        assert!(page.contains("not in force"));
    }

    /// A build has hundreds of processes: the page has plots of the largest ones, and the rest in a table.
    #[test]
    fn a_large_tree_has_a_page_of_bounded_size() {
        let values = [(Field::PeakRss, 1 << 20)];
        let all: Vec<&[_]> = vec![&values; 500];
        let page = page_of(&slots(&all), 30);
        assert_eq!(page.matches("<h3>").count(), 12);
        assert!(page.len() < 1_000_000, "{}", page.len());
        assert_eq!(page.matches("<td>exited</td>").count(), 500);
    }

    #[test]
    fn page_reports_what_went_wrong() {
        let values = [
            (Field::StoreFailed, 3),
            (Field::PeakRss, 70 << 20),
            (Field::Rss, 30 << 20),
        ];
        let page = page_of(&slots(&[&values]), 1);
        for part in [
            "6 MiB over",
            "3 writes that the store refused",
            "program's own code",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }
}
