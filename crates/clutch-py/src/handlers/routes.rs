//! The route by which an app's framework found what answers a request: what figures are told apart by.
//!
//! Frameworks leave it where the server can see it, or an app puts it there itself, under `clutch.route`. What is of another
//! form than theirs is no route.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

pub fn of_scope(scope: &Bound<'_, PyDict>) -> Option<String> {
    let py = scope.py();
    // Litestar has the last.
    text_at(scope, intern!(py, "clutch.route"))
        .or_else(|| of_starlette(scope))
        .or_else(|| text_at(scope, intern!(py, "path_template")))
}

/// Starlette and FastAPI.
fn of_starlette(scope: &Bound<'_, PyDict>) -> Option<String> {
    let py = scope.py();
    let place = text_at(scope, intern!(py, "clutch.place"));
    let route = scope.get_item(intern!(py, "route")).ok().flatten();
    let Some(route) = included(scope, route.as_ref()).or(route) else {
        return place.map(|place| format!("{place}/*"));
    };
    let place = place.unwrap_or_default();
    // A mount itself is part of its place.
    match route.hasattr(intern!(py, "routes")).unwrap_or(false) {
        true => Some(format!("{place}/*")),
        false => Some(format!("{place}{}", text(&route.getattr(intern!(py, "path")).ok()?)?)),
    }
}

/// The route of an included router of FastAPI with the prefixes that it was included by. `route`: as the scope has it,
/// without them.
fn included<'py>(scope: &Bound<'py, PyDict>, route: Option<&Bound<'py, PyAny>>) -> Option<Bound<'py, PyAny>> {
    let py = scope.py();
    let own = scope.get_item(intern!(py, "fastapi")).ok().flatten()?;
    let context = own.cast::<PyDict>().ok()?.get_item(intern!(py, "effective_route_context")).ok().flatten()?;
    // Of another app further out it says nothing of this route.
    if route.is_some_and(|route| !context.getattr(intern!(py, "original_route")).is_ok_and(|known| known.is(route))) {
        return None;
    }
    let plain = context.getattr(intern!(py, "starlette_route")).ok().filter(|route| !route.is_none());
    Some(plain.unwrap_or(context))
}

pub fn of_environ(environ: &Bound<'_, PyDict>) -> Option<String> {
    let py = environ.py();
    text_at(environ, intern!(py, "clutch.route")).or_else(|| {
        // Flask.
        let request = environ.get_item(intern!(py, "werkzeug.request")).ok().flatten()?;
        let rule = request.getattr(intern!(py, "url_rule")).ok()?;
        let path = text(&rule.getattr(intern!(py, "rule")).ok()?)?;
        Some(format!("{}{path}", mounted_at(environ).unwrap_or_default()))
    })
}

/// Where a WSGI app is mounted, below the prefix of a proxy.
fn mounted_at(environ: &Bound<'_, PyDict>) -> Option<String> {
    let py = environ.py();
    let base = environ.get_item(intern!(py, "clutch.script_name")).ok().flatten()?;
    let name = text_at(environ, intern!(py, "SCRIPT_NAME"))?;
    name.strip_prefix(base.cast::<PyString>().ok()?.to_str().ok()?).map(str::to_owned)
}

fn text_at(dict: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> Option<String> {
    text(&dict.get_item(name).ok().flatten()?)
}

fn text(value: &Bound<'_, PyAny>) -> Option<String> {
    Some(value.cast::<PyString>().ok()?.to_str().ok()?.to_owned()).filter(|text| !text.is_empty())
}
