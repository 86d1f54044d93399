//! The processes of a run: the tree in a table, and the memory of the largest ones.

use super::Report;
use super::over_time;
use crate::dormancy;
use crate::numbers::{Thousands, Time};
use crate::page::table;
use crate::run::report::{ProcessReport, number};
use crate::size::Human;
use maud::{Markup, html};
use millpond_board::Field;

/// Most processes that have a drawing.
const DRAWN: usize = 12;

/// The section about the processes.
#[must_use]
pub fn section(report: &Report) -> Markup {
    let head = [
        "process",
        "name",
        "end",
        "resident at most",
        "touched",
        "minor",
        "major",
        "out",
        "in",
        "time in faults",
    ];
    let rows: Vec<_> = in_tree_order(report)
        .into_iter()
        .map(|(at, depth)| row(&report.processes[at], depth))
        .collect();
    let count = report.processes.len();
    html! {
        h2 { "Processes" }
        p.soft {
            "Every process that loaded the library. A process that became another program has a row for each."
        }
        (table("", &head, &rows))
        @if count > 1 {
            @if count > DRAWN {
                p.soft { "The memory of the " (DRAWN) " largest of " (count) " processes:" }
            }
            @for process in largest(report) {
                h3 { (process.name) " (process " (process.pid) ")" }
                (over_time::memory_figure(report, process.series.as_ref().as_slice(), true))
            }
        }
    }
}

/// The programs that ran without a budget.
#[must_use]
pub fn unmanaged(report: &Report) -> Markup {
    let row = |one: &crate::run::unmanaged::Unmanaged| {
        let peak = Human(one.peak_resident_bytes).to_string();
        vec![one.pid.to_string(), one.name.clone(), peak]
    };
    let rows: Vec<_> = report.unmanaged.iter().map(row).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Without a budget" }
            p.soft { "Programs that were started below the run and did not load the library." }
            (table("", &["process", "name", "resident at most"], &rows))
        }
    }
}

/// How the process ended, and whether it was dormant, or when and why it engaged.
fn state(process: &ProcessReport) -> String {
    match dormancy::words(|field| number(&process.fields, field)) {
        Some(words) => format!("{}; {words}", process.state),
        None => process.state.to_owned(),
    }
}

fn row(process: &ProcessReport, depth: usize) -> Vec<String> {
    let get = |field| number(&process.fields, field);
    let bytes = |field| Human(get(field)).to_string();
    let count = |field| Thousands(get(field)).to_string();
    let faults = crate::ways::WAYS.map(|(_, [.., time])| get(time));
    // A name is indented below that of the process that it was forked from.
    let below = "\u{2003}".repeat(depth);
    vec![
        format!("{below}{}", process.pid),
        process.name.clone(),
        state(process),
        bytes(Field::PeakRss),
        bytes(Field::Touched),
        count(Field::MinorFaults),
        count(Field::MajorFaults),
        bytes(Field::BytesOut),
        bytes(Field::BytesIn),
        Time(faults.iter().sum()).to_string(),
    ]
}

/// The processes, each followed by those that were forked from it, with their depth in the tree.
fn in_tree_order(report: &Report) -> Vec<(usize, usize)> {
    let parent = |at: usize| report.processes[at].parent;
    let children = |of: Option<usize>| {
        let all = 0..report.processes.len();
        all.rev()
            .filter(move |&at| parent(at) == of && of != Some(at))
    };
    let mut order = Vec::new();
    let mut waiting: Vec<(usize, usize)> = children(None).map(|at| (at, 0)).collect();
    while let Some((at, depth)) = waiting.pop() {
        order.push((at, depth));
        waiting.extend(children(Some(at)).map(|child| (child, depth + 1)));
    }
    order
}

/// The processes with the most memory, the largest first.
fn largest(report: &Report) -> Vec<&ProcessReport> {
    let mut all: Vec<_> = report.processes.iter().collect();
    all.sort_by_key(|process| std::cmp::Reverse(number(&process.fields, Field::PeakRss)));
    all.truncate(DRAWN);
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{report, slots};
    use super::*;

    #[test]
    fn children_stand_below_their_parents() {
        let mut report = report("zram", "2", 0, &slots(&[&[], &[], &[], &[]]));
        for (at, parent) in [(0, None), (1, Some(0)), (2, None), (3, Some(1))] {
            report.processes[at].parent = parent;
        }
        let order = in_tree_order(&report);
        assert_eq!(order, [(0, 0), (1, 1), (3, 2), (2, 0)]);
        let page = report.to_page();
        assert!(page.contains("<td>\u{2003}\u{2003}4</td>"));
    }
}
