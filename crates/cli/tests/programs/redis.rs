//! A test with redis-server: it forks for a snapshot while writes go on, then loads everything again from that
//! snapshot.

use crate::harness::{MIB, check_budget, quarter, read_report, rss, under};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u32 = 60_000;

/// The server, killed when the test ends, whatever the reason. Under `millpond run` the process that was started is the
/// supervisor, which takes the server with it.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, words: &[&[u8]]) {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).into_bytes());
            request.extend_from_slice(word);
            request.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&request).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        let Some(length) = line.strip_prefix('$') else {
            return line;
        };
        let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8_lossy(&body).trim_end().to_owned()
    }

    fn ask(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&words);
        self.answer()
    }

    fn info(&mut self, key: &str) -> String {
        let text = self.ask(&["INFO"]);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {key}")).trim().to_owned()
    }

    /// Sets keys `from..to` to `version`, 500 requests at a time.
    fn fill(&mut self, from: u32, to: u32, version: u32) {
        for first in (from..to).step_by(500) {
            let keys = first..to.min(first + 500);
            for key in keys.clone() {
                let value = format!("{key}:{version}:").repeat(2000 / 12);
                self.send(&[b"SET", format!("key:{key}").as_bytes(), value.as_bytes()]);
            }
            for _ in keys {
                assert_eq!(self.answer(), "+OK");
            }
        }
    }
}

fn start(mut make: impl FnMut(&[&str]) -> Command, directory: &Path) -> (Server, Client) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (text, place) = (port.to_string(), directory.to_str().unwrap());
    let command = [
        "/usr/bin/redis-server",
        "--port",
        &text,
        "--bind",
        "127.0.0.1",
        "--dir",
        place,
        "--save",
        "",
        "--enable-debug-command",
        "yes",
        "--dbfilename",
        "dump.rdb",
    ];
    let child = make(&command).stdout(Stdio::null()).spawn().unwrap();
    let mut server = Server { child, port };
    let until = Instant::now() + PATIENCE;
    loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", server.port)) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut client = Client(BufReader::new(stream));
            if client.ask(&["PING"]) == "+PONG" {
                return (server, client);
            }
        }
        assert!(Instant::now() < until, "redis-server does not answer");
        assert!(
            server.child.try_wait().unwrap().is_none(),
            "redis-server ended"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fills the server, saves in a child while half is rewritten, and returns the digests: before the save, after the
/// writes, and of the snapshot when it was loaded again. Also returns the server's peak by its own account.
fn session(client: &mut Client) -> ([String; 3], u64) {
    client.fill(0, KEYS, 1);
    let at_save = client.ask(&["DEBUG", "DIGEST"]);
    assert_eq!(client.ask(&["BGSAVE"]), "+Background saving started");
    client.fill(0, KEYS / 2, 2);
    let until = Instant::now() + PATIENCE;
    while client.info("rdb_bgsave_in_progress") != "0" {
        assert!(Instant::now() < until, "the background save does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    let written = client.ask(&["DEBUG", "DIGEST"]);
    assert_ne!(at_save, written);
    assert_eq!(client.ask(&["DEBUG", "RELOAD", "NOSAVE"]), "+OK");
    let loaded = client.ask(&["DEBUG", "DIGEST"]);
    assert_eq!(
        at_save, loaded,
        "the snapshot is not what was there at the fork"
    );
    let pid: u32 = client.info("process_id").parse().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    ([at_save, written, loaded], kilobytes * 1024)
}

pub fn saves_and_loads() {
    let directory = TempDir::new().unwrap();
    let begun = Instant::now();
    let (server, mut client) = start(
        |words| {
            let mut plain = Command::new(words[0]);
            plain.args(&words[1..]);
            plain
        },
        directory.path(),
    );
    let (free, peak) = session(&mut client);
    let free_time = begun.elapsed();
    drop(server);
    let _ = fs::remove_file(directory.path().join("dump.rdb"));

    let ram = quarter(peak);
    let report = directory.path().join("json");
    let begun = Instant::now();
    let (mut server, mut client) = start(|words| under(ram, &[], &report, words), directory.path());
    let pid: u32 = client.info("process_id").parse().unwrap();
    let (tight, _) = session(&mut client);
    let sampled = rss(pid).unwrap();
    assert_eq!(free, tight);
    let time = begun.elapsed();
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert!(server.child.wait().unwrap().success());
    let report = read_report(&report);
    println!(
        "redis-server: {:.1} s and {} MiB without a budget, {:.1} s and {} MiB with {} MiB; {} major faults",
        free_time.as_secs_f64(),
        peak / MIB,
        time.as_secs_f64(),
        report["peak_resident_bytes"].as_u64().unwrap() / MIB,
        ram / MIB,
        report["major_faults"],
    );
    check_budget("redis-server", ram, &report, sampled);
}
