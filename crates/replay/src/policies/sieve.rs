//! SIEVE (Zhang and others, NSDI 2024): a FIFO with a bit for each page that an access sets. The hand moves from old to
//! young, clears bits, evicts the first page without one, and stays there. Newcomers enter at the head, and the hand
//! reaches them last.

use super::Cache;
use super::list::{Links, List};

const GONE: u8 = 0;
const HERE: u8 = 1;
const USED: u8 = 2;

/// SIEVE: a FIFO whose hand stays where it is.
#[derive(Clone, Debug)]
pub struct Sieve {
    pages: u32,
    state: Vec<u8>,
    links: Links,
    list: List,
    /// The page at which the next eviction begins; the old end when it is `None`.
    hand: Option<u32>,
}

impl Sieve {
    /// Makes a cache of `pages` pages, for ids below `footprint`.
    #[must_use]
    pub fn new(pages: u32, footprint: u32) -> Self {
        Self {
            pages,
            state: vec![GONE; footprint as usize],
            links: Links::new(footprint),
            list: List::EMPTY,
            hand: None,
        }
    }

    fn evict(&mut self) {
        while let Some(id) = self.hand.or(self.list.oldest()) {
            self.hand = self.links.younger(id);
            if self.state[id as usize] == USED {
                self.state[id as usize] = HERE;
                continue;
            }
            self.state[id as usize] = GONE;
            self.list.remove(&mut self.links, id);
            return;
        }
    }
}

impl Cache for Sieve {
    fn access(&mut self, id: u32) -> bool {
        if self.state[id as usize] != GONE {
            self.state[id as usize] = USED;
            return true;
        }
        if self.list.len() == self.pages {
            self.evict();
        }
        self.state[id as usize] = HERE;
        self.list.push(&mut self.links, id);
        false
    }
}
