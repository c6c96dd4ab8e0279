//! Defines UUIDs as they lie on disk: 16 bytes, in the order they are printed. Used by all btrfs crates.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A UUID; all zeros where there is none.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// No UUID.
    pub const NIL: Self = Self([0; 16]);

    /// True where there is no UUID.
    #[must_use]
    pub fn is_nil(self) -> bool {
        self == Self::NIL
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_in_groups() {
        let mut bytes = [0; 16];
        for (value, byte) in (0u8..).zip(&mut bytes) {
            *byte = value;
        }
        assert_eq!(Uuid(bytes).to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
