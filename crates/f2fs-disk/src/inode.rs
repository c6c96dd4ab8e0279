//! Verifies and parses inodes: the attributes of a file, and the contents in the inode's own block. Called by `f2fs`
//! (`read_volume`) and `f2fs-check` for every inode that is read.
//!
//! ```text
//!    0                 360            360 + extra                                      4052    4072
//!    | fixed fields    | extra        | addresses | reserved for inline attributes     | 5 nids | footer |
//! ```
//!
//! Inline contents or names take the place of the addresses, behind one reserved word.

use std::fmt;
use std::ops::Range;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use crate::compression::{Algorithm, ClusterSize};
use crate::convert::{to_u64, to_usize, u32_len};
use crate::disk_inode::{DiskBlock, EXTRA_SIZE, FIXED_SIZE, NIDS, WORDS};
use crate::error::{At, Corrupt, Detail, within};
use crate::flags::{Advise, Features, InlineFlags, InodeFlags};
use crate::ids::{Block, Nid};
use crate::node::{ENTRIES_PER_NODE, Fanout, Footer, first_byte};
use crate::{BLOCK_SIZE, OnDisk, hash};

pub use crate::disk_inode::{DiskExtent, DiskExtra, DiskInode, extra_mut, fields_mut, nids_mut};
pub use crate::kind::{Kind, NAME_BYTES_MAX};

/// Words that inline attributes take where the inode does not say.
const INLINE_XATTR_WORDS: u16 = 50;
/// Words that they can take at most.
const INLINE_XATTR_WORDS_MAX: u64 = 903;
/// Nanoseconds are below this.
const NSEC_MAX: u32 = 999_999_999;

/// Ends of extra attributes: an inode has those that lie within its `i_extra_isize`.
const END_OF_PROJID: usize = 8;
const END_OF_CHECKSUM: usize = 12;
const END_OF_CRTIME: usize = 24;
const CHECKSUM_AT: usize = FIXED_SIZE + 8;
/// First byte behind the words.
const END_OF_WORDS: usize = FIXED_SIZE + WORDS * 4;

/// A time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub sec: i64,
    /// Nanoseconds, below 10^9; higher bits are dropped.
    pub nsec: u32,
}

impl Timestamp {
    fn new(sec: U64, nsec: U32) -> Self {
        Self { sec: sec.get().cast_signed(), nsec: nsec.get().min(NSEC_MAX) }
    }
}

/// How the contents of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// In which units.
    pub cluster: ClusterSize,
    /// Clusters have checksums.
    pub has_checksums: bool,
}

/// An inode that was verified. The block it was read from goes with it where parts of that are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    ino: Nid,
    kind: Kind,
    fields: DiskInode,
    extra_size: usize,
    extra: DiskExtra,
    inline_xattr_words: usize,
    compressed: Option<Compressed>,
}

impl Inode {
    /// Verifies the inode in a block whose footer was verified. `seed` is [`crate::superblock::Superblock`]'s, for the
    /// checksum.
    ///
    /// # Errors
    /// [`Corrupt`] with the first wrong value.
    pub fn verify(block: &Block, ino: Nid, features: Features, seed: u32) -> Result<Self, Corrupt> {
        Self::verify_block(block, ino, features, seed).map_err(|error| error.at(At::Inode(ino)))
    }

    fn verify_block(block: &Block, ino: Nid, features: Features, seed: u32) -> Result<Self, Corrupt> {
        let fields = *DiskInode::parse(block)?;
        let mode = fields.i_mode.get();
        let kind = Kind::from_mode(mode).ok_or(Corrupt::new(
            "inode i_mode",
            Detail::Text("a kind of file"),
            Detail::Octal(u64::from(mode)),
        ))?;
        let inline = InlineFlags::from_bits_retain(fields.i_inline);
        let (extra_size, extra) = extra_attributes(block, inline)?;
        if features.contains(Features::INODE_CHKSUM) && extra_size >= END_OF_CHECKSUM {
            verify_checksum(block, ino, &fields, &extra, seed)?;
        }
        let words = inline_xattr_words(inline, &extra, extra_size, features)?;
        let mut inode =
            Self { ino, kind, fields, extra_size, extra, inline_xattr_words: usize::from(words), compressed: None };
        inode.compressed = inode.read_compressed(features)?;
        inode.verify_inline()?;
        inode.verify_sizes()?;
        Ok(inode)
    }

    /// Clusters and algorithm, where the file is compressed.
    fn read_compressed(&self, features: Features) -> Result<Option<Compressed>, Corrupt> {
        let is_wanted = self.flags().contains(InodeFlags::COMPR) && features.contains(Features::COMPRESSION);
        if self.kind != Kind::File || !is_wanted || self.extra_size < EXTRA_SIZE {
            return Ok(None);
        }
        Ok(Some(Compressed {
            algorithm: Algorithm::from_raw(self.extra.i_compress_algorithm)?,
            cluster: ClusterSize::from_log(self.extra.i_log_cluster_size)?,
            has_checksums: self.extra.i_compress_flag.get() & 1 != 0,
        }))
    }

    /// Only files and links have inline contents, only directories inline names, and both fit.
    fn verify_inline(&self) -> Result<(), Corrupt> {
        let inline = self.inline();
        let has_data = inline.contains(InlineFlags::DATA);
        let has_names = inline.contains(InlineFlags::DENTRY);
        let is_right = match self.kind {
            Kind::Directory => !has_data,
            Kind::File | Kind::Symlink => !has_names,
            _ => !has_data && !has_names,
        };
        if !is_right {
            let found = Detail::Hex(u64::from(inline.bits()));
            return Err(Corrupt::new("inode i_inline", Detail::Text("flags that its kind can have"), found));
        }
        if has_data {
            within("inode i_size of inline contents", self.size(), 0, to_u64(self.inline_size()))?;
        }
        Ok(())
    }

    fn verify_sizes(&self) -> Result<(), Corrupt> {
        within("inode i_size", self.size(), 0, first_byte(self.fanout().blocks_max()))?;
        if self.kind == Kind::Directory {
            let depth_max = u64::from(crate::dentry::DEPTH_MAX);
            within("inode i_current_depth", u64::from(self.fields.i_current_depth.get()), 0, depth_max)?;
        }
        Ok(())
    }

    /// Its number.
    #[must_use]
    pub const fn ino(&self) -> Nid {
        self.ino
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The fixed fields.
    #[must_use]
    pub const fn fields(&self) -> &DiskInode {
        &self.fields
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.fields.i_size.get()
    }

    /// Its flags.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.fields.i_flags.get())
    }

    /// Its hints.
    #[must_use]
    pub fn advise(&self) -> Advise {
        Advise::from_bits_retain(self.fields.i_advise)
    }

    /// Flags for inline contents, names and attributes.
    #[must_use]
    pub fn inline(&self) -> InlineFlags {
        InlineFlags::from_bits_retain(self.fields.i_inline)
    }

    /// Last access.
    #[must_use]
    pub fn atime(&self) -> Timestamp {
        Timestamp::new(self.fields.i_atime, self.fields.i_atime_nsec)
    }

    /// Last change of the contents.
    #[must_use]
    pub fn mtime(&self) -> Timestamp {
        Timestamp::new(self.fields.i_mtime, self.fields.i_mtime_nsec)
    }

    /// Last change of the inode.
    #[must_use]
    pub fn ctime(&self) -> Timestamp {
        Timestamp::new(self.fields.i_ctime, self.fields.i_ctime_nsec)
    }

    /// Creation; `None` where the volume or the inode does not keep it.
    #[must_use]
    pub fn crtime(&self, features: Features) -> Option<Timestamp> {
        let is_kept = features.contains(Features::INODE_CRTIME) && self.extra_size >= END_OF_CRTIME;
        is_kept.then(|| Timestamp::new(self.extra.i_crtime, self.extra.i_crtime_nsec))
    }

    /// Project; `None` where the volume or the inode has none.
    #[must_use]
    pub fn project(&self, features: Features) -> Option<u32> {
        let is_kept = features.contains(Features::PRJQUOTA) && self.extra_size >= END_OF_PROJID;
        is_kept.then(|| self.extra.i_projid.get())
    }

    /// The owners charged by quotas, in the order of [`crate::quota::QuotaKind::ALL`].
    #[must_use]
    pub fn owners(&self, features: Features) -> [u32; 3] {
        [self.fields.i_uid.get(), self.fields.i_gid.get(), self.project(features).unwrap_or(0)]
    }

    /// Blocks that quotas count: all but its own.
    #[must_use]
    pub fn charged_blocks(&self) -> u64 {
        self.fields.i_blocks.get().saturating_sub(1)
    }

    /// How its contents are compressed.
    #[must_use]
    pub const fn compressed(&self) -> Option<Compressed> {
        self.compressed
    }

    /// Blocks that compression saved, as the inode counts them; 0 where it does not.
    #[must_use]
    pub fn compressed_blocks(&self) -> u64 {
        self.extra.i_compr_blocks.get()
    }

    /// Node with extended attributes.
    #[must_use]
    pub fn xattr_nid(&self) -> Option<Nid> {
        Some(Nid(self.fields.i_xattr_nid.get())).filter(|nid| nid.0 != 0)
    }

    /// The name in the directory that it was made in or moved to last.
    ///
    /// # Errors
    /// [`Corrupt`] for a name that is too long.
    pub fn name(&self) -> Result<&[u8], Corrupt> {
        let len = to_usize(u64::from(self.fields.i_namelen.get()));
        let (max, found) = (to_u64(NAME_BYTES_MAX), to_u64(len));
        let too_long = Corrupt::new("inode i_namelen", Detail::Range(1, max), Detail::Number(found));
        let name = self.fields.i_name.get(..len).filter(|name| !name.is_empty());
        name.ok_or(too_long.at(At::Inode(self.ino)))
    }

    /// True where the inode keeps room for inline attributes, whether or not it has any.
    #[must_use]
    pub const fn has_inline_xattr_room(&self) -> bool {
        self.inline_xattr_words > 0
    }

    /// Words behind the extra attributes and before the inline ones.
    fn address_words(&self) -> usize {
        WORDS.saturating_sub(self.extra_size / 4).saturating_sub(self.inline_xattr_words)
    }

    /// How many addresses its nodes have. Those of a compressed file have whole clusters.
    #[must_use]
    pub fn fanout(&self) -> Fanout {
        let (inode, direct) = (u32_len(self.address_words()), ENTRIES_PER_NODE);
        match self.compressed {
            None => Fanout { inode, direct },
            Some(compressed) => {
                Fanout { inode: compressed.cluster.round_down(inode), direct: compressed.cluster.round_down(direct) }
            }
        }
    }

    /// Bytes of the block where addresses are.
    fn words_at(&self) -> Range<usize> {
        let start = FIXED_SIZE.saturating_add(self.extra_size);
        start..start.saturating_add(self.address_words().saturating_mul(4))
    }

    /// Bytes of the block that are room for inline attributes.
    fn inline_xattrs_at(&self) -> Range<usize> {
        END_OF_WORDS.saturating_sub(self.inline_xattr_words.saturating_mul(4))..END_OF_WORDS
    }

    /// The words where addresses are.
    fn words<'a>(&self, block: &'a Block) -> &'a [u8] {
        block.get(self.words_at()).unwrap_or_default()
    }

    fn words_mut<'a>(&self, block: &'a mut Block) -> &'a mut [u8] {
        block.get_mut(self.words_at()).unwrap_or_default()
    }

    /// Addresses of the first blocks.
    #[must_use]
    pub fn addresses<'a>(&self, block: &'a Block) -> &'a [U32] {
        <[U32]>::ref_from_bytes(self.words(block)).unwrap_or_default()
    }

    /// The same, to be changed.
    #[must_use]
    pub fn addresses_mut<'a>(&self, block: &'a mut Block) -> &'a mut [U32] {
        <[U32]>::mut_from_bytes(self.words_mut(block)).unwrap_or_default()
    }

    /// Numbers of the nodes below.
    #[must_use]
    pub fn nids(block: &Block) -> &[U32; NIDS] {
        let block: &DiskBlock = zerocopy::transmute_ref!(block);
        &block.nids
    }

    /// Bytes that inline contents or names can take.
    #[must_use]
    pub fn inline_size(&self) -> usize {
        self.address_words().saturating_sub(1).saturating_mul(4)
    }

    /// Where inline contents or names are.
    #[must_use]
    pub fn inline_area<'a>(&self, block: &'a Block) -> &'a [u8] {
        self.words(block).get(4..).unwrap_or_default()
    }

    /// The same, to be changed.
    #[must_use]
    pub fn inline_area_mut<'a>(&self, block: &'a mut Block) -> &'a mut [u8] {
        self.words_mut(block).get_mut(4..).unwrap_or_default()
    }

    /// Where inline attributes are; empty where there are none.
    #[must_use]
    pub fn inline_xattrs<'a>(&self, block: &'a Block) -> &'a [u8] {
        if !self.inline().contains(InlineFlags::XATTR) {
            return &[];
        }
        block.get(self.inline_xattrs_at()).unwrap_or_default()
    }

    /// The area for inline attributes, even if the inode has none: it is valid only with [`InlineFlags::XATTR`].
    #[must_use]
    pub fn inline_xattrs_mut<'a>(&self, block: &'a mut Block) -> &'a mut [u8] {
        block.get_mut(self.inline_xattrs_at()).unwrap_or_default()
    }

    /// Device number in the 32 bits of `stat`; 0 for other kinds. Small numbers are in the first address, others in the
    /// second.
    #[must_use]
    pub fn device(&self, block: &Block) -> u32 {
        if !self.kind.is_device() {
            return 0;
        }
        match self.addresses(block) {
            [old, new, ..] if old.get() == 0 => new.get(),
            // Sixteen bits mean the same in both.
            [old, ..] => old.get() & 0xffff,
            [] => 0,
        }
    }
}

impl fmt::Display for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &self.fields;
        write!(
            f,
            "inode {}: mode {:o}, owner {}:{}, {} bytes in {} blocks, {} names",
            self.ino,
            fields.i_mode.get(),
            fields.i_uid,
            fields.i_gid,
            fields.i_size,
            fields.i_blocks,
            fields.i_links
        )
    }
}

/// The extra attributes and how many bytes they take; those that are missing are zeros.
fn extra_attributes(block: &Block, inline: InlineFlags) -> Result<(usize, DiskExtra), Corrupt> {
    let mut extra = DiskExtra::new_zeroed();
    if !inline.contains(InlineFlags::EXTRA_ATTR) {
        return Ok((0, extra));
    }
    let all = DiskExtra::parse(block.split_at(FIXED_SIZE).1)?;
    let size = usize::from(all.i_extra_isize.get());
    within("inode i_extra_isize", to_u64(size), 4, to_u64(EXTRA_SIZE))?;
    if size % 4 != 0 {
        return Err(Corrupt::new("inode i_extra_isize", Detail::Text("a multiple of 4"), Detail::size(size)));
    }
    extra.as_mut_bytes().iter_mut().zip(all.as_bytes()).take(size).for_each(|(to, from)| *to = *from);
    Ok((size, extra))
}

fn inline_xattr_words(
    inline: InlineFlags,
    extra: &DiskExtra,
    extra_size: usize,
    features: Features,
) -> Result<u16, Corrupt> {
    if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
        let words = if extra_size == 0 { 0 } else { extra.i_inline_xattr_size.get() };
        within("inode i_inline_xattr_size", u64::from(words), 0, INLINE_XATTR_WORDS_MAX)?;
        return Ok(words);
    }
    // A directory with inline names keeps the room even where it has no attributes.
    let has_room = inline.intersects(InlineFlags::XATTR.union(InlineFlags::DENTRY));
    Ok(if has_room { INLINE_XATTR_WORDS } else { 0 })
}

/// The checksum covers number, generation and the whole block, with its own field as zeros.
fn verify_checksum(block: &Block, ino: Nid, fields: &DiskInode, extra: &DiskExtra, seed: u32) -> Result<(), Corrupt> {
    let expected = checksum(block, ino, fields.i_generation, seed);
    let found = extra.i_inode_checksum.get();
    if expected == found {
        return Ok(());
    }
    Err(Corrupt::new("inode i_inode_checksum", Detail::Hex(u64::from(expected)), Detail::Hex(u64::from(found))))
}

/// The checksum that an inode in a block must have.
#[must_use]
pub fn checksum(block: &Block, ino: Nid, generation: U32, seed: u32) -> u32 {
    let (before, rest) = block.split_at(CHECKSUM_AT);
    let behind = rest.split_at(4).1;
    let mut sum = hash::crc32_from(seed, &ino.0.to_le_bytes());
    for part in [generation.as_bytes(), before, &[0; 4], behind] {
        sum = hash::crc32_from(sum, part);
    }
    sum
}

/// The block of a new inode with nothing but its mode, the extra attributes that the volume wants, all zeros, and room
/// for inline attributes where each inode says how much.
#[must_use]
pub fn new_block(ino: Nid, mode: u16, features: Features) -> Block {
    let mut block = [0; BLOCK_SIZE];
    let fields = fields_mut(&mut block);
    fields.i_mode = U16::new(mode);
    if features.contains(Features::EXTRA_ATTR) {
        fields.i_inline = InlineFlags::EXTRA_ATTR.bits();
    }
    if let Some(extra) = extra_mut(&mut block) {
        extra.i_extra_isize = U16::new(u16::try_from(EXTRA_SIZE).unwrap_or(0));
        if features.contains(Features::FLEXIBLE_INLINE_XATTR) {
            extra.i_inline_xattr_size = U16::new(INLINE_XATTR_WORDS);
        }
    }
    Footer::new(ino, ino, 0).put(&mut block);
    block
}

/// Writes the checksum of an inode, where volume and inode have one: the last thing before the block is written.
pub fn seal(block: &mut Block, ino: Nid, features: Features, seed: u32) {
    let generation = fields_mut(block).i_generation;
    let size = extra_mut(block).map_or(0, |extra| usize::from(extra.i_extra_isize.get()));
    if !features.contains(Features::INODE_CHKSUM) || size < END_OF_CHECKSUM {
        return;
    }
    let sum = checksum(block, ino, generation, seed);
    if let Some(extra) = extra_mut(block) {
        extra.i_inode_checksum = U32::new(sum);
    }
}

/// An inode's block without the times of its last access and changes, and without the checksum, which covers them.
#[must_use]
pub fn without_times(block: &Block) -> Block {
    let mut block = *block;
    let fields = fields_mut(&mut block);
    let has_checksum = InlineFlags::from_bits_retain(fields.i_inline).contains(InlineFlags::EXTRA_ATTR);
    (fields.i_atime, fields.i_mtime, fields.i_ctime) = (0.into(), 0.into(), 0.into());
    (fields.i_atime_nsec, fields.i_mtime_nsec, fields.i_ctime_nsec) = (0.into(), 0.into(), 0.into());
    if let Some(extra) = extra_mut(&mut block).filter(|_| has_checksum) {
        extra.i_inode_checksum = 0.into();
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u32 = 0x1234_5678;

    fn sample(mode: u16, inline: InlineFlags) -> Block {
        let mut block = [0; BLOCK_SIZE];
        let (fields, _) = DiskInode::mut_from_prefix(&mut block).unwrap();
        fields.i_mode = U16::new(mode);
        fields.i_inline = inline.bits();
        fields.i_links = U32::new(1);
        if inline.contains(InlineFlags::EXTRA_ATTR) {
            let extra = DiskExtra::mut_from_prefix(&mut block[FIXED_SIZE..]).unwrap().0;
            extra.i_extra_isize = U16::new(36);
            extra.i_projid = U32::new(77);
            extra.i_crtime = U64::new((-5_i64).cast_unsigned());
            extra.i_crtime_nsec = U32::new(u32::MAX);
            extra.i_log_cluster_size = 2;
            extra.i_compress_algorithm = 1;
        }
        block
    }

    fn verify(block: &Block, features: Features) -> Result<Inode, Corrupt> {
        Inode::verify(block, Nid(9), features, SEED)
    }

    #[test]
    fn fields_lie_where_the_format_says() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(DiskInode, i_generation), 68);
        assert_eq!(offset_of!(DiskInode, i_name), 92);
        assert_eq!(offset_of!(DiskInode, i_ext), 348);
        assert_eq!(offset_of!(DiskExtra, i_crtime), 12);
        assert_eq!(offset_of!(DiskExtra, i_compress_algorithm), 32);
    }

    #[test]
    fn what_lies_in_the_block_depends_on_flags_and_features() {
        let none = Features::empty();
        let plain = verify(&sample(0o100_644, InlineFlags::empty()), none).unwrap();
        assert_eq!(plain.fanout(), Fanout { inode: 923, direct: 1018 });
        assert_eq!((plain.crtime(Features::all()), plain.project(Features::all())), (None, None));
        let block = sample(0o100_644, InlineFlags::XATTR | InlineFlags::DATA | InlineFlags::EXTRA_ATTR);
        let inode = verify(&block, none).unwrap();
        assert_eq!(inode.fanout().inode, 923 - 9 - 50);
        assert_eq!((inode.inline_size(), inode.inline_area(&block).len()), (3452, 3452));
        assert_eq!(inode.inline_xattrs(&block).len(), 200);
        let all = Features::PRJQUOTA | Features::INODE_CRTIME;
        assert_eq!(inode.project(all), Some(77));
        assert_eq!(inode.crtime(all), Some(Timestamp { sec: -5, nsec: 999_999_999 }));
        let flexible = verify(&block, Features::FLEXIBLE_INLINE_XATTR).unwrap();
        assert_eq!(flexible.fanout().inode, 923 - 9);
        let directory = sample(0o040_755, InlineFlags::DENTRY);
        assert_eq!(verify(&directory, none).unwrap().fanout().inode, 873);
    }

    #[test]
    fn a_compressed_file_has_whole_clusters() {
        let mut block = sample(0o100_644, InlineFlags::EXTRA_ATTR);
        DiskInode::mut_from_prefix(&mut block).unwrap().0.i_flags = U32::new(InodeFlags::COMPR.bits());
        let inode = verify(&block, Features::COMPRESSION).unwrap();
        assert_eq!(inode.fanout(), Fanout { inode: 912, direct: 1016 });
        assert_eq!(inode.compressed().unwrap().algorithm, Algorithm::Lz4);
        assert!(verify(&block, Features::empty()).unwrap().compressed().is_none());
        block[FIXED_SIZE + 33] = 9;
        assert_eq!(verify(&block, Features::COMPRESSION).unwrap_err().what, "inode i_log_cluster_size");
    }

    #[test]
    fn devices_are_in_either_of_two_words() {
        let mut block = sample(0o020_600, InlineFlags::empty());
        block[FIXED_SIZE..FIXED_SIZE + 4].copy_from_slice(&0x0501_u32.to_le_bytes());
        assert_eq!(verify(&block, Features::empty()).unwrap().device(&block), 0x0501);
        block[FIXED_SIZE..FIXED_SIZE + 8].copy_from_slice(&(0x1234_5678_u64 << 32).to_le_bytes());
        assert_eq!(verify(&block, Features::empty()).unwrap().device(&block), 0x1234_5678);
    }

    #[test]
    fn wrong_ones_are_refused() {
        let none = Features::empty();
        let refused = |block: &Block, features| verify(block, features).unwrap_err().to_string();
        assert!(refused(&sample(0, InlineFlags::empty()), none).contains("i_mode in inode 9"));
        assert!(refused(&sample(0o040_755, InlineFlags::DATA), none).contains("i_inline"));
        assert!(refused(&sample(0o100_644, InlineFlags::DENTRY), none).contains("i_inline"));
        assert!(refused(&sample(0o140_644, InlineFlags::DATA), none).contains("i_inline"));
        let mut block = sample(0o100_644, InlineFlags::DATA);
        DiskInode::mut_from_prefix(&mut block).unwrap().0.i_size = U64::new(3689);
        assert!(refused(&block, none).contains("inline contents"));
        DiskInode::mut_from_prefix(&mut block).unwrap().0.i_inline = 0;
        DiskInode::mut_from_prefix(&mut block).unwrap().0.i_size = U64::new(u64::MAX);
        assert!(refused(&block, none).contains("i_size"));
        let mut block = sample(0o100_644, InlineFlags::EXTRA_ATTR);
        block[FIXED_SIZE] = 40;
        assert!(refused(&block, none).contains("i_extra_isize"));
        block[FIXED_SIZE] = 6;
        assert!(refused(&block, none).contains("a multiple of 4"));
        let mut block = sample(0o100_644, InlineFlags::EXTRA_ATTR);
        block[FIXED_SIZE + 3] = 4;
        assert!(refused(&block, Features::FLEXIBLE_INLINE_XATTR).contains("i_inline_xattr_size"));
        let error = plain_with_checksum(|block| block[4000] = 1).unwrap_err();
        assert_eq!(error.what, "inode i_inode_checksum");
        assert!(plain_with_checksum(|_| ()).is_ok());
    }

    #[test]
    fn a_built_block_parses() {
        let features = Features::EXTRA_ATTR | Features::INODE_CHKSUM | Features::FLEXIBLE_INLINE_XATTR;
        let mut block = new_block(Nid(9), 0o100_644, features);
        fields_mut(&mut block).i_generation = U32::new(5);
        nids_mut(&mut block)[4] = U32::new(44);
        let inode = verify(&block, features.difference(Features::INODE_CHKSUM)).unwrap();
        assert!(inode.has_inline_xattr_room());
        inode.addresses_mut(&mut block)[1] = U32::new(77);
        inode.inline_area_mut(&mut block)[4] = 1;
        inode.inline_xattrs_mut(&mut block)[199] = 3;
        assert!(verify(&block, features).is_err());
        seal(&mut block, Nid(9), features, SEED);
        let inode = verify(&block, features).unwrap();
        assert_eq!((inode.fanout().inode, inode.kind()), (923 - 9 - 50, Kind::File));
        assert_eq!((inode.addresses(&block)[1].get(), inode.addresses(&block)[2].get()), (77, 1));
        assert_eq!((Inode::nids(&block)[4].get(), block[END_OF_WORDS - 1]), (44, 3));
        assert_eq!(Footer::of(&block).ino(), Nid(9));
    }

    #[test]
    fn a_plain_volume_has_no_extra_attributes() {
        let mut block = new_block(Nid(9), 0o040_755, Features::INODE_CHKSUM);
        assert!(extra_mut(&mut block).is_none());
        let before = block;
        seal(&mut block, Nid(9), Features::INODE_CHKSUM, SEED);
        assert_eq!(block, before);
        assert!(!verify(&block, Features::empty()).unwrap().has_inline_xattr_room());
    }

    fn plain_with_checksum(change: fn(&mut Block)) -> Result<Inode, Corrupt> {
        let mut block = sample(0o100_644, InlineFlags::EXTRA_ATTR);
        let sum = checksum(&block, Nid(9), U32::ZERO, SEED);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        change(&mut block);
        verify(&block, Features::INODE_CHKSUM)
    }
}
