//! While an app is being written: why it cannot be served, for whoever asks for it in a browser.
//!
//! As with the error pages of Flask and Django, whoever can reach the development server may read it, and it runs nothing.

use bytes::Bytes;
use clutch_pool::pool::Part;
use clutch_pool::work::{Outcome, Refusal};
use clutch_wire::Failure;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

use super::body::AppBody;
use super::response::{later, with_fate};
use crate::account::figures::End;

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>The app does not start</title><style>\
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}\
h1{font-size:1.3rem}pre{border:1px solid #8886;border-radius:6px;overflow-x:auto;padding:1rem}</style></head><body>\
<h1>The app does not start</h1><pre>";
const FOOT: &str = "</pre><p>Save a change that mends it and load this page again.</p></body></html>\n";

/// The page, where the answer is that the code does not run; as text for those who want no HTML.
pub(super) fn page(first: &Part, headers: &HeaderMap) -> Option<Response<AppBody>> {
    let reason = reason(first)?;
    let (kind, text) = match wants_html(headers) {
        true => ("text/html; charset=utf-8", format!("{HEAD}{}{FOOT}", escaped(reason))),
        false => ("text/plain; charset=utf-8", format!("{}\n", reason.trim_end())),
    };
    let mut response = later(StatusCode::SERVICE_UNAVAILABLE);
    *response.body_mut() = AppBody::from(Bytes::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The terminal shows it once, not with each request.
    Some(with_fate(response, End::Refused, "failing", None))
}

fn reason(first: &Part) -> Option<&str> {
    let Part::End(outcome) = first else { return None };
    match outcome {
        Outcome::Failure(failure) => match &**failure {
            Failure::Config { message } | Failure::WorkerLost { worker_pid: 0, message, .. } => Some(message),
            _ => None,
        },
        Outcome::Refused(Refusal::Failing { reason, .. }) => Some(reason),
        _ => None,
    }
}

/// A browser names it first; curl and programs name nothing, or everything.
fn wants_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains("text/html")))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn failing(message: &str) -> Part {
        Part::End(Outcome::Failure(Arc::new(Failure::Config { message: message.to_owned() })))
    }

    #[test]
    fn a_browser_gets_html_in_which_code_is_text() {
        let mut headers = HeaderMap::new();
        assert_eq!(page(&failing("x"), &headers).expect("a page").headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        headers.insert(ACCEPT, HeaderValue::from_static("text/html,application/xhtml+xml,*/*;q=0.8"));
        let page = page(&failing("x"), &headers).expect("a page");
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(page.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(escaped("<script>'&\""), "&lt;script&gt;&#39;&amp;&quot;");
    }

    #[test]
    fn only_an_app_that_does_not_start_has_a_page() {
        let failure = Failure::Encode { type_name: String::new(), message: String::new(), traceback: String::new() };
        assert!(page(&Part::End(Outcome::Failure(Arc::new(failure))), &HeaderMap::new()).is_none());
    }
}
