//! Web pages of other origins that may call: cross-origin resource sharing, as the Fetch standard has it.
//!
//! A browser asks before it sends a call (an OPTIONS request, the preflight), and shows the page what comes back only
//! where the response allows it. Cookies play no part here, so credentials are never allowed: a token travels in a header
//! that the page itself sets.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use crate::body::Body;

/// Any origin.
const ANY: &str = "*";

const METHODS: &str = "GET, POST";

/// Headers that a page may send beyond those that every page may.
const HEADERS: &str =
    "authorization, content-type, clutch-timeout, clutch-priority, x-request-id, traceparent, tracestate";

/// Headers that a page may read beyond those that every page may.
const EXPOSED: &str = "retry-after, x-request-id";

/// Seconds for which a browser need not ask again.
const MAX_AGE_S: &str = "600";

/// Origins that are not this server's and may call all the same.
#[derive(Debug, Default)]
pub(crate) struct Cors {
    /// The option that names them: `fronts.api.cors_origins`.
    pub(crate) option: String,
    origins: Vec<String>,
    /// Headers that a page may send beyond those that every page may.
    headers: Option<HeaderValue>,
}

impl Cors {
    /// Each as browsers write it; `*`: all. `passed_on`: names of the headers that tools are told.
    pub(crate) fn new(option: &str, origins: &[String], passed_on: &[HeaderName]) -> Cors {
        let names: Vec<&str> = std::iter::once(HEADERS).chain(passed_on.iter().map(HeaderName::as_str)).collect();
        // Names of headers are visible ASCII.
        let headers = HeaderValue::from_str(&names.join(", ")).ok();
        Cors { option: option.to_owned(), origins: origins.to_vec(), headers }
    }

    pub(crate) fn allows(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|known| known == ANY || known.as_bytes() == origin.as_bytes())
    }

    /// Whether a browser asks on behalf of a page that may call.
    pub(crate) fn is_preflight(&self, head: &Parts) -> bool {
        let asks = head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        asks && head.headers.get(ORIGIN).is_some_and(|origin| self.allows(origin))
    }

    /// The answer to such a question, before it is marked.
    pub(crate) fn granted(&self) -> Response<Body> {
        let mut response = Response::new(Body::Document(None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let granted = [(ACCESS_CONTROL_ALLOW_METHODS, METHODS), (ACCESS_CONTROL_MAX_AGE, MAX_AGE_S)];
        let headers = self.headers.iter().cloned().map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names));
        response.headers_mut().extend(headers);
        response.headers_mut().extend(granted.map(|(name, value)| (name, HeaderValue::from_static(value))));
        response
    }

    /// Whatever is answered: whether the page may read it, and that a cache keeps one for each origin.
    pub(crate) fn mark(&self, asked: &HeaderMap, answer: &mut HeaderMap) {
        if self.origins.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = asked.get(ORIGIN).filter(|origin| self.allows(origin)) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str]) -> Cors {
        Cors::new(
            "fronts.api.cors_origins",
            &origins.iter().map(|origin| (*origin).to_owned()).collect::<Vec<_>>(),
            &[],
        )
    }

    fn marked(cors: &Cors, origin: Option<&'static str>) -> HeaderMap {
        let (mut asked, mut answer) = (HeaderMap::new(), HeaderMap::new());
        asked.extend(origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin))));
        cors.mark(&asked, &mut answer);
        answer
    }

    #[test]
    fn an_origin_is_allowed_exactly() {
        let listed = cors(&["https://app.example", "http://localhost:3000"]);
        let allows = |origin| listed.allows(&HeaderValue::from_static(origin));
        assert!(allows("https://app.example") && allows("http://localhost:3000"));
        for origin in [
            "http://app.example",
            "https://app.example:8443",
            "https://app.example.evil",
            "https://APP.example",
            "null",
        ] {
            assert!(!allows(origin), "{origin}");
        }
        assert!(cors(&["*"]).allows(&HeaderValue::from_static("null")));
        assert!(!cors(&[]).allows(&HeaderValue::from_static("https://app.example")));
    }

    #[test]
    fn answers_are_marked_for_pages_and_caches() {
        let listed = cors(&["https://app.example"]);
        let answer = marked(&listed, Some("https://app.example"));
        assert_eq!(answer[ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        assert_eq!(
            (&answer[VARY], &answer[ACCESS_CONTROL_EXPOSE_HEADERS]),
            (&"origin".parse().expect("a value"), &EXPOSED.parse().expect("a value"))
        );
        let answer = marked(&listed, Some("https://other.example"));
        assert_eq!((answer.len(), &answer[VARY]), (1, &HeaderValue::from_static("origin")));
        assert_eq!(marked(&listed, None).len(), 1);
        assert!(marked(&cors(&[]), Some("https://app.example")).is_empty());
    }

    #[test]
    fn a_preflight_is_told_from_other_requests() {
        let listed = cors(&["https://app.example"]);
        let asks = |method: &str, headers: &[(&str, &str)]| {
            let request = hyper::Request::builder().method(method).uri("/");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            listed.is_preflight(&request.body(()).expect("a request").into_parts().0)
        };
        let (origin, method) = (("origin", "https://app.example"), ("access-control-request-method", "POST"));
        assert!(asks("OPTIONS", &[origin, method]));
        assert!(!asks("POST", &[origin, method]));
        assert!(!asks("OPTIONS", &[origin]));
        assert!(!asks("OPTIONS", &[method]));
        assert!(!asks("OPTIONS", &[("origin", "https://other.example"), method]));
    }
}
