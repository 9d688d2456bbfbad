//! Dates as logs write them.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    year: u64,
    month: usize,
    day: u64,
    seconds: u64,
    millis: u32,
}

impl Date {
    pub fn of(at: SystemTime) -> Date {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Years from March on, so that the odd day is a year's last; eras of 400 years repeat.
        let days = since.as_secs() / 86_400 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * years + years / 4 - years / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Date {
            year: era * 400 + years + u64::from(month <= 2),
            month: month as usize,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            seconds: since.as_secs() % 86_400,
            millis: since.subsec_millis(),
        }
    }

    fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60)
    }

    pub fn of_web_servers(&self) -> String {
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        format!("{:02}/{}/{}:{} +0000", self.day, MONTHS[self.month - 1], self.year, self.clock())
    }

    pub fn iso(&self) -> String {
        format!("{}-{:02}-{:02}T{}.{:03}Z", self.year, self.month, self.day, self.clock(), self.millis)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
