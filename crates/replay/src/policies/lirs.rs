//! LIRS (Jiang and Zhang, SIGMETRICS 2002): pages with a short time between two uses (LIR) hold all but a hundredth of
//! the cache; the rest (HIR) pass through a queue in that hundredth. The stack S remembers, in order of use, the pages
//! that were used since the oldest LIR page, including evicted pages. A page that is used again while it is on S has a
//! shorter interval than that LIR page and takes its place.

use super::Cache;
use super::list::{Links, List};

/// The share of the cache for pages that are not LIR, as a divisor.
const HIR_SHARE: u32 = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The page is not in the cache, and not on the stack.
    Unknown,
    Lir,
    /// The page is in the cache, on the queue.
    Hir,
    /// The page is on the stack only.
    Ghost,
}

/// LIRS: pages that were used at short intervals stay, all others pass through a hundredth of the cache.
#[derive(Clone, Debug)]
pub struct Lirs {
    lir_pages: u32,
    hir_pages: u32,
    lir: u32,
    kind: Vec<Kind>,
    on_stack: Vec<bool>,
    stack_links: Links,
    stack: List,
    queue_links: Links,
    queue: List,
}

impl Lirs {
    /// Makes a cache of `pages` pages, for ids below `footprint`.
    #[must_use]
    pub fn new(pages: u32, footprint: u32) -> Self {
        let hir_pages = (pages / HIR_SHARE).max(1);
        Self {
            lir_pages: pages - hir_pages,
            hir_pages,
            lir: 0,
            kind: vec![Kind::Unknown; footprint as usize],
            on_stack: vec![false; footprint as usize],
            stack_links: Links::new(footprint),
            stack: List::EMPTY,
            queue_links: Links::new(footprint),
            queue: List::EMPTY,
        }
    }

    /// Puts `id` on top of the stack.
    fn top(&mut self, id: u32) {
        if std::mem::replace(&mut self.on_stack[id as usize], true) {
            self.stack.remove(&mut self.stack_links, id);
        }
        self.stack.push(&mut self.stack_links, id);
    }

    /// Takes pages that are not LIR off the bottom of the stack.
    fn prune(&mut self) {
        while let Some(id) = self.stack.oldest() {
            if self.kind[id as usize] == Kind::Lir {
                return;
            }
            self.stack.remove(&mut self.stack_links, id);
            self.on_stack[id as usize] = false;
            if self.kind[id as usize] == Kind::Ghost {
                self.kind[id as usize] = Kind::Unknown;
            }
        }
    }

    /// Moves the LIR page at the bottom of the stack to the queue.
    fn demote(&mut self) {
        self.prune();
        if let Some(id) = self.stack.pop(&mut self.stack_links) {
            self.on_stack[id as usize] = false;
            self.kind[id as usize] = Kind::Hir;
            self.lir -= 1;
            self.queue.push(&mut self.queue_links, id);
        }
        self.prune();
    }

    fn promote(&mut self, id: u32) {
        self.kind[id as usize] = Kind::Lir;
        self.lir += 1;
        self.top(id);
        if self.lir > self.lir_pages {
            self.demote();
        }
    }

    /// Makes room for one page, if there is none.
    fn evict(&mut self) {
        if self.lir + self.queue.len() < self.lir_pages + self.hir_pages {
            return;
        }
        if let Some(id) = self.queue.pop(&mut self.queue_links) {
            self.kind[id as usize] = if self.on_stack[id as usize] {
                Kind::Ghost
            } else {
                Kind::Unknown
            };
        }
    }
}

impl Cache for Lirs {
    fn access(&mut self, id: u32) -> bool {
        match self.kind[id as usize] {
            Kind::Lir => {
                self.top(id);
                self.prune();
                true
            }
            Kind::Hir => {
                self.queue.remove(&mut self.queue_links, id);
                if self.on_stack[id as usize] {
                    self.promote(id);
                } else {
                    self.top(id);
                    self.queue.push(&mut self.queue_links, id);
                }
                true
            }
            Kind::Unknown if self.lir < self.lir_pages => {
                self.evict();
                self.kind[id as usize] = Kind::Lir;
                self.lir += 1;
                self.top(id);
                false
            }
            Kind::Ghost => {
                self.evict();
                self.promote(id);
                false
            }
            Kind::Unknown => {
                self.evict();
                self.kind[id as usize] = Kind::Hir;
                self.top(id);
                self.queue.push(&mut self.queue_links, id);
                false
            }
        }
    }
}
