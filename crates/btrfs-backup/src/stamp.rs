//! Formats and parses the time of a state, a part of its name: `2026-11-25T031500Z`. Used by `state`, `rule` and
//! `directory`.

use std::fmt;

const DAY_SECONDS: i64 = 86_400;
/// Years 1970 to 9999, so that every stamp has the same length and text sorts as time does.
const SECONDS_MAX: i64 = 253_402_300_799;

/// Seconds since the beginning of 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(i64);

/// A date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
}

impl Stamp {
    /// The time `seconds` after the beginning of 1970; `None` before it and after the year 9999.
    #[must_use]
    pub fn new(seconds: i64) -> Option<Self> {
        (0..=SECONDS_MAX).contains(&seconds).then_some(Self(seconds))
    }

    pub(crate) fn seconds(self) -> i64 {
        self.0
    }

    pub(crate) fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// Days since 1970-01-01.
    pub(crate) fn day_number(self) -> i64 {
        self.0 / DAY_SECONDS
    }

    /// The date, by counting years from the first of March, so that a leap day is the last of its year.
    pub(crate) fn civil(self) -> Civil {
        let days = self.day_number() + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil { year, month, day, hour: self.0 % DAY_SECONDS / 3600 }
    }

    /// The stamp that a text is, written as [`fmt::Display`] writes it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let part = |range| text.get(range).filter(|part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()));
        let number = |range| part(range).and_then(|part| part.parse::<i64>().ok());
        let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
        let (hour, minute, second) = (number(11..13)?, number(13..15)?, number(15..17)?);
        let from_march = (month + 9) % 12;
        let year_from_march = year - from_march / 10;
        let days = 365 * year_from_march + year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
        let days = days + (from_march * 306 + 5) / 10 + day - 1 - 719_468;
        let stamp = Self::new(days * DAY_SECONDS + hour * 3600 + minute * 60 + second)?;
        // A text that is no date, or is written differently, gives another text.
        (stamp.to_string() == text).then_some(stamp)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour } = self.civil();
        let (minute, second) = (self.0 / 60 % 60, self.0 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}{minute:02}{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T000000Z"),
            (951_782_399, "2000-02-28T235959Z"),
            (951_782_400, "2000-02-29T000000Z"),
            (951_868_800, "2000-03-01T000000Z"),
            (1_795_576_500, "2026-11-25T031500Z"),
            (SECONDS_MAX, "9999-12-31T235959Z"),
        ] {
            assert_eq!(Stamp::new(seconds).unwrap().to_string(), text);
            assert_eq!(Stamp::parse(text), Stamp::new(seconds));
        }
        for seconds in (0..SECONDS_MAX).step_by(86_399_987) {
            let stamp = Stamp::new(seconds).unwrap();
            assert_eq!(Stamp::parse(&stamp.to_string()), Some(stamp));
        }
        for text in ["", "2026-02-29T000000Z", "2026-13-01T000000Z", "2026-1-01T000000Z", "2026-11-25T240000Z", "x"] {
            assert_eq!(Stamp::parse(text), None, "{text}");
        }
    }
}
