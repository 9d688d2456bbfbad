//! Parts of static pages: what a browser fetches of a page that the build has put into the program.

use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response};

use crate::body::problem::Problem;
use crate::body::{Body, with_type};

/// Scripts and styles from here only, requests to here only, in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// A part of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePart {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: &'static [u8],
    is_compressed: bool,
}

impl PagePart {
    pub(crate) const fn of(media_type: &'static str, bytes: &'static [u8]) -> PagePart {
        PagePart { media_type, bytes, is_compressed: false }
    }

    pub(crate) const fn compressed(media_type: &'static str, bytes: &'static [u8]) -> PagePart {
        PagePart { media_type, bytes, is_compressed: true }
    }

    pub(crate) fn response(self, head: &Parts) -> Result<Response<Body>, Box<Problem>> {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Err(Problem::method_not_allowed("GET, HEAD"));
        }
        let mut response = with_type(self.media_type, Body::Document(Some(self.bytes.into())));
        let headers = response.headers_mut();
        let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
        set(CONTENT_SECURITY_POLICY, POLICY);
        set(X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(REFERRER_POLICY, "no-referrer");
        // Another version may listen here tomorrow.
        set(CACHE_CONTROL, "no-cache");
        set(VARY, "Accept");
        if self.is_compressed {
            set(CONTENT_ENCODING, "gzip");
        }
        Ok(response)
    }
}
