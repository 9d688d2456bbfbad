//! For operators and their machines: whether it lives, whether it can serve, and its figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::body::{Body, with_type};
use super::door::Door;

use super::listen::{Address, HeadLimits, Stay, Stream, serve_http1};
use super::metrics;
use super::problem::Problem;
use super::{Front, Pools};
use crate::config::AdminConfig;
use crate::pool::{Health, Pool, Stats};

const HEAD: HeadLimits = HeadLimits { bytes: 16 << 10, time: Duration::from_secs(10) };

/// The admin front.
pub(super) struct AdminFront {
    pools: Pools,
    door: Door,
    /// Set when the fronts begin to stop.
    stopping: Arc<AtomicBool>,
}

impl AdminFront {
    pub(super) fn new(pools: Pools, config: &AdminConfig, address: &Address, stopping: Arc<AtomicBool>) -> AdminFront {
        AdminFront { pools, door: Door::new(&config.bind, address, config.token.as_deref()), stopping }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, _) = request.into_parts();
        self.page(&head).unwrap_or_else(|problem| problem.response())
    }

    fn page(&self, head: &Parts) -> Result<Response<Body>, Box<Problem>> {
        self.door.check(head)?;
        let page = match head.uri.path() {
            "/healthz" => AdminFront::healthz,
            "/readyz" => AdminFront::readyz,
            "/metrics" => AdminFront::metrics,
            "/pools" => AdminFront::pools,
            _ => {
                return Err(Problem::no_such_path("there are /healthz, /readyz, /metrics and /pools"));
            }
        };
        match head.method {
            Method::GET | Method::HEAD => Ok(page(self)),
            _ => Err(Problem::method_not_allowed("GET, HEAD")),
        }
    }

    fn healthz(&self) -> Response<Body> {
        document(&json!({ "alive": true }))
    }

    fn readyz(&self) -> Response<Body> {
        let stopping = self.stopping.load(Ordering::Acquire);
        let waiting: Vec<Value> = self.pools.iter().filter_map(|pool| unready(pool)).collect();
        let ready = !stopping && waiting.is_empty();
        let mut response = document(&json!({ "ready": ready, "stopping": stopping, "waiting": waiting }));
        if !ready {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    }

    fn metrics(&self) -> Response<Body> {
        with_type(metrics::CONTENT_TYPE, Body::from(metrics::render(&self.stats()).into_bytes()))
    }

    fn pools(&self) -> Response<Body> {
        document(&json!({ "pools": self.stats() }))
    }

    fn stats(&self) -> Vec<Stats> {
        self.pools.iter().map(|pool| pool.stats()).collect()
    }
}

impl Front for AdminFront {
    async fn serve(self: Arc<Self>, stream: Stream, stay: Stay) {
        serve_http1(stream, stay, HEAD, |request| self.answer(request)).await;
    }
}

/// Why a pool that readiness waits for is not ready.
fn unready(pool: &Pool) -> Option<Value> {
    let status = pool.status();
    let waited_for = pool.config.required && status.health != Health::Ready;
    waited_for.then(|| json!({ "pool": pool.config.name, "state": status.health, "reason": status.reason }))
}

fn document(value: &Value) -> Response<Body> {
    with_type("application/json", Body::from(value.to_string().into_bytes()))
}
