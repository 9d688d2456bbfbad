//! The load that `make bench-serve` puts on a server: `load PLAN`, a plan as JSON in, a report as JSON out.
//!
//! `load '{"address": "127.0.0.1:8000", "protocol": {"http": {"path": "/"}}, "connections": 100, "threads": 1,
//! "seconds": 2, "per_second": 5000}'`; see `clutch_load::Plan`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let plan = std::env::args().nth(1).filter(|argument| argument.starts_with('{'));
    let plan = plan.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "usage: load PLAN, which is JSON"))?;
    let report = clutch_load::run(&serde_json::from_str(&plan)?)?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)
}
