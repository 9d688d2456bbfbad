//! Dates as logs write them.

use std::time::SystemTime;

use time::OffsetDateTime;

/// A moment of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date(OffsetDateTime);

impl Date {
    pub fn of(at: SystemTime) -> Date {
        Date(at.into())
    }

    fn clock(&self) -> String {
        let (hour, minute, second) = self.0.to_hms();
        format!("{hour:02}:{minute:02}:{second:02}")
    }

    pub fn of_web_servers(&self) -> String {
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (year, month, day) = self.0.to_calendar_date();
        format!("{day:02}/{}/{year}:{} +0000", MONTHS[month as usize - 1], self.clock())
    }

    pub fn iso(&self) -> String {
        let (year, month, day) = self.0.to_calendar_date();
        format!("{year}-{:02}-{day:02}T{}.{:03}Z", month as u8, self.clock(), self.0.millisecond())
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
