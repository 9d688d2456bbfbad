//! One way to the plane: who comes by it, and what they may do.

use std::sync::Arc;
use std::time::Duration;

use clutch_host::{Plane, Warnings};
use hyper::body::Incoming;
use hyper::{Request, Response};
use rustix::process::{Uid, geteuid};

use super::routes::Route;
use super::{actions, events, pages};
use crate::account::figures::Figures;
use crate::body::Body;
use crate::body::problem::Problem;
use crate::body::request::{collect, discard};
use crate::net::accept::Service;
use crate::net::access_control::AccessControl;
use crate::net::connection::{Connections, Limits};
use crate::net::protocol::Protocol;
use crate::net::stream::{ConnectionPermit, Stream};
use crate::net::tokens::Tokens;

/// Few ask, and they ask at once: one that does not leaves its place to others.
const PATIENCE: Duration = Duration::from_secs(10);

const HEAD_BYTES_MAX: usize = 16 << 10;

const HEADERS_MAX: usize = 100;

/// What an action is told with.
const BODY_BYTES_MAX: u64 = 64 << 10;

pub(super) struct Door {
    plane: Arc<Plane>,
    access_control: AccessControl,
    connections: Connections,
    warnings: Arc<Warnings>,
    /// Operators alone come in.
    is_private: bool,
}

impl Door {
    pub(super) fn new(
        plane: Arc<Plane>,
        access_control: AccessControl,
        figures: Arc<Figures>,
        warnings: Arc<Warnings>,
        is_private: bool,
    ) -> Arc<Door> {
        let connections = Connections {
            // Who asks again does so after a while, and pages that pile up unread hold no place.
            limits: Limits { head: PATIENCE, write: PATIENCE, idle: PATIENCE, requests_max: Some(1) },
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            streams_max: 0,
            figures,
            access_log: None,
        };
        Arc::new(Door { plane, access_control, connections, warnings, is_private })
    }

    pub(super) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.access_control.tokens()
    }

    /// Whether who comes by this connection is an operator, once its token is checked where one is asked for.
    fn is_operators(&self, stream: &Stream) -> bool {
        self.tokens().is_some()
            || stream.user.map(Uid::from_raw).is_some_and(|user| user.is_root() || user == geteuid())
    }

    async fn answer(&self, request: Request<Incoming>, is_operator: bool, permit: ConnectionPermit) -> Response<Body> {
        let (head, mut body) = request.into_parts();
        let admitted = self.access_control.check(&head).and_then(|()| Route::of(&head));
        let route = match admitted {
            Ok(route) if is_operator || (route.is_public() && !self.is_private) => route,
            refused => {
                discard(&mut body).await;
                return refused.map_or_else(|problem| problem, |_| Problem::not_an_operator()).response();
            }
        };
        let plane = &self.plane;
        let query = head.uri.query().unwrap_or_default();
        let answered = match route {
            Route::Health => Ok(pages::health()),
            Route::Readiness => Ok(pages::readiness(plane)),
            Route::Metrics => Ok(pages::metrics(plane)),
            Route::Pools => Ok(pages::pools(plane, is_operator)),
            Route::Process => Ok(pages::process(plane)),
            Route::Fronts => actions::fronts(plane, self.access_control.is_unix()).await,
            Route::Events => events::stream(plane, query, permit),
            Route::Stacks(target) => actions::stacks(plane, target, query).await,
            Route::Act(verb, target) => {
                match tokio::time::timeout(PATIENCE, collect(&mut body, BODY_BYTES_MAX)).await {
                    Ok(Ok(body)) => actions::act(plane, verb, target, &body).await,
                    Ok(Err(problem)) => Err(problem),
                    Err(_) => Err(Problem::body_too_slow(PATIENCE.as_secs_f64())),
                }
            }
        };
        answered.unwrap_or_else(|problem| problem.response())
    }
}

impl Service for Door {
    async fn serve(self: Arc<Self>, stream: Stream, permit: ConnectionPermit) {
        let is_operator = self.is_operators(&stream);
        let (door, told) = (self.clone(), permit.clone());
        let answer = move |request, _turn| {
            let (door, permit) = (door.clone(), told.clone());
            async move { door.answer(request, is_operator, permit).await }
        };
        // Of a program that is killed, clients see the end, whatever copies of it live on.
        let opened = self.connections.open(stream.kept_from_copies().io);
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
