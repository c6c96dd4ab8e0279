//! Parses the attributes of one command, which [`crate::Command`] is built from. Called by the decoder.

use crate::attribute::Attribute;
use crate::error::Problem;
use crate::value::{Compression, Time, Uuid};
use crate::version::{PATH_SIZE_MAX, Version};

/// Slots of [`Fields`]: the numbers of attributes go from 1 to 31.
const SLOT_COUNT: usize = 32;

/// The attributes of one command, indexed by number.
pub(crate) struct Fields<'a> {
    slots: [Option<&'a [u8]>; SLOT_COUNT],
}

type Found<T> = Result<T, Problem>;

impl<'a> Fields<'a> {
    /// Parses the attributes of a command. In version 2 the data attribute has no length: it comes last and extends to
    /// the end of the command.
    pub(crate) fn parse(version: Version, mut rest: &'a [u8]) -> Found<Self> {
        let mut slots = [None; SLOT_COUNT];
        while !rest.is_empty() {
            let (raw, behind) = take_u16(rest, 0)?;
            let attribute = Attribute::from_raw(raw).ok_or(Problem::Unknown(raw))?;
            let value;
            if version >= Version::V2 && attribute == Attribute::Data {
                (value, rest) = (behind, &[]);
            } else {
                let (len, behind) = take_u16(behind, raw)?;
                (value, rest) = behind.split_at_checked(usize::from(len)).ok_or(Problem::CutShort(raw))?;
            }
            let slot = slots.get_mut(usize::from(raw)).ok_or(Problem::Unknown(raw))?;
            if slot.replace(value).is_some() {
                return Err(Problem::Twice(attribute));
            }
        }
        Ok(Self { slots })
    }

    fn optional(&self, attribute: Attribute) -> Option<&'a [u8]> {
        self.slots.get(usize::from(attribute.to_raw())).copied().flatten()
    }

    /// The bytes of an attribute.
    pub(crate) fn bytes(&self, attribute: Attribute) -> Found<&'a [u8]> {
        self.optional(attribute).ok_or(Problem::Missing(attribute))
    }

    fn array<const N: usize>(&self, attribute: Attribute) -> Found<[u8; N]> {
        let bytes = self.bytes(attribute)?;
        bytes.try_into().map_err(|_| Problem::Length { attribute, expected: N, found: bytes.len() })
    }

    /// A path, or a string as long as one.
    pub(crate) fn string(&self, attribute: Attribute) -> Found<&'a [u8]> {
        Self::checked(attribute, self.bytes(attribute)?)
    }

    fn checked(attribute: Attribute, bytes: &'a [u8]) -> Found<&'a [u8]> {
        if bytes.len() > PATH_SIZE_MAX {
            return Err(Problem::Length { attribute, expected: PATH_SIZE_MAX, found: bytes.len() });
        }
        if bytes.contains(&0) {
            return Err(Problem::Nul(attribute));
        }
        Ok(bytes)
    }

    /// The target of a symbolic link. The kernel sends the stored bytes, with the terminating NUL that
    /// `mkfs.btrfs --rootdir` and `btrfs-convert` store; `btrfs receive` reads them as a C string.
    pub(crate) fn link_target(&self, attribute: Attribute) -> Found<&'a [u8]> {
        let bytes = self.bytes(attribute)?;
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
        let target = bytes.get(..end).unwrap_or(bytes);
        Self::checked(attribute, target)
    }

    /// A number of 64 bits.
    pub(crate) fn number(&self, attribute: Attribute) -> Found<u64> {
        self.array(attribute).map(u64::from_le_bytes)
    }

    /// An optional number of 64 bits.
    pub(crate) fn number_if_any(&self, attribute: Attribute) -> Found<Option<u64>> {
        self.optional(attribute).map(|_| self.number(attribute)).transpose()
    }

    /// A number of 32 bits.
    pub(crate) fn small(&self, attribute: Attribute) -> Found<u32> {
        self.array(attribute).map(u32::from_le_bytes)
    }

    /// A UUID.
    pub(crate) fn uuid(&self, attribute: Attribute) -> Found<Uuid> {
        self.array(attribute)
    }

    /// A time.
    pub(crate) fn time(&self, attribute: Attribute) -> Found<Time> {
        let bytes: [u8; 12] = self.array(attribute)?;
        let (seconds, nanoseconds) = bytes.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        let nanoseconds = u32::from_le_bytes(nanoseconds.try_into().unwrap_or_default());
        if nanoseconds >= 1_000_000_000 {
            return Err(Problem::Value { attribute, found: nanoseconds.into() });
        }
        Ok(Time { seconds: i64::from_le_bytes(*seconds), nanoseconds })
    }

    /// An optional time.
    pub(crate) fn time_if_any(&self, attribute: Attribute) -> Found<Option<Time>> {
        self.optional(attribute).map(|_| self.time(attribute)).transpose()
    }

    /// The compression of the data; [`Compression::None`] if absent.
    pub(crate) fn compression(&self) -> Found<Compression> {
        let attribute = Attribute::Compression;
        let raw = if self.optional(attribute).is_some() { self.small(attribute)? } else { 0 };
        Compression::from_raw(raw).ok_or(Problem::Value { attribute, found: raw.into() })
    }

    /// Fails for encrypted data, which no kernel writes yet.
    pub(crate) fn not_encrypted(&self) -> Found<()> {
        let attribute = Attribute::Encryption;
        match self.optional(attribute).map(|_| self.small(attribute)).transpose()? {
            None | Some(0) => Ok(()),
            Some(found) => Err(Problem::Value { attribute, found: found.into() }),
        }
    }
}

/// Splits the number off the start of `bytes`, which belong to the attribute `of`.
fn take_u16(bytes: &[u8], of: u16) -> Found<(u16, &[u8])> {
    let (number, behind) = bytes.split_first_chunk().ok_or(Problem::CutShort(of))?;
    Ok((u16::from_le_bytes(*number), behind))
}
