//! Remap on real memory: a range moves whole, whatever it holds; a range that cannot move says why and stays.

mod common;

use common::{FOLIO, MIB, PAGE, eventually, fill, holds, is_zero, order, press, small, ways};
use millpond::{Advice, Contents, Manager, RangeError, Region, RemapError};

fn each_way(orders: &[u8], run: impl Fn(&Manager, &str)) {
    for (delivery, method) in ways() {
        for &n in orders {
            let builder = small().delivery(delivery).take_out(method).order(order(n));
            run(
                &builder.build().unwrap(),
                &format!("{delivery:?} {method:?} order {n}"),
            );
        }
    }
}

/// Makes a region of which some is in memory, some in limbo, and most in the store.
fn spread(manager: &Manager, bytes: usize) -> Region {
    let mut region = manager.region(bytes).unwrap();
    fill(&mut region, 0..bytes, 1);
    region.advise(0..bytes / 4, Advice::PageOut).unwrap();
    region
}

/// A region grows without a copy and keeps all that it holds.
#[test]
fn a_region_grows_without_a_copy_and_keeps_all_it_holds() {
    each_way(&[0, 4, 9], |manager, way| {
        let mut region = spread(manager, 24 * MIB);
        // A neighbour is in the way, so that the region has to move.
        let neighbour = manager.region(MIB).unwrap();
        let (old, before) = (region.as_ptr(), manager.stats().vm);
        region.grow(48 * MIB).unwrap();
        assert_ne!(region.as_ptr(), old, "{way}");
        let read = manager.stats().vm.pswpin - before.pswpin;
        assert_eq!(read, 0, "{way}: moving reads nothing from the store");
        assert!(holds(&region, 0..24 * MIB, 1), "{way}");
        assert!(is_zero(&region, 24 * MIB..48 * MIB), "{way}");
        drop(neighbour);
        let at = region.as_ptr();
        region.grow(64 * MIB).unwrap();
        assert_eq!(
            region.as_ptr(),
            at,
            "{way}: the addresses behind it were free"
        );
        region.shrink(3 * MIB + 5).unwrap();
        region.grow(8 * MIB).unwrap();
        assert!(holds(&region, 0..3 * MIB, 1), "{way}");
        assert!(is_zero(&region, 3 * MIB + PAGE..8 * MIB), "{way}");
        assert!(
            region.as_slice()[3 * MIB + 5..3 * MIB + PAGE]
                .iter()
                .all(|&byte| byte == 0),
            "{way}"
        );
    });
}

/// A range moves with its heads and tails by entry, to any place that lies alike in its 2 MiB.
#[test]
fn a_range_with_partial_leaves_at_its_ends_moves() {
    each_way(&[0, 4], |manager, way| {
        let mut from = spread(manager, 24 * MIB);
        let mut to = manager.region(24 * MIB).unwrap();
        fill(&mut to, 0..24 * MIB, 50_000);
        let range = MIB + 3 * PAGE..13 * MIB + 7 * PAGE;
        let offset = 7 * MIB + 3 * PAGE;
        from.remap(range.clone(), &mut to, offset).unwrap();
        let first = (range.start / PAGE) as u64;
        assert!(holds(&to, offset..offset + range.len(), 1 + first), "{way}");
        assert!(holds(&to, 0..offset, 50_000), "{way}");
        assert!(is_zero(&from, range.clone()), "{way}");
        assert!(holds(&from, 0..range.start, 1), "{way}");
        let behind = range.end..24 * MIB;
        assert!(
            holds(&from, behind.clone(), 1 + (range.end / PAGE) as u64),
            "{way}"
        );
        let rest = offset + range.len()..24 * MIB;
        assert!(
            holds(&to, rest.clone(), 50_000 + (rest.start / PAGE) as u64),
            "{way}"
        );
        // A range whose place does not lie alike is copied.
        from.remap(behind.clone(), &mut to, 5 * PAGE).unwrap();
        assert!(
            holds(
                &to,
                5 * PAGE..5 * PAGE + behind.len(),
                1 + (range.end / PAGE) as u64
            ),
            "{way}"
        );
        assert!(is_zero(&from, behind), "{way}");
    });
}

/// A place of our own choosing always lies alike.
#[test]
fn any_range_moves_by_its_tables_to_a_place_of_our_choosing() {
    each_way(&[4], |manager, way| {
        let mut from = spread(manager, 24 * MIB);
        for start in [0, PAGE, 2 * MIB - PAGE, 3 * MIB + 11 * PAGE] {
            let range = start..start + 4 * MIB;
            let before = manager.stats().vm;
            let moved = from.remap_anywhere(range.clone(), 4 * MIB).unwrap();
            assert!(
                manager.stats().vm.pgfault - before.pgfault <= 2,
                "{way}: by tables"
            );
            assert!(
                holds(&moved, 0..4 * MIB, 1 + (start / PAGE) as u64),
                "{way}: {start}"
            );
            assert!(is_zero(&from, range.clone()), "{way}: {start}");
            fill(&mut from, range, 1 + (start / PAGE) as u64);
        }
    });
}

/// A gigabyte that begins a little behind a whole one goes by one pointer, with the pages before it in the region.
/// Those pages are there as before, and can still be pinned.
#[test]
fn pages_before_a_moved_gigabyte_stay() {
    const GIB: usize = 1 << 30;
    each_way(&[4], |manager, way| {
        for (before, pinned) in [(PAGE, false), (MIB + 3 * PAGE, false), (2 * PAGE, true)] {
            let mut from = manager.region(before + GIB).unwrap();
            fill(&mut from, 0..before, 1);
            let ends = [before..before + MIB, before + GIB - MIB..before + GIB];
            ends.iter().for_each(|end| fill(&mut from, end.clone(), 7));
            let pin = pinned.then(|| from.pin(0..PAGE).unwrap());
            std::mem::forget(pin);
            let to = from.remap_anywhere(before..before + GIB, GIB).unwrap();
            let faults = manager.stats().vm.pgfault;
            assert!(holds(&from, 0..before, 1), "{way} {before}");
            assert!(
                holds(&to, 0..MIB, 7) && holds(&to, GIB - MIB..GIB, 7),
                "{way} {before}"
            );
            assert!(manager.stats().vm.pgfault - faults < 60, "{way}: by tables");
            assert!(is_zero(&from, before..before + 4 * MIB), "{way} {before}");
            assert!(is_zero(&to, MIB..4 * MIB), "{way} {before}");
        }
    });
}

/// A gigabyte goes by one pointer from any place in a gigabyte, with the pages behind it there. A place of our own
/// choosing has room for these, so that the next move is as short; the room that is not needed is zeros, and can be
/// grown into.
#[test]
fn pages_after_a_moved_gigabyte_stay() {
    const GIB: usize = 1 << 30;
    each_way(&[4], |manager, way| {
        for (before, behind, pinned) in [
            (GIB / 2 + PAGE, 2 * PAGE, false),
            (GIB / 2 + PAGE, 0, false),
            (GIB - PAGE, 3 * MIB, false),
            (GIB / 2 + PAGE, GIB / 2 - PAGE, false),
            (GIB - MIB, MIB, true),
        ] {
            let end = before + GIB;
            let mut from = manager.region(end + behind).unwrap();
            // Where the region has no addresses behind the range it takes free ones; in the other case a neighbour is
            // there.
            let mut neighbour = (behind > 0).then(|| manager.region(3 * MIB).unwrap());
            if let Some(region) = &mut neighbour {
                fill(region, 0..3 * MIB, 50_000);
            }
            let near = MIB + 3 * PAGE;
            let edges = [
                before - MIB.min(before)..before,
                before..before + near,
                end - near..end,
                end..end + behind.min(MIB),
            ];
            for (salt, edge) in (1..).zip(&edges) {
                fill(&mut from, edge.clone(), salt * 10_000);
            }
            let pin = pinned.then(|| from.pin(end..end + PAGE).unwrap());
            std::mem::forget(pin);
            let faults = manager.stats().vm.pgfault;
            let mut to = from.remap_anywhere(before..end, GIB).unwrap();
            for _ in 0..3 {
                to = to.remap_anywhere(0..GIB, GIB).unwrap();
            }
            assert!(manager.stats().vm.pgfault - faults < 8, "{way}: by tables");
            for salt in [1, 4] {
                let edge = edges[salt as usize - 1].clone();
                assert!(holds(&from, edge, salt * 10_000), "{way} {before} {salt}");
            }
            assert!(is_zero(&from, before..before + 2 * MIB), "{way} {before}");
            assert!(is_zero(&from, end - 2 * MIB..end), "{way} {before}");
            assert!(holds(&to, 0..near, 20_000), "{way} {before}");
            assert!(holds(&to, GIB - near..GIB, 30_000), "{way} {before}");
            assert!(is_zero(&to, near..4 * MIB), "{way} {before}");
            let unharmed = |region| holds(region, 0..3 * MIB, 50_000);
            assert!(neighbour.as_ref().is_none_or(unharmed), "{way} {before}");
            assert_eq!(from.len(), end + behind);
            to.grow(GIB + MIB).unwrap();
            assert!(is_zero(&to, GIB..GIB + MIB), "{way} {before}");
            assert!(holds(&to, GIB - near..GIB, 30_000), "{way} {before}");
        }
    });
}

/// Lazy marks and volatile ranges move along.
#[test]
fn lazy_marks_and_volatile_ranges_move_along() {
    each_way(&[4], |manager, way| {
        let (mut from, mut to) = (
            manager.region(8 * MIB).unwrap(),
            manager.region(8 * MIB).unwrap(),
        );
        fill(&mut from, 0..4 * MIB, 1);
        from.lazy_free(0..MIB).unwrap();
        // SAFETY: nothing refers to the bytes.
        unsafe { from.mark_volatile(2 * MIB..3 * MIB) }.unwrap();
        let straddles = from.remap(0..2 * MIB + FOLIO, &mut to, 0).unwrap_err();
        assert_eq!(straddles, RemapError::Volatile { offset: 2 * MIB }, "{way}");
        from.remap(0..4 * MIB, &mut to, 0).unwrap();
        assert_eq!(manager.stats().lazyfree_bytes(), MIB as u64, "{way}");
        assert_eq!(
            to.mark_nonvolatile(2 * MIB..3 * MIB),
            Ok(Contents::Survived),
            "{way}"
        );
        // SAFETY: nothing refers to the bytes.
        unsafe { to.mark_volatile(2 * MIB..3 * MIB) }.unwrap();
        press(manager, 24 * MIB);
        assert_eq!(
            to.mark_nonvolatile(2 * MIB..3 * MIB),
            Ok(Contents::Purged),
            "{way}"
        );
        assert!(
            holds(&to, 3 * MIB..4 * MIB, 1 + (3 * MIB / PAGE) as u64),
            "{way}"
        );
    });
}

/// A range that was volatile at the destination used to keep its place among the oldest, along with the range of the
/// data that moved there, and was purged after the owner had taken the mark back: that data was lost.
#[test]
fn a_volatile_range_at_the_destination_is_forgotten() {
    each_way(&[4], |manager, way| {
        let (mut from, mut to) = (
            manager.region(4 * MIB).unwrap(),
            manager.region(4 * MIB).unwrap(),
        );
        fill(&mut from, 0..4 * MIB, 1);
        for region in [&mut to, &mut from] {
            // SAFETY: nothing refers to the bytes.
            unsafe { region.mark_volatile(2 * MIB..3 * MIB) }.unwrap();
        }
        from.remap(0..4 * MIB, &mut to, 0).unwrap();
        assert_eq!(
            to.mark_nonvolatile(2 * MIB..3 * MIB),
            Ok(Contents::Survived),
            "{way}"
        );
        press(manager, 24 * MIB);
        assert!(holds(&to, 0..4 * MIB, 1), "{way}");
    });
}

/// A mark of which only a half moved would never be taken back, and would purge data that is put there later.
#[test]
fn moving_or_cutting_off_part_of_a_volatile_range_is_refused() {
    let manager = small().build().unwrap();
    let (mut region, mut other) = (
        manager.region(8 * MIB).unwrap(),
        manager.region(8 * MIB).unwrap(),
    );
    // SAFETY: nothing refers to the bytes.
    unsafe { region.mark_volatile(MIB..3 * MIB) }.unwrap();
    let cut = RemapError::Volatile { offset: MIB };
    assert_eq!(region.shrink(2 * MIB), Err(cut.clone()));
    assert_eq!(other.remap(0..2 * MIB, &mut region, 2 * MIB), Err(cut));
    assert_eq!(
        region.mark_nonvolatile(MIB..3 * MIB),
        Ok(Contents::Survived)
    );
    region.shrink(2 * MIB).unwrap();
}

/// A pinned page refuses the move, and nothing moves.
#[test]
fn a_move_of_a_pinned_page_is_refused_and_changes_nothing() {
    each_way(&[4], |manager, way| {
        let mut from = spread(manager, 8 * MIB);
        let mut to = manager.region(8 * MIB).unwrap();
        std::mem::forget(from.pin(5 * PAGE..6 * PAGE).unwrap());
        let pinned = RemapError::from(RangeError::Pinned { offset: 5 * PAGE });
        assert_eq!(
            from.remap(0..4 * MIB, &mut to, 0),
            Err(pinned.clone()),
            "{way}"
        );
        assert_eq!(
            from.remap(0..4 * MIB, &mut to, PAGE),
            Err(pinned.clone()),
            "{way}: by copy"
        );
        let _in_the_way = manager.region(MIB).unwrap();
        assert_eq!(from.grow(16 * MIB), Err(pinned), "{way}");
        assert!(
            holds(&from, 0..8 * MIB, 1) && is_zero(&to, 0..8 * MIB),
            "{way}"
        );
    });
}

#[test]
fn bad_ranges_and_foreign_regions_are_refused() {
    let manager = small().build().unwrap();
    let (mut from, mut to) = (
        manager.region(8 * MIB).unwrap(),
        manager.region(4 * MIB).unwrap(),
    );
    let refused = [
        (0..0, 0),
        (0..9 * MIB, 0),
        (0..4 * MIB, PAGE),
        (1..PAGE, 0),
        (0..PAGE, 7),
        (0..PAGE - 1, 0),
    ];
    for (range, offset) in refused {
        let error = from.remap(range.clone(), &mut to, offset).unwrap_err();
        let expected = matches!(
            error,
            RemapError::Range(RangeError::Bad { .. } | RangeError::Unaligned { .. })
        );
        assert!(expected, "{range:?} to {offset}: {error}");
    }
    let other = small().build().unwrap();
    let mut foreign = other.region(8 * MIB).unwrap();
    assert_eq!(
        from.remap(0..PAGE, &mut foreign, 0),
        Err(RemapError::OtherManager)
    );
    assert!(from.shrink(0).is_err() && from.shrink(9 * MIB).is_err() && from.grow(MIB).is_err());
    assert!(matches!(
        from.grow(1 << 50),
        Err(RemapError::NoAddressSpace { .. })
    ));
}

/// A snapshot's shares are held by their offset: a region that has such shares moves whole, or copies.
#[test]
fn a_region_that_shares_with_a_snapshot_moves() {
    each_way(&[4], |manager, way| {
        let mut source = spread(manager, 8 * MIB);
        let snapshot = source.snapshot().unwrap();
        let _in_the_way = manager.region(MIB).unwrap();
        source.grow(32 * MIB).unwrap();
        assert!(
            holds(&source, 0..8 * MIB, 1) && is_zero(&source, 8 * MIB..32 * MIB),
            "{way}"
        );
        let mut to = manager.region(8 * MIB).unwrap();
        source.remap(2 * MIB..4 * MIB, &mut to, 0).unwrap();
        assert!(holds(&to, 0..2 * MIB, 1 + (2 * MIB / PAGE) as u64), "{way}");
        source.shrink(3 * MIB).unwrap();
        assert!(holds(&snapshot, 0..8 * MIB, 1), "{way}");
        drop(snapshot);
        assert!(
            holds(&source, 0..2 * MIB, 1) && is_zero(&source, 2 * MIB..3 * MIB),
            "{way}"
        );
    });
}

#[test]
fn a_vector_grows_by_pushes_beyond_the_budget() {
    let manager = small().build().unwrap();
    let mut numbers = manager.vec_with_capacity::<u64>(1).unwrap();
    let mut others = Vec::new();
    let count = 6 << 20;
    for n in 0..count {
        numbers.push(n).unwrap();
        if n % (1 << 20) == 0 {
            // This region is in the vector's way.
            others.push(manager.region(PAGE).unwrap());
        }
    }
    assert!(numbers.iter().zip(0..).all(|(&found, n)| found == n));
    numbers.truncate(1000);
    numbers.extend_from_slice(&[1, 2, 3]).unwrap();
    assert_eq!(
        (numbers.len(), numbers[1002], numbers.pop()),
        (1003, 3, Some(3))
    );
    assert_eq!(numbers[999], 999);
    assert!(eventually(|| manager.stats().vm.nr_swapped < 1000));
}
