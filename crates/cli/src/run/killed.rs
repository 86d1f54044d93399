//! Processes that a signal ended. They could not report that, and the program that started them may not either: a pool
//! whose worker was killed for lack of memory waits for it forever.

use millpond_board::{SlotReading, State};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// A process that a signal ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Killed {
    /// The process's number.
    pub pid: u32,
    /// The program's name.
    pub name: String,
}

/// The processes that are recorded as running but are gone, except for the `first` one, whose status is known.
pub fn among(slots: &[SlotReading], first: u32) -> Vec<Killed> {
    let gone = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
    let killed = slots
        .iter()
        .filter(|slot| slot.state == State::Running && slot.pid != first && gone(slot.pid));
    killed
        .map(|slot| Killed {
            pid: slot.pid,
            name: slot.name.clone(),
        })
        .collect()
}

/// A report's text about them, or nothing.
pub struct Told<'a>(pub &'a [Killed], pub u64);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(killed, for_memory) = self;
        if let [first, others @ ..] = killed {
            write!(f, "{} (process {}) by a signal", first.name, first.pid)?;
            if !others.is_empty() {
                write!(f, ", and {} more", others.len())?;
            }
        }
        if *for_memory > 0 {
            let before = if killed.is_empty() { "" } else { "; " };
            write!(
                f,
                "{before}{for_memory} by the kernel, as the control group was out of memory: give each process less \
                 (--ram), or the group more"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_board::{Board, Fields};

    #[test]
    fn processes_ended_by_a_signal_are_distinguished() {
        let (board, _file) = Board::create("work").unwrap();
        let ended = || {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            child.wait().unwrap();
            child.id()
        };
        let (gone, exited, own) = (ended(), ended(), std::process::id());
        for (pid, state) in [
            (gone, State::Running),
            (own, State::Running),
            (exited, State::Exited),
        ] {
            let slot = board.claim(pid, "worker").unwrap();
            assert!(slot.publish(state, &Fields::default()));
        }
        let slots: Vec<_> = board.slots().collect();
        let killed = among(&slots, own);
        assert_eq!(killed.len(), 1);
        let told = Told(&killed, 0).to_string();
        assert_eq!(told, format!("worker (process {gone}) by a signal"));
        assert!(among(&slots, gone).is_empty());
        let told = Told(&[], 2).to_string();
        assert!(
            told.starts_with("2 by the kernel, as the control group"),
            "{told}"
        );
    }
}
