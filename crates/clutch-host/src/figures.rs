//! Figures in the text format that Prometheus reads. docs/metrics.md lists the names.
//!
//! Nothing is counted here: each rendering reads what the parts of the process count themselves.

pub mod pools;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use clutch_pool::telemetry::{BOUNDS_S, Durations};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Prefix of the name of each figure.
const PREFIX: &str = "clutch";

pub type Labels = Vec<(&'static str, String)>;

/// A value, under a name without its prefix: `pool_queued`. Figures of one name have one help and one kind of value.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: Labels,
    pub value: FigureValue,
}

#[derive(Clone, Debug)]
pub enum FigureValue {
    /// Only grows.
    Counter(u64),
    /// Seconds that only grow.
    Seconds(f64),
    Gauge(u64),
    Histogram(Histogram),
}

/// A histogram as it was counted.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Upper bounds of the buckets, in seconds.
    pub bounds: &'static [f64],
    /// Number of durations in each bucket; the last: longer than all bounds.
    pub counts: Vec<u64>,
    /// Seconds.
    pub sum: f64,
}

impl From<&Durations> for Histogram {
    fn from(durations: &Durations) -> Histogram {
        Histogram { bounds: &BOUNDS_S, counts: durations.buckets.to_vec(), sum: durations.sum }
    }
}

/// Returns the version that runs.
pub(crate) fn build_info() -> Figure {
    Figure {
        name: "build_info",
        help: "The version that runs, with the value 1",
        labels: vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
        value: FigureValue::Gauge(1),
    }
}

/// Writes figures, those of one name together.
pub(crate) fn render(figures: impl IntoIterator<Item = Figure>) -> String {
    let mut families = BTreeMap::<_, Vec<Figure>>::new();
    for figure in figures {
        families.entry((figure.name, figure.help)).or_default().push(figure);
    }
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    // Writing to a string fails only where a metric's own encoding does; what is there is worth sending.
    let _ = encode(&mut text, &registry);
    text
}

/// Figures by name and help.
#[derive(Debug)]
struct Families(BTreeMap<(&'static str, &'static str), Vec<Figure>>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for ((name, help), figures) in &self.0 {
            let help = format!("{help}.");
            let mut family = encoder.encode_descriptor(name, &help, None, figures[0].value.kind())?;
            if let [Figure { labels, value, .. }] = &figures[..]
                && labels.is_empty()
            {
                // Without braces around nothing.
                value.encode(family)?;
                continue;
            }
            for figure in figures {
                let labels: Vec<(&str, Cow<'_, str>)> =
                    figure.labels.iter().map(|(name, value)| (*name, escaped(value))).collect();
                figure.value.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Returns the value of a label as the text format has it between its quotes: the crate writes it as it is. Control
/// characters, at which some readers give up, are named: `\u{0}`.
fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(|letter: char| matches!(letter, '\\' | '"') || letter.is_control()) {
        return value.into();
    }
    let mut text = String::with_capacity(value.len() + 8);
    for letter in value.chars() {
        match letter {
            '\n' => text.push_str(r"\n"),
            '\\' | '"' => text.extend(['\\', letter]),
            control if control.is_control() => text.extend(['\\'].into_iter().chain(control.escape_unicode())),
            plain => text.push(plain),
        }
    }
    text.into()
}

impl FigureValue {
    fn kind(&self) -> MetricType {
        match self {
            FigureValue::Counter(_) | FigureValue::Seconds(_) => MetricType::Counter,
            FigureValue::Gauge(_) => MetricType::Gauge,
            FigureValue::Histogram(_) => MetricType::Histogram,
        }
    }

    fn encode(&self, mut metric: MetricEncoder<'_>) -> fmt::Result {
        match self {
            FigureValue::Counter(value) => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
            FigureValue::Seconds(value) => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
            FigureValue::Gauge(value) => metric.encode_gauge(&i64::try_from(*value).unwrap_or(i64::MAX)),
            FigureValue::Histogram(Histogram { bounds, counts, sum }) => {
                let bounds = bounds.iter().copied().chain([f64::MAX]);
                let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
                metric.encode_histogram::<NoLabelSet>(*sum, counts.iter().sum(), &buckets, None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &'static str, front: &str, value: FigureValue) -> Figure {
        Figure { name, help: "Some value", labels: vec![("front", front.to_owned())], value }
    }

    #[test]
    fn figures_of_one_name_stand_together_whoever_counts_them() {
        let histogram = Histogram { bounds: &[0.5, 1.0], counts: vec![1, 0, 2], sum: 7.5 };
        let text = render([
            figure("http_requests", "api", FigureValue::Counter(3)),
            figure("http_open", "api", FigureValue::Gauge(u64::MAX)),
            figure("http_requests", "web", FigureValue::Counter(4)),
            figure("http_wait", "api", FigureValue::Seconds(0.0)),
            figure("http_seconds", "api", FigureValue::Histogram(histogram)),
            Figure { labels: Vec::new(), ..figure("stalls", "", FigureValue::Counter(5)) },
        ]);
        for expected in [
            "# HELP clutch_http_requests Some value.\n# TYPE clutch_http_requests counter\n\
             clutch_http_requests_total{front=\"api\"} 3\nclutch_http_requests_total{front=\"web\"} 4\n",
            "clutch_http_open{front=\"api\"} 9223372036854775807\n",
            "clutch_stalls_total 5\n",
            "clutch_http_wait_total{front=\"api\"} 0.0\n",
            "clutch_http_seconds_sum{front=\"api\"} 7.5\nclutch_http_seconds_count{front=\"api\"} 3\n",
            "clutch_http_seconds_bucket{le=\"+Inf\",front=\"api\"} 3\n",
        ] {
            assert!(text.contains(expected), "{expected} not in {text}");
        }
    }

    /// Reads the value of the only label of a line, and what comes after its quote.
    fn read_label(line: &str) -> (String, &str) {
        let mut rest = line.strip_prefix("clutch_jobs_queued{queue=\"").expect("the sample").chars();
        let mut value = String::new();
        loop {
            match rest.next().expect("a quote at the end") {
                '"' => return (value, rest.as_str()),
                '\\' => value.push(match rest.next().expect("an escape") {
                    'n' => '\n',
                    it @ ('\\' | '"') => it,
                    other => panic!("no escape of the format: {other:?}"),
                }),
                plain => value.push(plain),
            }
        }
    }

    #[test]
    fn a_name_stays_within_the_quotes_of_its_label() {
        for name in ["mail", "tenant\"x", "back\\", "two\nlines", "\\n", "\\\"", "x\"} 1\nforged{a=\"", "größe"] {
            let labels = vec![("queue", name.to_owned())];
            let value = FigureValue::Gauge(3);
            let text = render([Figure { name: "jobs_queued", help: "Some value", labels, value }]);
            let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            let [sample] = samples[..] else { panic!("{name:?} is one sample: {text}") };
            assert_eq!(read_label(sample), (name.to_owned(), "} 3"));
        }
    }

    #[test]
    fn control_characters_are_named() {
        assert_eq!(escaped("a\0b\r\u{1b}"), r"a\\u{0}b\\u{d}\\u{1b}");
    }
}
