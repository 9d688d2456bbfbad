//! Search for the server that has the jobs: the one that the URL names, the primary of sentinels, or the node of a cluster
//! that has the slot of the keys. It is found anew for each connection.

use std::io;
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use redis::{
    Connection, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, Value,
};

use super::super::location::{Location, Topology, with_host, with_settings};
use super::super::record::{list, text};
use super::super::tls::Tls;

/// Timeout of a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a sentinel: there are others.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(500);

/// Most redirections from one node of a cluster to another.
const REDIRECTIONS_MAX: usize = 3;

/// Most nodes of a cluster that are remembered beside those of the URL.
const NODES_MAX: usize = 16;

pub(super) struct Discovery {
    location: Location,
    /// A key in the slot of all others.
    root: String,
    /// Servers, sentinels or nodes, to be asked in this order: the one that had the answer last is the first.
    known: Mutex<Vec<ConnectionAddr>>,
}

/// A search.
struct Search {
    until: Instant,
    /// Nobody is tried twice, whoever names it.
    tried: Vec<ConnectionAddr>,
}

/// The connection to the server, and who is to be asked first the next time. None: it leads to those that were tried.
type Found = Option<(Connection, Vec<ConnectionAddr>)>;

impl Discovery {
    pub fn new(location: &Location, root: &str) -> Discovery {
        let known = Mutex::new(location.addresses.clone());
        Discovery { location: location.clone(), root: root.to_owned(), known }
    }

    pub fn is_unverified(&self) -> bool {
        self.location.tls.is_unverified
    }

    /// A connection to the server that has the jobs.
    pub fn connect(&self, until: Instant) -> RedisResult<Connection> {
        let mut search = Search { until, tried: Vec::new() };
        let mut failure = RedisError::from((ErrorKind::ClusterConnectionNotFound, "no node has its keys"));
        let mut has_failed = false;
        let known = self.known.lock().clone();
        for address in &known {
            let found = match &self.location.topology {
                Topology::Server => search.open(address, &self.location).map(|made| Some((made, Vec::new()))),
                Topology::Sentinel { primary, settings } => self.primary(&mut search, address, settings, primary),
                Topology::Cluster => self.node(&mut search, address.clone()),
            };
            match found {
                Ok(Some((connection, first))) => {
                    self.remember(first);
                    return Ok(connection);
                }
                Ok(None) => {}
                // That one knows no such primary says less than that others cannot be asked.
                Err(error) if has_failed && error.kind() == ErrorKind::MasterNameNotFoundBySentinel => {}
                Err(error) => (failure, has_failed) = (error, true),
            }
        }
        Err(failure)
    }

    fn remember(&self, mut first: Vec<ConnectionAddr>) {
        first.truncate(NODES_MAX);
        for address in &self.location.addresses {
            if !first.contains(address) {
                first.push(address.clone());
            }
        }
        *self.known.lock() = first;
    }

    fn primary(
        &self,
        search: &mut Search,
        sentinel: &ConnectionAddr,
        settings: &RedisConnectionInfo,
        name: &str,
    ) -> RedisResult<Found> {
        let mut connection = open(&self.location.tls, sentinel, settings, SENTINEL_TIMEOUT, search.until)?;
        connection.set_read_timeout(Some(SENTINEL_TIMEOUT))?;
        let mut ask = redis::cmd("SENTINEL");
        let told: Option<(String, u16)> = ask.arg("GET-MASTER-ADDR-BY-NAME").arg(name).query(&mut connection)?;
        let missing = || RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "no sentinel knows the primary"));
        let (host, port) = told.ok_or_else(missing)?;
        let address = with_host(sentinel, &host, port);
        if search.tried.contains(&address) {
            return Ok(None);
        }
        let mut connection = search.open(&address, &self.location)?;
        check_is_primary(&mut connection)?;
        Ok(Some((connection, vec![sentinel.clone()])))
    }

    /// Follows from one node to the next until one has the slot. While the slot is being moved to another, none has it
    /// as a whole, and both would work on a part of the keys: that is an error here, and not followed.
    fn node(&self, search: &mut Search, mut address: ConnectionAddr) -> RedisResult<Found> {
        for _ in 0..REDIRECTIONS_MAX {
            if search.tried.contains(&address) {
                break;
            }
            let mut connection = search.open(&address, &self.location)?;
            match redis::cmd("EXISTS").arg(&self.root).query::<Value>(&mut connection) {
                Ok(_) => {
                    let mut nodes = vec![address.clone()];
                    nodes.extend(others(&mut connection, &address));
                    return Ok(Some((connection, nodes)));
                }
                Err(error) => address = moved_to(&error, &address).ok_or(error)?,
            }
        }
        Ok(None)
    }
}

impl Search {
    fn open(&mut self, address: &ConnectionAddr, location: &Location) -> RedisResult<Connection> {
        self.tried.push(address.clone());
        let connection = open(&location.tls, address, &location.settings, CONNECT_TIMEOUT, self.until)?;
        connection.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        connection.set_write_timeout(Some(CONNECT_TIMEOUT))?;
        Ok(connection)
    }
}

fn open(
    tls: &Tls,
    address: &ConnectionAddr,
    settings: &RedisConnectionInfo,
    at_most: Duration,
    until: Instant,
) -> RedisResult<Connection> {
    let left = until.saturating_duration_since(Instant::now()).min(at_most);
    if left.is_zero() {
        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
    }
    tls.client(with_settings(address, settings)?)?.get_connection_with_timeout(left)
}

/// A sentinel may name a primary that was one.
fn check_is_primary(connection: &mut Connection) -> RedisResult<()> {
    match redis::cmd("ROLE").query::<Value>(connection) {
        Ok(role) if list(role.clone()).into_iter().next().and_then(text).is_some_and(|role| role != "master") => Err(
            RedisError::from((ServerErrorKind::ReadOnly.into(), "the primary that the sentinels know is a replica")),
        ),
        Err(error) if error.is_io_error() => Err(error),
        // It may be forbidden, and then it is not known.
        _ => Ok(()),
    }
}

fn moved_to(error: &RedisError, from: &ConnectionAddr) -> Option<ConnectionAddr> {
    if error.kind() != ServerErrorKind::Moved.into() {
        return None;
    }
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some(node_at(host, port.parse().ok()?, from))
}

/// Whoever knows no name for a node leaves that out: it is the host that was asked.
fn node_at(host: &str, port: u16, asked: &ConnectionAddr) -> ConnectionAddr {
    match asked {
        ConnectionAddr::Tcp(own, _) | ConnectionAddr::TcpTls { host: own, .. } if matches!(host, "" | "?") => {
            with_host(asked, own, port)
        }
        _ => with_host(asked, host, port),
    }
}

/// All nodes that serve, as this one knows them: `[[first slot, last slot, [host, port, …], …], …]`. None where that is
/// forbidden.
fn others(connection: &mut Connection, asked: &ConnectionAddr) -> Vec<ConnectionAddr> {
    let mut found = Vec::new();
    let slots = redis::cmd("CLUSTER").arg("SLOTS").query::<Value>(connection).unwrap_or(Value::Nil);
    for node in list(slots).into_iter().flat_map(|range| list(range).into_iter().skip(2)) {
        let mut parts = list(node).into_iter().map(|part| text(part).unwrap_or_default());
        let (host, port) = (parts.next().unwrap_or_default(), parts.next().and_then(|port| port.parse().ok()));
        let address = port.map(|port| node_at(&host, port, asked));
        found.extend(address.filter(|address| address != asked && !found.contains(address)));
    }
    found
}
