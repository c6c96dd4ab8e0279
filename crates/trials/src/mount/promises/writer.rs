//! Runs a writer, which changes and syncs files until the server is gone, or for a number of operations. Called by
//! `promises`.

use super::attributes::{Attributes, Change};
use super::diary::Diary;
use super::event::{Event, Source, Write};
use super::ledger::File;
use super::snapshots::Maker;
use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{File as Open, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::Random;

/// Bytes of the longest file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the longest write.
const WRITE_BYTES_MAX: u64 = 128 << 10;
/// Bytes of a new file.
const NEW_BYTES_MAX: u64 = 20_000;
/// Number of recent files that may be renamed or replaced.
const RECENT: usize = 8;

/// When a writer ends.
#[derive(Debug, Clone)]
pub(in crate::mount) enum End {
    /// When the server is killed; the flag is set before. Until then no call may fail.
    Killed(Arc<AtomicBool>),
    /// After this number of operations, none of which may fail.
    After(u64),
}

impl End {
    fn is_after(&self, operations: u64) -> bool {
        matches!(self, Self::After(count) if operations >= *count)
    }

    fn is_killed(&self) -> bool {
        matches!(self, Self::Killed(is_killed) if is_killed.load(Ordering::SeqCst))
    }
}

/// Writes in a directory of its own.
pub(in crate::mount) struct Writer {
    folder: PathBuf,
    random: Random,
    diary: Diary,
    made: u64,
    end: End,
    /// Takes snapshots of the directory, if that is a subvolume.
    maker: Option<Maker>,
}

impl Writer {
    pub(super) fn new(folder: &Path, seed: u64, end: End, diary: Diary, maker: Option<Maker>) -> Self {
        Self { folder: folder.to_owned(), random: Random::new(seed), diary, made: 0, end, maker }
    }

    /// Works to its end; returns the diary.
    pub(super) fn run(mut self) -> Result<Diary> {
        match self.work() {
            Err(error) if self.end.is_killed() && is_end(&error) => Ok(self.diary),
            done => done.context("a writer, before its end").map(|()| self.diary),
        }
    }

    fn work(&mut self) -> io::Result<()> {
        let (own_index, own) = self.make()?;
        let mut operations = 0;
        while !self.end.is_after(operations) {
            self.operation(own_index, &own)?;
            operations += 1;
        }
        Ok(())
    }

    fn operation(&mut self, own_index: usize, own: &Open) -> io::Result<()> {
        match self.random.below(20) {
            0 | 1 => self.new_file(),
            2 | 3 => self.rename(),
            4 | 5 => self.replace(),
            6 | 7 => self.change_recent(),
            8 => self.exchange(),
            9 => self.file_without_name(),
            10 => self.copy(own_index, own),
            11 if self.random.one_in(4) => self.snapshot(),
            12 if self.random.one_in(4) => self.sync_all(),
            _ => {
                if self.random.one_in(3) {
                    self.change(own_index, own)?;
                }
                for _ in 0..self.random.between(1, 4) {
                    self.write(own_index, own, FILE_BYTES_MAX)?;
                }
                self.sync(own_index, own)
            }
        }
    }

    /// Makes a file, not yet promised.
    fn make(&mut self) -> io::Result<(usize, Open)> {
        let name = self.next_name();
        let path = self.folder.join(&name);
        let index = self.files().len();
        self.diary.note(Event::New(name))?;
        let open = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        self.made(index, &open)?;
        Ok((index, open))
    }

    fn made(&mut self, index: usize, open: &Open) -> io::Result<()> {
        let attributes = Attributes::of_new(open)?;
        self.diary.note(Event::Made(index, attributes))
    }

    /// Changes an attribute of an open file.
    fn change(&mut self, index: usize, open: &Open) -> io::Result<()> {
        let change = Change::draw(&mut self.random);
        self.diary.note(Event::Change(index, change.clone()))?;
        change.make(open)
    }

    /// Changes attributes of a recent file.
    fn change_recent(&mut self) -> io::Result<()> {
        let Some((index, open)) = self.open_recent()? else {
            return Ok(());
        };
        for _ in 0..self.random.between(1, 3) {
            self.change(index, &open)?;
        }
        if self.random.one_in(2) { self.sync(index, &open) } else { Ok(()) }
    }

    fn open_recent(&mut self) -> io::Result<Option<(usize, Open)>> {
        let Some(index) = self.recent() else {
            return Ok(None);
        };
        let path = self.path_of(index);
        Ok(Some((index, OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn files(&self) -> &[File] {
        &self.diary.ledger.files
    }

    fn path_of(&self, index: usize) -> PathBuf {
        self.folder.join(self.files().get(index).map_or("", File::name))
    }

    /// Two files change names.
    fn exchange(&mut self) -> io::Result<()> {
        let (Some(one), Some(other)) = (self.recent(), self.recent()) else {
            return Ok(());
        };
        if one == other {
            return Ok(());
        }
        let (from, to) = (self.path_of(one), self.path_of(other));
        self.diary.note(Event::Exchange(one, other))?;
        rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE)?;
        if self.random.one_in(2) {
            let open = Open::open(&to)?;
            self.sync(one, &open)?;
        }
        Ok(())
    }

    /// A file that is written first and gets its name then.
    fn file_without_name(&mut self) -> io::Result<()> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let open = Open::from(rustix::fs::open(&self.folder, flags, Mode::from_raw_mode(0o640))?);
        let name = self.next_name();
        let path = self.folder.join(&name);
        let index = self.files().len();
        self.diary.note(Event::New(name))?;
        self.made(index, &open)?;
        self.write(index, &open, NEW_BYTES_MAX)?;
        self.change(index, &open)?;
        if self.random.one_in(2) {
            // Promises nothing while the file has no name.
            open.sync_all()?;
        }
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        rustix::fs::linkat(CWD, descriptor, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
        self.sync(index, &open)
    }

    /// Copies data of a recent file into the main file, by sharing extents if possible.
    fn copy(&mut self, own_index: usize, own: &Open) -> io::Result<()> {
        const BLOCK: u64 = 4096;
        let Some((index, source)) = self.open_recent()? else {
            return Ok(());
        };
        self.diary.note(Event::Used(index))?;
        let contents = self.files().get(index).map_or(Vec::new(), File::contents);
        let blocks = FILE_BYTES_MAX / BLOCK / 2;
        let mut to = self.random.below(blocks) * BLOCK;
        let write = Write {
            offset: usize::try_from(to).map_err(io::Error::other)?,
            len: contents.len(),
            source: Source::Copied(contents.into()),
        };
        let mut left = write.len;
        self.diary.note(Event::Write(own_index, write))?;
        let mut from = 0;
        while left > 0 {
            let count = rustix::fs::copy_file_range(&source, Some(&mut from), own, Some(&mut to), left)?;
            if count == 0 {
                return Err(io::Error::other("a copy ended early"));
            }
            left = left.saturating_sub(count);
        }
        self.sync(own_index, own)
    }

    /// Makes a read-only snapshot of the directory, which is durable at once.
    fn snapshot(&mut self) -> io::Result<()> {
        let Some(maker) = &mut self.maker else {
            return Ok(());
        };
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let path = format!("snapshots/{name}-{}", self.diary.ledger.snapshots.len());
        let top = self.folder.parent().unwrap_or(&self.folder);
        maker.snapshot(&self.folder, &top.join(&path))?;
        self.diary.note(Event::Snapshot(path))
    }

    fn sync_all(&mut self) -> io::Result<()> {
        rustix::fs::syncfs(Open::open(&self.folder)?)?;
        self.diary.note(Event::AllSynced)
    }

    fn next_name(&mut self) -> String {
        self.made = self.made.saturating_add(1);
        format!("file-{}", self.made)
    }

    fn write(&mut self, index: usize, open: &Open, file_bytes_max: u64) -> io::Result<()> {
        let offset = self.random.below(file_bytes_max);
        let len = self.random.skewed(WRITE_BYTES_MAX.min(file_bytes_max)).max(1);
        let len = len.min(file_bytes_max.saturating_sub(offset)).max(1);
        let write = Write {
            offset: usize::try_from(offset).map_err(io::Error::other)?,
            len: usize::try_from(len).map_err(io::Error::other)?,
            source: Source::Seed(self.random.number()),
        };
        let bytes = write.bytes();
        self.diary.note(Event::Write(index, write))?;
        open.write_all_at(&bytes, offset)
    }

    fn sync(&mut self, index: usize, open: &Open) -> io::Result<()> {
        if self.random.one_in(3) {
            open.sync_data()?;
            self.diary.note(Event::DataSynced(index))
        } else {
            open.sync_all()?;
            self.diary.note(Event::Synced(index))
        }
    }

    fn new_file(&mut self) -> io::Result<()> {
        let (index, open) = self.make()?;
        self.write(index, &open, NEW_BYTES_MAX)?;
        self.sync(index, &open)
    }

    /// A recent file, but not the main file.
    fn recent(&mut self) -> Option<usize> {
        let count = self.files().len();
        let first = count.saturating_sub(RECENT).max(1);
        let index = first.saturating_add(self.random.index(count.saturating_sub(first)));
        let file = self.files().get(index)?;
        file.is_there().then_some(index)
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some(index) = self.recent() else {
            return Ok(());
        };
        let to = self.next_name();
        let from = self.path_of(index);
        self.diary.note(Event::Rename(index, to.clone()))?;
        let to = self.folder.join(to);
        std::fs::rename(from, &to)?;
        if self.random.one_in(2) {
            let open = Open::open(&to)?;
            self.sync(index, &open)?;
        }
        Ok(())
    }

    /// As an editor saves: a new, synced file replaces an old one.
    fn replace(&mut self) -> io::Result<()> {
        let Some(old) = self.recent() else {
            return Ok(());
        };
        let (index, open) = self.make()?;
        self.write(index, &open, NEW_BYTES_MAX)?;
        self.sync(index, &open)?;
        let (from, to) = (self.path_of(index), self.path_of(old));
        self.diary.note(Event::Replace { index, old })?;
        std::fs::rename(from, to)?;
        if self.random.one_in(2) {
            rustix::fs::fsync(Open::open(&self.folder)?)?;
            self.diary.note(Event::FolderSynced)?;
        }
        Ok(())
    }
}

/// True for an error that a client gets if the server is gone.
fn is_end(error: &io::Error) -> bool {
    // The last one where the disk failed, not the server of the mount.
    let ends = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO, Errno::NOENT, Errno::ROFS];
    Errno::from_io_error(error).is_some_and(|errno| ends.contains(&errno))
}
