//! Reads the fields of a header block of 512 bytes, of all dialects: v7, ustar, star and GNU. `members` interprets
//! them.
//!
//! Why not the crate `tar`: it keeps no GNU sparse maps of the PAX formats, joins PAX records of several headers, and
//! fails without the offset and the field that it found wrong.

/// Bytes of a header, and what members are filled up to a multiple of.
pub(crate) const BLOCK_BYTES: usize = 512;

/// A header block.
pub(super) struct Header(pub(super) [u8; BLOCK_BYTES]);

/// The dialect of the program that made a header: fields mean different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Without a magic: before POSIX.
    V7,
    /// POSIX.1-1988, and the extended headers of 2001.
    Ustar,
    /// As ustar with a shorter prefix and more times.
    Star,
    /// GNU tar's own.
    Gnu,
}

/// Position and length of a field, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Field(pub(super) usize, pub(super) usize);

impl Field {
    pub(super) const NAME: Self = Self(0, 100);
    pub(super) const MODE: Self = Self(100, 8);
    pub(super) const UID: Self = Self(108, 8);
    pub(super) const GID: Self = Self(116, 8);
    pub(super) const SIZE: Self = Self(124, 12);
    pub(super) const MTIME: Self = Self(136, 12);
    pub(super) const CHECKSUM: Self = Self(148, 8);
    pub(super) const KIND: usize = 156;
    pub(super) const LINK: Self = Self(157, 100);
    pub(super) const MAGIC: Self = Self(257, 8);
    pub(super) const MAJOR: Self = Self(329, 8);
    pub(super) const MINOR: Self = Self(337, 8);
    pub(super) const PREFIX: Self = Self(345, 155);
    const STAR_PREFIX: Self = Self(345, 131);
    pub(super) const STAR_ATIME: Self = Self(476, 12);
    pub(super) const STAR_CTIME: Self = Self(488, 12);
    const STAR_MAGIC: Self = Self(508, 4);
    pub(super) const GNU_ATIME: Self = Self(345, 12);
    pub(super) const GNU_CTIME: Self = Self(357, 12);
    pub(super) const GNU_SPARSE: Self = Self(386, 96);
    pub(super) const GNU_IS_EXTENDED: Self = Self(482, 1);
    pub(super) const GNU_REAL_SIZE: Self = Self(483, 12);
}

impl Header {
    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// The bytes of a field.
    pub(super) fn bytes(&self, Field(at, len): Field) -> &[u8] {
        self.0.get(at..at.saturating_add(len)).unwrap_or_default()
    }

    /// A field of text, up to its first zero.
    pub(super) fn text(&self, field: Field) -> &[u8] {
        until_zero(self.bytes(field))
    }

    /// A field of a number; `None` if it is none.
    pub(super) fn number(&self, field: Field) -> Option<i128> {
        number(self.bytes(field))
    }

    pub(super) fn kind(&self) -> u8 {
        self.0.get(Field::KIND).copied().unwrap_or_default()
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self.bytes(Field::MAGIC) {
            b"ustar  \0" => Dialect::Gnu,
            magic if magic.starts_with(b"ustar") => match self.bytes(Field::STAR_MAGIC) {
                b"tar\0" => Dialect::Star,
                _ => Dialect::Ustar,
            },
            _ => Dialect::V7,
        }
    }

    /// The name, with its prefix.
    pub(super) fn name(&self) -> Vec<u8> {
        let prefix = match self.dialect() {
            Dialect::Ustar => self.text(Field::PREFIX),
            Dialect::Star => self.text(Field::STAR_PREFIX),
            Dialect::V7 | Dialect::Gnu => &[],
        };
        let name = self.text(Field::NAME);
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    /// The sums of all bytes, as unsigned and as signed ones, with spaces in place of the checksum. Old programs of
    /// some machines summed signed bytes.
    fn sums(&self) -> (i32, i32) {
        let sum = |bytes: &[u8]| {
            let unsigned: i32 = bytes.iter().map(|byte| i32::from(*byte)).sum();
            let signed: i32 = bytes.iter().map(|byte| i32::from(byte.cast_signed())).sum();
            (unsigned, signed)
        };
        let (all, own) = (sum(&self.0), sum(self.bytes(Field::CHECKSUM)));
        let Field(_, len) = Field::CHECKSUM;
        let spaces = i32::from(b' ') * i32::try_from(len).unwrap_or_default();
        (all.0 - own.0 + spaces, all.1 - own.1 + spaces)
    }

    /// The sum that the header names, and the one that its bytes have.
    pub(super) fn checksum(&self) -> (Option<i128>, i128) {
        (self.number(Field::CHECKSUM), i128::from(self.sums().0))
    }

    /// True if the checksum is that of the bytes.
    pub(super) fn is_valid(&self) -> bool {
        let (unsigned, signed) = self.sums();
        self.number(Field::CHECKSUM).is_some_and(|named| named == i128::from(unsigned) || named == i128::from(signed))
    }
}

/// The bytes before the first zero.
pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number in octal digits, or in base 256 if the highest bit of its first byte is set.
pub(super) fn number(bytes: &[u8]) -> Option<i128> {
    match bytes.split_first() {
        Some((first, rest)) if first & 0x80 != 0 => {
            // The next bit is the sign, and seven bits of the first byte count.
            let first = i128::from(first & 0x7f) - if first & 0x40 == 0 { 0 } else { 0x80 };
            rest.iter().try_fold(first, |sum, byte| Some(sum.checked_mul(256)? + i128::from(*byte)))
        }
        _ => octal(bytes),
    }
}

fn octal(bytes: &[u8]) -> Option<i128> {
    let text = until_zero(bytes).trim_ascii();
    let (sign, digits) = match text.split_first() {
        Some((b'-', digits)) if !digits.is_empty() => (-1, digits),
        _ => (1, text),
    };
    let value = digits.iter().try_fold(0_i128, |sum, digit| match digit {
        b'0'..=b'7' => Some(sum.checked_mul(8)? + i128::from(digit - b'0')),
        _ => None,
    });
    Some(sign * value?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_forms() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"77777777"), Some(0o7777_7777));
        assert_eq!(number(b"\0\0\0"), Some(0));
        assert_eq!(number(b"-1\0"), Some(-1));
        assert_eq!(number(b"\x80\0\0\x01\0"), Some(0x100));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(b"\xff\xff\xff\xfe"), Some(-2));
        for wrong in [&b"8"[..], b"12 3", b"x", b"-"] {
            assert_eq!(number(wrong), None);
        }
    }
}
