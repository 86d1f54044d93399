//! Lists of pages: doubly linked through arrays that all lists of a policy share, so that moving a page takes constant
//! time and a page is on one list at a time.

const END: u32 = u32::MAX;

/// The links of all pages.
#[derive(Clone, Debug)]
pub(super) struct Links {
    younger: Vec<u32>,
    older: Vec<u32>,
}

/// One list, with the young pages at the head and the old ones at the tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Links {
    pub(super) fn new(footprint: u32) -> Self {
        Self {
            younger: vec![END; footprint as usize],
            older: vec![END; footprint as usize],
        }
    }

    /// The page that is one younger than `id` on its list.
    pub(super) fn younger(&self, id: u32) -> Option<u32> {
        let younger = self.younger[id as usize];
        (younger != END).then_some(younger)
    }
}

impl List {
    pub(super) const EMPTY: Self = Self {
        head: END,
        tail: END,
        len: 0,
    };

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn push(&mut self, links: &mut Links, id: u32) {
        links.younger[id as usize] = END;
        links.older[id as usize] = self.head;
        match self.head {
            END => self.tail = id,
            head => links.younger[head as usize] = id,
        }
        self.head = id;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, links: &mut Links, id: u32) {
        let (younger, older) = (links.younger[id as usize], links.older[id as usize]);
        match younger {
            END => self.head = older,
            younger => links.older[younger as usize] = older,
        }
        match older {
            END => self.tail = younger,
            older => links.younger[older as usize] = younger,
        }
        self.len -= 1;
    }

    /// The oldest page, without taking it off.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.tail != END).then_some(self.tail)
    }

    /// Takes the oldest page off.
    pub(super) fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let id = self.oldest()?;
        self.remove(links, id);
        Some(id)
    }
}
