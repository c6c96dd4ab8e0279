//! Reads contents of files and targets of links, and finds holes and extents. Called by `vfs_impl` (`data`,
//! `file_system`).

use f2fs_disk::convert::{to_u64, to_usize};
use f2fs_disk::flags::InlineFlags;
use f2fs_disk::inode::Kind;
use f2fs_disk::{At, BLOCK_SIZE, BlockAddr, Corrupt, Detail};
use vfs::file_system::{Extent, ExtentKind, Seek};

use crate::cluster::{self, LastCluster};
use crate::error::{CallerError, Result};
use crate::map::{self, Run};
use crate::read_volume::{Node, ReadVolume};
use crate::verity;

/// Bytes of a block.
const BLOCK_BYTES: u64 = 4096;
const _: () = assert!(BLOCK_SIZE == 4096);
/// Most extents that are listed.
const EXTENTS_MAX: usize = 1 << 20;
/// Longest target of a symbolic link: a block with a zero at its end.
const TARGET_BYTES_MAX: u64 = BLOCK_BYTES - 1;

/// Reads from `offset` on; returns the number of bytes read.
pub(crate) fn read(
    volume: &ReadVolume,
    clusters: &LastCluster,
    node: &Node,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    node.check_is_plain()?;
    let left = to_usize(node.inode.size().saturating_sub(offset));
    let len = left.min(buf.len());
    let buf = buf.get_mut(..len).unwrap_or_default();
    if verity::is_protected(node) {
        verity::read(volume, node, offset, buf, &mut |at, buf| read_raw(volume, clusters, node, at, buf))?;
        return Ok(len);
    }
    if node.inode.inline().contains(InlineFlags::DATA) {
        let area = node.inode.inline_area(&node.block);
        let found = area.get(to_usize(offset)..).unwrap_or_default();
        // Verified: the size is at most that of the area.
        buf.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
        return Ok(len);
    }
    read_raw(volume, clusters, node, offset, buf)?;
    Ok(len)
}

/// Fills all of `buf` from `offset` on, even behind the end of the file.
fn read_raw(volume: &ReadVolume, clusters: &LastCluster, node: &Node, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let at = offset.saturating_add(to_u64(done));
        let rest = buf.get_mut(done..).unwrap_or_default();
        done = done.saturating_add(read_run(volume, clusters, node, at, rest)?.max(1));
    }
    Ok(())
}

/// Fills the start of `buf` with bytes of one run, and returns their number.
fn read_run(volume: &ReadVolume, clusters: &LastCluster, node: &Node, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let (index, within) = (offset / BLOCK_BYTES, offset % BLOCK_BYTES);
    if let Some(page) = volume.page(node.ino(), index) {
        let found = page.get(to_usize(within)..).unwrap_or_default();
        buf.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
        return Ok(found.len().min(buf.len()));
    }
    if let Some(how) = node.inode.compressed() {
        let first = how.cluster.first_of(index);
        if map::run(volume, node, first, 1)?.at == BlockAddr::COMPRESS {
            let bytes = clusters.get(volume, node, how, first)?;
            let start = to_usize(offset.saturating_sub(first.saturating_mul(BLOCK_BYTES)));
            let found = bytes.get(start..).unwrap_or_default();
            buf.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
            return Ok(found.len().min(buf.len()));
        }
    }
    let wanted = within.saturating_add(to_u64(buf.len())).div_ceil(BLOCK_BYTES);
    let wanted = volume.unchanged_pages(node.ino(), index, wanted);
    let run = map::run(volume, node, index, wanted)?;
    let run = within_cluster(node, index, run);
    let bytes = run.count.saturating_mul(BLOCK_BYTES).saturating_sub(within);
    let len = to_usize(bytes).min(buf.len());
    let buf = buf.get_mut(..len).unwrap_or_default();
    match run.at {
        BlockAddr::NULL | BlockAddr::NEW => buf.fill(0),
        BlockAddr::COMPRESS => return Err(stray(node, index).into()),
        at => volume.blocks.read_bytes(at.byte().saturating_add(within), buf)?,
    }
    Ok(len)
}

/// In a file with compression, a run ends with its cluster: the next one may be compressed.
fn within_cluster(node: &Node, index: u64, run: Run) -> Run {
    let Some(how) = node.inode.compressed() else { return run };
    let end = how.cluster.first_of(index).saturating_add(u64::from(how.cluster.blocks()));
    Run { count: run.count.min(end.saturating_sub(index)).max(1), ..run }
}

/// The error of a cluster mark where no cluster can begin.
fn stray(node: &Node, index: u64) -> Corrupt {
    let expected = Detail::Text("a block, a hole or a reserved block");
    Corrupt::new("address of a block", expected, Detail::Block(BlockAddr::COMPRESS)).at(At::File(node.ino(), index))
}

/// The target of a symbolic link.
pub(crate) fn target(volume: &ReadVolume, clusters: &LastCluster, node: &Node) -> Result<Vec<u8>> {
    if node.inode.kind() != Kind::Symlink {
        return Err(CallerError::InvalidArgument.into());
    }
    let size = node.inode.size();
    if !(1..=TARGET_BYTES_MAX).contains(&size) {
        let (expected, found) = (Detail::Range(1, TARGET_BYTES_MAX), Detail::Number(size));
        return Err(Corrupt::new("inode i_size of a symbolic link", expected, found).at(At::Inode(node.ino())).into());
    }
    let mut target = vec![0; to_usize(size)];
    read(volume, clusters, node, 0, &mut target)?;
    // Programs that follow it stop at a zero byte.
    let len = target.iter().position(|byte| *byte == 0).unwrap_or(target.len());
    if len == 0 {
        let (expected, found) = (Detail::Text("a path"), Detail::Text("nothing"));
        return Err(Corrupt::new("target of a symbolic link", expected, found).at(At::Inode(node.ino())).into());
    }
    target.truncate(len);
    Ok(target)
}

/// The result of `lseek`. As in the kernel, reserved blocks are neither data nor a hole: a search for either skips
/// them.
pub(crate) fn seek(volume: &ReadVolume, node: &Node, what: Seek, offset: u64) -> Result<u64> {
    let size = node.inode.size();
    if offset >= size {
        return Err(CallerError::NoSuchOffset.into());
    }
    if node.inode.inline().contains(InlineFlags::DATA) {
        return Ok(if what == Seek::Data { offset } else { size });
    }
    let end = size.div_ceil(BLOCK_BYTES);
    let mut index = offset / BLOCK_BYTES;
    while index < end {
        let piece = piece(volume, node, index, end.saturating_sub(index))?;
        let is_found = match what {
            Seek::Data => piece.is_data(),
            Seek::Hole => matches!(piece, Piece::Run(run) if run.at == BlockAddr::NULL),
        };
        if is_found {
            return Ok(index.saturating_mul(BLOCK_BYTES).max(offset));
        }
        index = index.saturating_add(piece.count());
    }
    match what {
        Seek::Data => Err(CallerError::NoSuchOffset.into()),
        Seek::Hole => Ok(size),
    }
}

/// A run, or the rest of a compressed cluster.
enum Piece {
    Run(Run),
    /// Remaining blocks of the file in it, the first block of compressed bytes, and the number of such blocks.
    Cluster {
        count: u64,
        at: BlockAddr,
        packed: u64,
    },
}

impl Piece {
    fn is_data(&self) -> bool {
        match self {
            Self::Run(run) => run.is_data(),
            Self::Cluster { .. } => true,
        }
    }

    const fn count(&self) -> u64 {
        match self {
            Self::Run(run) => run.count,
            Self::Cluster { count, .. } => *count,
        }
    }
}

fn piece(volume: &ReadVolume, node: &Node, index: u64, count_max: u64) -> Result<Piece> {
    if let Some(how) = node.inode.compressed() {
        let first = how.cluster.first_of(index);
        if map::run(volume, node, first, 1)?.at == BlockAddr::COMPRESS {
            let addresses = map::addresses(volume, node, first, how.cluster.blocks())?;
            let is_there = |at: &&BlockAddr| !matches!(**at, BlockAddr::NULL | BlockAddr::NEW);
            let packed = to_u64(addresses.iter().skip(1).take_while(is_there).count());
            let at = addresses.get(1).copied().unwrap_or(BlockAddr::NULL);
            let end = first.saturating_add(u64::from(how.cluster.blocks()));
            return Ok(Piece::Cluster { count: end.saturating_sub(index).max(1), at, packed });
        }
    }
    let run = within_cluster(node, index, map::run(volume, node, index, count_max)?);
    if run.at == BlockAddr::COMPRESS {
        return Err(stray(node, index).into());
    }
    Ok(Piece::Run(run))
}

/// The extents of a file from `offset` on.
pub(crate) fn extents(volume: &ReadVolume, node: &Node, offset: u64) -> Result<Vec<Extent>> {
    match node.inode.kind() {
        Kind::File => {}
        Kind::Directory => return Err(CallerError::IsADirectory.into()),
        _ => return Err(CallerError::InvalidArgument.into()),
    }
    let size = node.inode.size();
    if node.inode.inline().contains(InlineFlags::DATA) {
        let inline =
            Extent { offset: 0, len: size, kind: ExtentKind::Inline, logical: None, disk_len: 0, compression: None };
        return Ok(if offset < size { vec![inline] } else { Vec::new() });
    }
    let end = size.div_ceil(BLOCK_BYTES);
    let mut index = offset / BLOCK_BYTES;
    let mut found: Vec<Extent> = Vec::new();
    while index < end && found.len() < EXTENTS_MAX {
        let piece = piece(volume, node, index, end.saturating_sub(index))?;
        if let Some(extent) = extent(node, index, &piece) {
            push(&mut found, extent);
        }
        index = index.saturating_add(piece.count());
    }
    Ok(found)
}

fn extent(node: &Node, index: u64, piece: &Piece) -> Option<Extent> {
    let (offset, len) = (index.saturating_mul(BLOCK_BYTES), piece.count().saturating_mul(BLOCK_BYTES));
    let plain = Extent { offset, len, kind: ExtentKind::Data, logical: None, disk_len: len, compression: None };
    match *piece {
        Piece::Run(Run { at: BlockAddr::NULL, .. }) => None,
        // Reserved blocks have no address yet.
        Piece::Run(Run { at: BlockAddr::NEW, .. }) => {
            Some(Extent { kind: ExtentKind::Preallocated, disk_len: 0, ..plain })
        }
        Piece::Run(Run { at, .. }) => Some(Extent { logical: Some(at.byte()), ..plain }),
        Piece::Cluster { at, packed, .. } => Some(Extent {
            logical: Some(at.byte()),
            disk_len: packed.saturating_mul(BLOCK_BYTES),
            compression: node.inode.compressed().map(cluster::name),
            ..plain
        }),
    }
}

/// Adds an extent, joined with the last one if they are adjacent on disk.
fn push(found: &mut Vec<Extent>, extent: Extent) {
    if let Some(last) = found.last_mut() {
        let goes_on = last.offset.checked_add(last.len) == Some(extent.offset)
            && last.compression.is_none()
            && extent.compression.is_none()
            && last.kind == extent.kind
            && last.logical.and_then(|at| at.checked_add(last.len)) == extent.logical;
        if goes_on {
            last.len = last.len.saturating_add(extent.len);
            last.disk_len = last.disk_len.saturating_add(extent.disk_len);
            return;
        }
    }
    found.push(extent);
}
