//! The body of a request that is taken whole, or not at all.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};

use crate::body::problem::Problem;

/// Room made for a body before its first bytes are there, whatever length it claims.
const BODY_BYTES_AT_FIRST: u64 = 64 << 10;

/// A client that was answered before its request was whole may go on sending: many read nothing until they have sent all,
/// and some lose an answer that comes with a reset. So it is read on and dropped, for so long in all, while at least so many
/// bytes come within the silence that is allowed.
const READ_ON_MAX: Duration = Duration::from_secs(300);
const READ_ON_BYTES_MIN: usize = 1024;

/// The same of a request that was refused: less is owed to it.
const REFUSED_SILENCE: Duration = Duration::from_secs(5);
const REFUSED_MAX: Duration = Duration::from_secs(30);

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

/// Reads what a client is still sending, so that it gets to read why it was refused.
pub(crate) async fn discard(body: &mut Incoming) {
    drop_rest(body, REFUSED_SILENCE, REFUSED_MAX).await;
}

/// Reads what a client is still sending though its app has answered. `silence`: maximum time in which it sends next to
/// nothing.
pub(crate) async fn read_on(body: &mut Incoming, silence: Duration) {
    drop_rest(body, silence, READ_ON_MAX).await;
}

/// A client that goes on beyond this has its connection closed.
async fn drop_rest(body: &mut Incoming, silence: Duration, most: Duration) {
    let until = Instant::now() + most;
    loop {
        let (mut came, window) = (0, until.min(Instant::now() + silence));
        while came < READ_ON_BYTES_MIN {
            match timeout_at(window, body.frame()).await {
                Ok(Some(Ok(frame))) => came += frame.data_ref().map_or(0, |data| data.len()),
                _ => return,
            }
        }
    }
}
