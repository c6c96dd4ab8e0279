//! Makes header blocks and the records of extended headers, as GNU tar does for `--format=posix`. `writer` calls it.
//!
//! A number that does not fit into its octal field is 0 there, and a record before the header has it. Long names, and
//! names of other bytes than ASCII, are cut off in the header and whole in a record; of targets only long ones.

use vfs::file_system::Time;

use super::header::{BLOCK_BYTES, Field};

/// The fields of a header block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) name: &'a [u8],
    pub(super) link: &'a [u8],
    pub(super) kind: u8,
    pub(super) permissions: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Bytes behind the header.
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) mtime: i64,
    /// Major and minor number; an extended header has none at all.
    pub(super) device: Option<(u32, u32)>,
}

/// The header block.
pub(super) fn header(fields: &Fields<'_>) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |Field(at, len): Field, bytes: &[u8]| {
        let part = bytes.get(..len).unwrap_or(bytes);
        if let Some(place) = block.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
    };
    put(Field::NAME, fields.name);
    put(Field::MODE, &octal(u64::from(fields.permissions), Field::MODE));
    put(Field::UID, &octal(u64::from(fields.uid), Field::UID));
    put(Field::GID, &octal(u64::from(fields.gid), Field::GID));
    put(Field::SIZE, &octal(fields.size, Field::SIZE));
    put(Field::MTIME, &octal(u64::try_from(fields.mtime).unwrap_or_default(), Field::MTIME));
    put(Field::CHECKSUM, b"        ");
    put(Field(Field::KIND, 1), &[fields.kind]);
    put(Field::LINK, fields.link);
    put(Field::MAGIC, b"ustar\x0000");
    if let Some((major, minor)) = fields.device {
        put(Field::MAJOR, &octal(u64::from(major), Field::MAJOR));
        put(Field::MINOR, &octal(u64::from(minor), Field::MINOR));
    }
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    let Field(at, _) = Field::CHECKSUM;
    if let Some(place) = block.get_mut(at..at + 7) {
        place.copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    block
}

/// The octal digits of a number, filled up with zeros, with a zero byte behind them; those of 0 if they do not fit.
fn octal(value: u64, field: Field) -> Vec<u8> {
    let Field(_, len) = field;
    let value = if fits(value, field) { value } else { 0 };
    format!("{value:0digits$o}\0", digits = len.saturating_sub(1)).into_bytes()
}

/// True if an octal field holds the number.
pub(super) fn fits(value: u64, Field(_, len): Field) -> bool {
    // Three bits a digit; the last byte is a zero.
    let bits = u32::try_from(len.saturating_sub(1)).unwrap_or(u32::MAX).saturating_mul(3);
    1_u64.checked_shl(bits).is_none_or(|end| value < end)
}

/// A name that a header holds as it is.
pub(super) fn is_short(name: &[u8]) -> bool {
    let Field(_, len) = Field::NAME;
    name.len() <= len && name.is_ascii()
}

/// Records of an extended header.
#[derive(Debug, Default)]
pub(super) struct NewRecords(Vec<u8>);

impl NewRecords {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds `LENGTH KEYWORD=VALUE`, where the length counts its own digits.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        // A space, an equals sign and a line end.
        let rest = key.len() + value.len() + 3;
        let mut digits = digits(rest);
        while digits < self::digits(rest + digits) {
            digits += 1;
        }
        self.0.extend((rest + digits).to_string().as_bytes());
        for part in [b" ", key, b"=", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
    }

    pub(super) fn add_number(&mut self, key: &str, value: u64) {
        self.add(key.as_bytes(), value.to_string().as_bytes());
    }

    /// Adds an attribute. The name may have any character, a keyword not.
    pub(super) fn add_xattr(&mut self, name: &[u8], value: &[u8]) {
        let mut key = b"SCHILY.xattr.".to_vec();
        for byte in name {
            match byte {
                b'%' => key.extend(b"%25"),
                b'=' => key.extend(b"%3D"),
                byte => key.push(*byte),
            }
        }
        self.add(&key, value);
    }
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

/// A time in seconds since 1970, with as many digits of the fraction as it needs.
pub(super) fn seconds(time: Time) -> String {
    let Time { sec, nsec } = time;
    let (sign, whole, nsec) = match (sec < 0, nsec) {
        (false, nsec) => ("", sec.unsigned_abs(), nsec),
        (true, 0) => ("-", sec.unsigned_abs(), 0),
        // Nanoseconds count upwards from the second, also before 1970.
        (true, nsec) => ("-", sec.unsigned_abs().saturating_sub(1), 1_000_000_000_u32.saturating_sub(nsec)),
    };
    if nsec == 0 {
        return format!("{sign}{whole}");
    }
    let fraction = format!("{nsec:09}");
    format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
}

/// The name of an extended header, which programs that do not know such headers would extract: `DIR/PaxHeaders/NAME`.
pub(super) fn beside(name: &[u8], with: &[u8]) -> Vec<u8> {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => {
            let (dir, base) = name.split_at_checked(slash).unwrap_or_default();
            // The last name still has its slash.
            [dir, b"/", with, base].concat()
        }
        None => [b"./", with, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        for (value, expected) in [(1, "6 k=1"), (4, "9 k=1"), (5, "11 k=1"), (93, "99 "), (94, "101 ")] {
            let mut records = NewRecords::default();
            records.add(b"k", "1".repeat(value).as_bytes());
            let text = String::from_utf8(records.bytes().to_vec()).unwrap();
            let length: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(length, text.len());
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn times_and_names() {
        assert_eq!(seconds(Time::new(5, 500_000_000)), "5.5");
        assert_eq!(seconds(Time::new(-6, 500_000_000)), "-5.5");
        assert_eq!(seconds(Time::new(-1, 999_999_999)), "-0.000000001");
        assert_eq!(seconds(Time::new(-7, 0)), "-7");
        assert_eq!(beside(b"./", b"PaxHeaders"), b"./PaxHeaders/.");
        assert_eq!(beside(b"./a/b/", b"PaxHeaders"), b"./a/PaxHeaders/b");
        assert_eq!(beside(b"a", b"PaxHeaders"), b"./PaxHeaders/a");
        assert!(fits(0o7_777_777, Field::UID) && !fits(0o10_000_000, Field::UID));
        assert!(fits(0o77_777_777_777, Field::SIZE) && !fits(0o100_000_000_000, Field::SIZE));
    }
}
