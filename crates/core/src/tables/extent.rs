//! The addresses of the long tables, for the machine that backs them.
//!
//! The tables are sized by the arena and used sparsely: an arena of 1.75 TiB has a table of entries of 3.5 GiB, of
//! which a program that touches 100 MiB writes 200 KiB. They take that little memory only while the machine provides it
//! page by page. A machine that gives huge pages to all memory (`transparent_hugepage/enabled` is *always* on most
//! distributions) backs 2 MiB for each isolated entry, and khugepaged later collects small pages into huge ones: in a
//! program with a budget of 30 MiB such tables took 20 MiB more than the core had counted. So the creator of a core
//! tells the machine about its tables.

use crate::machine::Core;
use std::ops::Range;

/// The addresses that a table's elements have now or may have later.
pub(crate) fn extent<T>(table: &Vec<T>) -> Range<usize> {
    let start = table.as_ptr().addr();
    start..start + table.capacity() * size_of::<T>()
}

impl Core {
    /// Calls `each` with the addresses of each table that is sized by the arena or by the budget. They stay where they
    /// are for as long as the core lives, moved or not.
    ///
    /// ```
    /// use millpond_core::{Config, Core, PageCount};
    ///
    /// let core = Core::new(Config::new(PageCount(512 << 10), PageCount(4096)))?;
    /// let mut longest = 0;
    /// core.each_table(&mut |table| longest = longest.max(table.len() as u64));
    /// assert_eq!(longest, Config::new(PageCount(512 << 10), PageCount(4096)).table_bytes());
    /// # Ok::<(), millpond_core::ConfigError>(())
    /// ```
    pub fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        self.leaves.each_table(each);
        self.folios.each_table(each);
        self.slots.each_table(each);
        self.regions.each_table(each);
        self.trends.each_table(each);
    }
}
