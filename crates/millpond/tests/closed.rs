//! A manager without userfaultfd, whatever the kernel offers. (All other tests run this way with `MILLPOND_MASK=uffd`.)

mod common;

use common::{MIB, PAGE, fill, holds, is_zero, order, page_is, small, write_page};
use millpond::{Manager, ManagerBuilder, Mask, OrderPolicy, StoreKind};

/// The manager without userfaultfd. Returns `None`, with a line that says why, if that is not possible.
fn closed(builder: ManagerBuilder) -> Option<Manager> {
    let mask = Mask {
        uffd: true,
        ..Mask::default()
    };
    let built = builder.mask(mask).build();
    let built = built.inspect_err(|error| println!("skipped: {error}"));
    let manager = built.ok()?;
    assert!(!manager.capabilities().userfaultfd);
    Some(manager)
}

#[test]
fn twice_the_budget_is_filled_read_and_discarded() {
    for policy in ["0", "2", "4", "6", "9", "adaptive"] {
        let policy: OrderPolicy = policy.parse().unwrap();
        let Some(manager) = closed(small().order(policy)) else {
            return;
        };
        let mut region = manager.region(32 * MIB).unwrap();
        fill(&mut region, 0..32 * MIB, 1);
        assert!(holds(&region, 0..32 * MIB, 1), "{policy}");
        region.discard(8 * MIB..24 * MIB).unwrap();
        assert!(is_zero(&region, 8 * MIB..24 * MIB), "{policy}");
        assert!(holds(&region, 0..8 * MIB, 1), "{policy}");
        let snapshot = region.snapshot().unwrap();
        fill(&mut region, 0..32 * MIB, 9);
        let rest = 1 + common::pages(24 * MIB);
        assert!(holds(&snapshot, 24 * MIB..32 * MIB, rest), "{policy}");
        assert!(holds(&region, 0..32 * MIB, 9), "{policy}");
    }
}

/// Single pages far apart are runs of their own for the kernel, which allows fewer mappings than there are pages here.
#[test]
fn every_other_page_stays_in_memory_and_leaves_it() {
    const LEN: usize = 1 << 30;
    let builder = Manager::builder()
        .ram(600 << 20)
        .store(StoreKind::compressed_ram())
        .order(order(0));
    let Some(manager) = closed(builder) else {
        return;
    };
    let mut region = manager.region(LEN).unwrap();
    let pages = || (0..LEN).step_by(2 * PAGE);
    for at in pages() {
        write_page(&mut region.as_mut_slice()[at..][..PAGE], at as u64);
    }
    let mapped = manager.stats().vm.nr_mapped;
    assert!(mapped > common::pages(400 * MIB), "{mapped} pages");
    for at in pages().step_by(7) {
        assert!(page_is(&region.as_slice()[at..][..PAGE], at as u64));
    }
    manager.set_ram(128 << 20).unwrap();
    for at in pages().step_by(5) {
        assert!(page_is(&region.as_slice()[at..][..PAGE], at as u64));
    }
}
