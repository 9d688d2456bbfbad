//! The options of each kind of front, as the dispatcher's Python side gives them: JSON, with every option decided.

use clutch_pool::config::Disconnect;
use serde::{Deserialize, Serialize};

/// Options of the connections of a front that speaks HTTP.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionConfig {
    /// Maximum number of open connections.
    pub connections_max: usize,
    /// Maximum size of a request head, in bytes.
    pub head_bytes_max: usize,
    /// Time limit for receiving the request head.
    pub head_timeout_ms: u64,
    /// Time limit for receiving the request body, or for the silence of a client whose body the app waits for.
    pub body_timeout_ms: u64,
    /// Time in which a client must take some of its response.
    pub write_timeout_ms: u64,
    /// Time after which an idle connection is closed.
    pub keep_alive_ms: u64,
    /// `-`: standard output, or a path. None: no access log.
    pub access_log: Option<String>,
    pub access_log_format: LogFormat,
    /// Paths whose requests are not in the log if they succeed; with `/*` at the end, all below.
    pub access_log_skip: Vec<String>,
    pub tls: Option<TlsConfig>,
}

/// The call front over HTTP.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Each `host:port` (port 0 takes a free one), `unix:path` or `fd:number` (a socket that was handed over, listening
    /// already).
    pub bind: Vec<String>,
    pub connection: ConnectionConfig,
    /// Maximum size of a request body, in bytes.
    pub body_bytes_max: u64,
    /// `Authorization: Bearer …` that every request must bring; this, a file of them, or TLS is needed beyond loopback.
    pub token: Option<String>,
    /// File with one token on each line; read again when it changes.
    pub token_file: Option<String>,
    /// An address beyond loopback needs neither a token nor TLS.
    pub insecure: bool,
    /// Origins of the web pages that may call, as browsers write them; `*`: all.
    pub cors_origins: Vec<String>,
    /// Pools whose tools can be called. None: all.
    pub pools: Option<Vec<String>>,
    /// Headers of requests that tools are told, in lower case.
    pub pass_headers: Vec<String>,
}

/// Health, readiness and metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminConfig {
    pub bind: String,
    pub token: Option<String>,
    pub token_file: Option<String>,
    pub insecure: bool,
}

/// Certificates for TLS.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file: the certificate, then those that vouch for it.
    pub certificate: String,
    /// PEM file.
    pub key: String,
    /// PEM file: who vouches for certificates of clients. None: clients are not asked for any.
    #[serde(default)]
    pub client_ca: Option<String>,
    #[serde(default)]
    pub client_auth: ClientAuth,
}

/// Demand for certificates of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    #[default]
    None,
    /// A certificate may be left out; a wrong one is refused.
    Optional,
    Required,
}

/// Format of the lines in the access log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
    /// As it was written with gunicorn's `%` atoms, in pieces.
    Line(Vec<LogPiece>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogPiece {
    Text(String),
    /// By its name in lower case.
    RequestHeader(String),
    ResponseHeader(String),
    Fact(LogFact),
}

/// Facts of a request, beside its headers, that the access log can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFact {
    Client,
    User,
    Date,
    IsoDate,
    RequestLine,
    Method,
    Path,
    Query,
    Protocol,
    Scheme,
    Status,
    Bytes,
    /// None where there is no response.
    ResponseBytes,
    /// In whole ones, until the end.
    Seconds,
    Millis,
    Micros,
    /// With six digits after the point.
    DecimalSeconds,
    /// With three.
    DecimalMillis,
    Pid,
    ProxySeconds,
    QueueSeconds,
    HeadSeconds,
    CpuSeconds,
    CloseCode,
    End,
}

/// An ASGI or WSGI app, served over HTTP.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// The pool that runs the app.
    pub pool: String,
    /// Each `host:port`, `unix:path` or `fd:number` (a socket that was handed over, listening already).
    pub bind: Vec<String>,
    pub connection: ConnectionConfig,
    /// Permissions of the unix sockets among them.
    pub unix_mode: u32,
    /// Threads that speak HTTP.
    pub threads: usize,
    pub dispatch: Dispatch,
    /// Until the head of the response.
    pub timeout_ms: Timeout,
    /// Longest pause between the parts of a response while the client is ready. None: no limit.
    pub silence_ms: Option<u64>,
    pub disconnect: Disconnect,
    /// The app's `root_path` and `SCRIPT_NAME`.
    pub root_path: String,
    /// Most header lines of a request.
    pub headers_max: usize,
    /// Largest request body, in bytes. None: no limit.
    pub body_bytes_max: Option<u64>,
    /// A connection is closed after so many requests. None: no limit.
    pub connection_requests_max: Option<u64>,
    /// Most requests at a time on one HTTP/2 connection.
    pub streams_max: u32,
    /// Largest message of a WebSocket, in bytes.
    pub message_bytes_max: usize,
    /// The client of a WebSocket is asked so often whether it is there. None: never.
    pub ping_interval_ms: Option<u64>,
    /// A client that has not answered a ping for so long is cut off.
    pub ping_timeout_ms: u64,
    /// Each connection starts with a line (or head) of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Addresses and networks whose `X-Forwarded-…` headers are believed; `*`: all; unix sockets always.
    pub forwarded_allow: Vec<String>,
    /// What becomes of headers with an underscore in their name.
    pub header_map: HeaderMap,
    /// Names of such headers that those peers may set; `*`: any.
    pub forwarder_headers: Vec<String>,
}

/// What is given to workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dispatch {
    /// Connections, unless another option keeps them in the front.
    #[default]
    Auto,
    /// Each request, to a worker that is free.
    Request,
    /// Connections: a worker answers plain requests on them by itself.
    Connection,
}

/// Limit until a response begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Timeout {
    /// In milliseconds. None: no limit.
    After(Option<u64>),
    ByApp(ByApp),
}

/// As the app's interface has it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ByApp {
    /// 30 s for a WSGI app, none for an ASGI app.
    Auto,
}

/// Policy for headers with an underscore in their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeaderMap {
    /// The app does not get them.
    Drop,
    /// The request is refused.
    Refuse,
    /// The app gets them, whoever has set them.
    Dangerous,
}

/// A handler of connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpConfig {
    /// The pool that runs the handler.
    pub pool: String,
    /// Each `host:port`, `unix:path` or `fd:number`.
    pub bind: Vec<String>,
    /// Most connections at a time, those that wait for a slot included.
    pub connections_max: usize,
}
