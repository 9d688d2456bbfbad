//! Requests that nobody wants to know one by one, summed up by what their figures are told by. Knows no I/O.

use std::time::Duration;

use super::message::{Sum, Told, ToldEnd};
use crate::account::classes::Times;

/// Most sums that wait to be told.
const ROWS_MAX: usize = 64;

/// Sums that wait to be told.
#[derive(Debug, Default)]
pub struct Sums {
    rows: Vec<Row>,
    calls: u64,
}

#[derive(Debug)]
struct Row {
    status: u16,
    method: Box<str>,
    route: Box<[u8]>,
    bytes: u64,
    times: Times,
}

impl Sums {
    /// Adds a request; false: it is to be told by itself. A front may have told of one that did not end well, and its pool
    /// has heard of an adopted one.
    pub fn add(&mut self, told: &Told<'_>) -> bool {
        let is_plain = told.end == ToldEnd::Whole && told.status != 0 && !told.adopted;
        if !is_plain || !told.request_head.is_empty() || !told.response_head.is_empty() {
            return false;
        }
        let is_its = |row: &Row| row.status == told.status && *row.method == *told.method && *row.route == *told.route;
        let at = self.rows.iter().position(is_its).unwrap_or_else(|| {
            let (method, route) = (told.method.into(), told.route.into());
            self.rows.push(Row { status: told.status, method, route, bytes: 0, times: Times::default() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        row.bytes = row.bytes.saturating_add(told.bytes);
        row.times.note(Duration::from_micros(told.after_us));
        self.calls += 1;
        true
    }

    /// Requests in all of them.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// No more are to wait.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX
    }

    /// Tells each sum once.
    pub fn tell(&mut self, mut tell: impl FnMut(Sum<'_>)) {
        for Row { status, method, route, bytes, times } in std::mem::take(self).rows {
            tell(Sum { status, method: &method, route: &route, bytes, times });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told<'a>(status: u16, route: &'a [u8], end: ToldEnd, after_us: u64, bytes: u64) -> Told<'a> {
        Told { status, end, method: "GET", route, after_us, bytes, ..Told::default() }
    }

    proptest! {
        #[test]
        fn each_request_is_in_one_sum_or_told_by_itself(
            requests in prop::collection::vec((0_u16..4, 0_usize..3, 0_u8..4, 0_u64..10_000_000, 0_u64..100), 0..200),
        ) {
            let routes: [&[u8]; 3] = [b"", b"/a", b"/{b}"];
            let (mut sums, mut expected) = (Sums::default(), Vec::<(u16, usize, u64, u64, u64)>::new());
            for (status, route, end, after, bytes) in requests {
                let end = [ToldEnd::Whole, ToldEnd::Whole, ToldEnd::BrokenOff, ToldEnd::ClientGone][usize::from(end)];
                let is_plain = end == ToldEnd::Whole && status > 0;
                prop_assert_eq!(sums.add(&told(status * 100, routes[route], end, after, bytes)), is_plain);
                if !is_plain {
                    continue;
                }
                let is_its = |row: &&mut (u16, usize, u64, u64, u64)| (row.0, row.1) == (status, route);
                match expected.iter_mut().find(is_its) {
                    Some(row) => *row = (status, route, row.2 + 1, row.3 + after, row.4 + bytes),
                    None => expected.push((status, route, 1, after, bytes)),
                }
            }
            let calls: u64 = expected.iter().map(|row| row.2).sum();
            prop_assert_eq!(sums.calls(), calls);
            let mut seen = Vec::new();
            sums.tell(|sum| {
                let route = routes.iter().position(|route| *route == sum.route).expect("a route");
                seen.push((sum.status / 100, route, sum.times.count(), sum.times.total().as_micros() as u64, sum.bytes));
            });
            prop_assert_eq!(seen, expected);
            prop_assert_eq!(sums.calls(), 0);
        }
    }

    #[test]
    fn what_somebody_wants_to_know_is_told_by_itself() {
        let plain = told(200, b"/", ToldEnd::Whole, 1, 1);
        let mut sums = Sums::default();
        assert!(!sums.add(&Told { adopted: true, ..plain.clone() }));
        assert!(!sums.add(&Told { request_head: b"GET", ..plain.clone() }));
        assert!(!sums.add(&Told { response_head: b"HTTP", ..plain.clone() }));
        assert!(sums.add(&plain));
    }

    #[test]
    fn of_many_routes_not_all_wait() {
        let mut sums = Sums::default();
        for nr in 0..ROWS_MAX {
            assert!(!sums.is_full());
            sums.add(&told(200, format!("/{nr}").as_bytes(), ToldEnd::Whole, 1, 1));
        }
        assert!(sums.is_full());
    }
}
