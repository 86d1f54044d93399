//! Drawing either one process or the list.

use crate::top::app::App;
use crate::top::{detail_view, list_view};
use ratatui::Frame;

/// Draws the view that `app` has open.
pub fn draw(app: &App, frame: &mut Frame<'_>) {
    match app.open.and_then(|id| app.model.row(id)) {
        Some(row) => detail_view::draw(frame, row, app),
        None => list_view::draw(frame, app),
    }
}
