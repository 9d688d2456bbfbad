//! The page to try calls in a browser: `GET /`, and its parts below `/ui/`.
//!
//! Swagger UI, which the build takes out of a crate, and a page of ours around it. The page and its parts are the same for
//! everybody and say nothing of the tools, so they need no token: it is asked for in the page, which then fetches
//! `/openapi.json` and makes calls as any client does. Nothing is loaded from elsewhere, which its policy enforces.

use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response};

use crate::body::problem::Problem;
use crate::body::{Body, with_type};

/// Scripts and styles from here only, requests to here only, in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// For programs, which have no use for the page.
const POINTER: &str = r#"{"openapi":"/openapi.json","pools":"/pools"}"#;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// One thing that a browser fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePart {
    media_type: &'static str,
    bytes: &'static [u8],
    is_compressed: bool,
}

const PAGE: PagePart = PagePart::of(HTML, include_bytes!("page/index.html"));

impl PagePart {
    const fn of(media_type: &'static str, bytes: &'static [u8]) -> PagePart {
        PagePart { media_type, bytes, is_compressed: false }
    }

    const fn compressed(media_type: &'static str, bytes: &'static [u8]) -> PagePart {
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

/// None: the request asks for something else.
pub(crate) fn part_of(head: &Parts) -> Option<PagePart> {
    Some(match head.uri.path() {
        "/" if wants_html(&head.headers) => PAGE,
        "/" => PagePart::of("application/json", POINTER.as_bytes()),
        "/ui/page.css" => PagePart::of(CSS, include_bytes!("page/page.css")),
        "/ui/page.js" => PagePart::of(SCRIPT, include_bytes!("page/page.js")),
        "/ui/swagger-ui.css" => {
            PagePart::compressed(CSS, include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui.css.gz")))
        }
        "/ui/swagger-ui-bundle.js" => {
            PagePart::compressed(SCRIPT, include_bytes!(concat!(env!("OUT_DIR"), "/swagger-ui-bundle.js.gz")))
        }
        "/ui/favicon-32x32.png" => {
            PagePart::compressed("image/png", include_bytes!(concat!(env!("OUT_DIR"), "/favicon-32x32.png.gz")))
        }
        "/ui/LICENSE" => PagePart::compressed(TEXT, include_bytes!(concat!(env!("OUT_DIR"), "/LICENSE.gz"))),
        "/ui/NOTICE" => PagePart::compressed(TEXT, include_bytes!(concat!(env!("OUT_DIR"), "/NOTICE.gz"))),
        _ => return None,
    })
}

/// Browsers name it; `*/*` is what programs send.
fn wants_html(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    given.any(|value| value.split(',').any(is_html))
}

fn is_html(range: &str) -> bool {
    range.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(path: &str, accept: &str) -> Option<PagePart> {
        let request = hyper::Request::builder().uri(path).header(ACCEPT, accept).body(()).expect("a request");
        part_of(&request.into_parts().0)
    }

    #[test]
    fn browsers_get_the_page_and_programs_a_pointer() {
        assert_eq!(part("/", "text/html,application/xhtml+xml,*/*;q=0.8"), Some(PAGE));
        assert_eq!(part("/", "application/json, Text/HTML;q=0.1"), Some(PAGE));
        for program in ["*/*", "application/json", "", "text/htmlx"] {
            assert_eq!(part("/", program).map(|part| part.media_type), Some("application/json"), "{program}");
        }
        assert_eq!(part("/ui/", "text/html"), None);
    }

    #[test]
    fn all_that_the_page_names_is_there() {
        let page = String::from_utf8(PAGE.bytes.to_vec()).expect("text");
        let names = page.split(['"', '\'']).filter(|word| word.starts_with("ui/"));
        let parts: Vec<_> = names.map(|name| (name, part(&format!("/{name}"), "*/*"))).collect();
        assert!(parts.len() >= 5, "{parts:?}");
        for (name, part) in parts {
            assert!(part.is_some_and(|part| !part.bytes.is_empty()), "{name}");
        }
        assert!(!page.contains("http:") && !page.contains("https:"), "nothing comes from elsewhere");
    }
}
