//! From a request's head to the `environ` of WSGI.

use clutch_fronts::app::unescaped;
use clutch_fronts::codec::http::{Place, RequestHead, request_flag};
use clutch_wire::headers::Headers;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::handlers::http::method;

/// The environ of one request: a copy of what all have in common, and what is its own.
pub fn environ<'py>(py: Python<'py>, template: &Py<PyDict>, head: &RequestHead<'_>) -> PyResult<Bound<'py, PyDict>> {
    let environ = template.bind(py).copy()?;
    let is_secure = head.line.flags & request_flag::SECURE != 0;
    if is_secure {
        environ.set_item(intern!(py, "wsgi.url_scheme"), intern!(py, "https"))?;
    }
    environ.set_item(intern!(py, "REQUEST_METHOD"), method(py, head.line.method))?;
    environ.set_item(intern!(py, "PATH_INFO"), path_info(py, head.line.path))?;
    environ.set_item(intern!(py, "QUERY_STRING"), native(py, head.line.query))?;
    environ.set_item(intern!(py, "RAW_URI"), raw_uri(py, head))?;
    let protocol = match head.line.version {
        10 => intern!(py, "HTTP/1.0"),
        20 => intern!(py, "HTTP/2"),
        _ => intern!(py, "HTTP/1.1"),
    };
    environ.set_item(intern!(py, "SERVER_PROTOCOL"), protocol)?;
    put_places(py, &environ, head.line.client, head.line.server, is_secure)?;
    put_headers(py, &environ, head.headers)?;
    Ok(environ)
}

fn path_info<'py>(py: Python<'py>, path: &[u8]) -> Bound<'py, PyString> {
    if path.contains(&b'%') { native(py, &unescaped(path)) } else { native(py, path) }
}

fn raw_uri<'py>(py: Python<'py>, head: &RequestHead<'_>) -> Bound<'py, PyString> {
    if head.line.query.is_empty() {
        return native(py, head.line.path);
    }
    native(py, &[head.line.path, b"?", head.line.query].concat())
}

fn put_places(
    py: Python<'_>,
    environ: &Bound<'_, PyDict>,
    client: Place<'_>,
    server: Place<'_>,
    is_secure: bool,
) -> PyResult<()> {
    environ.set_item(intern!(py, "REMOTE_ADDR"), client.address)?;
    if client.port > 0 {
        environ.set_item(intern!(py, "REMOTE_PORT"), client.port.to_string())?;
    }
    let port = if server.port > 0 {
        server.port
    } else if is_secure {
        443
    } else {
        80
    };
    environ
        .set_item(intern!(py, "SERVER_NAME"), if server.address.is_empty() { "localhost" } else { server.address })?;
    environ.set_item(intern!(py, "SERVER_PORT"), port.to_string())
}

/// `HTTP_…`, what comes several times joined. Which names with an underscore come is the front's to decide.
fn put_headers(py: Python<'_>, environ: &Bound<'_, PyDict>, headers: Headers<'_>) -> PyResult<()> {
    for (name, value) in headers.iter() {
        match name {
            // Of several the first, as frameworks of ASGI read them: the same app sees the same either way.
            b"content-type" if environ.contains(intern!(py, "CONTENT_TYPE"))? => {}
            b"content-type" => environ.set_item(intern!(py, "CONTENT_TYPE"), native(py, value))?,
            b"content-length" => environ.set_item(intern!(py, "CONTENT_LENGTH"), native(py, value))?,
            b"host" => environ.set_item(intern!(py, "HTTP_HOST"), native(py, value))?,
            name => put_header(py, environ, name, value)?,
        }
    }
    Ok(())
}

fn put_header(py: Python<'_>, environ: &Bound<'_, PyDict>, name: &[u8], value: &[u8]) -> PyResult<()> {
    let mut key = Vec::with_capacity(5 + name.len());
    key.extend_from_slice(b"HTTP_");
    key.extend(name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }));
    let key = native(py, &key);
    let value = native(py, value);
    match environ.get_item(&key)? {
        Some(before) => {
            let separator = if name == b"cookie" { "; " } else { "," };
            environ.set_item(&key, format!("{before}{separator}{value}"))
        }
        None => environ.set_item(&key, value),
    }
}

fn native<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    if bytes.is_ascii() {
        return PyString::new(py, &String::from_utf8_lossy(bytes));
    }
    PyString::new(py, &bytes.iter().map(|byte| char::from(*byte)).collect::<String>())
}
