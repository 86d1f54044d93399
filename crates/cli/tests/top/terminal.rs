//! A terminal on which a program runs and at which a test looks: the text on the screen, and the state it was left in.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// The terminal, and the program on it.
pub struct Terminal {
    keyboard: File,
    /// The terminal's line, open as long as the test runs, so that its mode can be asked for when the program has
    /// ended.
    line: File,
    modes_before: String,
    screen: vt100::Parser,
    pub program: Child,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    /// Starts `command` as the leader of a session that has a terminal of 24 rows of 100 cells.
    pub fn run(mut command: Command) -> Self {
        let keyboard =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let line = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY)
            .open(path)
            .unwrap();
        tcsetwinsize(&line, size(24, 100)).unwrap();
        let modes_before = format!("{:?}", tcgetattr(&line).unwrap());
        let end = || line.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: all three calls are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for signal in [
                    libc::SIGINT,
                    libc::SIGQUIT,
                    libc::SIGHUP,
                    libc::SIGTERM,
                    libc::SIGTSTP,
                ] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let program = command.spawn().unwrap();
        drop(command);
        let keyboard = File::from(keyboard);
        Self {
            keyboard,
            line,
            modes_before,
            screen: vt100::Parser::new(24, 100, 0),
            program,
        }
    }

    /// Types `keys`.
    pub fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Makes the window another size.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.line, size(rows, columns)).unwrap();
    }

    /// Waits until the screen is as wanted, and returns its text.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) -> String {
        let patience = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen.screen();
            if is_so(screen) {
                return screen.contents();
            }
            assert!(Instant::now() < patience, "{what}: {}", screen.contents());
            self.read();
        }
    }

    /// Waits until all of `parts` are on the screen.
    pub fn until_read(&mut self, parts: &[&str]) -> String {
        let all = |screen: &vt100::Screen| {
            let text = screen.contents();
            parts.iter().all(|part| text.contains(part))
        };
        self.until(&format!("{parts:?}"), all)
    }

    /// Waits for the end of the program, which has to leave the terminal as it was. Returns the exit status and the
    /// text that is read there then.
    pub fn left(mut self) -> (Option<i32>, String) {
        let patience = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < patience,
                "{}",
                self.screen.screen().contents()
            );
            self.read();
        };
        while self.read() {}
        self.is_put_back();
        (status.code(), self.screen.screen().contents())
    }

    /// Checks that the terminal's mode, its screen and its cursor are what they were.
    pub fn is_put_back(&self) {
        let modes = format!("{:?}", tcgetattr(&self.line).unwrap());
        assert_eq!(modes, self.modes_before);
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
    }

    /// Takes in the bytes that the program has written, and returns whether there were any.
    fn read(&mut self) -> bool {
        let mut written = [PollFd::new(&self.keyboard, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        if poll(&mut written, Some(&patience)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let count = self.keyboard.read(&mut bytes).unwrap();
        self.screen.process(&bytes[..count]);
        true
    }

    /// Takes the terminal away, as when its window is closed, and returns the exit status.
    pub fn hang_up(mut self) -> Option<i32> {
        self.keyboard = File::open("/dev/null").unwrap();
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < patience, "it goes on without a terminal");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program was already waited for where all went well.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
