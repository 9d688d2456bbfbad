//! The load that `make bench-serve` puts on a server: `load PLAN MEASURE`, JSON in, a report as JSON out.
//!
//! `load '{"address": "127.0.0.1:8000", "protocol": {"http": {"requests": [{"path": "/"}]}}, "connections": 100}'
//! '{"seconds": 2, "arrivals": {"even": {"per_second": 5000}}}'`; see `clutch_load::Plan` and `clutch_load::Measure`.

use std::io::{self, Write};

use clutch_load::Load;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument.starts_with('{')).collect();
    let [plan, measure] = &arguments[..] else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: load PLAN MEASURE, which are JSON"));
    };
    let mut load = Load::connect::<&[u8]>(&serde_json::from_str(plan)?, &[])?;
    let report = load.measure(&serde_json::from_str(measure)?)?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)
}
