//! Second chance (Corbató, 1968): a ring of pages with a bit each that an access sets. The hand evicts the first page
//! whose bit is not set, and clears the bits that it passes.

use super::Cache;

const GONE: u8 = 0;
const HERE: u8 = 1;
const USED: u8 = 2;

/// Second chance: a ring with a bit for each page.
#[derive(Clone, Debug)]
pub struct Clock {
    state: Vec<u8>,
    ring: Vec<u32>,
    hand: usize,
    pages: usize,
}

impl Clock {
    /// Makes a cache of `pages` pages, for ids below `footprint`.
    #[must_use]
    pub fn new(pages: u32, footprint: u32) -> Self {
        Self {
            state: vec![GONE; footprint as usize],
            ring: Vec::new(),
            hand: 0,
            pages: pages as usize,
        }
    }
}

impl Cache for Clock {
    fn access(&mut self, id: u32) -> bool {
        if self.state[id as usize] != GONE {
            self.state[id as usize] = USED;
            return true;
        }
        self.state[id as usize] = HERE;
        if self.ring.len() < self.pages {
            self.ring.push(id);
            return false;
        }
        loop {
            let victim = self.ring[self.hand];
            let used = self.state[victim as usize] == USED;
            self.state[victim as usize] = if used { HERE } else { GONE };
            if !used {
                self.ring[self.hand] = id;
            }
            self.hand = (self.hand + 1) % self.pages;
            if !used {
                return false;
            }
        }
    }
}
