//! Dates as logs write them.

use std::time::SystemTime;

use jiff::Timestamp;

/// A moment of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date(Timestamp);

impl Date {
    /// Takes a moment; one that no calendar has is the first of 1970.
    pub fn of(at: SystemTime) -> Date {
        Date(Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Writes it as web servers do: `14/Nov/2023:22:13:20 +0000`.
    pub fn of_web_servers(&self) -> String {
        self.0.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
    }

    /// Writes it as ISO 8601, with milliseconds.
    pub fn iso(&self) -> String {
        self.0.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_735_689_600, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Date::of(UNIX_EPOCH + Duration::from_secs(seconds)).iso(), expected);
        }
        let date = Date::of(UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
        assert_eq!(date.of_web_servers(), "14/Nov/2023:22:13:20 +0000");
        assert_eq!(date.iso(), "2023-11-14T22:13:20.123Z");
    }
}
