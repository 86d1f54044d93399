//! A cluster of three Redis servers on loopback: each has a third of the key slots, and none replicates another.
#![allow(dead_code)]

use super::server::Server;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// The number of slots that the keys of a cluster fall into.
const SLOTS: usize = 16384;

/// The cluster. Its servers end with this value.
pub struct Cluster {
    pub nodes: [Server; 3],
}

impl Cluster {
    /// Starts the servers, each of which keeps its data below `directory` across a restart, and waits until they know
    /// each other. If there is no Redis, prints that and returns `None`.
    pub fn start(directory: &Path) -> Option<Self> {
        let node = |name: &str| {
            let own = directory.join(name);
            std::fs::create_dir(&own).unwrap();
            Server::redis_node(&own)
        };
        let started = [node("a")?, node("b")?, node("c")?];
        for (number, (node, _)) in started.iter().enumerate() {
            let (first, end) = (number * SLOTS / 3, (number + 1) * SLOTS / 3);
            done(node, &format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
            done(node, &format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1));
        }
        let (first, _) = &started[0];
        for (node, bus) in &started[1..] {
            done(
                first,
                &format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port),
            );
        }
        let cluster = Self {
            nodes: started.map(|(node, _)| node),
        };
        let is_whole = |node: &Server| {
            let info = ask(node, "CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        super::wait_until("the nodes know each other", || {
            cluster.nodes.iter().all(is_whole)
        });
        Some(cluster)
    }

    /// Returns the URL of the cluster, which names all nodes.
    pub fn url(&self) -> String {
        let hosts = self
            .nodes
            .each_ref()
            .map(|node| format!("127.0.0.1:{}", node.port));
        format!("redis://{}/?cluster=true", hosts.join(","))
    }

    /// Returns the number of keys on each node.
    pub fn keys(&self) -> [u64; 3] {
        self.nodes.each_ref().map(|node| {
            let answer = ask(node, "DBSIZE");
            let number = answer.trim_start_matches(':').lines().next().unwrap();
            number.parse().unwrap()
        })
    }
}

/// Sends a command to a node. Returns its output until it closes the connection.
fn ask(node: &Server, command: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(stream, "{command}\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends a command to a node, which must succeed.
fn done(node: &Server, command: &str) {
    let answer = ask(node, command);
    assert!(answer.starts_with("+OK"), "{command}: {answer}");
}
