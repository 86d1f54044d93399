//! The objects of a run: which exist, where their chunks begin, and how much of each is still needed.
//!
//! Slots die one by one, and a remote store has no holes. When less than half of an object is alive, it is read, its
//! live part is put into the next pack, and then the object is deleted. So a run takes at most twice the space of its
//! contents, and rewrites at most one byte for each byte that died. An object with nothing alive is deleted without
//! being read.
//!
//! The place of a remote slot names the slot's object and its first chunk there. Reading or changing that place, and
//! ending a slot's remote state, happen under the lock of this table, so a slot counts in exactly one object, and a
//! load never confuses the places of two objects.

use crate::format::Packed;

/// A slot's place in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    /// The object's index in this table.
    pub(crate) object: u32,
    /// The slot's first chunk in it.
    pub(crate) chunk: u32,
}

impl From<u64> for Spot {
    fn from(place: u64) -> Self {
        Self {
            object: (place >> 32) as u32,
            chunk: place as u32,
        }
    }
}

impl From<Spot> for u64 {
    fn from(spot: Spot) -> Self {
        Self::from(spot.object) << 32 | Self::from(spot.chunk)
    }
}

/// What is happening to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Nothing: the table's entry is free.
    Free,
    /// It is being sent.
    Sending,
    /// It is in the store.
    There,
    /// Its live part is being put into another object.
    Rewriting,
    /// It is being deleted.
    Deleting,
}

pub(crate) struct Object {
    /// The number that names the object. It is never reused.
    pub(crate) number: u64,
    /// Bytes that the object takes.
    pub(crate) bytes: u64,
    /// Bytes of the live slots in it.
    pub(crate) live: u64,
    /// Whether the store has lost it: its loads fail.
    pub(crate) lost: bool,
    /// Whether the loss has been reported.
    pub(crate) told: bool,
    pub(crate) fate: Fate,
    /// Whether it could not be rewritten, because the store's copy is damaged.
    pub(crate) stays: bool,
    /// The places of the chunks, in units, and the place after the last one.
    places: Box<[u32]>,
}

impl Object {
    /// Whether it takes more than twice the space of its live part, and can be read.
    fn may_be_rewritten(&self) -> bool {
        !self.lost && !self.stays && 2 * self.live < self.bytes
    }

    /// Returns the units of `count` chunks from `first` on.
    pub(crate) fn units(&self, first: u32, count: usize) -> Option<(u32, u32)> {
        let places = self.places.get(first as usize..=first as usize + count)?;
        Some((*places.first()?, *places.last()?))
    }

    /// Returns the place after the last chunk.
    pub(crate) fn end(&self) -> u32 {
        self.places.last().copied().unwrap_or(0)
    }

    /// Returns the places of `count` chunks from `first` on, and the place after the last.
    pub(crate) fn places(&self, first: u32, count: usize) -> Option<&[u32]> {
        self.places.get(first as usize..=first as usize + count)
    }
}

/// The table of objects.
#[derive(Default)]
pub(crate) struct Objects {
    all: Vec<Object>,
    free: Vec<u32>,
    /// Bytes of all objects that are in the store, on their way there, or being deleted.
    pub(crate) bytes: u64,
    /// Bytes of live slots in objects.
    pub(crate) live: u64,
    /// Places of chunks in all objects.
    chunks: usize,
    /// Whether objects were found to be lost that have not been reported.
    pub(crate) lost: bool,
    /// Whether an object may need to be rewritten or deleted.
    pub(crate) has_dead: bool,
}

impl Objects {
    pub(crate) fn get(&self, index: u32) -> Option<&Object> {
        self.all
            .get(index as usize)
            .filter(|object| object.fate != Fate::Free)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Object> {
        let object = self.all.get_mut(index as usize);
        object.filter(|object| object.fate != Fate::Free)
    }

    /// Adds an object that is about to be sent. Nothing in it is alive yet.
    pub(crate) fn add(&mut self, packed: &Packed) -> u32 {
        let object = Object {
            number: packed.number,
            bytes: packed.bytes.len() as u64,
            live: 0,
            lost: false,
            told: false,
            fate: Fate::Sending,
            stays: false,
            places: packed.places.clone().into_boxed_slice(),
        };
        self.bytes += object.bytes;
        self.chunks += object.places.len();
        if let Some(index) = self.free.pop() {
            self.all[index as usize] = object;
            return index;
        }
        self.all.push(object);
        (self.all.len() - 1) as u32
    }

    /// Notes that a slot of `chunks` chunks lives at this place from now on.
    pub(crate) fn born(&mut self, spot: Spot, chunks: usize) {
        let bytes = self.change(spot, chunks, |live, bytes| live + bytes);
        self.live += bytes;
    }

    /// Notes that a slot of `chunks` chunks is dead at this place.
    pub(crate) fn died(&mut self, spot: Spot, chunks: usize) {
        let bytes = self.change(spot, chunks, |live, bytes| live - bytes);
        self.live -= bytes;
        self.has_dead = true;
    }

    fn change(&mut self, spot: Spot, chunks: usize, by: impl Fn(u64, u64) -> u64) -> u64 {
        let object = self.get_mut(spot.object);
        let object = object.expect("an object with a living slot is not deleted");
        let (start, end) = object
            .units(spot.chunk, chunks)
            .expect("a slot's chunks are in its object");
        let bytes = u64::from(end - start) * crate::format::UNIT as u64;
        object.live = by(object.live, bytes);
        bytes
    }

    /// Returns the index of the next object that is dead, or less than half alive.
    pub(crate) fn next_dead(&mut self) -> Option<u32> {
        if !self.has_dead {
            return None;
        }
        let is_dead = |object: &Object| match object.fate {
            Fate::There => object.live == 0 || object.may_be_rewritten(),
            Fate::Rewriting => object.live == 0,
            _ => false,
        };
        let found = self.all.iter().position(is_dead).map(|index| index as u32);
        self.has_dead = found.is_some();
        found
    }

    /// Removes an object that is gone: its entry in the table is free.
    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(object) = self.get_mut(index) {
            object.fate = Fate::Free;
            let places = std::mem::take(&mut object.places);
            let bytes = object.bytes;
            self.chunks -= places.len();
            self.bytes -= bytes;
            self.free.push(index);
        }
    }

    /// Returns the numbers of all objects that the store may have.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let there = self.all.iter().filter(|object| object.fate != Fate::Free);
        there.map(|object| object.number).collect()
    }

    /// Returns the number of objects that the store may have.
    pub(crate) fn count(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Calls `tell` with the number of each object newly found to be lost, and the bytes that lived in it.
    pub(crate) fn tell_lost(&mut self, mut tell: impl FnMut(u64, u64)) {
        if std::mem::take(&mut self.lost) {
            for object in self
                .all
                .iter_mut()
                .filter(|object| object.lost && !object.told)
            {
                object.told = true;
                tell(object.number, object.live);
            }
        }
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        (self.chunks * size_of::<u32>() + self.all.capacity() * size_of::<Object>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ChunkName, Encoder, Pack, RunKey};

    fn packed(number: u64, chunks: u32) -> Packed {
        let key = RunKey::of(&[1; 32], [2; 16]);
        let mut encoder = Encoder::new().unwrap();
        let mut pack = Pack::new(number, 0);
        for slot in 0..chunks {
            let name = ChunkName {
                slot,
                generation: 0,
                index: 0,
                pages: 1,
            };
            pack.push(&key, name, encoder.encode(&[slot as u8; 4096]));
        }
        pack.finish(&key)
    }

    #[test]
    fn an_object_is_rewritten_when_less_than_a_half_lives_and_deleted_when_nothing_does() {
        let mut objects = Objects::default();
        let object = objects.add(&packed(7, 10));
        let spot = |chunk| Spot { object, chunk };
        (0..10).for_each(|chunk| objects.born(spot(chunk), 1));
        objects.get_mut(object).unwrap().fate = Fate::There;
        objects.has_dead = true;
        assert_eq!(objects.next_dead(), None);
        let mut chunk = 0;
        let found = loop {
            objects.died(spot(chunk), 1);
            chunk += 1;
            if let Some(found) = objects.next_dead() {
                break found;
            }
        };
        assert_eq!(found, object);
        assert!((2..7).contains(&chunk), "{chunk} of 10 were dead");
        objects.get_mut(object).unwrap().fate = Fate::Rewriting;
        assert_eq!(objects.next_dead(), None);
        (chunk..10).for_each(|chunk| objects.died(spot(chunk), 1));
        assert_eq!((objects.live, objects.next_dead()), (0, Some(object)));
        objects.remove(object);
        assert_eq!(
            (objects.bytes, objects.count(), objects.ram_bytes() > 0),
            (0, 0, true)
        );
        assert!(objects.get(object).is_none());
        // The entry is reused, by an object with another number.
        assert_eq!(objects.add(&packed(8, 1)), object);
        assert_eq!(objects.numbers(), [8]);
    }

    #[test]
    fn a_loss_is_reported_once() {
        let mut objects = Objects::default();
        let object = objects.add(&packed(7, 1));
        let mut told = Vec::new();
        for _ in 0..2 {
            objects.get_mut(object).unwrap().lost = true;
            objects.lost = true;
            objects.tell_lost(|number, _| told.push(number));
        }
        assert_eq!(told, [7]);
    }
}
