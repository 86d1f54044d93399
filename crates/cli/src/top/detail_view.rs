//! Drawing one process: what its budget is spent on, what happened recently, how long faults took, how more memory
//! would help.
//!
//! The view is made of panels, each of a fixed height. The first has the whole width. The others stand in two columns
//! if there is room for that, and otherwise below each other; panels that do not fit at the bottom are cut off. So
//! panels are ordered by importance.

use crate::dormancy;
use crate::size::Human;
use crate::top::app::App;
use crate::top::budget::{self, Part};
use crate::top::list_view::footer;
use crate::top::model::Row;
use crate::top::panels::{self, Panel};
use millpond_board::Field;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// The width from which on there are two columns.
const TWO_COLUMNS: u16 = 78;
/// Cells between the two columns.
const GAP: u16 = 2;

/// Draws the process of `row`.
pub fn draw(frame: &mut Frame<'_>, row: &Row, app: &App) {
    let area = frame.area();
    let legend = legend(row, area.width);
    let keys = u16::from(area.height >= 3);
    let [title, bar, names, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(legend.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(keys),
    ])
    .areas(area);
    let style = if row.ended() {
        Style::new().add_modifier(Modifier::DIM)
    } else {
        Style::new()
    };
    frame.render_widget(self::title(row), title);
    draw_bar(frame, row, bar);
    frame.render_widget(Paragraph::new(legend), names);
    frame.render_widget(footer(app), keys);
    let body = Rect {
        y: (body.y + 1).min(body.bottom()),
        height: body.height.saturating_sub(1),
        ..body
    };
    if area.width < TWO_COLUMNS {
        stack(frame, row, app, &panels::ALL, body);
    } else {
        let width = (body.width - GAP) / 2;
        let left = Rect { width, ..body };
        let right = Rect {
            x: body.right() - width,
            ..left
        };
        let (first, second) = panels::ALL.split_at(panels::IN_FIRST_COLUMN);
        stack(frame, row, app, first, left);
        stack(frame, row, app, second, right);
    }
    frame.buffer_mut().set_style(area, style);
}

/// Draws panels below each other as far as they fit, separated by empty rows.
fn stack(frame: &mut Frame<'_>, row: &Row, app: &App, panels: &[Panel], area: Rect) {
    let mut y = area.y;
    for panel in panels.iter().filter(|panel| (panel.concerns)(row)) {
        let height = panel.height.min(area.bottom().saturating_sub(y));
        if height == 0 {
            return;
        }
        (panel.draw)(frame, row, app, Rect { y, height, ..area });
        y += height + 1;
    }
}

fn title(row: &Row) -> Line<'static> {
    let slot = row.slot();
    let bytes = |field| Human(row.get(field));
    let ended = if row.ended() { ", has ended" } else { "" };
    let mut text = format!("{}, process {}{ended}", slot.name, slot.pid);
    let (budget, resident) = (row.get(Field::Budget), row.get(Field::Rss));
    if budget > 0 {
        text += &format!(": budget {}", bytes(Field::Budget));
    }
    if budget > 0 && resident > 0 {
        let percent = 100.0 * resident as f64 / budget as f64;
        text += &format!(", resident {} ({percent:.0} %)", bytes(Field::Rss));
    }
    if let Some(words) = dormancy::words(|field| row.get(field)) {
        text += &format!("; {words}");
    }
    Line::from(text).bold()
}

fn color(part: Part) -> Color {
    match part {
        Part::Mapped => Color::Green,
        Part::Limbo => Color::Yellow,
        Part::Lazy => Color::Cyan,
        Part::FreeFrames => Color::Blue,
        Part::Store => Color::Magenta,
        Part::Metadata => Color::Red,
        Part::Rest => Color::Gray,
        Part::Left => Color::DarkGray,
    }
}

fn draw_bar(frame: &mut Frame<'_>, row: &Row, area: Rect) {
    let parts = budget::parts(&row.slot().fields);
    let cells = budget::cells(&parts, area.width);
    let span = |(part, count): (Part, usize)| {
        Span::styled(part.symbol().to_string().repeat(count), color(part))
    };
    let line: Line<'_> = cells.into_iter().map(span).collect();
    frame.render_widget(line, area);
}

/// The legend of the bar, without parts that have no memory, in rows of at most `width` cells.
fn legend(row: &Row, width: u16) -> Vec<Line<'static>> {
    let parts = budget::parts(&row.slot().fields);
    let mut rows = vec![Line::default()];
    for (part, bytes) in parts.into_iter().filter(|&(_, bytes)| bytes > 0) {
        let text = format!(" {} {}   ", part.name(), Human(bytes));
        let begun = rows.last().map_or(0, Line::width);
        // The spaces at the end may be cut off.
        if begun > 0 && begun + text.len() - 2 > usize::from(width) {
            rows.push(Line::default());
        }
        if let Some(last) = rows.last_mut() {
            last.push_span(Span::styled(part.symbol().to_string(), color(part)));
            last.push_span(Span::raw(text));
        }
    }
    rows
}
