//! A request of the operator plane, and its answer.

use std::sync::Arc;

use clutch_host::routes::Names;
use clutch_host::{Plane, body};
use hyper::Response;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::body::Body;
use crate::body::problem::Problem;
use crate::net::access_control::AccessControl;
use crate::net::stream::ConnectionPermit;

pub(super) type Answer = Result<Response<Body>, Box<Problem>>;

/// A request of which the path is known.
pub(super) struct Asked {
    pub(super) plane: Arc<Plane>,
    pub(super) access_control: Arc<AccessControl>,
    pub(super) names: Names,
    pub(super) head: Parts,
    pub(super) body: Vec<u8>,
    pub(super) is_operator: bool,
    pub(super) permit: ConnectionPermit,
}

impl Asked {
    pub(super) fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// Returns what the body says.
    pub(super) fn given<T: DeserializeOwned>(&self) -> Result<T, Box<Problem>> {
        body::given(&self.body).map_err(Problem::bad_request)
    }
}
