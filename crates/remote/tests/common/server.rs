//! Real servers on loopback. Not every test uses all of them.
#![allow(dead_code)]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server, which ends with this value.
pub struct Server {
    pub port: u16,
    command: Command,
    child: Child,
}

/// Returns distinct ports that nobody listens on.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn free_port() -> u16 {
    let [port] = free_ports();
    port
}

/// Sets S3 credentials for a server that checks none.
///
/// # Safety
/// No other thread reads or writes the environment at the same time.
pub unsafe fn set_credentials() {
    // SAFETY: the caller's contract.
    unsafe {
        set_key(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        );
    }
}

/// Sets the S3 access key that clients read from the environment.
///
/// # Safety
/// No other thread reads or writes the environment at the same time.
pub unsafe fn set_key(id: &str, secret: &str) {
    // SAFETY: the caller's contract.
    unsafe {
        std::env::set_var("AWS_ACCESS_KEY_ID", id);
        std::env::set_var("AWS_SECRET_ACCESS_KEY", secret);
    }
}

impl Server {
    /// Starts Redis, which keeps its data in `directory` across a restart. If there is none, prints that and returns
    /// `None`.
    pub fn redis(directory: &Path) -> Option<Self> {
        Self::redis_with(free_port(), directory, &[])
    }

    /// Starts Redis as a node of a cluster, and returns the port of its bus. The node has no slots, and knows no
    /// other node.
    pub fn redis_node(directory: &Path) -> Option<(Self, u16)> {
        let [port, bus] = free_ports();
        // No node is declared failed while a test has it stopped for a moment.
        let options = [
            "--cluster-enabled yes",
            "--cluster-node-timeout 10000",
            "--cluster-announce-ip 127.0.0.1",
            &format!("--cluster-port {bus}"),
        ];
        let node = Self::redis_with(port, directory, &options)?;
        Some((node, bus))
    }

    fn redis_with(port: u16, directory: &Path, options: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
        command
            .args(["--port", &port.to_string()])
            .arg("--dir")
            .arg(directory)
            .args(options.iter().flat_map(|option| option.split(' ')));
        Self::start(port, command, "redis-server (apt-get install redis-server)")
    }

    /// Starts moto's S3. If there is none, prints that and returns `None`.
    pub fn s3() -> Option<Self> {
        let port = free_port();
        let program = std::env::var("MOTO_SERVER").unwrap_or_else(|_| "moto_server".into());
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        Self::start(port, command, "moto_server (pip install 'moto[server]')")
    }

    /// Makes moto's bucket `pond`, before signatures are required.
    pub fn make_bucket(&self) {
        self.request("PUT /pond", "", "");
    }

    /// Makes an unsigned HTTP request, and returns the answer, which must report success. `headers` are lines that
    /// end with `\r\n`.
    pub fn request(&self, verb_and_path: &str, headers: &str, body: impl AsRef<[u8]>) -> String {
        let body = body.as_ref();
        let (port, len) = (self.port, body.len());
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let always =
            format!("Host: 127.0.0.1:{port}\r\nContent-Length: {len}\r\nConnection: close\r\n");
        write!(stream, "{verb_and_path} HTTP/1.1\r\n{always}{headers}\r\n").unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "{verb_and_path}: {answer}"
        );
        answer
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

    /// Stops the server in place.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets the server continue.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may already have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
