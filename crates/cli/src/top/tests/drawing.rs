//! Tests of the screen: the text of the important lines, and that no size of terminal is too small.

use super::*;
use crate::top::keys::Action;

/// A process after `second` seconds: each second has 1,200 major faults and three MiB from the store.
fn busy(pid: u32, name: &str, second: u64) -> SlotReading {
    let values = [
        (Field::Budget, 64 * MIB),
        (Field::Rss, 63 * MIB),
        (Field::NrMapped, 40 * PAGES),
        (Field::NrLimbo, 8 * PAGES),
        (Field::LazyFree, 3 * MIB),
        (Field::LazyFreeMapped, 3 * MIB),
        (Field::NrFreeFrames, PAGES),
        (Field::StoreRam, 4 * MIB),
        (Field::Metadata, MIB),
        (Field::StoreLogical, 200 * MIB),
        (Field::StoreStored, 66 * MIB),
        (Field::MajorFaults, 1200 * second),
        (Field::BytesIn, 3 * MIB * second),
        (Field::BytesOut, MIB * second),
        (Field::DirectReclaims, second / 2),
        (Field::PressureSome10, 1234),
        (Field::PressureFull10, 210),
        (Field::NrLimit, 16 * 1024),
        (Field::RefaultsAt100, 800),
        (Field::RefaultsAt125, 400),
        (Field::RefaultsAt150, 300),
        (Field::RefaultsAt200, 100),
        (Field::LoadCount, 12_345),
        (Field::LoadP50, 5_000),
        (Field::LoadP99, 22_000),
        (Field::LoadMax, 1_234_567),
        (Field::PgScanDirect, 100 * second),
        (Field::PgStealDirect, 80 * second),
    ];
    slot(pid, name, second * SECOND, &values)
}

fn watched() -> App {
    let mut app = app();
    for second in 20..160 {
        let small = [(Field::Budget, 64 * MIB), (Field::Rss, 3 * MIB)];
        let looks = vec![
            run(
                1000,
                "make",
                vec![
                    slot(1002, "sh", second * SECOND, &small),
                    busy(1001, "cc", second),
                ],
            ),
            library(vec![busy(2000, "index", second)]),
        ];
        app.look(second * SECOND, looks, 0);
    }
    app
}

#[test]
fn the_list_has_a_line_for_each_process() {
    let app = watched();
    let wide = drawn(&app, 160, 8);
    assert_eq!(wide[0], "millpond top: 3 processes, every 1 s");
    let headings: Vec<&str> = wide[1].split_whitespace().collect();
    let expected = [
        "PID", "NAME", "BUDGET", "USE▼", "RSS", "LIMBO", "LAZY", "FILES", "STORE", "TAKES",
        "RATIO", "MAJOR/s", "IN/s", "OUT/s", "STALL/s", "SOME%", "FULL%",
    ];
    assert_eq!(headings, expected);
    assert_eq!(wide[2], "   1000 make (run)");
    assert!(wide[3].starts_with("   1001   cc "), "{wide:#?}");
    let figures =
        "63 MiB    8 MiB    3 MiB      0 B  200 MiB   66 MiB    3.0    1,200    3 MiB    1 MiB";
    assert!(
        wide[3].contains(figures) && wide[3].contains("98 %"),
        "{wide:#?}"
    );
    assert!(wide[3].ends_with("12.3    2.1"), "{wide:#?}");
    assert!(wide[4].starts_with("   1002   sh ") && wide[4].contains("5 %"));
    assert!(wide[5].starts_with("   2000 index "));
    assert_eq!(wide[7], "? keys  q leave");
}

#[test]
fn small_terminals_show_what_fits() {
    let mut app = watched();
    let expected = [
        "millpond top: 3 proc",
        "    PID NAME",
        "   1000 make (run)",
        "   1001   cc",
        "? keys  q leave",
    ];
    assert_eq!(drawn(&app, 20, 5), expected);
    // The selected line is visible wherever it is.
    app.act(Action::Step(isize::MAX));
    assert_eq!(drawn(&app, 20, 5)[3], "   2000 index");
    assert_eq!(drawn(&app, 20, 1), ["   2000 index"]);
    assert_eq!(drawn(&app, 1, 1), ["0"], "the end of a number");
    app.act(Action::Open);
    let small = drawn(&app, 20, 5);
    assert_eq!(small[0], "index, process 2000:");
    assert_eq!(
        (small[2].as_str(), small[4].as_str()),
        ("█ mapped 37 MiB", "? keys  q leave")
    );
    assert_eq!(drawn(&app, 1, 1).len(), 1);
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let mut app = watched();
    for open in [false, true] {
        assert_eq!(app.open.is_some(), open);
        for width in (0..90).chain([200, 500]) {
            for height in (0..45).chain([200]) {
                drawn(&app, width, height);
            }
        }
        app.act(Action::Open);
    }
}

#[test]
fn a_process_is_shown_in_full() {
    let mut app = watched();
    app.act(Action::Open);
    let wide = drawn(&app, 160, 40).join("\n");
    let narrow = drawn(&app, 60, 45).join("\n");
    for text in [&wide, &narrow] {
        for part in [
            "cc, process 1001: budget 64 MiB, resident 63 MiB (98 %)",
            "█ mapped 37 MiB   ▓ limbo 8 MiB   ▒ lazily freed 3 MiB",
            "░ free frames 1 MiB   # store 4 MiB   = metadata 1 MiB",
            "+ rest of the process 9 MiB   · left 1 MiB",
            "since start     p50      p99      max  faults",
            "first touch       -        -        -  0",
            "load         5.0 µs  22.0 µs   1.2 ms  12,345",
            "pressure, %    10 s     60 s    300 s",
            "some          12.34     0.00     0.00",
            "full           2.10     0.00     0.00",
            "in store   200 MiB as 66 MiB",
            "ratio      3.03",
            "efficiency 80 % now, 80 % since start",
            "velocity   0 kswapd, 100 direct",
            "major faults/s  1,200, peak 1,200; 2 minutes",
            "store in  3 MiB/s, peak 3 MiB/s",
            "store out  1 MiB/s, peak 1 MiB/s",
            "stalls/s  0",
            "more memory, of 190,800 major faults",
            "+16 MiB  50.0 % fewer major faults",
            "+128 MiB 100.0 % fewer major faults",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    // A rate that stays the same for two minutes makes a block of full height.
    assert!(narrow.contains(&"█".repeat(60)), "{narrow}");
    let usual = drawn(&app, 80, 24).join("\n");
    for part in [
        "load         5.0 µs",
        "velocity",
        "stalls/s",
        "+128 MiB 100.0 %",
    ] {
        assert!(usual.contains(part), "{part}: {usual}");
    }
}

/// Pages of files used to be counted but not drawn: a process that only reads files seemed to do nothing.
#[test]
fn file_figures_are_drawn_only_for_a_process_with_files() {
    let mut app = app();
    for second in 20..30 {
        let values = [
            (Field::Budget, 64 * MIB),
            (Field::NrFilePages, 20 * PAGES),
            (Field::NrDirty, PAGES),
            (Field::NrWriteback, 2 * PAGES),
            (Field::WorkingsetRefaultFile, 1500 * second),
            (Field::PgPgIn, 5 * PAGES * second),
            (Field::PgPgOut, PAGES * second),
        ];
        let slots = vec![
            slot(7, "reader", second * SECOND, &values),
            busy(8, "other", second),
        ];
        app.look(second * SECOND, vec![run(1000, "make", slots)], 0);
    }
    let list = drawn(&app, 160, 8).join("\n");
    assert!(list.contains("FILES") && list.contains("20 MiB"), "{list}");
    app.open = app.model.groups()[0].rows().first().map(|row| row.id());
    for (width, height) in [(160, 40), (60, 45), (80, 25)] {
        let text = drawn(&app, width, height).join("\n");
        for part in [
            "files      20 MiB in memory",
            "           1 MiB dirty, 2 MiB going out",
            "read       5 MiB/s, written 1 MiB/s",
            "refaults   1,500/s, 43,500 since start",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    app.open = app.model.groups()[0].rows().last().map(|row| row.id());
    let text = drawn(&app, 160, 40).join("\n");
    assert!(
        !text.contains("files ") && text.contains("stalls/s"),
        "{text}"
    );
}

#[test]
fn unknown_values_are_not_drawn() {
    let mut app = app();
    let new = slot(7, "new", SECOND, &[(Field::Budget, 16 * MIB)]);
    app.look(SECOND, vec![library(vec![new])], 0);
    app.act(Action::Open);
    let text = drawn(&app, 100, 40).join("\n");
    for part in [
        "new, process 7: budget 16 MiB\n",
        "· left 16 MiB",
        "major faults/s  -, peak -",
        "efficiency - now, - since start",
        "ratio      -",
        "there were no major faults",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains("fewer") && !text.contains("resident"),
        "{text}"
    );
}

#[test]
fn empty_list_explains_how_to_see_processes() {
    let mut app = app();
    app.look(SECOND, Vec::new(), 2);
    let text = drawn(&app, 80, 12).join("\n");
    for part in [
        "0 processes",
        "2 of another version not shown",
        "millpond run --ram 512M -- PROGRAM",
        ".publish(name)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    app.look(2 * SECOND, vec![run(1, "sh", Vec::new())], 0);
    let text = drawn(&app, 80, 12).join("\n");
    assert!(
        text.contains("1 sh: no process publishes its figures now"),
        "{text}"
    );
    let mut app = App::new(Some(77), Duration::from_millis(200));
    app.look(SECOND, Vec::new(), 0);
    let text = drawn(&app, 80, 12).join("\n");
    assert!(
        text.contains("every 0.2 s") && text.contains("Process 77 publishes no figures"),
        "{text}"
    );
}

#[test]
fn ended_processes_are_grey_and_the_keys_are_shown() {
    let mut app = watched();
    app.look(161 * SECOND, Vec::new(), 0);
    let mut terminal = Terminal::new(TestBackend::new(80, 8)).unwrap();
    terminal
        .draw(|frame| crate::top::view::draw(&app, frame))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let name = &buffer[(10, 4)];
    assert_eq!(
        (name.symbol(), name.fg),
        ("s", ratatui::style::Color::DarkGray)
    );
    app.act(Action::Help);
    let keys = drawn(&app, 80, 8)[7].clone();
    assert!(
        keys.contains("Enter look closer") && keys.contains("</> sort by"),
        "{keys}"
    );
    app.act(Action::Open);
    let text = drawn(&app, 80, 24).join("\n");
    assert!(
        text.contains("has ended") && text.contains("Esc the list"),
        "{text}"
    );
}
