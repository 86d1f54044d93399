//! ARC, adaptive replacement (Megiddo and Modha, FAST 2003): a list of pages that were recently used once (T1), one of
//! pages used more often (T2), and the ghosts of pages that either list has evicted (B1, B2). A hit among the ghosts of
//! a list means that the list should have been longer. It moves the target for T1's length by the ratio of the other
//! ghosts to these, and by at least one.

use super::Cache;
use super::list::{Links, List};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;
const NOWHERE: u8 = 4;

/// ARC: pages recently used once against pages used more often, each with a ghost list.
#[derive(Clone, Debug)]
pub struct Arc {
    pages: u32,
    /// The target for T1's length: fractional, because the steps are.
    target: f64,
    links: Links,
    lists: [List; 4],
    on: Vec<u8>,
}

impl Arc {
    /// Makes a cache of `pages` pages, for ids below `footprint`.
    #[must_use]
    pub fn new(pages: u32, footprint: u32) -> Self {
        Self {
            pages,
            target: 0.0,
            links: Links::new(footprint),
            lists: [List::EMPTY; 4],
            on: vec![NOWHERE; footprint as usize],
        }
    }

    fn len(&self, list: usize) -> u32 {
        self.lists[list].len()
    }

    fn put(&mut self, id: u32, list: usize) {
        self.lists[list].push(&mut self.links, id);
        self.on[id as usize] = list as u8;
    }

    fn take(&mut self, id: u32) {
        let list = usize::from(self.on[id as usize]);
        self.lists[list].remove(&mut self.links, id);
        self.on[id as usize] = NOWHERE;
    }

    fn drop_oldest(&mut self, list: usize) {
        if let Some(id) = self.lists[list].pop(&mut self.links) {
            self.on[id as usize] = NOWHERE;
        }
    }

    fn demote(&mut self, from: usize, to: usize) {
        if let Some(id) = self.lists[from].pop(&mut self.links) {
            self.put(id, to);
        }
    }

    /// The paper's REPLACE: the oldest page of T1 or T2 becomes a ghost.
    fn replace(&mut self, for_b2: bool) {
        let t1 = f64::from(self.len(T1));
        let over = t1 > self.target || for_b2 && t1 == self.target;
        if self.len(T1) > 0 && over || self.len(T2) == 0 {
            self.demote(T1, B1);
        } else {
            self.demote(T2, B2);
        }
    }
}

impl Cache for Arc {
    fn access(&mut self, id: u32) -> bool {
        let on = usize::from(self.on[id as usize]);
        match on {
            T1 | T2 => {
                self.take(id);
                self.put(id, T2);
                return true;
            }
            B1 => {
                let step = f64::from(self.len(B2)) / f64::from(self.len(B1));
                self.target = (self.target + step.max(1.0)).min(f64::from(self.pages));
                self.replace(false);
                self.take(id);
                self.put(id, T2);
            }
            B2 => {
                let step = f64::from(self.len(B1)) / f64::from(self.len(B2));
                self.target = (self.target - step.max(1.0)).max(0.0);
                self.replace(true);
                self.take(id);
                self.put(id, T2);
            }
            _ => {
                let once = self.len(T1) + self.len(B1);
                let all = once + self.len(T2) + self.len(B2);
                if once == self.pages {
                    if self.len(T1) < self.pages {
                        self.drop_oldest(B1);
                        self.replace(false);
                    } else {
                        self.drop_oldest(T1);
                    }
                } else if all >= self.pages {
                    if all == 2 * self.pages {
                        self.drop_oldest(B2);
                    }
                    self.replace(false);
                }
                self.put(id, T1);
            }
        }
        false
    }
}
