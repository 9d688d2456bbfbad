//! A pool with an http front before it, for tests that come in by the front.

use clutch_fronts::config::{ConnectionConfig, Dispatch, HeaderMap, HttpConfig, LogFormat, ServeConfig, Timeout};
use clutch_host::Fronts;
use clutch_pool::config::{Disconnect, PoolConfig};

use super::client::{Client, Response};
use super::{Stage, config};

pub const ECHO: &str = "/pools/api/tools/echo";

/// Connections that nothing limits much.
pub fn connection() -> ConnectionConfig {
    ConnectionConfig {
        connections_max: 100,
        head_bytes_max: 16 << 10,
        head_timeout_ms: 10_000,
        body_timeout_ms: 10_000,
        write_timeout_ms: 30_000,
        keep_alive_ms: 75_000,
        access_log: None,
        access_log_format: LogFormat::Text,
        access_log_skip: Vec::new(),
        tls: None,
    }
}

/// A front of an app that nothing limits much, whose requests are dispatched one by one.
pub fn serve() -> ServeConfig {
    ServeConfig {
        pool: "app".to_owned(),
        bind: vec!["127.0.0.1:0".to_owned()],
        connection: ConnectionConfig { head_bytes_max: 64 << 10, ..connection() },
        unix_mode: 0o666,
        threads: 1,
        dispatch: Dispatch::Request,
        timeout_ms: Timeout::After(None),
        silence_ms: None,
        disconnect: Disconnect::Tell,
        root_path: String::new(),
        headers_max: 100,
        body_bytes_max: None,
        connection_requests_max: None,
        streams_max: 100,
        message_bytes_max: 1 << 20,
        ping_interval_ms: None,
        ping_timeout_ms: 20_000,
        proxy_protocol: false,
        forwarded_allow: Vec::new(),
        header_map: HeaderMap::Drop,
        forwarder_headers: Vec::new(),
    }
}

/// A front that nothing limits much.
pub fn http(bind: &str) -> HttpConfig {
    HttpConfig {
        bind: vec![bind.to_owned()],
        connection: connection(),
        body_bytes_max: 4 << 20,
        token: None,
        token_file: None,
        insecure: false,
        cors_origins: Vec::new(),
        pools: None,
        pass_headers: Vec::new(),
    }
}

/// Such a front with other limits of its connections.
pub fn limited(connection: ConnectionConfig) -> HttpConfig {
    HttpConfig { connection, ..http("127.0.0.1:0") }
}

/// One pool named "api" behind an http front.
pub struct House {
    pub stage: Stage,
    pub fronts: Fronts,
}

impl House {
    pub fn new() -> House {
        House::with(config("api"), http("127.0.0.1:0"))
    }

    pub fn with(pool: PoolConfig, http: HttpConfig) -> House {
        let stage = Stage::new(pool);
        stage.tools(&["echo", "countdown"]);
        let fronts = super::serve(&[&stage], "http", Box::new(http)).expect("fronts");
        House { stage, fronts }
    }

    /// With a worker that answers each call with its arguments.
    pub fn echoing() -> House {
        let house = House::new();
        house.stage.worker(1).echo();
        house
    }

    pub fn client(&self) -> Client {
        Client::new(&self.fronts.address("http").expect("an address"))
    }

    pub fn get(&self, path: &str) -> Response {
        self.client().get(path)
    }

    pub fn post(&self, headers: &str, body: &str) -> Response {
        self.client().post(ECHO, headers, body)
    }

    /// Sends a call and leaves it unanswered.
    pub fn start(&self, headers: &str, body: &str) -> Client {
        let mut client = self.client();
        let request = client.request("POST", ECHO, headers, body);
        client.send(&request);
        client
    }
}
