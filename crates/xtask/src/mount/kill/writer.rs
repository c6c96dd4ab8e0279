//! One of several that write until the server is gone.

use super::ledger::{File, Ledger, Write};
use anyhow::{Context as _, Result};
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
/// Files of which one may be renamed or replaced.
const RECENT: usize = 8;

/// Writes in a folder of its own.
pub(super) struct Writer {
    folder: PathBuf,
    random: Random,
    ledger: Ledger,
    made: u64,
    is_killed: Arc<AtomicBool>,
}

impl Writer {
    /// `is_killed` is set before the server is killed; until then nothing may fail.
    pub(super) fn new(folder: &Path, seed: u64, is_killed: Arc<AtomicBool>) -> Self {
        Self {
            folder: folder.to_owned(),
            random: Random::new(seed),
            ledger: Ledger::default(),
            made: 0,
            is_killed,
        }
    }

    /// Works until the server is gone; what it was promised by then.
    pub(super) fn run(mut self) -> Result<Ledger> {
        match self.work() {
            Err(error) if self.is_killed.load(Ordering::SeqCst) && is_end(&error) => {
                Ok(self.ledger)
            }
            done => done
                .context("before the server was killed")
                .map(|()| self.ledger),
        }
    }

    fn work(&mut self) -> io::Result<()> {
        let (own_index, own) = self.make()?;
        loop {
            match self.random.below(10) {
                0 => self.new_file()?,
                1 => self.rename()?,
                2 => self.replace()?,
                _ => {
                    for _ in 0..self.random.between(1, 4) {
                        self.write(own_index, &own, FILE_BYTES_MAX)?;
                    }
                    self.sync(own_index, &own)?;
                }
            }
        }
    }

    /// A file that nobody was promised yet.
    fn make(&mut self) -> io::Result<(usize, Open)> {
        let name = self.next_name();
        let path = self.folder.join(&name);
        let index = self.ledger.files.len();
        self.ledger.files.push(File::new(name));
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok((index, open))
    }

    fn next_name(&mut self) -> String {
        self.made = self.made.saturating_add(1);
        format!("file-{}", self.made)
    }

    fn write(&mut self, index: usize, open: &Open, file_bytes_max: u64) -> io::Result<()> {
        let offset = self.random.below(file_bytes_max);
        let len = self
            .random
            .skewed(WRITE_BYTES_MAX.min(file_bytes_max))
            .max(1);
        let len = len.min(file_bytes_max.saturating_sub(offset)).max(1);
        let write = Write {
            offset: usize::try_from(offset).map_err(io::Error::other)?,
            len: usize::try_from(len).map_err(io::Error::other)?,
            seed: self.random.number(),
        };
        if let Some(file) = self.ledger.files.get_mut(index) {
            file.write(write);
        }
        open.write_all_at(&write.bytes(), offset)
    }

    fn sync(&mut self, index: usize, open: &Open) -> io::Result<()> {
        let is_data_only = self.random.one_in(3);
        if is_data_only {
            open.sync_data()?;
        } else {
            open.sync_all()?;
        }
        self.ledger.syncs = self.ledger.syncs.saturating_add(1);
        if let Some(file) = self.ledger.files.get_mut(index) {
            let bytes = u64::try_from(file.data_synced()).unwrap_or_default();
            if !is_data_only {
                file.names_synced();
            }
            self.ledger.synced_bytes = self.ledger.synced_bytes.saturating_add(bytes);
        }
        Ok(())
    }

    fn new_file(&mut self) -> io::Result<()> {
        let (index, open) = self.make()?;
        self.write(index, &open, NEW_BYTES_MAX)?;
        self.sync(index, &open)
    }

    /// Some file made lately, but not the one that is written all the time.
    fn recent(&mut self) -> Option<usize> {
        let count = self.ledger.files.len();
        let first = count.saturating_sub(RECENT).max(1);
        let index = first.saturating_add(self.random.index(count.saturating_sub(first)));
        let file = self.ledger.files.get(index)?;
        file.is_there().then_some(index)
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some(index) = self.recent() else {
            return Ok(());
        };
        let to = self.next_name();
        let Some(file) = self.ledger.files.get_mut(index) else {
            return Ok(());
        };
        let from = self.folder.join(file.name());
        file.rename(to.clone());
        let to = self.folder.join(to);
        std::fs::rename(from, &to)?;
        if self.random.one_in(2) {
            let open = Open::open(&to)?;
            self.sync(index, &open)?;
        }
        Ok(())
    }

    /// As an editor saves: a new file, synced, takes the place of an old one.
    fn replace(&mut self) -> io::Result<()> {
        let Some(old) = self.recent() else {
            return Ok(());
        };
        let (index, open) = self.make()?;
        self.write(index, &open, NEW_BYTES_MAX)?;
        self.sync(index, &open)?;
        let name = |ledger: &Ledger, index: usize| {
            ledger
                .files
                .get(index)
                .map(|file| file.name().to_owned())
                .unwrap_or_default()
        };
        let from = self.folder.join(name(&self.ledger, index));
        let to = self.folder.join(name(&self.ledger, old));
        self.ledger.replace(index, old);
        std::fs::rename(from, to)?;
        if self.random.one_in(2) {
            rustix::fs::fsync(Open::open(&self.folder)?)?;
            self.ledger.syncs = self.ledger.syncs.saturating_add(1);
            for file in &mut self.ledger.files {
                file.names_synced();
            }
        }
        Ok(())
    }
}

/// What a client sees of a server that is gone.
fn is_end(error: &io::Error) -> bool {
    let ends = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO, Errno::NOENT];
    Errno::from_io_error(error).is_some_and(|errno| ends.contains(&errno))
}
