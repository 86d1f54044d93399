//! The thread that talks to a network, with its own runtime: it serves the seats of faults, and does other work that
//! it is given.

use crate::seats::{Bell, Fetched, Seats};
use millpond_sync::OwnThread;
use std::ffi::CStr;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The thread, and its bell. Both end with this value, as does everything in progress.
pub(crate) struct Network<W: Copy + Send + 'static> {
    handle: Handle,
    stop: Arc<Notify>,
    thread: Option<OwnThread>,
    _bell: Bell<W>,
}

impl<W: Copy + Send + 'static> Network<W> {
    /// Starts the thread `name`, which makes `work` serve each seat where somebody waits: `work` fills the buffer
    /// that it receives, whatever it contains, and returns it.
    ///
    /// # Errors
    /// The system refuses a thread, or descriptors for the runtime.
    pub(crate) fn start<F>(
        name: &'static CStr,
        seats: &Arc<Seats<W>>,
        work: impl Fn(W, Vec<u8>) -> F + Send + 'static,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = (Fetched, Vec<u8>)> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let bell = seats.bell()?;
        let stop = Arc::new(Notify::new());
        let (stopped, seats) = (Arc::clone(&stop), Arc::clone(seats));
        let thread = OwnThread::start(name, move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.notified() => {}
                    () = seats.serve(work) => {}
                }
            });
            // Anything still in progress ends here.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            handle,
            stop,
            thread: Some(thread),
            _bell: bell,
        })
    }

    /// Returns the thread's runtime.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl<W: Copy + Send + 'static> Drop for Network<W> {
    fn drop(&mut self) {
        self.stop.notify_one();
        // A task may have held the last reference to this value's owner: the thread must not wait for itself.
        if let Some(thread) = self.thread.take().filter(|thread| !thread.is_current()) {
            thread.join();
        }
    }
}
