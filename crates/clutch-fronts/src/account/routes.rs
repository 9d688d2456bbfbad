//! Figures of requests by method and route, as far as the app's framework tells by which route it found what answers.

use std::collections::HashMap;

use clutch_host::figures::{Histogram, Labels};
use clutch_host::{Figure, FigureValue};
use hyper::Method;

use super::classes::{BOUNDS_S, BUCKETS, CLASSES, Times, class_of};

/// Most routes of a front that have figures of their own; those of others are together under [`OTHER`].
const ROUTES_MAX: usize = 1_000;

/// Stands for routes beyond the limit, and for methods that HTTP does not define.
const OTHER: &str = "other";

/// Methods that have figures of their own.
const METHODS: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"];

#[derive(Default)]
struct Counts {
    /// By class of status.
    responses: [u64; CLASSES.len()],
    /// By duration; the last: longer than all bounds.
    durations: [u64; BUCKETS],
    seconds: f64,
}

#[derive(Default)]
pub(crate) struct Routes {
    /// As the app's framework writes them, such as `/items/{id}`, with their numbers.
    numbers: HashMap<Box<[u8]>, usize>,
    /// By number; of each route those of its methods, mostly one or two.
    counts: Vec<Vec<(&'static str, Counts)>>,
}

impl Routes {
    /// Returns the number of a route; beyond the limit that of all others.
    pub(crate) fn number_of(&mut self, route: &[u8]) -> usize {
        if let Some(number) = self.numbers.get(route) {
            return *number;
        }
        let name = if self.counts.len() < ROUTES_MAX { route } else { OTHER.as_bytes() };
        let next = self.counts.len();
        let number = *self.numbers.entry(name.into()).or_insert(next);
        if number == next {
            self.counts.push(Vec::new());
        }
        number
    }

    /// `route`: its number.
    pub(crate) fn ended(&mut self, route: usize, method: &Method, status: Option<u16>, times: &Times) {
        let method = METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER);
        let methods = &mut self.counts[route];
        let at = methods.iter().position(|(known, _)| *known == method).unwrap_or_else(|| {
            methods.push((method, Counts::default()));
            methods.len() - 1
        });
        let counts = &mut methods[at].1;
        counts.responses[class_of(status)] += times.count();
        counts.durations.iter_mut().zip(times.counts).for_each(|(bucket, count)| *bucket += count);
        counts.seconds += times.total().as_secs_f64();
    }

    /// `labels` gives the front's own, and these.
    pub(crate) fn figures(&self, labels: impl Fn(&[(&'static str, &str)]) -> Labels) -> Vec<Figure> {
        let mut sorted: Vec<_> = self.numbers.iter().collect();
        sorted.sort();
        let mut figures = Vec::new();
        for (route, number) in sorted {
            let route = String::from_utf8_lossy(route);
            for (method, counts) in &self.counts[*number] {
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
    use std::time::Duration;

    use super::*;

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
            let route = routes.number_of(path.as_bytes());
            routes.ended(route, &Method::from_bytes(method.as_bytes()).expect("a method"), status, &Times::of(time));
        }
        assert_eq!(shown(&routes), ["POST /a 5xx 1", "GET /b 2xx 2", "other /b 4xx 1"]);
        let FigureValue::Histogram(times) = routes.figures(|_| Vec::new()).swap_remove(0).value else { panic!() };
        assert_eq!((times.counts[2], times.sum), (1, 0.02));
    }

    #[test]
    fn beyond_the_limit_routes_are_counted_together() {
        let mut routes = Routes::default();
        for nr in 0..ROUTES_MAX + 5 {
            let route = routes.number_of(format!("/{nr}").as_bytes());
            routes.ended(route, &Method::GET, Some(200), &Times::of(Duration::ZERO));
        }
        let known = routes.number_of(b"/1");
        routes.ended(known, &Method::GET, Some(200), &Times::of(Duration::ZERO));
        let shown = shown(&routes);
        assert_eq!(shown.len(), ROUTES_MAX + 1);
        assert!(shown.contains(&"GET other 2xx 5".to_owned()) && shown.contains(&"GET /1 2xx 2".to_owned()));
    }
}
