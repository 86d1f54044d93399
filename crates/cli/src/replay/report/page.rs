//! The result of `millpond replay` as a page: how often each policy misses with each size of memory, and what more
//! memory would have saved.

use super::{PolicyRuns, ReplayReport, SizeCurve};
use crate::numbers::Thousands;
use crate::page::palette::{AMBER, BLUE, Colour, GREEN, PINK, RED, SKY, SLATE, TEAL, VIOLET};
use crate::page::plot::{Axes, Layer, lines};
use crate::page::{self, figure, table};
use crate::size::Human;
use maud::{Markup, html};

/// Bytes in a page.
const PAGE: u64 = 4096;

/// The colours of policies, in the order in which they were requested.
const COLOURS: [Colour; 9] = [BLUE, AMBER, GREEN, TEAL, PINK, VIOLET, SLATE, RED, SKY];

impl ReplayReport {
    /// The result as a page; see [`crate::page`].
    #[must_use]
    pub fn to_page(&self) -> String {
        let trace = &self.trace;
        let writes = if trace.has_writes {
            "; it tells reads and writes apart"
        } else {
            ""
        };
        let body = html! {
            h1 { (trace.file) }
            p.soft {
                (Thousands(trace.accesses)) " accesses to " (Thousands(u64::from(trace.pages))) " pages ("
                (bytes(u64::from(trace.pages))) ")" (writes) "."
            }
            (self.misses())
            @if !self.curves.is_empty() {
                h2 { "What more RAM would have saved" }
                p.soft { "The share of the major faults that Millpond's policy would not have had with more memory." }
                @for curve in &self.curves { (saved(curve)) }
            }
            (self.checks())
        };
        page::document(&format!("Replay of {}", trace.file), &body)
    }

    fn misses(&self) -> Markup {
        let mut order: Vec<usize> = (0..self.sizes.len()).collect();
        order.sort_by_key(|&size| self.sizes[size].pages);
        let mebibytes = |&size: &usize| f64::from(self.sizes[size].pages) * PAGE as f64 / MIB;
        let xs: Vec<f64> = order.iter().map(mebibytes).collect();
        let layer = |(one, colour): (&PolicyRuns, Colour)| Layer {
            name: one.policy,
            colour,
            values: order
                .iter()
                .map(|&size| one.runs[size].miss_ratio * 100.0)
                .collect(),
        };
        let colours = COLOURS.into_iter().cycle();
        let layers: Vec<_> = self.policies.iter().zip(colours).map(layer).collect();
        let highest = layers.iter().flat_map(|layer| &layer.values).copied();
        let axes = Axes {
            x: &|mebibytes| Human((mebibytes * MIB) as u64).to_string(),
            y: &percent,
        };
        let drawing = lines(&layers, &xs, highest.fold(0.0, f64::max), axes);
        let legend: Vec<_> = layers.iter().map(|one| (one.name, one.colour)).collect();
        let name = |&size: &usize| {
            let size = &self.sizes[size];
            format!("{} ({})", size.given, bytes(u64::from(size.pages)))
        };
        let names: Vec<String> = order.iter().map(name).collect();
        let head: Vec<&str> = std::iter::once("policy")
            .chain(names.iter().map(String::as_str))
            .collect();
        let row = |one: &PolicyRuns| {
            let of = |&size: &usize| {
                let run = &one.runs[size];
                format!(
                    "{:.2} % ({})",
                    run.miss_ratio * 100.0,
                    Thousands(run.misses)
                )
            };
            let mut row = vec![one.policy.to_owned()];
            row.extend(order.iter().map(of));
            row
        };
        let rows: Vec<_> = self.policies.iter().map(row).collect();
        html! {
            h2 { "Misses" }
            p.soft {
                "The share of all accesses that do not find their page in memory, first touches included. workingset is
                 Millpond's own policy, and opt is the best possible one, which knows the future."
            }
            (figure("The share of accesses that miss, by the size of memory", &drawing, &legend))
            (table("Misses of all accesses, and their number", &head, &rows))
        }
    }

    fn checks(&self) -> Markup {
        let row = |check: &crate::replay::check::CurveCheck| {
            vec![
                bytes(u64::from(check.pages)),
                format!("+{}", bytes(u64::from(check.more_pages))),
                percent(check.predicted * 100.0),
                percent(check.replayed * 100.0),
            ]
        };
        let rows: Vec<_> = self.curve_checks.iter().map(row).collect();
        html! {
            @if !rows.is_empty() {
                h2 { "The curves, checked" }
                p.soft { "The share of major faults that more memory avoids, as predicted and as a replay counts it." }
                (table("", &["memory", "more", "predicted", "replayed"], &rows))
            }
        }
    }
}

const MIB: f64 = 1_048_576.0;

/// What more memory than one size would have saved.
fn saved(curve: &SizeCurve) -> Markup {
    let pages = u64::from(curve.pages);
    let row = |step: &millpond_replay::curve::Step| {
        let saved = step.avoided * curve.major_faults as f64;
        vec![
            bytes(pages + step.pages),
            step.more(),
            percent(step.avoided * 100.0),
            Thousands(saved as u64).to_string(),
        ]
    };
    let rows: Vec<_> = curve.curve.steps().iter().map(row).collect();
    let caption = format!(
        "With {}, where there were {} major faults",
        bytes(pages),
        Thousands(curve.major_faults)
    );
    html! {
        @if rows.is_empty() { p { (caption) ", too few to say more." } }
        @else { (table(&caption, &["memory", "more", "major faults saved", "that is"], &rows)) }
    }
}

fn bytes(pages: u64) -> String {
    Human(pages * PAGE).to_string()
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}
