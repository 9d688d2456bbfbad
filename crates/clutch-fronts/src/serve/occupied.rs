//! WebSockets that are open: counted, and told of where they leave no slot to anything else.

use std::sync::Arc;

use clutch_host::Warnings;
use clutch_pool::pool::Pool;

use crate::account::figures::{Figures, Open};

/// Counts one until the result is dropped. It has a slot already.
pub(super) fn occupy(figures: &Arc<Figures>, pool: &Pool, warnings: &Warnings) -> Open {
    let open = figures.websocket();
    let count = figures.websockets();
    // The pool is not asked before they fill one worker. Those whose worker leaves, or that are being closed, are in the way
    // of nobody.
    if count >= u64::from(pool.config.shape.slots()) && !pool.has_free_slot() {
        let stats = pool.stats();
        if stats.slots > 0 && stats.ready >= stats.max && count >= stats.slots as u64 {
            warnings.tell("websockets", || words(&figures.front, &stats.name, stats.slots));
        }
    }
    open
}

fn words(front: &str, pool: &str, slots: usize) -> String {
    let all = if slots == 1 { "the only slot".to_owned() } else { format!("all {slots} slots") };
    format!(
        "{front}: WebSockets have {all} of pool {pool}: requests and further handshakes wait until one ends; for more at a \
         time: --worker-connections (async), --threads (thread), or more workers (-w)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_how_many_there_are() {
        assert!(words("serve", "web", 1).starts_with("serve: WebSockets have the only slot of pool web: "));
        assert!(words("serve", "web", 256).contains("all 256 slots of pool web"));
    }
}
