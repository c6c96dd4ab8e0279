//! Names the bits that a partition's entry has for firmware and systems. Called by `gpt` and `spec`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The attributes of a partition, bits without a name included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Attributes(pub u64);

/// Bits and their names. From bit 48 on they belong to the type of the partition; these are those of the Discoverable
/// Partitions.
const NAMES: [(u32, &str); 6] =
    [(0, "required"), (1, "no-block-io"), (2, "legacy-boot"), (59, "growfs"), (60, "read-only"), (63, "no-auto")];

impl Attributes {
    /// The system cannot work without the partition.
    pub const REQUIRED: Self = Self(1);
    /// Old firmware may start from the partition.
    pub const LEGACY_BOOT: Self = Self(1 << 2);
    /// The file system is grown to the partition when it is mounted.
    pub const GROW_FS: Self = Self(1 << 59);
    /// The partition is mounted read-only.
    pub const READ_ONLY: Self = Self(1 << 60);
    /// The partition is not mounted by itself.
    pub const NO_AUTO: Self = Self(1 << 63);

    /// These and others.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// True if all of the others are here.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl fmt::Display for Attributes {
    /// The names, with commas; bits without one by their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for bit in (0..64).filter(|bit| self.0 >> bit & 1 == 1) {
            f.write_str(comma)?;
            comma = ",";
            match NAMES.iter().find(|(named, _)| *named == bit) {
                Some((_, name)) => f.write_str(name)?,
                None => write!(f, "bit-{bit}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Attributes {
    type Err = String;

    /// The attribute of a name.
    fn from_str(name: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(bit, _)| Self(1 << bit)).ok_or_else(|| {
            let known: Vec<&str> = NAMES.iter().map(|(_, known)| *known).collect();
            format!("attribute `{name}`: expected one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_names() {
        let both: Attributes = ["growfs", "read-only"]
            .map(|name| name.parse().unwrap())
            .into_iter()
            .fold(Attributes::default(), Attributes::with);
        assert!(both.has(Attributes::GROW_FS) && both.has(Attributes::READ_ONLY) && !both.has(Attributes::NO_AUTO));
        assert_eq!(both.with(Attributes(1 << 33)).to_string(), "bit-33,growfs,read-only");
        assert!("grow".parse::<Attributes>().is_err());
    }
}
