//! What is asked of a server, and how often. Plain data, as it comes in as JSON.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Longest measurement.
const SECONDS_MAX: f64 = 86_400.0;
/// Longest wait for answers after a measurement.
const GRACE_SECONDS_MAX: f64 = 60.0;

/// Server, requests and connections of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub address: Address,
    pub protocol: Protocol,
    pub connections: usize,
    #[serde(default = "one")]
    pub threads: usize,
    /// Of the order in which requests of different weights come.
    #[serde(default)]
    pub seed: u64,
}

/// `127.0.0.1:8000`, `[::1]:8000` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Form of a request and of its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Protocol {
    /// HTTP/1.1 with keep-alive; any answer.
    Http { requests: Vec<Request> },
    /// This text as a WebSocket message, which comes back as it went.
    WebSocket { path: String, message: String },
    /// These bytes, whose answer ends as told.
    Tcp { message: Bytes, answer: TcpAnswer },
}

/// A request over HTTP. Its bodies come apart, as they may be any bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// How often it comes, compared with the weights of the others.
    #[serde(default = "one")]
    pub weight: u32,
    #[serde(default = "get")]
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

/// What ends an answer over TCP.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TcpAnswer {
    /// It is always these bytes.
    Exact(Bytes),
    /// It has so many bytes.
    Length(usize),
    /// It ends with these bytes.
    Until(Bytes),
}

/// A text, or numbers from 0 to 255.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Bytes {
    Text(String),
    Numbers(Vec<u8>),
}

/// One measurement over the connections of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    pub seconds: f64,
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Maximum wait for answers after the last request was due.
    #[serde(default = "two_seconds")]
    pub grace_seconds: f64,
}

/// The event that makes a request due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// A connection that is free.
    #[default]
    Closed,
    /// The clock, always after the same time, whether earlier requests are answered or not.
    Even { per_second: f64 },
    /// The clock, as independent clients come: after times that are distributed exponentially.
    Poisson {
        per_second: f64,
        #[serde(default)]
        seed: u64,
    },
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

fn get() -> String {
    "GET".into()
}

fn two_seconds() -> f64 {
    2.0
}

impl Plan {
    pub fn check(&self) -> io::Result<()> {
        if self.threads == 0 || self.threads > self.connections {
            let (threads, connections) = (self.threads, self.connections);
            let given = format!("{threads} threads and {connections} connections");
            return Err(invalid(format!("a plan needs 1 ≤ threads ≤ connections, not {given}")));
        }
        Ok(())
    }
}

impl Measure {
    pub fn check(&self) -> io::Result<()> {
        let rate = match self.arrivals {
            Arrivals::Closed => 1.0,
            Arrivals::Even { per_second } | Arrivals::Poisson { per_second, .. } => per_second,
        };
        within("seconds", self.seconds, SECONDS_MAX)?;
        within("grace_seconds", self.grace_seconds, GRACE_SECONDS_MAX)?;
        within("per_second", rate, 1e9)
    }
}

fn within(name: &str, given: f64, most: f64) -> io::Result<()> {
    if given > 0.0 && given <= most {
        return Ok(());
    }
    Err(invalid(format!("{name} = {given}: it must be above 0 and at most {most}")))
}

pub fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl Bytes {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Text(text) => text.as_bytes(),
            Bytes::Numbers(numbers) => numbers,
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Address::Unix(path.into()));
        }
        let expected = "127.0.0.1:8000, [::1]:8000 or unix:/path";
        text.parse().map(Address::Tcp).map_err(|_| format!("address {text:?}: it must be like {expected}"))
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        match address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// As the Host header has it.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(formatter),
            Address::Unix(_) => formatter.write_str("localhost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_few_words_means_the_usual() {
        let text =
            r#"{"address": "127.0.0.1:80", "protocol": {"http": {"requests": [{"path": "/"}]}}, "connections": 2}"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        let Protocol::Http { requests } = &plan.protocol else { panic!("{plan:?}") };
        assert_eq!((plan.threads, requests[0].weight, requests[0].method.as_str()), (1, 1, "GET"));
        let measure: Measure = serde_json::from_str(r#"{"seconds": 1}"#).unwrap();
        assert_eq!((measure.arrivals, measure.grace_seconds), (Arrivals::Closed, 2.0));
    }

    #[test]
    fn bytes_are_a_text_or_numbers() {
        let message = |text: &str| serde_json::from_str::<Bytes>(text).unwrap().as_slice().to_vec();
        assert_eq!((message(r#""hé""#), message("[0, 255]")), ("hé".as_bytes().to_vec(), vec![0, 255]));
    }

    #[test]
    fn what_is_not_known_or_not_possible_is_refused_in_words() {
        let measure = |text: &str| -> Result<(), String> {
            let measure: Measure = serde_json::from_str(text).map_err(|error| error.to_string())?;
            measure.check().map_err(|error| error.to_string())
        };
        assert!(measure(r#"{"seconds": 1, "rate": 5}"#).unwrap_err().contains("unknown field `rate`"));
        assert!(measure(r#"{"seconds": 0}"#).unwrap_err().contains("seconds = 0: it must be above 0"));
        let negative = r#"{"seconds": 1, "arrivals": {"even": {"per_second": -1}}}"#;
        assert!(measure(negative).unwrap_err().contains("per_second = -1"));
        let address = serde_json::from_str::<Address>(r#""localhost""#).unwrap_err().to_string();
        assert!(address.contains("unix:/path"), "{address}");
    }
}
