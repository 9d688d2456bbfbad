//! The paths of the operator plane: a table. docs/operating.md lists them.

use std::pin::Pin;

use clutch_host::routes::{Names, listed, matched};
use hyper::Method;
use hyper::http::request::Parts;

use super::asked::{Answer, Asked};
use super::{actions, events, members, pages, sign_in};
use crate::body::problem::Problem;
use crate::names::decode;

/// Clients that a route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Whoever reaches the plane, before any token is looked at.
    Anybody,
    /// Whoever brings the token, where one is needed.
    Guests,
    Operators,
}

/// Effect of a request on the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    Reads,
    Acts,
}

pub(super) struct Route {
    pub(super) effect: Effect,
    pattern: &'static str,
    pub(super) allowed: Allowed,
    pub(super) answer: fn(Asked) -> Pin<Box<dyn Future<Output = Answer> + Send>>,
}

macro_rules! routes {
    ($($effect:ident $pattern:literal $allowed:ident $answer:expr;)*) => {
        &[$(Route {
            effect: Effect::$effect,
            pattern: $pattern,
            allowed: Allowed::$allowed,
            answer: |asked| Box::pin($answer(asked)),
        }),*]
    };
}

const ROUTES: &[Route] = routes! {
    Reads "/healthz" Guests pages::health;
    Reads "/readyz" Guests pages::readiness;
    Reads "/metrics" Guests pages::metrics;
    Reads "/pools" Guests pages::pools;
    Reads "/process" Operators pages::process;
    Reads "/fronts" Operators actions::fronts;
    Reads "/events" Operators events::stream;
    Reads "/calls/{call:u64}/stacks" Operators actions::stacks;
    Reads "/pools/{pool}/stacks" Operators actions::stacks;
    Reads "/pools/{pool}/workers/{nr:u32}/stacks" Operators actions::stacks;
    Acts "/sign-in" Anybody sign_in::sign_in;
    Acts "/sign-out" Guests sign_in::sign_out;
    Acts "/drain" Operators actions::drain;
    Acts "/resume" Operators actions::resume;
    Acts "/reload" Operators actions::reload;
    Acts "/recycle" Operators actions::recycle;
    Acts "/stop" Operators actions::stop;
    Acts "/calls/{call:u64}/cancel" Operators actions::cancel;
    Acts "/pools/{pool}/drain" Operators actions::drain;
    Acts "/pools/{pool}/resume" Operators actions::resume;
    Acts "/pools/{pool}/scale" Operators actions::scale;
    Acts "/pools/{pool}/reload" Operators actions::reload;
    Acts "/pools/{pool}/recycle" Operators actions::recycle;
    Acts "/pools/{pool}/workers/{nr:u32}/recycle" Operators actions::recycle;
    Acts "/pools/{pool}/workers/{nr:u32}/kill" Operators actions::kill;
    Acts "/fronts/{front}/{action..}" Operators members::act;
};

impl Effect {
    fn methods(self) -> &'static str {
        match self {
            Effect::Reads => "GET, HEAD",
            Effect::Acts => "POST",
        }
    }

    fn is_of(self, method: &Method) -> bool {
        match self {
            Effect::Reads => matches!(*method, Method::GET | Method::HEAD),
            Effect::Acts => method == Method::POST,
        }
    }
}

/// A route with what its path names.
pub(super) type FoundRoute = (&'static Route, Names);

impl Route {
    pub(super) fn of(head: &Parts) -> Result<FoundRoute, Box<Problem>> {
        let path = head.uri.path();
        let names = path.strip_prefix('/').and_then(|rest| rest.split('/').map(decode).collect::<Option<Vec<_>>>());
        let path = names.unwrap_or_default();
        let known: Vec<_> = ROUTES.iter().filter_map(|route| Some((route, matched(route.pattern, &path)?))).collect();
        let methods: Vec<&str> = known.iter().map(|(route, _)| route.effect.methods()).collect();
        match known.into_iter().find(|(route, _)| route.effect.is_of(&head.method)) {
            Some(found) => Ok(found),
            None if methods.is_empty() => Err(Problem::no_such_path(all_listed())),
            None => Err(Problem::method_not_allowed(methods.join(", "))),
        }
    }
}

/// Lists all paths: those of operators behind the others.
fn all_listed() -> String {
    let of = |effect, for_operators| {
        let chosen = ROUTES.iter().filter(move |route| route.effect == effect);
        listed(
            chosen
                .filter(move |route| (route.allowed == Allowed::Operators) == for_operators)
                .map(|route| route.pattern),
        )
    };
    format!(
        "GET {}, and for operators {}; POST {}, and for operators {}",
        of(Effect::Reads, false),
        of(Effect::Reads, true),
        of(Effect::Acts, false),
        of(Effect::Acts, true)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Result<(&'static str, Names), u16> {
        let (head, ()) = hyper::Request::builder().method(method).uri(path).body(()).expect("a request").into_parts();
        let found = Route::of(&head).map(|(route, names)| (route.pattern, names));
        found.map_err(|problem| problem.response().status().as_u16())
    }

    #[test]
    fn paths_are_read_and_others_are_none() {
        assert_eq!(route("GET", "/pools").map(|(pattern, _)| pattern), Ok("/pools"));
        assert_eq!(route("POST", "/reload").map(|(pattern, _)| pattern), Ok("/reload"));
        for (method, path, pattern, names) in [
            ("POST", "/pools/api/drain", "/pools/{pool}/drain", [("pool", "api"), ("pool", "api")]),
            ("POST", "/pools/a%2Fb/scale", "/pools/{pool}/scale", [("pool", "a/b"), ("pool", "a/b")]),
            (
                "GET",
                "/pools/api/workers/3/stacks",
                "/pools/{pool}/workers/{nr:u32}/stacks",
                [("pool", "api"), ("nr", "3")],
            ),
            (
                "POST",
                "/pools/api/workers/3/kill",
                "/pools/{pool}/workers/{nr:u32}/kill",
                [("pool", "api"), ("nr", "3")],
            ),
            ("POST", "/calls/7/cancel", "/calls/{call:u64}/cancel", [("call", "7"), ("call", "7")]),
            ("POST", "/fronts/a%20b/flush", "/fronts/{front}/{action..}", [("front", "a b"), ("front", "a b")]),
        ] {
            let (found, given) = route(method, path).unwrap_or_else(|status| panic!("{path}: {status}"));
            assert_eq!(found, pattern);
            names.iter().for_each(|(placeholder, name)| assert_eq!(given.get(placeholder), Some(*name), "{path}"));
        }
        for none in [
            "/",
            "/nope",
            "/scale",
            "/pools/",
            "/pools/api",
            "/calls/x/cancel",
            "/pools/api/workers/-1/kill",
            "/pools/api/workers/4294967296/recycle",
        ] {
            assert_eq!(route("POST", none), Err(404), "{none}");
        }
        for other in [("POST", "/pools"), ("GET", "/stop"), ("PUT", "/pools/api/drain"), ("DELETE", "/events")] {
            assert_eq!(route(other.0, other.1), Err(405), "{other:?}");
        }
    }

    #[test]
    fn what_changes_anything_or_shows_what_runs_is_for_operators() {
        for route in ROUTES.iter().filter(|route| route.allowed != Allowed::Operators) {
            let open = ["/healthz", "/readyz", "/metrics", "/pools", "/sign-in", "/sign-out"];
            assert!(open.contains(&route.pattern), "{}", route.pattern);
        }
    }

    #[test]
    fn whoever_asks_for_another_path_is_told_all() {
        let told = all_listed();
        assert!(
            told.starts_with("GET /{healthz,readyz,metrics,pools}, and for operators /{process,fronts,events}, "),
            "{told}"
        );
        assert!(
            told.contains("; POST /{sign-in,sign-out}, and for operators /{drain,resume,reload,recycle,stop}, "),
            "{told}"
        );
        assert!(told.contains("/pools/{pool}/{drain,resume,scale,reload,recycle}"), "{told}");
    }
}
