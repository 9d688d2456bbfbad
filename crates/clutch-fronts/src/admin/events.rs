//! `GET /events`: what happens in the pools, as it happens, as server-sent events.
//!
//! Each event has its name as its type and its fields as JSON. A client that reads too slowly misses some, and is told how
//! many; the pools never wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clutch_pool::telemetry::{Event, Scope, Sink};
use hyper::Response;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at};

use crate::body::{Body, with_type};
use crate::net::stream::ConnectionPermit;
use crate::plane::Plane;
use crate::problem::Problem;

/// Events that wait for one client.
const WAITING_MAX: usize = 1024;

/// So often a silent stream says that it is there.
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Events that are there are sent together, up to about so many bytes.
const TOGETHER_BYTES: usize = 16 << 10;

/// Keeps events for one client.
struct Listener {
    events: mpsc::Sender<Event>,
    missed: AtomicU64,
}

impl Sink for Listener {
    fn event(&self, event: &Event) {
        if self.events.try_send(event.clone()).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Stream {
    listener: Arc<Listener>,
    events: mpsc::Receiver<Event>,
    alive: Interval,
    /// It has said that it is there, as it does first of all.
    is_begun: bool,
    /// Ends when the connection is to.
    leave: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// `query`: `scope=lives` (pools and workers, the default), `incidents` or `all`.
pub(super) fn stream(plane: &Plane, query: &str, permit: ConnectionPermit) -> Result<Response<Body>, Box<Problem>> {
    let scope = match query {
        "" => Some(Scope::LIVES),
        _ => query.strip_prefix("scope=").and_then(Scope::named),
    };
    let scope =
        scope.ok_or_else(|| Problem::bad_request("write /events, or ?scope=lives, ?scope=incidents or ?scope=all"))?;
    let (sender, events) = mpsc::channel(WAITING_MAX);
    let listener = Arc::new(Listener { events: sender, missed: AtomicU64::new(0) });
    let sink: Arc<dyn Sink> = listener.clone();
    plane.telemetry.subscribe(Arc::downgrade(&sink), scope);
    let mut permit = permit;
    let mut stream = Stream {
        listener,
        events,
        alive: interval_at(Instant::now() + ALIVE_INTERVAL, ALIVE_INTERVAL),
        is_begun: false,
        leave: Box::pin(async move { permit.leave_asked().await }),
    };
    let body = Body::Stream(Box::new(move |context| stream.poll(context)));
    let mut response = with_type("text/event-stream", body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl Stream {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut text = String::new();
        let missed = self.listener.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            put(&mut text, "events_missed", &json!({ "event": "events_missed", "count": missed }));
        }
        while text.len() < TOGETHER_BYTES
            && let Poll::Ready(Some(event)) = self.events.poll_recv(context)
        {
            let event = json!(event);
            put(&mut text, event["event"].as_str().unwrap_or("event"), &event);
        }
        let is_silent = self.alive.poll_tick(context).is_ready() || !std::mem::replace(&mut self.is_begun, true);
        if is_silent && text.is_empty() {
            text.push_str(": alive\n\n");
        }
        if !text.is_empty() {
            return Poll::Ready(Some(text.into()));
        }
        self.leave.as_mut().poll(context).map(|()| None)
    }
}

fn put(text: &mut String, name: &str, event: &serde_json::Value) {
    // JSON of serde has no line breaks.
    text.push_str(&format!("event: {name}\ndata: {event}\n\n"));
}
