//! Lists pools and tools: `GET /pools`, `GET /pools/{pool}/tools` and `GET /openapi.json`.
//!
//! All of it is what the zygotes told of their images (pool/schemas.rs), so it follows a reload. The document for OpenAPI
//! is written once for each set of pools and images, and kept until one of them is another.

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
use crate::http::catalog::{Entry, View, tools};
use crate::http::openapi;
use crate::names::decode;

/// Why nothing is known of the tools of a pool that is up.
const WORKERS_ONLY: &str = "only its workers know the tools: preload = false, or start = \"spawn\"";

/// Why no more than the names of its tools are.
const NO_SCHEMAS: &str = "the tools have no schemas: the log says why";

/// Documents that are kept: one for each set of pools that tokens are for.
const DOCUMENTS_MAX: usize = 8;

/// The pools and images that a document describes.
type Described = Vec<(String, Option<Arc<ToolSchemas>>)>;

/// Answers what callers ask of the tools, and keeps the last documents.
#[derive(Default)]
pub(crate) struct Discovery {
    /// The newest last.
    documents: Mutex<Vec<(Described, Bytes)>>,
    /// Names of the headers that are passed on to tools.
    passed_on: Vec<String>,
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
    pub(crate) fn new(passed_on: &[String]) -> Discovery {
        Discovery { documents: Mutex::default(), passed_on: passed_on.to_vec() }
    }

    /// None: the request asks for something else.
    pub(crate) fn response(
        &self,
        head: &Parts,
        view: View<'_>,
        wants_token: bool,
    ) -> Option<Result<Response<Body>, Box<Problem>>> {
        let asked = Resource::of(head.uri.path())?;
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Some(Err(Problem::method_not_allowed("GET, HEAD")));
        }
        Some(match asked {
            Resource::Pools => Ok(pools(view)),
            Resource::Tools(pool) => view.pool(&pool).and_then(described),
            Resource::OpenApi => Ok(json(Body::Document(Some(self.document(view, wants_token))))),
        })
    }

    fn document(&self, view: View<'_>, wants_token: bool) -> Bytes {
        let image = |entry: &Entry| (entry.pool.config.name.clone(), entry.pool.status().schemas);
        let described: Described = view.entries().map(image).collect();
        let mut kept = self.documents.lock();
        if let Some((_, document)) = kept.iter().find(|(of, _)| is_same(of, &described)) {
            return document.clone();
        }
        let pools: Vec<_> = described.iter().map(|(name, schemas)| (name.as_str(), schemas.as_deref())).collect();
        let document = Bytes::from(openapi::document(&pools, &self.passed_on, wants_token));
        let names = |described: &Described| described.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        kept.retain(|(of, _)| names(of) != names(&described));
        if kept.len() == DOCUMENTS_MAX {
            kept.remove(0);
        }
        kept.push((described, document.clone()));
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

fn is_same(one: &Described, other: &Described) -> bool {
    let is_same_image = |one: &Option<Arc<ToolSchemas>>, other: &Option<Arc<ToolSchemas>>| match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    };
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one.0 == other.0 && is_same_image(&one.1, &other.1))
}

fn pools(view: View<'_>) -> Response<Body> {
    let known: Vec<(&Entry, Status)> = view.entries().map(|entry| (entry, entry.pool.status())).collect();
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
