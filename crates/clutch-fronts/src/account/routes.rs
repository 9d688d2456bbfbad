//! Figures of requests by method and route, as far as the app's framework tells by which route it found what answers.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use clutch_host::figures::{Histogram, Labels};
use clutch_host::{Figure, FigureValue};
use hyper::Method;

use super::figures::{BOUNDS_S, CLASSES, bucket_of, class_of};

/// Most routes of a front that have figures of their own; those of others are together under [`OTHER`].
const ROUTES_MAX: usize = 1_000;

/// Stands for routes beyond the limit, and for methods that HTTP does not define.
const OTHER: &str = "other";

/// Methods that have figures of their own.
const METHODS: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"];

/// A route as the app's framework writes it, such as `/items/{id}`. It travels in the response's extensions.
#[derive(Clone, Debug)]
pub(crate) struct Route(pub(crate) Bytes);

#[derive(Default)]
struct Counts {
    /// By class of status.
    responses: [u64; CLASSES.len()],
    /// By duration; the last: longer than all bounds.
    durations: [u64; BOUNDS_S.len() + 1],
    seconds: f64,
}

#[derive(Default)]
pub(crate) struct Routes {
    /// By route; of each those of its methods. Routes are few, and each has a method or two.
    known: HashMap<Bytes, Vec<(&'static str, Counts)>>,
}

impl Routes {
    pub(crate) fn ended(&mut self, route: &Route, method: &Method, status: Option<u16>, after: Duration) {
        let method = METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER);
        let counts = self.counts_of(&route.0, method);
        counts.responses[class_of(status)] += 1;
        counts.durations[bucket_of(after)] += 1;
        counts.seconds += after.as_secs_f64();
    }

    fn counts_of(&mut self, route: &Bytes, method: &'static str) -> &mut Counts {
        let is_new = !self.known.contains_key(route);
        let name = match is_new && self.known.len() >= ROUTES_MAX {
            true => Bytes::from_static(OTHER.as_bytes()),
            // What it was cut from is not kept.
            false if is_new => Bytes::copy_from_slice(route),
            false => route.clone(),
        };
        let methods = self.known.entry(name).or_default();
        let at = methods.iter().position(|(known, _)| *known == method).unwrap_or_else(|| {
            methods.push((method, Counts::default()));
            methods.len() - 1
        });
        &mut methods[at].1
    }

    /// `labels` gives the front's own, and these.
    pub(crate) fn figures(&self, labels: impl Fn(&[(&'static str, &str)]) -> Labels) -> Vec<Figure> {
        let mut sorted: Vec<_> = self.known.iter().collect();
        sorted.sort_by_key(|(route, _)| *route);
        let mut figures = Vec::new();
        for (route, methods) in sorted {
            let route = String::from_utf8_lossy(route);
            for (method, counts) in methods {
                let own = [("method", *method), ("route", &*route)];
                let durations = Histogram { bounds: &BOUNDS_S, counts: counts.durations.to_vec(), sum: counts.seconds };
                figures.push(Figure {
                    name: "http_route_seconds",
                    help: "From the head of a request until its client had taken the response, by route",
                    labels: labels(&own),
                    value: FigureValue::Histogram(durations),
                });
                let told = CLASSES.iter().zip(counts.responses).filter(|(_, count)| *count > 0);
                figures.extend(told.map(|(class, count)| Figure {
                    name: "http_route_responses",
                    help: "Responses by route and class of status",
                    labels: labels(&[own[0], own[1], ("status", class)]),
                    value: FigureValue::Counter(count),
                }));
            }
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str) -> Route {
        Route(Bytes::copy_from_slice(path.as_bytes()))
    }

    fn shown(routes: &Routes) -> Vec<String> {
        let labels =
            |more: &[(&'static str, &str)]| more.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let counters = routes.figures(labels).into_iter().filter(|figure| figure.name == "http_route_responses");
        counters
            .map(|figure| {
                let labels: Vec<_> = figure.labels.iter().map(|(_, value)| value.as_str()).collect();
                let FigureValue::Counter(count) = figure.value else { panic!("{figure:?}") };
                format!("{} {count}", labels.join(" "))
            })
            .collect()
    }

    #[test]
    fn requests_are_counted_by_route_method_and_status() {
        let (mut routes, time) = (Routes::default(), Duration::from_millis(20));
        for (path, method, status) in
            [("/b", "GET", Some(200)), ("/a", "POST", Some(500)), ("/b", "GET", Some(204)), ("/b", "BREW", Some(418))]
        {
            routes.ended(&route(path), &Method::from_bytes(method.as_bytes()).expect("a method"), status, time);
        }
        assert_eq!(shown(&routes), ["POST /a 5xx 1", "GET /b 2xx 2", "other /b 4xx 1"]);
        let FigureValue::Histogram(times) = routes.figures(|_| Vec::new()).swap_remove(0).value else { panic!() };
        assert_eq!((times.counts[2], times.sum), (1, 0.02));
    }

    #[test]
    fn beyond_the_limit_routes_are_counted_together() {
        let mut routes = Routes::default();
        for nr in 0..ROUTES_MAX + 5 {
            routes.ended(&route(&format!("/{nr}")), &Method::GET, Some(200), Duration::ZERO);
        }
        routes.ended(&route("/1"), &Method::GET, Some(200), Duration::ZERO);
        let shown = shown(&routes);
        assert_eq!(shown.len(), ROUTES_MAX + 1);
        assert!(shown.contains(&"GET other 2xx 5".to_owned()) && shown.contains(&"GET /1 2xx 2".to_owned()));
    }
}
