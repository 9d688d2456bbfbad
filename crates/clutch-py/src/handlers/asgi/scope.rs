//! From a request's head to the `scope` of ASGI.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::net::IpAddr;

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

/// What is a request's own in its scope.
pub struct Own<'a, 'py> {
    pub method: &'a str,
    /// 10, 11 or 20.
    pub version: u8,
    pub is_secure: bool,
    /// As it came, percent-encoded.
    pub path: &'a [u8],
    /// Without the question mark.
    pub query: &'a [u8],
    /// Names in lower case, and values.
    pub headers: Bound<'py, PyList>,
}

/// The scope of one request, or of a WebSocket.
pub fn asgi<'py>(py: Python<'py>, template: &Py<PyDict>, head: &RequestHead<'_>) -> PyResult<Bound<'py, PyDict>> {
    let line = &head.line;
    let own = Own {
        method: line.method,
        version: line.version,
        is_secure: line.flags & request_flag::SECURE != 0,
        path: line.path,
        query: line.query,
        headers: headers(py, head.headers.iter())?,
    };
    let scope = fill(of_connection(template.bind(py), line.client, line.server)?, &own)?;
    if line.flags & request_flag::WEBSOCKET != 0 {
        scope.del_item(intern!(py, "method"))?;
        scope.set_item(intern!(py, "type"), intern!(py, "websocket"))?;
        scope.set_item(intern!(py, "scheme"), if own.is_secure { intern!(py, "wss") } else { intern!(py, "ws") })?;
        scope.set_item(intern!(py, "subprotocols"), subprotocols(py, head)?)?;
        let extensions = PyDict::new(py);
        extensions.set_item(intern!(py, "websocket.http.response"), PyDict::new(py))?;
        scope.set_item(intern!(py, "extensions"), extensions)?;
    }
    Ok(scope)
}

/// Makes room in what scopes share for what each has of its own: a copy does not grow then.
pub fn make_room(shared: &Bound<'_, PyDict>) -> PyResult<()> {
    for name in ["method", "path", "raw_path", "query_string", "headers", "extensions"] {
        shared.set_item(PyString::intern(shared.py(), name), shared.py().None())?;
    }
    Ok(())
}

/// The part that the scopes of one connection share.
pub fn of_connection<'py>(
    template: &Bound<'py, PyDict>,
    client: Place<'_>,
    server: Place<'_>,
) -> PyResult<Bound<'py, PyDict>> {
    let (py, shared) = (template.py(), template.copy()?);
    shared.set_item(intern!(py, "client"), place(py, client)?)?;
    shared.set_item(intern!(py, "server"), place(py, server)?)?;
    Ok(shared)
}

/// The scope of one request: a copy of what all have in common, and what is its own. The dicts in it are its own too: what
/// middleware puts there is seen by no other request.
pub fn http<'py>(template: &Bound<'py, PyDict>, own: &Own<'_, 'py>) -> PyResult<Bound<'py, PyDict>> {
    fill(template.copy()?, own)
}

fn fill<'py>(scope: Bound<'py, PyDict>, own: &Own<'_, 'py>) -> PyResult<Bound<'py, PyDict>> {
    let py = scope.py();
    scope.set_item(intern!(py, "asgi"), scope.as_any().get_item(intern!(py, "asgi"))?.cast::<PyDict>()?.copy()?)?;
    scope.set_item(intern!(py, "method"), method(py, own.method))?;
    if own.is_secure {
        scope.set_item(intern!(py, "scheme"), intern!(py, "https"))?;
    }
    scope.set_item(intern!(py, "extensions"), PyDict::new(py))?;
    if own.version != 11 {
        let version = if own.version == 20 { intern!(py, "2") } else { intern!(py, "1.0") };
        scope.set_item(intern!(py, "http_version"), version)?;
    }
    let root = scope.get_item(intern!(py, "root_path"))?;
    let (path, raw) = (path_text(py, own.path), PyBytes::new(py, own.path));
    let (path, raw) = match root {
        Some(root) if root.is_truthy()? => (root.add(path)?, root.call_method0(intern!(py, "encode"))?.add(raw)?),
        _ => (path.into_any(), raw.into_any()),
    };
    scope.set_item(intern!(py, "path"), path)?;
    scope.set_item(intern!(py, "raw_path"), raw)?;
    scope.set_item(intern!(py, "query_string"), PyBytes::new(py, own.query))?;
    scope.set_item(intern!(py, "headers"), &own.headers)?;
    let state = STATE.with_borrow(|state| state.as_ref().map(|state| state.bind(py).copy())).transpose()?;
    if let Some(state) = state {
        scope.set_item(intern!(py, "state"), state)?;
    }
    Ok(scope)
}

/// The client that a proxy has told, whose port nobody knows.
pub fn put_client(scope: &Bound<'_, PyDict>, client: IpAddr) -> PyResult<()> {
    let address = client.to_string();
    scope.set_item(intern!(scope.py(), "client"), place(scope.py(), Place { address: &address, port: 0 })?)
}

/// Header lines as ASGI has them.
pub fn headers<'a, 'py>(
    py: Python<'py>,
    lines: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, lines.map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value))).collect::<Vec<_>>())
}

/// An end of a connection; None where it has no address.
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
