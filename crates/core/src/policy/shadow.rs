//! The shadow that a page leaves behind: when it was last seen in use, in the spare bits of its entry.
//!
//! These facts fit into the spare bits of a page's entry (`leaf/packing.rs`): that there is a shadow; whether the page
//! was active (*workingset*, for `workingset_restore`); node and group; and the age, without its `bucket_order` lowest
//! bits, modulo 2^`timestamp_bits`. The bits are allocated when the core is built ([`ShadowLayout`]). Ages must cover
//! all reuse distances that can matter: the oldest active folio's idle time, which is a few times the number of faults
//! in which memory turns over. `max_order` is the logarithm of that, four times the limit; the buckets make up for bits
//! that the timestamp lacks. A distance beyond 2^(`timestamp_bits` + `bucket_order`) looks like a short one, and its
//! page is activated for nothing; so remaining bits go to the timestamp, up to 64 times as far. A shadow of another
//! node or group means nothing by this lruvec's clock, and is ignored.
//!
//! # Whose shadow it is
//! A region can be moved to another group, and a removed group leaves its regions to its parent; then its number is
//! reused. An older shadow must not be compared with the lists of the group that has the region, or the number, now.
//! Moving visits each entry anyway (`hand_over` in `ops/charge.rs`), and forgets the shadows there: by another clock an
//! age means nothing. So since the last visit of an entry its group can have changed only to the parent, and each of
//! these groups lies at another depth of the tree. *The depth identifies the group*: it is the present group's depth
//! exactly if no group was removed since. That takes three bits, is never wrong, and removing a group need not search
//! for the shadows that it has left behind. (A number of the group itself would take eight bits, and be reused.) A page
//! that leaves memory on a removed group's account leaves no shadow.
//!
//! A page whose contents were dropped under pressure also leaves a shadow, in an entry of its own. Tables that hold
//! only such entries are bounded: a lruvec with `n` pages keeps `n/256` of them, 16 bytes per page. A shadow is useful
//! while its page could have been held, so more shadows than pages rarely tell anything; tables with half of their
//! entries used have `n` shadows for `n` pages. The oldest are dropped first (`workingset_nodereclaim`).

use crate::ids::NodeId;
use crate::limits::{MAX_GROUP_DEPTH, MAX_NODES, SHADOW_BITS_LEAST};
use crate::tables::folio::Folio;
use std::fmt;

/// How the bits of a shadow are allocated. It prints as `timestamp_bits=… max_order=… bucket_order=…`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowLayout {
    node_bits: u32,
    /// Bits of the age.
    pub timestamp_bits: u32,
    /// Logarithm of the longest distance that should be distinguishable from shorter ones.
    pub max_order: u32,
    /// Logarithm of the size of a bucket: distances inside one bucket are not distinguished.
    pub bucket_order: u32,
}

impl fmt::Display for ShadowLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "timestamp_bits={} max_order={} bucket_order={}",
            self.timestamp_bits, self.max_order, self.bucket_order
        )
    }
}

/// The shadow that a page has left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shadow {
    pub(crate) workingset: bool,
    age: u32,
}

/// Bits in every shadow: that it is one, and whether the page was active.
const FIXED_BITS: u32 = 2;
/// Bits for the depth of a group.
const DEPTH_BITS: u32 = MAX_GROUP_DEPTH.ilog2();

const _: () = assert!(MAX_GROUP_DEPTH.is_power_of_two());
const _: () = assert!(
    FIXED_BITS + DEPTH_BITS + MAX_NODES.ilog2() < SHADOW_BITS_LEAST as u32 - 1,
    "the age has bits in the narrowest shadow, too"
);
/// If there are enough bits, distances are distinguished up to this many powers of two beyond the longest that matters.
/// A page whose distance looks short because the age has wrapped round would be activated for nothing.
const FURTHER_ORDER: u32 = 6;

impl ShadowLayout {
    /// The layout for shadows of `bits` bits, at least 12, in a budget of `limit` pages on `nodes` nodes.
    pub(crate) fn new(bits: u32, limit: u32, nodes: u8) -> Self {
        let node_bits = u32::from(nodes).next_power_of_two().ilog2();
        let max_order = (limit.max(2) - 1).ilog2() + 1 + 2;
        let left = bits - FIXED_BITS - node_bits - DEPTH_BITS;
        let timestamp_bits = left.min(max_order + FURTHER_ORDER);
        Self {
            node_bits,
            timestamp_bits,
            max_order,
            bucket_order: max_order.saturating_sub(timestamp_bits),
        }
    }

    fn mask(bits: u32) -> u32 {
        ((1_u64 << bits) - 1) as u32
    }

    /// The shadow of a folio that leaves and whose group lies at this `depth`.
    pub(crate) fn pack(&self, folio: &Folio, depth: u8) -> u32 {
        let age = folio.age >> self.bucket_order & Self::mask(self.timestamp_bits);
        let bits = age << DEPTH_BITS | u32::from(depth);
        let bits = bits << self.node_bits | u32::from(folio.node.0);
        bits << FIXED_BITS | u32::from(folio.is_active()) << 1 | 1
    }

    /// The shadow in these bits, if it was left by a page of the present group, at this `depth`, and of this node.
    pub(crate) fn unpack(&self, bits: u32, depth: u8, node: NodeId) -> Option<Shadow> {
        let own = Some((depth, node));
        (self.whose(bits) == own).then_some(Shadow {
            workingset: bits & 2 != 0,
            age: bits >> (FIXED_BITS + self.node_bits + DEPTH_BITS),
        })
    }

    /// The depth of the group that left the shadow in these bits, and the node.
    pub(crate) fn whose(&self, bits: u32) -> Option<(u8, NodeId)> {
        let rest = bits >> FIXED_BITS;
        let node = NodeId((rest & Self::mask(self.node_bits)) as u8);
        let depth = (rest >> self.node_bits & Self::mask(DEPTH_BITS)) as u8;
        (bits & 1 != 0).then_some((depth, node))
    }

    /// How long ago the shadow's page was last seen in use, by a clock that shows `now`.
    pub(crate) fn distance(&self, shadow: Shadow, now: u32) -> u32 {
        let buckets = (now >> self.bucket_order).wrapping_sub(shadow.age);
        (buckets & Self::mask(self.timestamp_bits)) << self.bucket_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::folio::folio_of_age;

    #[test]
    fn layout_prints_how_its_bits_are_allocated() {
        // A budget of 1 GiB in 64 GiB of addresses: 25 bits of slot number leave 27.
        let wide = ShadowLayout::new(27, 1 << 18, 1);
        assert_eq!(
            wide.to_string(),
            "timestamp_bits=22 max_order=20 bucket_order=0"
        );
        let sixteen = ShadowLayout::new(16, 1 << 18, 2);
        assert_eq!(
            sixteen.to_string(),
            "timestamp_bits=10 max_order=20 bucket_order=10"
        );
        let narrow = ShadowLayout::new(12, 1 << 16, 1);
        assert_eq!(
            narrow.to_string(),
            "timestamp_bits=7 max_order=18 bucket_order=11"
        );
        // The timestamp has only the bits for ages that wrap round after 64 times the distance to distinguish.
        assert_eq!(
            ShadowLayout::new(32, 4096, 1).to_string(),
            "timestamp_bits=20 max_order=14 bucket_order=0"
        );
    }

    #[test]
    fn distances_survive_packing_up_to_the_bucket_size() {
        for bits in [12, 16, 20, 27, 32] {
            let layout = ShadowLayout::new(bits, 1 << 16, 1);
            let bucket = 1_u32 << layout.bucket_order;
            for (age, since) in [
                (0_u32, 0_u32),
                (5, 70_000),
                (u32::MAX - 100, 200),
                (1 << 31, 1000),
            ] {
                let shadow = layout.pack(&folio_of_age(age, true), 0);
                assert!(u64::from(shadow) < 1 << bits);
                let found = layout.unpack(shadow, 0, NodeId(0)).unwrap();
                assert!(found.workingset);
                let distance = layout.distance(found, age.wrapping_add(since));
                assert!(
                    distance.abs_diff(since) <= bucket,
                    "{bits}: {since} became {distance}"
                );
            }
        }
    }

    #[test]
    fn shadow_of_another_group_or_node_is_ignored() {
        let layout = ShadowLayout::new(27, 1 << 16, 4);
        let mut left = folio_of_age(7, false);
        left.node = NodeId(2);
        let shadow = layout.pack(&left, 3);
        assert_eq!(layout.whose(shadow), Some((3, NodeId(2))));
        assert!(layout.unpack(shadow, 3, NodeId(2)).is_some());
        assert_eq!(layout.unpack(shadow, 2, NodeId(2)), None);
        assert_eq!(layout.unpack(shadow, 3, NodeId(1)), None);
        assert_eq!(layout.unpack(0, 0, NodeId(0)), None);
    }
}
