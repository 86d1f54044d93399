//! `millpond metrics`: the counts of a manager in another process (this one), printed and served.

#[path = "common/busy.rs"]
mod busy;

use busy::{alone, busy};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.arg("metrics").args(arguments);
    command
}

/// A server that is ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut command = command(&["--listen", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        let address = said.split("http://").nth(1).expect(&said);
        let address = address.split('/').next().unwrap().to_owned();
        Self { child, address }
    }

    /// The answer's head and body.
    fn ask(&self, method: &str, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself, which the test has seen then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of a metric of this process; `None` while it is not there.
fn value(text: &str, metric: &str) -> Option<f64> {
    let start = format!(r#"{metric}{{pid="{}","#, std::process::id());
    let line = text.lines().find(|line| line.starts_with(&start))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_manager_of_another_process_is_printed_and_served() {
    let _alone = alone();
    let Some((manager, region)) = busy("index") else {
        return;
    };
    let truth = manager.stats().vm.pgmajfault as f64;
    assert!(truth > 0.0);

    // The manager's thread writes counters down ten times a second.
    let patience = Instant::now() + Duration::from_secs(20);
    let printed = loop {
        let output = command(&[]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        if value(&text, "millpond_pgmajfault_total") == Some(truth) {
            break text;
        }
        assert!(Instant::now() < patience, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let budget = value(&printed, "millpond_budget_bytes");
    assert_eq!(budget, Some(f64::from(16 << 20)));
    assert!(printed.contains(r#"name="index"}"#), "{printed}");

    let server = Server::start();
    let (head, served) = server.ask("GET", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let kind = "content-type: application/openmetrics-text; version=1.0.0";
    assert!(head.to_lowercase().contains(kind), "{head}");
    let faults = value(&served, "millpond_pgmajfault_total");
    assert_eq!(faults, Some(truth));
    assert_eq!(server.ask("HEAD", "/metrics").1, "");
    for (method, path, status, says) in [
        ("GET", "/", "200", "metrics are at /metrics"),
        ("GET", "/favicon.ico", "404", "there is no /favicon.ico"),
        ("POST", "/metrics", "405", "POST is not served"),
    ] {
        let (head, body) = server.ask(method, path);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        assert!(body.contains(says), "{body}");
    }

    // A server that is asked every few seconds for weeks has each board once, and no board that is gone.
    let boards = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.child.id())).unwrap();
        maps.lines()
            .filter(|line| line.contains("millpond-board"))
            .count()
    };
    let first = boards();
    assert!(first > 0);
    (0..20).for_each(|_| drop(server.ask("GET", "/metrics")));
    assert!(boards() <= first + 1, "{} of {first}", boards());

    // Another server cannot have the address, and says what to do.
    let taken = command(&["--listen", &server.address]).output().unwrap();
    let said = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert_eq!(taken.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&server.address) && said.contains("choose another"),
        "{said}"
    );

    drop((region, manager));
    let (_, served) = server.ask("GET", "/metrics");
    assert_eq!(value(&served, "millpond_pgmajfault_total"), None);
}

/// Checks that every line is of the format: a comment, or a sample of a metric that was described before.
#[test]
fn printed_metrics_are_valid_openmetrics() {
    let text = String::from_utf8(command(&[]).output().unwrap().stdout).unwrap();
    let mut described = "";
    let lines: Vec<&str> = text.lines().collect();
    let (end, lines) = lines.split_last().unwrap();
    assert_eq!(*end, "# EOF");
    for line in lines {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, _] => described = name,
            ["#", "TYPE", name, kind] => {
                assert_eq!(name, described);
                assert!(["counter", "gauge"].contains(&kind), "{line}");
            }
            _ => {
                let (name, rest) = line.split_once('{').expect(line);
                assert_eq!(name.trim_end_matches("_total"), described, "{line}");
                let (_, value) = rest.rsplit_once("} ").expect(line);
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }
}
