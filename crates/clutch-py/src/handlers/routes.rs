//! The route by which an app's framework found what answers a request: what figures are told apart by.
//!
//! Frameworks leave it where the server can see it, or an app puts it there itself, under `clutch.route`. What is of another
//! form than theirs is no route.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// `root_path`: that of the server, which no route tells.
pub fn of_scope(scope: &Bound<'_, PyDict>, root_path: &Bound<'_, PyAny>) -> Option<String> {
    let py = scope.py();
    if let Some(told) = text_at(scope, intern!(py, "clutch.route")) {
        return Some(told);
    }
    // Starlette and FastAPI. What is mounted has its place in `root_path`.
    if let Some(route) = scope.get_item(intern!(py, "route")).ok().flatten() {
        let path = text(&route.getattr(intern!(py, "path")).ok()?)?;
        let place = text_at(scope, intern!(py, "root_path")).unwrap_or_default();
        let place = place.strip_prefix(&text(root_path).unwrap_or_default()).unwrap_or(&place);
        // A mount itself is part of its place.
        return Some(match route.hasattr(intern!(py, "routes")).unwrap_or(false) {
            true if path.contains('{') => format!("{path}/*"),
            true => format!("{place}/*"),
            false => format!("{place}{path}"),
        });
    }
    // Litestar.
    text_at(scope, intern!(py, "path_template"))
}

pub fn of_environ(environ: &Bound<'_, PyDict>) -> Option<String> {
    let py = environ.py();
    text_at(environ, intern!(py, "clutch.route")).or_else(|| {
        // Flask.
        let request = environ.get_item(intern!(py, "werkzeug.request")).ok().flatten()?;
        let rule = request.getattr(intern!(py, "url_rule")).ok()?;
        text(&rule.getattr(intern!(py, "rule")).ok()?)
    })
}

fn text_at(dict: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> Option<String> {
    text(&dict.get_item(name).ok().flatten()?)
}

fn text(value: &Bound<'_, PyAny>) -> Option<String> {
    Some(value.cast::<PyString>().ok()?.to_str().ok()?.to_owned()).filter(|text| !text.is_empty())
}
