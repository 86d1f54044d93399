//! A proxy between a client and a real server, which disturbs the traffic. Not every test uses all of it.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to the traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// New connections are closed, and so are existing ones when they are used.
    Refuse,
    /// An answer of more than a thousand bytes ends in the middle.
    Truncate,
    /// One bit in the middle of an answer of more than a thousand bytes is flipped.
    Flip,
    /// Answers are held back until this is over.
    Stall,
    /// HTTP requests get this answer, and never reach the server.
    Answer(&'static str),
    /// The server does not see this request header, as if it did not support it. The name is in lower case.
    Hide(&'static str),
}

struct State {
    disturbance: Disturbance,
    /// How many more times it happens.
    times: u32,
    happened: u32,
}

/// The proxy. Its threads end with the process.
pub struct Proxy {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    /// Listens on its own port, in front of the server at `port`.
    pub fn before(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let state = State {
            disturbance: Disturbance::None,
            times: 0,
            happened: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::clone(&state),
        };
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                std::thread::spawn(move || connection(client, server, &state));
            }
        });
        proxy
    }

    /// Sets the disturbance, which happens this many times from now on.
    pub fn disturb(&self, disturbance: Disturbance, times: u32) {
        let mut state = self.state.lock().unwrap();
        *state = State {
            disturbance,
            times,
            happened: 0,
        };
    }

    /// Returns how many times it has happened since.
    pub fn happened(&self) -> u32 {
        self.state.lock().unwrap().happened
    }
}

/// Returns the disturbance that is due, if it is one of those that `wanted` accepts.
fn due(state: &Mutex<State>, wanted: impl Fn(Disturbance) -> bool) -> Option<Disturbance> {
    let mut state = state.lock().unwrap();
    if state.times == 0 || !wanted(state.disturbance) {
        return None;
    }
    state.times -= 1;
    state.happened += 1;
    Some(state.disturbance)
}

fn connection(client: TcpStream, server: SocketAddr, state: &Arc<Mutex<State>>) {
    if due(state, |disturbance| disturbance == Disturbance::Refuse).is_some() {
        return;
    }
    let Ok(server) = TcpStream::connect(server) else {
        return;
    };
    let (to_server, from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let of_requests = Arc::clone(state);
    std::thread::spawn(move || requests(from_client, to_server, &of_requests));
    answers(server, client, state);
}

fn end(one: &TcpStream, other: &TcpStream) {
    // A connection that is already closed cannot be closed again.
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}

fn requests(mut client: TcpStream, mut server: TcpStream, state: &Mutex<State>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = client.read(&mut buffer) {
        let begins = [&b"PUT "[..], b"GET ", b"DELETE ", b"HEAD "]
            .iter()
            .any(|verb| buffer.starts_with(verb));
        let header = |name: &str| {
            let text = buffer[..len].to_ascii_lowercase();
            let line = format!("\r\n{name}:");
            let mut places = text.windows(line.len());
            places.position(|place| place == line.as_bytes())
        };
        let is_due = |disturbance| match disturbance {
            Disturbance::Answer(_) => begins,
            Disturbance::Hide(name) => header(name).is_some(),
            Disturbance::Refuse => true,
            _ => false,
        };
        match due(state, is_due) {
            Some(Disturbance::Answer(status)) => {
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = client.write_all(answer.as_bytes());
                break;
            }
            Some(Disturbance::Hide(name)) => {
                let at = header(name).unwrap() + 2;
                buffer[at..at + 2].copy_from_slice(b"x-");
                if server.write_all(&buffer[..len]).is_err() {
                    break;
                }
            }
            Some(_) => break,
            None if server.write_all(&buffer[..len]).is_err() => break,
            None => {}
        }
    }
    end(&client, &server);
}

fn answers(mut server: TcpStream, mut client: TcpStream, state: &Mutex<State>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = server.read(&mut buffer) {
        let mut len = len;
        let is_due = |disturbance| match disturbance {
            Disturbance::Truncate | Disturbance::Flip => len > 1000,
            Disturbance::Stall => true,
            _ => false,
        };
        let happens = due(state, is_due);
        match happens {
            Some(Disturbance::Truncate) => len /= 2,
            Some(Disturbance::Flip) => buffer[len / 2] ^= 16,
            Some(Disturbance::Stall) => {
                while state.lock().unwrap().disturbance == Disturbance::Stall {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            _ => {}
        }
        if client.write_all(&buffer[..len]).is_err() || happens == Some(Disturbance::Truncate) {
            break;
        }
    }
    end(&client, &server);
}
