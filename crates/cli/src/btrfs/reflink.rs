//! Shares the data of a new image with the files that it was copied from (`mkfs --reflink`), where both lie on a host
//! file system that can do that: afterwards it stores the data once. Called by `btrfs::mkfs` when the image is complete
//! but for its superblocks.
//!
//! Whole blocks are shared; the ends of files, data without an extent of its own and metadata stay as they are. The
//! image has the same bytes as without: a file that was changed meanwhile is found by its checksums, and fails.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;
use spinney::btrfs::disk::flags::BlockGroupFlags;
use spinney::btrfs::{ChunkInfo, Volume};
use spinney::vfs::{File as VolumeFile, Volume as Files};

use super::verity::files;
use crate::commands::failure::{Failure, Status};
use crate::commands::kernel;
use crate::commands::unnamed::Unnamed;

/// Only whole blocks are shared.
const BLOCK_BYTES: u64 = 4096;
/// Bytes that are read at once to compare them with their checksums.
const READ_BYTES: usize = 1 << 20;

/// An image file, and the directory that it was copied from.
pub(super) struct Sharing<'a> {
    image: &'a Path,
    /// First byte of the file system in the file.
    offset: u64,
    source: &'a Path,
}

impl<'a> Sharing<'a> {
    /// Tries whether the host shares data of `source` with files beside the image.
    ///
    /// # Errors
    /// `Unsupported` with the reason where it does not; those of the host.
    pub(super) fn new((image, offset): (&'a Path, u64), source: &'a Path) -> Result<Option<Self>> {
        if !offset.is_multiple_of(BLOCK_BYTES) {
            let text = format!("--reflink: expected a multiple of {BLOCK_BYTES} as the offset, found {offset}");
            return Err(Failure::usage(text).into());
        }
        let Some(sample) = first_file(source)? else { return Ok(None) };
        let trial = Unnamed::beside(image)?;
        match kernel::clone_file(trial.file(), &open(&sample)?) {
            Ok(()) => Ok(Some(Self { image, offset, source })),
            Err(error @ (Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::NOTTY)) => {
                let why = match error {
                    Errno::XDEV => "they are on two file systems",
                    _ => "their file system cannot",
                };
                let text = format!("--reflink: {} shares no data with {}: {why}", image.display(), source.display());
                Err(Failure::new(Status::Unsupported, text).into())
            }
            Err(error) => Err(std::io::Error::from(error)).with_context(|| sample.display().to_string()),
        }
    }

    /// Shares the data of all files; returns how many bytes.
    ///
    /// # Errors
    /// `Refused` for a file that was changed since it was copied; those of the host and the volume.
    pub(super) fn share(&self, volume: &Volume) -> Result<u64> {
        let image = OpenOptions::new().read(true).write(true).open(self.image);
        let image = image.with_context(|| self.image.display().to_string())?;
        let chunks: BTreeMap<u64, ChunkInfo> =
            volume.chunks().into_iter().map(|chunk| (chunk.logical, chunk)).collect();
        let mut shared = Vec::new();
        for path in files(volume.by_paths())? {
            shared.extend(self.share_file(volume.by_paths(), &path, (&image, &chunks))?);
        }
        shared.sort_unstable_by_key(|range: &Range<u64>| range.start);
        let bytes = shared.iter().fold(0_u64, |sum, range| sum.saturating_add(range.end.saturating_sub(range.start)));
        write_anew(&image, &shared).with_context(|| self.image.display().to_string())?;
        Ok(bytes)
    }

    /// Returns the ranges of the image that are shared now.
    fn share_file(
        &self,
        volume: &Files,
        path: &Path,
        (image, chunks): (&File, &BTreeMap<u64, ChunkInfo>),
    ) -> Result<Vec<Range<u64>>> {
        let from = self.source.join(path.strip_prefix("/").unwrap_or(path));
        let copy = VolumeFile::open(volume, path)?;
        let size = copy.metadata()?.size;
        if size < BLOCK_BYTES {
            return Ok(Vec::new());
        }
        let source = open(&from)?;
        let about = || from.display().to_string();
        if source.metadata().with_context(about)?.size() != size {
            return Err(changed(&from));
        }
        let mut shared = Vec::new();
        for extent in copy.extents()? {
            let whole = extent.offset.saturating_add(extent.len).min(size) / BLOCK_BYTES * BLOCK_BYTES;
            let len = whole.saturating_sub(extent.offset);
            let Some(logical) = extent.logical.filter(|_| extent.compression.is_none() && len > 0) else { continue };
            let Some(chunk) = chunks.range(..=logical).next_back().map(|(_, chunk)| chunk) else { continue };
            for place in places(chunk, logical) {
                let at = self.offset.saturating_add(place);
                clone(&source, extent.offset, image, at, len).with_context(about)?;
                shared.push(at..at.saturating_add(len));
            }
        }
        match shared.is_empty() {
            true => Ok(shared),
            false => verify(&copy, size).map(|()| shared).map_err(|_| changed(&from)),
        }
    }
}

fn changed(path: &Path) -> anyhow::Error {
    Failure::refused(format!("{}: changed while the image was made", path.display())).into()
}

fn open(path: &Path) -> Result<File> {
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.with_context(|| path.display().to_string())
}

/// Where the byte at an address is on the device: once for each copy.
fn places(chunk: &ChunkInfo, logical: u64) -> Vec<u64> {
    let profile = chunk.flags & BlockGroupFlags::PROFILE_MASK;
    let is_plain = profile.is_empty() || profile == BlockGroupFlags::DUP;
    let within = logical.saturating_sub(chunk.logical);
    let stripes = chunk.stripes.iter().filter(|_| is_plain && within < chunk.bytes);
    stripes.map(|(_, start)| start.saturating_add(within)).collect()
}

/// Shares blocks. Linux shares them in `copy_file_range(2)` where it can: [`Sharing::new`] has tried.
fn clone(source: &File, from: u64, image: &File, to: u64, len: u64) -> std::io::Result<()> {
    let (mut from, mut to) = (from, to);
    let end = from.saturating_add(len);
    while from < end {
        let left = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        // It moves both offsets.
        if kernel::copy_range((source, &mut from), (image, &mut to), left)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Writes everything between the shared ranges once more, with the same bytes. The host keeps an extent as long as some
/// of it is used: those that the image was written to in the beginning would stay whole for the little that is not
/// shared.
fn write_anew(image: &File, shared: &[Range<u64>]) -> std::io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    for (before, after) in shared.iter().zip(shared.iter().skip(1)) {
        let (mut at, end) = (before.end, after.start);
        while let Some(data) = next(image, SeekFrom::Data(at), end)? {
            let hole = next(image, SeekFrom::Hole(data), end)?.unwrap_or(end);
            let len = hole.saturating_sub(data).min(u64::try_from(READ_BYTES).unwrap_or(u64::MAX));
            let part = buffer.get_mut(..usize::try_from(len).unwrap_or_default()).unwrap_or_default();
            image.read_exact_at(part, data)?;
            image.write_all_at(part, data)?;
            at = data.saturating_add(len.max(1));
        }
    }
    Ok(())
}

/// The place that a seek finds before `end`.
fn next(image: &File, from: SeekFrom, end: u64) -> std::io::Result<Option<u64>> {
    match seek(image, from) {
        Ok(found) => Ok(Some(found).filter(|found| *found < end)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads a file of the image, which compares its data with the checksums.
fn verify(file: &VolumeFile, size: u64) -> Result<()> {
    let (mut buffer, mut at) = (vec![0; READ_BYTES], 0_u64);
    while at < size {
        let count = file.read_at(&mut buffer, at)?;
        at = at.saturating_add(u64::try_from(count.max(1)).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// Any file with data of its own below a directory.
fn first_file(dir: &Path) -> Result<Option<PathBuf>> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let shown = || dir.display().to_string();
        for entry in std::fs::read_dir(&dir).with_context(shown)? {
            let entry = entry.with_context(shown)?;
            let found = entry.metadata().with_context(|| entry.path().display().to_string())?;
            if found.is_dir() {
                dirs.push(entry.path());
            } else if found.is_file() && found.len() >= BLOCK_BYTES {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}
