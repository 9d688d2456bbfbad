//! What a front sends back: one document, or a stream as it is produced.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::account::BrokenOff;
use crate::problem::Problem;

/// Room made for a body before its first bytes are there, whatever length it claims.
const BODY_BYTES_AT_FIRST: u64 = 64 << 10;

/// Of a request that is refused by its head: so much of the body is read and dropped, so that the client, which may
/// still be writing, gets to read the refusal.
const DISCARD_BYTES_MAX: usize = 4 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// Gives what is ready of a body of unknown length; none after its end.
pub(crate) type BytesSource = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Send>;

/// The body of a response.
pub(crate) enum Body {
    Document(Option<Bytes>),
    Stream(BytesSource),
}

impl From<Vec<u8>> for Body {
    fn from(document: Vec<u8>) -> Body {
        Body::Document(Some(Bytes::from(document)))
    }
}

/// A response of 200 with its media type.
pub(crate) fn with_type(media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self.get_mut() {
            Body::Document(document) => Poll::Ready(document.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Stream(poll) => poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Document(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Document(document) => SizeHint::with_exact(document.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

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
