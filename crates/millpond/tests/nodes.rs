//! Memory nodes on real memory: regions and frames by node, placed by `mbind`. If this machine has one node, fake ones
//! are put on it.

use millpond::{BuildError, Manager, StoreKind};

/// The policy that the kernel has noted for the mapping at `addr`.
fn policy_at(addr: usize) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
    let line = maps.lines().rfind(|line| {
        let start = line.split(' ').next().unwrap_or_default();
        usize::from_str_radix(start, 16).is_ok_and(|start| start <= addr)
    })?;
    line.split(' ').nth(1).map(str::to_owned)
}

#[test]
fn one_to_sixteen_nodes_are_accepted() {
    for nodes in [0, 17] {
        let refused = Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .ram(16 << 20)
            .fake_nodes(nodes)
            .build();
        assert!(matches!(refused, Err(BuildError::BadNodes { nodes: n }) if n == nodes));
    }
    Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .fake_nodes(16)
        .build()
        .unwrap();
}

/// Twice the budget on three nodes, by single pages and larger folios: everything comes back as it was, and memory
/// stays within the budget whatever node it is on.
#[test]
fn memory_on_several_nodes_shares_one_budget() {
    for order in [0, 4] {
        let manager = Manager::builder()
            .ram(16 << 20)
            .store(StoreKind::compressed_ram())
            .order(millpond::Order::new(order).unwrap())
            .fake_nodes(3)
            .build()
            .unwrap();
        let mut regions: Vec<_> = (0..4).map(|_| manager.region(8 << 20).unwrap()).collect();
        let nodes: Vec<_> = regions.iter().map(millpond::Region::node).collect();
        assert_eq!(nodes, [0, 1, 2, 0]);
        for round in 0..3_u64 {
            for (n, region) in regions.iter_mut().enumerate() {
                let words = region.as_mut_slice().chunks_exact_mut(4096);
                for (page, bytes) in words.enumerate() {
                    let value = (round << 40 | (n as u64) << 32 | page as u64).to_le_bytes();
                    bytes[..8].copy_from_slice(&value);
                }
            }
            for (n, region) in regions.iter_mut().enumerate() {
                for (page, bytes) in region.as_mut_slice().chunks_exact(4096).enumerate() {
                    let value = round << 40 | (n as u64) << 32 | page as u64;
                    assert_eq!(bytes[..8], value.to_le_bytes(), "page {page} of region {n}");
                }
            }
        }
        let stats = manager.stats();
        assert!(stats.vm.pswpin > 0 && stats.vm.limbo_rescue + stats.vm.pswpout > 0);
        assert_eq!(stats.vm.over_limit, 0);
        assert!(stats.peak_bytes <= (16 << 20) / 16 * 17, "{stats:?}");
    }
}

/// The kernel knows the node of each region and of the frames.
#[test]
fn the_kernel_is_told_the_nodes_of_regions_and_frames() {
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .fake_nodes(2)
        .build()
        .unwrap();
    let region = manager.region(1 << 20).unwrap();
    let Some(policy) = policy_at(region.as_ptr() as usize) else {
        println!("skipped: this kernel has no /proc/self/numa_maps");
        return;
    };
    assert!(policy.starts_with("prefer"), "{policy}");
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let placed = maps.lines().filter(|line| line.contains(" prefer"));
    assert!(placed.count() >= 2, "the pool is placed, too");
    drop(region);
    let plain = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .build()
        .unwrap();
    let region = plain.region(1 << 20).unwrap();
    let nodes = millpond_nodes();
    let policy = policy_at(region.as_ptr() as usize).unwrap();
    assert_eq!(
        policy == "default",
        nodes == 1,
        "{policy} with {nodes} nodes"
    );
}

/// Number of nodes that this machine has.
fn millpond_nodes() -> usize {
    let nodes = std::fs::read_dir("/sys/devices/system/node").unwrap();
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap_or_default();
    let is_node = |name: &String| {
        name.strip_prefix("node")
            .is_some_and(|n| n.parse::<u32>().is_ok())
    };
    nodes.flatten().map(name).filter(is_node).count()
}
