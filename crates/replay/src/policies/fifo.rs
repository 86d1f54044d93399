//! First in, first out.

use super::Cache;

/// First in, first out.
#[derive(Clone, Debug)]
pub struct Fifo {
    here: Vec<bool>,
    /// A ring of pages; when it is full, `next` is the oldest.
    ring: Vec<u32>,
    next: usize,
    pages: usize,
}

impl Fifo {
    /// Makes a cache of `pages` pages, for ids below `footprint`.
    #[must_use]
    pub fn new(pages: u32, footprint: u32) -> Self {
        Self {
            here: vec![false; footprint as usize],
            ring: Vec::new(),
            next: 0,
            pages: pages as usize,
        }
    }
}

impl Cache for Fifo {
    fn access(&mut self, id: u32) -> bool {
        if std::mem::replace(&mut self.here[id as usize], true) {
            return true;
        }
        if self.ring.len() < self.pages {
            self.ring.push(id);
        } else {
            let victim = std::mem::replace(&mut self.ring[self.next], id);
            self.here[victim as usize] = false;
            self.next = (self.next + 1) % self.pages;
        }
        false
    }
}
