//! Counts over the whole run: how long faults took, and what more memory would have saved.

use super::Report;
use super::over_time::WAY_COLOURS;
use crate::numbers::{Thousands, Time};
use crate::page::palette::BLUE;
use crate::page::plot::{Axes, Layer, bars, lines};
use crate::page::{figure, folded, table};
use crate::run::report::latency::{Latencies, start_ns};
use crate::size::Human;
use crate::ways::WAYS;
use maud::{Markup, html};
use millpond_board::{LATENCY_BUCKETS, latency_end_ns};

const PAGE: u64 = 4096;

/// The section about the latency of faults: how many took how long, and what they cost together.
///
/// If one of a hundred faults takes a hundred times as long, it costs as much as all others. A drawing of counts does
/// not show that, so there is also one of times.
#[must_use]
pub fn latency(latencies: &Latencies) -> Markup {
    let used = latencies.used();
    if used.is_empty() {
        return html! {};
    }
    let layers = |weight: &dyn Fn(usize) -> f64| -> Vec<Layer<'_>> {
        let of = |((way, (name, _)), colour)| Layer {
            name,
            colour,
            values: used
                .clone()
                .map(|bucket| latencies.of_way(way)[bucket] as f64 * weight(bucket))
                .collect(),
        };
        WAYS.into_iter()
            .enumerate()
            .zip(WAY_COLOURS)
            .map(of)
            .collect()
    };
    let edge = |place: f64| {
        let bucket = used.start + place.round() as usize;
        Time(start_ns(bucket.min(LATENCY_BUCKETS))).to_string()
    };
    let count = |value: f64| Thousands(value as u64).to_string();
    let time = |ns: f64| Time(ns as u64).to_string();
    let counts = bars(
        &layers(&|_| 1.0),
        Axes {
            x: &edge,
            y: &count,
        },
    );
    let costs = bars(&layers(&middle_ns), Axes { x: &edge, y: &time });
    let legend: Vec<_> = WAYS
        .into_iter()
        .map(|(name, _)| name)
        .zip(WAY_COLOURS)
        .collect();
    let head = [
        vec!["time"],
        WAYS.map(|(name, _)| name).to_vec(),
        vec!["all", "cost"],
    ]
    .concat();
    let row = |bucket: usize| {
        let counts = [0, 1, 2, 3, 4].map(|way| latencies.of_way(way)[bucket]);
        let all = counts.iter().sum::<u64>();
        let mut row = vec![within(bucket)];
        row.extend(
            counts
                .iter()
                .chain([&all])
                .map(|&n| Thousands(n).to_string()),
        );
        row.push(time(all as f64 * middle_ns(bucket)));
        row
    };
    let rows: Vec<_> = used.clone().map(row).collect();
    html! {
        h2 { "How long faults took" }
        p.soft { "How many faults took how long, each bar for times up to twice as long as the one before." }
        (figure("How many faults took how long", &counts, &legend))
        p.soft { "What they cost together: a few long ones may cost more than all others." }
        (figure("The time of all faults that took so long", &costs, &legend))
        (folded("The figures of these drawings", &table("", &head, &rows)))
    }
}

/// A time in the middle of a bucket, by which its faults are weighted.
fn middle_ns(bucket: usize) -> f64 {
    (start_ns(bucket) + latency_end_ns(bucket)) as f64 / 2.0
}

fn within(bucket: usize) -> String {
    let start = Time(start_ns(bucket));
    if bucket + 1 == LATENCY_BUCKETS {
        format!("from {start}")
    } else {
        format!("{start} to {}", Time(latency_end_ns(bucket)))
    }
}

/// The section about what more memory would have saved.
#[must_use]
pub fn curve(report: &Report) -> Markup {
    let curve = &report.plot;
    let steps = curve.steps();
    if curve.faults() == 0 {
        return html! {
            h2 { "What more RAM would have saved" }
            p { "Nothing: there were no major faults." }
        };
    }
    if steps.is_empty() {
        return html! {
            h2 { "What more RAM would have saved" }
            p { (Thousands(curve.faults())) " major faults are too few to say." }
        };
    }
    let budget = |pages: u64| report.budget_bytes + pages * PAGE;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let at = std::iter::once(0).chain(steps.iter().map(|step| step.pages));
    let xs: Vec<f64> = at.map(|pages| mebibytes(budget(pages))).collect();
    let left = |avoided: f64| (1.0 - avoided) * 100.0;
    let avoided = std::iter::once(0.0).chain(steps.iter().map(|step| step.avoided));
    let layer = Layer {
        name: "major faults that are left",
        colour: BLUE,
        values: avoided.map(left).collect(),
    };
    let axes = Axes {
        x: &|mebibytes| format!("{mebibytes:.0} MiB"),
        y: &|percent| format!("{percent:.0} %"),
    };
    let drawing = lines(&[layer], &xs, 100.0, axes);
    let row = |step: &millpond_replay::curve::Step| {
        vec![
            Human(budget(step.pages)).to_string(),
            step.more(),
            format!("{:.1} %", step.avoided * 100.0),
            Thousands((step.avoided * curve.faults() as f64) as u64).to_string(),
        ]
    };
    let rows: Vec<_> = steps.iter().map(row).collect();
    let head = ["budget", "more than now", "major faults saved", "that is"];
    html! {
        h2 { "What more RAM would have saved" }
        p.soft {
            "The share of the " (Thousands(curve.faults())) " major faults that would have been left with a larger
             budget, by a sample of the pages"
            @if curve.is_guess() { "; a guess, as few of them were looked at" }
            "."
        }
        (figure("Major faults that are left, by the budget", &drawing, &[]))
        (table("", &head, &rows))
    }
}
