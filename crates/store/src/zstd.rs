//! zstd for single pages: it compresses a page more densely than LZ4, and takes longer.
//!
//! A page of a Python heap takes 15 % of its size with zstd and 28 % with LZ4, and three to five times as long to
//! decompress; a file takes twenty times as long as that. So pages unused for a while are recompressed
//! (`compressed_ram/recompress.rs`), and the file comes after that.
//!
//! The library works in memory that it is given, and then calls no allocator. A page needs no frame magic number, no
//! checksum and no dictionary: a dictionary of the program's other pages would gain only a twentieth.
//!
//! Contexts for decompression are taken on the way of a fault. They lie in a mapping, so the stack of a signal handler
//! holds little more than the calls. A context is made when it is first taken, and touches a third of its memory.

use crate::mem::{Mapping, PAGE};
use crate::scratch::Seats;
use millpond_core::port::LoadError;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_setParameter, ZSTD_DCtx, ZSTD_DCtx_setParameter, ZSTD_cParameter,
    ZSTD_compress2, ZSTD_dParameter, ZSTD_decompressDCtx, ZSTD_estimateCCtxSize_usingCParams,
    ZSTD_estimateDCtxSize, ZSTD_format_e, ZSTD_getCParams, ZSTD_initStaticCCtx,
    ZSTD_initStaticDCtx,
};

/// How hard zstd tries. The third level, the usual one, gains a fiftieth of what is left, and takes a fifth longer.
const LEVEL: i32 = 1;

/// Contexts for decompression. A caller takes one, and waits if there is none.
pub(crate) struct Unpackers {
    map: Mapping,
    /// Number of bytes of each context.
    size: usize,
    seats: Seats,
    /// Whether each context was made.
    made: [AtomicBool; Seats::COUNT],
}

impl Unpackers {
    /// Maps room for all contexts, which takes no RAM yet.
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: the function computes a number.
        let size = unsafe { ZSTD_estimateDCtxSize() }.next_multiple_of(PAGE);
        Ok(Self {
            map: Mapping::new(Seats::COUNT * size)?,
            size,
            seats: Seats::new(),
            made: [const { AtomicBool::new(false) }; Seats::COUNT],
        })
    }

    /// Takes a context, and waits until one is free.
    pub(crate) fn acquire(&self) -> Unpacker<'_> {
        let index = self.seats.take();
        // SAFETY: the mapping has room for this many contexts, and `index` is below that.
        let room = unsafe { self.map.as_ptr().add(index * self.size) };
        if !self.made[index].load(Relaxed) {
            // SAFETY: the seat makes this room ours alone; it is aligned to a page and as long as the library asks.
            let made = unsafe { ZSTD_initStaticDCtx(room.cast(), self.size) };
            assert_eq!(
                made.cast(),
                room,
                "a context for zstd lies where its room is"
            );
            let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as i32;
            // SAFETY: the context was just made.
            unsafe {
                ZSTD_DCtx_setParameter(made, ZSTD_dParameter::ZSTD_d_experimentalParam1, magicless)
            };
            self.made[index].store(true, Relaxed);
        }
        Unpacker {
            pool: self,
            index,
            context: room.cast(),
        }
    }

    /// The most RAM that the contexts take.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let made = self.made.iter().filter(|made| made.load(Relaxed)).count();
        (made * self.size) as u64
    }
}

/// A context for decompression that one caller owns.
pub(crate) struct Unpacker<'a> {
    pool: &'a Unpackers,
    index: usize,
    context: *mut ZSTD_DCtx,
}

impl Unpacker<'_> {
    /// Fills `out` from what [`Packer::pack`] made. If the bytes are damaged, this fails, or the checksum refuses the
    /// result.
    pub(crate) fn unpack(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<(), LoadError> {
        // SAFETY: the seat makes the context ours alone. The library reads the one and writes the other slice, within
        // their bounds whatever the bytes are. It allocates nothing with a context in memory that it was given.
        let size = unsafe {
            ZSTD_decompressDCtx(
                self.context,
                out.as_mut_ptr().cast(),
                out.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        };
        // An error is a number near the greatest one.
        if size == out.len() {
            Ok(())
        } else {
            Err(LoadError::Corrupt)
        }
    }
}

impl Drop for Unpacker<'_> {
    fn drop(&mut self) {
        self.pool.seats.give_back(self.index);
    }
}

/// A context for compression.
pub(crate) struct Packer {
    /// The memory that the context lies in.
    room: Mapping,
    size: usize,
}

impl Packer {
    /// Makes a context.
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: both functions compute numbers.
        let size =
            unsafe { ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(LEVEL, PAGE as u64, 0)) };
        let packer = Self {
            room: Mapping::new(size)?,
            size,
        };
        let room = packer.room.as_ptr();
        // SAFETY: the room is the context's own, aligned to a page, and as long as the library asks.
        let context = unsafe { ZSTD_initStaticCCtx(room.cast(), size) };
        assert_eq!(
            context.cast(),
            room,
            "a context for zstd lies where its room is"
        );
        let magicless = ZSTD_format_e::ZSTD_f_zstd1_magicless as i32;
        // SAFETY: the context was just made.
        unsafe {
            ZSTD_CCtx_setParameter(
                context,
                ZSTD_cParameter::ZSTD_c_experimentalParam2,
                magicless,
            );
            ZSTD_CCtx_setParameter(context, ZSTD_cParameter::ZSTD_c_compressionLevel, LEVEL);
        }
        Ok(packer)
    }

    /// RAM that the context takes.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.size as u64
    }

    /// Compresses `page` to the start of `out`. Returns how many bytes that took, or `None` if they do not fit.
    pub(crate) fn pack(&mut self, page: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY: `&mut self` makes the context ours alone. The library reads the one and writes the other slice
        // within their bounds, and allocates nothing with a context in memory that it was given.
        let size = unsafe {
            ZSTD_compress2(
                self.room.as_ptr().cast::<ZSTD_CCtx>(),
                out.as_mut_ptr().cast(),
                out.len(),
                page.as_ptr().cast(),
                page.len(),
            )
        };
        (size <= out.len()).then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(page: &[u8]) -> Option<Vec<u8>> {
        let mut packer = Packer::new().unwrap();
        let mut out = vec![0; PAGE];
        // The second time shows that a context may be used again.
        packer.pack(&[3; PAGE], &mut out).unwrap();
        let size = packer.pack(page, &mut out)?;
        out.truncate(size);
        Some(out)
    }

    fn pages() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            (prop::collection::vec(any::<u8>(), 1..12), 1usize..2000)
                .prop_map(|(pattern, len)| pattern.into_iter().cycle().take(len).collect()),
            prop::collection::vec(any::<u8>(), 1..300),
            prop::collection::vec(0u8..4, 1..600),
        ];
        prop::collection::vec(piece, 1..12).prop_map(|pieces: Vec<Vec<u8>>| {
            let all = pieces.concat().into_iter().cycle();
            all.take(PAGE).collect()
        })
    }

    proptest! {
        #[test]
        fn a_single_page_round_trips(page in pages()) {
            let pool = Unpackers::new().unwrap();
            if let Some(bytes) = packed(&page) {
                let mut out = vec![0xa5; PAGE];
                prop_assert_eq!(pool.acquire().unpack(&bytes, &mut out), Ok(()));
                prop_assert!(out == page);
                for len in [0, 1, PAGE - 1, PAGE + 1] {
                    let loaded = pool.acquire().unpack(&bytes, &mut vec![0; len]);
                    prop_assert_eq!(loaded, Err(LoadError::Corrupt));
                }
            }
        }

        #[test]
        fn damage_is_an_error_or_other_bytes(
            page in pages(), at in any::<prop::sample::Index>(), bits in 1u8..,
        ) {
            let pool = Unpackers::new().unwrap();
            if let Some(mut bytes) = packed(&page) {
                let at = at.index(bytes.len());
                let mut out = vec![0; PAGE];
                let _ = pool.acquire().unpack(&bytes[..at], &mut out);
                bytes[at] ^= bits;
                // The answer does not matter, but the decompression must end and stay within its bounds.
                let _ = pool.acquire().unpack(&bytes, &mut out);
                // The context is as good as before.
                bytes[at] ^= bits;
                prop_assert_eq!(pool.acquire().unpack(&bytes, &mut out), Ok(()));
                prop_assert!(out == page);
            }
        }

        #[test]
        fn arbitrary_input_is_decompressed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let pool = Unpackers::new().unwrap();
            let _ = pool.acquire().unpack(&bytes, &mut [0; PAGE]);
        }
    }

    #[test]
    fn contexts_take_ram_once_used_and_successive_uses_share_one() {
        let pool = Unpackers::new().unwrap();
        assert_eq!(pool.ram_bytes(), 0);
        (0..3).for_each(|_| drop(pool.acquire()));
        assert_eq!(pool.ram_bytes(), pool.size as u64);
        let (_first, _second) = (pool.acquire(), pool.acquire());
        assert_eq!(pool.ram_bytes(), 2 * pool.size as u64);
    }
}
