//! A store on a cluster.

use std::time::Duration;

use clutch_jobs::store::{Store, StoreError};
use clutch_jobs::stores;
use redis::{Connection, Value};

use super::server::Server;
use super::{NOW, is_unavailable, job, round, until_done};

const SLOTS: u32 = 16_384;

const FLAGS: [&str; 6] =
    ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"];

/// Primaries that share the slots, and a replica of the first.
struct Cluster {
    nodes: Vec<Server>,
    connections: Vec<Connection>,
    ids: Vec<String>,
}

fn cluster(words: &[&str]) -> redis::Cmd {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg(words);
    cmd
}

impl Cluster {
    const PRIMARIES: u32 = 3;

    fn start() -> Option<Cluster> {
        let nodes: Vec<Server> = (0..=Cluster::PRIMARIES).map_while(|_| Server::with_port(&FLAGS)).collect();
        let mut connections: Vec<Connection> = nodes.iter().map(Server::connect).collect();
        connections.first()?;
        let ids = connections.iter_mut().map(|node| cluster(&["MYID"]).query(node).unwrap()).collect();
        for (nr, node) in (0..).zip(&mut connections) {
            let nr: u32 = nr;
            cluster(&["SET-CONFIG-EPOCH", &(nr + 1).to_string()]).exec(node).unwrap();
            cluster(&["MEET", "127.0.0.1", &nodes[0].port.to_string()]).exec(node).unwrap();
            let slots = (0..SLOTS).filter(|slot| slot % Cluster::PRIMARIES == nr);
            if nr < Cluster::PRIMARIES {
                redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots.collect::<Vec<_>>()).exec(node).unwrap();
            }
        }
        let mut cluster = Cluster { nodes, connections, ids };
        cluster.settle();
        Some(cluster)
    }

    /// Returns when all nodes agree, and the last is the replica of the first.
    fn settle(&mut self) {
        let not_yet = || StoreError::Unavailable { store: "cluster".to_owned(), reason: "not yet".to_owned() };
        for node in &mut self.connections {
            until_done(|| {
                let about: String = cluster(&["INFO"]).query(node).unwrap();
                let is_done = ["cluster_state:ok", "cluster_known_nodes:4"].iter().all(|line| about.contains(line));
                is_done.then_some(()).ok_or_else(not_yet)
            });
        }
        let (replica, first) = (self.connections.last_mut().unwrap(), &self.ids[0]);
        until_done(|| cluster(&["REPLICATE", first]).exec(replica).map_err(|_| not_yet()));
        until_done(|| match redis::cmd("ROLE").query::<Vec<Value>>(replica).unwrap().get(3) {
            Some(Value::BulkString(state)) if state == b"connected" => Ok(()),
            _ => Err(not_yet()),
        });
    }

    /// A prefix whose keys are on this primary.
    fn prefix_at(&mut self, nr: u32) -> (String, u32) {
        let slot_of =
            |connection: &mut Connection, prefix: &str| cluster(&["KEYSLOT", prefix]).query(connection).unwrap();
        let names = (0..).map(|nr: u32| format!("p{nr}"));
        let mut with_slots = names.map(|prefix| (slot_of(&mut self.connections[0], &prefix), prefix));
        let (slot, prefix) = with_slots.find(|(slot, _): &(u32, _)| slot % Cluster::PRIMARIES == nr).unwrap();
        (prefix, slot)
    }

    fn url(&self, nodes: &[usize], prefix: &str) -> String {
        let hosts: Vec<String> = nodes.iter().map(|nr| format!("127.0.0.1:{}", self.nodes[*nr].port)).collect();
        format!("redis+cluster://{}?prefix={prefix}", hosts.join(","))
    }

    fn set_slot(&mut self, nr: usize, slot: u32, state: &str, other: usize) {
        cluster(&["SETSLOT", &slot.to_string(), state, &self.ids[other]]).exec(&mut self.connections[nr]).unwrap();
    }

    /// Moves keys of a slot between nodes whose slot is being moved; returns how many.
    fn move_keys(&mut self, from: usize, to: usize, slot: u32, at_most: usize) -> usize {
        let keys: Vec<String> = redis::cmd("CLUSTER")
            .arg("GETKEYSINSLOT")
            .arg(slot)
            .arg(at_most)
            .query(&mut self.connections[from])
            .unwrap();
        for key in &keys {
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.nodes[to].port).arg(key).arg(0).arg(5000);
            migrate.exec(&mut self.connections[from]).unwrap();
        }
        keys.len()
    }
}

fn work(store: &dyn Store) {
    store.enqueue(&[job(), job()], NOW).unwrap();
    assert_eq!(round(store, 1, Vec::new()).unwrap().claimed.len(), 1);
    assert!(store.watch().unwrap().wait(Duration::from_secs(30)).unwrap());
}

#[test]
fn each_prefix_is_on_its_node_whichever_is_asked() {
    let Some(mut cluster) = Cluster::start() else { return };
    for nr in 0..Cluster::PRIMARIES {
        let (prefix, _) = cluster.prefix_at(nr);
        // The last is a replica.
        let store = stores::open(&cluster.url(&[3], &prefix)).unwrap();
        work(&*store);
        let keys: usize = redis::cmd("DBSIZE").query(&mut cluster.connections[nr as usize]).unwrap();
        assert!(keys > 0, "node {nr} has them");
    }
}

#[test]
fn keys_that_move_to_another_node_are_followed() {
    let Some(mut cluster) = Cluster::start() else { return };
    let (prefix, slot) = cluster.prefix_at(1);
    let store = stores::open(&cluster.url(&[0], &prefix)).unwrap();
    work(&*store);
    let mut watch = store.watch().unwrap();
    assert!(watch.wait(Duration::from_secs(30)).unwrap());
    let queues = store.queues().unwrap();

    cluster.set_slot(2, slot, "IMPORTING", 1);
    cluster.set_slot(1, slot, "MIGRATING", 2);
    assert!(cluster.move_keys(1, 2, slot, 3) > 0);
    // Each node has a part: on either, jobs would be missing.
    let opened = stores::open(&cluster.url(&[0, 2], &prefix)).unwrap();
    for store in [&store, &opened] {
        let error = store.enqueue(&[job()], NOW).unwrap_err();
        assert!(error.to_string().contains("being moved"), "{error}");
        assert!(is_unavailable::<()>(Err(error)));
        assert!(is_unavailable(store.queues()));
    }
    while cluster.move_keys(1, 2, slot, 100) > 0 {}
    for nr in [2, 1, 0] {
        cluster.set_slot(nr, slot, "NODE", 2);
    }
    for store in [store, opened] {
        assert_eq!(store.queues().unwrap(), queues, "at the first try");
    }
    assert!(watch.wait(Duration::from_secs(30)).is_err(), "whoever waits is told");
}

#[test]
fn a_connection_whose_keys_have_moved_is_made_anew_at_once() {
    let Some(mut cluster) = Cluster::start() else { return };
    let (prefix, slot) = cluster.prefix_at(1);
    let store = stores::open(&cluster.url(&[0], &prefix)).unwrap();
    work(&*store);
    cluster.set_slot(2, slot, "IMPORTING", 1);
    cluster.set_slot(1, slot, "MIGRATING", 2);
    while cluster.move_keys(1, 2, slot, 100) > 0 {}
    for nr in [2, 1, 0] {
        cluster.set_slot(nr, slot, "NODE", 2);
    }
    store.enqueue(&[job()], NOW).unwrap();
    assert_eq!(store.queues().unwrap()[0].available, 2, "MOVED, and then there");
}

#[test]
fn a_replica_of_a_node_takes_over() {
    let Some(mut cluster) = Cluster::start() else { return };
    let (prefix, _) = cluster.prefix_at(0);
    // The URL names only the node that is about to die: the others were learnt from it.
    let store = stores::open(&cluster.url(&[0], &prefix)).unwrap();
    work(&*store);
    redis::cmd("SET").arg(format!("{{{prefix}}}:written")).arg(1).exec(&mut cluster.connections[0]).unwrap();
    let replicas: u32 = redis::cmd("WAIT").arg(1).arg(30_000).query(&mut cluster.connections[0]).unwrap();
    assert_eq!(replicas, 1);
    cluster.nodes[0].stop();
    assert!(is_unavailable(store.queues()));
    let queues = until_done(|| store.queues());
    assert_eq!((queues[0].available, queues[0].running), (1, 1));
    work(&*store);
}

#[test]
fn a_server_alone_does_too() {
    let Some(server) = Server::with_port(&[]) else { return };
    work(&*stores::open(&format!("redis+cluster://127.0.0.1:{}", server.port)).unwrap());
}
