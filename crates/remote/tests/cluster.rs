//! The tier on a Redis cluster: its objects are spread over all nodes, and nothing is lost when one of them is away
//! for a while.

mod common;
#[path = "common/cluster.rs"]
mod redis_cluster;
#[path = "common/server.rs"]
mod server;

use common::{check, open, save, settings, wait_until};
use millpond_core::SlotId;
use millpond_core::port::Slots;
use millpond_remote::{RemoteConfig, RemoteStats};
use redis_cluster::Cluster;
use std::time::Duration;

const SLOTS: u32 = 240;

#[test]
fn data_survives_a_restarted_and_a_stopped_node() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut cluster) = Cluster::start(directory.path()) else {
        return;
    };
    // Small objects, so that there are some on each node.
    let config = RemoteConfig {
        ahead_bytes: 0,
        object_bytes: 256 << 10,
        ..settings(&cluster.url(), 2 << 20)
    };
    let store = open(config);
    save(&store, 0..SLOTS);
    check(&store, 0..SLOTS);
    let keys = cluster.keys();
    assert!(keys.iter().all(|&keys| keys > 0), "{keys:?}");
    // Restarted with its file, while threads read and write.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| check(&store, 0..SLOTS)));
        scope.spawn(|| save(&store, SLOTS..2 * SLOTS));
        cluster.nodes[1].restart(Duration::from_millis(300));
    });
    check(&store, 0..2 * SLOTS);
    // Stopped while threads read and write, so that requests to it are in progress.
    cluster.nodes[2].freeze();
    std::thread::scope(|scope| {
        scope.spawn(|| check(&store, 0..2 * SLOTS));
        scope.spawn(|| save(&store, 2 * SLOTS..3 * SLOTS));
        std::thread::sleep(Duration::from_secs(1));
        cluster.nodes[2].thaw();
    });
    check(&store, 0..3 * SLOTS);
    assert_eq!(
        RemoteStats::of(&store).lost_loads,
        0,
        "{:?}",
        RemoteStats::of(&store)
    );
    // Whatever is no longer wanted is deleted on all nodes, and a run that ends leaves nothing.
    (0..3 * SLOTS).for_each(|slot| store.release(SlotId(slot)));
    wait_until("all objects are deleted", || {
        RemoteStats::of(&store).objects == 0
    });
    drop(store);
    assert_eq!(cluster.keys(), [0; 3]);
}
