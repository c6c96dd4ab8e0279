//! Dates as HTTP, SigV4 and listings write them, always in UTC. Pure. Callers: the signer of requests, the server.

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Of 1 January 1970 on.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
/// Years outside of these have no form in HTTP; times are moved to the nearest one that has.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A moment, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    weekday: usize,
}

impl Date {
    /// The moment so many seconds after 1 January 1970.
    pub(crate) fn from_seconds(seconds: i64) -> Self {
        let seconds = seconds.clamp(*SECONDS.start(), *SECONDS.end());
        let (days, rest) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
        let (year, month, day) = civil(days);
        let weekday = usize::try_from(days.rem_euclid(7)).unwrap_or_default();
        Self { year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60, weekday }
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`, the form of HTTP (RFC 9110, section 5.6.7).
    pub(crate) fn http(self) -> String {
        let weekday = WEEKDAYS.get(self.weekday).copied().unwrap_or_default();
        let month = usize::try_from(self.month - 1).ok().and_then(|month| MONTHS.get(month)).copied();
        let month = month.unwrap_or_default();
        let Self { year, day, hour, minute, second, .. } = self;
        format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
    }

    /// `19941106T084937Z`, the form of SigV4.
    pub(crate) fn basic(self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
    }

    /// `1994-11-06 08:49`, the form of listings.
    pub(crate) fn short(self) -> String {
        let Self { year, month, day, hour, minute, .. } = self;
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
    }

    /// Date and time as FAT and zip pack them; years before 1980 become 1980, those after 2107 become 2107.
    pub(crate) fn dos(self) -> (u16, u16) {
        let year = (self.year - 1980).clamp(0, 127);
        let date = (year << 9) | (self.month << 5) | self.day;
        let time = (self.hour << 11) | (self.minute << 5) | (self.second / 2);
        (u16::try_from(date).unwrap_or_default(), u16::try_from(time).unwrap_or_default())
    }
}

/// Year, month and day of a day of the proleptic Gregorian calendar, counted from 1 January 1970. Counted in years that
/// begin in March, so that the day that some years lack is the last one.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_forms_of_their_protocols() {
        let date = Date::from_seconds(784_111_777);
        assert_eq!(date.http(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.basic(), "19941106T084937Z");
        assert_eq!(date.short(), "1994-11-06 08:49");
        assert_eq!(date.dos(), ((14 << 9) | (11 << 5) | 6, (8 << 11) | (49 << 5) | 18));
        assert_eq!(Date::from_seconds(0).http(), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(Date::from_seconds(-1).http(), "Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(Date::from_seconds(951_782_400).short(), "2000-02-29 00:00");
        assert_eq!(Date::from_seconds(0).dos().0 >> 9, 0);
    }

    #[test]
    fn no_number_of_seconds_is_too_large() {
        assert!(Date::from_seconds(i64::MAX).http().ends_with("31 Dec 9999 23:59:59 GMT"));
        assert!(Date::from_seconds(i64::MIN).http().starts_with("Mon, 01 Jan 0001"));
    }
}
