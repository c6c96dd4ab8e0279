//! Holds the image under repair: an overlay with the changes in memory, its chunks, and its superblock. Used by the
//! planner (`plan`) and by each `round`.

use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::OverlayDevice;
use btrfs_check::{Media, open_media};
use btrfs_disk::convert::to_u64;
use btrfs_disk::items::{ChunkItem, OnDisk as _};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{LeafView, NodeView, header};
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_SIZE, Superblock, mirror_offsets};
use btrfs_disk::verify::{self, Expect};
use btrfs_disk::{Corrupt, Logical, Uuid};
use btrfs_pool::plan::plan;
use btrfs_pool::{Chunk, Purpose};

use crate::error::{Error, Result};

/// A tree block that was read.
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    /// The verifier's error, if any; the checksum is right all the same.
    pub(crate) problem: Option<Corrupt>,
    /// Copies that differ from this one.
    pub(crate) bad_copies: Vec<u32>,
}

/// The image with the changes so far.
pub(crate) struct Image {
    pub(crate) device: Arc<OverlayDevice>,
    pub(crate) media: Media,
    pub(crate) fields: Box<DiskSuperblock>,
    pub(crate) chunk_tree_uuid: Uuid,
    /// Chunk items that are invalid, or that overlap.
    pub(crate) bad_chunks: usize,
}

impl Image {
    /// Reads the superblock and the chunk tree.
    ///
    /// # Errors
    /// When there is no superblock, and for a file system on several devices or with parity.
    pub(crate) fn open(device: Arc<OverlayDevice>) -> Result<Self> {
        let below: Arc<dyn Device> = Arc::<OverlayDevice>::clone(&device);
        let opened = open_media(&[below])?;
        let mut image =
            Self { device, media: opened.media, fields: opened.fields, chunk_tree_uuid: Uuid::NIL, bad_chunks: 0 };
        let listed = image.load_chunks();
        // Where the superblock and the chunk tree disagree, one of them is damaged, and is repaired.
        let counted = image.fields.num_devices.get();
        match listed.map_or(counted, |listed| listed.min(counted)) {
            0 | 1 if image.media.chunks.values().any(Chunk::is_parity) => {
                Err(Error::Beyond("a file system with RAID5 or RAID6 block groups is not repaired".to_owned()))
            }
            0 | 1 => Ok(image),
            count => Err(Error::SeveralDevices(count)),
        }
    }

    /// Reads the chunk tree; returns how many devices it lists, if all of it can be read.
    fn load_chunks(&mut self) -> Option<u64> {
        let root = (self.fields.chunk_root.get(), self.fields.chunk_root_level);
        let mut found: Vec<Chunk> = Vec::new();
        let (mut bad, mut is_whole) = (0usize, true);
        let mut device_count = 0u64;
        let mut todo = vec![root];
        while let Some((at, level)) = todo.pop() {
            let Some(block) = self.read(at, level) else {
                is_whole = false;
                continue;
            };
            if let Some(header) = header(&block.bytes) {
                self.chunk_tree_uuid = header.chunk_tree_uuid;
            }
            if let Some(below) = level.checked_sub(1) {
                todo.extend(NodeView::new(&block.bytes).ptrs().iter().map(|ptr| (ptr.blockptr.get(), below)));
                continue;
            }
            for (key, data) in LeafView::new(&block.bytes).iter() {
                device_count = device_count.saturating_add(u64::from(key.item_type == item_type::DEV_ITEM));
                if key.item_type == item_type::CHUNK_ITEM {
                    let item = ChunkItem::parse(data).ok();
                    match item.and_then(|item| Chunk::from_item(Logical(key.offset), &item).ok()) {
                        Some(chunk) => found.push(chunk),
                        None => bad = bad.saturating_add(1),
                    }
                }
            }
        }
        // The system chunks in the superblock serve only to find the chunk tree.
        if is_whole {
            self.media.chunks.clear();
        }
        for chunk in found {
            if self.media.add_chunk(chunk).is_err() {
                bad = bad.saturating_add(1);
            }
        }
        self.bad_chunks = bad.saturating_add(self.misplaced_chunks());
        is_whole.then_some(device_count)
    }

    /// Counts chunks on missing devices, beyond the end of a device, or overlapping. Device extents and block groups
    /// may be right then, and must not be changed to match them.
    fn misplaced_chunks(&self) -> usize {
        let mut places: Vec<(u64, u64, u64)> = Vec::new();
        let mut bad = 0usize;
        for chunk in self.media.chunks.values() {
            for stripe in chunk.stripes() {
                let end = stripe.offset.saturating_add(chunk.stripe_bytes());
                let disk = self.media.disks.iter().find(|disk| disk.id == stripe.device);
                if disk.is_none_or(|disk| disk.uuid != stripe.device_uuid || disk.device.size_bytes() < end) {
                    bad = bad.saturating_add(1);
                }
                places.push((stripe.device.0, stripe.offset, end));
            }
        }
        places.sort_unstable();
        let overlaps = places.windows(2).filter(|pair| match pair {
            [a, b] => a.0 == b.0 && a.2 > b.1,
            _ => false,
        });
        bad.saturating_add(overlaps.count())
    }

    /// Reads a block from the best copy: one that the verifier accepts, else one with a right checksum and place.
    pub(crate) fn read(&self, at: u64, level: u8) -> Option<Block> {
        let media = &self.media;
        media.chunk(at, media.node_len())?;
        let expect = Expect { level: Some(level), ..Expect::at(&media.format, Logical(at), media.generation_max) };
        let mut best: Option<Block> = None;
        let mut bad_copies = Vec::new();
        let mut bytes = vec![0; media.node_bytes()];
        for mirror in 0..media.copies(at) {
            if media.read_copy(at, &mut bytes, mirror).is_err() {
                bad_copies.push(mirror);
                continue;
            }
            match (&best, verify::block(&bytes, &expect)) {
                // A write that one copy missed: the older one is valid in itself, too.
                (Some(Block { problem: None, bytes: first, .. }), Ok(()))
                    if block_generation(&bytes) > block_generation(first) =>
                {
                    bad_copies = (0..mirror).collect();
                    best = Some(Block { bytes: bytes.clone(), problem: None, bad_copies: Vec::new() });
                }
                (Some(Block { problem: None, bytes: first, .. }), _) => {
                    if *first != bytes {
                        bad_copies.push(mirror);
                    }
                }
                (_, Ok(())) => {
                    bad_copies.extend(0..mirror);
                    bad_copies.dedup();
                    best = Some(Block { bytes: bytes.clone(), problem: None, bad_copies: Vec::new() });
                }
                (_, Err(problem)) => {
                    bad_copies.push(mirror);
                    if best.is_none() && media.has_right_checksum(&bytes) && self.is_at(&bytes, at, level) {
                        best = Some(Block { bytes: bytes.clone(), problem: Some(problem), bad_copies: Vec::new() });
                    }
                }
            }
        }
        best.map(|block| Block { bad_copies, ..block })
    }

    fn is_at(&self, bytes: &[u8], at: u64, level: u8) -> bool {
        header(bytes).is_some_and(|header| {
            header.bytenr.get() == at && header.level == level && header.fsid == self.media.format.fsid
        })
    }

    /// Seals a block and writes all its copies.
    ///
    /// # Errors
    /// When the verifier would refuse the block, or the overlay is full.
    pub(crate) fn write(&self, at: u64, mut bytes: Vec<u8>) -> Result<()> {
        let format = &self.media.format;
        let expect = Expect::at(format, Logical(at), self.media.generation_max);
        verify::content(&bytes, &expect).map_err(Error::Refused)?;
        verify::seal(&mut bytes, format.csum_type);
        self.write_copies(at, &bytes, |_| true)
    }

    /// Writes the copies that `is_wanted` by their numbers.
    ///
    /// # Errors
    /// When the overlay is full, or the range lies in no chunk.
    pub(crate) fn write_copies(&self, at: u64, bytes: &[u8], is_wanted: impl Fn(u32) -> bool) -> Result<()> {
        let len = to_u64(bytes.len());
        let outside = || Error::Beyond(format!("the block at {at} is in no chunk"));
        let chunk = self.media.chunk(at, len).ok_or_else(outside)?;
        let own = self.media.disks.first().map(|disk| disk.id);
        for part in plan(chunk, Logical(at), len, Purpose::Write) {
            let start = btrfs_disk::convert::to_usize(part.range_offset);
            let end = start.saturating_add(btrfs_disk::convert::to_usize(part.len));
            if is_wanted(part.mirror) && own != Some(part.device) {
                return Err(Error::Beyond(format!("the block at {at} has copies on other devices")));
            }
            if is_wanted(part.mirror) {
                self.device.write_at(part.device_offset, &[bytes.get(start..end).unwrap_or_default()])?;
            }
        }
        Ok(())
    }

    /// Writes all copies of the superblock.
    ///
    /// # Errors
    /// When the verifier would refuse it.
    pub(crate) fn write_superblocks(&self) -> Result<()> {
        let superblock = Superblock::new(*self.fields).map_err(Error::Refused)?;
        let used = self.fields.dev_item.total_bytes.get();
        for (index, offset) in mirror_offsets(self.device.size_bytes()).enumerate() {
            // The kernel omits a mirror that ends at the end of the file system.
            if index == 0 || offset.saturating_add(to_u64(SUPERBLOCK_SIZE)) < used {
                let copy = superblock.sealed(offset).map_err(Error::Refused)?;
                self.device.write_at(offset, &[copy.bytes()])?;
            }
        }
        Ok(())
    }

    /// Generation of the last commit, which a repair keeps: the log of fsyncs, quotas, the UUID tree and caches depend
    /// on it.
    pub(crate) fn generation(&self) -> u64 {
        self.fields.generation.get()
    }
}

fn block_generation(bytes: &[u8]) -> u64 {
    header(bytes).map_or(0, |header| header.generation.get())
}
