//! `millpond top` on a terminal of its own: what it shows of a manager in another process (this one), and that the
//! terminal is restored, whichever way the program ends. The handling of figures is tested in `src/top`.

#[path = "common/busy.rs"]
mod busy;
#[allow(dead_code, reason = "other tests use the rest")]
mod common;
#[path = "top/terminal.rs"]
mod terminal;

use busy::{alone, busy};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use terminal::Terminal;

fn top(arguments: &[&str]) -> Command {
    let mut top = Command::new(env!("CARGO_BIN_EXE_millpond"));
    top.arg("top").args(arguments);
    top
}

#[test]
fn a_manager_is_listed_looked_at_closely_and_left() {
    let _alone = alone();
    let Some((manager, region)) = busy("index") else {
        return;
    };
    let pid = std::process::id().to_string();
    // The manager is the only one of this process, and so it is looked at closely at once.
    let mut terminal = Terminal::run(top(&[&pid, "--interval", "0.1"]));
    let budget = format!("index, process {pid}: budget 16 MiB, resident ");
    terminal.until_read(&[&budget]);
    terminal.keys("\x1b");
    let text = terminal.until("the list", |screen| {
        let text = screen.contents();
        let mut lines = text.lines();
        screen.alternate_screen()
            && lines.any(|line| {
                [&pid, "index", "16 MiB", " 0 "]
                    .iter()
                    .all(|part| line.contains(part))
            })
    });
    assert!(
        text.starts_with("millpond top: 1 process, every 0.1 s"),
        "{text}"
    );
    terminal.keys("?");
    terminal.until_read(&["Enter look closer"]);
    terminal.keys("\r");
    terminal.until_read(&[
        &budget,
        "first touch",
        "more memory, of ",
        "pressure",
        "% fewer major faults",
    ]);

    // The window changes its size, and no size is a reason to end.
    terminal.resize(5, 20);
    terminal.until_read(&["j/k another  Enter"]);
    terminal.resize(1, 1);
    terminal.resize(30, 120);
    terminal.until_read(&[&budget, "first touch", "q leave"]);

    drop((region, manager));
    terminal.until_read(&["millpond top: "]);
    terminal.keys("q");
    let (status, text) = terminal.left();
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn a_signal_ends_top_and_restores_the_terminal() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        let mut terminal = Terminal::run(top(&["--interval", "3600"]));
        terminal.until_read(&["millpond top: "]);
        let pid = terminal.program.id() as i32;
        // SAFETY: sends a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let (status, text) = terminal.left();
        assert_eq!((status, text.as_str()), (Some(0), ""), "signal {signal}");
    }
}

#[test]
fn a_lost_terminal_ends_top_without_a_panic() {
    for ignored in [false, true] {
        let mut command = top(&["--interval", "3600"]);
        if ignored {
            let program = env!("CARGO_BIN_EXE_millpond");
            command = Command::new("sh");
            command.args(["-c", &format!("trap '' HUP; exec {program} top")]);
        }
        let mut terminal = Terminal::run(command);
        terminal.until_read(&["millpond top: "]);
        assert_eq!(terminal.hang_up(), Some(0), "hangups ignored: {ignored}");
    }
}

#[test]
fn exit_keys_end_top() {
    for keys in ["q", "\x1b", "\x03"] {
        let mut terminal = Terminal::run(top(&["--interval", "3600"]));
        terminal.until_read(&["millpond top: "]);
        terminal.keys(keys);
        assert_eq!(terminal.left().0, Some(0), "{keys:?}");
    }
}

#[test]
fn top_restores_the_terminal_when_stopped_and_continues() {
    // The shell looks after jobs, as a person's does. Whenever the job has stopped, the shell waits for a line.
    let program = env!("CARGO_BIN_EXE_millpond");
    let script = format!(
        "{program} top; echo first $?; read l; fg; echo second $?; read l; fg; echo third $?; read l; fg; echo left $?"
    );
    let mut shell = Command::new("sh");
    shell.args(["-mc", &script]);
    let mut terminal = Terminal::run(shell);
    let job = |terminal: &Terminal| -> i32 {
        let shell = terminal.program.id();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        children.trim().parse().unwrap()
    };
    let listed = |screen: &vt100::Screen| {
        screen.alternate_screen() && screen.contents().contains("millpond top: ")
    };

    terminal.until("the list", listed);
    terminal.keys("\x1a");
    terminal.until_read(&[&format!("first {}", 128 + libc::SIGTSTP)]);
    terminal.is_put_back();
    terminal.keys("\n");

    terminal.until("the list after ^Z", listed);
    // SAFETY: sends a signal to a child of the shell, which has not waited for its end.
    unsafe { libc::kill(job(&terminal), libc::SIGTSTP) };
    terminal.until_read(&[&format!("second {}", 128 + libc::SIGTSTP)]);
    terminal.is_put_back();
    terminal.keys("\n");

    // A stop that nobody can prevent leaves the terminal as it is; going on is not harmed by what happened there.
    terminal.until("the list after a signal", listed);
    // SAFETY: sends a signal to a child of the shell, which has not waited for its end.
    unsafe { libc::kill(job(&terminal), libc::SIGSTOP) };
    terminal.until_read(&[&format!("third {}", 128 + libc::SIGSTOP)]);
    terminal.keys("\n");
    terminal.until("all of the list once more", |screen| {
        listed(screen) && !screen.contents().contains("third")
    });
    terminal.keys("q");
    let (status, text) = terminal.left();
    assert_eq!(status, Some(0));
    assert!(text.contains("left 0"), "{text}");
}

#[test]
fn top_uses_no_processor_between_two_looks() {
    let mut terminal = Terminal::run(top(&["--interval", "3600"]));
    terminal.until_read(&["millpond top: "]);
    let stat = format!("/proc/{}/stat", terminal.program.id());
    // Ticks in user space and in the kernel.
    let used = || -> u64 {
        let text = fs::read_to_string(&stat).unwrap();
        let fields: Vec<&str> = text
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = used();
    // Half a sequence is no reason to be awake either, nor to be deaf.
    terminal.keys("\x1b[");
    std::thread::sleep(Duration::from_secs(1));
    assert!(
        used() - before <= 10,
        "a tenth of a second in one: {}",
        used() - before
    );
    terminal.keys("q");
    assert_eq!(terminal.left().0, Some(0));
}

#[test]
fn run_is_shown_before_it_publishes_and_its_end_is_reported() {
    if !common::can_run() {
        return;
    }
    let mut run = common::run(&["--report", "none"], &["sh", "-c", "echo ready; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = run.stdout.as_mut().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let pid = run.id().to_string();
    let mut terminal = Terminal::run(top(&[&pid, "--interval", "0.2"]));
    // The library of these tests is empty, so no process reports.
    terminal.until_read(&[
        "0 processes",
        &format!("{pid} sh: no process publishes its figures now"),
    ]);
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
    terminal.until_read(&[&format!("Process {pid} publishes no figures")]);
    terminal.keys("q");
    assert_eq!(terminal.left().0, Some(0));
}

#[test]
fn without_a_terminal_top_names_an_alternative() {
    let refused = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains("terminal") && text.contains("`millpond stat`"),
            "{text}"
        );
    };
    refused(top(&[]).stdin(Stdio::null()).output().unwrap());
    let output = top(&["--interval", "0.01"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn process_without_figures_is_named_before_the_screen_changes() {
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let (status, text) = Terminal::run(top(&[&pid])).left();
    assert_eq!(status, Some(1));
    assert!(
        text.contains(&pid) && text.contains("publishes no counters"),
        "{text}"
    );
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let (status, text) = Terminal::run(top(&[&pid])).left();
    assert_eq!(status, Some(1));
    assert!(text.contains(&format!("no process {pid}")), "{text}");
}

#[test]
fn no_color_disables_colours() {
    let _alone = alone();
    for (wish, is_coloured) in [("", true), ("1", false)] {
        let Some((_manager, _region)) = busy("index") else {
            return;
        };
        let pid = std::process::id().to_string();
        let mut command = top(&[&pid, "--interval", "0.1"]);
        command.env("NO_COLOR", wish);
        let mut terminal = Terminal::run(command);
        terminal.until("the details", |screen| {
            let (rows, columns) = screen.size();
            let cells = || {
                let places =
                    (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
                places.filter_map(|(row, column)| screen.cell(row, column))
            };
            let has_colour = cells().any(|cell| cell.fgcolor() != vt100::Color::Default);
            screen.contents().contains("first touch") && has_colour == is_coloured
        });
        terminal.keys("q");
        assert_eq!(terminal.left().0, Some(0), "NO_COLOR={wish}");
    }
}
