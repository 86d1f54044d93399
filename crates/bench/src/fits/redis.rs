//! `redis_set` and `redis_get`: a redis-server, and redis-benchmark with 50 clients, which runs without Millpond.

use crate::error::Failure;
use crate::fits::job::{Outcome, Place, Started, free_port, wait_for};
use crate::programs_here;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The server's name.
pub const SERVER: &str = "redis-server";
/// The client's name.
pub const CLIENT: &str = "redis-benchmark";
const REQUESTS: u32 = 200_000;
/// The number of different keys.
const KEYS: u32 = 100_000;

/// Times SET.
///
/// # Errors
/// When the server or the client cannot be started, or fails.
pub fn set(place: &Place<'_>) -> Result<Outcome, Failure> {
    let server = Server::start(place)?;
    let seconds = server.benchmark("set", place.sizes().times(REQUESTS))?;
    server.end(place, seconds)
}

/// Times GET, after values were set.
///
/// # Errors
/// When the server or the client cannot be started, or fails.
pub fn get(place: &Place<'_>) -> Result<Outcome, Failure> {
    let server = Server::start(place)?;
    let requests = place.sizes().times(REQUESTS);
    server.benchmark("set", requests)?;
    let seconds = server.benchmark("get", requests)?;
    server.end(place, seconds)
}

struct Server {
    started: Started,
    port: u16,
}

impl Server {
    fn start(place: &Place<'_>) -> Result<Self, Failure> {
        let port = free_port()?;
        let number = port.to_string();
        let arguments = [
            "--bind",
            "127.0.0.1",
            "--port",
            &number,
            "--save",
            "",
            "--appendonly",
            "no",
        ];
        let arguments = arguments.map(OsStr::new);
        let mut started = place.start(&programs_here::find(SERVER)?, &arguments)?;
        wait_for(&mut started, SERVER, port)?;
        Ok(Self { started, port })
    }

    /// Runs the client, and returns its time in seconds.
    fn benchmark(&self, test: &str, requests: u32) -> Result<f64, Failure> {
        let mut client = Command::new(programs_here::find(CLIENT)?);
        client
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-t",
                test,
                "-c",
                "50",
            ])
            .args([
                "-n",
                &requests.to_string(),
                "-r",
                &KEYS.to_string(),
                "-d",
                "100",
                "-q",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let clock = Instant::now();
        let status = client
            .status()
            .map_err(|error| format!("cannot start {CLIENT}: {error}"))?;
        let seconds = clock.elapsed().as_secs_f64();
        match status.success() {
            true => Ok(seconds),
            false => Err(format!("{CLIENT}: {status}").into()),
        }
    }

    /// The number of keys that the server has.
    fn keys(&self) -> Result<u64, Failure> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.write_all(b"DBSIZE\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let keys = line
            .trim_end()
            .strip_prefix(':')
            .and_then(|keys| keys.parse().ok());
        keys.ok_or_else(|| {
            format!(
                "{SERVER} says `{}` for the number of its keys",
                line.trim_end()
            )
            .into()
        })
    }

    fn end(self, place: &Place<'_>, seconds: f64) -> Result<Outcome, Failure> {
        let keys = self.keys()?;
        let wrong = u64::from(keys == 0 || keys > KEYS.into());
        let ended = self.started.end()?;
        place.outcome(seconds, &ended, wrong)
    }
}
