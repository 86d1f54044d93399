//! Taking over the terminal, and restoring it.
//!
//! Three things are changed: the terminal's mode (no echo, no line buffering, no signals for keys), the cursor, and
//! which of its two screens is visible; the other screen keeps the shell's contents. All three are restored, whichever
//! way the program ends:
//!
//! | way | restored by |
//! | --- | --- |
//! | a key, a signal that ends programs, an error | the drop of [`Screen`], on the normal exit path |
//! | a panic | a hook that runs before the message is printed, which would otherwise be on the screen that goes away |
//! | ^Z, a signal that stops programs | [`Screen::give_back`] before the stop, [`Screen::take`] after it |
//! | an unpreventable stop (`kill -STOP`) | the shell; [`Screen::take`] when it is continued |
//!
//! A failure to restore something is not reported: there is no terminal left to report it on.

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use std::io::{self, BufWriter, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Whether the terminal is changed, or about to be.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal. It is restored when the value is dropped.
pub struct Screen {
    /// The terminal is not dropped: a drop would write the rest of a picture, and the cursor, to a terminal that is no
    /// longer ours. If the terminal is gone, the drop would report that, and panic because the report fails.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    /// Takes over the terminal on standard input and output.
    ///
    /// # Errors
    /// When the terminal cannot be written to, or its mode cannot be set.
    pub fn open() -> io::Result<Self> {
        HOOK.call_once(|| {
            let earlier = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                put_back();
                earlier(info);
            }));
        });
        let backend = CrosstermBackend::new(BufWriter::new(stdout()));
        let mut screen = Self {
            terminal: ManuallyDrop::new(Terminal::new(backend)?),
        };
        screen.take()?;
        Ok(screen)
    }

    /// Takes over the terminal, whatever other programs have done to it in the meantime; the next drawing redraws all
    /// of it.
    ///
    /// # Errors
    /// When the terminal cannot be written to, or its mode cannot be set.
    pub fn take(&mut self) -> io::Result<()> {
        put_back();
        TAKEN.store(true, Relaxed);
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        self.forget()
    }

    /// Makes the next drawing redraw everything, in the terminal's present size.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Restores the terminal for a while.
    pub fn give_back(&mut self) {
        put_back();
    }

    /// Shows the picture that `draw` draws.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put_back();
    }
}

/// Restores the terminal. Does nothing if it is already restored.
fn put_back() {
    if TAKEN.swap(false, Relaxed) {
        // Both calls are made, whatever the result of the other.
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env::{current_exe, var_os};
    use std::process::{Command, Stdio};

    const ON_A_TERMINAL: &str = "MILLPOND_TEST_ON_A_TERMINAL";

    /// The test below runs this test on a terminal of its own.
    #[test]
    fn child_that_panics_with_the_terminal_open() {
        if var_os(ON_A_TERMINAL).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("in the middle of it");
        }
    }

    #[test]
    fn panic_restores_the_terminal_and_its_message_is_visible() {
        let test = "top::screen::tests::child_that_panics_with_the_terminal_open";
        let program = current_exe().unwrap();
        let command = format!(
            "stty -g; '{}' --exact {test} --nocapture; stty -g",
            program.display()
        );
        let ran = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env(ON_A_TERMINAL, "1")
            .stdin(Stdio::null())
            .output();
        let Ok(output) = ran else {
            println!("skipped: there is no `script`, which makes a terminal");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let entered = text.find("\x1b[?1049h").unwrap_or_else(|| panic!("{text}"));
        let left = text
            .rfind("\x1b[?1049l")
            .unwrap_or_else(|| panic!("{text}"));
        let said = text
            .find("in the middle of it")
            .unwrap_or_else(|| panic!("{text}"));
        assert!(entered < left && left < said, "{text:?}");
        assert!(text[..left].ends_with("\x1b[?25h"), "the cursor: {text:?}");
        let modes: Vec<&str> = text.lines().filter(|line| line.contains(":bf:")).collect();
        assert!(
            matches!(modes[..], [before, after] if before == after),
            "{text:?}"
        );
    }
}
