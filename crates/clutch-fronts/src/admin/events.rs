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
use hyper::http::request::Parts;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at};

use super::asked::{Answer, Asked};
use crate::body::problem::Problem;
use crate::body::{Body, with_type};
use crate::net::access_control::AccessControl;

/// Events that wait for one client.
const WAITING_MAX: usize = 1024;

/// Interval at which a silent stream says that it is there, and each asks whether its client may still hear it.
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
    access_control: Arc<AccessControl>,
    /// Head of the request, with the token or the cookie that let it in.
    head: Parts,
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
        access_control: asked.access_control,
        head: asked.head,
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
        if self.alive.poll_tick(context).is_ready() {
            // The session may have ended since, and the token may be none any more.
            if self.access_control.check(&self.head).is_err() {
                return Poll::Ready(None);
            }
            if text.is_empty() {
                text.push_str(ALIVE);
            }
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

#[cfg(test)]
mod tests {
    use clutch_host::Address;
    use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderName};

    use super::*;
    use crate::net::access_control::Guard;
    use crate::net::sessions::Sessions;
    use crate::net::tokens::Tokens;

    const OWN: &str = "localhost:8080";

    /// A guard whose tokens are in a file.
    fn guard(file: &std::path::Path) -> Guard {
        std::fs::write(file, "secret\n").expect("a file");
        let tokens = Tokens::new("admin", None, file.to_str(), None, &Arc::default()).expect("tokens");
        Guard { tokens, sessions: Some(Arc::new(Sessions::new(8080, false))), ..Guard::default() }
    }

    /// A stream that looks as often as it can.
    fn stream(guard: &Guard, name: HeaderName, value: &HeaderValue) -> EventStream {
        let address = Address::Tcp(([127, 0, 0, 1], 8080).into());
        let request = hyper::Request::builder().uri("/events").header(HOST, OWN).header(name, value);
        let (sender, events) = mpsc::channel(WAITING_MAX);
        EventStream {
            access_control: Arc::new(AccessControl::new("127.0.0.1:8080", &address, guard.clone())),
            head: request.body(()).expect("a request").into_parts().0,
            subscriber: Arc::new(Subscriber { events: sender, missed: AtomicU64::new(0) }),
            events,
            alive: tokio::time::interval(Duration::from_millis(1)),
            greeting: String::new(),
            leave: Box::pin(std::future::pending()),
        }
    }

    async fn goes_on(stream: &mut EventStream) -> bool {
        std::future::poll_fn(|context| stream.poll(context)).await.is_some()
    }

    #[test]
    fn a_stream_ends_with_what_let_it_in() {
        let file = std::env::temp_dir().join(format!("clutch-events-{}", std::process::id()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let guard = guard(&file);
            let (Some(tokens), Some(sessions)) = (&guard.tokens, &guard.sessions) else { panic!("both are there") };
            let set = sessions.sign_in(tokens, b"secret").expect("a session");
            let cookie = HeaderValue::from_str(set.to_str().expect("text").split(';').next().expect("a pair"));
            let cookie = cookie.expect("a cookie");
            let mut by_cookie = stream(&guard, COOKIE, &cookie);
            let mut by_token = stream(&guard, AUTHORIZATION, &HeaderValue::from_static("Bearer secret"));
            assert!(goes_on(&mut by_cookie).await && goes_on(&mut by_cookie).await);
            sessions.sign_out(&[(COOKIE, cookie)].into_iter().collect());
            assert!(!goes_on(&mut by_cookie).await, "it is signed out");
            assert!(goes_on(&mut by_token).await);
            std::fs::write(&file, "other\n").expect("a file");
            tokens.reload().expect("a file").expect("tokens");
            assert!(!goes_on(&mut by_token).await, "its token is none any more");
        });
        std::fs::remove_file(&file).expect("gone");
    }
}
