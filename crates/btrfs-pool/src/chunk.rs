//! Defines a chunk: a range of logical addresses and its stripes on devices. Used by the chunk map, by rescue and by
//! repair.

use std::fmt;

use blockdev::Kind;
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{ChunkItem, STRIPE_LEN};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{At, Corrupt, Detail, DevId, Key, Logical, TreeId, Uuid};

use super::profile::{Profile, Shape};
use crate::error::Result;

/// Longest chunk the kernel accepts: the number of 64 KiB rows must fit 32 bits.
const CHUNK_LEN_MAX: u64 = 0xffff_ffff * STRIPE_LEN - 1;

/// Most stripes of a chunk with parity: each column of data has a power of two of its own in GF(256).
const PARITY_STRIPES_MAX: u64 = 255;

/// A range of a device that belongs to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The device.
    pub device: DevId,
    /// First byte on it.
    pub offset: u64,
    /// UUID of the device; must match the device with this id.
    pub device_uuid: Uuid,
}

/// A checked chunk: its profile is supported, and it has the stripes that the profile needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    start: Logical,
    len: u64,
    flags: BlockGroupFlags,
    profile: Profile,
    stripes: Box<[Stripe]>,
}

impl Chunk {
    /// A chunk of `len` bytes at `start`.
    ///
    /// # Errors
    /// `Corrupt` for chunks that the kernel's `btrfs_check_chunk_valid` refuses, `Unsupported` for unsupported
    /// profiles.
    pub fn new(start: Logical, len: u64, flags: BlockGroupFlags, stripes: Vec<Stripe>) -> Result<Self> {
        let at = At::Key(TreeId::CHUNK, chunk_key(start));
        check_range(start, len).map_err(|error| error.at(at))?;
        check_type(flags).map_err(|error| error.at(at))?;
        let profile = Profile::from_flags(flags)?;
        check_stripe_count(profile, stripes.len()).map_err(|error| error.at(at))?;
        let chunk = Self { start, len, flags, profile, stripes: stripes.into_boxed_slice() };
        for stripe in &chunk.stripes {
            if stripe.offset.checked_add(chunk.stripe_bytes()).is_none() {
                let found = Detail::Number(stripe.offset);
                let limit = Detail::AtMost(u64::MAX - chunk.stripe_bytes());
                return Err(Corrupt::new("chunk stripe offset", limit, found).at(at).into());
            }
        }
        Ok(chunk)
    }

    /// Parses a chunk item, from the chunk tree or the superblock, for the chunk at `start`.
    ///
    /// # Errors
    /// As [`Chunk::new`], and `Corrupt` for a stripe length other than 64 KiB.
    pub fn from_item(start: Logical, item: &ChunkItem<'_>) -> Result<Self> {
        let stripe_len = item.chunk.stripe_len.get();
        if stripe_len != STRIPE_LEN {
            let (expected, found) = (Detail::Number(STRIPE_LEN), Detail::Number(stripe_len));
            let at = At::Key(TreeId::CHUNK, chunk_key(start));
            return Err(Corrupt::new("chunk stripe length", expected, found).at(at).into());
        }
        let stripes = item.stripes.iter().map(|stripe| Stripe {
            device: DevId(stripe.devid.get()),
            offset: stripe.offset.get(),
            device_uuid: stripe.dev_uuid,
        });
        Self::new(start, item.chunk.length.get(), item.chunk.flags(), stripes.collect())
    }

    /// First logical byte.
    #[must_use]
    pub fn start(&self) -> Logical {
        self.start
    }

    /// Logical bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// First logical byte after the chunk.
    #[must_use]
    pub fn end(&self) -> Logical {
        Logical(self.start.0 + self.len)
    }

    /// Use and profile, as on disk.
    #[must_use]
    pub fn flags(&self) -> BlockGroupFlags {
        self.flags
    }

    /// Kind of the I/O requests for its bytes.
    pub(super) fn kind(&self) -> Kind {
        if self.flags.contains(BlockGroupFlags::DATA) { Kind::Data } else { Kind::Metadata }
    }

    /// Its profile.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Its stripes.
    #[must_use]
    pub fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// Bytes each stripe takes on its device.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        self.profile.stripe_bytes(self.shape())
    }

    /// True for a chunk with parity (RAID5, RAID6).
    #[must_use]
    pub fn is_parity(&self) -> bool {
        self.profile.parity_count() > 0
    }

    /// Bytes of data in a row of a chunk with parity.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.profile.data_columns(self.shape()) * STRIPE_LEN
    }

    /// The parameters that its profile needs.
    pub(super) fn shape(&self) -> Shape {
        Shape { len: self.len, stripe_count: to_u64(self.stripes.len()) }
    }

    /// True when every byte has a copy, or can be computed, without the stripes that are lost.
    pub(super) fn is_whole_without(&self, is_lost: impl Fn(&Stripe) -> bool) -> bool {
        if self.is_parity() {
            let lost = self.stripes.iter().filter(|stripe| is_lost(stripe)).count();
            return to_u64(lost) <= u64::from(self.profile.parity_count());
        }
        let alike = self.profile.alike_stripes(self.stripes.len());
        self.stripes.chunks(alike.max(1)).all(|copies| !copies.iter().all(&is_lost))
    }

    /// True when every byte of `at..at + len` lies in the chunk.
    #[must_use]
    pub fn contains(&self, at: Logical, len: u64) -> bool {
        at >= self.start && at.0.checked_add(len).is_some_and(|end| end <= self.end().0)
    }

    /// Key of its item in the chunk tree.
    #[must_use]
    pub fn key(&self) -> Key {
        chunk_key(self.start)
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}..{} {}", self.start, self.end(), self.flags)?;
        for stripe in &self.stripes {
            write!(f, " {}:{}", stripe.device, stripe.offset)?;
        }
        Ok(())
    }
}

fn chunk_key(start: Logical) -> Key {
    Key::new(objectid::FIRST_CHUNK_TREE, item_type::CHUNK_ITEM, start.0)
}

fn check_range(start: Logical, len: u64) -> Result<(), Corrupt> {
    if len == 0 || len > CHUNK_LEN_MAX {
        let limit = Detail::Range(1, CHUNK_LEN_MAX);
        return Err(Corrupt::new("chunk length", limit, Detail::Number(len)));
    }
    if start.0.checked_add(len).is_none() {
        let limit = Detail::AtMost(u64::MAX - start.0);
        return Err(Corrupt::new("chunk length", limit, Detail::Number(len)));
    }
    Ok(())
}

fn check_type(flags: BlockGroupFlags) -> Result<(), Corrupt> {
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    let known = [BlockGroupFlags::DATA, BlockGroupFlags::SYSTEM, BlockGroupFlags::METADATA, BlockGroupFlags::MIXED];
    if known.contains(&kind) {
        return Ok(());
    }
    let expected = Detail::Text("data, system, metadata, or data and metadata");
    Err(Corrupt::new("chunk type", expected, Detail::Hex(flags.bits())))
}

fn check_stripe_count(profile: Profile, count: usize) -> Result<(), Corrupt> {
    let count = to_u64(count);
    let (is_valid, expected) = match profile.exact_stripe_count() {
        Some(exact) => (count == exact, Detail::Number(exact)),
        None if profile == Profile::Raid10 => (count >= 2 && count.is_multiple_of(2), Detail::Text("an even number")),
        None if profile.parity_count() > 0 => {
            let least = u64::from(profile.parity_count()) + 1;
            ((least..=PARITY_STRIPES_MAX).contains(&count), Detail::Range(least, PARITY_STRIPES_MAX))
        }
        None => (count >= 1, Detail::AtLeast(1)),
    };
    if is_valid {
        return Ok(());
    }
    Err(Corrupt::new("number of stripes of a chunk", expected, Detail::Number(count)))
}
