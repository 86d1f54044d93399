//! Tests of what the model derives from looks: rates, silent processes, ended processes, and how much it keeps.

use super::*;
use crate::top::columns::Column;
use crate::top::history::{KEPT_NS, Series};
use crate::top::model::{Model, Row, SILENT_NS};

/// All processes of the model.
fn rows(model: &Model) -> Vec<&Row> {
    model
        .groups()
        .iter()
        .flat_map(|group| group.rows())
        .collect()
}

fn faults(pid: u32, at: u64, count: u64) -> SlotReading {
    let values = [
        (Field::MajorFaults, count),
        (Field::BytesIn, count * 8192),
        (Field::BytesOut, count * 4096),
        (Field::DirectReclaims, count / 2),
    ];
    slot(pid, "work", at, &values)
}

#[test]
fn rates_are_unknown_before_the_second_update() {
    let mut model = Model::default();
    model.update(
        10 * SECOND,
        vec![library(vec![faults(7, 10 * SECOND, 100)])],
    );
    let rate = |model: &Model, column: Column| column.value(rows(model)[0]);
    assert_eq!(rate(&model, Column::Major), None, "written once");
    assert_eq!(Column::Major.text(rows(&model)[0]), "-");

    // Half a second passed between the updates, however much time passed between the looks.
    model.update(
        11 * SECOND,
        vec![library(vec![faults(7, 10 * SECOND + SECOND / 2, 200)])],
    );
    let of = |column| rate(&model, column);
    assert_eq!(of(Column::Major), Some(200.0));
    assert_eq!(of(Column::In), Some(200.0 * 8192.0));
    assert_eq!(of(Column::Out), Some(200.0 * 4096.0));
    assert_eq!(of(Column::Stalls), Some(100.0));
    let history = rows(&model)[0].history();
    assert_eq!(history.highest(Series::In), Some(200.0 * 8192.0));

    // A look that finds nothing new changes nothing.
    model.update(
        12 * SECOND,
        vec![library(vec![faults(7, 10 * SECOND + SECOND / 2, 200)])],
    );
    assert_eq!(rate(&model, Column::Major), Some(200.0));
}

#[test]
fn rates_of_a_silent_process_are_unknown() {
    let mut model = Model::default();
    let written = 11 * SECOND;
    for (now, at) in [
        (10 * SECOND, 10 * SECOND),
        (written, written),
        (written + SILENT_NS, written),
    ] {
        model.update(now, vec![library(vec![faults(7, at, at / SECOND)])]);
    }
    assert_eq!(Column::Major.value(rows(&model)[0]), Some(1.0));
    let much_later = written + SILENT_NS + 1;
    model.update(much_later, vec![library(vec![faults(7, written, 11)])]);
    assert_eq!(Column::Major.value(rows(&model)[0]), None);
    assert_eq!(
        rows(&model)[0].get(Field::MajorFaults),
        11,
        "what there was"
    );
    // The process continues.
    model.update(
        much_later + SECOND,
        vec![library(vec![faults(7, much_later, 11)])],
    );
    assert_eq!(Column::Major.value(rows(&model)[0]), Some(0.0));
}

#[test]
fn a_history_is_two_minutes_long() {
    let mut model = Model::default();
    let tenth = SECOND / 10;
    for n in 20..3000 {
        model.update(n * tenth, vec![library(vec![faults(7, n * tenth, n)])]);
    }
    let history = rows(&model)[0].history();
    let columns = history.columns(Series::MajorFaults, 1200, model.now_ns());
    assert!(
        columns
            .iter()
            .all(|rate| rate.is_some_and(|rate| (rate - 10.0).abs() < 1e-6))
    );
    let before = history.columns(Series::MajorFaults, 1, model.now_ns() - KEPT_NS);
    assert_eq!(before, [None]);
}

#[test]
fn an_ended_process_is_shown_once_more() {
    let mut model = Model::default();
    let now = 10 * SECOND;
    let both = || vec![faults(7, now, 1), faults(8, now, 1)];
    let seen = |model: &Model| -> Vec<(u32, bool)> {
        let rows = rows(model);
        rows.iter()
            .map(|row| (row.slot().pid, row.ended()))
            .collect()
    };
    let mut killed = run(1, "sh", both());
    model.update(now, vec![killed.clone()]);
    assert_eq!(seen(&model), [(7, false), (8, false)]);
    killed.slots[1].1 = false;
    model.update(now, vec![killed.clone()]);
    assert_eq!(seen(&model), [(7, false), (8, true)]);
    model.update(now, vec![killed.clone()]);
    assert_eq!(seen(&model), [(7, false)]);

    // A manager gives its slot back, and the next manager gets it.
    killed.slots.truncate(1);
    killed.slots[0].0.claimed_ns += 1;
    model.update(now, vec![killed]);
    assert_eq!(seen(&model), [(7, true), (7, false)]);

    // The board disappears, with all processes on it.
    model.update(now, Vec::new());
    assert_eq!(seen(&model), [(7, true)]);
    model.update(now, Vec::new());
    assert!(model.groups().is_empty());
}

#[test]
fn process_that_ended_before_the_first_look_is_not_shown() {
    let mut look = run(1, "sh", vec![faults(7, SECOND, 1)]);
    look.slots[0].1 = false;
    let mut model = Model::default();
    model.update(SECOND, vec![look]);
    assert!(rows(&model).is_empty());
    assert_eq!(model.groups().len(), 1, "the run is");
}

#[test]
fn a_program_without_managers_is_not_shown_as_a_run() {
    let mut model = Model::default();
    model.update(SECOND, vec![library(vec![faults(7, SECOND, 1)])]);
    let empty = run(7, "library", Vec::new());
    for _ in 0..2 {
        model.update(SECOND, vec![empty.clone()]);
    }
    assert!(model.groups()[0].library && rows(&model).is_empty());
}

#[test]
fn unknown_values_are_shown_as_a_dash() {
    let mut model = Model::default();
    model.update(SECOND, vec![library(vec![slot(7, "new", SECOND, &[])])]);
    let rows = rows(&model);
    for column in [
        Column::Budget,
        Column::Use,
        Column::Resident,
        Column::Ratio,
        Column::Stalls,
    ] {
        assert_eq!(column.text(rows[0]), "-", "{column:?}");
    }
    assert_eq!(Column::Limbo.text(rows[0]), "0 B");
}
