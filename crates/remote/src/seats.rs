//! Seats: how a faulting thread makes the network thread fetch something.
//!
//! A faulting thread must not call the program's allocator, nor wait for a lock whose holder may fault. An HTTP
//! client does both. So a fault only takes a *seat*: it writes its request there, wakes the network thread, and
//! sleeps until the bytes are in the seat's buffer, from which it copies them. The network thread does the
//! requesting, checking and decompressing, with its own runtime.
//!
//! ```text
//!   a fault:    Free ─▶ Asked            ─sleeps─            Done ─▶ copies ─▶ Free
//!   the network:         Asked ─▶ Working ─requests─▶ Done
//! ```
//!
//! There are as many seats as requests for faults may be in progress. A fault that finds no free seat waits for one.
//! A fault that runs out of patience gives its seat up: the task that was to serve it frees the seat when it ends. A
//! buffer stays with its seat, so its memory is only allocated once.
//!
//! The network thread sleeps in the kernel until a descriptor is written to. A thread that serves other threads'
//! faults may have its own descriptor table, without that descriptor (`driver/src/file.rs`). So a third thread, the
//! *bell*, sleeps until a seat is taken and then wakes the network thread. That costs a few microseconds next to the
//! milliseconds of a request.

use crate::requests::RemoteError;
use millpond_sync::{Condvar, OwnThread, Rank, Ranked};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The maximum number of concurrent requests for faults.
pub(crate) const SEATS: usize = 8;

/// The result of a load, without any data that would need allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fetched {
    /// The bytes are here.
    Here,
    /// The bytes are here, and came with others of a stream: fetching them again costs a fraction of a request.
    WithStream,
    /// The store did not answer in time.
    Away,
    /// The store answers, but no longer has the bytes.
    Lost,
    /// What the store returns cannot be right.
    Damaged,
    /// The store has another version than the requested one.
    Changed,
}

impl Fetched {
    /// Returns the result for bytes that are here, with a stream or alone.
    pub(crate) fn here(with_stream: bool) -> Self {
        match with_stream {
            true => Self::WithStream,
            false => Self::Here,
        }
    }

    pub(crate) fn is_here(self) -> bool {
        matches!(self, Self::Here | Self::WithStream)
    }
}

impl From<RemoteError> for Fetched {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Away { .. } | RemoteError::Refused { .. } => Self::Away,
            RemoteError::Lost { .. } => Self::Lost,
            RemoteError::Damaged { .. } => Self::Damaged,
            RemoteError::Changed { .. } => Self::Changed,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Asked,
    Working,
    Done(Fetched),
    GivenUp,
}

struct Seat<W> {
    used: Use,
    wanted: Option<W>,
    /// The fetched bytes, once they are here.
    buffer: Vec<u8>,
}

impl<W> Seat<W> {
    /// Gives up the seat because its owner ran out of patience. If nobody has started to serve the seat, it becomes
    /// free at once, because nobody would free it later.
    fn give_up(&mut self) {
        self.used = match self.used {
            Use::Asked => Use::Free,
            _ => Use::GivenUp,
        };
    }
}

struct State<W> {
    all: [Seat<W>; SEATS],
    /// Whether a seat has been taken since the bell rang.
    ring: bool,
    /// Whether the bell should end.
    stop: bool,
}

/// The thread that wakes the network thread when a seat is taken. It ends with this value.
pub(crate) struct Bell<W: Copy + Send + 'static> {
    seats: Arc<Seats<W>>,
    thread: Option<OwnThread>,
}

impl<W: Copy + Send + 'static> Drop for Bell<W> {
    fn drop(&mut self) {
        self.seats.seats.lock().stop = true;
        self.seats.taken.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// The seats of one network thread, for requests of type `W`. See the [module](self).
pub(crate) struct Seats<W> {
    seats: Ranked<State<W>>,
    /// Notified when a seat was taken, or the bell should end.
    taken: Condvar,
    /// Notified when a seat was freed or served.
    served: Condvar,
    asked: Notify,
    /// How long a fault waits.
    patience: Duration,
}

impl<W: Copy + Send + 'static> Seats<W> {
    /// Makes free seats, where faults wait up to `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        let seat = |_| Seat {
            used: Use::Free,
            wanted: None,
            buffer: Vec::new(),
        };
        let state = State {
            all: std::array::from_fn(seat),
            ring: false,
            stop: false,
        };
        Self {
            seats: Ranked::new(Rank::RemoteSeats, state),
            taken: Condvar::new(),
            served: Condvar::new(),
            asked: Notify::new(),
            patience,
        }
    }

    /// Starts the thread that wakes the network thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn bell(self: &Arc<Self>) -> std::io::Result<Bell<W>> {
        let seats = Arc::clone(self);
        let thread = OwnThread::start(c"millpond-bell", move || {
            let mut state = seats.seats.lock();
            while !state.stop {
                if std::mem::take(&mut state.ring) {
                    drop(state);
                    seats.asked.notify_one();
                    state = seats.seats.lock();
                } else {
                    state = state.wait(&seats.taken);
                }
            }
        })?;
        Ok(Bell {
            seats: Arc::clone(self),
            thread: Some(thread),
        })
    }

    /// Returns the RAM of the buffers.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let seats = self.seats.lock();
        let buffers = seats.all.iter().map(|seat| &seat.buffer);
        buffers.map(|buffer| buffer.capacity() as u64).sum()
    }

    /// Makes the network thread fetch `wanted`, and passes the bytes to `take`. Called by faulting threads: it does
    /// not allocate.
    pub(crate) fn fetch(&self, wanted: W, take: impl FnOnce(&[u8])) -> Fetched {
        let limit = Instant::now() + self.patience;
        let mut seats = self.seats.lock();
        let at = loop {
            let mut all = seats.all.iter();
            if let Some(at) = all.position(|seat| seat.used == Use::Free) {
                break at;
            }
            let Some(left) = limit.checked_duration_since(Instant::now()) else {
                return Fetched::Away;
            };
            seats = seats.wait_timeout(&self.served, left);
        };
        seats.all[at].used = Use::Asked;
        seats.all[at].wanted = Some(wanted);
        seats.ring = true;
        self.taken.notify_one();
        let fetched = loop {
            if let Use::Done(fetched) = seats.all[at].used {
                break fetched;
            }
            let Some(left) = limit.checked_duration_since(Instant::now()) else {
                seats.all[at].give_up();
                self.served.notify_all();
                return Fetched::Away;
            };
            seats = seats.wait_timeout(&self.served, left);
        };
        let buffer = std::mem::take(&mut seats.all[at].buffer);
        drop(seats);
        if fetched.is_here() {
            take(&buffer);
        }
        let mut seats = self.seats.lock();
        seats.all[at].buffer = buffer;
        seats.all[at].used = Use::Free;
        self.served.notify_all();
        fetched
    }

    /// Serves each seat where somebody waits: `work` fills the buffer that it receives, whatever it contains, and
    /// returns it.
    pub(crate) async fn serve<F>(self: &Arc<Self>, work: impl Fn(W, Vec<u8>) -> F)
    where
        F: Future<Output = (Fetched, Vec<u8>)> + Send + 'static,
    {
        loop {
            self.asked.notified().await;
            while let Some((at, wanted, buffer)) = self.next() {
                let work = work(wanted, buffer);
                let seats = Arc::clone(self);
                tokio::spawn(async move {
                    let (fetched, buffer) = work.await;
                    seats.done(at, fetched, buffer);
                });
            }
        }
    }

    /// Returns a seat that nobody serves yet, with its request and its buffer.
    fn next(&self) -> Option<(usize, W, Vec<u8>)> {
        let mut seats = self.seats.lock();
        let mut all = seats.all.iter_mut().enumerate();
        let (at, seat) = all.find(|(_, seat)| seat.used == Use::Asked)?;
        seat.used = Use::Working;
        let wanted = seat.wanted.take()?;
        Some((at, wanted, std::mem::take(&mut seat.buffer)))
    }

    fn done(&self, at: usize, fetched: Fetched, buffer: Vec<u8>) {
        let mut seats = self.seats.lock();
        let seat = &mut seats.all[at];
        seat.buffer = buffer;
        seat.used = match seat.used {
            Use::GivenUp => Use::Free,
            _ => Use::Done(fetched),
        };
        self.served.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three times as many threads as seats, served by another thread, which takes a while for each.
    #[test]
    fn each_request_is_served_and_at_most_as_many_at_once_as_seats() {
        let seats = Arc::new(Seats::<u8>::new(Duration::from_secs(30)));
        let bell = seats.bell().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let at_once = Arc::new(std::sync::Mutex::new((0, 0)));
        std::thread::scope(|scope| {
            let (serving, counted) = (Arc::clone(&seats), Arc::clone(&at_once));
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = serving.serve(|wanted, mut buffer| {
                            let counted = Arc::clone(&counted);
                            async move {
                                {
                                    let mut counted = counted.lock().unwrap();
                                    counted.0 += 1;
                                    counted.1 = counted.1.max(counted.0);
                                }
                                tokio::time::sleep(Duration::from_millis(5)).await;
                                counted.lock().unwrap().0 -= 1;
                                buffer.clear();
                                buffer.resize(100, wanted);
                                (Fetched::Here, buffer)
                            }
                        }) => {}
                    }
                });
            });
            let asking: Vec<_> = (0..3 * SEATS as u8)
                .map(|number| {
                    let seats = &seats;
                    scope.spawn(move || {
                        for _ in 0..5 {
                            let mut got = Vec::new();
                            let fetched = seats.fetch(number, |bytes| got = bytes.to_vec());
                            assert_eq!((fetched, got), (Fetched::Here, vec![number; 100]));
                        }
                    })
                })
                .collect();
            asking.into_iter().for_each(|thread| thread.join().unwrap());
            stop.send(()).unwrap();
        });
        drop(bell);
        assert!(at_once.lock().unwrap().1 <= SEATS);
        assert!(seats.ram_bytes() >= 100);
    }

    /// A fault whose seat nobody served once gave it up, and the seat stayed taken: after eight of these no fault was
    /// served any more.
    #[test]
    fn a_seat_that_was_given_up_is_free_again() {
        let seats = Seats::<u8>::new(Duration::from_millis(5));
        for number in 0..2 * SEATS as u8 {
            assert_eq!(seats.fetch(number, |_| {}), Fetched::Away);
        }
        assert!(seats.next().is_none(), "nobody waits any more");
        // A seat that is given up while it is being served becomes free when that ends.
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| seats.fetch(77, |_| {}));
            let limit = Instant::now() + Duration::from_secs(10);
            let mut served = None;
            while served.is_none() && !asking.is_finished() && Instant::now() < limit {
                served = seats.next();
            }
            assert_eq!(asking.join().unwrap(), Fetched::Away);
            if let Some((at, wanted, buffer)) = served {
                assert_eq!(wanted, 77);
                seats.done(at, Fetched::Here, buffer);
            }
        });
        let seats = seats.seats.lock();
        assert!(seats.all.iter().all(|seat| seat.used == Use::Free));
    }
}
