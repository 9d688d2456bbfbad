//! `GET /events`: what happens in the pools, as it happens, as server-sent events.
//!
//! Each event has its name as its type and its fields as JSON. A client that reads too slowly misses some, and is told how
//! many; the pools never wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clutch_pool::telemetry::{EventRecord, KeptRecord, Scope, Sink};
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at};

use super::asked::{Answer, Asked};
use crate::body::problem::Problem;
use crate::body::{Body, with_type};

/// Events that wait for one client.
const WAITING_MAX: usize = 1024;

/// So often a silent stream says that it is there.
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// A comment.
const ALIVE: &str = ": alive\n\n";

/// Events that are there are sent together, up to about so many bytes.
const TOGETHER_BYTES: usize = 16 << 10;

/// Keeps events for one client.
struct Subscriber {
    events: mpsc::Sender<KeptRecord>,
    missed: AtomicU64,
}

impl Sink for Subscriber {
    fn event(&self, event: &EventRecord<'_>) {
        if self.events.try_send(event.keep()).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct EventStream {
    subscriber: Arc<Subscriber>,
    events: mpsc::Receiver<KeptRecord>,
    alive: Interval,
    /// Text that is sent at once, so that the client knows that it hears.
    greeting: String,
    /// Ends when the connection is to.
    leave: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Streams events, as the query says: `scope=lives` (pools and workers, the default), `incidents` or `all`.
pub(super) async fn stream(asked: Asked) -> Answer {
    let scope = match asked.query() {
        "" => Some(Scope::LIVES),
        query => query.strip_prefix("scope=").and_then(Scope::named),
    };
    let scope =
        scope.ok_or_else(|| Problem::bad_request("write /events, or ?scope=lives, ?scope=incidents or ?scope=all"))?;
    let (sender, events) = mpsc::channel(WAITING_MAX);
    let subscriber = Arc::new(Subscriber { events: sender, missed: AtomicU64::new(0) });
    let sink: Arc<dyn Sink> = subscriber.clone();
    asked.plane.telemetry.subscribe(Arc::downgrade(&sink), scope);
    let mut permit = asked.permit;
    let mut stream = EventStream {
        subscriber,
        events,
        alive: interval_at(Instant::now() + ALIVE_INTERVAL, ALIVE_INTERVAL),
        greeting: ALIVE.to_owned(),
        leave: Box::pin(async move { permit.leave_asked().await }),
    };
    let body = Body::Stream(Box::new(move |context| stream.poll(context)));
    let mut response = with_type("text/event-stream", body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl EventStream {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut text = std::mem::take(&mut self.greeting);
        let missed = self.subscriber.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            put(&mut text, "events_missed", &json!({ "event": "events_missed", "count": missed }));
        }
        while text.len() < TOGETHER_BYTES
            && let Poll::Ready(Some(event)) = self.events.poll_recv(context)
        {
            put(&mut text, event.name(), &json!(event));
        }
        if self.alive.poll_tick(context).is_ready() && text.is_empty() {
            text.push_str(ALIVE);
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
