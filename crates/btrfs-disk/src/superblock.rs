//! Parses, verifies and seals the superblock, which has the format of the file system and the roots of its trees.
//! Called by the pool, which reads and writes the copies, by make, check and repair.
//!
//! Each device has up to three copies, at [`mirror_offset`]; [`DiskSuperblock::bytenr`] is the offset of a copy. The
//! first is authoritative, the others serve repair.
//!
//! ```text
//! bytes -> UncheckedSuperblock --verify(offset)--> Superblock --sealed(offset)--> bytes
//! ```
//!
//! A [`Superblock`] has passed [`crate::verify::superblock`], so sizes, levels and the checksum type are valid. Changes
//! through [`Superblock::fields_mut`] are verified when it is sealed.

use std::fmt;

use codec::ChecksumType;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use crate::error::{At, Corrupt, Detail};
use crate::items::{ChunkItem, DevItem, OnDisk, system_chunks};
use crate::node::CSUM_FIELD_SIZE;
use crate::{Generation, Key, Logical, verify};

pub use crate::disk_superblock::{
    DiskSuperblock, LABEL_SIZE, MAGIC, MIRRORS_MAX, RootBackup, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
    SYSTEM_CHUNK_ARRAY_SIZE, mirror_offset, mirror_offsets,
};

/// The unverified bytes of a superblock.
#[derive(Clone, Debug)]
#[must_use = "nothing is known about it until it is verified"]
pub struct UncheckedSuperblock(Box<DiskSuperblock>);

impl UncheckedSuperblock {
    /// Takes the first [`SUPERBLOCK_SIZE`] bytes.
    ///
    /// # Errors
    /// [`Corrupt`] where there are fewer.
    pub fn new(bytes: &[u8]) -> Result<Self, Corrupt> {
        DiskSuperblock::parse_prefix(bytes).map(|(fields, _)| Self(Box::new(*fields)))
    }

    /// The raw fields, for a program that shows broken superblocks.
    #[must_use]
    pub fn fields(&self) -> &DiskSuperblock {
        &self.0
    }

    /// Verifies the superblock by itself, given the device offset it was read from.
    ///
    /// # Errors
    /// [`Corrupt`] for the first invalid value. Features are not checked here.
    pub fn verify(self, offset: u64) -> Result<Superblock, Corrupt> {
        let csum_type = verify::superblock(&self.0, offset)?;
        Ok(Superblock { fields: self.0, csum_type })
    }
}

/// A verified superblock.
#[derive(Clone, Debug)]
pub struct Superblock {
    fields: Box<DiskSuperblock>,
    csum_type: ChecksumType,
}

impl Superblock {
    /// A new superblock from its fields. Magic, address and checksum are filled in.
    ///
    /// # Errors
    /// [`Corrupt`] for the first invalid value.
    pub fn new(mut fields: DiskSuperblock) -> Result<Self, Corrupt> {
        fields.magic = U64::new(MAGIC);
        fields.bytenr = U64::new(SUPERBLOCK_OFFSET);
        let csum_type = verify::superblock_fields(&fields, SUPERBLOCK_OFFSET)?;
        Ok(Self { fields: Box::new(fields), csum_type })
    }

    /// The verified fields.
    #[must_use]
    pub fn fields(&self) -> &DiskSuperblock {
        &self.fields
    }

    /// The fields, for changes before the next commit. The checksum type must stay.
    pub fn fields_mut(&mut self) -> &mut DiskSuperblock {
        &mut self.fields
    }

    /// Checksum type of every block and sector.
    #[must_use]
    pub fn csum_type(&self) -> ChecksumType {
        self.csum_type
    }

    /// Transaction that wrote it.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation(self.fields.generation.get())
    }

    /// The root tree's root: address, generation, level.
    #[must_use]
    pub fn root(&self) -> (Logical, Generation, u8) {
        (Logical(self.fields.root.get()), self.generation(), self.fields.root_level)
    }

    /// The chunk tree's root: address, generation, level.
    #[must_use]
    pub fn chunk_root(&self) -> (Logical, Generation, u8) {
        (
            Logical(self.fields.chunk_root.get()),
            Generation(self.fields.chunk_root_generation.get()),
            self.fields.chunk_root_level,
        )
    }

    /// The chunks needed to read the chunk tree.
    pub fn system_chunks(&self) -> impl Iterator<Item = Result<(Key, ChunkItem<'_>), Corrupt>> {
        system_chunks(self.fields.system_chunk_bytes())
    }

    /// Replaces the system chunk array.
    ///
    /// # Errors
    /// [`Corrupt`] where the chunks do not fit; nothing is changed then.
    pub fn set_system_chunks(&mut self, array: &[u8]) -> Result<(), Corrupt> {
        let size = u32::try_from(array.len()).unwrap_or(u32::MAX);
        let Some((used, rest)) = self.fields.sys_chunk_array.split_at_mut_checked(array.len()) else {
            return Err(Corrupt::new(
                "system chunk array size",
                Detail::AtMost(crate::convert::to_u64(SYSTEM_CHUNK_ARRAY_SIZE)),
                Detail::Number(u64::from(size)),
            )
            .at(At::Superblock(SUPERBLOCK_OFFSET)));
        };
        used.copy_from_slice(array);
        rest.fill(0);
        self.fields.sys_chunk_array_size = U32::new(size);
        Ok(())
    }

    /// The bytes of the copy at byte `offset` of its device: address and checksum filled in.
    ///
    /// # Errors
    /// [`Corrupt`] for the first invalid value; such a superblock must not be written.
    pub fn sealed(&self, offset: u64) -> Result<Box<DiskSuperblock>, Corrupt> {
        self.sealed_for(&self.fields.dev_item, offset)
    }

    /// Like [`Self::sealed`], for the device of this item.
    ///
    /// # Errors
    /// As there.
    pub fn sealed_for(&self, device: &DevItem, offset: u64) -> Result<Box<DiskSuperblock>, Corrupt> {
        let mut copy = self.fields.clone();
        copy.dev_item = *device;
        copy.bytenr = U64::new(offset);
        verify::superblock_fields(&copy, offset)?;
        copy.csum = codec::checksum::checksum(self.csum_type, copy.as_bytes().split_at(CSUM_FIELD_SIZE).1);
        Ok(copy)
    }
}

impl fmt::Display for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fields.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_depend_on_the_size_of_the_device() {
        assert_eq!(mirror_offsets(4096).count(), 0);
        assert_eq!(mirror_offsets(64 << 20).collect::<Vec<_>>(), [65536]);
        assert_eq!(mirror_offsets((64 << 20) + 4096).count(), 2);
        assert_eq!(mirror_offsets(u64::MAX).count(), 3);
    }

    #[test]
    fn fields_lie_where_the_format_says() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(DiskSuperblock, magic), 0x40);
        assert_eq!(offset_of!(DiskSuperblock, dev_item), 0xc9);
        assert_eq!(offset_of!(DiskSuperblock, label), 0x12b);
        assert_eq!(offset_of!(DiskSuperblock, metadata_uuid), 0x23b);
        assert_eq!(offset_of!(DiskSuperblock, sys_chunk_array), 0x32b);
        assert_eq!(offset_of!(DiskSuperblock, super_roots), 0xb2b);
    }
}
