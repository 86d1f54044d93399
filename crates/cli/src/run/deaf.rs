//! Programs that do not take the signal by which they were asked to end.
//!
//! An operator stops a service by sending TERM, and a user who has had enough presses ^C. The supervisor forwards both
//! signals, and waits. A program that hangs with its signals blocked never takes them: the person who sent the signal
//! waits as well, without any feedback.
//!
//! What a program does with a signal is its own affair. A program that catches TERM may need minutes to write out its
//! data; one that ignores TERM has its reasons. Neither is hurried, because without a supervisor in between no one
//! would hurry them. But both have *taken* the signal: the kernel delivered it to them. A program that blocks signals
//! for a moment takes them when the moment is over, and one that fetches them (`sigwait`, `signalfd`) is waiting for
//! them. If a signal is still pending after ten seconds, nothing in the program will take it. Then SIGKILL ends the
//! program, as `timeout -k`, systemd and `docker stop` do, and a line says so; another line announces it beforehand. A
//! user who sends a second signal while the first is still pending means it: the limit is then one second.
//!
//! Time in which the program cannot take anything does not count: while it is stopped (^Z, a debugger), while it writes
//! a core, and while this process is itself stopped. That is why looks are counted and no clock is read.

use crate::run::status;

/// Signals by which a program is asked to end.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Looks in a second.
const SECOND: u32 = 10;
/// Looks after which a line announces what is going to happen.
const SAY_AFTER: u32 = 2 * SECOND;
/// Looks after which the program is ended.
const END_AFTER: u32 = 10 * SECOND;
/// Looks after which the program is ended if it was asked twice.
const END_AFTER_TWO: u32 = SECOND;
/// Looks before which a second signal counts as the same request, sent in two ways: `timeout` sends to its child and
/// then to its group.
const SECOND_REQUEST_AFTER: u32 = 2;

/// The next thing to do about the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Say that the program does not take this signal, and what will happen.
    Say(i32),
    /// End the program, which did not take this signal.
    End(i32),
}

/// The state of the program, according to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Signals sent to the process that no thread has taken, a bit each; the lowest bit is signal 1.
    pending: u64,
    /// The program cannot take any signal now.
    is_held: bool,
}

/// A request to end that the program has not taken yet.
struct Request {
    signal: i32,
    looks: u32,
    is_repeated: bool,
    is_said: bool,
}

/// Tracks whether the program takes the signals that it is sent.
#[derive(Default)]
pub struct Deafness {
    request: Option<Request>,
}

impl Deafness {
    /// Records that `signal` was sent to the program, by the supervisor or as a member of the terminal's foreground
    /// group.
    pub fn sent(&mut self, signal: i32) {
        if !ENDING.contains(&signal) {
            return;
        }
        match &mut self.request {
            Some(request) => request.is_repeated |= request.looks >= SECOND_REQUEST_AFTER,
            None => {
                self.request = Some(Request {
                    signal,
                    looks: 0,
                    is_repeated: false,
                    is_said: false,
                });
            }
        }
    }

    /// Whether a request is pending, so that looks are needed.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.request.is_some()
    }

    /// Takes one look and returns the step that follows from it; there are [`SECOND`] looks each second while
    /// [`is_asked`](Self::is_asked).
    pub fn look(&mut self, state: State) -> Option<Step> {
        let request = self.request.as_mut()?;
        if ENDING
            .iter()
            .all(|&signal| state.pending & bit(signal) == 0)
        {
            self.request = None;
            return None;
        }
        if state.is_held {
            return None;
        }
        request.looks += 1;
        let end_after = match request.is_repeated {
            true => END_AFTER_TWO,
            false => END_AFTER,
        };
        let signal = request.signal;
        if request.looks >= end_after {
            self.request = None;
            return Some(Step::End(signal));
        }
        if request.looks >= SAY_AFTER && !request.is_said {
            request.is_said = true;
            return Some(Step::Say(signal));
        }
        None
    }
}

impl Step {
    /// The line for the user about process `pid`, whose program is called `name`.
    #[must_use]
    pub fn line(self, name: &str, pid: i32) -> String {
        match self {
            Self::Say(signal) => format!(
                "millpond: {name} (process {pid}) has not taken {}: it hangs, or blocks the signal; SIGKILL ends it \
                 in {} s, and at once when it is asked again",
                self::name(signal),
                (END_AFTER - SAY_AFTER) / SECOND,
            ),
            Self::End(signal) => format!(
                "millpond: {name} (process {pid}) did not take {}; ended by SIGKILL",
                self::name(signal),
            ),
        }
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        _ => "SIGTERM",
    }
}

/// The state of process `pid`, according to the kernel; nothing is pending if the kernel says nothing.
#[must_use]
pub fn state_of(pid: i32) -> State {
    parse(&status::of(pid))
}

fn parse(status: &str) -> State {
    let field = |name| status::field(status, name);
    let pending = field("ShdPnd").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    let is_stopped = field("State").is_some_and(|state| state.starts_with(['T', 't']));
    let writes_core = field("CoreDumping") == Some("1");
    State {
        pending: pending.unwrap_or(0),
        is_held: is_stopped || writes_core,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTAKEN: State = State {
        pending: 1 << (libc::SIGTERM - 1),
        is_held: false,
    };

    /// The numbers of the looks, from 1 on, after which there was a step to take, with the steps.
    fn steps(deafness: &mut Deafness, looks: u32, state: State) -> Vec<(u32, Step)> {
        let step = |n| deafness.look(state).map(|step| (n, step));
        (1..=looks).filter_map(step).collect()
    }

    #[test]
    fn untaken_signal_is_reported_after_2_s_and_kills_after_10_s() {
        let mut deafness = Deafness::default();
        assert_eq!(steps(&mut deafness, 200, UNTAKEN), [], "nobody asked");
        deafness.sent(libc::SIGWINCH);
        assert!(!deafness.is_asked());
        deafness.sent(libc::SIGTERM);
        assert_eq!(
            steps(&mut deafness, 200, UNTAKEN),
            [
                (20, Step::Say(libc::SIGTERM)),
                (100, Step::End(libc::SIGTERM))
            ]
        );
    }

    #[test]
    fn a_signal_that_was_taken_clears_the_request() {
        let mut deafness = Deafness::default();
        deafness.sent(libc::SIGTERM);
        assert_eq!(steps(&mut deafness, 90, UNTAKEN).len(), 1);
        assert_eq!(deafness.look(State::default()), None);
        assert!(!deafness.is_asked());
        deafness.sent(libc::SIGTERM);
        assert_eq!(steps(&mut deafness, 99, UNTAKEN).len(), 1, "counted anew");
    }

    #[test]
    fn second_request_kills_at_once_but_a_duplicate_does_not_count() {
        let mut deafness = Deafness::default();
        deafness.sent(libc::SIGINT);
        assert_eq!(deafness.look(UNTAKEN), None);
        deafness.sent(libc::SIGTERM);
        assert_eq!(
            steps(&mut deafness, 30, UNTAKEN),
            [(19, Step::Say(libc::SIGINT))]
        );
        deafness.sent(libc::SIGINT);
        assert_eq!(
            steps(&mut deafness, 5, UNTAKEN),
            [(1, Step::End(libc::SIGINT))]
        );

        deafness.sent(libc::SIGTERM);
        assert_eq!(steps(&mut deafness, 2, UNTAKEN), []);
        deafness.sent(libc::SIGTERM);
        assert_eq!(
            steps(&mut deafness, 20, UNTAKEN),
            [(8, Step::End(libc::SIGTERM))]
        );
    }

    #[test]
    fn time_does_not_count_while_the_program_is_stopped() {
        let mut deafness = Deafness::default();
        deafness.sent(libc::SIGTERM);
        let held = State {
            is_held: true,
            ..UNTAKEN
        };
        assert_eq!(steps(&mut deafness, 500, held), []);
        assert_eq!(steps(&mut deafness, 19, UNTAKEN), []);
    }

    #[test]
    fn proc_status_lines_are_parsed() {
        let text = "Name:\tx\nState:\tS (sleeping)\nCoreDumping:\t0\nSigPnd:\t0000000000000000\n\
                    ShdPnd:\t0000000000004000\nSigBlk:\t0000000000004002\n";
        assert_eq!(parse(text), UNTAKEN);
        let stopped = text.replace("S (sleeping)", "T (stopped)");
        assert!(parse(&stopped).is_held);
        let dumping = text.replace("CoreDumping:\t0", "CoreDumping:\t1");
        assert!(parse(&dumping).is_held);
        assert_eq!(parse(""), State::default());
        let own = state_of(std::process::id() as i32);
        assert!(!own.is_held, "{own:?}");
    }

    #[test]
    fn messages_name_program_signal_and_time_limit() {
        let said = Step::Say(libc::SIGTERM).line("job", 7);
        assert!(
            said.contains("job (process 7) has not taken SIGTERM") && said.contains("in 8 s"),
            "{said}"
        );
        let ended = Step::End(libc::SIGINT).line("job", 7);
        assert!(
            ended.ends_with("did not take SIGINT; ended by SIGKILL"),
            "{ended}"
        );
    }
}
