//! S3-FIFO (Yang and others, SOSP 2023): a small queue for newcomers (a tenth of the cache), the main queue, and the
//! ghosts of pages that the small queue evicted. A page that was used more than once in the small queue moves on to the
//! main queue; a page that comes back as a ghost goes there directly. The main queue gives another round for each of up
//! to three uses.

use super::Cache;
use super::list::{Links, List};

/// Number of uses in the small queue that move a page to the main one.
const PROMOTE: u8 = 2;
/// Most uses that are remembered.
const MOST: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Nowhere,
    Small,
    Main,
    Ghost,
}

/// S3-FIFO: a small queue for newcomers, a main one, and ghosts.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    small_pages: u32,
    main_pages: u32,
    links: Links,
    small: List,
    main: List,
    ghost: List,
    place: Vec<Queue>,
    uses: Vec<u8>,
    has_evicted: bool,
}

impl S3Fifo {
    /// Makes a cache of `pages` pages, for ids below `footprint`.
    #[must_use]
    pub fn new(pages: u32, footprint: u32) -> Self {
        let small_pages = (pages / 10).max(1);
        Self {
            small_pages,
            main_pages: pages - small_pages,
            links: Links::new(footprint),
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: List::EMPTY,
            place: vec![Queue::Nowhere; footprint as usize],
            uses: vec![0; footprint as usize],
            has_evicted: false,
        }
    }

    fn pages(&self) -> u32 {
        self.small_pages + self.main_pages
    }

    fn put_main(&mut self, id: u32) {
        self.place[id as usize] = Queue::Main;
        self.main.push(&mut self.links, id);
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        if self.main.len() > self.main_pages || self.small.len() == 0 {
            self.evict_main();
        } else {
            self.evict_small();
        }
    }

    /// Moves used pages on, until it finds an unused one. That page becomes a ghost.
    fn evict_small(&mut self) {
        while let Some(id) = self.small.pop(&mut self.links) {
            if self.uses[id as usize] >= PROMOTE {
                self.uses[id as usize] = 0;
                self.put_main(id);
                continue;
            }
            if self.ghost.len() >= self.main_pages
                && let Some(oldest) = self.ghost.pop(&mut self.links)
            {
                self.place[oldest as usize] = Queue::Nowhere;
            }
            if self.main_pages > 0 {
                self.place[id as usize] = Queue::Ghost;
                self.ghost.push(&mut self.links, id);
            } else {
                self.place[id as usize] = Queue::Nowhere;
            }
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some(id) = self.main.pop(&mut self.links) {
            let uses = self.uses[id as usize];
            if uses == 0 {
                self.place[id as usize] = Queue::Nowhere;
                return;
            }
            self.uses[id as usize] = uses - 1;
            self.main.push(&mut self.links, id);
        }
    }
}

impl Cache for S3Fifo {
    fn access(&mut self, id: u32) -> bool {
        let place = self.place[id as usize];
        if matches!(place, Queue::Small | Queue::Main) {
            let uses = &mut self.uses[id as usize];
            *uses = (*uses + 1).min(MOST);
            return true;
        }
        let known = place == Queue::Ghost;
        if known {
            self.ghost.remove(&mut self.links, id);
            self.place[id as usize] = Queue::Nowhere;
        }
        while self.small.len() + self.main.len() >= self.pages() {
            self.evict();
        }
        self.uses[id as usize] = 0;
        // A cache that has never been full need not be careful about newcomers.
        let filling = !self.has_evicted && self.small.len() >= self.small_pages;
        if known || filling {
            self.put_main(id);
        } else {
            self.place[id as usize] = Queue::Small;
            self.small.push(&mut self.links, id);
        }
        false
    }
}
