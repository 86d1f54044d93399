//! The state of reading ahead of streams (`read_ahead.rs`).

use arrayvec::ArrayVec;
use millpond_core::{LEAF_PAGES, PageCount, PageIndex, PageRange};
use millpond_sync::atomic::{AtomicBool, Ordering};
use millpond_sync::{Condvar, Held, OwnThread, Rank, Ranked};

/// Number of reading threads: this many reads of streams are in flight at once, in addition to those of faults.
pub(crate) const READERS: usize = 3;
/// Number of streams that are read ahead at a time. A further one replaces the stream that was silent for longest.
const STREAMS: usize = 8;

/// A stream, and how far it is read ahead.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The stream has reached this page.
    come: PageIndex,
    /// Pages before this one were given to a reader, or are not to be read ahead.
    next: PageIndex,
    /// The end of the range to read.
    end: PageIndex,
    /// Pages of one read. A reader that took more would leave the run of faults in the middle of a leaf, and the next
    /// reader would begin a new run, page by page.
    window: u32,
}

impl Stream {
    fn overlaps(&self, range: PageRange) -> bool {
        self.come < range.end() && range.start < self.end
    }
}

fn between(start: PageIndex, end: PageIndex) -> PageRange {
    PageRange::new(start, PageCount(end.0 - start.0))
}

#[derive(Debug)]
pub(crate) struct State {
    /// The streams, the most recently active one last.
    streams: ArrayVec<Stream, STREAMS>,
    /// What each reader is reading.
    current: [Option<PageRange>; READERS],
    /// The reader that has not told the core about its piece yet.
    asking: Option<usize>,
    pub(crate) threads: Vec<OwnThread>,
    stop: bool,
}

/// The streams of files, and the threads that read ahead of them. See the [module](self).
#[derive(Debug)]
pub struct ReadAhead {
    state: Ranked<State>,
    /// Notified when there is something to read.
    asked: Condvar,
    /// Whether each reader must release its piece.
    called_off: [AtomicBool; READERS],
    /// Notified when a reader has released its piece.
    let_go: Condvar,
    /// Whether there are readers, so that a driver without files takes no lock.
    has_readers: AtomicBool,
}

impl ReadAhead {
    pub(crate) const fn new() -> Self {
        Self {
            state: Ranked::new(
                Rank::ReadAhead,
                State {
                    streams: ArrayVec::new_const(),
                    current: [None; READERS],
                    asking: None,
                    threads: Vec::new(),
                    stop: false,
                },
            ),
            asked: Condvar::new(),
            called_off: [const { AtomicBool::new(false) }; READERS],
            let_go: Condvar::new(),
            has_readers: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> Held<'_, State> {
        self.state.lock()
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.has_readers.load(Ordering::Relaxed)
    }

    /// Notes that there are readers from here on. Returns whether there were some before.
    pub(crate) fn start(&self) -> bool {
        self.has_readers.swap(true, Ordering::SeqCst)
    }

    /// Notes that a stream has reached `come`. Its pages before `from` are in memory or on their way; the pages from
    /// there to `end` should be read, `window` pages at a time, or as many as before.
    pub(crate) fn ask(
        &self,
        come: PageIndex,
        from: PageIndex,
        end: PageIndex,
        window: Option<u32>,
    ) {
        let mut state = self.lock();
        let streams = &mut state.streams;
        let known = streams
            .iter()
            .position(|stream| stream.come <= come && come <= stream.end);
        let stream = match known {
            Some(place) => {
                let known = streams.remove(place);
                Stream {
                    come,
                    next: known.next.max(from),
                    end: known.end.max(end),
                    window: window.unwrap_or(known.window),
                }
            }
            None => Stream {
                come,
                next: from,
                end,
                window: window.unwrap_or(LEAF_PAGES),
            },
        };
        if streams.is_full() {
            streams.remove(0);
        }
        let is_work = stream.next < stream.end;
        streams.push(stream);
        drop(state);
        if is_work {
            self.asked.notify_all();
        }
    }

    /// Whether a stream is read ahead at `page`.
    pub(crate) fn covers(&self, page: PageIndex) -> bool {
        let state = self.lock();
        let mut streams = state.streams.iter();
        streams.any(|stream| stream.come <= page && page <= stream.end)
    }

    /// The next piece for reader `number`, once there is one and the core knows about the previous piece: up to the
    /// next multiple of the window, in one leaf. `None` at the end.
    pub(crate) fn next(&self, number: usize) -> Option<PageRange> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            let is_free = state.asking.is_none();
            let mut streams = state.streams.iter_mut().rev();
            let stream = streams.find(|stream| is_free && stream.next < stream.end);
            if let Some(stream) = stream {
                let window = stream.window.clamp(1, LEAF_PAGES);
                let window_end = PageIndex((stream.next.0 / window + 1) * window);
                let piece = between(stream.next, window_end.min(stream.end));
                stream.next = piece.end();
                state.current[number] = Some(piece);
                state.asking = Some(number);
                self.called_off[number].store(false, Ordering::Relaxed);
                return Some(piece);
            }
            state = state.wait(&self.asked);
        }
    }

    /// Notes that the core knows about the piece of reader `number`: the next one may be taken.
    pub(crate) fn decided(&self, number: usize) {
        if self
            .lock()
            .asking
            .take_if(|asking| *asking == number)
            .is_some()
        {
            self.asked.notify_all();
        }
    }

    /// Notes that from here on reader `number` touches nothing of its piece.
    pub(crate) fn let_go(&self, number: usize) {
        self.decided(number);
        self.lock().current[number] = None;
        self.let_go.notify_all();
    }

    pub(crate) fn is_called_off(&self, number: usize) -> bool {
        self.called_off[number].load(Ordering::Relaxed)
    }

    /// Forgets streams in `range`, and waits until no reader reads any of it.
    pub(crate) fn forget(&self, range: PageRange) {
        if !self.has_readers() {
            return;
        }
        let mut state = self.lock();
        state.streams.retain(|stream| !stream.overlaps(range));
        loop {
            let mut waits = false;
            for (current, called_off) in state.current.iter().zip(&self.called_off) {
                if current.is_some_and(|at| at.start < range.end() && range.start < at.end()) {
                    // The flag is cleared under the lock, with the next piece.
                    called_off.store(true, Ordering::Relaxed);
                    waits = true;
                }
            }
            if !waits {
                return;
            }
            state = state.wait(&self.let_go);
        }
    }

    /// Tells the readers to end once they have released their pieces. The caller joins them.
    pub(crate) fn stop(&self) -> Vec<OwnThread> {
        let mut state = self.lock();
        state.stop = true;
        state.streams.clear();
        for called_off in &self.called_off {
            called_off.store(true, Ordering::Relaxed);
        }
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.asked.notify_all();
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u32) -> PageIndex {
        PageIndex(number)
    }

    fn range(start: u32, end: u32) -> PageRange {
        between(page(start), page(end))
    }

    /// The piece that reader `number` takes; the core is told about it at once.
    fn next(ahead: &ReadAhead, number: usize) -> Option<PageRange> {
        let piece = ahead.next(number);
        ahead.decided(number);
        piece
    }

    #[test]
    fn a_stream_is_read_in_pieces_without_overlap() {
        let ahead = ReadAhead::new();
        ahead.ask(page(100), page(200), page(1100), Some(512));
        assert!(ahead.covers(page(100)) && ahead.covers(page(1099)) && !ahead.covers(page(99)));
        assert_eq!(next(&ahead, 0), Some(range(200, 512)));
        assert_eq!(next(&ahead, 1), Some(range(512, 1024)));
        // The stream continues; pages that it has passed are no longer read.
        ahead.ask(page(600), page(1050), page(1600), None);
        assert_eq!(next(&ahead, 2), Some(range(1050, 1536)));
        assert!(!ahead.covers(page(100)));
        assert_eq!(next(&ahead, 0), Some(range(1536, 1600)));
    }

    /// The program once overtook its readers: a reader told the core about its piece before another one had reported
    /// the piece in front of it, so that most of them began a run of one page.
    #[test]
    fn pieces_are_reported_to_the_core_in_order() {
        let ahead = std::sync::Arc::new(ReadAhead::new());
        ahead.ask(page(0), page(0), page(1024), Some(512));
        assert_eq!(ahead.next(0), Some(range(0, 512)));
        let other = {
            let ahead = std::sync::Arc::clone(&ahead);
            std::thread::spawn(move || ahead.next(1))
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(
            !other.is_finished(),
            "the core has not heard of the first piece"
        );
        ahead.decided(1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!other.is_finished(), "that was another reader");
        ahead.decided(0);
        assert_eq!(other.join().unwrap(), Some(range(512, 1024)));
        // A reader that has released its piece no longer reports it.
        ahead.let_go(1);
        ahead.ask(page(512), page(1024), page(1100), None);
        assert_eq!(ahead.next(2), Some(range(1024, 1100)));
    }

    #[test]
    fn a_piece_is_as_long_as_the_streams_window() {
        let ahead = ReadAhead::new();
        ahead.ask(page(0), page(130), page(500), Some(128));
        assert_eq!(next(&ahead, 0), Some(range(130, 256)));
        ahead.ask(page(100), page(256), page(500), Some(256));
        assert_eq!(next(&ahead, 0), Some(range(256, 500)));
    }

    #[test]
    fn latest_stream_is_read_first_and_the_oldest_is_forgotten() {
        let ahead = ReadAhead::new();
        for stream in 0..STREAMS as u32 + 1 {
            let start = stream * 10_000;
            ahead.ask(page(start), page(start), page(start + 10), Some(512));
        }
        assert!(!ahead.covers(page(5)));
        let last = STREAMS as u32 * 10_000;
        assert_eq!(next(&ahead, 0), Some(range(last, last + 10)));
        ahead.let_go(0);
        assert!(!ahead.start());
        ahead.forget(range(last - 10_000, last));
        assert_eq!(next(&ahead, 0), Some(range(last - 20_000, last - 19_990)));
        ahead.stop();
        assert_eq!(next(&ahead, 0), None);
    }
}
