//! From a request's head to the `environ` of WSGI.

use clutch_fronts::app::unescaped;
use clutch_fronts::codec::http::{Place, RequestLine, request_flag};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::handlers::http::method;
use crate::handlers::names;

/// The environ of one request: a copy of what all have in common, and what is its own.
pub fn environ<'a, 'py>(
    template: &Bound<'py, PyDict>,
    line: &RequestLine<'_>,
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> PyResult<Bound<'py, PyDict>> {
    let environ = template.copy()?;
    put_connection(&environ, line)?;
    put_request(&environ, line, headers)?;
    Ok(environ)
}

/// What all requests of a connection have.
pub fn put_connection(environ: &Bound<'_, PyDict>, line: &RequestLine<'_>) -> PyResult<()> {
    let py = environ.py();
    let is_secure = line.flags & request_flag::SECURE != 0;
    if is_secure {
        environ.set_item(intern!(py, "wsgi.url_scheme"), intern!(py, "https"))?;
    }
    let protocol = match line.version {
        10 => intern!(py, "HTTP/1.0"),
        20 => intern!(py, "HTTP/2"),
        _ => intern!(py, "HTTP/1.1"),
    };
    environ.set_item(intern!(py, "SERVER_PROTOCOL"), protocol)?;
    put_places(py, environ, line.client, line.server, is_secure)
}

/// What each has of its own. Names of headers are in lower case.
pub fn put_request<'a>(
    environ: &Bound<'_, PyDict>,
    line: &RequestLine<'_>,
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> PyResult<()> {
    let py = environ.py();
    environ.set_item(intern!(py, "REQUEST_METHOD"), method(py, line.method))?;
    environ.set_item(intern!(py, "PATH_INFO"), path_info(py, line.path))?;
    environ.set_item(intern!(py, "QUERY_STRING"), native(py, line.query))?;
    environ.set_item(intern!(py, "RAW_URI"), raw_uri(py, line))?;
    put_headers(py, environ, headers)
}

fn path_info<'py>(py: Python<'py>, path: &[u8]) -> Bound<'py, PyString> {
    if path.contains(&b'%') { native(py, &unescaped(path)) } else { native(py, path) }
}

fn raw_uri<'py>(py: Python<'py>, line: &RequestLine<'_>) -> Bound<'py, PyString> {
    if line.query.is_empty() {
        return native(py, line.path);
    }
    native(py, &[line.path, b"?", line.query].concat())
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
fn put_headers<'a>(
    py: Python<'_>,
    environ: &Bound<'_, PyDict>,
    headers: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> PyResult<()> {
    for (name, value) in headers {
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
    let key = names::of_wsgi(py, name, || {
        let mut key = Vec::with_capacity(5 + name.len());
        key.extend_from_slice(b"HTTP_");
        key.extend(name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }));
        native(py, &key)
    });
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
