//! Notices that there may be something to claim: a stream of one entry, read with a connection that blocks.
//!
//! A read begins after the last entry that was seen, so nothing that comes between two waits is missed; and each wait is
//! a question with an answer, so a server that is gone is noticed.

use std::io;
use std::time::Duration;

use redis::{Connection, Value};

use super::link::RESPONSE_TIMEOUT;
use super::record::{list, text};
use crate::store::Watch;

pub(super) struct News {
    connection: Connection,
    key: String,
    /// The last entry that was seen.
    seen: String,
}

impl News {
    pub fn new(connection: Connection, root: &str) -> News {
        News { connection, key: format!("{root}:news"), seen: "0".to_owned() }
    }

    fn read(&mut self, at_most: Duration) -> redis::RedisResult<Value> {
        let mut cmd = redis::cmd("XREAD");
        cmd.arg("COUNT").arg(1);
        let ms = at_most.as_millis() as u64;
        // Zero would be for ever.
        if ms > 0 {
            cmd.arg("BLOCK").arg(ms);
        }
        cmd.arg("STREAMS").arg(&self.key).arg(&self.seen);
        self.connection.set_read_timeout(Some(at_most.saturating_add(RESPONSE_TIMEOUT)))?;
        cmd.query(&mut self.connection)
    }
}

impl Watch for News {
    fn wait(&mut self, at_most: Duration) -> io::Result<bool> {
        let answer = self.read(at_most).map_err(io::Error::other)?;
        let last = last_entry(answer);
        if let Some(id) = &last {
            self.seen.clone_from(id);
        }
        Ok(last.is_some())
    }
}

/// `[[key, [[id, fields]]]]`, or nothing.
fn last_entry(answer: Value) -> Option<String> {
    let stream = list(answer).pop()?;
    let entries = list(stream).pop()?;
    let entry = list(entries).pop()?;
    text(list(entry).into_iter().next()?)
}
