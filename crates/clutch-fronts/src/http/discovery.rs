//! Lists pools and tools: `GET /pools`, `GET /pools/{pool}/tools` and `GET /openapi.json`.
//!
//! All of it is what the zygotes told of their images (pool/schemas.rs), so it follows a reload. The document for OpenAPI
//! is written once for each set of images, and kept until one of them is another.

use std::sync::Arc;

use bytes::Bytes;
use clutch_pool::config::{Profile, Shape};
use clutch_pool::pool::{Health, Status, ToolSchema, ToolSchemas};
use clutch_wire::sync::Mutex;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response};
use serde::{Deserialize, Serialize};

use crate::body::problem::Problem;
use crate::body::{Body, with_type};
use crate::http::catalog::{Catalog, Entry, tools};
use crate::http::openapi;
use crate::names::decode;

/// Why nothing is known of the tools of a pool that is up.
const WORKERS_ONLY: &str = "only its workers know the tools: preload = false, or start = \"spawn\"";

/// Why no more than the names of its tools are.
const NO_SCHEMAS: &str = "the tools have no schemas: the log says why";

/// The images that a document describes.
type Images = Vec<Option<Arc<ToolSchemas>>>;

/// Answers what callers ask of the tools, and keeps the last document.
#[derive(Default)]
pub(crate) struct Discovery {
    document: Mutex<Option<(Images, Bytes)>>,
}

enum Resource {
    Pools,
    Tools(String),
    OpenApi,
}

#[derive(Serialize)]
struct PoolView<'a> {
    name: &'a str,
    state: Health,
    profile: Profile,
    /// None: not known, or not known here.
    tools: Option<Vec<&'a str>>,
}

#[derive(Serialize)]
struct ToolsView<'a> {
    pool: &'a str,
    generation: u32,
    note: Option<&'static str>,
    tools: &'a [ToolSchema],
}

impl Discovery {
    /// None: the request asks for something else.
    pub(crate) fn response(
        &self,
        head: &Parts,
        catalog: &Catalog,
        wants_token: bool,
    ) -> Option<Result<Response<Body>, Box<Problem>>> {
        let asked = Resource::of(head.uri.path())?;
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Some(Err(Problem::method_not_allowed("GET, HEAD")));
        }
        Some(match asked {
            Resource::Pools => Ok(pools(catalog)),
            Resource::Tools(pool) => catalog.pool(&pool).and_then(described),
            Resource::OpenApi => Ok(json(Body::Document(Some(self.document(catalog, wants_token))))),
        })
    }

    fn document(&self, catalog: &Catalog, wants_token: bool) -> Bytes {
        let images: Images = catalog.entries().map(|entry| entry.pool.status().schemas).collect();
        let mut kept = self.document.lock();
        if let Some((of, document)) = kept.as_ref()
            && of.iter().zip(&images).all(|(one, other)| is_same(one.as_ref(), other.as_ref()))
        {
            return document.clone();
        }
        let names = catalog.entries().map(|entry| entry.pool.config.name.as_str());
        let described: Vec<_> = names.zip(images.iter().map(Option::as_deref)).collect();
        let document = Bytes::from(openapi::document(&described, wants_token));
        *kept = Some((images, document.clone()));
        document
    }
}

impl Resource {
    fn of(path: &str) -> Option<Resource> {
        match path {
            "/pools" => Some(Resource::Pools),
            "/openapi.json" => Some(Resource::OpenApi),
            _ => path.strip_prefix("/pools/")?.strip_suffix("/tools").and_then(decode).map(Resource::Tools),
        }
    }
}

fn is_same(one: Option<&Arc<ToolSchemas>>, other: Option<&Arc<ToolSchemas>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

fn pools(catalog: &Catalog) -> Response<Body> {
    let known: Vec<(&Entry, Status)> = catalog.entries().map(|entry| (entry, entry.pool.status())).collect();
    let views: Vec<PoolView<'_>> = known.iter().map(|(entry, status)| PoolView::of(entry, status)).collect();
    written(&serde_json::json!({ "pools": views }))
}

impl<'a> PoolView<'a> {
    fn of(entry: &'a Entry, status: &'a Status) -> PoolView<'a> {
        let config = &entry.pool.config;
        let changed = status.image.get("shape").and_then(|shape| Shape::deserialize(shape).ok());
        PoolView {
            name: &config.name,
            state: status.health.clone(),
            profile: changed.unwrap_or(config.shape).profile,
            tools: tools(status),
        }
    }
}

fn described(entry: &Entry) -> Result<Response<Body>, Box<Problem>> {
    let status = entry.pool.status();
    if status.image.is_null() {
        return Err(entry.not_up(&status));
    }
    let note = match (&status.schemas, tools(&status)) {
        (Some(_), _) => None,
        (None, None) => Some(WORKERS_ONLY),
        (None, Some(_)) => Some(NO_SCHEMAS),
    };
    let tools = status.schemas.as_ref().map_or(&[][..], |schemas| &schemas.tools);
    Ok(written(&ToolsView { pool: &entry.pool.config.name, generation: status.generation, note, tools }))
}

fn written(value: &impl Serialize) -> Response<Body> {
    // Strings, numbers and JSON values always serialise.
    json(Body::from(serde_json::to_vec(value).unwrap_or_default()))
}

/// Makes a response that is not to be cached: the document changes with a reload.
fn json(body: Body) -> Response<Body> {
    let mut response = with_type("application/json", body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_ask_for_tools_are_told_from_those_of_calls() {
        assert!(matches!(Resource::of("/pools"), Some(Resource::Pools)));
        assert!(matches!(Resource::of("/openapi.json"), Some(Resource::OpenApi)));
        assert!(matches!(Resource::of("/pools/%61pi/tools"), Some(Resource::Tools(pool)) if pool == "api"));
        for other in ["/", "/pools/", "/pools//tools", "/pools/api/tools/tools", "/pools/api", "/pools/a/b/tools"] {
            assert!(Resource::of(other).is_none(), "{other}");
        }
    }
}
