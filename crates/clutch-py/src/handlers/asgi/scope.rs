//! From a request's head to the `scope` of ASGI.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use clutch_fronts::app::unescaped;
use clutch_fronts::codec::http::{Place, RequestHead, request_flag};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::handlers::http::method;

thread_local! {
    /// Lifespan state of the app on this thread's loop, kept for its requests. It is not dropped at the thread's end,
    /// which is without Python: see [`crate::dispatcher::Bridge`].
    static STATE: RefCell<ManuallyDrop<Option<Py<PyDict>>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Gives each scope that this thread makes a copy of `state`; None: no more.
#[pyfunction]
pub fn share_state(state: Option<Py<PyDict>>) {
    drop(ManuallyDrop::into_inner(STATE.replace(ManuallyDrop::new(state))));
}

/// The scope of one request: a copy of what all have in common, and what is its own. The dicts in it are its own too: what
/// middleware puts there is seen by no other request.
pub fn asgi<'py>(py: Python<'py>, template: &Py<PyDict>, head: &RequestHead<'_>) -> PyResult<Bound<'py, PyDict>> {
    let template = template.bind(py);
    let scope = template.copy()?;
    scope.set_item(intern!(py, "asgi"), template.as_any().get_item(intern!(py, "asgi"))?.cast::<PyDict>()?.copy()?)?;
    let extensions = PyDict::new(py);
    let is_secure = head.line.flags & request_flag::SECURE != 0;
    if head.line.flags & request_flag::WEBSOCKET != 0 {
        scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
        scope.set_item(intern!(py, "scheme"), if is_secure { intern!(py, "wss") } else { intern!(py, "ws") })?;
        scope.set_item(intern!(py, "subprotocols"), subprotocols(py, head)?)?;
        extensions.set_item(intern!(py, "websocket.http.response"), PyDict::new(py))?;
    } else {
        scope.set_item(intern!(py, "method"), method(py, head.line.method))?;
        if is_secure {
            scope.set_item(intern!(py, "scheme"), intern!(py, "https"))?;
        }
    }
    scope.set_item(intern!(py, "extensions"), extensions)?;
    if head.line.version != 11 {
        let version = if head.line.version == 20 { intern!(py, "2") } else { intern!(py, "1.0") };
        scope.set_item(intern!(py, "http_version"), version)?;
    }
    let root = template.get_item(intern!(py, "root_path"))?;
    let (path, raw) = (path_text(py, head.line.path), PyBytes::new(py, head.line.path));
    let (path, raw) = match root {
        Some(root) if root.is_truthy()? => (root.add(path)?, root.call_method0(intern!(py, "encode"))?.add(raw)?),
        _ => (path.into_any(), raw.into_any()),
    };
    scope.set_item(intern!(py, "path"), path)?;
    scope.set_item(intern!(py, "raw_path"), raw)?;
    scope.set_item(intern!(py, "query_string"), PyBytes::new(py, head.line.query))?;
    scope.set_item(intern!(py, "client"), place(py, head.line.client)?)?;
    scope.set_item(intern!(py, "server"), place(py, head.line.server)?)?;
    scope.set_item(intern!(py, "headers"), headers(py, head)?)?;
    let state = STATE.with_borrow(|state| state.as_ref().map(|state| state.bind(py).copy())).transpose()?;
    if let Some(state) = state {
        scope.set_item(intern!(py, "state"), state)?;
    }
    Ok(scope)
}

fn headers<'py>(py: Python<'py>, head: &RequestHead<'_>) -> PyResult<Bound<'py, PyList>> {
    PyList::new(
        py,
        head.headers.iter().map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value))).collect::<Vec<_>>(),
    )
}

fn place<'py>(py: Python<'py>, place: Place<'_>) -> PyResult<Bound<'py, PyAny>> {
    if place.address.is_empty() {
        return Ok(py.None().into_bound(py));
    }
    Ok((place.address, place.port).into_pyobject(py)?.into_any())
}

fn subprotocols<'py>(py: Python<'py>, head: &RequestHead<'_>) -> PyResult<Bound<'py, PyList>> {
    let offered = head.headers.iter().filter(|(name, _)| *name == b"sec-websocket-protocol");
    let names = offered.flat_map(|(_, value)| value.split(|byte| *byte == b','));
    let names =
        names.map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned()).filter(|name| !name.is_empty());
    PyList::new(py, names.collect::<Vec<_>>())
}

/// A path with its escapes resolved, as text; bytes that are no UTF-8 become the replacement character.
fn path_text<'py>(py: Python<'py>, path: &[u8]) -> Bound<'py, PyString> {
    if !path.contains(&b'%') {
        return PyString::new(py, &String::from_utf8_lossy(path));
    }
    PyString::new(py, &String::from_utf8_lossy(&unescaped(path)))
}
