//! `spinney dedupe` finds equal blocks of files, and lets the files share them. Called by `args`.
//!
//! This module searches: it reads blocks in file order and remembers their hashes; runs of blocks seen before become
//! matches. The `Place` of the files shares the matches: `image` through the library, alone with the image; `mounted`
//! through the kernel and the server of the mount, while others may change the files. Both compare the bytes before
//! sharing: a hash is a hint. A file that cannot share is counted, not a failure; a file that fails is skipped and
//! reported, and the search continues with the others.

mod image;
mod mounted;

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::vfs::file_system::DEDUPE_BYTES_MAX;

use super::failures::Failures;
use super::files::{Files, FilesArgs};
use super::human;
use super::image::ImageArgs;
use super::output::Output;
use super::progress::{Bar, Progress};

/// Default block size in bytes.
const BLOCK_BYTES_DEFAULT: u64 = 128 << 10;
/// Block sizes are multiples of this.
const BLOCK_BYTES_MIN: u64 = 4096;
const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Most remembered blocks; later blocks are compared with these, not with each other.
const BLOCKS_MAX: usize = 8 << 20;

/// Let files share equal data
///
/// Contents are read block by block; blocks with equal checksums are compared byte by byte, and shared if they are
/// equal. Times stay as they are.
///
/// Files in read-only snapshots are included: sharing does not change their contents.
///
/// With a directory of a mount in place of IMAGE, files may be in use meanwhile: your own, or, as root, all. Data
/// written by others in between is kept.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney dedupe -r site.img:/home site.img:/srv\n",
    "  spinney dedupe -r site.img /                 everything that is in the default subvolume\n",
    "  spinney dedupe -r mnt /                      the same of a mount\n",
    "  spinney dedupe -b 4K site.img /a /b          small blocks find more, and take longer\n",
    "  spinney dedupe -r --json site.img / | jq .bytes_shared"
))]
pub(crate) struct Dedupe {
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
    /// Report as JSON: {files, bytes_read, bytes_shared, files_skipped, files_failed}
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
    /// Files that were read.
    files: usize,
    bytes_read: u64,
    /// Bytes that had space of their own before.
    bytes_shared: u64,
    /// Files that cannot share, such as those without checksums, or immutable ones.
    files_skipped: usize,
    /// Files and directories that failed; the standard error names them.
    files_failed: u64,
    #[serde(skip)]
    files_done: u64,
}

/// The first occurrence of a block.
#[derive(Debug, Clone, Copy)]
struct Seen {
    file: u32,
    /// In blocks.
    number: u64,
}

/// A range of a file that may be equal to one of another.
#[derive(Debug, Clone, Copy)]
struct Match {
    source: u32,
    source_offset: u64,
    offset: u64,
    len: u64,
}

/// The result of sharing a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Shared,
    /// The ranges differ, or are shared already.
    Nothing,
    /// The file cannot share.
    Refused,
}

/// The image or mount that holds the files.
trait Place {
    /// An open file.
    type File;

    /// The files to read, with their sizes.
    fn files(&self) -> &Files;

    /// Opens a file; `None` for one that cannot be read, which is no failure.
    fn open(&self, path: &Path) -> Result<Option<Self::File>>;

    /// The first range of data at `offset` or behind it, without bytes before `offset`.
    fn next_data(&self, file: &Self::File, offset: u64) -> Result<Option<Range<u64>>>;

    /// Reads at a position; less than the whole buffer at the end of the file only.
    fn read(&self, file: &Self::File, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Shares equal bytes.
    fn share(&self, source: &Self::File, target: &Self::File, found: &Match) -> Result<Outcome>;

    /// Ends the work on the files.
    fn close(self) -> Result<()>;
}

impl Dedupe {
    /// Runs the command.
    ///
    /// # Errors
    /// The number of failed files, or the only failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let failures = Failures::default();
        let report = match self.image.mounted_dir()? {
            Some(dir) => self.share(mounted::Mounted::find(&dir, &self.files, &failures)?, &failures)?,
            None => self.share(image::Image::open(&self.image, &self.files, &failures)?, &failures)?,
        };
        let others = report.files_done;
        if self.json {
            out.json(&report)?;
            return failures.tell(others, "shared");
        }
        if !self.quiet {
            let Report { files, bytes_shared, files_skipped, .. } = report;
            let skipped = if files_skipped > 0 { format!(" ({files_skipped} cannot share)") } else { String::new() };
            writeln!(out, "{} shared, in {files} files{skipped}", human::bytes(bytes_shared))?;
        }
        failures.tell(others, "shared")
    }

    fn share<P: Place>(&self, place: P, failures: &Failures) -> Result<Report> {
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        progress.bytes_total.store(place.files().bytes(), Ordering::Relaxed);
        let (seen, report) = (HashMap::new(), Report::default());
        let mut search = Search { place: &place, block: self.block, seen, report, failures };
        let done = (0..place.files().len()).try_for_each(|number| search.look(number, &progress));
        let report = Report { files_failed: failures.count(), ..search.report };
        // Ranges shared before a failure stay shared.
        let closed = place.close();
        drop(bar);
        done?;
        closed?;
        Ok(report)
    }
}

/// The blocks seen so far.
struct Search<'a, P> {
    place: &'a P,
    block: u64,
    seen: HashMap<u64, Seen>,
    report: Report,
    failures: &'a Failures,
}

impl<P: Place> Search<'_, P> {
    /// Reads the blocks of a file, and shares those that were seen before.
    fn look(&mut self, number: usize, progress: &Progress) -> Result<()> {
        let Some((path, size)) = self.place.files().get(number) else { return Ok(()) };
        let looked_at = self.look_at(number, (path, size), progress);
        if self.failures.note(looked_at, false)?.is_some() {
            self.report.files_done = self.report.files_done.saturating_add(1);
        }
        Ok(())
    }

    fn look_at(&mut self, number: usize, (path, size): (&Path, u64), progress: &Progress) -> Result<()> {
        let file = self.place.open(path)?;
        progress.add_name();
        self.report.files = self.report.files.saturating_add(1);
        let Some(file) = file else {
            progress.add_bytes(size);
            self.report.files_skipped = self.report.files_skipped.saturating_add(1);
            return Ok(());
        };
        let matches = self.matches(number, &file, size, progress)?;
        self.share(&file, &matches)
    }

    /// The ranges of a file that seem to be equal to others. Holes are skipped.
    fn matches(&mut self, number: usize, file: &P::File, size: u64, progress: &Progress) -> Result<Vec<Match>> {
        let mut buffer = vec![0; usize::try_from(self.block)?];
        let mut matches: Vec<Match> = Vec::new();
        let mut looked_at = 0;
        let place = self.place;
        let next_data = |offset| place.next_data(file, offset);
        for found in (Blocks { next_data, block: self.block, size, offset: 0, data: 0..0 }) {
            let (offset, len) = found?;
            progress.add_bytes(offset.saturating_add(len).saturating_sub(looked_at));
            looked_at = offset.saturating_add(len);
            let bytes = buffer.get_mut(..usize::try_from(len)?).unwrap_or_default();
            if place.read(file, bytes, offset)? < bytes.len() {
                break;
            }
            self.report.bytes_read = self.report.bytes_read.saturating_add(len);
            let hash = hash(bytes);
            match self.seen.get(&hash) {
                Some(seen) => {
                    let source_offset = seen.number.saturating_mul(self.block);
                    add(&mut matches, Match { source: seen.file, source_offset, offset, len });
                }
                None if self.seen.len() < BLOCKS_MAX => {
                    let seen = Seen { file: u32::try_from(number)?, number: offset / self.block };
                    self.seen.insert(hash, seen);
                }
                None => {}
            }
        }
        progress.add_bytes(size.saturating_sub(looked_at));
        Ok(matches)
    }

    fn share(&mut self, file: &P::File, matches: &[Match]) -> Result<()> {
        let mut source: Option<(u32, P::File)> = None;
        for found in matches {
            if source.as_ref().is_none_or(|(number, _)| *number != found.source) {
                let Some((path, _)) = self.place.files().get(usize::try_from(found.source)?) else { continue };
                let Some(opened) = self.place.open(path)? else { continue };
                source = Some((found.source, opened));
            }
            let Some((_, source)) = &source else { continue };
            match self.place.share(source, file, found)? {
                Outcome::Shared => self.report.bytes_shared = self.report.bytes_shared.saturating_add(found.len),
                Outcome::Nothing => {}
                Outcome::Refused => {
                    self.report.files_skipped = self.report.files_skipped.saturating_add(1);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The blocks of a file that have no hole, and the rest at its end: first byte and length.
struct Blocks<N> {
    next_data: N,
    block: u64,
    size: u64,
    offset: u64,
    /// The range of data that `offset` is in or behind.
    data: Range<u64>,
}

impl<N: Fn(u64) -> Result<Option<Range<u64>>>> Iterator for Blocks<N> {
    type Item = Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.offset < self.size {
            if self.offset >= self.data.end {
                self.data = match (self.next_data)(self.offset) {
                    Ok(data) => data?,
                    Err(error) => {
                        self.offset = self.size;
                        return Some(Err(error));
                    }
                };
                self.offset = self.data.start.max(self.offset).checked_next_multiple_of(self.block)?;
            }
            let len = self.block.min(self.size.checked_sub(self.offset)?);
            let end = self.offset.saturating_add(len);
            if len > 0 && end <= self.data.end.max(self.offset) {
                let at = std::mem::replace(&mut self.offset, end);
                return Some(Ok((at, len)));
            }
            // The block is incomplete: the next one begins in this range of data, or behind it.
            self.offset = self.offset.max(self.data.end);
            self.data = 0..0;
        }
        None
    }
}

/// Adds a match to the last one, if it continues it in both files and one call can share both.
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

/// Equal blocks have equal hashes; different blocks rarely do, and are compared.
fn hash(bytes: &[u8]) -> u64 {
    twox_hash::XxHash64::oneshot(0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_that_go_on_become_one() {
        let mut matches = Vec::new();
        for (source_offset, offset) in [(0, 4096), (4096, 8192), (8192, 16_384), (12_288, 20_480)] {
            add(&mut matches, Match { source: 1, source_offset, offset, len: 4096 });
        }
        let lens: Vec<u64> = matches.iter().map(|found| found.len).collect();
        assert_eq!(lens, [8192, 8192]);
    }

    #[test]
    fn blocks_are_whole_ones_in_data_and_the_last_one_of_the_file() {
        let blocks = |data: &[Range<u64>], size| {
            let next =
                |offset: u64| Ok(data.iter().map(|run| run.start.max(offset)..run.end).find(|run| !run.is_empty()));
            Blocks { next_data: next, block: 10, size, offset: 0, data: 0..0 }.map(Result::unwrap).collect::<Vec<_>>()
        };
        assert_eq!(blocks(&[0..25, 40..61], 61), [(0, 10), (10, 10), (40, 10), (50, 10), (60, 1)]);
        assert_eq!(blocks(&[3..19, 25..40], 100), [(30, 10)]);
        assert_eq!(blocks(&[0..12, 90..91], 5), [(0, 5)]);
        assert_eq!(blocks(&[], 100), []);
        assert_eq!(blocks(&[3..4, u64::MAX - 9..u64::MAX], u64::MAX), [(u64::MAX - 5, 5)]);
    }
}
