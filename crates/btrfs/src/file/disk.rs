//! Reads the bytes of extents from disk: aligned, verified, decompressed. Called by reads, reflinks, send and the log.

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Logical, TreeId};
use btrfs_store::{Expect, Store, Tree};
use codec::CompressionType;
use codec::compress::{Form, decompress};

use crate::error::{Result, corrupt_inode};
use crate::extents::{FileExtent, Kind, read_inline};
use crate::inode::{Core, Inode, InodeFlags, position};
use crate::writeback::is_in_one_group;

/// Bytes read and verified at a time: they are still in the processor's cache when they are summed.
const READ_BYTES: usize = 1 << 20;

/// Extents that one reader decompresses in one go: fewer than the volume caches, since several may read.
pub(super) const TOGETHER_MAX: usize = 8;

/// The source of the checksums of some data.
#[derive(Clone, Copy)]
pub(crate) enum Csums<'a> {
    /// In the checksum tree.
    Tree,
    /// Here: those of adjacent sectors, from the one at this address on.
    Known(Logical, &'a [u8]),
    /// Nowhere: the file has none.
    None,
}

/// The source of the checksums of an inode's data, once it is in the tree.
pub(super) fn csums_of(core: &Core, inode: &Inode) -> Csums<'static> {
    match inode.state().flags.contains(InodeFlags::NODATASUM) || !core.settings.verifies_data {
        true => Csums::None,
        false => Csums::Tree,
    }
}

/// Reads `buf.len()` bytes from `at`, neither of which need be aligned: whole sectors straight into
/// `buf`, others through a sector of their own.
pub(crate) fn read(core: &Core, at: Logical, buf: &mut [u8], csums: Csums<'_>) -> Result<()> {
    let sector = usize_from(core.store.sizes().sector);
    let skip = to_usize(at.0 % to_u64(sector));
    let head_len = if skip == 0 { 0 } else { buf.len().min(sector - skip) };
    let (head, rest) = buf.split_at_mut(head_len);
    if !head.is_empty() {
        read_part(core, Logical(at.0 - to_u64(skip)), skip, head, csums)?;
    }
    let rest_at = at.0.saturating_add(to_u64(head_len));
    let (body, tail) = rest.split_at_mut(rest.len() - rest.len() % sector);
    read_sectors(&core.store, Logical(rest_at), body, csums)?;
    if !tail.is_empty() {
        let tail_at = rest_at.saturating_add(to_u64(body.len()));
        read_part(core, Logical(tail_at), 0, tail, csums)?;
    }
    Ok(())
}

/// Reads the part of the sector at `at` that starts at byte `skip`.
fn read_part(core: &Core, at: Logical, skip: usize, part: &mut [u8], csums: Csums<'_>) -> Result<()> {
    let mut sector = vec![0; usize_from(core.store.sizes().sector)];
    read_sectors(&core.store, at, &mut sector, csums)?;
    part.copy_from_slice(sector.get(skip..skip.saturating_add(part.len())).unwrap_or_default());
    Ok(())
}

fn read_sectors(store: &Store, at: Logical, buf: &mut [u8], csums: Csums<'_>) -> Result<()> {
    let mut at = at;
    for chunk in buf.chunks_mut(READ_BYTES) {
        let len = to_u64(chunk.len());
        match csums {
            Csums::None => store.read_data(at, chunk, Expect::Unchecked)?,
            Csums::Known(first, list) => {
                let (sector, csum) = (u64::from(store.sizes().sector), store.sizes().csum);
                let from = to_usize(at.0.saturating_sub(first.0) / sector) * csum;
                let to = from + to_usize(len / sector) * csum;
                let expected = list.get(from..to).ok_or_else(|| missing_csum(at))?;
                store.read_data(at, chunk, Expect::Csums(expected))?;
            }
            Csums::Tree => {
                let found = store.data_csums(at, len)?;
                let expected = found.all().ok_or_else(|| missing_csum(at))?;
                store.read_data(at, chunk, Expect::Csums(expected))?;
            }
        }
        at = Logical(at.0.saturating_add(len));
    }
    Ok(())
}

#[cold]
fn missing_csum(at: Logical) -> Corrupt {
    Corrupt::new("data checksum", Detail::Text("one per sector"), Detail::Text("none")).at(At::Data(at))
}

/// Copies the bytes of `range`, which lies inside `item`, to `buf`.
///
/// # Errors
/// Damage, I/O.
pub(super) fn read_item(
    core: &Core,
    inode: &Inode,
    item: &FileExtent,
    range: Range<u64>,
    buf: &mut [u8],
) -> Result<()> {
    if item.is_zeros() {
        buf.fill(0);
        return Ok(());
    }
    if item.kind == Kind::Inline {
        let bytes = inline_bytes(core, &inode.root.tree, inode.ino(), item)?;
        copy_zero_padded(&bytes, position(range.start, item.start), buf);
        return Ok(());
    }
    if item.is_compressed() {
        let bytes = decompressed(core, inode, item)?;
        let within = item.offset.saturating_add(range.start - item.start);
        copy_zero_padded(&bytes, to_usize(within), buf);
        return Ok(());
    }
    read(core, item.disk_at(range.start), buf, csums_of(core, inode))
}

/// The bytes of an inline extent.
///
/// # Errors
/// Damage, I/O.
pub(crate) fn inline_bytes(core: &Core, tree: &Tree, ino: InodeNo, item: &FileExtent) -> Result<Vec<u8>> {
    let stored = read_inline(tree, ino, item)?;
    if !item.is_compressed() {
        return Ok(stored);
    }
    let form = Form::inline(usize_from(core.store.sizes().sector));
    expand((tree.id(), ino), item, &stored, form, item.len)
}

/// The whole extent that `item` is a part of, uncompressed. The latest ones are kept, so that
/// sequential reads decompress each extent once.
fn decompressed(core: &Core, inode: &Inode, item: &FileExtent) -> Result<Arc<[u8]>> {
    if let Some(kept) = core.data.decompressed(item.disk, item.generation) {
        return Ok(kept);
    }
    let stored = read_stored(core, inode, item)?;
    let form = Form::regular(usize_from(core.store.sizes().sector));
    let bytes: Arc<[u8]> = expand((inode.tree_id(), inode.ino()), item, &stored, form, item.ram_bytes)?.into();
    core.data.keep_decompressed(item.disk, item.generation, Arc::clone(&bytes));
    Ok(bytes)
}

/// The threads that decompress several extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decompressor {
    /// The thread that reads: others read at the same time.
    Reader,
    /// The store's workers.
    Workers,
}

/// Decompresses the extents of `items` that are not cached, where there are several, so that their readers find them in
/// the cache. Adjacent ones are read with one request.
///
/// # Errors
/// Those of reading them. An extent that cannot be decompressed is left to its reader, which reports it.
pub(super) fn decompress_together(
    core: &Core,
    inode: &Inode,
    items: &[FileExtent],
    decompressor: Decompressor,
) -> Result<()> {
    let mut wanted: Vec<FileExtent> = Vec::new();
    for item in items.iter().filter(|item| item.is_compressed() && item.kind == Kind::Regular) {
        let is_new = wanted.iter().all(|other| other.disk != item.disk);
        if is_new && core.data.decompressed(item.disk, item.generation).is_none() {
            wanted.push(*item);
        }
    }
    if wanted.len() < 2 {
        return Ok(());
    }
    let mut stored = Vec::with_capacity(wanted.len());
    let is_next = |one: &FileExtent, next: &FileExtent| {
        one.disk.0.checked_add(one.disk_len) == Some(next.disk.0)
            && is_in_one_group(core, one.disk, one.disk_len.saturating_add(next.disk_len))
    };
    for neighbours in wanted.chunk_by(is_next) {
        let Some(first) = neighbours.first() else { continue };
        let mut bytes = vec![0; to_usize(neighbours.iter().map(|item| item.disk_len).sum())];
        read_sectors(&core.store, first.disk, &mut bytes, csums_of(core, inode))?;
        let mut rest = bytes.as_slice();
        for item in neighbours {
            let (own, behind) = rest.split_at(to_usize(item.disk_len).min(rest.len()));
            stored.push((*item, own.to_vec()));
            rest = behind;
        }
    }
    let form = Form::regular(usize_from(core.store.sizes().sector));
    let owner = (inode.tree_id(), inode.ino());
    let expand =
        |(item, stored): (FileExtent, Vec<u8>)| Some((item, expand(owner, &item, &stored, form, item.ram_bytes).ok()?));
    let expanded: Vec<_> = match decompressor {
        Decompressor::Workers if core.store.worker_count() > 1 => core.store.work_on_beside(stored, expand, || ()).0,
        Decompressor::Workers | Decompressor::Reader => stored.into_iter().map(expand).collect(),
    };
    for (item, bytes) in expanded.into_iter().flatten() {
        core.data.keep_decompressed(item.disk, item.generation, bytes.into());
    }
    Ok(())
}

/// The bytes on disk of the extent that `item` is a part of.
fn read_stored(core: &Core, inode: &Inode, item: &FileExtent) -> Result<Vec<u8>> {
    let mut stored = vec![0; to_usize(item.disk_len)];
    read_sectors(&core.store, item.disk, &mut stored, csums_of(core, inode))?;
    Ok(stored)
}

/// Decompresses the stored bytes of the extent that `item` of a file is a part of.
///
/// # Errors
/// `Corrupt`, where that does not yield `len` bytes.
pub(crate) fn expand(
    (tree, ino): (TreeId, InodeNo),
    item: &FileExtent,
    stored: &[u8],
    form: Form,
    len: u64,
) -> Result<Vec<u8>> {
    let damaged = |what| {
        let found = Detail::Number(u64::from(item.compression));
        corrupt_inode(tree, ino, "compressed extent", Detail::Text(what), found)
    };
    let kind =
        CompressionType::from_raw(item.compression).ok_or_else(|| damaged("a compression type that is known"))?;
    decompress(kind, stored, form, to_usize(len))
        .map_err(|_| damaged("a valid stream of the length that the item says"))
}

fn copy_zero_padded(bytes: &[u8], from: usize, buf: &mut [u8]) {
    let bytes = bytes.get(from..).unwrap_or_default();
    let (head, tail) = buf.split_at_mut(bytes.len().min(buf.len()));
    head.copy_from_slice(bytes.get(..head.len()).unwrap_or_default());
    tail.fill(0);
}
