//! Belady's algorithm (1966): evicts the page whose next use is farthest away. A wanted page must come in, as in
//! memory; it may not bypass the cache.

use super::Cache;
use crate::trace::Trace;
use std::collections::BinaryHeap;

const NEVER: u32 = u32::MAX;

/// Belady's algorithm: evicts the page whose next use is last. It needs to know the future.
#[derive(Clone, Debug)]
pub struct Opt {
    pages: usize,
    /// The next use of each access' page.
    next_use: Vec<u32>,
    now: usize,
    /// The next use of each page that is here.
    due: Vec<Option<u32>>,
    here: usize,
    /// Pages by their next use. An entry is out of date if its page is no longer due then.
    heap: BinaryHeap<(u32, u32)>,
}

impl Opt {
    /// Makes a cache of `pages` pages for the accesses of `trace`, from its beginning on.
    #[must_use]
    pub fn new(pages: u32, trace: &Trace) -> Self {
        let mut seen = vec![NEVER; trace.footprint() as usize];
        let mut next_use = vec![NEVER; trace.len()];
        for (n, &id) in trace.ids().iter().enumerate().rev() {
            next_use[n] = std::mem::replace(&mut seen[id as usize], n as u32);
        }
        Self {
            pages: pages as usize,
            next_use,
            now: 0,
            due: vec![None; trace.footprint() as usize],
            here: 0,
            heap: BinaryHeap::new(),
        }
    }

    fn evict(&mut self) {
        while let Some((due, id)) = self.heap.pop() {
            if self.due[id as usize] == Some(due) {
                self.due[id as usize] = None;
                self.here -= 1;
                return;
            }
        }
    }

    /// Removes out-of-date entries when they are most of the heap: a frequently used page leaves an entry each time.
    fn tidy(&mut self) {
        if self.heap.len() > 2 * self.pages + 64 {
            let due = &self.due;
            self.heap.retain(|&(at, id)| due[id as usize] == Some(at));
        }
    }
}

impl Cache for Opt {
    fn access(&mut self, id: u32) -> bool {
        let due = self.next_use[self.now];
        self.now += 1;
        let hit = self.due[id as usize].is_some();
        if !hit {
            if self.here == self.pages {
                self.evict();
            }
            self.here += 1;
        }
        self.due[id as usize] = Some(due);
        self.heap.push((due, id));
        self.tidy();
        hit
    }
}
