//! The panels of a process's view. Each panel draws a part of what is known about the process.
//!
//! Rates come from the last two updates, and histories cover the last two minutes. Latencies, and the curve of what
//! more memory would have saved, cover the time since the process's start, because that is what the process writes.
//! Each panel says which of the two it shows.

use crate::curve;
use crate::numbers::{Thousands, Time};
use crate::size::Human;
use crate::top::app::App;
use crate::top::columns::count;
use crate::top::history::Series;
use crate::top::model::Row;
use crate::ways::WAYS;
use millpond_board::Field;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Bar, BarChart, Paragraph, Sparkline, Wrap};

/// Height of one row of bars, in terminal rows.
const SPARK: u16 = 2;
/// Height of one row of bars with its heading, in terminal rows.
const WITH_HEADING: u16 = SPARK + 1;
/// The scale of a bar's height, which is an integer: a rate below one per second must have a height too.
const SCALE: f64 = 1000.0;
const PAGE: u64 = 4096;

/// A panel: its rows, and how it is drawn.
pub struct Panel {
    /// Rows of the terminal.
    pub height: u16,
    /// Whether the panel has anything to show for the process. Otherwise the panels below move up.
    pub concerns: fn(&Row) -> bool,
    /// The function that draws the panel into an area that may be smaller.
    pub draw: fn(&mut Frame<'_>, &Row, &App, Rect),
}

/// All panels, those of the first column first.
pub const ALL: [Panel; 6] = [
    Panel {
        height: 1 + WAYS.len() as u16,
        concerns: always,
        draw: latencies,
    },
    Panel {
        height: 3,
        concerns: always,
        draw: pressure,
    },
    Panel {
        height: 4,
        concerns: always,
        draw: reclaim,
    },
    Panel {
        height: 4,
        concerns: has_files,
        draw: files,
    },
    Panel {
        height: Series::ALL.len() as u16 * WITH_HEADING,
        concerns: always,
        draw: sparklines,
    },
    Panel {
        height: 5,
        concerns: always,
        draw: draw_curve,
    },
];
/// The number of panels in the first column, if there are two.
pub const IN_FIRST_COLUMN: usize = 4;

fn always(_: &Row) -> bool {
    true
}

/// Whether the process has pages of files, or has had any.
fn has_files(row: &Row) -> bool {
    row.since_start().has_files()
}

fn heading(text: String) -> Line<'static> {
    Line::from(text).bold()
}

fn latencies(frame: &mut Frame<'_>, row: &Row, _: &App, area: Rect) {
    let mut lines = vec![heading(format!(
        "{:<11}{:>8}{:>9}{:>9}  faults",
        "since start", "p50", "p99", "max"
    ))];
    for (name, [count, p50, p99, max, _]) in WAYS {
        let faults = row.get(count);
        let time = |field| match faults {
            0 => "-".to_owned(),
            _ => Time(row.get(field)).to_string(),
        };
        lines.push(Line::from(format!(
            "{name:<11}{:>8}{:>9}{:>9}  {}",
            time(p50),
            time(p99),
            time(max),
            Thousands(faults)
        )));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn pressure(frame: &mut Frame<'_>, row: &Row, _: &App, area: Rect) {
    let line = |name, fields: [Field; 3]| {
        let [a, b, c] = fields.map(|field| row.get(field) as f64 / 100.0);
        Line::from(format!("{name:<11}{a:>8.2}{b:>9.2}{c:>9.2}"))
    };
    let lines = vec![
        heading(format!(
            "{:<11}{:>8}{:>9}{:>9}",
            "pressure, %", "10 s", "60 s", "300 s"
        )),
        line(
            "some",
            [
                Field::PressureSome10,
                Field::PressureSome60,
                Field::PressureSome300,
            ],
        ),
        line(
            "full",
            [
                Field::PressureFull10,
                Field::PressureFull60,
                Field::PressureFull300,
            ],
        ),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

fn reclaim(frame: &mut Frame<'_>, row: &Row, _: &App, area: Rect) {
    let (logical, stored) = (row.get(Field::StoreLogical), row.get(Field::StoreStored));
    let ratio = match stored {
        0 => "-".to_owned(),
        _ => format!("{:.2}", logical as f64 / stored as f64),
    };
    let percent =
        |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.0} %", part * 100.0));
    let (now, ever) = (row.recent(), row.since_start());
    let velocity = |name| now.map_or("-".to_owned(), |now| count(now.rate(name)));
    let lines = vec![
        Line::from(match row.get(Field::RemoteBytes) {
            0 => format!("in store   {} as {}", Human(logical), Human(stored)),
            beyond => format!(
                "in store   {} as {}, {} beyond{}",
                Human(logical),
                Human(stored),
                Human(beyond),
                away(row)
            ),
        }),
        Line::from(match row.get(Field::RecompressSaved) {
            0 => format!("ratio      {ratio}"),
            saved => format!("ratio      {ratio}, {} saved by zstd", Human(saved)),
        }),
        Line::from(format!(
            "efficiency {} now, {} since start",
            percent(now.and_then(|now| now.efficiency())),
            percent(ever.efficiency()),
        )),
        Line::from(format!(
            "velocity   {} kswapd, {} direct",
            velocity("pgscan_kswapd"),
            velocity("pgscan_direct"),
        )),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

/// The text about a store beyond the machine that does not answer.
fn away(row: &Row) -> String {
    match row.get(Field::RemoteAway) {
        0 => String::new(),
        ms => format!(" (away for {} s)", ms / 1000),
    }
}

/// Pages of files: how many there are, and how many come and go.
fn files(frame: &mut Frame<'_>, row: &Row, _: &App, area: Rect) {
    let pages = |field| Human(row.get(field) * PAGE);
    let now = row.recent();
    let bytes = |name| match now {
        None => "-".to_owned(),
        Some(now) => format!("{}/s", Human((now.rate(name) * PAGE as f64).round() as u64)),
    };
    let again = now.map(|now| now.rate("workingset_refault_file"));
    let lines = vec![
        Line::from(format!(
            "files      {} in memory",
            pages(Field::NrFilePages)
        )),
        Line::from(format!(
            "           {} dirty, {} going out",
            pages(Field::NrDirty),
            pages(Field::NrWriteback),
        )),
        Line::from(format!(
            "read       {}, written {}",
            bytes("pgpgin"),
            bytes("pgpgout"),
        )),
        Line::from(format!(
            "refaults   {}/s, {} since start",
            again.map_or("-".to_owned(), count),
            Thousands(row.get(Field::WorkingsetRefaultFile)),
        )),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

fn sparklines(frame: &mut Frame<'_>, row: &Row, app: &App, area: Rect) {
    for (index, series) in Series::ALL.into_iter().enumerate() {
        let y = area.y + index as u16 * WITH_HEADING;
        let part = Rect {
            y,
            height: WITH_HEADING,
            ..area
        };
        let part = part.intersection(area);
        if part.is_empty() {
            return;
        }
        sparkline(frame, row, series, app.model.now_ns(), part);
    }
}

fn sparkline(frame: &mut Frame<'_>, row: &Row, series: Series, now_ns: u64, area: Rect) {
    let (name, color, counter) = match series {
        Series::MajorFaults => ("major faults/s", Color::Red, "pgmajfault"),
        Series::In => ("store in", Color::Magenta, "pswpin"),
        Series::Out => ("store out", Color::Blue, "pswpout"),
        Series::Stalls => ("stalls/s", Color::Yellow, "allocstall"),
    };
    let in_bytes = matches!(series, Series::In | Series::Out);
    let said = |rate: Option<f64>| match rate {
        None => "-".to_owned(),
        Some(rate) if in_bytes => format!("{}/s", Human(rate.round() as u64)),
        Some(rate) => count(rate),
    };
    let unit = if in_bytes { 4096.0 } else { 1.0 };
    let now = row.recent().map(|figures| figures.rate(counter) * unit);
    let highest = row.history().highest(series);
    // The time is named once, where the least room is needed.
    let time = match series {
        Series::MajorFaults => "; 2 minutes",
        _ => "",
    };
    let text = format!("{name}  {}, peak {}{time}", said(now), said(highest));
    frame.render_widget(heading(text), Rect { height: 1, ..area });
    let bars = Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    let columns = row
        .history()
        .columns(series, usize::from(area.width), now_ns);
    let heights = columns
        .into_iter()
        .map(|rate| rate.map(|rate| (rate * SCALE).round() as u64));
    let sparkline = Sparkline::default().data(heights.collect::<Vec<_>>());
    frame.render_widget(sparkline.style(color), bars);
}

fn draw_curve(frame: &mut Frame<'_>, row: &Row, _: &App, area: Rect) {
    let curve = curve::of(std::iter::once(row.slot()));
    let steps = curve.steps();
    if steps.is_empty() {
        // The curve's text says why there is nothing to draw.
        let text = Paragraph::new(curve.to_string()).wrap(Wrap { trim: true });
        frame.render_widget(text, area);
        return;
    }
    let guess = if curve.is_guess() { ", a guess" } else { "" };
    let text = format!(
        "more memory, of {} major faults{guess}",
        Thousands(curve.faults())
    );
    frame.render_widget(heading(text), Rect { height: 1, ..area });
    let bar = |step: &millpond_replay::curve::Step| {
        let text = format!("{:.1} % fewer major faults", step.avoided * 100.0);
        let share = (step.avoided * SCALE).round() as u64;
        Bar::with_label(step.more(), share).text_value(text)
    };
    let bars: Vec<Bar<'_>> = steps.iter().map(bar).collect();
    let chart = BarChart::horizontal(bars)
        .max(SCALE as u64)
        .bar_gap(0)
        .bar_style(Color::Green)
        .value_style(Style::new().reversed().fg(Color::Green));
    let below = Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    frame.render_widget(chart, below);
}
