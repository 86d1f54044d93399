//! The services: each runs on loopback, begins empty, and is ended with the benchmark.

use crate::error::{BenchError, Skip};
use crate::programs_here;
use crate::remote::Part;
use crate::worker::tie;
use rustix::process::Signal;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The maximum time until a service listens: moto is a large Python program.
const PATIENCE: Duration = Duration::from_secs(60);
/// The bucket that is created in an S3 server.
const BUCKET: &str = "pond";
/// Credentials of S3; moto accepts any.
const CREDENTIALS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "bench"),
    ("AWS_SECRET_ACCESS_KEY", "bench"),
];

/// A running service. It is killed when the value is dropped, and by the kernel when the benchmark is killed.
pub struct Server {
    child: Child,
    part: Part,
    port: u16,
    url: String,
    /// Its directory.
    _directory: TempDir,
}

impl Server {
    /// Starts a service, and waits until it listens.
    ///
    /// # Errors
    /// When the service does not listen, or its program is not on this machine, which is a skip.
    pub fn start(part: Part) -> Result<Self, BenchError> {
        let program = program(part)?;
        let directory = tempfile::tempdir().map_err(BenchError::Start)?;
        let port = free_port().map_err(BenchError::Start)?;
        let mut command = Command::new(program);
        match part {
            Part::Redis => command
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .args(["--port", &port.to_string()]),
            Part::S3 => command.args(["-H", "127.0.0.1", "-p", &port.to_string()]),
        };
        command.current_dir(directory.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        tie(&mut command, Signal::KILL);
        let child = command.spawn().map_err(BenchError::Start)?;
        let url = match part {
            Part::Redis => format!("redis://127.0.0.1:{port}/0"),
            Part::S3 => {
                format!("s3://{BUCKET}/bench?endpoint=http://127.0.0.1:{port}&region=us-east-1")
            }
        };
        let mut server = Self {
            child,
            part,
            port,
            url,
            _directory: directory,
        };
        server.wait().map_err(BenchError::Start)?;
        if part == Part::S3 {
            server.make_bucket().map_err(BenchError::Start)?;
        }
        Ok(server)
    }

    /// The service's URL for Millpond.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The service's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A command that runs this executable with the service's credentials.
    pub fn worker(&self) -> Command {
        let mut worker = Command::new("/proc/self/exe");
        match self.part {
            Part::Redis => worker.env_remove("REDISCLI_AUTH"),
            Part::S3 => worker.envs(CREDENTIALS).env_remove("AWS_SESSION_TOKEN"),
        };
        worker
    }

    fn wait(&mut self) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                let part = self.part;
                return Err(io::Error::other(format!("the {part:?} service: {status}")));
            }
            if Instant::now() > until {
                let why = format!("the {:?} service does not listen", self.part);
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Creates the bucket, with a request that needs no signature.
    fn make_bucket(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let host = format!("127.0.0.1:{}", self.port);
        let headers = "Content-Length: 0\r\nConnection: close";
        write!(
            stream,
            "PUT /{BUCKET} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.starts_with("HTTP/1.1 200") {
            true => Ok(()),
            false => Err(io::Error::other(format!("moto makes no bucket: {answer}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The service may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(part: Part) -> Result<PathBuf, Skip> {
    match part {
        Part::Redis => programs_here::find("redis-server"),
        Part::S3 => match std::env::var_os("MOTO_SERVER") {
            Some(named) => Ok(named.into()),
            None => programs_here::find("moto_server").map_err(|Skip(why)| {
                Skip(format!(
                    "{why} by pip install 'moto[server]', or name it in MOTO_SERVER"
                ))
            }),
        },
    }
}

/// A port that is free now. If another program takes it first, the service ends with an error.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
