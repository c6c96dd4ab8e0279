//! Formats numbers and times for people, and parses sizes. Nearly all reports and arguments use it.

pub(crate) use spinney::size::{bytes, parse_bytes};
use spinney::vfs::file_system::{NodeKind, Time};

/// A number and its noun: `1 file`, `2 files`.
pub(crate) fn count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A bar of `width` cells of which `part` of `whole` are filled.
pub(crate) fn bar(part: u64, whole: u64, width: u32) -> String {
    let filled = if whole == 0 {
        0
    } else {
        let cells = u128::from(part) * u128::from(width) / u128::from(whole);
        // A part greater than zero has at least one cell.
        usize::try_from(cells).unwrap_or(usize::MAX).max(usize::from(part > 0))
    };
    let width = usize::try_from(width).unwrap_or_default();
    let filled = filled.min(width);
    format!("{}{}", "\u{2588}".repeat(filled), "\u{2591}".repeat(width - filled))
}

/// `part` in hundredths of `whole`: `12.3 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let tenths = if whole == 0 { 0 } else { u128::from(part) * 1000 / u128::from(whole) };
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// `1:02:03`
pub(crate) fn clock(seconds: u64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Type and permissions as `ls -l` writes them.
pub(crate) fn mode_string(kind: NodeKind, mode: u32) -> String {
    let triple = |shift: u32, special: u32, letter: char| {
        let bits = mode >> shift;
        let read = if bits & 4 != 0 { 'r' } else { '-' };
        let write = if bits & 2 != 0 { 'w' } else { '-' };
        let execute = match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        };
        [read, write, execute]
    };
    let mut text = String::from(kind_letter(kind));
    text.extend(triple(6, 0o4000, 's'));
    text.extend(triple(3, 0o2000, 's'));
    text.extend(triple(0, 0o1000, 't'));
    text
}

fn kind_letter(kind: NodeKind) -> char {
    match kind {
        NodeKind::File => '-',
        NodeKind::Directory => 'd',
        NodeKind::Symlink => 'l',
        NodeKind::CharDevice => 'c',
        NodeKind::BlockDevice => 'b',
        NodeKind::Fifo => 'p',
        NodeKind::Socket => 's',
    }
}

/// The kind of a file in a word, as JSON has it.
pub(crate) fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::File => "file",
        NodeKind::Directory => "directory",
        NodeKind::Symlink => "symlink",
        NodeKind::CharDevice => "char_device",
        NodeKind::BlockDevice => "block_device",
        NodeKind::Fifo => "fifo",
        NodeKind::Socket => "socket",
    }
}

/// Major and minor number of a device, from the number that `stat` reports.
pub(crate) fn device_numbers(rdev: u64) -> (u32, u32) {
    let part = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
    (part(((rdev >> 32) & 0xffff_f000) | ((rdev >> 8) & 0xfff)), part(((rdev >> 12) & 0xffff_ff00) | (rdev & 0xff)))
}

/// `2024-02-29 12:34:56` in UTC.
pub(crate) fn time_short(time: Time) -> String {
    let (year, month, day) = civil(time.sec.div_euclid(86_400));
    let second = time.sec.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// `2024-02-29 12:34:56.000000001 UTC`.
pub(crate) fn time_full(time: Time) -> String {
    format!("{}.{:09} UTC", time_short(time), time.nsec)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last day.
fn civil(day: i64) -> (i64, i64, i64) {
    let day = day.saturating_add(719_468);
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day_of_month)
}

/// A time such as `90s`, `30m`, `12h`, `7d` or `2w`, in seconds.
///
/// # Errors
/// A message that says what is expected.
pub(crate) fn parse_seconds(text: &str) -> Result<u64, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    parsed.ok_or_else(|| "expected a number with s, m, h, d or w, as 12h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(20 << 20), "20.0 MiB");
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
        assert_eq!(parse_bytes("1.5G"), Ok(3 << 29));
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("512MB"), Ok(512 << 20));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for wrong in ["", "M", "-1", "1X", "99999E", "1.2.3", "."] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_seconds("90s"), Ok(90));
        assert_eq!(parse_seconds("2w"), Ok(1_209_600));
        for wrong in ["", "1", "d", "-1d", "1.5h", "99999999999999999999d", "9999999999999999999w"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_utc() {
        let short = |sec| time_short(Time::new(sec, 0));
        assert_eq!(short(0), "1970-01-01 00:00:00");
        assert_eq!(short(-1), "1969-12-31 23:59:59");
        assert_eq!(short(1_709_210_096), "2024-02-29 12:34:56");
        assert_eq!(short(i64::from(u32::MAX)), "2106-02-07 06:28:15");
        let _ = (short(i64::MAX), short(i64::MIN));
    }

    #[test]
    fn modes_look_like_those_of_ls() {
        assert_eq!(mode_string(NodeKind::Directory, 0o41777), "drwxrwxrwt");
        assert_eq!(mode_string(NodeKind::File, 0o104_711), "-rws--x--x");
        assert_eq!(mode_string(NodeKind::File, 0o102_644), "-rw-r-Sr--");
    }

    #[test]
    fn bars_show_what_is_there() {
        assert_eq!(bar(0, 10, 4), "░░░░");
        assert_eq!(bar(1, 1000, 4), "█░░░");
        assert_eq!(bar(20, 10, 4), "████");
        assert_eq!(bar(1, 0, 2), "░░");
    }
}
