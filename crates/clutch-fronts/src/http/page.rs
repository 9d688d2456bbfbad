//! The page to try calls in a browser: `GET /`, and its parts below `/ui/`.
//!
//! Swagger UI, which the build takes out of a crate, and a page of ours around it. The page and its parts are the same for
//! everybody and say nothing of the tools, so they need no token: it is asked for in the page, which then fetches
//! `/openapi.json` and makes calls as any client does. Nothing is loaded from elsewhere, which its policy enforces.

use hyper::header::{ACCEPT, HeaderMap};
use hyper::http::request::Parts;

use crate::body::page::{CSS, HTML, PagePart, SCRIPT, TEXT};

/// For programs, which have no use for the page.
const POINTER: &str = r#"{"openapi":"/openapi.json","pools":"/pools"}"#;

const PAGE: PagePart = PagePart::of(HTML, include_bytes!("page/index.html"));

/// Returns what the request asks for, if it is a part of the page.
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
