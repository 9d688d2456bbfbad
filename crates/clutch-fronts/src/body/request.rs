//! The body of a request that is taken whole, or not at all.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use crate::body::problem::Problem;

/// Room made for a body before its first bytes are there, whatever length it claims.
const BODY_BYTES_AT_FIRST: u64 = 64 << 10;

/// Maximum number of bytes of a refused request's body that are read and dropped. The client may still be writing, and
/// so gets to read the refusal.
const DISCARD_BYTES_MAX: usize = 4 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// The whole body of a request, of at most so many bytes.
pub(crate) async fn collect(body: &mut Incoming, bytes_max: u64) -> Result<Vec<u8>, Box<Problem>> {
    let announced = body.size_hint().lower();
    if announced > bytes_max {
        return Err(Problem::body_too_large(bytes_max));
    }
    let mut bytes = Vec::with_capacity(announced.min(BODY_BYTES_AT_FIRST) as usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::bad_request(format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if (bytes.len() + data.len()) as u64 > bytes_max {
            return Err(Problem::body_too_large(bytes_max));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Reads what a client may still be sending, for a while, so that it gets to read why it was refused.
pub(crate) async fn discard(body: &mut Incoming) {
    let read = async {
        let mut left = DISCARD_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len()));
            if left == 0 {
                return;
            }
        }
    };
    // A client that goes on sending beyond this has its connection closed.
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}
