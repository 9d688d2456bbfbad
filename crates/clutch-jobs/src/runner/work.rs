//! A job as work for a pool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_pool::pool::Pool;
use clutch_pool::pool::state::queue::PRIORITY_MAX;
use clutch_pool::work::{FunctionId, Reply, Work};
use clutch_wire::headers::put_headers;
use clutch_wire::{Codec, Payload};
use serde::Serialize;
use serde_json::value::RawValue;

use super::answer;
use crate::job::{Claimed, Ending, JobError, Millis};

/// Larger arguments go through shared memory.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Details of a job for the worker, beside its arguments.
#[derive(Serialize)]
pub(super) struct Details<'a> {
    id: &'a str,
    queue: &'a str,
    attempt: u32,
    attempts_max: u32,
    created_at: Millis,
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<&'a RawValue>,
    /// True if somebody wants its result.
    keeps_result: bool,
}

impl<'a> Details<'a> {
    pub(super) fn of(job: &'a Claimed) -> Details<'a> {
        Details {
            id: &job.id,
            queue: &job.queue,
            attempt: job.attempt,
            attempts_max: job.attempts_max,
            created_at: job.created_at,
            tags: &job.tags,
            meta: raw(job.meta.as_deref()),
            checkpoint: raw(job.checkpoint.as_deref()),
            keeps_result: job.result_ms > 0,
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Makes the work of a job; or its ending, if it cannot run.
/// `mark`: where its worker writes that its code has returned.
pub(super) fn of(
    job: &Claimed,
    function: FunctionId,
    mark: Option<Vec<u8>>,
    pool: &Pool,
    reply: Arc<dyn Reply>,
    now: Millis,
) -> Result<Work, Ending> {
    // The job's own time goes on while it waits, that of an attempt begins with its code.
    let run_limit = pool.config.deadline().filter(|_| job.deadline_at.is_none());
    let deadline = match job.deadline_at {
        None => None,
        Some(at) => match u64::try_from(at.saturating_sub(now)) {
            Ok(left) if left > 0 => Instant::now().checked_add(Duration::from_millis(left)),
            _ => return Err(overdue(job, now)),
        },
    };
    let body = job.body();
    let mut payload = Payload::new(Codec::Headed, Vec::with_capacity(256 + body.len().min(INLINE_BYTES_MAX)));
    let mut headers = put_headers(&mut payload.inline);
    headers.put(b"job", &Details::of(job).to_json());
    mark.into_iter().for_each(|mark| headers.put(b"end", &mark));
    job.headers.iter().for_each(|(name, value)| headers.put(name.as_bytes(), value));
    if body.len() <= INLINE_BYTES_MAX {
        payload.inline.extend_from_slice(body.as_bytes());
    } else {
        let stored = pool.regions().store(body.as_bytes());
        let lease = stored.map_err(|error| Ending::NotBegun { reason: format!("no shared memory: {error}") })?;
        payload.leases.push(Arc::new(lease));
    }
    Ok(Work {
        deadline,
        run_limit,
        priority: job.priority.clamp(-PRIORITY_MAX, PRIORITY_MAX),
        // Where a worker dies, the pool tries again at once, unless this was the job's last attempt; a job that kills too many
        // is quarantined.
        retry: pool.config.deaths_max.saturating_sub(1).min(job.attempts_max.saturating_sub(job.attempt)),
        one_value: true,
        ..Work::new(job.kind, function, payload, reply)
    })
}

/// None: it is not JSON, which no store gives.
fn raw(text: Option<&str>) -> Option<&RawValue> {
    serde_json::from_str(text?).ok()
}

pub(super) fn overdue(job: &Claimed, now: Millis) -> Ending {
    let error = JobError {
        at: now,
        attempt: job.attempt,
        kind: "deadline".to_owned(),
        message: "its deadline had passed before it began".to_owned(),
        traceback: String::new(),
    };
    Ending::Impossible { error, why: answer::OVERDUE.into() }
}
