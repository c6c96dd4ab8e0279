//! `spinney dedupe`

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use vfs::file_system::{DEDUPE_BYTES_MAX, Extent, ExtentKind};
use vfs::{Blame, Errno, File, FileOptions, Volume};

use super::files::{Files, FilesArgs};
use super::human;
use super::image::ImageArgs;
use super::output::Output;
use super::progress::{Bar, Progress};

/// Bytes of a block, unless asked for otherwise.
const BLOCK_BYTES_DEFAULT: u64 = 128 << 10;
/// A block is a multiple of this.
const BLOCK_BYTES_MIN: u64 = 4096;
const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Blocks that are remembered at most; those behind are compared with them, and not with each other.
const BLOCKS_MAX: usize = 8 << 20;

/// Let files share what they have in common
///
/// Contents are looked at block by block; what has the same checksum is compared byte by byte, and shared where it is
/// the same. Times stay as they are.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney dedupe -r site.img /                 everything that is in the default subvolume\n",
    "  spinney dedupe -b 4K site.img /a /b          small blocks find more, and take longer\n",
    "  spinney dedupe -r --json site.img / | jq .bytes_shared"
))]
pub struct Dedupe {
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    files: FilesArgs,
    /// Bytes of a block: a multiple of 4K, up to 16M
    #[arg(short, long, value_name = "SIZE", value_parser = parse_block, default_value_t = BLOCK_BYTES_DEFAULT,
        hide_default_value = true)]
    block: u64,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {files, bytes_read, bytes_shared, files_skipped}
    #[arg(long)]
    json: bool,
}

fn parse_block(text: &str) -> Result<u64, String> {
    let bytes = human::parse_bytes(text)?;
    match bytes.is_multiple_of(BLOCK_BYTES_MIN) && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("`{text}`: give a multiple of 4K, up to 16M")),
    }
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// Files that were looked at.
    files: usize,
    bytes_read: u64,
    /// Bytes that had space of their own before.
    bytes_shared: u64,
    /// Files that could not share: without checksums, say, or that nothing may change.
    files_skipped: usize,
}

/// A block that was seen first.
#[derive(Debug, Clone, Copy)]
struct Seen {
    file: u32,
    /// In blocks.
    number: u64,
}

/// A stretch of a file that may be the same as one of another.
#[derive(Debug, Clone, Copy)]
struct Match {
    source: u32,
    source_offset: u64,
    offset: u64,
    len: u64,
}

impl Dedupe {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; [`crate::failure::status_of`] says of what kind it is.
    pub fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_writable()?;
        let files = Files::find(&volume, &self.files)?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        progress.bytes_total.store(files.bytes(), Ordering::Relaxed);
        let paths: Vec<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
        let mut search = Search { volume: &volume, paths, block: self.block, seen: HashMap::new() };
        let mut report = Report::default();
        let done = (0_u32..)
            .zip(files.iter())
            .try_for_each(|(number, (path, size))| search.look(number, path, *size, &progress, &mut report));
        drop(search);
        // What was shared before a failure stays shared.
        let closed = volume.close();
        drop(bar);
        done?;
        closed?;
        if self.json {
            return out.json(&report);
        }
        if !self.quiet {
            let Report { files, bytes_shared, files_skipped, .. } = report;
            let skipped = if files_skipped > 0 { format!(" ({files_skipped} cannot share)") } else { String::new() };
            writeln!(out, "{} shared, in {files} files{skipped}", human::bytes(bytes_shared))?;
        }
        Ok(())
    }
}

/// The blocks that were seen so far.
struct Search<'a> {
    volume: &'a Volume,
    paths: Vec<&'a Path>,
    block: u64,
    seen: HashMap<u64, Seen>,
}

impl Search<'_> {
    /// Looks at the blocks of a file, and shares those that were seen before.
    fn look(&mut self, number: u32, path: &Path, size: u64, progress: &Progress, report: &mut Report) -> Result<()> {
        let file = FileOptions::new().read(true).open(self.volume, path)?;
        let extents = file.extents().map_err(|error| error.at(path))?;
        let mut buffer = vec![0; usize::try_from(self.block)?];
        let mut matches: Vec<Match> = Vec::new();
        let mut next = 0;
        // Holes are passed over, however long they may be.
        while let Some(block) = next_block(&extents, next, self.block) {
            let offset = block.saturating_mul(self.block);
            if offset >= size {
                break;
            }
            next = block.saturating_add(1);
            let len = self.block.min(size - offset);
            progress.add_bytes(len);
            if !has_space(&extents, offset, len) {
                continue;
            }
            let bytes = buffer.get_mut(..usize::try_from(len)?).unwrap_or_default();
            if file.read_at(bytes, offset).map_err(|error| error.at(path))? < bytes.len() {
                break;
            }
            report.bytes_read = report.bytes_read.saturating_add(len);
            let hash = hash(bytes);
            match self.seen.get(&hash) {
                Some(seen) => {
                    let at = Match { source: seen.file, source_offset: seen.number * self.block, offset, len };
                    add(&mut matches, at);
                }
                None if self.seen.len() < BLOCKS_MAX => {
                    self.seen.insert(hash, Seen { file: number, number: block });
                }
                None => {}
            }
        }
        drop(file);
        progress.add_name();
        report.files = report.files.saturating_add(1);
        self.share(path, &extents, &matches, report)
    }

    fn share(&self, path: &Path, extents: &[Extent], matches: &[Match], report: &mut Report) -> Result<()> {
        let mut source: Option<(u32, File, Vec<Extent>)> = None;
        let mut target = None;
        for found in matches {
            if source.as_ref().is_none_or(|(number, ..)| *number != found.source) {
                let path = self.paths.get(usize::try_from(found.source)?).copied().unwrap_or(path);
                let file = File::open(self.volume, path)?;
                let extents = file.extents().map_err(|error| error.at(path))?;
                source = Some((found.source, file, extents));
            }
            let Some((_, source, source_extents)) = &source else { continue };
            if is_shared(source_extents, found.source_offset, extents, found.offset, found.len) {
                continue;
            }
            let opened = match target.take() {
                Some(opened) => Ok(opened),
                None => FileOptions::new().read(true).write(true).open(self.volume, path),
            };
            let shared = opened.and_then(|opened| {
                let is_same = opened.dedupe(source, found.source_offset, found.offset, found.len)?;
                target = Some(opened);
                Ok(is_same)
            });
            match shared {
                Ok(true) => report.bytes_shared = report.bytes_shared.saturating_add(found.len),
                Ok(false) => {}
                Err(error) if error.blame() == Blame::Caller && error.errno() != Errno::ENOSPC => {
                    report.files_skipped = report.files_skipped.saturating_add(1);
                    return Ok(());
                }
                Err(error) => return Err(error.at(path).into()),
            }
        }
        Ok(())
    }
}

/// Adds a match to the last one, where it goes on in both files and the call has room for it.
fn add(matches: &mut Vec<Match>, found: Match) {
    match matches.last_mut() {
        Some(last)
            if last.source == found.source
                && last.source_offset.saturating_add(last.len) == found.source_offset
                && last.offset.saturating_add(last.len) == found.offset
                && last.len.saturating_add(found.len) <= DEDUPE_BYTES_MAX =>
        {
            last.len = last.len.saturating_add(found.len);
        }
        _ => matches.push(found),
    }
}

/// The extent that a byte of a file is in.
fn extent_at(extents: &[Extent], offset: u64) -> Option<&Extent> {
    let next = extents.partition_point(|extent| extent.offset <= offset);
    let extent = extents.get(next.checked_sub(1)?)?;
    (offset.checked_sub(extent.offset)? < extent.len).then_some(extent)
}

/// The first block from `block` on that has anything.
fn next_block(extents: &[Extent], block: u64, block_bytes: u64) -> Option<u64> {
    let offset = block.saturating_mul(block_bytes);
    if extent_at(extents, offset).is_some() {
        return Some(block);
    }
    let next = extents.get(extents.partition_point(|extent| extent.offset <= offset))?;
    Some(block.max(next.offset / block_bytes))
}

/// True where all of a range is data on disk.
fn has_space(extents: &[Extent], offset: u64, len: u64) -> bool {
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end {
        match extent_at(extents, at) {
            Some(extent) if extent.kind == ExtentKind::Data => at = extent.offset.saturating_add(extent.len),
            _ => return false,
        }
    }
    true
}

/// True where two ranges are in the same place on disk already.
fn is_shared(ours: &[Extent], our_offset: u64, theirs: &[Extent], their_offset: u64, len: u64) -> bool {
    let mut done = 0;
    while done < len {
        let pair =
            extent_at(ours, our_offset.saturating_add(done)).zip(extent_at(theirs, their_offset.saturating_add(done)));
        let Some((a, b)) = pair else { return false };
        let (in_a, in_b) = (our_offset + done - a.offset, their_offset + done - b.offset);
        let place = |extent: &Extent, within: u64| match extent.compression {
            // A compressed extent is named by its first byte.
            Some(_) => extent.logical,
            None => extent.logical.map(|at| at.saturating_add(within)),
        };
        if a.compression != b.compression || place(a, in_a) != place(b, in_b) {
            return false;
        }
        done += (a.len - in_a).min(b.len - in_b).max(1);
    }
    true
}

/// Equal blocks have equal numbers; others rarely, and are compared.
fn hash(bytes: &[u8]) -> u64 {
    twox_hash::XxHash64::oneshot(0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, len: u64, logical: u64) -> Extent {
        Extent { offset, len, kind: ExtentKind::Data, logical: Some(logical), disk_len: len, compression: None }
    }

    #[test]
    fn places_are_compared() {
        let ours = [extent(0, 8192, 100_000), extent(8192, 4096, 500_000)];
        let theirs = [extent(4096, 4096, 104_096), extent(8192, 8192, 500_000)];
        assert!(is_shared(&ours, 4096, &theirs, 4096, 8192));
        assert!(!is_shared(&ours, 0, &theirs, 4096, 4096));
        assert!(!is_shared(&ours, 4096, &theirs, 0, 4096), "a hole");
        assert_eq!(next_block(&theirs, 0, 4096), Some(1));
        assert_eq!(next_block(&theirs, 4, 4096), None);
        assert_eq!(next_block(&[extent(1 << 62, 4096, 0)], 1, 8192), Some(1 << 49));
        assert!(has_space(&ours, 0, 12_288) && !has_space(&ours, 0, 12_289) && !has_space(&theirs, 0, 8192));
    }

    #[test]
    fn matches_that_go_on_become_one() {
        let mut matches = Vec::new();
        for (source_offset, offset) in [(0, 4096), (4096, 8192), (8192, 16_384), (12_288, 20_480)] {
            add(&mut matches, Match { source: 1, source_offset, offset, len: 4096 });
        }
        let lens: Vec<u64> = matches.iter().map(|found| found.len).collect();
        assert_eq!(lens, [8192, 8192]);
    }
}
