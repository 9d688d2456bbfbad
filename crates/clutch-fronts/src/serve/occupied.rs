//! WebSockets and event streams that are open: counted, and told of where they leave no slot to anything else.

use std::sync::Arc;

use clutch_host::Warnings;
use clutch_pool::pool::Pool;

use crate::account::figures::{Figures, Open};

/// What has a slot for as long as its client likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    WebSocket,
    EventStream,
}

/// Counts one until the result is dropped. It has a slot already.
pub(super) fn occupy(occupant: Occupant, figures: &Arc<Figures>, pool: &Pool, warnings: &Warnings) -> Open {
    let open = match occupant {
        Occupant::WebSocket => figures.websocket(),
        Occupant::EventStream => figures.event_stream(),
    };
    let (websockets, event_streams) = (figures.websockets(), figures.event_streams());
    let count = websockets + event_streams;
    // The pool is not asked before they fill one worker. Those whose worker leaves, or that are being closed, are in the way
    // of nobody.
    if count >= u64::from(pool.config.shape.slots()) && !pool.has_free_slot() {
        let stats = pool.stats();
        if stats.slots > 0 && stats.ready >= stats.max && count >= stats.slots as u64 {
            let what = what_of(websockets, event_streams);
            warnings.tell("occupied", || words(&figures.front, what, &stats.name, stats.slots));
        }
    }
    open
}

fn what_of(websockets: u64, event_streams: u64) -> &'static str {
    match (websockets, event_streams) {
        (_, 0) => "WebSockets",
        (0, _) => "event streams",
        _ => "WebSockets and event streams",
    }
}

fn words(front: &str, what: &str, pool: &str, slots: usize) -> String {
    let all = if slots == 1 { "the only slot".to_owned() } else { format!("all {slots} slots") };
    let others = if what == "event streams" { "other requests" } else { "requests and further handshakes" };
    format!(
        "{front}: {what} have {all} of pool {pool}: {others} wait until one ends; for more at a time: \
         --worker-connections (async), --threads (thread), or more workers (-w)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_how_many_there_are_and_of_what() {
        let of = |websockets, event_streams, slots| words("serve", what_of(websockets, event_streams), "web", slots);
        assert!(of(1, 0, 1).starts_with("serve: WebSockets have the only slot of pool web: requests and"));
        assert!(of(256, 0, 256).contains("all 256 slots of pool web"));
        assert!(of(0, 2, 2).starts_with("serve: event streams have all 2 slots of pool web: other requests wait"));
        assert!(of(1, 1, 2).starts_with("serve: WebSockets and event streams have all 2 slots"));
    }
}
