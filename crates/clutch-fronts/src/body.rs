//! Bodies of responses: one document, or a stream as it is produced.

pub(crate) mod page;
pub(crate) mod problem;
pub(crate) mod request;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::account::BrokenOff;

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
