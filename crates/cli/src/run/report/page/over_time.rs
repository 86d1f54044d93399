//! What changed while the program ran: memory by kind, faults by their way, the store.

use super::Report;
use crate::numbers::Time;
use crate::page::palette::{AMBER, BLUE, Colour, GREEN, GREY, PINK, RED, SKY, SLATE, TEAL, VIOLET};
use crate::page::plot::{Axes, Layer, Limit, areas};
use crate::page::{figure, folded, table};
use crate::run::columns::{Columns, Kind};
use crate::run::history::Series;
use crate::run::report::number;
use crate::size::Human;
use crate::ways::WAYS;
use maud::{Markup, html};
use millpond_board::Field;

/// Most columns of a drawing.
const DRAWN: usize = 240;
/// Most rows of a table.
const ROWS: usize = 20;

/// The names and colours of the kinds of memory, in the order of [`Kind::ALL`], from the bottom to the top.
const KINDS: [(&str, Colour); Kind::ALL.len()] = [
    ("mapped", BLUE),
    ("lazily freed", SKY),
    ("limbo (taken out, not evicted yet)", TEAL),
    ("spare frames", GREY),
    ("store in RAM", VIOLET),
    ("Millpond's tables", PINK),
    ("files (code, libraries)", AMBER),
    ("shared memory", GREEN),
    ("other (static data, stacks)", SLATE),
];

/// The colours of the ways that faults go, in the order of [`WAYS`].
pub const WAY_COLOURS: [Colour; WAYS.len()] = [BLUE, TEAL, VIOLET, AMBER, RED];

/// The section about memory.
#[must_use]
pub fn memory(report: &Report, all: &[&Series]) -> Markup {
    let several = all.len() > 1;
    html! {
        h2 { "Memory over time" }
        p.soft {
            "Resident memory by kind, from the bottom to the top as the legend names it"
            @if several { ", of all processes together; the budget is each one's own" }
            @else { "; the line is the budget" }
            "."
        }
        (memory_figure(report, all, !several))
    }
}

/// The drawing and the table of the memory of some processes.
#[must_use]
pub fn memory_figure(report: &Report, all: &[&Series], with_budget: bool) -> Markup {
    let Some(step_ns) = step(report, all) else {
        return too_short();
    };
    let columns = Columns::new(report.wall_ns, step_ns, DRAWN);
    let sums = columns.amounts(all, Kind::bytes);
    let highest = sums.iter().flatten().copied().fold(0.0, f64::max);
    let unit = Unit::of(highest.max(report.budget_bytes as f64));
    // A kind that never occurred would be a row of zeros.
    let shown: Vec<usize> = (0..KINDS.len())
        .filter(|&kind| sums[kind].iter().any(|&bytes| bytes > 0.0))
        .collect();
    let layer = |&kind: &usize| Layer {
        name: KINDS[kind].0,
        colour: KINDS[kind].1,
        values: sums[kind].iter().map(|bytes| bytes / unit.bytes).collect(),
    };
    let layers: Vec<_> = shown.iter().map(layer).collect();
    let limit = with_budget.then_some(Limit {
        at: report.budget_bytes as f64 / unit.bytes,
        colour: RED,
    });
    let drawing = areas(
        &layers,
        seconds(report),
        limit,
        Axes {
            x: &clock,
            y: &|y| format!("{} {}", decimal(y), unit.name),
        },
    );
    let mut legend: Vec<_> = shown.iter().map(|&kind| KINDS[kind]).collect();
    if with_budget {
        legend.push(("budget", RED));
    }
    let coarse = Columns::new(report.wall_ns, step_ns, ROWS);
    let figures = coarse.amounts(all, Kind::bytes);
    let head = [
        vec!["time"],
        shown.iter().map(|&kind| KINDS[kind].0).collect(),
    ]
    .concat();
    let rows = rows(&coarse, |column| {
        let of = |&kind: &usize| Human(figures[kind][column] as u64).to_string();
        shown.iter().map(of).collect()
    });
    html! {
        (figure("Resident memory by kind over time", &drawing, &legend))
        (folded("The figures of this drawing", &table("", &head, &rows)))
    }
}

/// The section about faults.
#[must_use]
pub fn faults(report: &Report, all: &[&Series]) -> Markup {
    let told = |(name, [count, p50, p99, max, time]): (&str, [Field; 5])| {
        let faults = report.total(count);
        let mut row = vec![
            name.to_owned(),
            crate::numbers::Thousands(faults).to_string(),
        ];
        let of_busiest = |field| number(&report.ways, field);
        let times = [
            of_busiest(p50),
            of_busiest(p99),
            of_busiest(max),
            report.sum(time),
        ];
        row.extend(times.map(|ns| match faults {
            0 => "-".to_owned(),
            _ => Time(ns).to_string(),
        }));
        row
    };
    let head = [
        "way",
        "faults",
        "half within",
        "99 % within",
        "longest",
        "time of all",
    ];
    html! {
        h2 { "Faults" }
        p.soft {
            "A fault is counted under the costliest thing that happened in it: zeros were mapped (first touch), a page
             in limbo was mapped again (rescue), contents came from the store (load), another thread had the page under
             way (wait), or the thread had to make room itself (reclaim)."
        }
        (rates(report, all, &WAYS.map(|(name, [count, ..])| (name, count)), &WAY_COLOURS, Rate::Count))
        (table("The times are of the process with the most faults; the sums are of all.", &head, &WAYS.map(told)))
    }
}

/// The section about the store.
#[must_use]
pub fn store(report: &Report, all: &[&Series]) -> Markup {
    let traffic = [("out", Field::BytesOut), ("in", Field::BytesIn)];
    let peak = report.sum(Field::StoreLogicalPeak);
    let sums = [
        ("out, before compression", report.sum(Field::BytesOut)),
        (
            "out for nothing (zeros, or still in the store)",
            report.sum(Field::BytesOutFree),
        ),
        ("in, after decompression", report.sum(Field::BytesIn)),
        ("held at the fullest moment", peak),
        ("space that this took", report.sum(Field::StoreStoredPeak)),
    ];
    let row = |(name, bytes): (&str, u64)| vec![name.to_owned(), Human(bytes).to_string()];
    html! {
        h2 { "Store" }
        p.soft { "What went to the store (" (report.store) ") and came back each second, on top of each other." }
        (rates(report, all, &traffic, &[AMBER, VIOLET], Rate::Bytes))
        (table("", &["traffic", "bytes"], &sums.map(row)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rate {
    Count,
    Bytes,
}

/// The drawing and the table of rates per second.
fn rates(
    report: &Report,
    all: &[&Series],
    fields: &[(&str, Field)],
    colours: &[Colour],
    rate: Rate,
) -> Markup {
    let Some(step_ns) = step(report, all) else {
        return too_short();
    };
    let columns = Columns::new(report.wall_ns, step_ns, DRAWN);
    let values: Vec<_> = fields
        .iter()
        .map(|&(_, field)| columns.rates(all, field))
        .collect();
    let highest = values.iter().flatten().copied().fold(0.0, f64::max);
    let unit = match rate {
        Rate::Count => Unit {
            bytes: 1.0,
            name: "",
        },
        Rate::Bytes => Unit::of(highest),
    };
    let layer = |((&(name, _), values), &colour): ((&(_, _), Vec<f64>), _)| Layer {
        name,
        colour,
        values: values.into_iter().map(|value| value / unit.bytes).collect(),
    };
    let layers: Vec<_> = fields.iter().zip(values).zip(colours).map(layer).collect();
    let written = |value: f64| match rate {
        Rate::Count => format!("{}/s", short(value)),
        Rate::Bytes => format!("{} {}/s", decimal(value), unit.name),
    };
    let axes = Axes {
        x: &clock,
        y: &written,
    };
    let drawing = areas(&layers, seconds(report), None, axes);
    let legend: Vec<_> = layers
        .iter()
        .map(|layer| (layer.name, layer.colour))
        .collect();
    let coarse = Columns::new(report.wall_ns, step_ns, ROWS);
    let figures: Vec<_> = fields
        .iter()
        .map(|&(_, field)| coarse.rates(all, field))
        .collect();
    let names = fields.iter().map(|&(name, _)| name);
    let head: Vec<_> = std::iter::once("time").chain(names).collect();
    let rows = rows(&coarse, |column| {
        let of = |values: &Vec<f64>| match rate {
            Rate::Count => format!("{}/s", short(values[column])),
            Rate::Bytes => format!("{}/s", Human(values[column] as u64)),
        };
        figures.iter().map(of).collect()
    });
    let shows = match rate {
        Rate::Count => "Faults a second over time, by the way that they went",
        Rate::Bytes => "Bytes a second to the store and from it over time",
    };
    html! {
        (figure(shows, &drawing, &legend))
        (folded("The figures of this drawing", &table("", &head, &rows)))
    }
}

/// A row for each column of time.
fn rows(columns: &Columns, cells: impl Fn(usize) -> Vec<String>) -> Vec<Vec<String>> {
    let row = |column: usize| {
        let from = column as f64 * columns.seconds();
        let mut row = vec![format!("from {}", clock(from))];
        row.extend(cells(column));
        row
    };
    (0..columns.count()).map(row).collect()
}

/// The length of a step; `None` when there is nothing to draw.
fn step(report: &Report, all: &[&Series]) -> Option<u64> {
    let points = all.iter().map(|series| series.points.len()).max();
    report
        .series_step_ns
        .or(Some(100_000_000))
        .filter(|_| points.unwrap_or(0) > 0)
}

fn too_short() -> Markup {
    html! { p.soft { "The run was too short for a drawing." } }
}

fn seconds(report: &Report) -> f64 {
    report.wall_ns as f64 / 1e9
}

/// A time since the start of the run.
fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..120 => format!("{} s", decimal(seconds)),
        120..7200 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole / 60 % 60),
    }
}

/// A number with at most two places.
fn decimal(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A large number in thousands or millions.
fn short(value: f64) -> String {
    match value {
        10_000_000.0.. => format!("{} M", decimal(value / 1e6)),
        10_000.0.. => format!("{} k", decimal(value / 1e3)),
        _ => decimal(value),
    }
}

/// The unit that suits a drawing.
#[derive(Clone, Copy)]
struct Unit {
    bytes: f64,
    name: &'static str,
}

impl Unit {
    fn of(highest: f64) -> Self {
        let (bytes, name) = match highest {
            0.0..4_194_304.0 => (1024.0, "KiB"),
            0.0..8_589_934_592.0 => (1_048_576.0, "MiB"),
            _ => (1_073_741_824.0, "GiB"),
        };
        Self { bytes, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_labels_use_readable_units() {
        let times = [0.0, 0.25, 61.0, 150.0, 7265.0].map(clock);
        assert_eq!(times, ["0 s", "0.25 s", "61 s", "2:30 min", "2:01 h"]);
        let counts = [0.5, 1500.0, 25_000.0, 12_500_000.0].map(short);
        assert_eq!(counts, ["0.5", "1500", "25 k", "12.5 M"]);
        let units = [0.0, 5e6, 1e10].map(|bytes| Unit::of(bytes).name);
        assert_eq!(units, ["KiB", "MiB", "GiB"]);
    }
}
