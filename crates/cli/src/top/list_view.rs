//! Drawing the list: a line for each process, a heading for each run.
//!
//! The screen shows, from top to bottom: the title, the columns' headings, the lines, the keys. A terminal with fewer
//! than four lines has no room for all of them and the processes, so some are dropped: first the title, then the keys,
//! then the headings.

use crate::top::app::App;
use crate::top::columns::{Column, fitting};
use crate::top::model::Row;
use crate::top::order::{Line as Listed, processes};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Paragraph, Wrap};

/// The style of processes that have ended: still readable, but less conspicuous.
const ENDED: Style = Style::new().fg(Color::DarkGray).add_modifier(Modifier::DIM);

/// Draws the list.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    let part = |from: u16| u16::from(area.height >= from);
    let [title, headings, body, keys] = Layout::vertical([
        Constraint::Length(part(4)),
        Constraint::Length(part(2)),
        Constraint::Fill(1),
        Constraint::Length(part(3)),
    ])
    .areas(area);
    let lines = app.order.lines(&app.model);
    frame.render_widget(self::title(app, processes(&lines).len()), title);
    frame.render_widget(footer(app), keys);
    if lines.is_empty() {
        let whole = headings.union(body);
        frame.render_widget(
            Paragraph::new(nobody(app)).wrap(Wrap { trim: false }),
            whole,
        );
        return;
    }
    let columns = fitting(area.width);
    draw_headings(frame, app, &columns, headings);
    let selected = app.selection.id();
    let is_selected = |line: &Listed<'_>| matches!(line, Listed::Process { row, .. } if Some(row.id()) == selected);
    let at = lines.iter().position(is_selected).unwrap_or(0);
    // The selected line is always visible, and so are the lines above it as long as there is room for both.
    let hidden = (at + 1).saturating_sub(usize::from(body.height));
    for (line, area) in lines.iter().skip(hidden).zip(body.rows()) {
        match line {
            Listed::Run(group) => {
                // A program that has dropped its managers also has an empty board, so this need not be a run.
                let what = if group.rows().is_empty() {
                    ": no process publishes its figures now"
                } else {
                    " (run)"
                };
                let text = format!("{:>7} {}{what}", group.owner, group.name);
                frame.render_widget(Line::from(text).bold(), area);
            }
            Listed::Process { row, of_run } => {
                draw_row(frame, row, *of_run, &columns, area);
                if is_selected(line) {
                    frame.buffer_mut().set_style(area, Modifier::REVERSED);
                }
            }
        }
    }
}

fn title(app: &App, count: usize) -> Line<'static> {
    let count = match count {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    let foreign = match app.foreign {
        0 => String::new(),
        count => format!(", {count} of another version not shown"),
    };
    let every = app.interval.as_secs_f64();
    Line::from(format!("millpond top: {count}, every {every} s{foreign}")).bold()
}

/// The last line of both views.
pub fn footer(app: &App) -> Line<'static> {
    Line::from(app.keys()).style(Style::new().fg(Color::Cyan))
}

fn nobody(app: &App) -> String {
    match app.only {
        Some(pid) => format!("Process {pid} publishes no figures any more, nor does a process that it runs."),
        None => "No process publishes its figures now. It is shown here as soon as one does:\n\n  \
                 millpond run --ram 512M -- PROGRAM\n\nor a program whose manager is built with .publish(name)."
            .to_owned(),
    }
}

/// The cells of a line, from left to right.
fn cells(columns: &[(Column, u16)], line: Rect) -> impl Iterator<Item = (Column, Rect)> {
    let mut x = line.x;
    columns.iter().map(move |&(column, width)| {
        let cell = Rect { x, width, ..line }.intersection(line);
        x = x.saturating_add(width + 1);
        (column, cell)
    })
}

fn draw_text(frame: &mut Frame<'_>, column: Column, text: String, style: Style, cell: Rect) {
    let line = Line::styled(text, style);
    let line = if column.is_text() {
        line
    } else {
        line.right_aligned()
    };
    frame.render_widget(line, cell);
}

fn draw_headings(frame: &mut Frame<'_>, app: &App, columns: &[(Column, u16)], area: Rect) {
    frame.buffer_mut().set_style(area, Modifier::UNDERLINED);
    for (column, cell) in cells(columns, area) {
        let mut text = column.heading().to_owned();
        let mut style = Style::new();
        if let Some(arrow) = app.sorted(column) {
            text.push(arrow);
            style = style.add_modifier(Modifier::BOLD | Modifier::REVERSED);
        }
        draw_text(frame, column, text, style, cell);
    }
}

fn draw_row(frame: &mut Frame<'_>, row: &Row, of_run: bool, columns: &[(Column, u16)], area: Rect) {
    let style = if row.ended() { ENDED } else { Style::new() };
    for (column, cell) in cells(columns, area) {
        let text = column.text(row);
        match (column, column.value(row)) {
            (Column::Use, Some(part)) => {
                let bar = if row.ended() {
                    ENDED
                } else {
                    Style::new().fg(color_of_use(part))
                };
                let gauge = Gauge::default().gauge_style(bar).label(text);
                frame.render_widget(gauge.ratio(part.clamp(0.0, 1.0)).use_unicode(true), cell);
            }
            (Column::Name, _) if of_run => {
                draw_text(frame, column, format!("  {text}"), style, cell)
            }
            _ => draw_text(frame, column, text, style, cell),
        }
    }
}

/// The colour of a use of the budget. A process is meant to be close to its budget, and not above it.
fn color_of_use(part: f64) -> Color {
    if part > 1.0 {
        Color::Red
    } else if part > 0.9 {
        Color::Yellow
    } else {
        Color::Green
    }
}
