//! Groups on real memory.

mod common;

use common::{MIB, PAGE, eventually, fill, holds, order, small};
use millpond::{Group, GroupError, GroupLimits, Manager, MoveError, PinError, Region};

fn group(manager: &Manager, name: &str, limits: GroupLimits) -> Group {
    manager.group(&manager.root(), name, limits).unwrap()
}

fn region_of(manager: &Manager, group: &Group, len: usize) -> Region {
    let builder = Region::builder().order(order(0)).group(group);
    builder.build(manager, len).unwrap()
}

/// A group keeps its max however much of the budget is free, and whatever the folios' order.
#[test]
fn faults_keep_a_group_within_its_max() {
    for folio in [0, 4, 9] {
        let manager = Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .ram(128 << 20)
            .build()
            .unwrap();
        let boxed = group(&manager, "boxed", GroupLimits::new().max(8 << 20));
        let mut other = manager.region(16 * MIB).unwrap();
        fill(&mut other, 0..16 * MIB, 1);
        let builder = Region::builder().order(order(folio)).group(&boxed);
        let mut region = builder.build(&manager, 32 * MIB).unwrap();
        for at in (0..32 * MIB).step_by(MIB) {
            fill(&mut region, at..at + MIB, at as u64);
            let usage = boxed.stats().unwrap().usage;
            assert!(usage <= 8 << 20, "order {folio}: {usage}");
        }
        for at in (0..32 * MIB).step_by(MIB) {
            assert!(holds(&region, at..at + MIB, at as u64));
        }
        let stats = boxed.stats().unwrap();
        assert!(stats.events.max > 0 && stats.stored > 0, "{stats:?}");
        // The other region did not pay for it.
        assert_eq!(other.stats().resident, 16 << 20);
    }
}

/// A thread that works above high reclaims before each fault: the group stays near it, far below its max.
#[test]
fn a_group_above_its_high_is_reclaimed() {
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(128 << 20)
        .build()
        .unwrap();
    let group = group(&manager, "tame", GroupLimits::new().high(8 << 20));
    let mut region = region_of(&manager, &group, 32 * MIB);
    fill(&mut region, 0..32 * MIB, 3);
    let stats = group.stats().unwrap();
    assert!(stats.usage <= 9 << 20, "{stats:?}");
    assert!(stats.events.high > 0 && stats.events.max == 0, "{stats:?}");
    assert!(holds(&region, 0..32 * MIB, 3));
}

/// Reads all of the region, page by page.
fn read(region: &Region) {
    for byte in region.as_slice().iter().step_by(PAGE) {
        std::hint::black_box(*byte);
    }
}

/// Number of faults of the quiet group that brought back pages which had to leave.
fn refaults_of_the_quiet(with_thrashing: bool) -> u64 {
    const QUIET: usize = 12 * MIB;
    let manager = small().ram(32 << 20).build().unwrap();
    let quiet = group(&manager, "quiet", GroupLimits::new().low(16 << 20));
    let busy = group(&manager, "busy", GroupLimits::new());
    let mut mine = region_of(&manager, &quiet, QUIET);
    fill(&mut mine, 0..QUIET, 7);
    let mut theirs = region_of(&manager, &busy, 96 * MIB);
    let before = quiet.stats().unwrap().vm;
    std::thread::scope(|scope| {
        if with_thrashing {
            scope.spawn(|| (0..3).for_each(|n| fill(&mut theirs, 0..96 * MIB, n)));
        }
        for _ in 0..200 {
            read(&mine);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    if with_thrashing {
        assert!(busy.stats().unwrap().vm.pswpout > 10_000, "nobody thrashed");
    }
    let vm = quiet.stats().unwrap().vm;
    vm.pgfault - before.pgfault
}

/// One group thrashes, one is quiet: the quiet group's refaults, including rescues, are within 5 % of those that it has
/// alone.
#[test]
fn a_quiet_group_does_not_pay_for_a_thrashing_one() {
    let alone = refaults_of_the_quiet(false);
    let beside = refaults_of_the_quiet(true);
    // 3,072 pages are read 200 times.
    let noise = 3072 * 200 / 1000;
    assert!(
        beside <= alone + alone / 20 + noise / 20,
        "{beside} refaults beside a thrashing group, {alone} alone"
    );
}

#[test]
fn moved_region_takes_its_memory_and_removal_charges_the_parent() {
    let manager = small().build().unwrap();
    let above = group(&manager, "above", GroupLimits::new());
    let below = manager.group(&above, "below", GroupLimits::new()).unwrap();
    assert_eq!(below.path(), "above/below");
    let mut region = manager.region_with(24 * MIB, order(2)).unwrap();
    fill(&mut region, 0..24 * MIB, 9);
    region.move_to(&below).unwrap();
    let had = below.stats().unwrap();
    assert!(had.usage > 0 && had.stored > 0);
    assert_eq!(manager.root().stats().unwrap().usage, had.usage);
    assert_eq!(above.clone().remove(), Err(GroupError::InUse));
    let known = below.clone();
    below.remove().unwrap();
    assert_eq!(known.stats(), Err(GroupError::Removed));
    assert_eq!(region.move_to(&known), Err(MoveError::Removed));
    let left = above.stats().unwrap();
    assert_eq!((left.usage, left.stored), (had.usage, had.stored));
    above.remove().unwrap();
    assert!(holds(&region, 0..24 * MIB, 9));
}

/// Threads use a region while it cycles through groups with narrow limits.
#[test]
fn a_region_in_use_changes_groups_and_loses_nothing() {
    let manager = small().build().unwrap();
    let limits = |mib: u64| GroupLimits::new().max(mib << 20);
    let homes = [
        group(&manager, "a", limits(4)),
        group(&manager, "b", limits(6)),
        manager.root(),
    ];
    let mut region = manager.region_with(24 * MIB, order(1)).unwrap();
    fill(&mut region, 0..24 * MIB, 5);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while std::time::Instant::now() < end {
                    assert!(holds(&region, 0..24 * MIB, 5));
                }
            });
        }
        for home in homes.iter().cycle() {
            region.move_to(home).unwrap();
            if std::time::Instant::now() > end {
                break;
            }
        }
    });
    let sum: u64 = homes[..2].iter().map(|g| g.stats().unwrap().usage).sum();
    assert!(sum <= manager.root().stats().unwrap().usage);
}

#[test]
fn a_lower_max_is_kept_when_the_call_returns() {
    let manager = small().ram(64 << 20).build().unwrap();
    let group = group(&manager, "g", GroupLimits::new());
    let mut region = region_of(&manager, &group, 24 * MIB);
    fill(&mut region, 0..24 * MIB, 2);
    group.set_limits(GroupLimits::new().max(8 << 20)).unwrap();
    assert!(group.stats().unwrap().usage <= 8 << 20);
    assert!(holds(&region, 0..24 * MIB, 2));
}

#[test]
fn lazily_freed_memory_has_a_cap_by_group() {
    let manager = small().ram(64 << 20).build().unwrap();
    let capped = group(&manager, "capped", GroupLimits::new().lazyfree_max(1 << 20));
    let mut region = region_of(&manager, &capped, 8 * MIB);
    let mut other = manager.region(8 * MIB).unwrap();
    for region in [&mut region, &mut other] {
        fill(region, 0..8 * MIB, 2);
        region.lazy_free(0..8 * MIB).unwrap();
    }
    assert!(capped.stats().unwrap().lazyfree <= 1 << 20);
    assert_eq!(
        manager.root().stats().unwrap().lazyfree,
        manager.stats().lazyfree_bytes()
    );
    assert!(other.stats().lazyfree == 8 << 20);
}

/// A thread that only waits for memory: nearly all of its time is some and full pressure, in its group and above it.
#[test]
fn waiting_shows_as_pressure() {
    let manager = small().build().unwrap();
    let tight = group(&manager, "tight", GroupLimits::new().max(4 << 20));
    let idle = group(&manager, "idle", GroupLimits::new());
    let mut region = region_of(&manager, &tight, 16 * MIB);
    fill(&mut region, 0..16 * MIB, 2);
    let seen = eventually(|| {
        read(&region);
        tight.pressure().some.avg10 > 5.0
    });
    let (tight, root) = (tight.pressure(), manager.root().pressure());
    assert!(seen, "{tight:?}");
    assert!(
        tight.full.total <= tight.some.total && tight.full.avg10 > 2.0,
        "{tight:?}"
    );
    assert!(root.some.total >= tight.some.total / 2, "{root:?}");
    assert!(tight.some.avg10 >= tight.some.avg60 && tight.some.avg60 >= tight.some.avg300);
    assert_eq!(idle.pressure().some.total, std::time::Duration::ZERO);
}

#[test]
fn pins_leave_a_quarter_of_a_max() {
    let manager = small().ram(64 << 20).build().unwrap();
    let group = group(&manager, "g", GroupLimits::new().max(4 << 20));
    let region = region_of(&manager, &group, 8 * MIB);
    let refused = region.pin(0..4 * MIB).map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, PinError::OverBudget { ram, .. } if ram == 4 << 20),
        "{refused}"
    );
    let guard = region.pin(0..2 * MIB).unwrap();
    assert!(region.pin(2 * MIB..4 * MIB).is_err());
    drop(guard);
}

#[test]
fn errors_name_the_value_and_a_remedy() {
    let (manager, other) = (small().build().unwrap(), small().build().unwrap());
    let none = GroupLimits::new();
    let make = |name: &str, limits| manager.group(&manager.root(), name, limits).map(|_| ());
    let kept = group(&manager, "a", none);
    let error = make("a", none).unwrap_err();
    assert_eq!(error, GroupError::NameTaken { name: "a".into() });
    assert!(error.to_string().contains("remove it first"));
    assert!(matches!(make("a/b", none), Err(GroupError::BadName { .. })));
    let error = make("b", none.low(9 << 20).high(8 << 20)).unwrap_err();
    assert!(error.to_string().contains("low 9437184"), "{error}");
    let error = make("b", none.max(1 << 20)).unwrap_err();
    assert!(error.to_string().contains("1048576"), "{error}");
    assert_eq!(manager.root().set_limits(none), Err(GroupError::Root));
    assert_eq!(manager.root().remove(), Err(GroupError::Root));
    let foreign = manager.group(&other.root(), "x", none).map(|_| ());
    assert_eq!(foreign, Err(GroupError::OtherManager));
    let region = other.region(PAGE).unwrap();
    assert_eq!(region.move_to(&kept), Err(MoveError::OtherManager));
    let built = Region::builder().group(&kept).build(&other, PAGE);
    assert!(built.is_err());
    let mut at = manager.root();
    let deep = (0..20).find_map(|_| match manager.group(&at, "deep", none) {
        Ok(group) => {
            at = group;
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(deep, Some(GroupError::TooDeep { most: 8 }));
    let mut made = Vec::new();
    let many = (0..300).find_map(|n| {
        let group = manager.group(&manager.root(), &n.to_string(), none);
        group.map(|group| made.push(group)).err()
    });
    assert_eq!(many, Some(GroupError::TooMany { most: 256 }));
    made.pop().unwrap().remove().unwrap();
    assert!(make("last", none).is_ok());
}
