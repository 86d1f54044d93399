//! `http`: sequential requests to python's `http.server`, which starts a thread for each request.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::fits::job::{Outcome, Place};
use crate::programs_here;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

/// The program's name.
pub const PROGRAM: &str = "python3";
const REQUESTS: u32 = 2_000;
/// The sizes, in pages, of the two files that are requested alternately.
const SIZES: [usize; 2] = [1, 64];

/// Times the requests.
///
/// # Errors
/// When the server cannot be started, or fails.
pub fn work(place: &Place<'_>) -> Result<Outcome, Failure> {
    let bodies = bodies(place)?;
    // With port 0 the server chooses a port and prints it; with `-u` it prints at once.
    let arguments = ["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"].map(OsStr::new);
    let mut started = place.start(&programs_here::find(PROGRAM)?, &arguments)?;
    let mut line = String::new();
    BufReader::new(started.output()?).read_line(&mut line)?;
    let port =
        port(&line).ok_or_else(|| format!("{PROGRAM} says `{}` for its port", line.trim_end()))?;
    let (seconds, wrong) = ask(port, place.sizes().times(REQUESTS), &bodies)?;
    let ended = started.end()?;
    place.outcome(seconds, &ended, wrong)
}

/// Writes the files that are requested, called 0 and 1, and returns their contents.
///
/// # Errors
/// When a file cannot be written.
pub fn bodies(place: &Place<'_>) -> Result<[Vec<u8>; 2], Failure> {
    let bodies = SIZES.map(body);
    for (number, body) in bodies.iter().enumerate() {
        fs::write(place.directory().join(number.to_string()), body)?;
    }
    Ok(bodies)
}

/// Requests the files, one after the other. Returns the time in seconds, and how many answers were wrong.
///
/// # Errors
/// When the server does not answer.
pub fn ask(port: u16, requests: u32, bodies: &[Vec<u8>; 2]) -> Result<(f64, u64), Failure> {
    let mut wrong = 0;
    let clock = Instant::now();
    for request in 0..requests as usize {
        let which = request % bodies.len();
        wrong += u64::from(!answer(port, which)?.ends_with(&bodies[which]));
    }
    Ok((clock.elapsed().as_secs_f64(), wrong))
}

fn body(pages: usize) -> Vec<u8> {
    let mut body = vec![0; pages * PAGE];
    data::fill_all(&mut body);
    body
}

/// The number in `Serving HTTP on 127.0.0.1 port 8000 (…)`.
fn port(line: &str) -> Option<u16> {
    line.split_once(" port ")?.1.split(' ').next()?.parse().ok()
}

fn answer(port: u16, which: usize) -> Result<Vec<u8>, Failure> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.write_all(format!("GET /{which} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_servers_line() {
        let line = "Serving HTTP on 127.0.0.1 port 8123 (http://127.0.0.1:8123/) ...\n";
        assert_eq!(port(line), Some(8123));
        assert_eq!(port("Address already in use\n"), None);
    }

    #[test]
    fn bodies_differ_in_size() {
        assert_eq!(SIZES.map(|pages| body(pages).len()), [4096, 262_144]);
    }
}
