//! How a fault reaches whoever resolves it.
//!
//! | | [`InThread`](Delivery::InThread) | [`Handler`](Delivery::Handler) |
//! | --- | --- | --- |
//! | who runs the sink | the faulting thread, in a SIGBUS handler | one thread of ours |
//! | a 4 KiB fault | about 4 µs | about 7 µs, when the thread sits on the faulter's processor |
//! | system calls on absent memory | fail with EFAULT | work |
//! | absent thread stacks, signal frames, futexes | kill or abort the program | work |
//!
//! The first is for programs that are written for it, the second for those that know nothing.

mod follow;
pub(crate) mod handler;
mod in_thread;

pub(crate) use follow::may_be_preferred;
pub(crate) use in_thread::handle_orphans;

use std::sync::Arc;

use millpond_core::{Access, PageIndex};

use crate::error::MmuError;
use crate::uffd::Uffd;

/// Who runs the sink when a page is touched that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The faulting thread itself, inside a SIGBUS handler. The program must leave SIGBUS unblocked, and must
    /// not pass absent memory to system calls.
    InThread,
    /// One handler thread for the whole arena. Managed memory behaves like memory everywhere.
    Handler,
}

/// What became of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// The page was installed by this call, and the install woke whoever waits.
    Installed,
    /// The page may be there now, or trying again is right: the faulter must be let go.
    Retry,
    /// Somebody else will install the page, or wake its waiters, later. Handler delivery only; in-thread
    /// delivery takes it for [`Retry`](Self::Retry).
    Asleep,
    /// The page's contents are lost, or the address is refused: the program must see an error (SIGBUS).
    Lost,
}

/// Whom a handler's thread serves, as the last faults have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faulters {
    /// Several threads.
    Several,
    /// One, which may be on another processor with the next fault.
    One,
    /// One, which shares the handler's processor and will go on to: what the handler does there interrupts nobody, and
    /// what another thread did elsewhere would interrupt both.
    OneBeside,
}

/// Resolves faults. Called from several threads at once with in-thread delivery, from one with a handler.
///
/// The call may come from inside the program's allocator, with any lock of the program held, and in a signal
/// handler. It must not call the program's allocator, use thread-local storage, touch managed memory, panic, or take
/// a lock that anyone holds while touching managed memory.
pub trait FaultSink: Send + Sync {
    /// Called once in a new handler thread, before it reads its first fault.
    fn handler_started(&self) {}

    /// Whom the handler serves from now on. Called by the handler after each fault; before the first it serves
    /// [several](Faulters::Several).
    fn handler_serves(&self, _whom: Faulters) {}

    /// A thread touched `page`, which is not mapped, or is write-protected while it is taken out.
    fn fault(&self, page: PageIndex, access: Access) -> Resolution;
}

/// A running delivery.
pub(crate) struct Attached {
    sink: Arc<dyn FaultSink>,
    by: By,
}

enum By {
    InThread(in_thread::Entry),
    Handler(handler::Handler),
}

/// Lets no fault of this process go to a sink of its parent's, in a new child whose addresses may lie where an arena
/// was that it did not inherit. A touch of what it did not inherit ends it with a line.
/// May be called by a handler of `pthread_atfork`: it stores a few words and makes system calls. Whoever serves
/// the child, too ([`Uffd::after_fork_in_child`]), attaches again after this.
pub fn forget_deliveries_in_child() {
    in_thread::forget_all();
    crate::panics::forget_others_in_child();
    crate::orphans::begin_in_child();
}

impl Uffd {
    /// Delivers faults to `sink` from now on.
    ///
    /// With handler delivery this starts a thread, which must be able to allocate from a heap that is not managed.
    ///
    /// # Errors
    /// [`MmuError::AlreadyAttached`], or what keeps the delivery from starting.
    pub fn attach(&self, sink: Arc<dyn FaultSink>) -> Result<(), MmuError> {
        let mut attached = self
            .attached()
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if attached.is_some() {
            return Err(MmuError::AlreadyAttached);
        }
        let by = self.start(&sink)?;
        *attached = Some(Attached { sink, by });
        Ok(())
    }

    /// Stops the delivery and waits until none is running. Threads that fault afterwards wait (handler) or get
    /// SIGBUS (in-thread). Nothing happens when nothing is attached. Not to be called from within a sink.
    pub fn detach(&self) {
        let attached = self
            .attached()
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .take();
        match attached.map(|attached| attached.by) {
            None => {}
            Some(By::InThread(entry)) => entry.remove(),
            Some(By::Handler(handler)) => handler.stop(),
        }
    }

    pub(crate) fn attach_again_in_child(&self) -> Result<(), MmuError> {
        let mut attached = self
            .attached()
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(Attached { sink, by }) = attached.take() else {
            return Ok(());
        };
        match by {
            By::InThread(entry) => entry.forget(),
            By::Handler(handler) => handler.forget(),
        }
        let by = self.start(&sink)?;
        *attached = Some(Attached { sink, by });
        Ok(())
    }

    fn start(&self, sink: &Arc<dyn FaultSink>) -> Result<By, MmuError> {
        Ok(match self.delivery() {
            Delivery::InThread => By::InThread(in_thread::Entry::add(
                self.base() as usize,
                self.len(),
                Arc::clone(sink),
            )?),
            Delivery::Handler => {
                By::Handler(handler::Handler::start(self.served(), Arc::clone(sink))?)
            }
        })
    }
}
