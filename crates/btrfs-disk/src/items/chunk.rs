//! Defines CHUNK_ITEM, which maps a range of logical addresses to the device ranges it lies on. `btrfs-store` writes
//! it, `btrfs-pool` makes chunks of it; check, rescue and repair read it.
//!
//! Key: ([`FIRST_CHUNK_TREE`](crate::key::objectid::FIRST_CHUNK_TREE), CHUNK_ITEM, first logical
//! address). The superblock repeats the system chunks, each behind its key.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::convert::{to_u64, u16_len};
use crate::error::{At, Corrupt, Detail};
use crate::flags::BlockGroupFlags;
use crate::key::DiskKey;
use crate::{Key, Uuid};

/// Bytes that lie together on one device before the next device's turn comes. The only legal
/// value of [`Chunk::stripe_len`].
pub const STRIPE_LEN: u64 = 64 * 1024;

/// Fixed part of a chunk item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Chunk {
    /// Logical bytes; a multiple of the sector size.
    pub length: U64,
    /// Tree that refers to the chunk: always the extent tree (2).
    pub owner: U64,
    /// [`STRIPE_LEN`].
    pub stripe_len: U64,
    /// [`BlockGroupFlags`].
    pub chunk_type: U64,
    /// Preferred alignment of I/O, bytes.
    pub io_align: U32,
    /// Preferred width of I/O, bytes.
    pub io_width: U32,
    /// Sector size, bytes.
    pub sector_size: U32,
    /// Stripes that follow.
    pub num_stripes: U16,
    /// Copies within a RAID10 stripe (2), else 1 (0 in old file systems).
    pub sub_stripes: U16,
}
const _: () = assert!(size_of::<Chunk>() == 48);

impl Chunk {
    /// Use and profile.
    #[must_use]
    pub fn flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.chunk_type.get())
    }
}

impl OnDisk for Chunk {
    const NAME: &'static str = "chunk item size";
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "chunk length {} owner {} stripe_len {} type {} num_stripes {} sub_stripes {}",
            self.length,
            self.owner,
            self.stripe_len,
            self.flags(),
            self.num_stripes,
            self.sub_stripes
        )
    }
}

/// One device range of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Stripe {
    /// Device number.
    pub devid: U64,
    /// First byte on the device.
    pub offset: U64,
    /// UUID of the device.
    pub dev_uuid: Uuid,
}
const _: () = assert!(size_of::<Stripe>() == 32);

impl OnDisk for Stripe {
    const NAME: &'static str = "chunk stripe size";
}

impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "devid {} offset {} dev_uuid {}", self.devid, self.offset, self.dev_uuid)
    }
}

/// A chunk with its stripes, in place.
#[derive(Clone, Copy, Debug)]
pub struct ChunkItem<'a> {
    /// Fixed part.
    pub chunk: &'a Chunk,
    /// As many as [`Chunk::num_stripes`] says.
    pub stripes: &'a [Stripe],
}

impl<'a> ChunkItem<'a> {
    /// The chunk that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`Corrupt`] where the number of stripes and of bytes disagree.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let (item, rest) = Self::parse_prefix(bytes)?;
        if rest.is_empty() {
            return Ok(item);
        }
        let expected = bytes.len().saturating_sub(rest.len());
        Err(Corrupt::new(Chunk::NAME, Detail::size(expected), Detail::size(bytes.len())))
    }

    /// Parses the chunk at the start of `bytes`. Returns it and the rest.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    pub fn parse_prefix(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Corrupt> {
        let (chunk, rest) = Chunk::parse_prefix(bytes)?;
        let count = usize::from(chunk.num_stripes.get());
        let (stripes, rest) = <[Stripe]>::ref_from_prefix_with_elems(rest, count).map_err(|_| {
            let expected = count.saturating_mul(size_of::<Stripe>()).saturating_add(size_of::<Chunk>());
            Corrupt::new(Chunk::NAME, Detail::size(expected), Detail::size(bytes.len()))
        })?;
        Ok((Self { chunk, stripes }, rest))
    }

    /// The bytes of a chunk item. [`Chunk::num_stripes`] is taken from `stripes`.
    #[must_use]
    pub fn build(chunk: &Chunk, stripes: &[Stripe]) -> Vec<u8> {
        let head = Chunk { num_stripes: U16::new(u16_len(stripes.len())), ..*chunk };
        let mut bytes = Vec::with_capacity(size_of::<Chunk>().saturating_add(size_of_val(stripes)));
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(stripes.as_bytes());
        bytes
    }
}

impl fmt::Display for ChunkItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chunk.fmt(f)?;
        self.stripes.iter().try_for_each(|stripe| write!(f, "; {stripe}"))
    }
}

/// The chunks of a superblock's system chunk array, each with its key. After an error the
/// iterator is at its end.
pub fn system_chunks(array: &[u8]) -> impl Iterator<Item = Result<(Key, ChunkItem<'_>), Corrupt>> + use<'_> {
    let mut rest = array;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = At::SystemChunkArray(to_u64(array.len().saturating_sub(rest.len())));
        let parsed = parse_keyed(rest).map_err(|error| error.at(at));
        rest = parsed.as_ref().map_or(&[], |(_, _, after)| *after);
        Some(parsed.map(|(key, item, _)| (key, item)))
    })
}

fn parse_keyed(bytes: &[u8]) -> Result<(Key, ChunkItem<'_>, &[u8]), Corrupt> {
    let (key, rest) = DiskKey::ref_from_prefix(bytes).map_err(|_| {
        Corrupt::new("system chunk key size", Detail::size(size_of::<DiskKey>()), Detail::size(bytes.len()))
    })?;
    let (item, rest) = ChunkItem::parse_prefix(rest)?;
    Ok((key.get(), item, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    use crate::key::item_type::CHUNK_ITEM;

    fn sample(stripes: u16) -> Vec<u8> {
        let mut chunk = Chunk::new_zeroed();
        chunk.length = U64::new(8 << 20);
        let stripe = Stripe { devid: U64::new(1), offset: U64::new(1 << 20), dev_uuid: Uuid::NIL };
        ChunkItem::build(&chunk, &vec![stripe; usize::from(stripes)])
    }

    #[test]
    fn stripes_round_trip() {
        let bytes = sample(2);
        let item = ChunkItem::parse(&bytes).unwrap();
        assert_eq!(item.stripes.len(), 2);
        assert_eq!(item.stripes[1].offset.get(), 1 << 20);
        assert!(ChunkItem::parse(&bytes[..bytes.len() - 1]).is_err());
        assert!(ChunkItem::parse(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn the_system_array_stops_at_the_first_error() {
        let key = DiskKey::from(Key::new(256, CHUNK_ITEM, 4096));
        let mut array = [key.as_bytes(), &sample(1), key.as_bytes(), &sample(2)].concat();
        assert_eq!(system_chunks(&array).filter(Result::is_ok).count(), 2);
        array.truncate(array.len() - 1);
        let found: Vec<_> = system_chunks(&array).collect();
        assert_eq!(found.len(), 2);
        assert!(found[1].is_err());
    }
}
