//! A way to the plane: the access of those who come by it.

use std::sync::Arc;
use std::time::Duration;

use clutch_host::{Plane, Warnings};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use rustix::process::{Uid, geteuid};

use super::CONNECTIONS_MAX;
use super::asked::{Answer, Asked};
use super::routes::{Allowed, Effect, FoundRoute, Route};
use crate::account::figures::Figures;
use crate::body::Body;
use crate::body::problem::Problem;
use crate::body::request::{collect, discard};
use crate::net::accept::{Service, Shortage};
use crate::net::access_control::AccessControl;
use crate::net::connection::{Connections, HEADERS_MAX, Limits};
use crate::net::protocol::Protocol;
use crate::net::stream::{ConnectionPermit, Stream};
use crate::net::tokens::Tokens;

/// Time that a client has to ask; one that does not leaves its place to others.
const PATIENCE: Duration = Duration::from_secs(10);

const HEAD_BYTES_MAX: usize = 16 << 10;

/// Largest body of an action.
const BODY_BYTES_MAX: u64 = 64 << 10;

pub(super) struct Door {
    plane: Arc<Plane>,
    access_control: Arc<AccessControl>,
    connections: Connections,
    warnings: Arc<Warnings>,
    /// Set for the control socket, which takes operators alone.
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
            // A browser asks again and again; commands on the private socket ask once.
            limits: Limits { head: PATIENCE, write: PATIENCE, idle: PATIENCE, requests_max: is_private.then_some(1) },
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            streams_max: 0,
            figures,
            access_log: None,
        };
        let access_control = Arc::new(access_control);
        Arc::new(Door { plane, access_control, connections, warnings, is_private })
    }

    pub(super) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.access_control.tokens()
    }

    /// Returns whether this connection is an operator's, once its token is checked where one is asked for.
    fn is_operators(&self, stream: &Stream) -> bool {
        self.tokens().is_some()
            || stream.user.map(Uid::from_raw).is_some_and(|user| user.is_root() || user == geteuid())
    }

    async fn answer(&self, request: Request<Incoming>, is_operator: bool, permit: ConnectionPermit) -> Response<Body> {
        let (head, mut body) = request.into_parts();
        let is_crowded = permit.places_left() < CONNECTIONS_MAX / 2;
        let found = self.admit(&head, is_operator);
        let is_let_in = found.as_ref().is_ok_and(|(route, ..)| route.allowed != Allowed::Anybody);
        let answered = match found {
            Ok((route, names)) => {
                let (plane, access_control) = (self.plane.clone(), self.access_control.clone());
                let asked = Asked { plane, access_control, names, head, body: Vec::new(), is_operator, permit };
                answer_of(route, asked, &mut body).await
            }
            Err(problem) => {
                discard(&mut body).await;
                Err(problem)
            }
        };
        let is_refused = answered.is_err() && !is_let_in;
        let mut response = answered.unwrap_or_else(|problem| problem.response());
        // Only a client that was let in keeps its connection: with a few requests a minute, others would hold all places for
        // ever. And where many have come, only an operator does: pages that nobody reads would hold them.
        if is_refused || (is_crowded && !is_operator) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Returns what is asked for, if whoever asks may.
    fn admit(&self, head: &Parts, is_operator: bool) -> Result<FoundRoute, Box<Problem>> {
        let found = Route::of(head);
        let allowed = found.as_ref().map_or(Allowed::Guests, |(route, ..)| route.allowed);
        match allowed {
            Allowed::Anybody => self.access_control.check_origin(head)?,
            Allowed::Guests | Allowed::Operators => self.access_control.check(head).map(drop)?,
        }
        let found = found?;
        let is_open = allowed != Allowed::Operators && !self.is_private;
        if is_operator || is_open { Ok(found) } else { Err(Problem::not_an_operator()) }
    }
}

async fn answer_of(route: &Route, asked: Asked, body: &mut Incoming) -> Answer {
    let body = match route.effect {
        Effect::Reads => Vec::new(),
        Effect::Acts => taken(body).await?,
    };
    (route.answer)(Asked { body, ..asked }).await
}

/// The body of an action, taken whole.
async fn taken(body: &mut Incoming) -> Result<Vec<u8>, Box<Problem>> {
    match tokio::time::timeout(PATIENCE, collect(body, BODY_BYTES_MAX)).await {
        Ok(collected) => collected,
        Err(_) => Err(Problem::body_too_slow(PATIENCE.as_secs_f64())),
    }
}

impl Service for Door {
    async fn serve(self: Arc<Self>, stream: Stream, permit: ConnectionPermit) {
        let is_operator = self.is_operators(&stream);
        let (door, told) = (self.clone(), permit.clone());
        let answer = move |request: Request<Incoming>, _turn| {
            let (door, permit) = (door.clone(), told.clone());
            async move {
                match permit.shortage() {
                    None => door.answer(request, is_operator, permit).await,
                    Some(shortage) => {
                        discard(&mut request.into_body()).await;
                        Problem::no_place(shortage).response()
                    }
                }
            }
        };
        // Of a program that is killed, clients see the end, whatever copies of it live on.
        let opened = self.connections.open(stream.kept_from_copies().io, &permit);
        self.connections.serve(opened, Protocol::Http1, permit, answer).await;
    }

    fn figures(&self) -> &Arc<Figures> {
        &self.connections.figures
    }

    fn refusal(&self, shortage: Shortage) -> Vec<u8> {
        Problem::no_place(shortage).last_words()
    }

    fn warnings(&self) -> &Warnings {
        &self.warnings
    }
}
