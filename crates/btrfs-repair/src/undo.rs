//! Writes and applies the undo file: the old contents of every page of the image that a repair changes. `plan` writes
//! it; the command line undoes a repair with it.
//!
//! ```text
//! magic 16 | image bytes 8 | pages 8 | primary superblock as it was 4096 | as the repair wrote it 4096
//! | per page: first byte 8, hash as it was 32, hash as the repair wrote it 32 | hash of all so far 32
//! | per page: 4096 bytes as they were
//! ```
//!
//! Numbers are little-endian, hashes BLAKE2b of 256 bits. Pages stand in ascending order.
//!
//! The file is not trusted: every page is compared with its hash before the first is written, and none lies outside of
//! the image. It is refused for an image in neither of the two states, as its primary superblock shows.
//!
//! Order of an undo: mirrors of the superblock, primary, then the rest, with a flush behind each. While mirrors are
//! written, the primary leads to the repaired state; then it leads to the old state, whose blocks a repair never
//! overwrites; the pages restored last belong to neither.

use std::io::{Read, Seek, SeekFrom, Write};

use blockdev::Device;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, mirror_offsets};
use codec::ChecksumType;
use codec::checksum::checksum;

use crate::error::{Error, Result};

/// Bytes that are saved as a unit.
pub(crate) const PAGE: usize = 4096;
const MAGIC: &[u8; 16] = b"spinney undo 1\n\0";
const HASH: usize = 32;
/// Most pages of an undo file, of 4 GiB of changes: a repair keeps its changes in memory.
pub(crate) const COUNT_MAX: u64 = 1 << 20;
/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;
const INDEX_ENTRY: usize = 8 + 2 * HASH;
const HEAD: usize = 16 + 8 + 8 + 2 * PAGE;

type Hash = [u8; HASH];

fn hash(bytes: &[u8]) -> Hash {
    checksum(ChecksumType::Blake2b, bytes)
}

/// A page that a repair writes.
#[derive(Clone, Debug)]
pub(crate) struct PageWrite {
    pub(crate) offset: u64,
    /// The old contents.
    pub(crate) old: Box<[u8]>,
    /// The new contents.
    pub(crate) new: Box<[u8]>,
}

/// Writes an undo file. The caller makes it durable before the image is touched.
///
/// # Errors
/// The file's.
pub(crate) fn write(
    out: &mut dyn Write,
    image_bytes: u64,
    (old, new): (&[u8], &[u8]),
    pages: &[PageWrite],
) -> std::io::Result<()> {
    if to_u64(pages.len()) > COUNT_MAX {
        return Err(std::io::Error::other("more pages change than an undo file holds"));
    }
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&image_bytes.to_le_bytes());
    head.extend_from_slice(&to_u64(pages.len()).to_le_bytes());
    head.extend_from_slice(old);
    head.extend_from_slice(new);
    for page in pages {
        head.extend_from_slice(&page.offset.to_le_bytes());
        head.extend_from_slice(&hash(&page.old));
        head.extend_from_slice(&hash(&page.new));
    }
    let sum = hash(&head);
    out.write_all(&head)?;
    out.write_all(&sum)?;
    pages.iter().try_for_each(|page| out.write_all(&page.old))?;
    out.flush()
}

/// A file that holds an undo.
pub trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// An opened undo file, with every byte verified.
pub struct Undo<'a> {
    source: &'a mut dyn Source,
    image_bytes: u64,
    old: Vec<u8>,
    new: Vec<u8>,
    pages: Vec<(u64, Hash, Hash)>,
    data_at: u64,
}

impl std::fmt::Debug for Undo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Undo").field("image_bytes", &self.image_bytes).field("pages", &self.pages.len()).finish()
    }
}

impl<'a> Undo<'a> {
    /// Reads and verifies all of it.
    ///
    /// # Errors
    /// `BadUndo` for an invalid file, or the file's.
    pub fn open(source: &'a mut dyn Source) -> Result<Self> {
        let len = source.seek(SeekFrom::End(0))?;
        source.seek(SeekFrom::Start(0))?;
        let mut head = vec![0; HEAD];
        if len < to_u64(HEAD) {
            return Err(Error::BadUndo("it is too short"));
        }
        source.read_exact(&mut head)?;
        if !head.starts_with(MAGIC) {
            return Err(Error::BadUndo("it is none"));
        }
        let (image_bytes, count) = (number(&head, 16), number(&head, 24));
        let index_len = count.checked_mul(to_u64(INDEX_ENTRY));
        let data_at = index_len.and_then(|index| index.checked_add(to_u64(HEAD + HASH)));
        let end = data_at.and_then(|at| count.checked_mul(to_u64(PAGE))?.checked_add(at));
        let (Some(index_len), Some(data_at), Some(true)) = (index_len, data_at, end.map(|end| end == len)) else {
            return Err(Error::BadUndo("its length is not what it says"));
        };
        if count > COUNT_MAX || count > image_bytes.div_ceil(to_u64(PAGE)) {
            return Err(Error::BadUndo("it has more pages than a repair changes"));
        }
        let mut index = vec![0; to_usize(index_len)];
        let mut sum = [0; HASH];
        source.read_exact(&mut index)?;
        source.read_exact(&mut sum)?;
        head.append(&mut index);
        if hash(&head) != sum {
            return Err(Error::BadUndo("the checksum of its index is wrong"));
        }
        let part = |at: usize, len: usize| head.get(at..at.saturating_add(len)).unwrap_or_default().to_vec();
        let (old, new) = (part(32, PAGE), part(32 + PAGE, PAGE));
        let mut undo = Self { source, image_bytes, old, new, pages: Vec::new(), data_at };
        for entry in head.get(HEAD..).unwrap_or_default().chunks_exact(INDEX_ENTRY) {
            let (Ok(old), Ok(new)) = (entry[8..8 + HASH].try_into(), entry[8 + HASH..].try_into()) else { continue };
            undo.pages.push((number(entry, 0), old, new));
        }
        undo.check()?;
        Ok(undo)
    }

    fn check(&mut self) -> Result<()> {
        let page = to_u64(PAGE);
        let mut end = 0;
        for (offset, ..) in &self.pages {
            if *offset < end || !offset.is_multiple_of(page) || *offset >= self.image_bytes {
                return Err(Error::BadUndo("a page of it lies outside of the image"));
            }
            end = offset.saturating_add(page);
        }
        for index in 0..self.pages.len() {
            let bytes = self.page(index)?;
            if self.pages.get(index).is_none_or(|(_, old, _)| hash(&bytes) != *old) {
                return Err(Error::BadUndo("the checksum of a page is wrong"));
            }
        }
        Ok(())
    }

    /// Bytes of the image that it restores.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        to_u64(self.pages.len().saturating_mul(PAGE))
    }

    fn page(&mut self, index: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; PAGE];
        let at = to_u64(index).saturating_mul(to_u64(PAGE)).saturating_add(self.data_at);
        self.source.seek(SeekFrom::Start(at))?;
        self.source.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Restores every byte of the image. If interrupted, it can be run again.
    ///
    /// # Errors
    /// `Changed` for an image that is not as the repair left it; nothing is written then. The device's.
    pub fn apply(mut self, device: &dyn Device) -> Result<()> {
        self.fits(device)?;
        let supers: Vec<u64> = mirror_offsets(device.size_bytes()).collect();
        let phase = |offset: u64| match (offset, supers.contains(&offset)) {
            (SUPERBLOCK_OFFSET, _) => 1,
            (_, true) => 0,
            _ => 2,
        };
        for wanted in 0..3 {
            for index in 0..self.pages.len() {
                let Some((offset, ..)) = self.pages.get(index).copied() else { continue };
                if phase(offset) == wanted {
                    let bytes = self.page(index)?;
                    write_page(device, offset, &bytes)?;
                }
            }
            device.flush()?;
        }
        Ok(())
    }

    /// Whether the image is in the state that the repair left, or an interrupted repair or undo.
    fn fits(&self, device: &dyn Device) -> Result<()> {
        if device.size_bytes() != self.image_bytes {
            return Err(Error::Changed("its size is another"));
        }
        let primary = read_page(device, SUPERBLOCK_OFFSET)?;
        let mut sectors = primary.chunks(SECTOR).zip(self.old.chunks(SECTOR)).zip(self.new.chunks(SECTOR));
        if !sectors.all(|((found, old), new)| found == old || found == new) {
            return Err(Error::Changed("its superblock is another"));
        }
        if primary != self.new {
            return Ok(());
        }
        let supers: Vec<u64> = mirror_offsets(device.size_bytes()).collect();
        for (offset, old, new) in self.pages.iter().filter(|(offset, ..)| !supers.contains(offset)) {
            let found = hash(&read_page(device, *offset)?);
            if found != *new && found != *old {
                return Err(Error::Changed("what the repair wrote was changed"));
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..at.saturating_add(8)).and_then(|part| part.try_into().ok());
    part.map_or(0, u64::from_le_bytes)
}

/// A page of the device; bytes after its end read as zeros.
pub(crate) fn read_page(device: &dyn Device, offset: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; PAGE];
    let len = to_usize(device.size_bytes().saturating_sub(offset)).min(PAGE);
    device.read_at(offset, bytes.get_mut(..len).unwrap_or_default())?;
    Ok(bytes)
}

/// Writes the part of a page that lies on the device.
pub(crate) fn write_page(device: &dyn Device, offset: u64, bytes: &[u8]) -> Result<()> {
    let len = to_usize(device.size_bytes().saturating_sub(offset)).min(bytes.len());
    device.write_at(offset, &[bytes.get(..len).unwrap_or_default()])?;
    Ok(())
}
