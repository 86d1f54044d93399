//! How a fault reaches the code that resolves it.
//!
//! | | [`InThread`](Delivery::InThread) | [`Handler`](Delivery::Handler) |
//! | --- | --- | --- |
//! | the thread that runs the sink | the faulting thread, in a SIGBUS handler | one thread of ours |
//! | a 4 KiB fault | about 4 µs | about 7 µs, when the thread sits on the faulter's processor |
//! | system calls on absent memory | fail with EFAULT | work |
//! | absent thread stacks, signal frames, futexes | kill or abort the program | work |
//!
//! Where userfaultfd is refused there is no handler delivery: the faulting thread gets SIGSEGV, and a 4 KiB fault
//! takes about 11 µs.
//!
//! In-thread delivery is for programs that are written for it, handler delivery for those that know nothing about
//! Millpond. [`Direct`](Delivery::Direct) is in-thread delivery for such programs: other code ensures that the kernel
//! touches no absent memory (`held.rs`), and a thread reads the events with which the kernel reports moves.

mod chain;
mod follow;
pub(crate) mod handler;
mod in_thread;
mod own_stack;
mod segv;

pub(crate) use follow::may_be_preferred;
pub(crate) use in_thread::handle_orphans;
pub use in_thread::{serve_sigbus, sigbus_is_served};
pub use segv::{serve_sigsegv, sigsegv_is_served};

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use millpond_core::PageIndex;

use crate::common::Common;
use crate::error::MmuError;
use crate::protection::Protection;
use handler::{Handler, Served};

/// Which thread runs the sink when an absent page is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The faulting thread itself runs it, inside a SIGBUS handler. The program must leave SIGBUS unblocked, and must
    /// not pass absent memory to system calls.
    InThread,
    /// Like [`InThread`](Self::InThread), for a program that knows nothing about Millpond. The process must be
    /// prepared: the library that `millpond run` preloads does that. No privilege is needed.
    Direct,
    /// One handler thread runs it for the whole arena. Managed memory behaves like memory everywhere.
    Handler,
}

impl Delivery {
    /// Whether the faulting thread serves its own fault, in a signal handler.
    #[must_use]
    pub fn is_by_signal(self) -> bool {
        matches!(self, Self::InThread | Self::Direct)
    }

    /// Whether the program knows nothing about Millpond: it pins nothing for the kernel, closes descriptors that it
    /// did not open, and may close any page.
    #[must_use]
    pub fn is_for_any_program(self) -> bool {
        matches!(self, Self::Direct | Self::Handler)
    }
}

/// Why a text is not a [`Delivery`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadDelivery(String);

impl fmt::Display for BadDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(
            f,
            "`{text}` is no delivery of faults; choose in-thread or handler"
        )
    }
}

impl std::error::Error for BadDelivery {}

/// Parses `in-thread` or `handler`. A program that knows about Millpond cannot choose [`Delivery::Direct`].
///
/// ```
/// use millpond_mmu::Delivery;
/// assert_eq!("handler".parse(), Ok(Delivery::Handler));
/// assert_eq!(Delivery::InThread.to_string().parse(), Ok(Delivery::InThread));
/// assert!("direct".parse::<Delivery>().is_err());
/// ```
impl FromStr for Delivery {
    type Err = BadDelivery;

    fn from_str(text: &str) -> Result<Self, BadDelivery> {
        match text {
            "in-thread" => Ok(Self::InThread),
            "handler" => Ok(Self::Handler),
            _ => Err(BadDelivery(text.to_owned())),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InThread => "in-thread",
            Self::Direct => "direct",
            Self::Handler => "handler",
        })
    }
}

/// The outcome of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// This call installed the page, and the install woke the threads that wait for it.
    Installed,
    /// The page may be there now, or trying again is right: the faulter must continue.
    Retry,
    /// Nothing of ours is mapped at the address, or was not a moment ago. Trying again is right; but a signal that
    /// recurs again and again belongs to another mapping.
    Foreign,
    /// Another thread will install the page, or wake its waiters, later. Only for handler delivery; in-thread
    /// delivery treats it as [`Retry`](Self::Retry).
    Asleep,
    /// The page's contents are lost, or the address is refused: the program must see an error (SIGBUS).
    Lost,
}

/// The threads that a handler serves, judging by the latest faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faulters {
    /// Several threads fault.
    Several,
    /// One thread faults, and may be on another processor at its next fault.
    One,
    /// One thread faults. It shares the handler's processor and will continue to. Work that the handler does there
    /// interrupts no other thread; the same work in another thread elsewhere would interrupt both.
    OneBeside,
}

/// A `FaultSink` resolves faults. With in-thread delivery several threads call it concurrently, with a handler only
/// one does.
///
/// The call may come from inside the program's allocator, with any lock of the program held, and in a signal handler.
/// It must not call the program's allocator, use thread-local storage, touch managed memory, panic, or take a lock
/// that anyone holds while touching managed memory.
pub trait FaultSink: Send + Sync {
    /// Called once in a new handler thread, before it reads its first fault.
    fn handler_started(&self) {}

    /// Tells which threads the handler serves from now on. The handler calls this after each fault; before the first
    /// fault it serves [several](Faulters::Several).
    fn handler_serves(&self, _whom: Faulters) {}

    /// Resolves a fault: a thread touched `page`, which is not mapped, or is write-protected while it is being taken
    /// out.
    fn fault(&self, page: PageIndex) -> Resolution;
}

/// What watches an arena, and so detects that a thread has touched an absent page.
pub(crate) enum Watch {
    /// A userfaultfd.
    Userfaultfd(Served),
    /// Page protections.
    Protections(Arc<Protection>),
}

/// A running delivery.
pub(crate) struct Attached {
    sink: Arc<dyn FaultSink>,
    by: By,
}

enum By {
    InThread(in_thread::Entry),
    /// The thread that reads events is missing at first, and in a new child, until [`Common::read_events`] creates it.
    Direct(in_thread::Entry, Option<Handler>),
    Handler(Handler),
}

/// In a new child, ends all delivery to its parent's sinks: the child's addresses may lie in an arena that it did not
/// inherit. If the child touches memory that it did not inherit, it prints a message and ends. A handler of
/// `pthread_atfork` may call this: it stores a few words and makes system calls. A caller that also serves the child
/// ([`RealMemory::after_fork_in_child`](crate::RealMemory::after_fork_in_child)) attaches again after this.
pub fn forget_deliveries_in_child() {
    in_thread::forget_all();
    crate::panics::forget_others_in_child();
    crate::held::forget_others_in_child();
    crate::orphans::begin_in_child();
}

impl Common {
    /// Implements [`RealMemory::attach`](crate::RealMemory::attach).
    pub(crate) fn attach(&self, watch: &Watch, sink: Arc<dyn FaultSink>) -> Result<(), MmuError> {
        self.attach_alone(watch, sink)?;
        self.read_events(watch).inspect_err(|_| self.detach())
    }

    /// Implements [`RealMemory::attach_alone`](crate::RealMemory::attach_alone).
    pub(crate) fn attach_alone(
        &self,
        watch: &Watch,
        sink: Arc<dyn FaultSink>,
    ) -> Result<(), MmuError> {
        let mut attached = self.attached.lock();
        if attached.is_some() {
            return Err(MmuError::AlreadyAttached);
        }
        let by = self.begin(watch, &sink)?;
        *attached = Some(Attached { sink, by });
        Ok(())
    }

    /// Implements [`RealMemory::detach`](crate::RealMemory::detach).
    pub(crate) fn detach(&self) {
        let attached = self.attached.lock().take();
        match attached.map(|attached| attached.by) {
            None => {}
            Some(By::InThread(entry)) => entry.remove(),
            Some(By::Direct(entry, reader)) => {
                entry.remove();
                // Nothing wakes the thread that waits for an address space's events, so it lives as long as the
                // process.
                if let Some(reader) = reader {
                    reader.forget();
                }
            }
            Some(By::Handler(handler)) => handler.stop(),
        }
    }

    /// Delivers the faults of a new child to the sink that was attached in its parent.
    pub(crate) fn attach_again_in_child(&self, watch: &Watch) -> Result<(), MmuError> {
        let mut attached = self.attached.lock();
        let Some(Attached { sink, by }) = attached.take() else {
            return Ok(());
        };
        match by {
            By::InThread(entry) => entry.forget(),
            By::Direct(entry, reader) => {
                entry.forget();
                if let Some(reader) = reader {
                    reader.forget();
                }
            }
            By::Handler(handler) => handler.forget(),
        }
        let by = self.begin(watch, &sink)?;
        *attached = Some(Attached { sink, by });
        Ok(())
    }

    /// Implements [`RealMemory::read_events`](crate::RealMemory::read_events).
    pub(crate) fn read_events(&self, watch: &Watch) -> Result<(), MmuError> {
        let sink = match &*self.attached.lock() {
            Some(Attached {
                sink,
                by: By::Direct(_, None),
            }) => Arc::clone(sink),
            _ => return Ok(()),
        };
        let Watch::Userfaultfd(served) = watch else {
            return Ok(());
        };
        let made = Handler::start(*served, sink)?;
        if let Some(Attached {
            by: By::Direct(_, reader),
            ..
        }) = &mut *self.attached.lock()
        {
            *reader = Some(made);
        }
        Ok(())
    }

    /// Starts serving, without the thread that only reads events.
    fn begin(&self, watch: &Watch, sink: &Arc<dyn FaultSink>) -> Result<By, MmuError> {
        let add = |protection| {
            let target = in_thread::Target {
                base: self.arena.base(),
                sink: Arc::clone(sink),
                protection,
            };
            in_thread::Entry::add(target, self.arena.len())
        };
        Ok(match watch {
            // Without userfaultfd there are no move events to read.
            Watch::Protections(protection) => By::InThread(add(Some(Arc::clone(protection)))?),
            Watch::Userfaultfd(served) => match self.delivery {
                Delivery::InThread => By::InThread(add(None)?),
                Delivery::Direct => By::Direct(add(None)?, None),
                Delivery::Handler => By::Handler(Handler::start(*served, Arc::clone(sink))?),
            },
        })
    }
}
