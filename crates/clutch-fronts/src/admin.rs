//! For operators and their machines: whether it lives, whether it can serve, and its figures.

mod metrics;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clutch_pool::pool::{Health, Pool, Stats};
use clutch_pool::telemetry::{Histograms, Scope, Sink};
use clutch_wire::sync::Mutex;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::{Body, with_type};
use crate::config::AdminConfig;
use crate::figures::{Figures, Snapshot};
use crate::front::{Context, Front, Pools, Reread, Start};
use crate::net::accept::{Accepting, Service};
use crate::net::access_control::{AccessControl, Guard};
use crate::net::connection::{Connections, Limits};
use crate::net::listen::{Access, Address, Listener, not_bound, refuse_unguarded};
use crate::net::protocol::Protocol;
use crate::net::stream::{ConnectionPermit, Stream};
use crate::net::tokens::Tokens;
use crate::net::warnings::Warnings;
use crate::problem::Problem;

/// Few ask, and they ask at once: one that does not leaves its place to others.
const PATIENCE: Duration = Duration::from_secs(10);

const HEAD_BYTES_MAX: usize = 16 << 10;

const HEADERS_MAX: usize = 100;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 256;

impl Start for AdminConfig {
    fn start(self: Box<Self>, context: &Context) -> io::Result<Box<dyn Front>> {
        let place = context.place();
        let listener =
            Listener::bind(&self.bind, Access::Owner).map_err(|error| not_bound(&place, &self.bind, &error))?;
        let may_be_open = self.token.is_some() || self.token_file.is_some() || self.insecure;
        refuse_unguarded(&place, &self.bind, listener.address(), may_be_open)?;
        let plane = Arc::new(Plane::new(&self, listener.address(), context)?);
        let mut accepting = Accepting::new(CONNECTIONS_MAX);
        accepting.add(listener, plane.clone());
        Ok(Box::new(AdminFront { context: context.clone(), accepting, plane }))
    }
}

struct AdminFront {
    context: Context,
    accepting: Accepting,
    plane: Arc<Plane>,
}

impl Front for AdminFront {
    fn accepting(&mut self) -> &mut Accepting {
        &mut self.accepting
    }

    fn is_last(&self) -> bool {
        true
    }

    fn reload(&self, _pools: &[String]) -> Vec<Reread> {
        let tokens = self.plane.access_control.tokens().and_then(|tokens| tokens.reload());
        self.context.reread([("token_file", tokens)])
    }

    fn token(&self) -> Option<String> {
        self.plane.access_control.tokens()?.first()
    }
}

/// What operators ask, and the answers.
struct Plane {
    pools: Pools,
    access_control: AccessControl,
    connections: Connections,
    warnings: Arc<Warnings>,
    /// Of all fronts.
    figures: Arc<Mutex<Vec<Arc<Figures>>>>,
    /// How long work waited and ran, since this front started.
    histograms: Arc<Histograms>,
    /// Set when the fronts begin to stop.
    stopping: Arc<AtomicBool>,
}

impl Plane {
    /// Fails where its file of tokens is none.
    fn new(config: &AdminConfig, address: &Address, context: &Context) -> io::Result<Plane> {
        let Context { name, pools, warnings, stopping, figures } = context.clone();
        let connections = Connections {
            // Who asks again does so after a while, and pages that pile up unread hold no place.
            limits: Limits { head: PATIENCE, write: PATIENCE, idle: PATIENCE, requests_max: Some(1) },
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            streams_max: 0,
            figures: context.figures(),
            access_log: None,
        };
        let tokens = Tokens::new(&name, config.token.as_deref(), config.token_file.as_deref(), &warnings)?;
        let access_control = AccessControl::new(&config.bind, address, Guard { tokens, ..Guard::default() });
        let histograms = Arc::<Histograms>::default();
        let sink: Arc<dyn Sink> = histograms.clone();
        // All pools of a dispatcher report to one telemetry.
        pools.iter().take(1).for_each(|pool| pool.telemetry.subscribe(Arc::downgrade(&sink), Scope::FINISHED));
        Ok(Plane { pools, access_control, connections, warnings, figures, histograms, stopping })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, _) = request.into_parts();
        self.page(&head).unwrap_or_else(|problem| problem.response())
    }

    fn page(&self, head: &Parts) -> Result<Response<Body>, Box<Problem>> {
        self.access_control.check(head)?;
        let page = match head.uri.path() {
            "/healthz" => Plane::healthz,
            "/readyz" => Plane::readyz,
            "/metrics" => Plane::metrics,
            "/pools" => Plane::pools,
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
        with_type(
            metrics::CONTENT_TYPE,
            Body::from(metrics::render(&self.stats(), &self.histograms, &self.readings()).into_bytes()),
        )
    }

    fn pools(&self) -> Response<Body> {
        document(&json!({ "pools": self.stats() }))
    }

    fn readings(&self) -> Vec<Snapshot> {
        self.figures.lock().iter().map(|figures| figures.read()).collect()
    }

    fn stats(&self) -> Vec<Stats> {
        self.pools.iter().map(|pool| pool.stats()).collect()
    }
}

impl Service for Plane {
    async fn serve(self: Arc<Self>, stream: Stream, permit: ConnectionPermit) {
        let front = self.clone();
        let answer = move |request, _turn| {
            let front = front.clone();
            async move { front.answer(request).await }
        };
        let opened = self.connections.open(stream.io);
        self.connections.serve(opened, Protocol::Http1, permit, answer).await;
    }

    fn figures(&self) -> &Arc<Figures> {
        &self.connections.figures
    }

    fn refusal(&self) -> Vec<u8> {
        Problem::too_many_connections().last_words()
    }

    fn warnings(&self) -> &Warnings {
        &self.warnings
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
