//! The paths of the operator plane. docs/operating.md lists them.

use hyper::Method;
use hyper::http::request::Parts;

use crate::body::problem::Problem;
use crate::names::decode;

/// What is asked, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To read.
    Health,
    Readiness,
    Metrics,
    Pools,
    Process,
    Fronts,
    Events,
    Stacks(Target),
    /// To do.
    Act(Verb, Target),
}

/// What an action is done to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// All pools, or the process.
    All,
    Pool(String),
    Worker(String, u32),
    Call(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Drain,
    Resume,
    Scale,
    Reload,
    Recycle,
    Kill,
    Cancel,
    Stop,
}

impl Route {
    /// Everybody who reaches the plane may read it.
    pub(super) fn is_public(&self) -> bool {
        matches!(self, Route::Health | Route::Readiness | Route::Metrics | Route::Pools)
    }

    pub(super) fn of(head: &Parts) -> Result<Route, Box<Problem>> {
        let path = head.uri.path();
        let names = path.strip_prefix('/').map(|rest| rest.split('/').map(decode).collect::<Option<Vec<_>>>());
        let route = names.flatten().and_then(|names| named(&names)).ok_or_else(|| {
            Problem::no_such_path(
                "GET /healthz, /readyz, /metrics, /pools, and for operators /process, /fronts, /events, \
                 /pools/{pool}/stacks, /calls/{id}/stacks; POST /pools/{pool}/{drain,resume,scale,reload,recycle}, \
                 /pools/{pool}/workers/{nr}/{recycle,kill}, /calls/{id}/cancel, /stop",
            )
        })?;
        let (is_allowed, allowed) = match route {
            Route::Act(..) => (head.method == Method::POST, "POST"),
            _ => (matches!(head.method, Method::GET | Method::HEAD), "GET, HEAD"),
        };
        if is_allowed { Ok(route) } else { Err(Problem::method_not_allowed(allowed)) }
    }
}

fn named(names: &[String]) -> Option<Route> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Some(match names[..] {
        ["healthz"] => Route::Health,
        ["readyz"] => Route::Readiness,
        ["metrics"] => Route::Metrics,
        ["pools"] => Route::Pools,
        ["process"] => Route::Process,
        ["fronts"] => Route::Fronts,
        ["events"] => Route::Events,
        ["stop"] => Route::Act(Verb::Stop, Target::All),
        [verb] => Route::Act(of_pools(verb).filter(|verb| *verb != Verb::Scale)?, Target::All),
        ["calls", call, "stacks"] => Route::Stacks(Target::Call(call.parse().ok()?)),
        ["calls", call, "cancel"] => Route::Act(Verb::Cancel, Target::Call(call.parse().ok()?)),
        ["pools", pool, "stacks"] => Route::Stacks(Target::Pool(pool.to_owned())),
        ["pools", pool, verb] => Route::Act(of_pools(verb)?, Target::Pool(pool.to_owned())),
        ["pools", pool, "workers", nr, verb] => {
            let worker = Target::Worker(pool.to_owned(), nr.parse().ok()?);
            match verb {
                "stacks" => Route::Stacks(worker),
                "recycle" => Route::Act(Verb::Recycle, worker),
                "kill" => Route::Act(Verb::Kill, worker),
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn of_pools(verb: &str) -> Option<Verb> {
    Some(match verb {
        "drain" => Verb::Drain,
        "resume" => Verb::Resume,
        "scale" => Verb::Scale,
        "reload" => Verb::Reload,
        "recycle" => Verb::Recycle,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Result<Route, u16> {
        let (head, ()) = hyper::Request::builder().method(method).uri(path).body(()).expect("a request").into_parts();
        Route::of(&head).map_err(|problem| problem.response().status().as_u16())
    }

    #[test]
    fn paths_are_read_and_others_are_none() {
        let api = || "api".to_owned();
        assert_eq!(route("GET", "/pools"), Ok(Route::Pools));
        assert_eq!(route("POST", "/pools/api/drain"), Ok(Route::Act(Verb::Drain, Target::Pool(api()))));
        assert_eq!(route("POST", "/reload"), Ok(Route::Act(Verb::Reload, Target::All)));
        assert_eq!(route("POST", "/pools/a%2Fb/scale"), Ok(Route::Act(Verb::Scale, Target::Pool("a/b".to_owned()))));
        assert_eq!(route("GET", "/pools/api/workers/3/stacks"), Ok(Route::Stacks(Target::Worker(api(), 3))));
        assert_eq!(route("POST", "/pools/api/workers/3/kill"), Ok(Route::Act(Verb::Kill, Target::Worker(api(), 3))));
        assert_eq!(route("POST", "/calls/7/cancel"), Ok(Route::Act(Verb::Cancel, Target::Call(7))));
        for none in ["/", "/nope", "/scale", "/pools/", "/pools/api", "/calls/x/cancel", "/pools/api/workers/-1/kill"] {
            assert_eq!(route("POST", none), Err(404), "{none}");
        }
        for other in [("POST", "/pools"), ("GET", "/stop"), ("PUT", "/pools/api/drain"), ("DELETE", "/events")] {
            assert_eq!(route(other.0, other.1), Err(405), "{other:?}");
        }
    }

    #[test]
    fn what_changes_anything_or_shows_what_runs_is_for_operators() {
        for (path, is_public) in [("/pools", true), ("/metrics", true), ("/events", false), ("/fronts", false)] {
            assert_eq!(route("GET", path).map(|route| route.is_public()), Ok(is_public), "{path}");
        }
    }
}
