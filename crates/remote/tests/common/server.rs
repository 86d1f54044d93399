//! Real servers on loopback. Not every test uses all of them.
#![allow(dead_code)]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server, which ends with the value.
pub struct Server {
    pub port: u16,
    command: Command,
    child: Child,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Sets the credentials of S3 that clients read from the environment.
///
/// # Safety
/// No other thread reads or writes the environment meanwhile.
pub unsafe fn set_credentials() {
    // SAFETY: the caller's contract.
    unsafe {
        std::env::set_var("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE");
        std::env::set_var(
            "AWS_SECRET_ACCESS_KEY",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        );
    }
}

impl Server {
    /// Redis, which keeps what it has in `directory` over a restart. `None`, with a line, where there is none.
    pub fn redis(directory: &Path) -> Option<Self> {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
        command
            .args(["--port", &port.to_string()])
            .arg("--dir")
            .arg(directory);
        Self::start(port, command, "redis-server (apt-get install redis-server)")
    }

    /// moto's S3. `None`, with a line, where there is none.
    pub fn s3() -> Option<Self> {
        let port = free_port();
        let program = std::env::var("MOTO_SERVER").unwrap_or_else(|_| "moto_server".into());
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        Self::start(port, command, "moto_server (pip install 'moto[server]')")
    }

    /// Makes moto's bucket `pond`, before signatures are asked for.
    pub fn make_bucket(&self) {
        let port = self.port;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        write!(stream, "PUT /pond HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn start(port: u16, mut command: Command, what: &str) -> Option<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            eprintln!("skipped: there is no {what}");
            return None;
        };
        let server = Self {
            port,
            command,
            child,
        };
        server.wait();
        Some(server)
    }

    fn wait(&self) {
        super::wait_until("the server accepts connections", || {
            TcpStream::connect_timeout(
                &(Ipv4Addr::LOCALHOST, self.port).into(),
                Duration::from_secs(1),
            )
            .is_ok()
        });
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Ends the server as its operator would, and starts it again.
    pub fn restart(&mut self, pause: Duration) {
        self.signal(Signal::TERM);
        self.child.wait().unwrap();
        std::thread::sleep(pause);
        self.child = self.command.spawn().unwrap();
        self.wait();
    }

    /// Stops the server where it is.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
