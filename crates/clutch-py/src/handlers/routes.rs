//! The route by which an app's framework found what answers a request: what figures are told apart by.
//!
//! Frameworks leave it where the server can see it, or an app puts it there itself, under `clutch.route`. What is of another
//! form than theirs is no route.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rustc_hash::FxHashMap;

/// Most routes of a thread that are kept as they are written.
const WRITTEN_MAX: usize = 1_000;

/// A route as it is written, and the objects that say it, which are not freed while they are known by their addresses.
type Written = (Option<String>, [Option<Py<PyAny>>; 2]);

thread_local! {
    /// It is not dropped at the thread's end, which is without Python: see [`crate::dispatcher::Bridge`].
    static WRITTEN: RefCell<ManuallyDrop<FxHashMap<(usize, usize), Written>>> =
        RefCell::new(ManuallyDrop::new(FxHashMap::default()));
}

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
    let context = context_of(scope);
    if place.is_some() {
        return written(place, route, context);
    }
    // Most requests: the objects say it all, and live as long as the app.
    let address = |object: &Option<Bound<'_, PyAny>>| object.as_ref().map_or(0, |object| object.as_ptr() as usize);
    let key = (address(&route), address(&context));
    let known = WRITTEN.with_borrow(|written| written.get(&key).map(|(text, _)| text.clone()));
    known.unwrap_or_else(|| {
        let kept = [&route, &context].map(|object| object.clone().map(Bound::unbind));
        let text = written(None, route, context);
        WRITTEN.with_borrow_mut(|written| {
            if written.len() < WRITTEN_MAX {
                written.insert(key, (text.clone(), kept));
            }
        });
        text
    })
}

fn written(
    place: Option<String>,
    route: Option<Bound<'_, PyAny>>,
    context: Option<Bound<'_, PyAny>>,
) -> Option<String> {
    let Some(route) = context.and_then(|context| included(context, route.as_ref())).or(route) else {
        return place.map(|place| format!("{place}/*"));
    };
    let (py, place) = (route.py(), place.unwrap_or_default());
    // A mount itself is part of its place.
    match route.hasattr(intern!(py, "routes")).unwrap_or(false) {
        true => Some(format!("{place}/*")),
        false => Some(format!("{place}{}", text(&route.getattr(intern!(py, "path")).ok()?)?)),
    }
}

/// What FastAPI knows of the router by which a route was included.
fn context_of<'py>(scope: &Bound<'py, PyDict>) -> Option<Bound<'py, PyAny>> {
    let py = scope.py();
    let own = scope.get_item(intern!(py, "fastapi")).ok().flatten()?;
    own.cast::<PyDict>().ok()?.get_item(intern!(py, "effective_route_context")).ok().flatten()
}

/// The route of an included router of FastAPI with the prefixes that it was included by. `route`: as the scope has it,
/// without them.
fn included<'py>(context: Bound<'py, PyAny>, route: Option<&Bound<'py, PyAny>>) -> Option<Bound<'py, PyAny>> {
    let py = context.py();
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
