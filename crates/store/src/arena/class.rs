//! Size classes: they decide which lengths share a span, and how long the spans are.
//!
//! Classes are 64 bytes apart up to 4 KiB and a sixteenth apart above, up to 64 KiB, so an object is on average 1.5 to
//! 3 % smaller than its handle. A span is the shortest run of pages whose objects leave at most a thirty-second of it
//! unused. Short spans matter because there are many classes: each may have one nearly empty span.

use crate::mem::PAGE;

/// Number of classes.
pub(crate) const CLASSES: usize = 128;
/// The longest object.
pub(crate) const MAX_OBJECT: usize = 64 << 10;
/// The longest span, in pages.
pub(crate) const MAX_SPAN: usize = 32;
/// The most objects in a span: their state is the bits of one word.
const MAX_OBJECTS: usize = 64;

const STEP: usize = 64;
const SMALL: usize = PAGE / STEP;

/// A size class.
#[derive(Clone, Copy)]
pub(crate) struct Class {
    /// Bytes of each object.
    pub(crate) size: u32,
    /// Pages of a span.
    pub(crate) pages: u8,
    /// Objects in a span.
    pub(crate) objects: u8,
}

const TABLE: [Class; CLASSES] = {
    let mut table = [Class {
        size: 0,
        pages: 0,
        objects: 0,
    }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let size = if class < SMALL {
            (class + 1) * STEP
        } else {
            let base = PAGE << ((class - SMALL) / 16);
            base + ((class - SMALL) % 16 + 1) * (base / 16)
        };
        let mut pages = size.div_ceil(PAGE);
        while pages * PAGE % size * 32 > pages * PAGE {
            pages += 1;
        }
        assert!(pages <= MAX_SPAN && pages * PAGE / size <= MAX_OBJECTS);
        table[class] = Class {
            size: size as u32,
            pages: pages as u8,
            objects: (pages * PAGE / size) as u8,
        };
        class += 1;
    }
    assert!(table[CLASSES - 1].size as usize == MAX_OBJECT);
    table
};

/// The class for objects of `len` bytes (1 to [`MAX_OBJECT`]).
pub(crate) fn class_of(len: usize) -> usize {
    debug_assert!((1..=MAX_OBJECT).contains(&len));
    if len <= PAGE {
        return len.div_ceil(STEP) - 1;
    }
    let doubling = ((len - 1) / PAGE).ilog2() as usize;
    let base = PAGE << doubling;
    SMALL + doubling * 16 + (len - base).div_ceil(base / 16) - 1
}

/// The dimensions of class number `class`.
pub(crate) fn class(class: usize) -> Class {
    TABLE[class]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_goes_to_the_smallest_class_that_holds_it() {
        for len in 1..=MAX_OBJECT {
            let at = class_of(len);
            assert!(class(at).size as usize >= len, "{len} bytes in class {at}");
            assert!(
                at == 0 || (class(at - 1).size as usize) < len,
                "{len} bytes in class {at}"
            );
        }
    }
}
