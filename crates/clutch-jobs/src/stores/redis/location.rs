//! Location of a store on Redis: its URL.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult};

use super::tls::{self, Tls};
use crate::store::{Result, StoreError};

/// Default prefix of the keys.
const PREFIX: &str = "clutch";

/// Schemes, and what the client library calls the same.
const SCHEMES: [(&str, &str); 7] = [
    ("redis", "redis"),
    ("rediss", "rediss"),
    ("redis+unix", "redis+unix"),
    ("unix", "redis+unix"),
    ("valkey", "redis"),
    ("valkeys", "rediss"),
    ("valkey+unix", "redis+unix"),
];

const SENTINEL: &str = "+sentinel";
const CLUSTER: &str = "+cluster";

const SENTINEL_PORT: u16 = 26379;
const SERVER_PORT: u16 = 6379;

/// `redis://[[user]:password@]host[:port][/db]`, `rediss://` with TLS, `redis+unix:///path[?db=…&user=…&pass=…]`;
/// `redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/NAME[/db][?sentinel_user=…&sentinel_password=…]`;
/// `redis+cluster://[[user]:password@]host[:port][,host[:port]…]`; the same with `valkey`. Each takes `?prefix=NAME`.
#[derive(Clone, Debug)]
pub struct Location {
    pub topology: Topology,
    /// Addresses of the server; or of sentinels, or of nodes of its cluster. At least one.
    pub addresses: Vec<ConnectionAddr>,
    /// The server's user, password and database.
    pub settings: RedisConnectionInfo,
    pub prefix: String,
    pub tls: Tls,
}

/// Way to find the server that has the jobs.
#[derive(Clone, Debug)]
pub enum Topology {
    /// The URL names it.
    Server,
    /// Sentinels know it as the primary of this name. They have a user and a password of their own.
    Sentinel { primary: String, settings: RedisConnectionInfo },
    /// The node of the slot of the keys.
    Cluster,
}

/// The parts of a URL, as they were written.
struct Parts<'a> {
    /// As the client library calls it.
    scheme: &'static str,
    /// With its at sign, or empty.
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: Vec<(&'a str, &'a str)>,
    fragment: String,
}

/// Whether the scheme of a URL is one of Redis.
pub fn is_scheme(scheme: &str) -> bool {
    known(scheme).is_some()
}

/// Returns the client library's name of the scheme, and the topology.
fn known(scheme: &str) -> Option<(&'static str, &'static str)> {
    let suffix = [SENTINEL, CLUSTER].into_iter().find(|suffix| scheme.ends_with(suffix)).unwrap_or_default();
    let (_, library) = SCHEMES.iter().find(|(known, _)| Some(*known) == scheme.strip_suffix(suffix))?;
    (suffix.is_empty() || *library != "redis+unix").then_some((*library, suffix))
}

impl Location {
    pub fn parse(url: &str) -> Result<Location> {
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (scheme, suffix) = known(scheme).ok_or_else(|| refused("not the URL of a Redis or Valkey server"))?;
        let mut parts = Parts::of(scheme, rest, !suffix.is_empty());
        let mut prefix = PREFIX.to_owned();
        if let Some(at) = parts.query.iter().position(|(name, _)| *name == "prefix") {
            prefix = checked(parts.query.remove(at).1)?;
        }
        let tls = parts.tls()?;
        let (topology, infos) = match suffix {
            SENTINEL => parts.sentinels()?,
            CLUSTER => (Topology::Cluster, parts.nodes()?),
            _ => (Topology::Server, vec![parts.server()?]),
        };
        let settings = named(infos[0].redis_settings());
        let addresses: Vec<_> = infos.iter().map(|info| verified(info.addr().clone(), !tls.is_unverified)).collect();
        tls.check(&addresses[0]).map_err(|why| refused(&why))?;
        Ok(Location { topology, addresses, settings, prefix, tls })
    }

    /// As people name it: a URL without user and password.
    pub fn name(&self) -> String {
        let (scheme, hosts) = match &self.addresses[0] {
            ConnectionAddr::Tcp(..) => ("redis", self.hosts()),
            ConnectionAddr::TcpTls { .. } => ("rediss", self.hosts()),
            other => ("redis+unix", other.to_string()),
        };
        let db = self.settings.db();
        let mut name = match &self.topology {
            Topology::Server if scheme == "redis+unix" => format!("{scheme}://{hosts}"),
            Topology::Server => format!("{scheme}://{hosts}/{db}"),
            Topology::Sentinel { primary, .. } => format!("{scheme}{SENTINEL}://{hosts}/{primary}/{db}"),
            Topology::Cluster => format!("{scheme}{CLUSTER}://{hosts}"),
        };
        let mut query = Vec::new();
        if scheme == "redis+unix" && db != 0 {
            query.push(format!("db={db}"));
        }
        if self.prefix != PREFIX {
            query.push(format!("prefix={}", self.prefix));
        }
        if !query.is_empty() {
            name = format!("{name}?{}", query.join("&"));
        }
        name
    }

    fn hosts(&self) -> String {
        let host = |address: &ConnectionAddr| match address {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            other => other.to_string(),
        };
        self.addresses.iter().map(host).collect::<Vec<_>>().join(",")
    }
}

impl<'a> Parts<'a> {
    fn of(scheme: &'static str, rest: &'a str, has_many_hosts: bool) -> Parts<'a> {
        let (rest, fragment) = match rest.split_once('#') {
            Some((rest, fragment)) => (rest, format!("#{fragment}")),
            None => (rest, String::new()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts = if has_many_hosts { hosts.split(',').collect() } else { vec![hosts] };
        let query = query.split('&').filter(|option| !option.is_empty());
        let query = query.map(|option| option.split_once('=').unwrap_or((option, ""))).collect();
        Parts { scheme, user, hosts, path, query, fragment }
    }

    fn tls(&mut self) -> Result<Tls> {
        if self.fragment == "#insecure" {
            return Err(refused("#insecure is written ?verify=none here"));
        }
        let mut tls = Tls::default();
        let mut left = Vec::new();
        for (name, value) in self.query.drain(..) {
            if !tls.take(name, value).map_err(|why| refused(&why))? {
                left.push((name, value));
            }
        }
        self.query = left;
        Ok(tls)
    }

    /// No option is left.
    fn finish(&self) -> Result<()> {
        let Some((name, _)) = self.query.first() else { return Ok(()) };
        let meant = tls::meant(name).map(|meant| format!("; write {meant}")).unwrap_or_default();
        Err(refused(&format!("its query has '{name}', which means nothing here{meant}")))
    }

    fn server(&mut self) -> Result<ConnectionInfo> {
        let mut options = Vec::new();
        if self.scheme == "redis+unix" {
            let is_known = |(name, _): &mut (&str, &str)| ["db", "user", "pass"].contains(name);
            options = self.query.extract_if(.., is_known).map(|(name, value)| format!("{name}={value}")).collect();
        }
        self.finish()?;
        let Parts { scheme, user, path, fragment, .. } = &self;
        info(&format!("{scheme}://{user}{}{path}?{}{fragment}", self.hosts[0], options.join("&")))
    }

    fn nodes(&self) -> Result<Vec<ConnectionInfo>> {
        self.finish()?;
        if !matches!(self.path, "" | "/" | "/0") {
            return Err(refused("a cluster has no database but 0"));
        }
        self.each(self.user, "", SERVER_PORT)
    }

    fn sentinels(&mut self) -> Result<(Topology, Vec<ConnectionInfo>)> {
        let mut option = |wanted: &str| {
            let at = self.query.iter().position(|(name, _)| *name == wanted)?;
            Some(self.query.remove(at).1)
        };
        let own_user = match (option("sentinel_user"), option("sentinel_password")) {
            (None, None) => String::new(),
            (user, password) => format!("{}:{}@", user.unwrap_or_default(), password.unwrap_or_default()),
        };
        self.finish()?;
        let path = self.path.strip_prefix('/').unwrap_or_default();
        let (primary, db) = path.split_once('/').unwrap_or((path, ""));
        if primary.is_empty() {
            return Err(refused("the name of the primary is missing"));
        }
        let settings = named(self.each(&own_user, "", SENTINEL_PORT)?[0].redis_settings());
        let infos = self.each(self.user, db, SENTINEL_PORT)?;
        Ok((Topology::Sentinel { primary: primary.to_owned(), settings }, infos))
    }

    /// Returns an address for each host.
    fn each(&self, user: &str, db: &str, port: u16) -> Result<Vec<ConnectionInfo>> {
        let (scheme, fragment) = (self.scheme, &self.fragment);
        let with_port = |host: &&str| match host.rsplit_once(':') {
            Some((_, after)) if !after.contains(']') => (*host).to_owned(),
            _ => format!("{host}:{port}"),
        };
        let hosts = self.hosts.iter().map(with_port);
        hosts.map(|host| info(&format!("{scheme}://{user}{host}/{db}{fragment}"))).collect()
    }
}

fn info(url: &str) -> Result<ConnectionInfo> {
    let info = url.into_connection_info().map_err(|error| {
        let said = error.to_string();
        let why = match () {
            () if said.contains("database number") => "the database is a number, as in /0",
            () if said.contains("did not parse") => {
                "it cannot be read: a port is a number up to 65535, and @ / : % ? # in user and password are \
                 percent-encoded, as %40 for @"
            }
            () => return refused(&said.replace(" - InvalidClientConfig", "")),
        };
        refused(why)
    })?;
    match info.redis_settings().db() {
        0.. => Ok(info),
        db => Err(refused(&format!("database {db}: it is 0 or more"))),
    }
}

/// Sets our name in the server's list of clients.
fn named(settings: &RedisConnectionInfo) -> RedisConnectionInfo {
    settings.clone().set_lib_name("clutch", env!("CARGO_PKG_VERSION"))
}

/// Returns the connection to a server at this address.
pub(super) fn with_settings(address: &ConnectionAddr, settings: &RedisConnectionInfo) -> RedisResult<ConnectionInfo> {
    Ok(address.clone().into_connection_info()?.set_redis_settings(settings.clone()))
}

fn verified(address: ConnectionAddr, is_verified: bool) -> ConnectionAddr {
    match address {
        ConnectionAddr::TcpTls { host, port, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: !is_verified, tls_params }
        }
        other => other,
    }
}

/// Another server, that is reached in the same way.
pub(super) fn with_host(like: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    match like.clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    }
}

/// A prefix is part of the hash tag of all keys.
fn checked(prefix: &str) -> Result<String> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_-.:".contains(letter);
    match !prefix.is_empty() && prefix.chars().all(is_allowed) {
        true => Ok(prefix.to_owned()),
        false => Err(refused("a prefix is made of letters, digits and _-.: only")),
    }
}

/// Without the URL, which may hold a password.
fn refused(why: &str) -> StoreError {
    StoreError::Refused(format!(
        "the URL of the store: {why}; allowed: redis://[:password@]host[:port][/db], rediss://…, redis+unix:///path, \
         redis+sentinel://host[:port],…/NAME[/db], redis+cluster://host[:port],…, each with ?prefix=NAME; with TLS also ?ca=FILE, \
         ?cert=FILE&key=FILE, ?verify=none"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(url: &str) -> String {
        Location::parse(url).unwrap().name()
    }

    #[test]
    fn names_have_no_secrets() {
        assert_eq!(name("redis://:s3cret@db.example:7000/3?prefix=mail"), "redis://db.example:7000/3?prefix=mail");
        assert_eq!(name("valkeys://me:s3cret@[::1]"), "rediss://[::1]:6379/0");
        assert_eq!(name("redis+unix:///run/redis.sock?pass=s3cret"), "redis+unix:///run/redis.sock");
        assert_eq!(name("unix:///run/redis.sock?db=2&prefix=a"), "redis+unix:///run/redis.sock?db=2&prefix=a");
    }

    #[test]
    fn sentinels_and_clusters_have_names_too() {
        assert_eq!(
            name("redis+sentinel://me:s3cret@a,[::1]:7000/main/2?sentinel_password=s3cret"),
            "redis+sentinel://a:26379,[::1]:7000/main/2"
        );
        assert_eq!(name("valkeys+sentinel://a/main?prefix=mail"), "rediss+sentinel://a:26379/main/0?prefix=mail");
        assert_eq!(name("rediss+cluster://:s3cret@a,b:7001/"), "rediss+cluster://a:6379,b:7001");
    }

    #[test]
    fn what_is_in_a_url_is_used() {
        let location = Location::parse("redis://me:s%40cret@host/4?prefix=a:b").unwrap();
        let settings = &location.settings;
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("s@cret"), 4));
        assert_eq!(location.prefix, "a:b");
    }

    #[test]
    fn options_of_tls_are_taken_and_those_of_others_answered() {
        let location = Location::parse("rediss+sentinel://h/main?ca=%2Fetc/ca.pem&prefix=p&cert=c&key=k").unwrap();
        let tls = |ca: Option<&str>, cert: Option<&str>, key: Option<&str>| Tls {
            ca: ca.map(str::to_owned),
            cert: cert.map(str::to_owned),
            key: key.map(str::to_owned),
            is_unverified: false,
        };
        assert_eq!(location.tls, tls(Some("/etc/ca.pem"), Some("c"), Some("k")));
        let any = Location::parse("rediss://h?verify=none").unwrap();
        assert!(matches!(any.addresses[0], ConnectionAddr::TcpTls { insecure: true, .. }));
        for (url, what) in [
            ("rediss://h#insecure", "#insecure is written ?verify=none"),
            ("rediss://h?ssl_cert_reqs=none", "write verify=none"),
            ("rediss://h?ssl_ca_certs=x", "write ca=FILE"),
            ("redis://h?ca=x", "need TLS: rediss://"),
            ("rediss://h?verify=full", "verify=none is the only value"),
            ("rediss://h?key=x", "key needs cert"),
            ("rediss://h?ca=x&verify=none", "leave ca out"),
            ("rediss://h?ca=", "ca is the path of a file"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn sentinels_have_passwords_of_their_own() {
        let parse = |query: &str| Location::parse(&format!("redis+sentinel://me:a@host/main/4?{query}")).unwrap();
        let location = parse("sentinel_user=you&prefix=p&sentinel_password=b%26");
        assert_eq!((location.settings.username(), location.settings.password()), (Some("me"), Some("a")));
        let Topology::Sentinel { primary, settings } = location.topology else { panic!("it is sentinels'") };
        assert_eq!((primary.as_str(), location.settings.db(), settings.db()), ("main", 4, 0));
        assert_eq!((settings.username(), settings.password()), (Some("you"), Some("b&")));
        let Topology::Sentinel { settings, .. } = parse("").topology else { panic!("it is sentinels'") };
        assert_eq!((settings.username(), settings.password()), (None, None), "the primary's is not shown to them");
    }

    #[test]
    fn a_refusal_has_no_secrets() {
        for url in [
            "redsi://:s3cret@host",
            "redis://:s3cret@host/x",
            "redis://:s3cret@host?prefix=",
            "redis://:s3cret@h?pass=s3cret",
            "redis+sentinel://:s3cret@h",
            "redis+sentinel://:s3cret@h/main/x",
            "redis+cluster://:s3cret@h,/",
            "redis+cluster://:s3cret@h/2",
            "redis+cluster://:s3cret@h?sentinel_password=s3cret",
            "redis+unix+cluster:///run/s3cret",
        ] {
            let error = Location::parse(url).unwrap_err();
            assert!(matches!(error, StoreError::Refused(_)) && !error.to_string().contains("s3cret"), "{error}");
        }
    }
}
