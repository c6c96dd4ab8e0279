//! Formats and parses sizes in bytes as people write them. Used by `options` and by the commands.

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Formats a number of bytes for people, rounded down, with at most two decimals: `1.50 GiB`, `12.3 MiB`, `1023 KiB`,
/// `7 B`.
pub fn bytes(count: u64) -> String {
    let mut shift = 0_u32;
    let mut unit = 0;
    while unit + 1 < UNITS.len() && count >> shift >= 1024 {
        shift += 10;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 {
        return format!("{count} {name}");
    }
    let whole = count >> shift;
    let hundredths = ((u128::from(count) * 100) >> shift) % 100;
    match whole {
        0..=9 => format!("{whole}.{hundredths:02} {name}"),
        10..=99 => format!("{whole}.{} {name}", hundredths / 10),
        _ => format!("{whole} {name}"),
    }
}

/// Parses a size such as `64K`, `1.5G`, `300MiB` or `4096` into bytes. Units are powers of 1024, in either case.
///
/// # Errors
/// A message for the user, for text that is no size or is more than `u64::MAX` bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write for instance 512M or 4096");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).ok_or_else(wrong)?;
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0_u32,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = |digits: &str| -> Option<u128> {
        let value: u128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        value.checked_mul(1 << shift)
    };
    let count = fraction.len().try_into().ok().and_then(|len| 10_u128.checked_pow(len));
    let total = scale(whole).zip(scale(fraction)).zip(count);
    total
        .filter(|_| (1..=20).contains(&whole.len()) && fraction.len() <= 18)
        .and_then(|((whole, part), power)| u64::try_from(whole + part / power).ok())
        .ok_or_else(wrong)
}
