//! Tests of what is selected, sorted and open, while processes come and go.

use super::*;
use crate::top::app::Next;
use crate::top::columns::{Column, fitting};
use crate::top::keys::Action;
use crate::top::order::{Line, processes};

/// A process that uses `mib` MiB of 100.
fn uses(pid: u32, name: &str, mib: u64) -> SlotReading {
    let values = [(Field::Budget, 100 * MIB), (Field::Rss, mib * MIB)];
    slot(pid, name, 10 * SECOND, &values)
}

fn look(app: &mut App, looks: Vec<Look>) {
    app.look(10 * SECOND, looks, 0);
}

/// The lines from top to bottom, with headings as negative numbers.
fn lines(app: &App) -> Vec<i64> {
    let number = |line: &Line<'_>| match line {
        Line::Run(group) => -i64::from(group.owner),
        Line::Process { row, .. } => i64::from(row.slot().pid),
    };
    app.order.lines(&app.model).iter().map(number).collect()
}

fn selected(app: &App) -> Option<u32> {
    let row = app.selection.id().and_then(|id| app.model.row(id));
    row.map(|row| row.slot().pid)
}

fn some() -> Vec<Look> {
    vec![
        run(1, "sh", vec![uses(11, "b", 20), uses(12, "a", 90)]),
        library(vec![uses(21, "d", 50)]),
        library(vec![uses(31, "c", 95)]),
    ]
}

#[test]
fn runs_stay_together_and_are_sorted_by_their_first() {
    let mut app = app();
    look(&mut app, some());
    assert_eq!(lines(&app), [31, -1, 12, 11, 21], "by use");
    app.act(Action::Reverse);
    assert_eq!(lines(&app), [-1, 11, 12, 21, 31]);
    app.order.column = Column::Name;
    assert_eq!(lines(&app), [21, 31, -1, 11, 12], "names from the last");
    app.act(Action::Reverse);
    assert_eq!(lines(&app), [-1, 12, 11, 31, 21]);
    app.act(Action::Sort { right: false });
    assert_eq!(app.order.column, Column::Pid);
    assert_eq!(lines(&app), [-1, 11, 12, 21, 31]);
    app.act(Action::Sort { right: false });
    assert_eq!(app.order.column, Column::Full10);
    app.act(Action::Sort { right: true });
    assert_eq!(app.order.column, Column::Pid);
}

#[test]
fn unknown_values_sort_last_in_either_direction() {
    let mut app = app();
    let looks = vec![
        library(vec![slot(5, "new", 10 * SECOND, &[])]),
        library(vec![uses(6, "old", 1)]),
    ];
    look(&mut app, looks);
    assert_eq!(lines(&app), [6, 5]);
    app.act(Action::Reverse);
    assert_eq!(lines(&app), [6, 5]);
}

#[test]
fn the_selection_goes_along_with_its_process() {
    let mut app = app();
    assert_eq!(
        (app.act(Action::Step(1)), selected(&app)),
        (Next::Draw, None)
    );
    look(&mut app, some());
    assert_eq!(selected(&app), Some(31), "the first");
    app.act(Action::Step(1));
    assert_eq!(selected(&app), Some(12), "headings are passed over");
    app.act(Action::Reverse);
    assert_eq!(selected(&app), Some(12));
    app.act(Action::Reverse);
    // Other processes come before the selected one.
    let mut more = some();
    more.push(library(vec![uses(41, "e", 99)]));
    look(&mut app, more);
    assert_eq!((lines(&app)[0], selected(&app)), (41, Some(12)));
    // The process ends: it is shown once more, and then the process that took its place is selected.
    let mut fewer = some();
    fewer[0].slots.pop();
    look(&mut app, fewer.clone());
    assert_eq!(selected(&app), Some(12));
    look(&mut app, fewer);
    assert_eq!(
        (lines(&app), selected(&app)),
        (vec![31, 21, -1, 11], Some(11))
    );
    for (by, pid) in [(1, 11), (isize::MIN, 31), (isize::MAX, 11), (-1, 21)] {
        app.act(Action::Step(by));
        assert_eq!(selected(&app), Some(pid), "{by}");
    }
    look(&mut app, Vec::new());
    look(&mut app, Vec::new());
    assert_eq!(selected(&app), None);
}

#[test]
fn a_process_is_opened_and_closed_and_closes_when_it_is_gone() {
    let mut app = app();
    look(&mut app, some());
    assert_eq!(app.act(Action::Open), Next::Draw);
    assert_eq!(app.open, app.selection.id());
    app.act(Action::Step(1));
    assert_eq!(app.open, app.selection.id(), "the next one");
    app.act(Action::Help);
    app.act(Action::Back);
    assert!(!app.help && app.open.is_some());
    app.act(Action::Back);
    assert_eq!(app.open, None);
    app.act(Action::Open);
    look(&mut app, Vec::new());
    assert!(app.open.is_some(), "once more");
    look(&mut app, Vec::new());
    assert_eq!(app.open, None);
    assert_eq!(
        app.act(Action::Open),
        Next::Draw,
        "there is nothing to open"
    );
    assert_eq!(app.act(Action::Back), Next::Leave);
}

#[test]
fn a_single_requested_process_is_opened_at_once() {
    for (pid, shown, open) in [
        (12, vec![-1, 12], true),
        (1, vec![-1, 12, 11], false),
        (31, vec![31], true),
        (99, vec![], false),
    ] {
        let mut app = App::new(Some(pid), Duration::from_secs(1));
        look(&mut app, some());
        assert_eq!((lines(&app), app.open.is_some()), (shown, open), "{pid}");
        app.open = None;
        look(&mut app, some());
        assert!(app.open.is_none(), "whoever went back stays there");
    }
}

#[test]
fn the_most_important_columns_are_kept_when_space_is_short() {
    let names = |width| -> Vec<&str> {
        let columns = fitting(width).into_iter();
        columns.map(|(column, _)| column.heading()).collect()
    };
    assert_eq!(names(1), ["PID"]);
    assert_eq!(names(20), ["PID", "NAME"]);
    let at_80 = [
        "PID", "NAME", "BUDGET", "USE", "RSS", "STORE", "MAJOR/s", "SOME%",
    ];
    assert_eq!(names(80), at_80);
    assert_eq!(names(500).len(), Column::ALL.len());
    for width in 18..200 {
        let columns = fitting(width);
        let needed: u16 = columns.iter().map(|(_, width)| width + 1).sum();
        assert_eq!(needed, width + 1, "the name takes what is left");
    }
    assert_eq!(processes(&[]), []);
}
